//! Versions that a webhook converts, over real HTTPS.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::webhook::{Identity, Reply, Webhook};

use crate::{custom::establish, harness::TestServer, watches::Lines};

const V1: &str = "/apis/w.example/v1/namespaces/default/widgets";
const V2: &str = "/apis/w.example/v2/namespaces/default/widgets";
const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.w.example";

/// `spec.size` of v1 is `spec.width` of v2.
fn definition(webhook: &Webhook) -> Value {
    let version = |name: &str, field: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "properties": {field: {"type": "integer"}}}}}}})
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.w.example"},
        "spec": {"group": "w.example", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version("v1", "size", true), version("v2", "width", false)],
            "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
                "clientConfig": {"url": webhook.url("/convert"), "caBundle": webhook.ca_bundle()}}}}})
}

fn converted(review: &Value) -> Value {
    let wanted = review["request"]["desiredAPIVersion"].as_str().unwrap_or_default();
    let mut objects = review["request"]["objects"].as_array().cloned().unwrap_or_default();
    for object in &mut objects {
        let (from, to) = if wanted == "w.example/v2" { ("size", "width") } else { ("width", "size") };
        let value = object["spec"][from].take();
        object["spec"] = json!({to: value});
        object["apiVersion"] = json!(wanted);
    }
    json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": {
        "uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": objects}})
}

fn widget(name: &str, size: i64) -> Value {
    json!({"apiVersion": "w.example/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": size}})
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|it| it.parse().ok()).expect("a resourceVersion")
}

#[tokio::test]
async fn objects_are_read_written_listed_and_watched_in_every_version() {
    let webhook = Webhook::start(Identity::Good, |review| Reply::Json(converted(review))).await.unwrap();
    let server = TestServer::start().await;
    establish(&server, definition(&webhook)).await;
    server.post(V1, widget("a", 1)).await.expect(201);
    server.post(V1, widget("b", 2)).await.expect(201);
    let shown = server.get(&format!("{V2}/a")).await.expect(200).json();
    assert_eq!((&shown["apiVersion"], &shown["spec"]), (&json!("w.example/v2"), &json!({"width": 1})));
    let n_calls = webhook.calls().len();
    let list = server.get(V2).await.expect(200).json();
    assert_eq!(list["items"][1]["spec"], json!({"width": 2}));
    assert_eq!(webhook.calls().len(), n_calls + 1, "a list is converted at once");
    let patched =
        server.patch(&format!("{V2}/b"), "merge", json!({"spec": {"width": 7}})).await.expect(200).json();
    assert_eq!(patched["spec"], json!({"width": 7}));
    assert_eq!(server.get(&format!("{V1}/b")).await.json()["spec"], json!({"size": 7}));
}

#[tokio::test]
async fn a_failing_webhook_is_named_and_does_not_hold_up_deletion() {
    let webhook = Webhook::start(Identity::Good, |_| Reply::Text(500, "broken".to_owned())).await.unwrap();
    let server = TestServer::start().await;
    establish(&server, definition(&webhook)).await;
    server.post(V1, widget("a", 1)).await.expect(201);
    let refused = server.get(&format!("{V2}/a")).await.expect(500);
    assert!(refused.message().contains("widgets.w.example"), "{}", refused.message());
    server.get(V2).await.expect(500);
    assert_eq!(server.get(V1).await.expect(200).json()["items"].as_array().unwrap().len(), 1);
    let headers = [
        ("authorization", "Bearer admintoken"),
        ("accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"),
    ];
    let bare = server.send("GET", V2, &headers, Value::Null).await.expect(200).json();
    assert_eq!(bare["items"][0]["metadata"]["name"], "a");
    server.ask("DELETE", &format!("{V2}/a"), Value::Null).await.expect(200);
    server.get(&format!("{V1}/a")).await.expect(404);
}

#[tokio::test]
async fn webhooks_that_cannot_be_believed_change_nothing() {
    for identity in [Identity::Expired, Identity::OtherName] {
        let webhook = Webhook::start(identity, |review| Reply::Json(converted(review))).await.unwrap();
        let server = TestServer::start().await;
        establish(&server, definition(&webhook)).await;
        server.post(V1, widget("a", 1)).await.expect(201);
        let refused = server.get(&format!("{V2}/a")).await.expect(500);
        assert!(refused.message().contains("conversion webhook for"), "{}", refused.message());
        let written = json!({"apiVersion": "w.example/v2", "kind": "Widget", "metadata": {"name": "b"}, "spec": {"width": 1}});
        server.post(V2, written).await.expect(500);
        server.get(&format!("{V1}/b")).await.expect(404);
        server.ask("DELETE", CRD, Value::Null).await.expect(200);
    }
}

/// A webhook that asks for one version is asked in it, whatever the client speaks, and its patch is converted back.
#[tokio::test]
async fn admission_webhooks_see_custom_resources_in_the_version_that_they_ask_for() {
    let conversion = Webhook::start(Identity::Good, |review| Reply::Json(converted(review))).await.unwrap();
    let admission = Webhook::start(Identity::Good, |asked| {
        let width = asked["request"]["object"]["spec"]["width"].as_i64().unwrap_or_default();
        let patch = json!([{"op": "replace", "path": "/spec/width", "value": width * 10}]).to_string();
        let mut response = json!({"uid": asked["request"]["uid"], "allowed": true});
        if asked["request"]["operation"] != "DELETE" {
            use base64::{Engine, engine::general_purpose::STANDARD};
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(STANDARD.encode(patch));
        }
        Reply::Json(
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}),
        )
    })
    .await
    .unwrap();
    let server = TestServer::start().await;
    establish(&server, definition(&conversion)).await;
    let configuration = |policy: &str| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": policy.to_lowercase()}, "webhooks": [{
                "name": format!("{}.example.com", policy.to_lowercase()), "matchPolicy": policy,
                "clientConfig": {"url": admission.url("/x"), "caBundle": admission.ca_bundle()},
                "rules": [{"operations": ["*"], "apiGroups": ["w.example"], "apiVersions": ["v2"], "resources": ["widgets"]}],
                "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 30}]})
    };
    let hooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    server.post(hooks, configuration("Exact")).await.expect(201);
    server.server.webhooks_settled().await;
    let made = server.post(V1, widget("exact", 4)).await.expect(201).json();
    assert_eq!(made["spec"], json!({"size": 4}));
    assert!(admission.calls().is_empty(), "v1 is not exactly v2");

    server.post(hooks, configuration("Equivalent")).await.expect(201);
    server.ask("DELETE", &format!("{hooks}/exact"), Value::Null).await.expect(200);
    server.server.webhooks_settled().await;
    let made = server.post(V1, widget("a", 4)).await.expect(201).json();
    assert_eq!((&made["apiVersion"], &made["spec"]), (&json!("w.example/v1"), &json!({"size": 40})));
    let request = admission.calls()[0]["request"].clone();
    assert_eq!(
        (&request["kind"]["version"], &request["requestKind"]["version"]),
        (&json!("v2"), &json!("v1"))
    );
    assert_eq!(request["resource"]["version"], "v2");
    assert_eq!(request["object"]["apiVersion"], "w.example/v2");
    assert_eq!(request["object"]["spec"], json!({"width": 4}));
    server.ask("DELETE", &format!("{V1}/a"), Value::Null).await.expect(200);
    let last = admission.calls().pop().unwrap();
    assert_eq!(last["request"]["oldObject"]["spec"], json!({"width": 40}));
}

/// A webhook that protects objects by a field was shown what it could not know the field in, and let them go.
#[tokio::test]
async fn an_object_that_cannot_be_shown_to_who_protects_it_is_kept() {
    let conversion = Webhook::start(Identity::Good, |_| Reply::Text(500, "broken".to_owned())).await.unwrap();
    let guard = Webhook::start(Identity::Good, |asked| {
        let response = json!({"uid": asked["request"]["uid"], "allowed": true});
        Reply::Json(
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}),
        )
    })
    .await
    .unwrap();
    let server = TestServer::start().await;
    establish(&server, definition(&conversion)).await;
    server.post(V1, widget("a", 1)).await.expect(201);
    let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "guard"}, "webhooks": [{
            "name": "guard.example.com",
            "clientConfig": {"url": guard.url("/x"), "caBundle": guard.ca_bundle()},
            "rules": [{"operations": ["DELETE"], "apiGroups": ["w.example"], "apiVersions": ["v2"], "resources": ["widgets"]}],
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 30}]});
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    server.post(hooks, configuration).await.expect(201);
    server.server.webhooks_settled().await;
    let refused = server.ask("DELETE", &format!("{V2}/a"), Value::Null).await.expect(500);
    assert!(refused.message().contains("conversion webhook for"), "{}", refused.message());
    server.ask("DELETE", &format!("{V1}/a"), Value::Null).await.expect(500);
    server.ask("DELETE", V2, Value::Null).await.expect(500);
    assert!(guard.calls().is_empty());
    server.get(&format!("{V1}/a")).await.expect(200);
}

/// A client resumes from the last bookmark: what was being converted when its watch ended must lie behind it.
#[tokio::test]
async fn a_watch_that_ends_while_an_event_is_converted_does_not_skip_it() {
    let webhook = Webhook::start(Identity::Good, |_| Reply::Hang).await.unwrap();
    let server = TestServer::start().await;
    establish(&server, definition(&webhook)).await;
    let listed = server.get(V1).await.expect(200).json();
    let from = listed["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{V2}?watch=true&allowWatchBookmarks=true&resourceVersion={from}");
    let mut watch = Lines::open(&server, &path).await;
    let made = server.post(V1, widget("a", 1)).await.expect(201).json();
    let made = revision(&made);
    let ended = tokio::spawn(async move {
        let mut events = Vec::new();
        while let Some(event) = watch.next().await {
            events.push(event);
        }
        events
    });
    while webhook.calls().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.lifecycle.drain();
    for event in ended.await.unwrap() {
        let at = revision(&event["object"]);
        assert!(event["type"] == "BOOKMARK" && at < made, "{event} skips what was made at {made}");
    }
}
