//! A client that behaves as client-go does, and notes what it asks for and is told; [`super::judge`] reads the notes.
//!
//! An answer of 429 or 5xx with Retry-After is taken at its word: nothing happened, and the request is sent again, up to
//! ten times. Whatever else goes unanswered may have happened.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use http::Method;
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use testkit::{
    Client,
    history::removal::{Fact, Of, VALUE},
};
use tokio::time::Instant;

use super::ledger::Ledger;
use crate::nothing_lost::scene::{key, uid};

/// As client-go.
const MOST_ATTEMPTS: usize = 10;
/// Retry-After counts in seconds, which is long for a round.
const LONGEST_PAUSE: Duration = Duration::from_millis(300);
/// Between two looks at something that takes its time.
const PAUSE: Duration = Duration::from_millis(50);

/// What all agents of a run know and note.
pub struct Estate {
    facts: Mutex<Vec<Fact>>,
    n_values: AtomicU64,
    is_over: AtomicBool,
    pub ledger: Arc<Ledger>,
}

/// One client.
pub struct Agent {
    name: &'static str,
    clients: Vec<Client>,
    pub random: StdRng,
    pub estate: Arc<Estate>,
    /// The newest revision it was told of.
    known: u64,
}

/// What became of a request.
#[derive(Debug, Clone)]
pub enum Told {
    Done(Value),
    /// Nothing happened.
    Refused(u16, Value),
    /// It may have happened, once.
    Unknown,
}

impl Estate {
    pub fn new(ledger: &Arc<Ledger>) -> Arc<Self> {
        let (facts, n_values, is_over) = (Mutex::default(), AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Self { facts, n_values, is_over, ledger: Arc::clone(ledger) })
    }

    fn note(&self, fact: Fact) {
        self.facts.lock().push(fact);
    }

    /// All that was noted since the last time.
    pub fn take(&self) -> Vec<Fact> {
        std::mem::take(&mut self.facts.lock())
    }

    pub fn end(&self, is_over: bool) {
        self.is_over.store(is_over, Ordering::Relaxed);
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

impl Agent {
    pub fn new(name: &'static str, clients: Vec<Client>, seed: u64, estate: &Arc<Estate>) -> Self {
        let random = StdRng::seed_from_u64(seed);
        Self { name, clients, random, estate: Arc::clone(estate), known: 0 }
    }

    pub fn is_over(&self) -> bool {
        self.estate.is_over()
    }

    pub fn count(&self, what: &'static str) {
        self.estate.ledger.count(self.name, what);
    }

    /// One chance in so many.
    pub fn one_in(&mut self, n: u32) -> bool {
        self.random.random_range(0..n) == 0
    }

    pub async fn rest(&mut self, most: u64) {
        let pause = self.random.random_range(0..most.max(1));
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }

    /// Sends a request until it is answered, as client-go would, each time to any server.
    async fn send(&mut self, method: Method, path: &str, body: Option<&Value>) -> Told {
        let patch = "application/merge-patch+json";
        let content = if method == Method::PATCH { patch } else { "application/json" };
        for attempt in 0..=MOST_ATTEMPTS {
            let client = self.clients[self.random.random_range(0..self.clients.len())].clone();
            let bytes = body.map(|it| it.to_string().into()).unwrap_or_default();
            let answer = client.send(method.clone(), path, body.map(|_| content), bytes).await;
            let code = answer.as_ref().map_or(0, |it| it.status.as_u16());
            *self.estate.ledger.books.lock().codes.entry(code).or_default() += 1;
            let Ok(answer) = answer else { return Told::Unknown };
            let is_told_to = (code == 429 || code >= 500) && answer.headers.contains_key("retry-after");
            if is_told_to && attempt < MOST_ATTEMPTS {
                self.count("sent again");
                tokio::time::sleep(LONGEST_PAUSE).await;
                continue;
            }
            let Ok(body) = answer.json() else { return Told::Unknown };
            return match code {
                200..=299 => {
                    let revision =
                        body["metadata"]["resourceVersion"].as_str().and_then(|it| it.parse().ok());
                    self.known = self.known.max(revision.unwrap_or(0));
                    Told::Done(body)
                }
                500.. if !is_told_to => Told::Unknown,
                _ => Told::Refused(code, body),
            };
        }
        Told::Unknown
    }

    pub async fn get(&mut self, path: &str) -> Told {
        self.send(Method::GET, path, None).await
    }

    /// Makes an object in a collection; returns it if that was acknowledged.
    pub async fn create(&mut self, collection: &str, mut object: Value) -> Option<Value> {
        let number = self.estate.n_values.fetch_add(1, Ordering::Relaxed);
        let value = format!("{} {number}", self.name);
        object["metadata"]["annotations"][VALUE] = json!(value);
        self.estate.note(Fact::Attempted { value: value.clone() });
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match self.send(Method::POST, collection, Some(&object)).await {
            Told::Done(made) => {
                self.count("create");
                self.written(collection, &made);
                Some(made)
            }
            Told::Refused(409, body) if body["reason"] == "AlreadyExists" => {
                // Its own object, made by an attempt of which it was said that nothing happened?
                if let Told::Done(found) = self.get(&format!("{collection}/{name}")).await
                    && found["metadata"]["annotations"][VALUE] == value
                {
                    let what = format!("{collection}/{name}: AlreadyExists to the one who made it");
                    self.estate.ledger.fault(what);
                }
                None
            }
            Told::Refused(..) | Told::Unknown => None,
        }
    }

    fn written(&self, collection: &str, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let revision = crate::fixture::revision(object);
        self.estate.note(Fact::Written { key: key(collection, name), uid: uid(object), revision });
    }

    /// Asks for the removal of this very object.
    pub async fn delete(&mut self, path: &str, object: &Value, policy: &str) -> Told {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy,
            "preconditions": {"uid": uid(object)}});
        self.estate.note(Fact::Removal { of: Of::Uid(uid(object)), after: self.known });
        self.count("delete");
        self.send(Method::DELETE, path, Some(&options)).await
    }

    /// Asks for the removal of whatever has this name.
    pub async fn delete_by_name(&mut self, collection: &str, name: &str) -> Told {
        let of = Of::Key(key(collection, name));
        self.estate.note(Fact::Removal { of, after: self.known });
        self.count("delete by name");
        self.send(Method::DELETE, &format!("{collection}/{name}"), None).await
    }

    /// Takes all finalizers off this very object.
    pub async fn free(&mut self, path: &str, object: &Value) -> Told {
        self.estate.note(Fact::Freed { uid: uid(object) });
        self.count("free");
        let patch = json!({"metadata": {"uid": uid(object), "finalizers": null}});
        self.send(Method::PATCH, path, Some(&patch)).await
    }

    /// Lets this very namespace go, whatever is in it.
    pub async fn force(&mut self, namespace: &Value) -> Told {
        let path =
            format!("/api/v1/namespaces/{}", namespace["metadata"]["name"].as_str().unwrap_or_default());
        let Told::Done(mut found) = self.get(&path).await else { return Told::Unknown };
        if uid(&found) != uid(namespace) {
            return Told::Refused(404, Value::Null);
        }
        self.estate.note(Fact::Freed { uid: uid(namespace) });
        self.count("force");
        found["spec"]["finalizers"] = json!([]);
        self.send(Method::PUT, &format!("{path}/finalize"), Some(&found)).await
    }

    pub async fn patch(&mut self, path: &str, patch: &Value) -> Told {
        self.send(Method::PATCH, path, Some(patch)).await
    }

    /// Waits until this very object is gone; false if that takes too long, or everything is over.
    pub async fn gone(&mut self, path: &str, object: &Value, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            match self.get(path).await {
                Told::Done(found) if uid(&found) != uid(object) => return true,
                Told::Refused(404, _) => return true,
                Told::Done(_) | Told::Refused(..) | Told::Unknown => tokio::time::sleep(PAUSE).await,
            }
        }
        false
    }
}
