//! Calls to real HTTPS servers that answer well, badly, or not at all.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::{Value, json};
use testkit::webhook::{Identity, PATIENCE, Reply, Webhook};
use webhook::{ByName, CallError, Client, Endpoint, Limits, Resolve};

fn client() -> Client {
    Client::new(Arc::new(ByName), Limits { response_bytes: 1 << 20, ..Limits::default() })
}

fn endpoint(hook: &Webhook) -> Endpoint {
    Endpoint::of(&json!({"url": hook.url("/check"), "caBundle": hook.ca_bundle()}))
        .expect("a webhook of the tests must have an address")
}

async fn call(hook: &Webhook, timeout: Duration) -> Result<Bytes, CallError> {
    client().post(&endpoint(hook), Bytes::from_static(b"{\"a\":1}"), timeout).await
}

async fn failure(identity: Identity, reply: Reply, timeout: Duration) -> String {
    let hook = Webhook::start(identity, move |_| reply.clone()).await.expect("a webhook must start");
    let error = call(&hook, timeout).await.expect_err("the call must fail").to_string();
    error.replace(&hook.address.to_string(), "HOOK")
}

#[tokio::test]
async fn a_webhook_is_asked_and_answers() {
    let hook = Webhook::start(Identity::Good, |asked| Reply::Json(json!({"asked": asked}))).await.unwrap();
    let client = client();
    for _ in 0..3 {
        let answer = client.post(&endpoint(&hook), Bytes::from_static(b"{\"a\":1}"), PATIENCE).await.unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&answer).unwrap(), json!({"asked": {"a": 1}}));
    }
    assert_eq!(hook.calls().len(), 3);
}

#[tokio::test]
async fn a_certificate_that_is_its_own_authority_is_believed_when_it_is_in_the_bundle() {
    let hook = Webhook::start(Identity::SelfSigned, |_| Reply::Json(json!({}))).await.unwrap();
    call(&hook, PATIENCE).await.unwrap();
}

/// What a test environment of controller-runtime sends: the serving certificate and nothing of who signed it.
#[tokio::test]
async fn a_certificate_that_is_in_the_bundle_is_believed_whoever_signed_it() {
    let hook = Webhook::start(Identity::Listed, |_| Reply::Json(json!({}))).await.unwrap();
    call(&hook, PATIENCE).await.unwrap();
    let other = Webhook::start(Identity::Listed, |_| Reply::Json(json!({}))).await.unwrap();
    let config = json!({"url": hook.url("/"), "caBundle": other.ca_bundle()});
    let error = client().post(&Endpoint::of(&config).unwrap(), Bytes::new(), PATIENCE).await.unwrap_err();
    assert!(error.to_string().ends_with("x509: certificate signed by unknown authority"), "{error}");
}

#[tokio::test]
async fn failures_name_the_call_and_the_cause() {
    let ok = || Reply::Json(json!({}));
    let expired = failure(Identity::Expired, ok(), PATIENCE).await;
    let start = r#"Post "https://HOOK/check?timeout=30s": tls: failed to verify certificate: x509: "#;
    assert!(expired.starts_with(&format!("{start}certificate has expired or is not yet valid")), "{expired}");
    let other = failure(Identity::OtherName, ok(), PATIENCE).await;
    assert_eq!(other, format!("{start}certificate is valid for other.example, not 127.0.0.1"));
    let nameless = failure(Identity::CommonName, ok(), PATIENCE).await;
    assert_eq!(nameless, format!("{start}certificate relies on legacy Common Name field, use SANs instead"));
    let closed = failure(Identity::Good, Reply::Close, PATIENCE).await;
    assert_eq!(closed, r#"Post "https://HOOK/check?timeout=30s": EOF"#);
    let hung = failure(Identity::Good, Reply::Hang, Duration::from_millis(500)).await;
    assert_eq!(hung, r#"Post "https://HOOK/check?timeout=500ms": context deadline exceeded"#);
    let broken = failure(Identity::Good, Reply::Text(500, "boom".to_owned()), PATIENCE).await;
    assert_eq!(broken, r#"an error on the server ("boom") has prevented the request from succeeding"#);
}

#[tokio::test]
async fn a_webhook_of_another_authority_is_not_believed() {
    let (hook, other) = (
        Webhook::start(Identity::Good, |_| Reply::Json(json!({}))).await.unwrap(),
        Webhook::start(Identity::Good, |_| Reply::Json(json!({}))).await.unwrap(),
    );
    let config = json!({"url": hook.url("/"), "caBundle": other.ca_bundle()});
    let error = client().post(&Endpoint::of(&config).unwrap(), Bytes::new(), PATIENCE).await.unwrap_err();
    assert!(error.to_string().ends_with("x509: certificate signed by unknown authority"), "{error}");
    assert!(hook.calls().is_empty());
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_said_to_refuse() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoint = Endpoint::of(&json!({"url": format!("https://{address}/check")})).unwrap();
    let error = client().post(&endpoint, Bytes::new(), PATIENCE).await.unwrap_err().to_string();
    let want = format!(
        "Post \"https://{address}/check?timeout=30s\": dial tcp {address}: connect: connection refused"
    );
    assert_eq!(error, want);
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let elsewhere = Webhook::start(Identity::Good, |_| Reply::Json(json!({}))).await.unwrap();
    let to = elsewhere.url("/");
    let error = failure(Identity::Good, Reply::Redirect(to), PATIENCE).await;
    assert_eq!(error, "the server responded with the status code 302 but did not return more information");
    assert!(elsewhere.calls().is_empty());
}

#[tokio::test]
async fn an_endless_answer_is_cut_off() {
    let error = failure(Identity::Good, Reply::Endless, PATIENCE).await;
    assert_eq!(error, r#"Post "https://HOOK/check?timeout=30s": the response is larger than 1048576 bytes"#);
}

#[tokio::test]
async fn services_are_found_by_the_resolver_and_must_show_the_services_name() {
    struct Fixed(String);
    impl Resolve for Fixed {
        fn resolve(&self, namespace: &str, name: &str, port: u16) -> Result<String, String> {
            match (namespace, name, port) {
                ("default", "hook" | "stranger", 443) => Ok(self.0.clone()),
                _ => Err(format!("service {name:?} not found")),
            }
        }
    }
    let hook = Webhook::start(Identity::Good, |_| Reply::Json(json!({}))).await.unwrap();
    let client = Client::new(Arc::new(Fixed(hook.address.to_string())), Limits::default());
    let post = async |name: &str| {
        let service = json!({"namespace": "default", "name": name, "path": "/p"});
        let config = json!({"service": service, "caBundle": hook.ca_bundle()});
        client.post(&Endpoint::of(&config).unwrap(), Bytes::new(), PATIENCE).await
    };
    post("hook").await.unwrap();
    let missing = post("missing").await.unwrap_err().to_string();
    assert_eq!(
        missing,
        "Post \"https://missing.default.svc:443/p?timeout=30s\": service \"missing\" not found"
    );
    let stranger = post("stranger").await.unwrap_err().to_string();
    assert!(stranger.ends_with("not stranger.default.svc"), "{stranger}");
}

#[tokio::test]
async fn one_hanging_webhook_does_not_hold_up_another() {
    let hanging = Webhook::start(Identity::Good, |_| Reply::Hang).await.unwrap();
    let quick = Webhook::start(Identity::Good, |_| Reply::Json(json!({}))).await.unwrap();
    let client = Client::new(Arc::new(ByName), Limits { calls_per_endpoint: 1, ..Limits::default() });
    let endpoint = endpoint(&hanging);
    let held = client.post(&endpoint, Bytes::new(), PATIENCE);
    let queued = client.post(&endpoint, Bytes::new(), PATIENCE);
    tokio::select! {
        _ = held => panic!("a hanging webhook answered"),
        _ = queued => panic!("a hanging webhook answered"),
        answer = async {
            client.post(&self::endpoint(&quick), Bytes::new(), PATIENCE).await
        } => drop(answer.unwrap()),
    }
}
