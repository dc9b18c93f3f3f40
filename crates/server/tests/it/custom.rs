//! Kinds that users define, from the definition to its end.

use meta::{Release, Value};
use serde_json::json;
use store::{Key, Range, ReadAt, Store, Txn};

use crate::{
    harness::{Answered, TestServer},
    watches::Lines,
};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GADGETS: &str = "/apis/a.example/v1/namespaces/default/gadgets";

/// A definition with two versions.
fn definition(plural: &str, kind: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 9},
            "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "replicas": {"type": "integer"},
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string"}, "port": {"type": "integer"}}}}}},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}});
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "schema": schema,
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas"}},
            "selectableFields": [{"jsonPath": ".spec.mode"}],
            "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                {"name": "Mode", "type": "string", "jsonPath": ".spec.mode", "priority": 1}]})
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.a.example")},
        "spec": {"group": "a.example", "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "shortNames": [format!("s{plural}")]},
            "versions": [version("v1", true), version("v2", false)]}})
}

fn gadget(name: &str, size: i64) -> Value {
    json!({"apiVersion": "a.example/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": {"size": size}})
}

/// Follows a definition until it is as wanted, and returns it.
async fn until(server: &TestServer, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    follow(server, "Bearer admintoken", name, wanted).await
}

/// Waits until a definition is established.
pub async fn established(server: &TestServer, authorization: &str, name: &str) -> Value {
    follow(server, authorization, name, is_established).await
}

async fn follow(
    server: &TestServer,
    authorization: &str,
    name: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    let path = format!(
        "{CRDS}?watch=true&fieldSelector=metadata.name={name}&sendInitialEvents=true\
         &resourceVersionMatch=NotOlderThan&resourceVersion="
    );
    let mut lines = Lines::open_as(server, authorization, &path).await;
    loop {
        let event = lines.next().await.expect("an event");
        if event["type"] != "BOOKMARK" && event["type"] != "DELETED" && wanted(&event["object"]) {
            return event["object"].clone();
        }
    }
}

fn condition<'a>(crd: &'a Value, kind: &str) -> &'a Value {
    let conditions = crd["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|it| it["type"] == kind).unwrap_or(&Value::Null)
}

fn is_established(crd: &Value) -> bool {
    condition(crd, "Established")["status"] == "True"
}

pub async fn establish(server: &TestServer, crd: Value) -> Value {
    let name = crd["metadata"]["name"].as_str().unwrap().to_owned();
    server.post(CRDS, crd).await.expect(201);
    until(server, &name, is_established).await
}

/// How much of the test is done: the long form is `cargo xtask soak`.
fn rounds(short: usize) -> usize {
    std::env::var("CONVOY_SOAK_ROUNDS").ok().and_then(|it| it.parse().ok()).unwrap_or(short)
}

async fn start() -> TestServer {
    let server = TestServer::start().await;
    establish(&server, definition("gadgets", "Gadget")).await;
    server
}

#[tokio::test]
async fn a_new_definition_is_established_and_can_be_used_at_once() {
    let server = TestServer::start().await;
    assert_eq!(server.get(GADGETS).await.code, 404);
    let created = server.post(CRDS, definition("gadgets", "Gadget")).await.expect(201).json();
    assert_eq!(created["spec"]["names"]["listKind"], "GadgetList");
    assert_eq!(created["spec"]["names"]["singular"], "gadget");
    assert_eq!(created["spec"]["conversion"]["strategy"], "None");
    assert_eq!(created["status"]["storedVersions"], json!(["v1"]));
    let crd = until(&server, "gadgets.a.example", is_established).await;
    assert_eq!(crd["status"]["acceptedNames"]["shortNames"], json!(["sgadgets"]));
    assert_eq!(condition(&crd, "NamesAccepted")["reason"], "NoConflicts");
    let made = server.post(GADGETS, gadget("one", 2)).await.expect(201).json();
    assert_eq!(made["spec"], json!({"size": 2, "mode": "a"}));
    assert_eq!(made["metadata"]["generation"], 1);
    let list = server.get(GADGETS).await.expect(200).json();
    assert_eq!(list["kind"], "GadgetList");
    assert_eq!(list["items"][0]["kind"], "Gadget");
}

#[tokio::test]
async fn objects_are_checked_by_the_schema() {
    let server = start().await;
    let refused = server.post(GADGETS, gadget("b", 20)).await.expect(422);
    assert_eq!(
        refused.message(),
        "Gadget.a.example \"b\" is invalid: spec.size: Invalid value: 20: spec.size in body should be less than or equal to 9"
    );
    let mut unknown = gadget("c", 1);
    unknown["spec"]["nope"] = json!(1);
    unknown["metadata"]["odd"] = json!(1);
    let path = format!("{GADGETS}?fieldValidation=Strict");
    let refused = server.post(&path, unknown.clone()).await.expect(400);
    assert_eq!(
        refused.message(),
        "Gadget in version \"v1\" cannot be handled as a Gadget: strict decoding error: unknown field \"metadata.odd\", unknown field \"spec.nope\""
    );
    let warned = server.post(GADGETS, unknown).await.expect(201);
    assert!(warned.headers["warning"].to_str().unwrap().contains("metadata.odd"));
    assert_eq!(warned.json()["spec"], json!({"size": 1, "mode": "a"}));
    let wrong = json!({"apiVersion": "a.example/v1", "kind": "Other", "metadata": {"name": "x"}});
    assert!(server.post(GADGETS, wrong).await.expect(422).message().contains("must be Gadget"));
    let wrong = json!({"apiVersion": "b.example/v1", "kind": "Gadget", "metadata": {"name": "x"}});
    assert_eq!(
        server.post(GADGETS, wrong).await.expect(400).message(),
        "the API version in the data (b.example/v1) does not match the expected API version (a.example/v1)"
    );
}

#[tokio::test]
async fn updates_patches_and_apply_go_through_the_same_steps_as_built_in_kinds() {
    let server = start().await;
    server.post(GADGETS, gadget("one", 2)).await.expect(201);
    let path = format!("{GADGETS}/one");
    let refused = server.ask("PUT", &path, gadget("one", 3)).await.expect(422);
    assert!(refused.message().contains("must be specified for an update"));
    let merged =
        server.patch(&path, "merge", json!({"spec": {"size": 3, "mode": null}})).await.expect(200).json();
    assert_eq!(merged["metadata"]["generation"], 2);
    assert_eq!(merged["spec"], json!({"size": 3, "mode": "a"}));
    server.patch(&path, "strategic-merge", json!({"spec": {"size": 3}})).await.expect(415);
    let apply = |manager: &str, spec: Value| {
        let path = format!("{path}?fieldManager={manager}");
        let body = json!({"apiVersion": "a.example/v1", "kind": "Gadget", "metadata": {"name": "one"}, "spec": spec});
        (path, body)
    };
    let headers = [("authorization", "Bearer admintoken"), ("content-type", "application/apply-patch+yaml")];
    let (to, body) = apply("x", json!({"ports": [{"name": "a", "port": 1}]}));
    server.send("PATCH", &to, &headers, body).await.expect(200);
    let (to, body) = apply("y", json!({"ports": [{"name": "b", "port": 2}]}));
    let applied = server.send("PATCH", &to, &headers, body).await.expect(200).json();
    assert_eq!(applied["spec"]["ports"], json!([{"name": "a", "port": 1}, {"name": "b", "port": 2}]));
    let (to, body) = apply("y", json!({"ports": [{"name": "a", "port": 5}]}));
    assert_eq!(server.send("PATCH", &to, &headers, body).await.code, 409);
    let (to, body) = apply("y", json!({"nope": 1}));
    let refused = server.send("PATCH", &to, &headers, body).await;
    assert!(refused.message().contains("field not declared in schema"), "{}", refused.text);
}

#[tokio::test]
async fn status_and_scale_are_written_apart() {
    let server = start().await;
    server.post(GADGETS, gadget("one", 2)).await.expect(201);
    let path = format!("{GADGETS}/one");
    let patched = server
        .patch(
            &format!("{path}/status"),
            "merge",
            json!({"spec": {"size": 5}, "status": {"replicas": 4, "x": 1}}),
        )
        .await
        .expect(200)
        .json();
    assert_eq!(patched["spec"]["size"], 2);
    assert_eq!(patched["status"], json!({"replicas": 4, "x": 1}));
    assert_eq!(patched["metadata"]["generation"], 1);
    let missing = server.get(&format!("{path}/scale")).await.expect(500);
    assert!(missing.message().contains(".spec.replicas"), "{}", missing.text);
    server
        .patch(&path, "merge", json!({"spec": {"replicas": 1}, "status": {"replicas": 9}}))
        .await
        .expect(200);
    let scale = server.get(&format!("{path}/scale")).await.expect(200).json();
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["replicas"]), (&json!(1), &json!(4)));
    let scaled = server
        .patch(&format!("{path}/scale"), "merge", json!({"spec": {"replicas": 7}}))
        .await
        .expect(200)
        .json();
    assert_eq!(scaled["spec"]["replicas"], 7);
    assert_eq!(server.get(&path).await.json()["spec"]["replicas"], 7);
}

#[tokio::test]
async fn tables_have_the_columns_of_the_definition_and_fields_can_be_selected_by() {
    let server = start().await;
    server.post(GADGETS, gadget("one", 2)).await.expect(201);
    let mut other = gadget("two", 3);
    other["spec"]["mode"] = json!("b");
    server.post(GADGETS, other).await.expect(201);
    let headers =
        [("authorization", "Bearer admintoken"), ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = server.send("GET", GADGETS, &headers, Value::Null).await.expect(200).json();
    let names: Vec<&Value> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["Name", "Size", "Mode"]);
    assert_eq!(table["rows"][1]["cells"], json!(["two", 3, "b"]));
    let selected = server.get(&format!("{GADGETS}?fieldSelector=spec.mode=b")).await.expect(200).json();
    assert_eq!(selected["items"].as_array().unwrap().len(), 1);
    let refused = server.get(&format!("{GADGETS}?fieldSelector=spec.size=2")).await.expect(400);
    assert_eq!(refused.message(), "field label not supported: spec.size");
}

#[tokio::test]
async fn discovery_and_openapi_show_what_users_define() {
    let server = start().await;
    let list = server.get("/apis/a.example/v1").await.expect(200).json();
    let names: Vec<&Value> = list["resources"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["gadgets", "gadgets/scale", "gadgets/status"]);
    assert_eq!(list["resources"][0]["shortNames"], json!(["sgadgets"]));
    let group = server.get("/apis/a.example").await.expect(200).json();
    assert_eq!(group["preferredVersion"]["version"], "v2");
    let index = server.get("/openapi/v3").await.expect(200).json();
    let url = index["paths"]["apis/a.example/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let document = server.get(&url).await.expect(200).json();
    let gadget = &document["components"]["schemas"]["example.a.v1.Gadget"];
    assert_eq!(gadget["properties"]["spec"]["properties"]["size"]["maximum"], 9);
    assert_eq!(gadget["x-kubernetes-group-version-kind"][0]["kind"], "Gadget");
    let whole = server.get("/openapi/v2").await.expect(200).json();
    assert_eq!(
        whole["definitions"]["example.a.v1.Gadget"]["x-kubernetes-group-version-kind"][0]["kind"],
        "Gadget"
    );
    let headers = [
        ("authorization", "Bearer admintoken"),
        ("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
    ];
    let all = server.send("GET", "/apis", &headers, Value::Null).await.expect(200);
    assert!(
        all.text
            .contains("\"responseKind\":{\"group\":\"a.example\",\"version\":\"v1\",\"kind\":\"Gadget\"}")
    );
}

/// As upstream: a version that nobody can ask for is not hinted at.
#[tokio::test]
async fn discovery_hints_at_the_stored_version_only_while_it_is_served() {
    let server = start().await;
    // Discovery follows a definition as soon as the server does.
    let until_hash = async |is_right: &dyn Fn(Option<&str>) -> bool| {
        for _ in 0..500 {
            let list = server.get("/apis/a.example/v1").await.expect(200).json();
            let hash = list["resources"][0]["storageVersionHash"].as_str();
            if is_right(hash) {
                return hash.map(str::to_owned);
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("the hash of the stored version stays as it was");
    };
    let first = until_hash(&|it| it.is_some()).await;
    flip(&server, 1).await;
    until_hash(&|it| it.is_some() && it != first.as_deref()).await;
    let hide = json!([{"op": "replace", "path": "/spec/versions/1/served", "value": false}]);
    server.patch(&format!("{CRDS}/gadgets.a.example"), "json", hide).await.expect(200);
    until_hash(&|it| it.is_none()).await;
}

#[tokio::test]
async fn names_that_are_taken_are_free_again_when_their_owner_goes() {
    let server = start().await;
    let mut rival = definition("rivals", "Gadget");
    rival["spec"]["names"]["listKind"] = json!("RivalList");
    rival["spec"]["names"]["singular"] = json!("rival");
    server.post(CRDS, rival).await.expect(201);
    let told = until(&server, "rivals.a.example", |it| !condition(it, "NamesAccepted").is_null()).await;
    assert_eq!(condition(&told, "NamesAccepted")["reason"], "KindConflict");
    assert_eq!(condition(&told, "NamesAccepted")["message"], "\"Gadget\" is already in use");
    assert_eq!(condition(&told, "Established")["reason"], "NotAccepted");
    server.ask("DELETE", &format!("{CRDS}/gadgets.a.example"), Value::Null).await.expect(200);
    until(&server, "rivals.a.example", is_established).await;
    server.get("/apis/a.example/v1/namespaces/default/rivals").await.expect(200);
}

#[tokio::test]
async fn a_deleted_definition_waits_for_its_objects() {
    let server = start().await;
    let mut held = gadget("held", 1);
    held["metadata"]["finalizers"] = json!(["a.example/hold"]);
    server.post(GADGETS, held).await.expect(201);
    server.post(GADGETS, gadget("free", 1)).await.expect(201);
    let path = format!("{CRDS}/gadgets.a.example");
    let marked = server.ask("DELETE", &path, Value::Null).await.expect(200).json();
    assert_eq!(marked["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert_eq!(condition(&marked, "Terminating")["reason"], "InstanceDeletionPending");
    until(&server, "gadgets.a.example", |it| {
        condition(it, "Terminating")["reason"] == "InstanceDeletionInProgress"
    })
    .await;
    let refused = server.post(GADGETS, gadget("late", 1)).await.expect(405);
    assert_eq!(refused.message(), "create not allowed while custom resource definition is terminating");
    // Nor by a request that creates what it does not find: the definition goes when none is left.
    let apply = [("authorization", "Bearer admintoken"), ("content-type", "application/apply-patch+yaml")];
    let late = format!("{GADGETS}/late?fieldManager=m");
    let refused = server.send("PATCH", &late, &apply, gadget("late", 1)).await.expect(405);
    assert_eq!(refused.message(), "create not allowed while custom resource definition is terminating");
    let mut lines =
        Lines::open(&server, &format!("{CRDS}?watch=true&fieldSelector=metadata.name=gadgets.a.example"))
            .await;
    let release = json!({"metadata": {"finalizers": null}});
    server.patch(&format!("{GADGETS}/held"), "merge", release).await.expect(200);
    while lines.next().await.expect("an event")["type"] != "DELETED" {}
    assert_eq!(server.get(&path).await.code, 404);
    let left = server.store.list(&Range::prefix("/registry/a.example/"), ReadAt::Latest, 10).await.unwrap();
    assert!(left.entries.is_empty());
    establish(&server, definition("gadgets", "Gadget")).await;
    assert_eq!(server.get(GADGETS).await.expect(200).json()["items"], json!([]));
}

async fn flip(server: &TestServer, to: usize) -> Answered {
    let patch = json!([
        {"op": "replace", "path": format!("/spec/versions/{}/storage", 1 - to), "value": false},
        {"op": "replace", "path": format!("/spec/versions/{to}/storage"), "value": true},
    ]);
    server.patch(&format!("{CRDS}/gadgets.a.example"), "json", patch).await.expect(200)
}

async fn stored_version(server: &TestServer, name: &str) -> String {
    let key = Key::new(format!("/registry/a.example/gadgets/default/{name}"));
    let entry = server.store.get(&key).await.unwrap().unwrap();
    let object: Value = serde_json::from_slice(&entry.value).unwrap();
    object["apiVersion"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn stored_versions_are_true() {
    let server = start().await;
    server.post(GADGETS, gadget("one", 1)).await.expect(201);
    let flipped = flip(&server, 1).await.json();
    assert_eq!(flipped["status"]["storedVersions"], json!(["v1", "v2"]));
    server.post(GADGETS, gadget("two", 1)).await.expect(201);
    assert_eq!(stored_version(&server, "one").await, "a.example/v1");
    assert_eq!(stored_version(&server, "two").await, "a.example/v2");
    let drop_v1 = json!({"status": {"storedVersions": ["v2"]}});
    let path = format!("{CRDS}/gadgets.a.example/status");
    let refused = server.patch(&path, "merge", drop_v1.clone()).await.expect(422);
    assert!(refused.message().contains("1 objects are stored in it"), "{}", refused.message());
    // An empty patch rewrites the object in the version that is stored now.
    server.patch(&format!("{GADGETS}/one"), "merge", json!({})).await.expect(200);
    assert_eq!(stored_version(&server, "one").await, "a.example/v2");
    let pruned = server.patch(&path, "merge", drop_v1).await.expect(200).json();
    assert_eq!(pruned["status"]["storedVersions"], json!(["v2"]));
    let both = server.get("/apis/a.example/v2/namespaces/default/gadgets").await.expect(200).json();
    assert_eq!(both["items"][0]["apiVersion"], "a.example/v2");
    assert_eq!(server.get(GADGETS).await.json()["items"][1]["apiVersion"], "a.example/v1");
}

/// While nothing is stored the storage version may go from the list, as upstream allows. An object brings it back, in a
/// revision before its own.
#[tokio::test]
async fn the_version_that_is_written_is_listed_before_anything_is_stored_in_it() {
    let server = start().await;
    let path = format!("{CRDS}/gadgets.a.example");
    for (round, without) in [json!([]), json!(["v2"]), Value::Null].into_iter().enumerate() {
        let drop_v1 = json!({"status": {"storedVersions": without}});
        server.patch(&format!("{path}/status"), "merge", drop_v1).await.expect(200);
        let name = format!("g{round}");
        let made = server.post(GADGETS, gadget(&name, 1)).await.expect(201).json();
        let crd = server.get(&path).await.json();
        let listed = crd["status"]["storedVersions"].as_array().cloned().unwrap_or_default();
        assert!(listed.contains(&json!("v1")), "{listed:?}");
        let revision =
            |it: &Value| it["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
        assert!(revision(&crd) < revision(&made), "it was listed after the object was stored");
        server.ask("DELETE", &format!("{GADGETS}/{name}"), Value::Null).await.expect(200);
        until_none_is_cached(&server).await;
    }
}

async fn until_none_is_cached(server: &TestServer) {
    while server.get(GADGETS).await.json()["items"].as_array().is_some_and(|it| !it.is_empty()) {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_put_that_commits_after_a_flip_is_stored_in_the_new_version() {
    let server = start().await;
    for round in 0..rounds(20) {
        let to = (round + 1) % 2;
        let writes = (0..4).map(|at| server.post(GADGETS, gadget(&format!("w{round}-{at}"), 1)));
        let (crd, written) = tokio::join!(flip(&server, to), futures_util::future::join_all(writes));
        let crd = crd.json();
        let flipped: u64 = crd["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        let wanted = format!("a.example/v{}", to + 1);
        for (at, answer) in written.into_iter().enumerate() {
            let object = answer.expect(201).json();
            let revision: u64 = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
            let stored = stored_version(&server, &format!("w{round}-{at}")).await;
            assert_eq!(stored == wanted, revision > flipped, "{stored} at {revision}, flipped at {flipped}");
        }
    }
}

#[tokio::test]
async fn a_definition_starts_with_the_versions_that_are_found() {
    let server = TestServer::start().await;
    let key = Key::new("/registry/a.example/gadgets/default/old");
    let old = json!({"apiVersion": "a.example/v2", "kind": "Gadget",
        "metadata": {"name": "old", "namespace": "default"}, "spec": {"size": 1, "gone": true}});
    server.store.commit(Txn::new().put(&key, old.to_string().into())).await.unwrap();
    let crd = establish(&server, definition("gadgets", "Gadget")).await;
    assert_eq!(crd["status"]["storedVersions"], json!(["v2", "v1"]));
    let shown = server.get(&format!("{GADGETS}/old")).await.expect(200).json();
    assert_eq!(shown["apiVersion"], "a.example/v1");
    assert_eq!(shown["spec"], json!({"size": 1, "mode": "a"}));
}

#[tokio::test]
async fn definitions_survive_a_restart() {
    let server = start().await;
    server.post(GADGETS, gadget("one", 1)).await.expect(201);
    let store = server.store.clone();
    drop(server);
    let server = TestServer::start_on(store, Release::v1(36), |_| {}).await;
    assert_eq!(server.get(&format!("{GADGETS}/one")).await.expect(200).json()["spec"]["mode"], "a");
    server.post(GADGETS, gadget("two", 1)).await.expect(201);
}

#[tokio::test]
async fn what_is_built_in_cannot_be_defined() {
    let server = TestServer::start().await;
    let mut crd = definition("ingresses", "Ingress");
    crd["metadata"] = json!({"name": "ingresses.networking.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}});
    crd["spec"]["group"] = json!("networking.k8s.io");
    let refused = server.post(CRDS, crd).await.expect(422);
    assert!(refused.message().contains("is built into this server"), "{}", refused.message());
}

#[tokio::test]
async fn rules_in_cel_are_kept_and_warned_about() {
    let server = TestServer::start().await;
    let mut crd = definition("gadgets", "Gadget");
    for at in 0..2 {
        crd["spec"]["versions"][at]["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] =
            json!([{"rule": "self.size > 0"}]);
    }
    let created = server.post(CRDS, crd).await.expect(201);
    assert!(created.headers["warning"].to_str().unwrap().contains("not enforced"), "{:?}", created.headers);
}

#[tokio::test]
async fn watches_see_objects_in_their_version() {
    let server = start().await;
    let path = "/apis/a.example/v2/namespaces/default/gadgets?watch=true&resourceVersion=0";
    let mut lines = Lines::open(&server, path).await;
    server.post(GADGETS, gadget("one", 1)).await.expect(201);
    let event = lines.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["apiVersion"]), (&json!("ADDED"), &json!("a.example/v2")));
    server.ask("DELETE", &format!("{GADGETS}/one"), Value::Null).await.expect(200);
    let event = lines.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["apiVersion"]), (&json!("DELETED"), &json!("a.example/v2")));
}

#[tokio::test]
async fn many_definitions_are_established_together() {
    let server = TestServer::start().await;
    let n_definitions = rounds(100);
    let all =
        (0..n_definitions).map(|at| server.post(CRDS, definition(&format!("ks{at}"), &format!("K{at}"))));
    for answer in futures_util::future::join_all(all).await {
        answer.expect(201);
    }
    for at in 0..n_definitions {
        until(&server, &format!("ks{at}.a.example"), is_established).await;
        server.get(&format!("/apis/a.example/v1/ks{at}")).await.expect(200);
    }
    let list = server.get("/apis/a.example/v1").await.expect(200).json();
    assert_eq!(list["resources"].as_array().unwrap().len(), n_definitions * 3);
}
