//! Steps that would leave objects unreadable are refused, with the reason and the remedy (G6).

use std::time::Duration;

use serde_json::{Value, json};
use store::{Key, Store, Txn};

use super::{
    ground::{CLASSES, CLASSES_RECORD, Ground, MAPS, NEW, class, eventually, map},
    on_both_stores,
};

/// 1.33 has device classes as a beta that is off by default; what it does not serve does not hold it back.
const BETAS: &str = "--runtime-config=api/beta=true";

on_both_stores!(
    a_server_that_cannot_read_what_is_stored_stays_out,
    a_server_that_cannot_read_what_is_written_stays_out,
    a_member_that_can_no_longer_read_what_is_written_leaves_and_stays_up,
    what_a_member_cannot_decode_is_read_by_another,
    what_a_member_learns_it_cannot_decode_is_read_by_another,
    a_resource_that_is_never_reported_holds_back_no_record,
    what_servers_do_past_the_api_is_recorded,
    what_is_built_into_another_release_cannot_be_defined,
    a_definition_of_what_became_built_in_stands_in_the_way,
);

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEFINED: &str = "deviceclasses.resource.k8s.io";

/// What 1.34 and later have built in, as a user of an older release might define it.
fn defined() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": DEFINED, "uid": "d1", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["customresourcecleanup.apiextensions.k8s.io"],
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/1"}},
        "spec": {"group": "resource.k8s.io", "scope": "Cluster", "conversion": {"strategy": "None"},
            "names": {"plural": "deviceclasses", "singular": "deviceclass", "kind": "DeviceClass",
                "listKind": "DeviceClassList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
        "status": {"storedVersions": ["v1"], "conditions": [], "acceptedNames": {"plural": "", "kind": ""}}})
}

async fn what_is_built_into_another_release_cannot_be_defined(ground: Ground) {
    let old = ground.launch("old", 33).await;
    let mut definition = defined();
    definition.as_object_mut().unwrap().remove("status");
    let refused = old.expect(422, "POST", DEFINITIONS, definition.clone()).await;
    assert_eq!(refused["reason"], "Invalid");
    let told = "deviceclasses.resource.k8s.io is a built-in resource of Kubernetes and cannot be defined";
    assert!(refused["message"].as_str().unwrap().contains(told), "{refused}");
    // Nothing is left that could keep a newer release out.
    let new = ground.launch("new", 36).await;
    new.expect(201, "POST", CLASSES, class("x")).await;
    new.expect(422, "POST", DEFINITIONS, definition).await;
}

/// Made before it was refused: the newer release does not become ready, names it, and joins when it is gone.
async fn a_definition_of_what_became_built_in_stands_in_the_way(ground: Ground) {
    let key = Key::new(format!("/registry/apiextensions.k8s.io/customresourcedefinitions/{DEFINED}"));
    ground.store.commit(Txn::new().put(&key, defined().to_string().into())).await.unwrap();
    let old = ground.launch("old", 33).await;
    eventually("it is Established", async || {
        let found = old.get(&format!("{DEFINITIONS}/{DEFINED}")).await;
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|it| it["type"] == "Established" && it["status"] == "True")
    })
    .await;
    old.expect(201, "POST", CLASSES, class("x")).await;
    let refused = ground.try_launch("new", 36, &[]).await.err().unwrap();
    let told =
        "the CustomResourceDefinition deviceclasses.resource.k8s.io stands in the way: release 1.36 has";
    assert!(refused.contains(told), "{refused}");
    let starting = super::ground::Starting::launch(ground.store.clone(), "new", 36, &[]).await;
    eventually("it says so", async || starting.health().await.contains(told)).await;
    assert_eq!(starting.ask("GET", "/livez", Value::Null).await.0, 200);
    // The older one is not disturbed by it.
    old.expect(201, "POST", CLASSES, class("y")).await;
    assert_eq!(old.common(CLASSES_RECORD).await.as_deref(), Some(NEW));
    // The way across: save, delete, upgrade, create.
    let saved = old.get(CLASSES).await;
    old.expect(200, "DELETE", &format!("{DEFINITIONS}/{DEFINED}"), Value::Null).await;
    eventually("it joins and reports", async || starting.health().await == "ok").await;
    for object in saved["items"].as_array().unwrap() {
        let name = object["metadata"]["name"].as_str().unwrap();
        let (code, answer) = starting.ask("POST", CLASSES, class(name)).await;
        assert_eq!(code, 201, "{answer}");
    }
    assert_eq!(ground.stored_version("/registry/deviceclasses/x").await.as_deref(), Some(NEW));
}

async fn a_server_that_cannot_read_what_is_stored_stays_out(ground: Ground) {
    let new = ground.launch("new", 36).await;
    new.expect(201, "POST", CLASSES, class("x")).await;
    new.server.stop().await;
    let refused = ground.try_launch("old", 33, &[BETAS]).await.err().unwrap();
    let expected = "1 object of deviceclasses.resource.k8s.io is stored as resource.k8s.io/v1, which release 1.33 cannot read";
    assert!(refused.starts_with(expected), "{refused}");
    assert!(refused.contains("go on one minor release at a time"), "{refused}");
    // An operator may leave them unreadable.
    let flags = [BETAS, "--allow-undecodable=deviceclasses.resource.k8s.io/v1"];
    let old = ground.launch_with("old", 33, &flags).await;
    old.server.stop().await;
    ground.launch("older-without", 33).await.server.stop().await;
    // Nothing of it was touched.
    assert_eq!(ground.stored_version("/registry/deviceclasses/x").await.as_deref(), Some(NEW));
}

async fn a_server_that_cannot_read_what_is_written_stays_out(ground: Ground) {
    let (new, newer) = (ground.launch("new", 36).await, ground.launch("newer", 36).await);
    assert_eq!(new.common(CLASSES_RECORD).await.as_deref(), Some(NEW));
    // Nothing is stored; what counts is what the others would store.
    let refused = ground.try_launch("old", 33, &[BETAS]).await.err().unwrap();
    assert!(refused.contains("is written as"), "{refused}");
    assert!(
        refused.contains("which release 1.33 cannot read: upgrade one minor release at a time"),
        "{refused}"
    );
    // It tells the others, who tell people.
    let starting = super::ground::Starting::launch(ground.store.clone(), "old", 33, &[BETAS]).await;
    eventually("the others know of it", async || !new.server.status().refused.is_empty()).await;
    let told = async || {
        let events = new.get("/apis/events.k8s.io/v1/namespaces/kube-system/events").await;
        events["items"].as_array().unwrap().iter().filter(|it| it["reason"] == "ServerRefused").count()
    };
    eventually("there is an Event", async || told().await > 0).await;
    // It answers reads, and is not ready.
    assert_eq!(starting.ask("GET", "/api/v1/namespaces", Value::Null).await.0, 200);
    assert_eq!(starting.ask("GET", "/livez", Value::Null).await.0, 200);
    assert_eq!(starting.ask("GET", "/readyz", Value::Null).await.0, 500);
    let (code, answer) = starting.ask("POST", "/api/v1/namespaces/default/configmaps", map("m")).await;
    assert_eq!(code, 503, "{answer}");
    // The other one, too, has looked by now; it has nothing to add.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(told().await, 1);
    newer.server.stop().await;
    drop(starting);
    eventually("its note goes with it", async || new.server.status().refused.is_empty()).await;
    // With the others gone, nothing stands in its way: nothing was stored.
    new.server.stop().await;
    ground.launch_with("old", 33, &[BETAS]).await;
}

/// A server that hears of such a value only while it reads, because its watch is behind, hands the read on all the same.
async fn what_a_member_learns_it_cannot_decode_is_read_by_another(ground: Ground) {
    const OF_OLD: &str = "/apis/resource.k8s.io/v1beta1/deviceclasses";
    let flags = [BETAS, "--allow-undecodable=deviceclasses.resource.k8s.io/v1"];
    let old = ground.launch_reachable("old", 33, &flags).await;
    let _new = ground.launch_reachable("new", 36, &[BETAS]).await;
    eventually("it knows who decodes", async || old.server.status().members.len() == 2).await;
    old.faults.delay(Duration::from_millis(300));
    for n in 0..3 {
        let name = format!("planted-{n}");
        let planted =
            json!({"apiVersion": NEW, "kind": "DeviceClass", "metadata": {"name": name}, "spec": {}});
        let key = Key::new(format!("/registry/deviceclasses/{name}"));
        ground.store.commit(Txn::new().put(&key, planted.to_string().into())).await.unwrap();
        let (code, list) = old.ask("GET", OF_OLD, Value::Null).await;
        assert_eq!(code, 200, "{list}");
        assert_eq!(list["items"].as_array().unwrap().len(), n + 1, "{list}");
    }
}

/// A list without what this server cannot decode would be less than there is: another member answers, or nobody does.
async fn what_a_member_cannot_decode_is_read_by_another(ground: Ground) {
    const OF_OLD: &str = "/apis/resource.k8s.io/v1beta1/deviceclasses";
    let flags = [BETAS, "--allow-undecodable=deviceclasses.resource.k8s.io/v1"];
    let old = ground.launch_reachable("old", 33, &flags).await;
    let new = ground.launch_reachable("new", 36, &[BETAS]).await;
    let readable = json!({"apiVersion": "resource.k8s.io/v1beta1", "kind": "DeviceClass", "metadata": {"name": "readable"},
        "spec": {}});
    old.expect(201, "POST", OF_OLD, readable).await;
    let planted =
        json!({"apiVersion": NEW, "kind": "DeviceClass", "metadata": {"name": "planted"}, "spec": {}});
    let key = Key::new("/registry/deviceclasses/planted");
    ground.store.commit(Txn::new().put(&key, planted.to_string().into())).await.unwrap();
    eventually("both are listed", async || {
        let (code, list) = old.ask("GET", OF_OLD, Value::Null).await;
        // A moment before this server has heard of it, it is not there for it.
        assert_eq!(code, 200, "{list}");
        list["items"].as_array().unwrap().len() == 2
    })
    .await;
    let found = old.get(&format!("{OF_OLD}/planted")).await;
    assert_eq!(
        (&found["apiVersion"], &found["metadata"]["name"]),
        (&json!("resource.k8s.io/v1beta1"), &json!("planted"))
    );
    assert_eq!(new.get(OF_OLD).await["items"].as_array().unwrap().len(), 2);
    // What it can decode it answers itself, also when nobody else does.
    new.server.stop().await;
    eventually("nobody else decodes it", async || old.ask("GET", OF_OLD, Value::Null).await.0 == 500).await;
    let (_, refused) = old.ask("GET", OF_OLD, Value::Null).await;
    assert!(refused["message"].as_str().unwrap().contains(key.as_str()), "{refused}");
    assert_eq!(old.get(&format!("{OF_OLD}/readable")).await["metadata"]["name"], "readable");
}

/// `Order::Withdraw`: a record that somebody has damaged names a version that a member cannot read. It leaves, says why,
/// answers reads, writes nothing, and joins again when the obstacle is gone.
async fn a_member_that_can_no_longer_read_what_is_written_leaves_and_stays_up(ground: Ground) {
    // It does not ask others to write for it, either.
    let alone = "--feature-gates=UnknownVersionInteroperabilityProxy=false";
    let old = ground.launch_with("old", 33, &[BETAS, alone]).await;
    let new = ground.launch("new", 36).await;
    let key = Key::new(format!("/convoy/fences/{CLASSES_RECORD}"));
    let entry = ground.store.get(&key).await.unwrap().unwrap();
    let mut record: Value = serde_json::from_slice(&entry.value).unwrap();
    record["entries"] = json!([]);
    record["selection"] = json!(NEW);
    record.as_object_mut().unwrap().remove("common");
    ground.store.commit(Txn::new().put(&key, record.to_string().into())).await.unwrap();
    eventually("it is refused", async || old.state() == "Refused").await;
    eventually("it is no member", async || new.n_members() == 1).await;
    let health = "/readyz/poststarthook/built-in-resources-storage-version-updater";
    assert_eq!(old.ask("GET", "/livez", Value::Null).await.0, 200);
    assert_eq!(old.ask("GET", health, Value::Null).await.0, 500);
    let why = old.server.status().server.unwrap().reason;
    assert!(why.contains("deviceclasses.resource.k8s.io is written as resource.k8s.io/v1"), "{why}");
    eventually("the other one knows of it", async || !new.server.status().refused.is_empty()).await;
    old.expect(200, "GET", MAPS, Value::Null).await;
    let refused = old.expect(503, "POST", MAPS, map("m")).await;
    assert!(
        refused["message"].as_str().unwrap().contains("cannot be written through this server"),
        "{refused}"
    );
    new.server.stop().await;
    eventually("it is a member again", async || old.state() == "Member").await;
    eventually("it can write", async || matches!(old.ask("POST", MAPS, map("m")).await.0, 201 | 409)).await;
}

/// A regression: records for the audit log stood in one queue with Events, which waited until everything was reported.
async fn a_resource_that_is_never_reported_holds_back_no_record(ground: Ground) {
    let folder = tempfile::tempdir().unwrap();
    let (policy, log) = (folder.path().join("policy"), folder.path().join("log"));
    std::fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n")
        .unwrap();
    let audit =
        [format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", log.display())];
    let ship = ground.launch_with("a", 36, &[&audit[0], &audit[1]]).await;
    let spoilt = Key::new("/convoy/fences/core.configmaps");
    ground.store.commit(Txn::new().put(&spoilt, r#"{"format":99}"#.into())).await.unwrap();
    eventually("it is not ready", async || ship.ask("GET", "/readyz", Value::Null).await.0 == 500).await;
    // This is told as an Event, and put into the audit log.
    super::custom::definition(&ship, "v1").await;
    let (name, v2) = ("example.com.things", super::custom::things("v2"));
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
    ship.expect(200, "PATCH", path, json!({"spec": {"versions": v2["spec"]["versions"]}})).await;
    eventually("the Event is there", async || {
        let events = ship.get("/apis/events.k8s.io/v1/namespaces/default/events").await;
        let mut events = events["items"].as_array().unwrap().iter();
        events.any(|it| it["regarding"]["name"] == name && it["note"].as_str().unwrap().contains("no longer"))
    })
    .await;
    eventually("so is the record", async || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let lines = text.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
        let is_move = |it: &Value| {
            it["objectRef"]["name"] == name
                && it["annotations"]["convoy/written"] == "straight through the store"
        };
        lines.filter(is_move).count() >= 2
    })
    .await;
    ship.expect(500, "GET", "/readyz", Value::Null).await;
}

/// Reports in the audit log, an override in the audit log and as an Event, and what nobody knows as an Event.
async fn what_servers_do_past_the_api_is_recorded(ground: Ground) {
    let folder = tempfile::tempdir().unwrap();
    let (policy, log) = (folder.path().join("policy"), folder.path().join("log"));
    std::fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Request\n").unwrap();
    let audit =
        [format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", log.display())];
    let new = ground.launch_with("new", 36, &[&audit[0], &audit[1]]).await;
    new.expect(201, "POST", CLASSES, class("x")).await;
    let lines = || -> Vec<Value> {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.lines().filter_map(|it| serde_json::from_str(it).ok()).collect()
    };
    let is_report = |it: &Value| {
        it["objectRef"]["resource"] == "storageversions"
            && it["objectRef"]["name"] == CLASSES_RECORD
            && it["objectRef"]["subresource"] == "status"
            && it["user"]["username"] == "system:apiserver"
            && it["requestObject"]["status"]["commonEncodingVersion"] == NEW
    };
    eventually("the report is in the audit log", async || lines().iter().any(is_report)).await;
    new.server.stop().await;
    std::fs::remove_file(&log).unwrap();

    let key = Key::new("/registry/spaceships/enterprise");
    Store::commit(&ground.store, Txn::new().put(&key, r#"{"kind":"Spaceship"}"#.into())).await.unwrap();
    let flags = [BETAS, "--allow-undecodable=deviceclasses.resource.k8s.io/v1", &audit[0], &audit[1]];
    let old = ground.launch_with("old", 33, &flags).await;
    let is_override = |it: &Value| {
        let text = it["annotations"]["convoy/allow-undecodable"].as_str().unwrap_or_default();
        text.contains("deviceclasses.resource.k8s.io/v1")
    };
    eventually("the override is in the audit log", async || lines().iter().any(is_override)).await;
    for (reason, note) in [
        ("UndecodableAllowed", "cannot read deviceclasses.resource.k8s.io/v1"),
        ("UnknownResourcesStored", "1 below /registry/spaceships/"),
    ] {
        eventually(reason, async || {
            let events = old.get("/apis/events.k8s.io/v1/events").await;
            let mut events = events["items"].as_array().unwrap().iter();
            events.any(|it| it["reason"] == reason && it["note"].as_str().unwrap_or_default().contains(note))
        })
        .await;
    }
}
