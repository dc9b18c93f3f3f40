//! No text of a client becomes a label of a metric: whoever could make labels up could fill the server's memory, and that
//! of whoever scrapes it.
//!
//! Requests carry words that occur nowhere else, in every place where a client can put one; none may be on `/metrics`.

use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::json;
use testkit::tools;

use crate::harness::{MAPS, TestServer};

/// Begins every word that a client made up.
const MARK: &str = "zqx";

/// Makes words and chooses among what there is.
struct Words {
    random: StdRng,
    next: usize,
}

impl Words {
    fn made_up(&mut self) -> String {
        self.next += 1;
        format!("{MARK}{}", self.next)
    }

    /// One of those, or a word of its own every other time.
    fn one_of(&mut self, known: &[&str]) -> String {
        match self.random.random_range(0..known.len() * 2) {
            n if n < known.len() => known[n].to_owned(),
            _ => self.made_up(),
        }
    }

    fn path(&mut self) -> String {
        let paths = [
            "/api/VERSION/namespaces/NAMESPACE/RESOURCE/NAME/SUB",
            "/api/v1/namespaces/default/RESOURCE/NAME/SUB",
            "/api/v1/namespaces/default/configmaps/known/SUB",
            "/api/v1/namespaces/default/pods/NAME/SUB/REST",
            "/apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE/NAME",
            "/apis/apps/v1/namespaces/default/deployments/NAME/SUB",
            "/api/v1/watch/namespaces/NAMESPACE/RESOURCE/NAME",
            "/api/v1/namespaces/NAMESPACE/SUB",
            "/api/v1/namespaces/default/RESOURCE",
            "/apis/GROUP/VERSION",
            "/openapi/v3/apis/GROUP/VERSION",
            "/healthz/SUB",
            "/livez/SUB",
            "/readyz/SUB",
            "/metrics/SUB",
            "/version/SUB",
            "/convoy/SUB",
            "/SUB/NAME",
        ];
        let path = paths[self.random.random_range(0..paths.len())];
        let path = path.split('/').map(|part| match part {
            "VERSION" => self.one_of(&["v1", "v1beta1"]),
            "NAMESPACE" => self.one_of(&["default", "kube-system"]),
            "RESOURCE" => self.one_of(&["configmaps", "pods", "secrets", "serviceaccounts"]),
            "NAME" => self.one_of(&["known", ""]),
            "GROUP" => self.one_of(&["apps", "batch", "rbac.authorization.k8s.io"]),
            "SUB" => self.one_of(&["status", "scale", "token", "ping", "log"]),
            "REST" => self.made_up(),
            part => part.to_owned(),
        });
        let path: Vec<String> = path.collect();
        let keys =
            ["dryRun", "fieldManager", "labelSelector", "fieldSelector", "limit", "continue", "verbose"];
        let (key, value) = (self.one_of(&keys), self.one_of(&["All", "1"]));
        format!("{}?{key}={value}&timeoutSeconds=1", path.join("/"))
    }

    fn headers(&mut self) -> Vec<(&'static str, String)> {
        let token = self.one_of(&["admintoken", "admintoken", "usertoken"]);
        let mut headers = vec![("authorization", format!("Bearer {token}"))];
        let word = self.made_up();
        let more: [(&'static str, String); 12] = [
            ("user-agent", word.clone()),
            ("accept", format!("application/{word}, application/json;as={word};g={word};v={word}")),
            ("content-type", format!("application/{word}")),
            ("content-type", "application/merge-patch+json".to_owned()),
            ("accept-encoding", word.clone()),
            ("audit-id", word.clone()),
            ("impersonate-user", word.clone()),
            ("impersonate-group", word.clone()),
            ("x-remote-user", word.clone()),
            ("x-forwarded-for", word.clone()),
            ("if-none-match", word.clone()),
            ("kubernetes-version-compatibility", word),
        ];
        for (name, value) in more {
            if self.random.random_range(0..3) == 0 && headers.iter().all(|it| it.0 != name) {
                headers.push((name, value));
            }
        }
        headers
    }

    fn body(&mut self) -> String {
        let (kind, word) = (self.one_of(&["ConfigMap", "Pod", "Deployment"]), self.made_up());
        match self.random.random_range(0..4) {
            0 => String::new(),
            1 => word,
            _ => json!({"apiVersion": self.one_of(&["v1", "apps/v1"]), "kind": kind,
                "metadata": {"name": word, "labels": {word.as_str(): word}}, "spec": {word.as_str(): word}})
            .to_string(),
        }
    }
}

#[tokio::test]
async fn no_text_of_a_client_becomes_a_label() {
    let (rounds, seed) = (tools::rounds(600), tools::seed());
    let server = TestServer::start().await;
    let known = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "known"}});
    server.post(MAPS, known).await.expect(201);
    let mut words = Words { random: StdRng::seed_from_u64(seed), next: 0 };
    let mut n_series = 0;
    for round in 0..rounds {
        let (method, path) = (words.one_of(&["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]), words.path());
        let (headers, body) = (words.headers(), words.body());
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        server.send_text(&method, &path, &headers, body).await;
        let is_last = round + 1 == rounds;
        if is_last || round % 200 == 199 {
            let text = server.get("/metrics").await.expect(200).text;
            let found = text.lines().find(|it| it.contains(MARK));
            assert_eq!(found, None, "round {round}, seed {seed}");
            n_series = text.lines().count();
        }
    }
    tools::report(&format!(
        "labels: {rounds} requests with {} made-up words, seed {seed}: none on {n_series} lines",
        words.next
    ));
}
