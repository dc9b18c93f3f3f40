//! DELETE and DELETECOLLECTION.

use std::time::Duration;

use meta::{Fact, Grounds, Release, grounds};
use serde_json::{Value, json};
use store::{Key, MemoryStore, SharedStore, Store, SystemClock, Txn, fault::FaultStore};

use crate::{
    collections::{definition, gadget},
    custom::establish,
    harness::{Answered, MAPS, TestServer, config_map},
};

#[tokio::test]
async fn a_deleted_object_is_gone() {
    let server = TestServer::start().await;
    let path = format!("{MAPS}/a");
    server.post(MAPS, config_map("a")).await.expect(201);
    let deleted = server.ask("DELETE", &path, Value::Null).await.expect(200).json();
    assert_eq!((&deleted["kind"], &deleted["status"]), (&json!("Status"), &json!("Success")));
    server.get(&path).await.expect(404);
    server.ask("DELETE", &path, Value::Null).await.expect(404);
}

#[tokio::test]
async fn preconditions_protect_other_objects_of_the_same_name() {
    let server = TestServer::start().await;
    let path = format!("{MAPS}/a");
    server.post(MAPS, config_map("a")).await.expect(201);
    let refused = server.ask("DELETE", &path, json!({"preconditions": {"uid": "nope"}})).await.expect(409);
    assert!(refused.message().starts_with("Operation cannot be fulfilled on ConfigMap \"a\": the UID"));
    server.ask("DELETE", &path, json!({"preconditions": {"resourceVersion": "1"}})).await.expect(409);
    server.get(&path).await.expect(200);
}

#[tokio::test]
async fn finalizers_hold_an_object_until_the_last_one_goes() {
    let server = TestServer::start().await;
    let path = format!("{MAPS}/f");
    let mut map = config_map("f");
    map["metadata"]["finalizers"] = json!(["example.com/x"]);
    server.post(MAPS, map).await.expect(201);
    let marked = server.ask("DELETE", &path, Value::Null).await.expect(200).json();
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    let more = json!({"metadata": {"finalizers": ["example.com/x", "example.com/y"]}});
    server.patch(&path, "merge", more).await.expect(422);
    server.patch(&path, "merge", json!({"metadata": {"finalizers": []}})).await.expect(200);
    server.get(&path).await.expect(404);
}

#[tokio::test]
async fn a_pod_on_a_node_gets_time_to_stop() {
    let server = TestServer::start().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = |name: &str, node: &str| json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}});
    server.post(pods, pod("nowhere", "")).await.expect(201);
    let gone = server.ask("DELETE", &format!("{pods}/nowhere"), Value::Null).await.expect(200).json();
    assert_eq!(gone["kind"], "Pod", "typed clients read a Pod here");
    server.get(&format!("{pods}/nowhere")).await.expect(404);
    server.post(pods, pod("runs", "n1")).await.expect(201);
    let path = format!("{pods}/runs");
    let marked = server.ask("DELETE", &path, Value::Null).await.expect(200).json();
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    server.get(&path).await.expect(200);
    server.ask("DELETE", &path, json!({"gracePeriodSeconds": 0})).await.expect(200);
    server.get(&path).await.expect(404);
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let server = TestServer::start().await;
    for n in 0..30 {
        let mut map = config_map(&format!("m{n}"));
        map["metadata"]["labels"] = json!({"even": (n % 2 == 0).to_string()});
        server.post(MAPS, map).await.expect(201);
    }
    let deleted =
        server.ask("DELETE", &format!("{MAPS}?labelSelector=even%3Dtrue"), Value::Null).await.expect(200);
    assert_eq!(deleted.json()["items"].as_array().unwrap().len(), 15);
    let left = server.get(MAPS).await.json();
    assert_eq!(left["items"].as_array().unwrap().len(), 15);
}

#[tokio::test]
async fn a_namespace_waits_for_its_finalizer() {
    let server = TestServer::start().await;
    server.post("/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await.expect(201);
    let path = "/api/v1/namespaces/n";
    let marked = server.ask("DELETE", path, Value::Null).await.expect(200).json();
    assert_eq!(marked["status"]["phase"], "Terminating");
    let refused = server.post("/api/v1/namespaces/n/configmaps", config_map("a")).await.expect(403);
    assert!(refused.message().contains("because it is being terminated"), "{}", refused.message());
    let mut namespace = server.get(path).await.json();
    namespace["spec"]["finalizers"] = json!([]);
    server.ask("PUT", &format!("{path}/finalize"), namespace).await.expect(200);
    server.get(path).await.expect(404);
    server.ask("DELETE", "/api/v1/namespaces/kube-system", Value::Null).await.expect(403);
}

#[tokio::test]
async fn a_policy_becomes_a_finalizer_and_another_policy_replaces_it() {
    let server = TestServer::start().await;
    let path = format!("{MAPS}/p");
    for (policy, expect) in [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")] {
        server.post(MAPS, config_map("p")).await.expect(201);
        let marked =
            server.ask("DELETE", &path, json!({"propagationPolicy": policy})).await.expect(200).json();
        assert_eq!(marked["metadata"]["finalizers"], json!([expect]));
        let when = marked["metadata"]["deletionTimestamp"].clone();
        assert!(when.is_string());
        // Whoever says nothing changes nothing.
        let again = server.ask("DELETE", &path, Value::Null).await.expect(200).json();
        assert_eq!(again["metadata"]["resourceVersion"], marked["metadata"]["resourceVersion"]);
        let other = if policy == "Orphan" { "Foreground" } else { "Orphan" };
        let other = server.ask("DELETE", &path, json!({"propagationPolicy": other})).await.expect(200).json();
        assert_ne!(other["metadata"]["finalizers"], json!([expect]));
        assert_eq!(other["metadata"]["deletionTimestamp"], when);
        server.ask("DELETE", &path, json!({"propagationPolicy": "Background"})).await.expect(200);
        server.get(&path).await.expect(404);
    }
}

fn warning(answer: &Answered) -> &str {
    answer.headers.get("warning").map_or("", |it| it.to_str().unwrap())
}

#[tokio::test]
async fn jobs_keep_their_pods_where_nobody_says_otherwise() {
    let server = TestServer::start().await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": pod}});
    server.post(jobs, job).await.expect(201);
    let path = format!("{jobs}/j");
    let deleted = server.ask("DELETE", &path, Value::Null).await.expect(200);
    assert!(warning(&deleted).contains("child pods are preserved by default"));
    assert_eq!(deleted.json()["metadata"]["finalizers"], json!(["orphan"]));
    let deleted = server.ask("DELETE", &path, json!({"propagationPolicy": "Background"})).await.expect(200);
    assert_eq!(warning(&deleted), "");
    server.get(&path).await.expect(404);
}

/// What is stored and known to nobody keeps its namespace, until somebody says that it may be left.
#[tokio::test]
async fn a_namespace_stays_while_keys_of_it_remain_that_nobody_serves() {
    let server = TestServer::start().await;
    let plant = async |key: &str| {
        let text =
            json!({"apiVersion": "old.example/v1", "kind": "Relic", "metadata": {"name": "x"}}).to_string();
        server.store.commit(Txn::new().put(&Key::new(key), text.into())).await.unwrap();
    };
    // Neither of these is of the namespace `ruin`: another one's, one without a namespace, and one of a resource `ruin`.
    for key in
        ["/registry/old.example/relics/other/x", "/registry/relics/ruin", "/registry/old.example/ruin/x"]
    {
        plant(key).await;
    }
    let finalized = async |name: &str| {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        server.post("/api/v1/namespaces", namespace).await.expect(201);
        server.ask("DELETE", &format!("/api/v1/namespaces/{name}"), Value::Null).await.expect(200);
        finalize(&server, name).await
    };
    finalized("ruin").await.expect(200);
    server.get("/api/v1/namespaces/ruin").await.expect(404);

    plant("/registry/old.example/relics/ruin/x").await;
    plant("/registry/old.example/relics/ruin/y").await;
    plant("/registry/gone/ruin/z").await;
    let refused = finalized("ruin").await.expect(409);
    let told = "keys that no server serves: 1 under /registry/gone/, 2 under /registry/old.example/relics/";
    assert!(refused.message().contains(told), "{}", refused.message());
    let cause = &refused.json()["details"]["causes"][0];
    assert_eq!((&cause["reason"], &cause["message"]), (&json!("UnservedContent"), &json!(told)));
    server.get("/api/v1/namespaces/ruin").await.expect(200);
    let patch = json!({"metadata": {"annotations": {"convoy.dev/abandon-unserved-content": "true"}}});
    server.patch("/api/v1/namespaces/ruin", "merge", patch).await.expect(200);
    finalize(&server, "ruin").await.expect(200);
    server.get("/api/v1/namespaces/ruin").await.expect(404);
}

/// Objects of a kind of which no version is served are shown by nobody, and stay with their namespace and their owner.
#[tokio::test]
async fn objects_of_a_kind_without_served_versions_are_not_left_behind() {
    let server = TestServer::start().await;
    establish(&server, definition("gadgets", &[])).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ruin"}});
    server.post("/api/v1/namespaces", namespace).await.expect(201);
    let owner = server.post(MAPS, config_map("owner")).await.expect(201).json();
    let mut relic = gadget("relic");
    relic["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
        "uid": owner["metadata"]["uid"]}]);
    server.post("/apis/c.example/v1/namespaces/default/gadgets", relic.clone()).await.expect(201);
    server.post("/apis/c.example/v1/namespaces/ruin/gadgets", gadget("relic")).await.expect(201);
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.c.example";
    let mut versions = definition("gadgets", &[])["spec"]["versions"].clone();
    versions[0]["served"] = json!(false);
    server.patch(crd, "merge", json!({"spec": {"versions": versions}})).await.expect(200);
    while server.get("/apis/c.example/v1/namespaces/ruin/gadgets").await.code != 404 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    server.ask("DELETE", "/api/v1/namespaces/ruin", Value::Null).await.expect(200);
    let refused = finalize(&server, "ruin").await.expect(409);
    let told = "keys that no server serves: 1 under /registry/c.example/gadgets/";
    assert!(refused.message().contains(told), "{}", refused.message());
    let path = format!("{MAPS}/owner");
    server.ask("DELETE", &path, json!({"propagationPolicy": "Orphan"})).await.expect(200);
    let refused = server.patch(&path, "merge", json!({"metadata": {"finalizers": null}})).await.expect(409);
    let told = "dependents that no server serves: 1 under /registry/c.example/gadgets/default/";
    assert!(refused.message().contains(told), "{}", refused.message());
}

/// A controller asks discovery, empties what that shows, and finalizes: a kind that came between is not left behind. Users
/// may force a namespace to go.
#[tokio::test]
async fn a_controller_does_not_finalize_a_namespace_with_content() {
    let server = TestServer::start().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "full"}});
    let made = server.post("/api/v1/namespaces", namespace).await.expect(201).json();
    server.post("/api/v1/namespaces/full/configmaps", config_map("left")).await.expect(201);
    server.ask("DELETE", "/api/v1/namespaces/full", Value::Null).await.expect(200);
    let fact = Fact::namespace_ends("full", made["metadata"]["uid"].as_str().unwrap());
    let facts = Grounds::because([fact]).to_header().unwrap();
    let headers = [("authorization", "Bearer admintoken"), (grounds::HEADER, facts.as_str())];
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "full"}, "spec": {"finalizers": []}});
    let path = "/api/v1/namespaces/full/finalize";
    let refused = server.send("PUT", path, &headers, body).await.expect(409);
    let told = "keys that are still there: 1 under /registry/configmaps/";
    assert!(refused.message().contains(told), "{}", refused.message());
    finalize(&server, "full").await.expect(200);
    server.get("/api/v1/namespaces/full").await.expect(404);
}

/// The same for an owner whose dependents are to stay: a definition that was made anew meanwhile brings some that whoever
/// orphans them has not seen. Users may take the finalizer off.
#[tokio::test]
async fn a_controller_does_not_end_an_orphaning_that_left_dependents_out() {
    let server = TestServer::start().await;
    establish(&server, definition("gadgets", &[])).await;
    let owner = server.post(MAPS, config_map("owner")).await.expect(201).json();
    let uid = owner["metadata"]["uid"].as_str().unwrap();
    let mut orphan = gadget("orphan");
    orphan["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}]);
    server.post("/apis/c.example/v1/namespaces/default/gadgets", orphan).await.expect(201);
    let path = format!("{MAPS}/owner");
    server.ask("DELETE", &path, json!({"propagationPolicy": "Orphan"})).await.expect(200);
    let object = grounds::Place {
        group: String::new(),
        resource: "configmaps".to_owned(),
        namespace: "default".to_owned(),
        name: "owner".to_owned(),
    };
    let fact = Fact::Deleting { object, uid: uid.to_owned(), finalizer: "orphan".to_owned() };
    let facts = Grounds::because([fact]).to_header().unwrap();
    let headers = [
        ("authorization", "Bearer admintoken"),
        ("content-type", "application/merge-patch+json"),
        (grounds::HEADER, facts.as_str()),
    ];
    let freed = json!({"metadata": {"finalizers": null}});
    let refused = server.send("PATCH", &path, &headers, freed.clone()).await.expect(409);
    let told = "dependents that are still there: 1 under /registry/c.example/gadgets/";
    assert!(refused.message().contains(told), "{}", refused.message());
    server.patch(&path, "merge", freed).await.expect(200);
    server.get(&path).await.expect(404);
}

/// Where objects of an unknown resource are stored is not known either, if a newer binary may have it built in: that they
/// are not where those of definitions are proves nothing.
#[tokio::test]
async fn an_owner_of_a_resource_that_may_be_built_in_elsewhere_is_not_taken_for_gone() {
    let server = TestServer::start().await;
    server.post(MAPS, config_map("dependent")).await.expect(201);
    let delete = async |group: &str| {
        let object = grounds::Place {
            group: group.to_owned(),
            resource: "foos".to_owned(),
            namespace: "default".to_owned(),
            name: "owner".to_owned(),
        };
        let facts = Grounds::because([Fact::Gone { object, uid: "u".to_owned(), kind: None }]);
        let facts = facts.to_header().unwrap();
        let headers = [("authorization", "Bearer admintoken"), (grounds::HEADER, facts.as_str())];
        server.send("DELETE", &format!("{MAPS}/dependent"), &headers, Value::Null).await
    };
    for group in ["x.k8s.io", "x.kubernetes.io", "x"] {
        delete(group).await.expect(503);
    }
    server.get(&format!("{MAPS}/dependent")).await.expect(200);
    delete("example.org").await.expect(200);
}

async fn finalize(server: &TestServer, name: &str) -> Answered {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []}});
    server.ask("PUT", &format!("/api/v1/namespaces/{name}/finalize"), body).await
}

/// A server that has not heard yet that the marked object went, and another one was made, deletes the other one: that there
/// is nothing to do is said only of what the store holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_behind_deletes_what_is_there_now() {
    let inner = SharedStore::new(MemoryStore::new(SystemClock::shared()));
    let (slow, faults) = FaultStore::new(inner.clone(), SystemClock::shared());
    let first = TestServer::start_on(inner, Release::v1(36), |_| {}).await;
    let second = TestServer::start_on(SharedStore::new(slow), Release::v1(36), |_| {}).await;
    let path = format!("{MAPS}/a");
    let mut held = config_map("a");
    held["metadata"]["finalizers"] = json!(["a.example/hold"]);
    first.post(MAPS, held).await.expect(201);
    first.ask("DELETE", &path, Value::Null).await.expect(200);
    while !second.get(&path).await.json()["metadata"]["deletionTimestamp"].is_string() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    faults.delay(Duration::from_millis(400));
    first.patch(&path, "merge", json!({"metadata": {"finalizers": null}})).await.expect(200);
    first.post(MAPS, config_map("a")).await.expect(201);
    let deleted = second.ask("DELETE", &path, Value::Null).await.expect(200).json();
    assert_eq!(deleted["status"], "Success", "{deleted}");
    first.get(&path).await.expect(404);
}
