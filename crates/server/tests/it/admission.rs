//! Webhooks: real HTTPS servers that change, refuse, lie, hang and fail.

use std::sync::Arc;

use admission::Plugins;
use base64::{Engine, engine::general_purpose::STANDARD};
use meta::{Release, Value};
use serde_json::json;
use testkit::webhook::{Identity, Reply, Webhook};

use crate::harness::{Answered, MAPS, TestServer, config_map};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// A response that lets pass.
fn allowed(asked: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": asked["request"]["uid"], "allowed": true},
    })
}

fn patching(asked: &Value, patch: &Value) -> Reply {
    let mut answer = allowed(asked);
    answer["response"]["patchType"] = json!("JSONPatch");
    answer["response"]["patch"] = json!(STANDARD.encode(patch.to_string()));
    Reply::Json(answer)
}

fn refusing(asked: &Value, status: Value) -> Reply {
    let mut answer = allowed(asked);
    answer["response"]["allowed"] = json!(false);
    answer["response"]["status"] = status;
    Reply::Json(answer)
}

async fn hook(answer: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Webhook {
    Webhook::start(Identity::Good, answer).await.unwrap()
}

/// A configuration of one webhook for config maps; `more` is laid over it.
fn configuration(kind: &str, name: &str, hook: &Webhook, more: &Value) -> Value {
    let mut webhook = json!({
        "name": format!("{name}.example.com"),
        "clientConfig": {"url": hook.url("/x"), "caBundle": hook.ca_bundle()},
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 30,
    });
    for (field, value) in more.as_object().unwrap() {
        webhook[field] = value.clone();
    }
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
        "metadata": {"name": name}, "webhooks": [webhook],
    })
}

/// Registers a webhook, and waits until it is called.
async fn register(server: &TestServer, kind: &str, name: &str, hook: &Webhook, more: Value) -> Answered {
    let path = format!("{GROUP}/{}webhookconfigurations", kind.to_lowercase());
    let answered = server.post(&path, configuration(kind, name, hook, &more)).await.expect(201);
    server.server.webhooks_settled().await;
    answered
}

fn message(answered: &Answered) -> String {
    answered.message()
}

#[tokio::test]
async fn a_mutating_webhook_changes_what_is_stored_and_a_validating_one_sees_it() {
    let server = TestServer::start().await;
    let mutating =
        hook(|asked| patching(asked, &json!([{"op": "add", "path": "/data/added", "value": "x"}]))).await;
    let validating = hook(|asked| Reply::Json(allowed(asked))).await;
    register(&server, "Mutating", "m", &mutating, json!({})).await;
    register(&server, "Validating", "v", &validating, json!({})).await;
    let made = server.post(&format!("{MAPS}?fieldManager=me"), config_map("a")).await.expect(201).json();
    assert_eq!(made["data"], json!({"k": "v", "added": "x"}));
    let [asked] = &mutating.calls()[..] else { panic!("one call") };
    let request = &asked["request"];
    assert_eq!(asked["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(request["kind"], json!({"group": "", "version": "v1", "kind": "ConfigMap"}));
    assert_eq!(request["requestResource"], json!({"group": "", "version": "v1", "resource": "configmaps"}));
    assert_eq!((&request["name"], &request["namespace"]), (&json!("a"), &json!("default")));
    assert_eq!((&request["operation"], &request["dryRun"]), (&json!("CREATE"), &json!(false)));
    assert_eq!(request["userInfo"]["username"], "admin");
    assert_eq!(request["options"]["kind"], "CreateOptions");
    assert_eq!(request["options"]["fieldManager"], "me");
    assert_eq!(request["oldObject"], Value::Null);
    assert_eq!(request["object"]["metadata"]["uid"], Value::Null);
    let seen = &validating.calls()[0]["request"]["object"];
    assert_eq!(seen["data"], json!({"k": "v", "added": "x"}));
    assert_eq!(seen["metadata"]["uid"], made["metadata"]["uid"]);
    let fields = made["metadata"]["managedFields"].to_string();
    assert!(!fields.contains("added"), "the client does not own what a webhook added: {fields}");
}

#[tokio::test]
async fn refusals_are_passed_on() {
    let server = TestServer::start().await;
    let validating = hook(|asked| {
        refusing(asked, json!({"code": 403, "reason": "Forbidden", "message": "not on Mondays"}))
    })
    .await;
    register(&server, "Validating", "v", &validating, json!({})).await;
    let answered = server.post(MAPS, config_map("a")).await.expect(403);
    let want = "admission webhook \"v.example.com\" denied the request: not on Mondays";
    assert_eq!(message(&answered), want);
    server.get(&format!("{MAPS}/a")).await.expect(404);
    let metrics = server.get("/metrics").await.text;
    let counted = "apiserver_admission_webhook_rejection_count{error_type=\"no_error\",name=\"v.example.com\",\
                   operation=\"CREATE\",rejection_code=\"403\",type=\"validating\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test]
async fn failures_refuse_unless_they_are_to_be_ignored() {
    let server = TestServer::start().await;
    let liar = hook(|asked| {
        let mut answer = allowed(asked);
        answer["response"]["uid"] = json!("another");
        Reply::Json(answer)
    })
    .await;
    register(&server, "Validating", "v", &liar, json!({})).await;
    let answered = server.post(MAPS, config_map("a")).await.expect(500);
    let start = "Internal error occurred: failed calling webhook \"v.example.com\": received invalid webhook response: \
                 expected response.uid=";
    assert!(message(&answered).starts_with(start), "{}", answered.text);
    server
        .ask("DELETE", &format!("{GROUP}/validatingwebhookconfigurations/v"), Value::Null)
        .await
        .expect(200);
    server.server.webhooks_settled().await;
    register(&server, "Validating", "w", &liar, json!({"failurePolicy": "Ignore"})).await;
    server.post(MAPS, config_map("a")).await.expect(201);
}

#[tokio::test]
async fn whatever_a_webhook_does_the_answer_is_an_error_that_names_it() {
    let server = TestServer::start().await;
    let cases: Vec<(Identity, Reply, &str)> = vec![
        (Identity::Expired, Reply::Hang, "certificate has expired or is not yet valid"),
        (Identity::OtherName, Reply::Hang, "certificate is valid for other.example, not 127.0.0.1"),
        (Identity::Good, Reply::Hang, "context deadline exceeded"),
        (Identity::Good, Reply::Close, "EOF"),
        (Identity::Good, Reply::Endless, "the response is larger than 8388608 bytes"),
        (Identity::Good, Reply::Text(500, "boom".to_owned()), "an error on the server (\"boom\")"),
        (Identity::Good, Reply::Text(200, "<html>".to_owned()), "json parse error"),
        (Identity::Good, Reply::Text(200, "{}".to_owned()), "webhook response was absent"),
        (Identity::Good, Reply::Text(200, "[".repeat(100_000)), "json parse error"),
    ];
    for (index, (identity, reply, why)) in cases.into_iter().enumerate() {
        let is_hanging = matches!(reply, Reply::Hang) && identity == Identity::Good;
        let bad = Webhook::start(identity, move |_| reply.clone()).await.unwrap();
        let name = format!("v{index}");
        let timeout = if is_hanging { 1 } else { 30 };
        register(&server, "Mutating", &name, &bad, json!({"timeoutSeconds": timeout})).await;
        let answered = server.post(MAPS, config_map("a")).await.expect(500);
        let told = message(&answered);
        let start = format!("Internal error occurred: failed calling webhook \"{name}.example.com\": ");
        assert!(told.starts_with(&start) && told.contains(why), "{why}: {told}");
        // Others are served all the while.
        server.get("/api/v1/namespaces/default").await.expect(200);
        let path = format!("{GROUP}/mutatingwebhookconfigurations/{name}");
        server.ask("DELETE", &path, Value::Null).await.expect(200);
        server.server.webhooks_settled().await;
    }
}

#[tokio::test]
async fn patches_that_cannot_be_applied_are_internal_errors() {
    let server = TestServer::start().await;
    for (index, patch) in [
        json!([{"op": "remove", "path": "/nothing/here"}]),
        json!({"op": "add"}),
        json!([{"op": "replace", "path": "", "value": 1}]),
        json!([{"op": "add", "path": "/data", "value": [1]}]),
        json!(vec![json!({"op": "test", "path": "/kind", "value": "ConfigMap"}); 10_001]),
    ]
    .into_iter()
    .enumerate()
    {
        let bad = hook(move |asked| patching(asked, &patch)).await;
        let name = format!("m{index}");
        register(&server, "Mutating", &name, &bad, json!({})).await;
        server.post(MAPS, config_map("a")).await.expect(500);
        let path = format!("{GROUP}/mutatingwebhookconfigurations/{name}");
        server.ask("DELETE", &path, Value::Null).await.expect(200);
        server.server.webhooks_settled().await;
    }
}

#[tokio::test]
async fn webhooks_are_called_in_order_and_again_when_they_ask_for_it() {
    let server = TestServer::start().await;
    let trail = |mark: &'static str| {
        move |asked: &Value| {
            let so_far = asked["request"]["object"]["data"]["trail"].as_str().unwrap_or_default().to_owned();
            patching(
                asked,
                &json!([{"op": "add", "path": "/data/trail", "value": format!("{so_far}{mark}")}]),
            )
        }
    };
    let (first, second, third) = (hook(trail("1")).await, hook(trail("2")).await, hook(trail("3")).await);
    register(&server, "Mutating", "c-third", &third, json!({"reinvocationPolicy": "IfNeeded"})).await;
    register(&server, "Mutating", "a-first", &first, json!({"reinvocationPolicy": "IfNeeded"})).await;
    register(&server, "Mutating", "b-second", &second, json!({})).await;
    let made = server.post(MAPS, config_map("a")).await.expect(201).json();
    // The first was followed by changes and is asked once more; then the third has seen an older state than that.
    assert_eq!(made["data"]["trail"], "12313");
}

#[tokio::test]
async fn selectors_and_rules_decide_who_is_asked() {
    let server = TestServer::start().await;
    let picky = hook(|asked| refusing(asked, json!({}))).await;
    let labels = json!({"matchLabels": {"guarded": "yes"}});
    register(&server, "Validating", "o", &picky, json!({"objectSelector": labels})).await;
    server.post(MAPS, config_map("free")).await.expect(201);
    let mut guarded = config_map("guarded");
    guarded["metadata"]["labels"] = json!({"guarded": "yes"});
    server.post(MAPS, guarded).await.expect(400);
    // To take the label away, or to put it on, is a matter for the webhook, too.
    let patch = json!({"metadata": {"labels": {"guarded": "yes"}}});
    server.patch(&format!("{MAPS}/free"), "merge", patch).await.expect(400);
    server
        .ask("DELETE", &format!("{GROUP}/validatingwebhookconfigurations/o"), Value::Null)
        .await
        .expect(200);
    server.server.webhooks_settled().await;

    register(&server, "Validating", "n", &picky, json!({"namespaceSelector": labels})).await;
    server.post(MAPS, config_map("other")).await.expect(201);
    let patch = json!({"metadata": {"labels": {"guarded": "yes"}}});
    server.patch("/api/v1/namespaces/default", "merge", patch).await.expect(200);
    // Labels of namespaces are read from the cache, as upstream.
    server.server.webhooks_settled().await;
    server.post(MAPS, config_map("more")).await.expect(400);
    server.ask("DELETE", &format!("{MAPS}/other"), Value::Null).await.expect(400);
    server.ask("DELETE", MAPS, Value::Null).await.expect(400);
    let last = picky.calls().pop().unwrap();
    assert_eq!(last["request"]["operation"], "DELETE");
    assert_eq!(
        (&last["request"]["object"], &last["request"]["oldObject"]["kind"]),
        (&Value::Null, &json!("ConfigMap"))
    );
    assert_eq!(last["request"]["options"]["kind"], "DeleteOptions");
}

/// What is deleted through one version is shown in that version, whichever is stored.
#[tokio::test]
async fn deletions_are_shown_in_the_version_of_the_request() {
    let server = TestServer::start().await;
    let seen = hook(|asked| Reply::Json(allowed(asked))).await;
    let rules = json!([{"operations": ["DELETE"], "apiGroups": ["autoscaling"], "apiVersions": ["*"],
        "resources": ["horizontalpodautoscalers"]}]);
    register(&server, "Validating", "v", &seen, json!({"rules": rules})).await;
    for (version, field) in [("v1", "targetCPUUtilizationPercentage"), ("v2", "metrics")] {
        let path = |version: &str| {
            format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers")
        };
        let scaler = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
            "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 70,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
        server.post(&path("v1"), scaler).await.expect(201);
        server.ask("DELETE", &format!("{}/a", path(version)), Value::Null).await.expect(200);
        let request = seen.calls().pop().unwrap()["request"].clone();
        assert_eq!(request["oldObject"]["apiVersion"], format!("autoscaling/{version}"));
        assert!(!request["oldObject"]["spec"][field].is_null(), "{request}");
        assert!(!request["oldObject"]["metadata"]["resourceVersion"].is_null());
    }
}

/// Events are the same objects in two groups: a webhook for one group sees what is written through the other.
#[tokio::test]
async fn webhooks_see_equivalent_requests_of_another_group() {
    let server = TestServer::start().await;
    let (old, new, exact) = (
        hook(|asked| Reply::Json(allowed(asked))).await,
        hook(|asked| Reply::Json(allowed(asked))).await,
        hook(|asked| Reply::Json(allowed(asked))).await,
    );
    let rules = |group: &str| json!([{"operations": ["*"], "apiGroups": [group], "apiVersions": ["v1"], "resources": ["events"]}]);
    register(&server, "Validating", "old", &old, json!({"rules": rules("")})).await;
    register(&server, "Validating", "new", &new, json!({"rules": rules("events.k8s.io")})).await;
    register(
        &server,
        "Validating",
        "exact",
        &exact,
        json!({"rules": rules("events.k8s.io"), "matchPolicy": "Exact"}),
    )
    .await;
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}, "reason": "Tested",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}});
    let path = "/api/v1/namespaces/default/events";
    server.post(path, event).await.expect(201);
    server.ask("DELETE", &format!("{path}/a"), Value::Null).await.expect(200);
    assert!(exact.calls().is_empty());
    for (hook, group, field) in [(&old, "", "involvedObject"), (&new, "events.k8s.io", "regarding")] {
        let [made, deleted] = &hook.calls()[..] else { panic!("two calls for {group:?}") };
        for (request, object) in [(&made["request"], "object"), (&deleted["request"], "oldObject")] {
            assert_eq!(request["resource"]["group"], group);
            assert_eq!(request["kind"]["group"], group);
            assert_eq!(request["requestKind"]["group"], "");
            assert_eq!(request[object][field]["name"], "p", "{request}");
        }
    }
}

#[tokio::test]
async fn dry_runs_reach_only_webhooks_without_side_effects() {
    let server = TestServer::start().await;
    let validating = hook(|asked| Reply::Json(allowed(asked))).await;
    register(&server, "Validating", "v", &validating, json!({"sideEffects": "NoneOnDryRun"})).await;
    server.post(&format!("{MAPS}?dryRun=All"), config_map("a")).await.expect(201);
    assert_eq!(validating.calls()[0]["request"]["dryRun"], true);
    assert_eq!(validating.calls()[0]["request"]["options"]["dryRun"], json!(["All"]));
}

#[tokio::test]
async fn warnings_reach_the_client_whether_or_not_it_may() {
    let server = TestServer::start().await;
    let warning = hook(|asked| {
        let mut answer = allowed(asked);
        answer["response"]["warnings"] = json!(["careful", "careful", "über"]);
        answer["response"]["allowed"] = json!(asked["request"]["name"] == "a");
        Reply::Json(answer)
    })
    .await;
    register(&server, "Validating", "v", &warning, json!({})).await;
    for (name, code) in [("a", 201), ("b", 400)] {
        let answered = server.post(MAPS, config_map(name)).await.expect(code);
        let warnings: Vec<&[u8]> =
            answered.headers.get_all("warning").iter().map(|it| it.as_bytes()).collect();
        assert_eq!(warnings, [&b"299 - \"careful\""[..], "299 - \"über\"".as_bytes()]);
    }
}

#[tokio::test]
async fn configurations_are_exempt_and_conditions_never_pass_silently() {
    let server = TestServer::start().await;
    let everything =
        json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]);
    let never = hook(|asked| refusing(asked, json!({}))).await;
    let conditions = json!([{"name": "c", "expression": "true"}]);
    let more = json!({"rules": everything, "matchConditions": conditions});
    let made = register(&server, "Validating", "v", &never, more).await;
    let warned = made.headers.get("warning").unwrap().to_str().unwrap();
    assert!(warned.contains("has matchConditions, which this server does not evaluate"), "{warned}");
    let answered = server.post(MAPS, config_map("a")).await.expect(403);
    assert!(message(&answered).contains("does not evaluate"), "{}", answered.text);
    assert!(never.calls().is_empty());
    server
        .ask("DELETE", &format!("{GROUP}/validatingwebhookconfigurations/v"), Value::Null)
        .await
        .expect(200);
}

#[tokio::test]
async fn status_and_scale_are_subresources_to_webhooks() {
    let server = TestServer::start().await;
    let seen = hook(|asked| Reply::Json(allowed(asked))).await;
    let rules = json!([{"operations": ["UPDATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments/scale"]}]);
    register(&server, "Validating", "v", &seen, json!({"rules": rules})).await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let pod =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": pod},
    });
    server.post(path, deployment).await.expect(201);
    server.patch(&format!("{path}/d/scale"), "merge", json!({"spec": {"replicas": 3}})).await.expect(200);
    let [asked] = &seen.calls()[..] else { panic!("one call") };
    let request = &asked["request"];
    assert_eq!((&request["subResource"], &request["kind"]["kind"]), (&json!("scale"), &json!("Scale")));
    assert_eq!(request["object"]["spec"]["replicas"], 3);
    assert_eq!(request["oldObject"]["spec"]["replicas"], 1);
}

#[tokio::test]
async fn a_hanging_webhook_holds_up_nobody_else() {
    let server = Arc::new(TestServer::start().await);
    let hanging = hook(|_| Reply::Hang).await;
    register(&server, "Validating", "v", &hanging, json!({})).await;
    let writes = (0..50).map(|index| {
        let server = Arc::clone(&server);
        async move { server.post(MAPS, config_map(&format!("m{index}"))).await }
    });
    let held = futures_util::future::join_all(writes);
    tokio::select! {
        _ = held => panic!("a hanging webhook answered"),
        () = async {
            for index in 0..20 {
                let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("s{index}")}});
                server.post("/api/v1/namespaces/default/secrets", secret).await.expect(201);
                server.get(MAPS).await.expect(200);
            }
        } => {}
    }
}

#[tokio::test]
async fn pods_get_their_service_account() {
    let server = TestServer::start_as(Release::v1(36), |it| it.admission_plugins = Plugins::default()).await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = |name: &str, account: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"serviceAccountName": account, "containers": [{"name": "c", "image": "i"}]},
        })
    };
    let answered = server.post(pods, pod("p", "missing")).await.expect(403);
    let want = "pods \"p\" is forbidden: error looking up service account default/missing: serviceaccount \"missing\" \
                not found";
    assert_eq!(message(&answered), want);
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"},
        "imagePullSecrets": [{"name": "registry"}],
    });
    server.post("/api/v1/namespaces/default/serviceaccounts", account).await.expect(201);
    let made = server.post(pods, pod("p", "")).await.expect(201).json();
    let spec = &made["spec"];
    assert_eq!(
        (&spec["serviceAccountName"], &spec["serviceAccount"]),
        (&json!("default"), &json!("default"))
    );
    assert_eq!(spec["imagePullSecrets"], json!([{"name": "registry"}]));
    let volume = spec["volumes"][0]["name"].as_str().unwrap();
    assert!(volume.starts_with("kube-api-access-"), "{volume}");
    assert_eq!(
        spec["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"],
        3607
    );
    let mount = &spec["containers"][0]["volumeMounts"][0];
    assert_eq!(mount["name"], volume);
    assert_eq!(mount["mountPath"], "/var/run/secrets/kubernetes.io/serviceaccount");
    let mut alone = pod("q", "");
    alone["spec"]["automountServiceAccountToken"] = json!(false);
    let made = server.post(pods, alone).await.expect(201).json();
    assert_eq!(made["spec"]["volumes"], Value::Null);
}
