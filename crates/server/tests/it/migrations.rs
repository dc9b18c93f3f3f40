//! Migrations and storage states, as tools and people use them.

use meta::Release;
use serde_json::{Value, json};
use store::{Key, MemoryStore, SharedStore, Store, SystemClock, Txn};

use crate::harness::TestServer;

const MIGRATORS: &str = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations";
const STATES: &str = "/apis/migration.k8s.io/v1alpha1/storagestates";
const UPSTREAMS: &str = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
const TABLE: [(&str, &str); 2] =
    [("authorization", "Bearer admintoken"), ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];

fn migration(path: &str, name: &str) -> Value {
    let api_version = path.split('/').collect::<Vec<_>>()[2..4].join("/");
    let resource = json!({"group": "example.com", "resource": "widgets"});
    json!({"apiVersion": api_version, "kind": "StorageVersionMigration", "metadata": {"name": name},
        "spec": {"resource": resource}})
}

fn state(name: &str) -> Value {
    json!({"apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageState", "metadata": {"name": name},
        "spec": {"resource": {"group": "example.com", "resource": "widgets"}}})
}

/// A status with everything in it that both kinds have.
fn full_status() -> Value {
    let time = "2026-01-02T03:04:05Z";
    json!({
        "phase": "Running", "reason": "Migrating", "message": "3 are denied", "engine": "InStore",
        "storageVersion": "example.com/v2", "epoch": 7,
        "startTime": time, "completionTime": time, "lastUpdateTime": time,
        "progress": {
            "total": 100, "migrated": 39, "unchanged": 0, "failed": 3, "remaining": 58, "objectsPerSecond": 20,
            "percent": 42, "pass": 1, "position": "default/w", "estimatedCompletionTime": time,
        },
        "failures": [{"class": "denied", "count": 3, "message": "no", "objects": ["default/a", "default/b"]}],
        "evidence": {"kind": "StoreScan", "time": time, "objects": 100, "message": "all"},
        "prunedVersions": ["v1"],
    })
}

#[tokio::test]
async fn every_release_serves_migrations_and_states() {
    for minor in 30..=36 {
        let it = TestServer::start_as(Release::v1(minor), |_| {}).await;
        for path in [MIGRATORS, UPSTREAMS] {
            let made = it.post(path, migration(path, "m")).await.expect(201).json();
            assert_eq!(made["status"], json!({}), "{path} in 1.{minor}");
            assert_eq!(it.get(path).await.expect(200).json()["items"].as_array().unwrap().len(), 1);
        }
        it.post(STATES, state("widgets.example.com")).await.expect(201);
    }
}

#[tokio::test]
async fn a_status_is_written_by_itself_and_keeps_every_field() {
    let it = TestServer::start().await;
    for path in [MIGRATORS, UPSTREAMS] {
        let mut object = migration(path, "m");
        object["status"] = full_status();
        let made = it.post(&format!("{path}?fieldValidation=Strict"), object).await.expect(201).json();
        assert_eq!(made["status"], json!({}));

        let one = format!("{path}/m");
        let written = it
            .patch(&format!("{one}/status?fieldValidation=Strict"), "merge", json!({"status": full_status()}))
            .await;
        assert_eq!(written.expect(200).json()["status"], full_status());
        // What the object itself says about its status does not count.
        it.patch(&one, "merge", json!({"status": {"phase": "Failed"}})).await.expect(200);
        assert_eq!(it.get(&one).await.expect(200).json()["status"], full_status());

        // Progress always says how much there is of everything.
        let bare = json!([{"op": "replace", "path": "/status", "value": {"progress": {}}}]);
        let written = it.patch(&format!("{one}/status"), "json", bare).await.expect(200).json();
        let zero =
            json!({"total": 0, "migrated": 0, "unchanged": 0, "failed": 0, "remaining": 0, "percent": 0});
        assert_eq!(written["status"]["progress"], zero);
    }
}

#[tokio::test]
async fn what_is_migrated_cannot_change_and_mistakes_are_named() {
    let it = TestServer::start().await;
    for (path, field) in [(MIGRATORS, "spec.resource"), (UPSTREAMS, "spec")] {
        it.post(path, migration(path, "m")).await.expect(201);
        let changed = json!({"spec": {"resource": {"resource": "gadgets"}}});
        let refused = it.patch(&format!("{path}/m"), "merge", changed).await.expect(422);
        let message = refused.message();
        let is_named = message.contains(&format!(" is invalid: {field}: Invalid value: {{"));
        assert!(is_named && message.ends_with(": field is immutable"), "{message}");

        let empty = json!({"metadata": {"name": "e"}, "spec": {"resource": {"group": "example.com"}}});
        let refused = it.post(path, empty).await.expect(422).message();
        assert!(
            refused.ends_with(" spec.resource.resource: Required value: resource is required to be set"),
            "{refused}"
        );
    }
    // The migrator keeps its place in the spec.
    let token = json!({"spec": {"continueToken": "next"}});
    let kept = it.patch(&format!("{MIGRATORS}/m"), "merge", token).await.expect(200).json();
    assert_eq!(
        (&kept["spec"]["continueToken"], &kept["metadata"]["generation"]),
        (&json!("next"), &json!(2))
    );
}

#[tokio::test]
async fn a_migration_that_has_ended_stays_so() {
    let it = TestServer::start().await;
    it.post(UPSTREAMS, migration(UPSTREAMS, "m")).await.expect(201);
    let status = |kind: &str, version: &str| {
        let condition = json!({"type": kind, "status": "True", "reason": "R", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z"});
        json!({"status": {"resourceVersion": version, "conditions": [condition]}})
    };
    let path = format!("{UPSTREAMS}/m/status");
    it.patch(&path, "merge", status("Running", "12")).await.expect(200);
    it.patch(&path, "merge", status("Succeeded", "12")).await.expect(200);
    let refused = it.patch(&path, "merge", status("Failed", "13")).await.expect(422);
    let causes = refused.json()["details"]["causes"].clone();
    let fields: Vec<&str> = causes.as_array().unwrap().iter().filter_map(|it| it["field"].as_str()).collect();
    assert_eq!(fields, ["status.resourceVersion", "status.conditions"]);
    assert!(refused.message().contains("Success condition cannot be set to false once it is true"));
}

#[tokio::test]
async fn writes_name_the_version_that_they_replace_and_make_nothing() {
    let it = TestServer::start().await;
    for path in [MIGRATORS, UPSTREAMS] {
        it.ask("PUT", &format!("{path}/m"), migration(path, "m")).await.expect(404);
        it.post(path, migration(path, "m")).await.expect(201);
        let refused = it.ask("PUT", &format!("{path}/m"), migration(path, "m")).await.expect(422).message();
        assert!(refused.contains("metadata.resourceVersion"), "{refused}");
    }
}

#[tokio::test]
async fn a_state_is_named_after_its_resource() {
    let it = TestServer::start().await;
    let refused = it.post(STATES, state("widgets")).await.expect(422).message();
    assert!(refused.contains("metadata.name: Invalid value: \"widgets\""), "{refused}");
    it.post(STATES, state("widgets.example.com")).await.expect(201);
    let status = json!({"currentVersion": "example.com/v2", "persistedVersions": ["Unknown", "example.com/v2"],
        "currentStorageVersionHash": "h2", "persistedStorageVersionHashes": ["h1", "h2", "h1"],
        "lastHeartbeatTime": "2026-01-02T03:04:05Z", "evidence": {"kind": "StoreScan", "objects": 0}});
    let path = format!("{STATES}/widgets.example.com/status");
    let written = it.patch(&path, "merge", json!({ "status": status })).await.expect(200).json();
    assert_eq!(written["status"], status);
}

#[tokio::test]
async fn a_name_can_be_generated() {
    let it = TestServer::start().await;
    for path in [MIGRATORS, UPSTREAMS] {
        let mut object = migration(path, "");
        object["metadata"] = json!({"generateName": "widgets.example.com-"});
        let made = it.post(path, object).await.expect(201).json();
        let name = made["metadata"]["name"].as_str().unwrap();
        assert!(name.starts_with("widgets.example.com-") && name.len() > 20, "{name}");
    }
}

#[tokio::test]
async fn lists_show_how_far_migrations_are() {
    let it = TestServer::start().await;
    for path in [MIGRATORS, UPSTREAMS] {
        it.post(path, migration(path, "a")).await.expect(201);
        it.post(path, migration(path, "b")).await.expect(201);
        let status = json!({"status": full_status()});
        it.patch(&format!("{path}/b/status"), "merge", status).await.expect(200);
        let table = it.send("GET", path, &TABLE, Value::Null).await.expect(200).json();
        let columns: Vec<&str> = table["columnDefinitions"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|it| it["name"].as_str())
            .collect();
        let always = ["Name", "Resource", "Status", "Progress", "Remaining", "Failed", "Age"];
        assert_eq!(columns, [&always[..], &["Version", "Evidence", "Message"]].concat());
        let cells = |row: usize| table["rows"][row]["cells"].as_array().unwrap()[..6].to_vec();
        let resource = "widgets.example.com";
        assert_eq!(json!(cells(0)), json!(["a", resource, "Pending", "<none>", null, null]));
        assert_eq!(json!(cells(1)), json!(["b", resource, "Running", "42%", 58, 3]));
    }
    it.post(STATES, state("widgets.example.com")).await.expect(201);
    let table = it.send("GET", STATES, &TABLE, Value::Null).await.expect(200).json();
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(json!(cells[..4]), json!(["widgets.example.com", "<none>", "<none>", "<unknown>"]));
}

/// The storage version migrator keeps its objects as custom resources, under the same keys.
#[tokio::test]
async fn what_the_migrator_stored_is_taken_over() {
    let store = SharedStore::new(MemoryStore::new(SystemClock::shared()));
    let mut object = migration(MIGRATORS, "old");
    object["metadata"]["uid"] = json!("u");
    object["spec"]["resource"]["version"] = json!("v1");
    object["status"] = json!({"conditions": [{"type": "Succeeded", "status": "True"}]});
    let key = Key::new("/registry/migration.k8s.io/storageversionmigrations/old");
    store.commit(Txn::new().put(&key, schema::json::encode_stored(&object))).await.unwrap();
    let it = TestServer::start_on(store, Release::v1(36), |_| {}).await;
    let found = it.get(&format!("{MIGRATORS}/old")).await.expect(200).json();
    assert_eq!((&found["spec"], &found["status"]), (&object["spec"], &object["status"]));
    let table = it.send("GET", MIGRATORS, &TABLE, Value::Null).await.expect(200).json();
    assert_eq!(table["rows"][0]["cells"][2], "Succeeded");
}
