//! Clients that note what they ask for and are told, so that the store's history can be judged; and what they work with.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use futures_util::StreamExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use store::{Event, Range, ReadAt, Revision, SharedStore, Store};
use testkit::history::removal::{Fact, Of, Removals, VALUE};

use crate::fleet::ground::{Ground, Ship, eventually};

pub const NAMESPACES: &str = "/api/v1/namespaces";
pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";
pub const THINGS_PREFIX: &str = "/registry/example.com/things/";
pub const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";

/// For so long nothing may go wrong after somebody came back: much longer than it needs for what it had begun.
pub const WATCHFUL: Duration = Duration::from_millis(2_500);

/// Times are whole seconds, and a server takes a moment between looking at the clock and at the namespace.
const CLOCK_SLACK: i64 = 1;

/// A store, and what clients know of it.
pub struct Scene {
    pub ground: Ground,
    notes: Notes,
}

/// What clients did.
#[derive(Default)]
pub struct Notes {
    facts: Mutex<Vec<Fact>>,
    n_values: AtomicU64,
}

impl Scene {
    pub fn on(ground: Ground) -> Self {
        Self { ground, notes: Notes::default() }
    }

    /// Makes an object and returns it.
    #[track_caller]
    pub fn create<'a>(
        &'a self,
        ship: &'a Ship,
        path: &'a str,
        object: Value,
    ) -> impl Future<Output = Value> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let (code, answer) = self.try_create(ship, path, object).await;
            assert_eq!(code, 201, "{caller}: {path}: {answer}");
            answer
        }
    }

    /// Asks for an object; what comes of it is noted.
    pub async fn try_create(&self, ship: &Ship, path: &str, mut object: Value) -> (u16, Value) {
        self.notes.attempt(&mut object);
        let (code, answer) = ship.ask("POST", path, object).await;
        if code == 201 {
            self.notes.written(path, &answer);
        }
        (code, answer)
    }

    /// Asks for the removal of this very object.
    pub async fn delete(&self, ship: &Ship, path: &str, object: &Value) -> Value {
        self.notes.asked(object);
        ship.expect(200, "DELETE", path, Value::Null).await
    }

    /// Asks for the removal of an object that may be gone.
    pub async fn discard(&self, ship: &Ship, path: &str, object: &Value) {
        self.notes.asked(object);
        let path = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap());
        let (code, answer) = ship.ask("DELETE", &path, Value::Null).await;
        assert!(matches!(code, 200 | 404), "{path}: {code} {answer}");
    }

    /// Takes all finalizers off an object.
    pub async fn free(&self, ship: &Ship, path: &str, object: &Value) {
        self.notes.freed(object);
        ship.expect(200, "PATCH", path, json!({"metadata": {"finalizers": null}})).await;
    }

    pub async fn namespace(&self, ship: &Ship, name: &str) -> Value {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.create(ship, NAMESPACES, object).await
    }

    /// Lets a namespace go, whatever is in it.
    pub async fn force(&self, ship: &Ship, namespace: &Value) {
        self.notes.freed(namespace);
        let name = namespace["metadata"]["name"].as_str().unwrap();
        let path = format!("{NAMESPACES}/{name}/finalize");
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name},
            "spec": {"finalizers": []}});
        ship.expect(200, "PUT", &path, body).await;
    }

    /// Defines the things, and waits until these servers serve them.
    pub async fn define(&self, ships: &[&Ship]) -> Value {
        self.define_as(ships, "things", "Thing").await
    }

    pub async fn define_as(&self, ships: &[&Ship], plural: &str, kind: &str) -> Value {
        let made = self.create(ships[0], DEFINITIONS, definition(plural, kind)).await;
        for ship in ships {
            served(ship, plural).await;
        }
        made
    }

    /// Keys of stored objects below a prefix, in order.
    pub async fn stored(&self, prefix: &str) -> Vec<String> {
        let page = self.ground.store.list(&Range::prefix(prefix), ReadAt::Latest, usize::MAX).await.unwrap();
        page.entries.iter().map(|it| it.key.as_str()[prefix.len()..].to_owned()).collect()
    }

    /// All these stay in the store, from now on and for as long as anybody could still be at work.
    pub async fn stay(&self, prefix: &str, names: &[String]) {
        let until = tokio::time::Instant::now() + WATCHFUL;
        while tokio::time::Instant::now() < until {
            let stored = self.stored(prefix).await;
            let lost: Vec<&String> = names.iter().filter(|it| !stored.contains(it)).collect();
            assert!(lost.is_empty(), "{prefix}: {} of {} are lost: {lost:?}", lost.len(), names.len());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Judges everything that the store went through.
    pub async fn judge(&self) {
        self.notes.judge(&self.ground.store).await;
    }
}

impl Notes {
    /// Gives an object a value of its own.
    pub fn attempt(&self, object: &mut Value) {
        let value = format!("value {}", self.n_values.fetch_add(1, Ordering::Relaxed));
        object["metadata"]["annotations"][VALUE] = json!(value);
        self.note(Fact::Attempted { value });
    }

    /// An object was said to be written below this path.
    pub fn written(&self, path: &str, object: &Value) {
        let key = key(path, object["metadata"]["name"].as_str().unwrap());
        let fact = Fact::Written { key, uid: uid(object), revision: crate::fixture::revision(object) };
        self.note(fact);
    }

    /// Somebody asks for the removal of this very object, at any time.
    pub fn asked(&self, object: &Value) {
        self.note(Fact::Removal { of: Of::Uid(uid(object)), after: 0 });
    }

    pub fn freed(&self, object: &Value) {
        self.note(Fact::Freed { uid: uid(object) });
    }

    fn note(&self, fact: Fact) {
        self.facts.lock().push(fact);
    }

    pub async fn judge(&self, store: &SharedStore) {
        let until = store.current().await.unwrap();
        let mut batches = store.watch(&Range::prefix("/"), Revision::ZERO).await.unwrap();
        let mut judge = Removals::with_one_clock(CLOCK_SLACK);
        self.facts.lock().iter().cloned().for_each(|it| judge.note(it));
        let mut reached = Revision::ZERO;
        while reached < until {
            let batch = tokio::time::timeout(Duration::from_secs(30), batches.next()).await;
            let batch = batch.expect("the history must go on").expect("it must not end").unwrap();
            reached = batch.revision;
            for together in batch.events.chunk_by(|a, b| a.revision() == b.revision()) {
                let changes: Vec<(&str, Option<&[u8]>)> = together.iter().map(pair).collect();
                judge.see(together[0].revision().get(), &changes);
            }
        }
        let found = judge.judge();
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "{} violations:\n{}", found.len(), lines.join("\n"));
        assert!(judge.counts.n_confirmed > 0, "nothing was judged");
    }
}

fn pair(change: &Event) -> (&str, Option<&[u8]>) {
    match change {
        Event::Put(entry) => (entry.key.as_str(), Some(&entry.value)),
        Event::Delete(key, _) => (key.as_str(), None),
    }
}

pub fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().expect("an object must have a uid").to_owned()
}

/// Where the objects of a collection are stored: built-in ones by resource, custom ones by group and resource.
pub fn key(path: &str, name: &str) -> String {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let (group, rest) = if parts[0] == "api" { ("", &parts[2..]) } else { (parts[1], &parts[3..]) };
    let kept = ["example.com", "apiextensions.k8s.io"].contains(&group);
    let group = if kept { format!("{group}/") } else { String::new() };
    match rest {
        ["namespaces", namespace, resource] => format!("/registry/{group}{resource}/{namespace}/{name}"),
        [resource] => format!("/registry/{group}{resource}/{name}"),
        other => panic!("no collection: {other:?}"),
    }
}

pub fn definition(plural: &str, kind: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": plural, "singular": plural, "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

pub fn object(kind: &str, name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": name}})
}

/// The same, held by a finalizer.
pub fn held(kind: &str, name: &str) -> Value {
    let mut object = object(kind, name);
    object["metadata"]["finalizers"] = json!(["example.com/held"]);
    object
}

/// Waits until a server serves a custom resource and has said so.
pub async fn served(ship: &Ship, plural: &str) {
    let path = format!("{DEFINITIONS}/{plural}.example.com");
    eventually("it is Established", async || {
        let (_, found) = ship.ask("GET", &path, Value::Null).await;
        let mut conditions = found["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|it| it["type"] == "Established" && it["status"] == "True")
    })
    .await;
    eventually("it is served", async || {
        ship.ask("GET", &format!("/apis/example.com/v1/{plural}"), Value::Null).await.0 == 200
    })
    .await;
}

/// Waits until there is nothing at a path.
pub async fn gone(ship: &Ship, path: &str) {
    eventually(&format!("{path} is gone"), async || ship.ask("GET", path, Value::Null).await.0 == 404).await;
}

#[test]
fn keys_are_those_of_the_store() {
    let cases = [
        ("/api/v1/namespaces", "/registry/namespaces/x"),
        ("/api/v1/namespaces/n/configmaps", "/registry/configmaps/n/x"),
        ("/apis/rbac.authorization.k8s.io/v1/namespaces/n/roles", "/registry/roles/n/x"),
        (DEFINITIONS, "/registry/apiextensions.k8s.io/customresourcedefinitions/x"),
        (THINGS, "/registry/example.com/things/default/x"),
    ];
    for (path, expected) in cases {
        assert_eq!(key(path, "x"), expected);
    }
}
