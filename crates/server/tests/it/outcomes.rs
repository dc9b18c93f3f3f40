//! What clients are told of writes whose outcome the store does not know, or that it refuses.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use meta::Release;
use serde_json::json;
use store::{
    Change, Key, MemoryStore, SharedStore, Store, SystemClock, Txn,
    fault::{Cut, FaultStore, Faults},
};

use crate::{
    collections, custom,
    harness::{Answered, MAPS, TestServer, config_map},
    trap::{Call, Touch, Trap},
};

fn memory() -> SharedStore {
    SharedStore::new(MemoryStore::new(SystemClock::shared()))
}

/// A server, and what makes its store fail.
async fn disturbed() -> (TestServer, Faults) {
    let (store, faults) = FaultStore::new(memory(), SystemClock::shared());
    let server = TestServer::start_on(SharedStore::new(store), Release::v1(36), |_| {}).await;
    (server, faults)
}

/// client-go would send the request again if it were told when.
#[track_caller]
fn is_not_repeated(answer: Answered) {
    assert_eq!(answer.headers.get("retry-after"), None, "{}", answer.text);
    let status = answer.expect(504).json();
    assert_eq!(
        (&status["reason"], &status["details"]["retryAfterSeconds"]),
        (&json!("Timeout"), &json!(null))
    );
}

#[tokio::test]
async fn a_create_whose_answer_is_lost_is_found_by_its_uid() {
    let (server, faults) = disturbed().await;
    faults.cut_next_commit(Cut::AnswerLost);
    let made = server.post(MAPS, config_map("a")).await.expect(201).json();
    let now = server.get(&format!("{MAPS}/a")).await.expect(200).json();
    assert_eq!(made, now, "it is answered as it was committed");
}

/// A second object under another name would be one that nobody asked for.
#[tokio::test]
async fn a_generated_name_is_not_tried_again_after_an_unknown_outcome() {
    let (server, faults) = disturbed().await;
    let mut object = config_map("");
    object["metadata"] = json!({"generateName": "made-", "labels": {"made": "yes"}});
    faults.cut_next_commit(Cut::AnswerLost);
    let made = server.post(MAPS, object.clone()).await.expect(201).json();
    faults.cut_next_commit(Cut::Unsent);
    is_not_repeated(server.post(MAPS, object).await);
    let all = server.get(&format!("{MAPS}?labelSelector=made")).await.expect(200).json();
    let names: Vec<&str> =
        all["items"].as_array().unwrap().iter().filter_map(|it| it["metadata"]["name"].as_str()).collect();
    assert_eq!(names, [made["metadata"]["name"].as_str().unwrap()]);
}

/// What is not there may still come: the client is not told that nothing happened.
#[tokio::test]
async fn writes_that_left_no_trace_are_unknown_and_not_repeated() {
    let (server, faults) = disturbed().await;
    let path = format!("{MAPS}/a");
    server.post(MAPS, config_map("a")).await.expect(201);
    for (method, path, body) in [
        ("POST", MAPS, config_map("b")),
        ("PUT", path.as_str(), config_map("a").tap(|it| it["data"] = json!({"k": "2"}))),
        ("DELETE", path.as_str(), json!(null)),
    ] {
        faults.cut_next_commit(Cut::Unsent);
        is_not_repeated(server.ask(method, path, body).await);
    }
    assert_eq!(server.get(&path).await.expect(200).json()["data"]["k"], "v");
}

#[tokio::test]
async fn changes_whose_answers_are_lost_are_found() {
    let (server, faults) = disturbed().await;
    let path = format!("{MAPS}/a");
    server.post(MAPS, config_map("a")).await.expect(201);
    // A read first, so that no write is computed from an old state, and loses an answer that would have refused it.
    let lose = async || {
        server.get(&path).await.expect(200);
        faults.cut_next_commit(Cut::AnswerLost);
    };
    lose().await;
    let patched = server.patch(&path, "merge", json!({"data": {"k": "2"}})).await.expect(200).json();
    assert_eq!(patched, server.get(&path).await.expect(200).json());
    lose().await;
    let held = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    server.patch(&path, "merge", held).await.expect(200);
    lose().await;
    let marked = server.ask("DELETE", &path, json!(null)).await.expect(200).json();
    assert!(marked["metadata"]["deletionTimestamp"].is_string(), "{marked}");
}

/// Somebody else may have removed the object and was told so: two requests must not both be told that they did.
#[tokio::test]
async fn removals_whose_answers_are_lost_are_unknown_and_not_repeated() {
    let (server, faults) = disturbed().await;
    let path = format!("{MAPS}/a");
    server.post(MAPS, config_map("a")).await.expect(201);
    faults.cut_next_commit(Cut::AnswerLost);
    is_not_repeated(server.ask("DELETE", &path, json!(null)).await);
    server.get(&path).await.expect(404);
    let mut held = config_map("a");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(MAPS, held).await.expect(201);
    server.ask("DELETE", &path, json!(null)).await.expect(200);
    faults.cut_next_commit(Cut::AnswerLost);
    is_not_repeated(server.patch(&path, "merge", json!({"metadata": {"finalizers": null}})).await);
    server.get(&path).await.expect(404);
}

/// Nothing was written and nothing stands in the way: it is not a conflict of the client's.
#[tokio::test]
async fn a_put_whose_fence_moves_every_time_may_be_sent_again() {
    let raced = |call: Call<'_>| match call {
        Call::Commit(txn) if txn.changes.iter().any(|it| it.key().as_str().ends_with("/raced")) => {
            Some(Touch { key: "/convoy/fences/core.configmaps".into(), value: None })
        }
        _ => None,
    };
    let server = TestServer::start_on(Trap::on(memory(), raced), Release::v1(36), |_| {}).await;
    let answer = server.post(MAPS, config_map("raced")).await.expect(503);
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(answer.json()["reason"], "ServiceUnavailable");
    server.get(&format!("{MAPS}/raced")).await.expect(404);
}

/// A binding that binds to the wrong role is made anew, but not one that another server made in its place.
#[tokio::test]
async fn a_binding_that_was_mended_meanwhile_is_not_deleted() {
    const KEY: &str = "/registry/clusterrolebindings/cluster-admin";
    let binding = |uid: &str, role: &str| {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {
                "name": "cluster-admin", "uid": uid, "creationTimestamp": "2026-11-16T12:00:00Z",
                "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
            },
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:masters"}],
        });
        Bytes::from(binding.to_string())
    };
    let store = memory();
    store.commit(Txn::new().put(&KEY.into(), binding("old", "view"))).await.unwrap();
    let is_mended = AtomicBool::new(false);
    let mended = binding("mended", "cluster-admin");
    let mend = move |call: Call<'_>| match call {
        Call::Commit(txn)
            if txn.changes.iter().any(|it| *it == Change::Delete(KEY.into()))
                && !is_mended.swap(true, Ordering::SeqCst) =>
        {
            Some(Touch { key: KEY.into(), value: Some(mended.clone()) })
        }
        _ => None,
    };
    let server = TestServer::start_on(Trap::on(store, mend), Release::v1(36), |_| {}).await;
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/cluster-admin";
    let found = server.get(path).await.expect(200).json();
    assert_eq!(
        (&found["metadata"]["uid"], &found["roleRef"]["name"]),
        (&json!("mended"), &json!("cluster-admin"))
    );
}

/// Changes a value on the way.
trait Tap: Sized {
    fn tap(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

impl Tap for serde_json::Value {}

/// What was checked against one definition does not enter another one of the same name, which may be somebody else's.
#[tokio::test]
async fn an_object_does_not_enter_a_definition_that_was_made_anew() {
    let anew: Arc<Mutex<Option<Bytes>>> = Arc::default();
    let definition = Key::new("/registry/apiextensions.k8s.io/customresourcedefinitions/gadgets.c.example");
    let hook = {
        let (anew, key) = (Arc::clone(&anew), definition.clone());
        move |call: Call<'_>| match call {
            Call::Commit(txn) if txn.changes.iter().any(|it| it.key().as_str().ends_with("/late")) => {
                let value = anew.lock().unwrap().take()?;
                Some(Touch { key: key.clone(), value: Some(value) })
            }
            _ => None,
        }
    };
    let server = TestServer::start_on(Trap::on(memory(), hook), Release::v1(36), |_| {}).await;
    let crd = custom::establish(&server, collections::definition("gadgets", &[])).await;
    let gadgets = "/apis/c.example/v1/namespaces/default/gadgets";
    server.post(gadgets, collections::gadget("early")).await.expect(201);
    let stored = server.store.get(&definition).await.unwrap().expect("the definition is stored").value;
    let text = String::from_utf8(stored.to_vec()).unwrap();
    let text = text.replace(crd["metadata"]["uid"].as_str().unwrap(), "11111111-2222-3333-4444-555555555555");
    *anew.lock().unwrap() = Some(text.into());
    let refused = server.post(gadgets, collections::gadget("late")).await.expect(409);
    assert!(refused.message().contains("deleted and created again"), "{}", refused.message());
    let late = Key::new("/registry/c.example/gadgets/default/late");
    assert_eq!(server.store.get(&late).await.unwrap(), None);
}
