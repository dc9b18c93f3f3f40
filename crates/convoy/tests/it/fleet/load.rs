//! Writers that use whichever servers are there. Each has objects of its own, so it knows what it must be told; everything
//! is noted, and [`super::history`] judges it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use serde_json::{Value, json};
use testkit::history::linearizable::{Action, Op, Outcome};
use tokio::time::Instant;

use super::ground::{CLASSES, PATIENCE, Ship, ask, class, eventually};

/// The annotation that holds what was written last.
pub const VALUE: &str = "load/value";

/// So many writes of a writer are about the same objects; then it takes others. What the judge has to search stays small.
const LIFE: usize = 175;

/// Objects of a writer at a time.
const OBJECTS: usize = 5;

/// What is written.
#[derive(Clone, Copy)]
pub struct Target {
    pub path: &'static str,
    /// Where it is stored.
    pub prefix: &'static str,
    pub make: fn(&str) -> Value,
}

/// The resource that is stored in another version by another release.
pub const DEVICE_CLASSES: Target = Target { path: CLASSES, prefix: "/registry/deviceclasses/", make: class };

/// What clients put up with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Every write does what it must: nobody else writes the same objects.
    Success,
    /// Servers may break off.
    Anything,
}

/// How a server is asked.
#[derive(Clone)]
pub enum Door {
    /// In this process.
    Here(kube::Client),
    /// In one of its own.
    There(Box<testkit::Client>),
}

/// Writers at work.
pub struct Load {
    doors: Arc<RwLock<Vec<Door>>>,
    stop: Arc<AtomicBool>,
    journal: Arc<Journal>,
    writers: Vec<tokio::task::JoinHandle<Result<(), String>>>,
    /// How many writes each writer has begun.
    begun: Arc<[AtomicU64]>,
}

/// What was asked for and answered, by the key of the object in the store.
pub struct Journal {
    start: Instant,
    ops: Mutex<BTreeMap<String, Vec<Op>>>,
    n_written: AtomicU64,
}

impl Load {
    /// Clients that are never let down.
    pub fn start(target: Target, n_writers: usize) -> Self {
        Self::of(target, n_writers, Expect::Success)
    }

    /// Clients of servers that crash under their hands.
    pub fn start_amid_crashes(target: Target, n_writers: usize) -> Self {
        Self::of(target, n_writers, Expect::Anything)
    }

    fn of(target: Target, n_writers: usize, expect: Expect) -> Self {
        let doors: Arc<RwLock<Vec<Door>>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let journal = Arc::new(Journal::of(BTreeMap::new()));
        let begun: Arc<[AtomicU64]> = (0..n_writers).map(|_| AtomicU64::new(0)).collect();
        let writers = (0..n_writers).map(|number| {
            let (journal, begun) = (Arc::clone(&journal), Arc::clone(&begun));
            let writer = Writer { number, target, expect, journal, begun, present: BTreeMap::new() };
            tokio::spawn(writer.run(Arc::clone(&doors), Arc::clone(&stop)))
        });
        let writers = writers.collect();
        Self { doors, stop, journal, writers, begun }
    }

    /// Uses only these from now on.
    pub fn only(&self, ships: &[&Ship]) {
        self.through(ships.iter().map(|it| Door::Here(it.server.client())));
    }

    /// Uses only these from now on, and waits until no write is on its way to another: it might wait in its client, where
    /// a server that stops does not know of it.
    pub async fn turn_to(&self, ships: &[&Ship]) {
        self.only(ships);
        let counts = || self.begun.iter().map(|it| it.load(Ordering::SeqCst)).collect::<Vec<_>>();
        let before = counts();
        eventually("every writer begins anew", async || {
            let has_turned = |n: usize| counts()[n] > before[n] || self.writers[n].is_finished();
            (0..before.len()).all(has_turned)
        })
        .await;
    }

    /// The same by the doors.
    pub fn through(&self, doors: impl IntoIterator<Item = Door>) {
        *self.doors.write() = doors.into_iter().collect();
    }

    /// Ends the load; whatever a client saw that it must not see fails the test. What it noted is for the judge.
    pub async fn end(self) -> Arc<Journal> {
        self.stop.store(true, Ordering::Relaxed);
        for writer in self.writers {
            writer.await.unwrap().unwrap_or_else(|it| panic!("a client's write failed: {it}"));
        }
        self.journal
    }

    pub async fn wrote(&self, more: u64) {
        let before = self.journal.n_written();
        eventually("the load goes on", async || {
            // A client that was let down has stopped: say so now.
            self.journal.n_written() >= before + more || self.writers.iter().any(|it| it.is_finished())
        })
        .await;
    }
}

impl Journal {
    /// One in which this is noted already.
    pub fn of(ops: BTreeMap<String, Vec<Op>>) -> Self {
        Self { start: Instant::now(), ops: Mutex::new(ops), n_written: AtomicU64::new(0) }
    }

    /// How many writes were acknowledged.
    pub fn n_written(&self) -> u64 {
        self.n_written.load(Ordering::Relaxed)
    }

    pub fn ops(&self) -> BTreeMap<String, Vec<Op>> {
        self.ops.lock().clone()
    }

    /// Microseconds since the beginning.
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap()
    }
}

impl Door {
    /// `None` if there was no answer.
    async fn ask(
        &self,
        method: &'static str,
        path: &str,
        body: Value,
        within: Duration,
    ) -> Option<(u16, Value)> {
        match self {
            Self::Here(client) => tokio::time::timeout(within, ask(client, method, path, body)).await.ok(),
            Self::There(client) => {
                let client = client.with_patience(within);
                let answer = match method {
                    "POST" => client.post(path, &body).await,
                    "DELETE" => client.delete(path).await,
                    _ => client.patch(path, "application/merge-patch+json", &body).await,
                };
                let answer = answer.ok()?;
                Some((answer.status.as_u16(), answer.json().unwrap_or_default()))
            }
        }
    }
}

struct Writer {
    number: usize,
    target: Target,
    expect: Expect,
    journal: Arc<Journal>,
    begun: Arc<[AtomicU64]>,
    /// Whether an object exists; `None` while that is not certain. What is not here was never made.
    present: BTreeMap<String, Option<bool>>,
}

impl Writer {
    async fn run(mut self, doors: Arc<RwLock<Vec<Door>>>, stop: Arc<AtomicBool>) -> Result<(), String> {
        let mut n = 0;
        while !stop.load(Ordering::Relaxed) {
            self.begun[self.number].fetch_add(1, Ordering::SeqCst);
            let door = {
                let doors = doors.read();
                if doors.is_empty() { None } else { Some(doors[(n + self.number) % doors.len()].clone()) }
            };
            let Some(door) = door else {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            };
            n += 1;
            match self.write_once(&door, n).await? {
                Outcome::Put(_) | Outcome::Removed => {
                    self.journal.n_written.fetch_add(1, Ordering::Relaxed);
                }
                Outcome::Unknown => tokio::time::sleep(Duration::from_millis(10)).await,
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes, changes or deletes one object, and notes what came of it.
    async fn write_once(&mut self, door: &Door, n: usize) -> Result<Outcome, String> {
        let name = format!("load-{}-{}-{}", self.number, n / LIFE, n % OBJECTS);
        let value = format!("{}-{n}", self.number);
        let object = format!("{}/{name}", self.target.path);
        let (method, path, body, action) = match n % 7 {
            0 => ("DELETE", object, Value::Null, Action::Delete),
            1 => {
                let mut made = (self.target.make)(&name);
                made["metadata"]["annotations"] = json!({VALUE: value});
                ("POST", self.target.path.to_owned(), made, Action::Create(value))
            }
            _ => {
                let patch = json!({"metadata": {"annotations": {VALUE: value}}});
                ("PATCH", object, patch, Action::Patch(value))
            }
        };
        // A server that crashed in this process cannot close a connection.
        let within = match (self.expect, door) {
            (Expect::Anything, Door::Here(_)) => Duration::from_secs(2),
            (Expect::Anything, Door::There(_)) => Duration::from_secs(20),
            (Expect::Success, _) => PATIENCE,
        };
        let asked = self.journal.now();
        let answer = door.ask(method, &path, body, within).await;
        let answered = self.journal.now();
        let present = self.present.entry(name.clone()).or_insert(Some(false));
        let outcome = outcome(&action, answer.as_ref());
        let is_right = match (&outcome, self.expect, *present) {
            (Some(outcome), Expect::Success, Some(present)) => *outcome == due(&action, present, outcome),
            (Some(_), Expect::Anything, _) => true,
            (None, _, _) | (_, Expect::Success, None) => false,
        };
        let Some(outcome) = outcome.filter(|_| is_right) else {
            return Err(format!("{method} {path}, which exists: {present:?}: {answer:?}"));
        };
        match &outcome {
            Outcome::Put(_) | Outcome::Exists => *present = Some(true),
            Outcome::Removed | Outcome::Missing => *present = Some(false),
            Outcome::Refused => {}
            _ => *present = None,
        }
        let op =
            Op { who: format!("writer {}", self.number), asked, answered, action, outcome: outcome.clone() };
        let key = format!("{}{name}", self.target.prefix);
        self.journal.ops.lock().entry(key).or_default().push(op);
        Ok(outcome)
    }
}

/// What an answer says of a write; `None` if nobody may answer like that.
fn outcome(action: &Action, answer: Option<&(u16, Value)>) -> Option<Outcome> {
    let Some((code, body)) = answer else { return Some(Outcome::Unknown) };
    let revision = || body["metadata"]["resourceVersion"].as_str()?.parse().ok();
    match (code, action) {
        (200, Action::Delete) => Some(Outcome::Removed),
        (201, Action::Create(_)) | (200, Action::Patch(_)) => revision().map(Outcome::Put),
        // That there is no such resource would be something else (G2).
        (404, Action::Patch(_) | Action::Delete) if body["details"]["name"].is_string() => {
            Some(Outcome::Missing)
        }
        (409, Action::Create(_)) if body["reason"] == "AlreadyExists" => Some(Outcome::Exists),
        (409, _) | (429, _) => Some(Outcome::Refused),
        (500.., _) => Some(Outcome::Unknown),
        _ => None,
    }
}

/// What a write must come to if nobody else writes the object; where it is put is the server's to say.
fn due(action: &Action, is_present: bool, said: &Outcome) -> Outcome {
    let put = || match said {
        Outcome::Put(revision) => Outcome::Put(*revision),
        _ => Outcome::Put(0),
    };
    match (action, is_present) {
        (Action::Create(_), false) | (Action::Patch(_), true) => put(),
        (Action::Create(_), true) => Outcome::Exists,
        (Action::Delete, true) => Outcome::Removed,
        (_, false) | (Action::Read | Action::Update { .. }, true) => Outcome::Missing,
    }
}

mod tests {
    use super::*;

    /// What clients count as a failed write: it would be hidden if any 404 or 409 passed.
    #[test]
    fn only_what_follows_from_the_own_writes_is_a_success() {
        let gone = json!({"reason": "NotFound", "details": {"name": "x"}});
        let there = json!({"reason": "AlreadyExists", "details": {"name": "x"}});
        let put = json!({"metadata": {"resourceVersion": "7"}});
        let (create, patch) = (Action::Create("v".to_owned()), Action::Patch("v".to_owned()));
        for (action, is_present, code, body, is_right) in [
            (&create, false, 201, &put, true),
            (&create, true, 201, &put, false),
            (&create, true, 409, &there, true),
            (&create, false, 409, &there, false),
            (&patch, true, 200, &put, true),
            (&patch, true, 404, &gone, false),
            (&patch, false, 404, &gone, true),
            (&patch, true, 409, &json!({"reason": "Conflict"}), false),
            (&Action::Delete, true, 200, &put, true),
            (&Action::Delete, true, 404, &gone, false),
            (&Action::Delete, false, 404, &gone, true),
            (&Action::Delete, false, 404, &json!({"reason": "NotFound"}), false),
        ] {
            let answer = (code, body.clone());
            let outcome = outcome(action, Some(&answer));
            let is_accepted = outcome.is_some_and(|it| it == due(action, is_present, &it));
            assert_eq!(is_accepted, is_right, "{action:?} {is_present} {answer:?}");
        }
    }
}
