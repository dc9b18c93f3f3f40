//! Custom objects are read from memory: what is read while that is loaded, replaced and removed is true, or an error that
//! says to ask again.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use meta::{Release, Value};
use serde_json::json;
use store::{
    CommitError, Entry, Events, Key, LeaseError, LeaseId, Leases, MemoryStore, Page, Range, ReadAt,
    ReadError, Revision, SharedStore, Store, SystemClock, Txn, WatchError,
};
use tokio::sync::Semaphore;

use crate::{
    custom::establish,
    harness::{MAPS, TestServer, config_map},
};

const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GADGETS: &str = "/apis/c.example/v1/namespaces/default/gadgets";

/// A definition whose objects can be selected by these fields of their spec.
pub fn definition(plural: &str, fields: &[&str]) -> Value {
    let paths: Vec<Value> = fields.iter().map(|it| json!({"jsonPath": format!(".spec.{it}")})).collect();
    let text = json!({"type": "string"});
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"color": text, "size": text}}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.c.example")},
        "spec": {"group": "c.example", "scope": "Namespaced",
            "names": {"plural": plural, "kind": "Gadget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "selectableFields": paths,
                "schema": {"openAPIV3Schema": schema}}]}})
}

pub fn gadget(name: &str) -> Value {
    json!({"apiVersion": "c.example/v1", "kind": "Gadget", "metadata": {"name": name},
        "spec": {"color": "red", "size": "s"}})
}

fn names(list: &Value) -> BTreeSet<String> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Selectable fields come and go while objects are made and removed: every read between shows what was acknowledged before
/// it, through GET, LIST, a list that says at which revision it is, and the census.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_read_is_true_while_selectable_fields_change() {
    let server = Arc::new(TestServer::start().await);
    establish(&server, definition("gadgets", &[])).await;
    for number in 0..300 {
        server.post(GADGETS, gadget(&format!("old{number}"))).await.expect(201);
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let changing = tokio::spawn({
        let (server, is_over) = (Arc::clone(&server), Arc::clone(&is_over));
        async move {
            for round in 0..12 {
                let fields: &[&str] = if round % 2 == 0 { &["color", "size"] } else { &["size"] };
                let versions = definition("gadgets", fields)["spec"]["versions"].clone();
                let patch = json!({"spec": {"versions": versions}});
                server.patch(&format!("{CRD}/gadgets.c.example"), "merge", patch).await.expect(200);
                // Until the new field can be selected by: the old collection answers meanwhile.
                let selected = format!("{GADGETS}?fieldSelector=spec.{}%3Dred&limit=1", fields[0]);
                while server.get(&selected).await.code != 200 {
                    tokio::task::yield_now().await;
                }
            }
            is_over.store(true, Ordering::Release);
        }
    });
    let mut expected: BTreeSet<String> = (0..300).map(|it| format!("old{it}")).collect();
    let mut number = 0;
    while !is_over.load(Ordering::Acquire) {
        let name = format!("new{number}");
        let made = server.post(GADGETS, gadget(&name)).await.expect(201).json();
        expected.insert(name.clone());
        let found = server.get(&format!("{GADGETS}/{name}")).await.expect(200).json();
        assert_eq!(found["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
        let fresh = made["metadata"]["resourceVersion"].as_str().unwrap();
        for query in [String::new(), format!("?resourceVersion={fresh}"), "?resourceVersion=0".to_owned()] {
            let list = server.get(&format!("{GADGETS}{query}")).await.expect(200).json();
            let shown: u64 = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
            assert!(shown >= fresh.parse().unwrap(), "{query}");
            assert_eq!(names(&list), expected, "{query}");
        }
        let counted = server.server.registry().census().await.unwrap();
        let counted = &counted[&meta::GroupResource::new("c.example", "gadgets")];
        assert_eq!(counted.values().sum::<u64>(), expected.len() as u64);
        if number % 3 == 2 {
            let gone = format!("old{number}");
            server.ask("DELETE", &format!("{GADGETS}/{gone}"), Value::Null).await.expect(200);
            expected.remove(&gone);
            server.get(&format!("{GADGETS}/{gone}")).await.expect(404);
        }
        number += 1;
    }
    changing.await.unwrap();
    println!("{number} objects were made while fields changed");
}

/// A store that answers lists of one prefix only when told.
struct Held {
    inner: SharedStore,
    prefix: String,
    permits: Arc<Semaphore>,
}

impl Store for Held {
    async fn current(&self) -> Result<Revision, ReadError> {
        self.inner.current().await
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, ReadError> {
        self.inner.get(key).await
    }

    async fn list(&self, range: &Range, at: ReadAt, limit: usize) -> Result<Page, ReadError> {
        if range.start.as_str().starts_with(&self.prefix) {
            self.permits.acquire().await.unwrap().forget();
        }
        self.inner.list(range, at, limit).await
    }

    async fn watch(&self, range: &Range, after: Revision) -> Result<Events, WatchError> {
        self.inner.watch(range, after).await
    }

    async fn commit(&self, txn: Txn) -> Result<Revision, CommitError> {
        self.inner.commit(txn).await
    }

    async fn compact(&self, before: Revision) -> Result<(), CommitError> {
        self.inner.compact(before).await
    }
}

impl Leases for Held {
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, LeaseError> {
        self.inner.grant(ttl).await
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), LeaseError> {
        self.inner.renew(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), LeaseError> {
        self.inner.revoke(lease).await
    }
}

fn memory() -> SharedStore {
    SharedStore::new(MemoryStore::new(SystemClock::shared()))
}

/// The store answers no lists to one server while selectable fields change: what another server acknowledges is found
/// through it all the same, and the new field is there without them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_that_is_replaced_is_never_behind() {
    let store = memory();
    let other = TestServer::start_on(store.clone(), Release::v1(36), |_| {}).await;
    establish(&other, definition("gadgets", &["size"])).await;
    let permits = Arc::new(Semaphore::new(1000));
    let prefix = "/registry/c.example/gadgets/".to_owned();
    let held = SharedStore::new(Held { inner: store, prefix, permits: Arc::clone(&permits) });
    let server = TestServer::start_on(held, Release::v1(36), |_| {}).await;
    other.post(GADGETS, gadget("first")).await.expect(201);
    server.get(&format!("{GADGETS}/first")).await.expect(200);
    permits.forget_permits(1000);
    let versions = definition("gadgets", &["color"])["spec"]["versions"].clone();
    let patch = json!({"spec": {"versions": versions}});
    other.patch(&format!("{CRD}/gadgets.c.example"), "merge", patch).await.expect(200);
    let mut number = 0;
    while server.get(&format!("{GADGETS}?fieldSelector=spec.color%3Dred")).await.code != 200 {
        let name = format!("g{number}");
        other.post(GADGETS, gadget(&name)).await.expect(201);
        server.get(&format!("{GADGETS}/{name}")).await.expect(200);
        let listed = names(&server.get(GADGETS).await.expect(200).json());
        assert!(listed.contains(&name), "{name} was acknowledged before the list");
        number += 1;
    }
    assert_eq!(names(&server.get(GADGETS).await.expect(200).json()).len(), number + 1);
}

/// However long it takes to load custom objects, a server starts, says what it waits for, and serves everything else;
/// what is not loaded yet is neither empty nor unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_starts_while_custom_objects_are_loaded() {
    let store = memory();
    let first = TestServer::start_on(store.clone(), Release::v1(36), |_| {}).await;
    establish(&first, definition("gadgets", &["color"])).await;
    for number in 0..20 {
        first.post(GADGETS, gadget(&format!("g{number}"))).await.expect(201);
    }
    first.server.leave().await;
    drop(first);

    let permits = Arc::new(Semaphore::new(0));
    let prefix = "/registry/c.example/gadgets/".to_owned();
    let held = SharedStore::new(Held { inner: store, prefix, permits: Arc::clone(&permits) });
    let server = TestServer::build(SystemClock::shared(), held, Release::v1(36), |_| {}).await;
    let server = Arc::new(server);
    let finishing = tokio::spawn({
        let server = Arc::clone(&server);
        async move { server.finish().await }
    });
    // It takes part, so that everything else can be written.
    while server.post(MAPS, config_map("a")).await.code != 201 {
        tokio::task::yield_now().await;
    }
    server.get(&format!("{MAPS}/a")).await.expect(200);
    let check = server.get("/readyz/poststarthook/crd-informer-synced").await.expect(500);
    assert!(check.text.contains("gadgets.c.example"), "{}", check.text);
    for path in [GADGETS.to_owned(), format!("{GADGETS}/g7")] {
        let answer = server.get(&path).await.expect(503);
        assert_eq!(answer.headers.get("retry-after").map(http::HeaderValue::as_bytes), Some(b"1".as_slice()));
    }
    assert!(!finishing.is_finished());
    permits.add_permits(1000);
    finishing.await.unwrap();
    server.get("/readyz").await.expect(200);
    assert_eq!(names(&server.get(GADGETS).await.expect(200).json()).len(), 20);
}

/// Only Events go away by themselves. Earlier builds gave a lease to every resource called `events`.
#[tokio::test]
async fn custom_resources_called_events_do_not_expire() {
    const EVENTS: &str = "/apis/c.example/v1/namespaces/default/events";
    let store = memory();
    let key = |name: &str| Key::new(format!("/registry/c.example/events/default/{name}"));
    let first = TestServer::start_on(store.clone(), Release::v1(36), |_| {}).await;
    establish(&first, definition("events", &[])).await;
    first.post(EVENTS, gadget("new")).await.expect(201);
    assert_eq!(store.get(&key("new")).await.unwrap().unwrap().lease, None);
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"namespace": "default"}});
    first.post("/api/v1/namespaces/default/events", event).await.expect(201);
    let event = Key::new("/registry/events/default/e");
    assert!(store.get(&event).await.unwrap().unwrap().lease.is_some());

    // As an earlier build left them.
    let lease = store.grant(Duration::from_secs(3600)).await.unwrap();
    let value = store.get(&key("new")).await.unwrap().unwrap().value;
    let text = String::from_utf8(value.to_vec()).unwrap();
    for number in 0..5 {
        let text = text.replace("\"new\"", &format!("\"old{number}\""));
        let txn = Txn::new().put_leased(&key(&format!("old{number}")), text.into(), lease);
        store.commit(txn).await.unwrap();
    }
    // A write that changes nothing frees an object, too.
    while first.get(&format!("{EVENTS}/old0")).await.code != 200 {
        tokio::task::yield_now().await;
    }
    let same = first.get(&format!("{EVENTS}/old0")).await.expect(200).json();
    first.ask("PUT", &format!("{EVENTS}/old0"), same).await.expect(200);
    assert_eq!(store.get(&key("old0")).await.unwrap().unwrap().lease, None);
    assert_eq!(store.get(&key("old1")).await.unwrap().unwrap().lease, Some(lease));
    first.server.leave().await;
    drop(first);

    let second = TestServer::start_on(store.clone(), Release::v1(36), |_| {}).await;
    for name in ["old1", "old2", "old3", "old4"] {
        while store.get(&key(name)).await.unwrap().unwrap().lease.is_some() {
            tokio::task::yield_now().await;
        }
    }
    store.revoke(lease).await.unwrap();
    let left = second.get(EVENTS).await.expect(200).json();
    assert_eq!(names(&left).len(), 6);
    assert!(store.get(&event).await.unwrap().unwrap().lease.is_some());
}

/// Servers of an earlier build, which give such objects a lease, may go on beside a new one.
#[tokio::test(start_paused = true)]
async fn custom_resources_called_events_are_freed_of_leases_again_and_again() {
    let store = memory();
    let server = TestServer::start_on(store.clone(), Release::v1(36), |_| {}).await;
    establish(&server, definition("events", &[])).await;
    server.post("/apis/c.example/v1/namespaces/default/events", gadget("new")).await.expect(201);
    let key = Key::new("/registry/c.example/events/default/new");
    for _ in 0..3 {
        // Long enough for it to have looked and found nothing.
        tokio::time::sleep(Duration::from_secs(1800)).await;
        let lease = store.grant(Duration::from_secs(3600)).await.unwrap();
        let value = store.get(&key).await.unwrap().unwrap().value;
        store.commit(Txn::new().put_leased(&key, value, lease)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1800)).await;
        assert_eq!(store.get(&key).await.unwrap().unwrap().lease, None);
    }
}
