//! Processes that share an etcd and keys, and short ways to ask them.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use http::Method;
use http_body_util::Full;
use serde_json::{Value, json};
use testkit::{
    Answer, Client, Convoy, Options,
    etcd::{self, Etcd},
};

use crate::fixture::BINARY;

pub const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
pub const ALL_JOBS: &str = "/apis/batch/v1/jobs";
pub const WITHOUT_BATCH: &str = "--runtime-config=batch/v1=false";
pub const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A store and keys; servers are started on it one by one.
pub struct Fleet {
    pub etcd: Arc<Etcd>,
    pub certs: tempfile::TempDir,
}

impl Fleet {
    /// `None`, said loudly, where there is no etcd.
    pub async fn new() -> Result<Option<Self>> {
        if etcd::is_missing() {
            return Ok(None);
        }
        Ok(Some(Self { etcd: Arc::new(Etcd::start().await?), certs: tempfile::tempdir()? }))
    }

    pub fn options(&self, name: &str, flags: &[&str]) -> Options {
        let options = Options::etcd(BINARY, &self.etcd.url(), "/registry")
            .certs(self.certs.path())
            .flag(&format!("--hostname-override={name}"))
            .flag("--departure-settle-time=300ms");
        flags.iter().fold(options, |options, flag| options.flag(flag))
    }

    /// A server without controllers, whose absence is noticed after two seconds.
    pub async fn start(&self, name: &str, flags: &[&str]) -> Result<Convoy> {
        let options = self.options(name, flags);
        Convoy::start(options.flag("--member-lease-duration=2s").flag("--controllers=storage-version-gc"))
            .await
    }

    /// One server with everything, one without batch.
    pub async fn two(&self) -> Result<(Convoy, Convoy)> {
        Ok((self.start("a", &[]).await?, self.start("b", &[WITHOUT_BATCH]).await?))
    }

    pub fn cert(&self, name: &str) -> std::path::PathBuf {
        Path::new(self.certs.path()).join(name)
    }
}

pub fn job(name: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}})
}

pub async fn get(convoy: &Convoy, path: &str) -> Result<Value> {
    convoy.admin().get(path).await?.expect(200)
}

/// A GET with headers.
pub async fn get_with(client: &Client, path: &str, headers: &[(&str, &str)]) -> Result<Answer> {
    let mut request = client.request(Method::GET, path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    client.exchange(request.body(Full::default())?).await
}

/// The names of the groups in an aggregated document.
pub async fn groups(convoy: &Convoy, profile: &str) -> Result<Vec<String>> {
    let accept = format!("{AGGREGATED}{profile}");
    let list = get_with(&convoy.admin(), "/apis", &[("accept", &accept)]).await?.expect(200)?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    Ok(items.iter().filter_map(|it| it["metadata"]["name"].as_str()).map(str::to_owned).collect())
}

/// The sum of all series of a metric that have these labels.
pub async fn metric(convoy: &Convoy, name: &str, labels: &[&str]) -> Result<f64> {
    let text = convoy.admin().get("/metrics").await?.text();
    let is_it = |it: &&str| {
        it.split(['{', ' ']).next() == Some(name) && labels.iter().all(|label| it.contains(label))
    };
    Ok(text.lines().filter(is_it).filter_map(|it| it.rsplit_once(' ')?.1.parse::<f64>().ok()).sum())
}

/// How many members a server knows.
pub async fn n_members(convoy: &Convoy) -> Result<usize> {
    let status = get(convoy, "/convoy/status").await?;
    Ok(status["members"].as_array().map_or(0, Vec::len))
}

/// The answer of a cluster that has it but cannot reach it now, and says so as it should.
pub fn is_missed(answer: &Answer) -> Result<()> {
    let body = answer.expect(503)?;
    ensure!(answer.headers.contains_key("retry-after"), "{:?}", answer.headers);
    let message = "Error while proxying request to destination apiserver";
    ensure!(body["message"] == message && body["reason"] == "ServiceUnavailable", "{body}");
    let text = answer.text();
    ensure!(!text.contains("127.0.0.1") && !text.contains("apiserver-"), "{text}");
    Ok(())
}

/// Waits until something holds; fails with what it was about.
pub async fn eventually<F: Future<Output = Result<bool>>>(
    what: &str,
    mut check: impl FnMut() -> F,
) -> Result<()> {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !check().await? {
        ensure!(tokio::time::Instant::now() < deadline, "{what}: it did not come to that");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
