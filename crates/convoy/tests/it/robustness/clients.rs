//! Clients at work: they write the same few objects through whichever server, read and list them, and note it all.
//!
//! Every read here must be linearizable: a GET or LIST without a resourceVersion is. Deliberately not here: watches.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use store::{Revision, Store};
use testkit::{
    Answer, Client,
    history::{
        linearizable::{Action, Op, Outcome},
        watch::Object,
    },
};
use tokio::task::JoinSet;

use super::{
    cluster::{Cluster, Gauge},
    ledger::{Denial, Ledger, N_KINDS, VALUE, read},
    season::Season,
};

/// How many write, and what.
#[derive(Debug, Clone)]
pub struct Traffic {
    writers: usize,
    kinds: Range<usize>,
    /// So many objects of each kind are fought over.
    keys: usize,
    /// Nothing goes wrong: every request is answered, if only by 503 with Retry-After.
    is_calm: bool,
}

/// Everything, and few objects, so that writers meet.
pub const USUAL: Traffic = Traffic { writers: 4, kinds: 0..N_KINDS, keys: 4, is_calm: false };

/// Many writers of device classes, so that whoever falls asleep does so with some of them under way.
pub const CLASSES: Traffic = Traffic { writers: 10, kinds: 1..2, keys: 12, is_calm: false };

/// As usual, while servers are rolled and nothing else happens.
pub const ROLLED: Traffic = Traffic { is_calm: true, ..USUAL };

/// A resource that one server does not serve: it has to ask another one. All servers of a control plane have it.
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

/// What 1.33 does not serve.
const SEASONAL: &str = "/apis/resource.k8s.io/v1/deviceclasses";

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Writer,
    Reader,
    Lister,
    /// Asks for what not every server has.
    Prober,
    /// Writes what not every release has.
    Seasonal,
}

/// Clients that are at work until they are told to stop.
pub struct Crowd {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl Crowd {
    pub fn start(
        ledger: &Arc<Ledger>,
        cluster: &Cluster,
        traffic: &Traffic,
        seed: u64,
        round: usize,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        let mut roles = vec![Role::Reader, Role::Lister, Role::Prober];
        roles.extend(traffic.is_calm.then_some(Role::Seasonal));
        roles.extend((0..traffic.writers).map(|_| Role::Writer));
        for (number, role) in (0..).zip(roles) {
            let client = Crew {
                number,
                role,
                round,
                traffic: traffic.clone(),
                random: StdRng::seed_from_u64(seed ^ ((number + 1) << 32)),
                clients: cluster.doors().clients(),
                gauge: cluster.gauge(),
                season: Season::new(cluster.course()),
                ledger: Arc::clone(ledger),
                known: BTreeMap::new(),
                n_values: 0,
            };
            tasks.spawn(client.run(Arc::clone(&stop)));
        }
        Self { stop, tasks }
    }

    pub async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks.join_all().await;
    }
}

/// One client.
struct Crew {
    number: u64,
    role: Role,
    round: usize,
    traffic: Traffic,
    random: StdRng,
    /// One for each server.
    clients: Vec<Client>,
    ledger: Arc<Ledger>,
    gauge: Gauge,
    season: Season,
    /// The resourceVersions it last saw; often stale, hence the conflicts.
    known: BTreeMap<(usize, String), u64>,
    n_values: u64,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Writer => "writers",
            Role::Reader => "reader",
            Role::Lister => "lister",
            Role::Prober => "prober",
            Role::Seasonal => "seasonal",
        }
    }
}

impl Crew {
    async fn run(mut self, stop: Arc<AtomicBool>) {
        while !stop.load(Ordering::Relaxed) {
            match self.role {
                Role::Writer => self.write().await,
                Role::Reader => self.read().await,
                Role::Lister => self.list().await,
                Role::Prober => self.probe().await,
                Role::Seasonal => self.season().await,
            }
            let pause = self.random.random_range(5..50);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    fn pick(&mut self) -> (usize, String) {
        let kind = self.random.random_range(self.traffic.kinds.clone());
        (kind, format!("r{}-{}", self.round, self.random.random_range(0..self.traffic.keys)))
    }

    fn client(&mut self) -> (usize, Client) {
        let n = self.random.random_range(0..self.clients.len());
        (n, self.clients[n].clone())
    }

    async fn write(&mut self) {
        let key = self.pick();
        self.n_values += 1;
        let value = format!("{}-{}-{}", self.round, self.number, self.n_values);
        let action = match (self.random.random_range(0..10), self.known.get(&key)) {
            (0, _) => Action::Delete,
            (1..=5, Some(known)) => Action::Update { expected: *known, value },
            (6..=7, _) => Action::Patch(value),
            _ => Action::Create(value),
        };
        self.act(key, action).await;
    }

    async fn read(&mut self) {
        let key = self.pick();
        self.act(key, Action::Read).await;
    }

    async fn act(&mut self, key: (usize, String), action: Action) {
        let (kind, name) = (self.ledger.kinds[key.0], &key.1);
        let (server, client) = self.client();
        let path = format!("{}/{name}", kind.collection);
        self.announce(&key, &action);
        let asked = self.ledger.now();
        let answer = match &action {
            Action::Create(value) => client.post(kind.collection, &kind.object(name, value)).await,
            Action::Read => client.get(&path).await,
            Action::Update { expected, value } => {
                let mut object = kind.object(name, value);
                object["metadata"]["resourceVersion"] = json!(expected.to_string());
                client.put(&path, &object).await
            }
            Action::Patch(value) => {
                let patch = json!({"metadata": {"annotations": {VALUE: value}}});
                client.patch(&path, "application/merge-patch+json", &patch).await
            }
            Action::Delete => client.delete(&path).await,
        };
        let answered = self.ledger.now();
        self.expect_calm(verb(&action), &path, &answer);
        let outcome = self.outcome(&action, &path, answer);
        self.learn(&key, &action, &outcome);
        self.ledger.count(self.role.name(), verb(&action));
        let who = format!("client {} at server {server}", self.number);
        let op = Op { who, asked, answered, action, outcome };
        self.ledger.books.lock().ops.entry(key).or_default().push(op);
    }

    /// Where nothing goes wrong, there is an answer, and 503 with Retry-After is the worst.
    fn expect_calm(&self, verb: &str, path: &str, answer: &Result<Answer>) {
        let why = match answer {
            _ if !self.traffic.is_calm => return,
            Ok(answer) if answer.status == 503 && answer.headers.contains_key("retry-after") => return,
            Ok(answer) if answer.status != 429 && answer.status.as_u16() < 500 => return,
            Ok(answer) => format!("{} {}", answer.status, answer.text()),
            // What it did is read from the store.
            Err(error) if was_idle(error) => return self.ledger.count(self.role.name(), "closed while idle"),
            Err(error) => format!("no answer: {error:#}"),
        };
        self.ledger.fault(format!("{verb} {path}: {why}"));
    }

    /// A value is known to have been tried before anybody can see it.
    fn announce(&self, (kind, name): &(usize, String), action: &Action) {
        let mut books = self.ledger.books.lock();
        let written = &mut books.written[*kind];
        match action {
            Action::Create(value) | Action::Update { value, .. } | Action::Patch(value) => {
                written.attempted.insert((name.clone(), value.clone()));
            }
            Action::Delete => drop(written.deleted.insert(name.clone())),
            Action::Read => {}
        }
    }

    fn outcome(&self, action: &Action, path: &str, answer: Result<Answer>) -> Outcome {
        let code = answer.as_ref().map_or(0, |it| it.status.as_u16());
        *self.ledger.books.lock().codes.entry(code).or_default() += 1;
        let Ok(answer) = answer else { return Outcome::Unknown };
        let Ok(body) = answer.json() else {
            self.ledger.fault(format!("{path}: {code} without JSON: {}", answer.text()));
            return Outcome::Unknown;
        };
        match (code, action) {
            (200, Action::Delete) => Outcome::Removed,
            (200 | 201, _) => match (read(&body), action) {
                (Some((_, object)), Action::Read) => Outcome::Found(object.value, object.revision),
                (Some((_, object)), _) => Outcome::Put(object.revision),
                (None, _) => {
                    self.ledger.fault(format!("{path}: not the object that was asked for: {body}"));
                    Outcome::Unknown
                }
            },
            (404, _) if names_an_object(&body) => Outcome::Missing,
            (404, _) => {
                self.ledger.fault(format!("G2: {path} was denied, though every server has it: {body}"));
                Outcome::Unknown
            }
            (409, Action::Create(_)) if body["reason"] == "AlreadyExists" => Outcome::Exists,
            (409, Action::Update { .. }) => Outcome::Conflict,
            (409 | 429, _) => Outcome::Refused,
            (500.., _) => Outcome::Unknown,
            _ => {
                self.ledger.fault(format!("{path}: {code} to {action:?}: {body}"));
                Outcome::Unknown
            }
        }
    }

    fn learn(&mut self, key: &(usize, String), action: &Action, outcome: &Outcome) {
        match outcome {
            Outcome::Put(revision) | Outcome::Found(_, revision) => {
                self.known.insert(key.clone(), *revision);
            }
            Outcome::Removed | Outcome::Missing => drop(self.known.remove(key)),
            // Now and then it is tried again with what is known to be old.
            Outcome::Conflict if self.random.random_bool(0.7) => drop(self.known.remove(key)),
            Outcome::Exists | Outcome::Conflict | Outcome::Refused | Outcome::Unknown => {}
        }
        let (Outcome::Put(revision), Some(value)) = (outcome, value(action)) else { return };
        let object = Object { revision: *revision, value: value.to_owned(), label: String::new() };
        let mut books = self.ledger.books.lock();
        books.written[key.0].acknowledged.insert(*revision, (key.1.clone(), object));
    }

    /// A list is a read of each object.
    async fn list(&mut self) {
        let (kind, _) = self.pick();
        let (server, client) = self.client();
        let asked = self.ledger.now();
        let answer = client.get(self.ledger.kinds[kind].collection).await;
        let answered = self.ledger.now();
        self.expect_calm("list", self.ledger.kinds[kind].collection, &answer);
        let code = answer.as_ref().map_or(0, |it| it.status.as_u16());
        *self.ledger.books.lock().codes.entry(code).or_default() += 1;
        self.ledger.count(self.role.name(), "list");
        let Ok(Ok(list)) = answer.map(|it| it.expect(200)) else { return };
        let items = list["items"].as_array().into_iter().flatten();
        let found: BTreeMap<String, Object> = items.filter_map(read).collect();
        let who = format!("client {}, who lists at server {server}", self.number);
        let mut books = self.ledger.books.lock();
        for n in 0..self.traffic.keys {
            let name = format!("r{}-{n}", self.round);
            let outcome = match found.get(&name) {
                Some(object) => Outcome::Found(object.value.clone(), object.revision),
                None => Outcome::Missing,
            };
            let op = Op { who: who.clone(), asked, answered, action: Action::Read, outcome };
            books.ops.entry((kind, name)).or_default().push(op);
        }
    }

    /// G2: what a member has is not denied by another one. The store says later who was a member.
    async fn probe(&mut self) {
        let (server, client) = self.client();
        let from = self.revision().await;
        let answer = client.get(JOBS).await;
        self.expect_calm("list", JOBS, &answer);
        let code = answer.as_ref().map_or(0, |it| it.status.as_u16());
        self.ledger.count(self.role.name(), if code == 200 { "served" } else { "not served" });
        let Ok(answer) = answer else { return };
        if code == 503 && !answer.headers.contains_key("retry-after") {
            self.ledger.fault(format!("G2: server {server} put off {JOBS} without Retry-After"));
        }
        if code == 404 {
            self.ledger.count(self.role.name(), "denied");
            let text = format!("server {server} denied {JOBS}: {}", answer.text());
            self.denied(from, text).await;
        }
    }

    /// The store says later whether it was right. Without one all servers have it, and it was not.
    async fn denied(&self, from: Option<u64>, text: String) {
        if self.gauge.read().is_none() {
            return self.ledger.fault(format!("G2: {text}"));
        }
        if let (Some(from), Some(to)) = (from, self.revision().await) {
            self.ledger.books.lock().denials.push(Denial { from, to, text });
        }
    }

    /// Makes a device class, and removes it every other time.
    async fn season(&mut self) {
        let (_, client) = self.client();
        let asked = self.season.now();
        self.n_values += 1;
        let name = format!("seasonal-{}", self.n_values / 2 % 20);
        let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
            "metadata": {"name": name}, "spec": {}});
        let answer = match self.n_values % 2 {
            0 => client.post(SEASONAL, &class).await,
            _ => client.delete(&format!("{SEASONAL}/{name}")).await,
        };
        self.expect_calm("write", SEASONAL, &answer);
        let is_made = answer.as_ref().is_ok_and(|it| it.status.is_success());
        self.ledger.count(self.role.name(), if is_made { "done" } else { "not done" });
        if is_made {
            self.season.was_served(asked);
        }
        if let Ok(answer) = answer
            && answer.status == 404
            && !answer.json().is_ok_and(|it| names_an_object(&it))
        {
            self.ledger.count(self.role.name(), "denied");
            if !self.season.may_be_denied() {
                self.ledger
                    .fault(format!("G2: {SEASONAL} was denied after it was served: {}", answer.text()));
            }
        }
    }

    /// The store's revision, where it can be asked past the servers.
    async fn revision(&self) -> Option<u64> {
        let store = self.gauge.read().clone()?;
        let asked = tokio::time::timeout(Duration::from_secs(2), store.current()).await;
        asked.ok()?.ok().map(Revision::get)
    }
}

fn verb(action: &Action) -> &'static str {
    match action {
        Action::Create(_) => "create",
        Action::Read => "get",
        Action::Update { .. } => "update",
        Action::Patch(_) => "patch",
        Action::Delete => "delete",
    }
}

fn value(action: &Action) -> Option<&str> {
    match action {
        Action::Create(value) | Action::Update { value, .. } | Action::Patch(value) => Some(value),
        Action::Read | Action::Delete => None,
    }
}

/// Whether a connection ended before the first byte of an answer. A server may close one that is idle at any time, HTTP/1.1
/// has no other way, and a request may be on its way at that moment. A new connection that fails is something else, and
/// so is an answer that breaks off.
fn was_idle(error: &anyhow::Error) -> bool {
    error.downcast_ref::<hyper_util::client::legacy::Error>().is_some_and(|it| !it.is_connect())
}

/// A 404 that names no object says that there is no such resource.
fn names_an_object(body: &Value) -> bool {
    body["details"]["name"].as_str().is_some_and(|it| !it.is_empty())
}
