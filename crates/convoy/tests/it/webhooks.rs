//! Webhooks that are slow, broken, lying or huge, against a server process: it stays responsive and small.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use testkit::Convoy;
use testkit::webhook::{Identity, Reply, Webhook};

use crate::fixture::{self, config_map};

const MAPS: &str = "/api/v1/namespaces/hooks/configmaps";
const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/// How many writes are held up at a time: as many as one webhook is asked at once.
const AT_ONCE: usize = 64;

/// Five times what answers that are read at a time may take: texts, trees and patches, in a debug build. What is not
/// bounded at all grows far beyond it.
const SLACK_KIB: u64 = 640 << 10;

/// A response that lets pass, with a patch.
fn patching(asked: &Value, patch: &str) -> Reply {
    Reply::Json(json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {
            "uid": asked["request"]["uid"], "allowed": true,
            "patchType": "JSONPatch", "patch": STANDARD.encode(patch),
        },
    }))
}

async fn register(convoy: &Convoy, name: &str, hook: &Webhook, seconds: u32) -> Result<()> {
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [{
            "name": format!("{name}.example.com"),
            "clientConfig": {"url": hook.url("/x"), "caBundle": hook.ca_bundle()},
            "rules": [{
                "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
            }],
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": seconds,
        }],
    });
    convoy.admin().post(HOOKS, &configuration).await?.expect(201)?;
    Ok(())
}

type Answering = Box<dyn Fn(&Value) -> Reply + Send + Sync>;

/// The webhook is in force when a write is refused because of it.
async fn until_refused(convoy: &Convoy, name: &str) -> Result<()> {
    let admin = convoy.admin();
    for number in 0.. {
        let answer = admin.post(MAPS, &config_map(&format!("try-{name}-{number}"), "1", "red")).await?;
        if answer.status != 201 {
            return Ok(());
        }
    }
    Ok(())
}

/// The answers that are read at a time are bounded together, too.
const TOO_MANY: &str = "too many bytes of webhook responses are being read at once";

/// Sends many writes that the webhook is asked about; others are served meanwhile. All are refused, with these words or
/// because there is too much to read at once.
async fn press(convoy: &Convoy, name: &str, why: &str) -> Result<()> {
    let writes = (0..AT_ONCE).map(|number| {
        let client = convoy.admin().with_patience(Duration::from_secs(60));
        async move { client.post(MAPS, &config_map(&format!("{name}-{number}"), "1", "red")).await }
    });
    let others = async {
        let admin = convoy.admin();
        for number in 0..10 {
            let secret = json!({"metadata": {"name": format!("{name}-{number}")}});
            admin.post("/api/v1/namespaces/hooks/secrets", &secret).await?.expect(201)?;
            admin.get(MAPS).await?.expect(200)?;
            admin.get("/readyz").await?;
        }
        anyhow::Ok(())
    };
    let (answers, others) = tokio::join!(futures_util::future::join_all(writes), others);
    others.with_context(|| format!("others were held up by {name}"))?;
    for answer in answers {
        let answer = answer?;
        let told = answer.json()?["message"].as_str().unwrap_or_default().to_owned();
        assert!(answer.status == 500 || answer.status == 422, "{name}: {}: {told}", answer.status);
        assert!(told.contains(why) || told.contains(TOO_MANY), "{name}: {told}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_webhooks_leave_the_server_responsive_and_small() -> Result<()> {
    let convoy = fixture::embedded().await;
    fixture::namespace(&convoy, "hooks").await?;
    let adding = |n_bytes: usize| {
        let value = "x".repeat(n_bytes);
        Arc::new(format!(r#"[{{"op":"add","path":"/data/x","value":"{value}"}}]"#))
    };
    let (huge, large) = (adding(5 << 20), adding(2 << 20));
    let many = Arc::new(
        json!(vec![json!({"op": "test", "path": "/kind", "value": "ConfigMap"}); 20_000]).to_string(),
    );
    // Each step doubles the text: a few hundred bytes that would grow beyond any memory.
    let doubling: Vec<Value> =
        std::iter::once(json!({"op": "add", "path": "/data/a", "value": "x".repeat(1000)}))
            .chain((0..200).flat_map(|n| {
                [
                    json!({"op": "copy", "from": "/data", "path": format!("/metadata/d{n}")}),
                    json!({"op": "move", "from": format!("/metadata/d{n}"), "path": "/data/b"}),
                ]
            }))
            .collect();
    let doubling = Arc::new(json!(doubling).to_string());
    let cases: Vec<(&str, Identity, u32, &str, Answering)> = vec![
        ("hangs", Identity::Good, 2, "context deadline exceeded", Box::new(|_| Reply::Hang)),
        (
            "fails",
            Identity::Good,
            10,
            "an error on the server",
            Box::new(|_| Reply::Text(500, "boom".into())),
        ),
        (
            "lies",
            Identity::Good,
            10,
            "expected response.uid=",
            Box::new(|_| patching(&json!({"request": {"uid": "another"}}), "[]")),
        ),
        ("expired", Identity::Expired, 10, "certificate has expired", Box::new(|_| Reply::Hang)),
        ("endless", Identity::Good, 30, "larger than 8388608 bytes", Box::new(|_| Reply::Endless)),
        ("huge", Identity::Good, 30, "limit is 3145728", Box::new(move |asked| patching(asked, &huge))),
        ("large", Identity::Good, 30, "Too long", Box::new(move |asked| patching(asked, &large))),
        ("many", Identity::Good, 30, "bad patch", Box::new(move |asked| patching(asked, &many))),
        ("doubling", Identity::Good, 30, "bad patch", Box::new(move |asked| patching(asked, &doubling))),
        ("garbled", Identity::Good, 30, "bad patch", Box::new(|asked| patching(asked, "[{\"op\":"))),
        ("deep", Identity::Good, 30, "json parse error", Box::new(|_| Reply::Text(200, "[".repeat(1 << 20)))),
    ];
    let before = convoy.resident_kib()?;
    for (name, identity, seconds, why, answer) in cases {
        let hook = Webhook::start(identity, answer).await?;
        register(&convoy, name, &hook, seconds).await?;
        until_refused(&convoy, name).await?;
        press(&convoy, name, why).await.with_context(|| name.to_owned())?;
        convoy.admin().delete(&format!("{HOOKS}/{name}")).await?.expect(200)?;
    }
    let peak = convoy.peak_kib()?;
    assert!(peak < before + SLACK_KIB, "{before} KiB before, {peak} KiB at most");
    testkit::tools::report(&format!("bad webhooks: {before} KiB before, {peak} KiB at most"));
    convoy.admin().get("/readyz").await?;
    Ok(())
}
