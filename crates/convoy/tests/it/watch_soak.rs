//! Many watchers, many writers with conflicts and deletes, restarts and compactions in between: each
//! watcher's view equals the store's history, in order, without gap or repeat.
//!
//! The short form runs in CI, `cargo xtask soak watch` runs 200 watchers over 20,000 writes.
//! [`testkit::history::watch`] is the judge.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use testkit::etcd::Etcd;
use testkit::history::watch::{self, Event, Kind, Log, Object, Step, Written};
use testkit::{Client, Convoy, Options, tools};
use tokio::sync::{Mutex, watch as signal};
use tokio::task::JoinSet;

use crate::fixture::{self, config_map, revision};

const OBJECTS: &str = "/api/v1/namespaces/soak/configmaps";
const LABELS: [&str; 2] = ["red", "blue"];
const KEYS: u32 = 40;
const WRITERS: u64 = 8;
/// How long a watcher or writer tries to reach a server that restarts.
const RECONNECT: Duration = Duration::from_millis(50);

/// Where watchers end: the resourceVersion of the last object with their label.
type Goal = Option<BTreeMap<&'static str, u64>>;

/// One watcher; it lists, watches, resumes, and lists again when told that its place is gone.
struct Watcher {
    client: Client,
    log: Log,
    goal: signal::Receiver<Goal>,
    random: StdRng,
}

impl Watcher {
    async fn run(mut self) -> Result<Log> {
        let mut from = None;
        while !self.is_done(from) {
            let at = match from {
                Some(at) => at,
                None => self.list().await?,
            };
            from = self.watch(at).await?;
        }
        Ok(self.log)
    }

    fn is_done(&self, reached: Option<u64>) -> bool {
        let (Some(reached), Some(goal)) = (reached, &*self.goal.borrow()) else { return false };
        let mine =
            goal.iter().filter(|(label, _)| self.log.selects.as_deref().is_none_or(|it| it == **label));
        mine.map(|(_, revision)| *revision).max().is_none_or(|last| reached >= last)
    }

    fn selector(&self) -> String {
        self.log.selects.as_ref().map(|it| format!("&labelSelector=group%3D{it}")).unwrap_or_default()
    }

    async fn list(&mut self) -> Result<u64> {
        loop {
            // Small pages now and then, so that continuation is watched too.
            let limit = if self.random.random_range(0..3) == 0 { "limit=7" } else { "limit=500" };
            let Some(list) = self.pages(limit).await? else {
                tokio::time::sleep(RECONNECT).await;
                continue;
            };
            let (revision, items) = list;
            self.log.steps.push(Step::List { revision, items });
            return Ok(revision);
        }
    }

    /// All pages of one list; `None` if the server went away or the snapshot did.
    async fn pages(&self, limit: &str) -> Result<Option<(u64, BTreeMap<String, Object>)>> {
        let mut items = BTreeMap::new();
        let mut token = String::new();
        loop {
            let path = format!("{OBJECTS}?{limit}{}{token}", self.selector());
            let Ok(answer) = self.client.get(&path).await else { return Ok(None) };
            if answer.status == 410 || answer.status == 429 || answer.status.is_server_error() {
                return Ok(None);
            }
            let list = answer.expect(200)?;
            for object in list["items"].as_array().context("a list must have items")? {
                let (key, object) = read(object)?;
                items.insert(key, object);
            }
            match list["metadata"]["continue"].as_str() {
                Some(next) if !next.is_empty() => token = format!("&continue={next}"),
                _ => return Ok(Some((revision(&list), items))),
            }
        }
    }

    /// Watches until the stream ends; where to go on from, `None` if that place is gone.
    async fn watch(&mut self, from: u64) -> Result<Option<u64>> {
        let seconds = self.random.random_range(2..20);
        let selector = self.selector();
        let path = format!(
            "{OBJECTS}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={from}{selector}"
        );
        let mut lines = match self.client.watch(&path).await {
            Ok(Ok(lines)) => lines,
            Ok(Err(answer)) if answer.status == 410 => return Ok(None),
            Ok(Err(answer)) if answer.status == 429 || answer.status.is_server_error() => {
                tokio::time::sleep(RECONNECT).await;
                return Ok(Some(from));
            }
            Ok(Err(answer)) => bail!("the watch was refused: {} {}", answer.status, answer.text()),
            Err(_) => {
                tokio::time::sleep(RECONNECT).await;
                return Ok(Some(from));
            }
        };
        let (mut to, mut events, mut expired) = (from, Vec::new(), false);
        while !self.is_done(Some(to)) {
            let Ok(Ok(Some(line))) = tokio::time::timeout(Duration::from_secs(60), lines.next()).await else {
                break;
            };
            let event: Value = serde_json::from_slice(&line).context("a whole line must be JSON")?;
            let kind = match event["type"].as_str().unwrap_or_default() {
                "ADDED" => Kind::Added,
                "MODIFIED" => Kind::Modified,
                "DELETED" => Kind::Deleted,
                "BOOKMARK" => {
                    let bookmark = revision(&event["object"]);
                    if bookmark < to {
                        bail!("{}: a bookmark at {bookmark} after {to}", self.log.name);
                    }
                    to = bookmark;
                    continue;
                }
                "ERROR" if event["object"]["code"] == 410 => {
                    expired = true;
                    break;
                }
                _ => bail!("{}: an event nobody expects: {event}", self.log.name),
            };
            let (key, object) = read(&event["object"])?;
            to = to.max(object.revision);
            events.push(Event { kind, key, object });
        }
        self.log.steps.push(Step::Watch { from, to, events });
        Ok((!expired).then_some(to))
    }
}

fn read(object: &Value) -> Result<(String, Object)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let key = text(&object["metadata"]["name"]);
    let (value, label) = (text(&object["data"]["value"]), text(&object["metadata"]["labels"]["group"]));
    if value.is_empty() || label.is_empty() {
        bail!("not an object of this test: {object}");
    }
    Ok((key, Object { revision: revision(object), value, label }))
}

/// One writer; all writers share all keys, so they meet.
struct Writer {
    number: u64,
    client: Client,
    written: Arc<Mutex<Written>>,
    conflicts: Arc<AtomicUsize>,
    left: Arc<AtomicUsize>,
    random: StdRng,
    /// What this writer last saw of each key; often stale, hence the conflicts.
    known: BTreeMap<String, u64>,
}

impl Writer {
    async fn run(mut self) -> Result<()> {
        let mut count = 0_u64;
        while self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |it| it.checked_sub(1)).is_ok() {
            count += 1;
            self.write(count).await?;
        }
        Ok(())
    }

    async fn write(&mut self, count: u64) -> Result<()> {
        let key = format!("k{}", self.random.random_range(0..KEYS));
        let label = LABELS[self.random.random_range(0..LABELS.len())];
        let object = config_map(&key, &format!("{}-{count}", self.number), label);
        let path = format!("{OBJECTS}/{key}");
        let choice = self.random.random_range(0..10);
        let is_delete = choice == 0;
        if is_delete {
            self.written.lock().await.deleted.insert(key.clone());
        } else {
            let value = object["data"]["value"].as_str().unwrap_or_default().to_owned();
            self.written.lock().await.attempted.insert((key.clone(), value));
        }
        let answer = match (choice, self.known.get(&key)) {
            (0, _) => self.client.delete(&path).await,
            (1..=4, Some(known)) => {
                let mut object = object;
                object["metadata"]["resourceVersion"] = known.to_string().into();
                self.client.put(&path, &object).await
            }
            (5..=7, Some(_)) => {
                let patch = serde_json::json!({"data": object["data"], "metadata": {"labels": object["metadata"]["labels"]}});
                self.client.patch(&path, "application/merge-patch+json", &patch).await
            }
            _ => self.client.post(OBJECTS, &object).await,
        };
        let Ok(answer) = answer else {
            self.without_answer().await;
            return Ok(());
        };
        match answer.status.as_u16() {
            200 | 201 if is_delete => {
                self.known.remove(&key);
            }
            200 | 201 => {
                let (key, object) = read(&answer.json()?)?;
                self.known.insert(key.clone(), object.revision);
                self.written.lock().await.acknowledged.insert(object.revision, (key, object));
            }
            404 => {
                self.known.remove(&key);
            }
            409 => {
                self.conflicts.fetch_add(1, Ordering::Relaxed);
                self.refresh(&key).await;
            }
            429 | 500..=599 => self.without_answer().await,
            _ => bail!("an answer nobody expects: {} {}", answer.status, answer.text()),
        }
        Ok(())
    }

    /// The server is away: what was tried may have happened, but does not count as one of the writes.
    async fn without_answer(&self) {
        self.left.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(RECONNECT).await;
    }

    async fn refresh(&mut self, key: &str) {
        let Ok(answer) = self.client.get(&format!("{OBJECTS}/{key}")).await else { return };
        match answer.json() {
            Ok(object) if answer.status == 200 => self.known.insert(key.to_owned(), revision(&object)),
            _ => self.known.remove(key),
        };
    }
}

/// How the server is shaken while the writers write.
enum Shake {
    Embedded,
    Etcd(Box<Etcd>),
}

async fn soak(name: &str, mut convoy: Convoy, mut shake: Shake) -> Result<()> {
    let (writes, seed) = (tools::rounds(1_000), tools::seed());
    let n_watchers: u64 = if tools::is_soak() { 200 } else { 20 };
    fixture::namespace(&convoy, "soak").await?;
    let (announce, goal) = signal::channel(None);
    let mut watchers = JoinSet::new();
    for number in 0..n_watchers {
        // Half of them see everything, the others select one label.
        let selects = (number % 2 == 1).then(|| LABELS[usize::from(number % 4 == 1)].to_owned());
        let log = Log { name: format!("watcher {number}"), selects, steps: Vec::new() };
        let random = StdRng::seed_from_u64(seed ^ (number << 20));
        let client = convoy.admin().with_patience(Duration::from_secs(20));
        watchers.spawn(Watcher { client, log, goal: goal.clone(), random }.run());
    }
    let written = Arc::new(Mutex::new(Written::default()));
    let (conflicts, left) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(writes)));
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        writers.spawn(
            Writer {
                number,
                client: convoy.admin().with_patience(Duration::from_secs(20)),
                written: Arc::clone(&written),
                conflicts: Arc::clone(&conflicts),
                left: Arc::clone(&left),
                random: StdRng::seed_from_u64(seed ^ (number << 40)),
                known: BTreeMap::new(),
            }
            .run(),
        );
    }
    let restarts = if tools::is_soak() { 10 } else { 2 };
    for number in 1..=restarts {
        let until = writes - writes * number / (restarts + 1);
        while left.load(Ordering::SeqCst) > until {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        restart(&mut convoy, &mut shake, number).await?;
    }
    while let Some(done) = writers.join_next().await {
        done??;
    }
    announce.send_replace(Some(finish(&convoy.admin(), &written).await?));
    let mut logs = Vec::new();
    while let Some(done) = watchers.join_next().await {
        logs.push(done??);
    }
    let written = written.lock().await;
    let summary = watch::check(&logs, &written).with_context(|| format!("{name}, seed {seed}"))?;
    let (acknowledged, conflicts) = (written.acknowledged.len(), conflicts.load(Ordering::Relaxed));
    tools::report(&format!(
        "{name}: {writes} writes, seed {seed}: {acknowledged} puts, {conflicts} conflicts, {restarts} restarts, {summary:?}"
    ));
    assert!(conflicts > 0 && acknowledged > writes / 4, "too little happened to prove anything");
    Ok(())
}

/// Gently, hard, and on etcd also the etcd below.
async fn restart(convoy: &mut Convoy, shake: &mut Shake, number: usize) -> Result<()> {
    if number.is_multiple_of(2) {
        convoy.term(Duration::from_secs(60)).await?;
    } else {
        convoy.kill9()?;
    }
    if let Shake::Etcd(etcd) = shake
        && tools::etcd_may_be_killed("killing etcd under watchers")
    {
        etcd.kill9()?;
        etcd.restart().await?;
    }
    convoy.start_again().await
}

/// One last object per label: who has seen it has seen everything.
async fn finish(client: &Client, written: &Mutex<Written>) -> Result<BTreeMap<&'static str, u64>> {
    let mut goal = BTreeMap::new();
    for label in LABELS {
        let (key, value) = (format!("last-{label}"), format!("last-{label}"));
        let created = client.post(OBJECTS, &config_map(&key, &value, label)).await?.expect(201)?;
        let (key, object) = read(&created)?;
        goal.insert(label, object.revision);
        let mut written = written.lock().await;
        written.attempted.insert((key.clone(), value));
        written.acknowledged.insert(object.revision, (key, object));
    }
    Ok(goal)
}

/// Nobody but the test writes config maps.
const ONLY_OURS: &str = "--controllers=*,-root-ca-cert-publisher";

#[tokio::test(flavor = "multi_thread")]
async fn watchers_of_the_embedded_store_see_its_history() -> Result<()> {
    let options = Options::embedded(fixture::BINARY).flag("--etcd-compaction-interval=2s").flag(ONLY_OURS);
    soak("watch, embedded", Convoy::start(options).await?, Shake::Embedded).await
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_of_etcd_see_its_history() -> Result<()> {
    if testkit::etcd::is_missing() {
        return Ok(());
    }
    let etcd = Etcd::start().await?;
    let options = Options::etcd(fixture::BINARY, &etcd.url(), "/registry")
        .flag("--etcd-compaction-interval=2s")
        .flag(ONLY_OURS);
    soak("watch, etcd", Convoy::start(options).await?, Shake::Etcd(Box::new(etcd))).await
}
