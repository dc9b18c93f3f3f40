//! Evicting pods under their disruption budgets, and binding them to nodes.

use serde_json::{Value, json};

use crate::harness::{Answered, TestServer};

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    })
}

/// A pod that runs, as far as its status says.
async fn run(server: &TestServer, name: &str, ready: &str) {
    server.post(PODS, pod(name)).await.expect(201);
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}});
    server.patch(&format!("{PODS}/{name}/status"), "merge", status).await.expect(200);
}

async fn budget(server: &TestServer, name: &str, spec: Value, status: Value) {
    let mut spec = spec;
    spec["selector"] = json!({"matchLabels": {"app": "web"}});
    let body = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec});
    server.post(BUDGETS, body).await.expect(201);
    if !status.is_null() {
        let path = format!("{BUDGETS}/{name}/status");
        server.patch(&path, "merge", json!({"status": status})).await.expect(200);
    }
}

fn eviction(name: &str) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}})
}

async fn evict(server: &TestServer, name: &str) -> Answered {
    server.post(&format!("{PODS}/{name}/eviction"), eviction(name)).await
}

fn cause(answered: &Answered) -> String {
    let cause = answered.json()["details"]["causes"][0].clone();
    assert_eq!(cause["reason"], "DisruptionBudget", "{}", answered.text);
    cause["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_pod_without_a_budget_is_deleted() {
    let server = TestServer::start().await;
    run(&server, "a", "True").await;
    let answered = evict(&server, "a").await.expect(201);
    let expect =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    assert_eq!(answered.json(), expect);
    server.get(&format!("{PODS}/a")).await.expect(404);
    let missing = evict(&server, "a").await.expect(404);
    assert_eq!(missing.message(), "pods \"a\" not found");
}

#[tokio::test]
async fn a_pod_that_does_not_run_needs_no_budget() {
    let server = TestServer::start().await;
    budget(&server, "b", json!({"minAvailable": 1}), Value::Null).await;
    server.post(PODS, pod("pending")).await.expect(201);
    evict(&server, "pending").await.expect(201);
    server.post(PODS, pod("done")).await.expect(201);
    let status = json!({"status": {"phase": "Succeeded"}});
    server.patch(&format!("{PODS}/done/status"), "merge", status).await.expect(200);
    evict(&server, "done").await.expect(201);
    server.get(&format!("{PODS}/done")).await.expect(404);
}

#[tokio::test]
async fn a_budget_whose_status_is_behind_says_try_again() {
    let server = TestServer::start().await;
    run(&server, "a", "True").await;
    budget(&server, "b", json!({"minAvailable": 1}), Value::Null).await;
    let answered = evict(&server, "a").await.expect(429);
    assert_eq!(answered.message(), "Cannot evict pod as it would violate the pod's disruption budget.");
    assert_eq!(cause(&answered), "The disruption budget b is still being processed by the server.");
    assert_eq!(answered.headers["retry-after"], "10");
    assert_eq!(answered.json()["reason"], "TooManyRequests");
    server.get(&format!("{PODS}/a")).await.expect(200);
}

#[tokio::test]
async fn disruptions_are_counted_until_none_is_left() {
    let server = TestServer::start().await;
    run(&server, "a", "True").await;
    run(&server, "z", "True").await;
    let status = json!({
        "observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2
    });
    budget(&server, "b", json!({"minAvailable": 1}), status).await;
    let dry = format!("{PODS}/a/eviction?dryRun=All");
    server.post(&dry, eviction("a")).await.expect(201);
    assert_eq!(server.get(&format!("{BUDGETS}/b")).await.json()["status"]["disruptionsAllowed"], 1);
    evict(&server, "a").await.expect(201);
    let after = server.get(&format!("{BUDGETS}/b")).await.expect(200).json();
    assert_eq!(after["status"]["disruptionsAllowed"], 0);
    assert!(after["status"]["disruptedPods"]["a"].is_string(), "{after}");
    assert_eq!(after["status"]["conditions"][0]["reason"], "InsufficientPods");
    let managers = after["metadata"]["managedFields"].as_array().unwrap();
    assert!(managers.iter().any(|it| it["manager"] == "kube-apiserver" && it["subresource"] == "status"));
    let refused = evict(&server, "z").await.expect(429);
    assert_eq!(cause(&refused), "The disruption budget b needs 1 healthy pods and has 2 currently");
    assert!(!refused.headers.contains_key("retry-after"));
}

#[tokio::test]
async fn two_budgets_are_one_too_many() {
    let server = TestServer::start().await;
    run(&server, "a", "True").await;
    budget(&server, "b", json!({"minAvailable": 1}), Value::Null).await;
    budget(&server, "c", json!({"minAvailable": 1}), Value::Null).await;
    let answered = evict(&server, "a").await.expect(500);
    assert_eq!(
        answered.message(),
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    );
}

#[tokio::test]
async fn pods_that_are_not_ready_go_as_the_budget_says() {
    let server = TestServer::start().await;
    run(&server, "a", "False").await;
    let disrupted =
        json!({"observedGeneration": 1, "currentHealthy": 0, "desiredHealthy": 1, "disruptionsAllowed": 0});
    budget(&server, "b", json!({"minAvailable": 1}), disrupted).await;
    evict(&server, "a").await.expect(429);
    let always = json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}});
    server.patch(&format!("{BUDGETS}/b"), "merge", always).await.expect(200);
    evict(&server, "a").await.expect(201);
    run(&server, "c", "False").await;
    let healthy = json!({"spec": {"unhealthyPodEvictionPolicy": "IfHealthyBudget"}});
    server.patch(&format!("{BUDGETS}/b"), "merge", healthy).await.expect(200);
    let status = json!({"status": {"observedGeneration": 3, "currentHealthy": 1, "desiredHealthy": 1}});
    server.patch(&format!("{BUDGETS}/b/status"), "merge", status).await.expect(200);
    evict(&server, "c").await.expect(201);
}

#[tokio::test]
async fn evictions_pass_on_their_options() {
    let server = TestServer::start().await;
    run(&server, "a", "True").await;
    let path = format!("{PODS}/a/eviction");
    let with = |options: Value| {
        let mut body = eviction("a");
        body["deleteOptions"] = options;
        body
    };
    let refused = server.post(&path, with(json!({"preconditions": {"uid": "nope"}}))).await.expect(409);
    assert!(
        refused.message().starts_with(
            "Operation cannot be fulfilled on Pod \"a\": the UID in the precondition (nope) does not match"
        ),
        "{}",
        refused.message()
    );
    server.post(&path, with(json!({"propagationPolicy": "Never"}))).await.expect(422);
    server.post(&path, with(json!({"dryRun": ["All"]}))).await.expect(201);
    server.get(&format!("{PODS}/a")).await.expect(200);
    server.post(&path, with(json!({"gracePeriodSeconds": 0}))).await.expect(201);
    server.get(&format!("{PODS}/a")).await.expect(404);
}

#[tokio::test]
async fn wrong_evictions_are_refused() {
    let server = TestServer::start().await;
    run(&server, "a", "True").await;
    let path = format!("{PODS}/a/eviction");
    let check = async |body: Value, message: &str| {
        let answered = server.post(&path, body).await.expect(400);
        assert_eq!(answered.message(), message);
    };
    check(eviction("b"), "name in URL does not match name in Eviction object").await;
    check(
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}),
        "Pod in version \"v1\" cannot be handled as a Eviction: converting (v1.Pod) to (policy.Eviction): unknown \
         conversion",
    )
    .await;
    check(
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}, "deleteOptions": 5}),
        "Eviction in version \"v1\" cannot be handled as a Eviction: json: cannot unmarshal number into Go struct field \
         Eviction.deleteOptions of type v1.DeleteOptions",
    )
    .await;
    let old = json!({"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "a"}});
    server.post(&path, old).await.expect(201);
}

#[tokio::test]
async fn a_pod_is_bound_once() {
    let server = TestServer::start().await;
    server.post(PODS, pod("a")).await.expect(201);
    let binding = |node: &str| {
        json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": "a", "annotations": {"by": "me"}},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        })
    };
    let path = format!("{PODS}/a/binding");
    server.post(&format!("{path}?dryRun=All"), binding("n")).await.expect(201);
    let answered = server.post(&path, binding("n")).await.expect(201);
    assert_eq!(answered.json()["status"], "Success");
    let bound = server.get(&format!("{PODS}/a")).await.json();
    assert_eq!(bound["spec"]["nodeName"], "n");
    assert_eq!(bound["metadata"]["annotations"]["by"], "me");
    let condition = &bound["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("PodScheduled"), &json!("True")));
    let refused = server.post(&path, binding("m")).await.expect(409);
    assert_eq!(
        refused.message(),
        "Operation cannot be fulfilled on pods/binding \"a\": pod a is already assigned to node \"n\""
    );
    assert_eq!(server.post(&path, binding("")).await.expect(500).message(), "target.name: Required value");
    let mut named = binding("n");
    named["metadata"]["name"] = json!("b");
    server.post(PODS, pod("b")).await.expect(201);
    assert_eq!(
        server.post(&path, named.clone()).await.expect(400).message(),
        "name in URL does not match name in Binding object"
    );
    server.post("/api/v1/namespaces/default/bindings", named).await.expect(201);
    assert_eq!(server.get(&format!("{PODS}/b")).await.json()["spec"]["nodeName"], "n");
}
