//! A server does not go on without a task that it needs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use meta::Release;
use serde_json::json;
use store::{Change, MemoryStore, SharedStore, SystemClock};

use crate::{
    harness::TestServer,
    trap::{Call, Trap},
};

/// A server whose store panics as soon as it is told to, in calls of this kind.
async fn panicking(is_trapped: fn(&Call<'_>) -> bool) -> (TestServer, Arc<AtomicBool>) {
    let inner = SharedStore::new(MemoryStore::new(SystemClock::shared()));
    let armed = Arc::new(AtomicBool::new(false));
    let is_armed = Arc::clone(&armed);
    let store = Trap::on(inner, move |call| {
        assert!(!(is_armed.load(Ordering::SeqCst) && is_trapped(&call)), "on purpose");
        None
    });
    (TestServer::start_on(store, Release::v1(36), |_| {}).await, armed)
}

async fn why(server: &TestServer) -> String {
    let broken = server.lifecycle.tasks().broken();
    tokio::time::timeout(Duration::from_secs(30), broken).await.expect("the server must not go on")
}

#[tokio::test]
async fn without_its_membership_a_server_stops() {
    let (server, armed) = panicking(|it| matches!(it, Call::Renew)).await;
    armed.store(true, Ordering::SeqCst);
    let why = why(&server).await;
    assert!(why.contains("membership"), "{why}");
}

#[tokio::test]
async fn without_its_definitions_a_server_stops() {
    // What the follower writes, and no client.
    let is_status = |call: &Call<'_>| match call {
        Call::Commit(txn) => txn.changes.iter().any(|it| match it {
            Change::Put(_, value, _) => value.windows(13).any(|it| it == b"NamesAccepted"),
            Change::Delete(_) => false,
        }),
        Call::Renew => false,
    };
    let (server, armed) = panicking(is_status).await;
    armed.store(true, Ordering::SeqCst);
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    server.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await.expect(201);
    let why = why(&server).await;
    assert!(why.contains("custom resource definitions"), "{why}");
}
