//! Watchers that go on where they were, through whichever server they get; [`testkit::history::watch`] judges them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::Value;
use testkit::{
    Client,
    history::watch::{Event, Kind as EventKind, Log, Object, Step},
};
use tokio::{sync::watch as signal, task::JoinHandle};

use super::{
    doors::Doors,
    ledger::{Ledger, N_KINDS, read},
};
use crate::fixture::revision;

const RECONNECT: Duration = Duration::from_millis(50);
/// A watch that says nothing for so long is taken up elsewhere: its server may be asleep.
const SILENCE: Duration = Duration::from_secs(3);
/// How long they may take to see the last change once everything is well again.
const PATIENCE: Duration = Duration::from_secs(60);
const PER_KIND: u64 = 2;

/// Where watchers end: the resourceVersion of the last object of each kind.
pub type Goal = Option<[u64; N_KINDS]>;

/// Watchers at work.
pub struct Lookouts {
    goal: signal::Sender<Goal>,
    /// With the number of the kind.
    watchers: Vec<(usize, JoinHandle<Result<Log>>)>,
}

impl Lookouts {
    pub fn start(ledger: &Arc<Ledger>, doors: &Doors, seed: u64) -> Self {
        let (goal, reached) = signal::channel(None);
        let mut watchers = Vec::new();
        for (kind, of) in ledger.kinds.iter().enumerate() {
            for n in 0..PER_KIND {
                let watcher = Watcher {
                    kind,
                    log: Log { name: format!("watcher {n} of {}", of.name), ..Log::default() },
                    clients: doors.clients(),
                    goal: reached.clone(),
                    random: StdRng::seed_from_u64(seed ^ (n << 48)),
                    ledger: Arc::clone(ledger),
                };
                watchers.push((kind, tokio::spawn(watcher.run())));
            }
        }
        Self { goal, watchers }
    }

    /// Waits until all have seen the last change, and returns what they saw, by the number of the kind.
    pub async fn end(self, goal: [u64; N_KINDS]) -> Result<Vec<(usize, Log)>> {
        self.goal.send_replace(Some(goal));
        let mut logs = Vec::new();
        for (kind, watcher) in self.watchers {
            let ended = tokio::time::timeout(PATIENCE, watcher).await;
            let ended = ended.with_context(|| format!("a watcher of kind {kind} sees no end"))?;
            logs.push((kind, ended??));
        }
        Ok(logs)
    }
}

/// One watcher of one kind.
struct Watcher {
    kind: usize,
    log: Log,
    clients: Vec<Client>,
    goal: signal::Receiver<Goal>,
    random: StdRng,
    ledger: Arc<Ledger>,
}

impl Watcher {
    async fn run(mut self) -> Result<Log> {
        let mut from = None;
        while !from.is_some_and(|it| self.is_done(it)) {
            let at = match from {
                Some(at) => at,
                None => self.list().await,
            };
            from = self.watch(at).await?;
        }
        Ok(self.log)
    }

    fn is_done(&self, reached: u64) -> bool {
        self.goal.borrow().is_some_and(|it| reached >= it[self.kind])
    }

    fn client(&mut self) -> Client {
        self.clients[self.random.random_range(0..self.clients.len())].clone()
    }

    /// Lists as soon as somebody answers.
    async fn list(&mut self) -> u64 {
        loop {
            let answer = self.client().get(self.ledger.kinds[self.kind].collection).await;
            let Ok(Ok(list)) = answer.map(|it| it.expect(200)) else {
                tokio::time::sleep(RECONNECT).await;
                continue;
            };
            self.ledger.count("watchers", "list");
            let items = list["items"].as_array().into_iter().flatten();
            let items: BTreeMap<String, Object> = items.filter_map(read).collect();
            let revision = revision(&list);
            self.log.steps.push(Step::List { revision, items });
            return revision;
        }
    }

    /// Watches until the stream ends; where to go on from, `None` if that place is gone.
    async fn watch(&mut self, from: u64) -> Result<Option<u64>> {
        let collection = self.ledger.kinds[self.kind].collection;
        let path = format!("{collection}?watch=true&allowWatchBookmarks=true&resourceVersion={from}");
        self.ledger.count("watchers", "watch");
        let mut lines = match self.client().watch(&path).await {
            Ok(Ok(lines)) => lines,
            Ok(Err(answer)) if answer.status == 410 => return Ok(None),
            Ok(Err(answer)) if answer.status.as_u16() < 429 => {
                bail!("{}: refused at {from}: {} {}", self.log.name, answer.status, answer.text())
            }
            Ok(Err(_)) | Err(_) => {
                tokio::time::sleep(RECONNECT).await;
                return Ok(Some(from));
            }
        };
        let (mut to, mut events, mut is_expired) = (from, Vec::new(), false);
        while !self.is_done(to) {
            // A watch may end at any time, also in the middle of a line.
            let Ok(Ok(Some(line))) = tokio::time::timeout(SILENCE, lines.next()).await else { break };
            let event: Value = serde_json::from_slice(&line).context("a whole line must be JSON")?;
            let kind = match event["type"].as_str().unwrap_or_default() {
                "ADDED" => EventKind::Added,
                "MODIFIED" => EventKind::Modified,
                "DELETED" => EventKind::Deleted,
                "BOOKMARK" => {
                    let bookmark = revision(&event["object"]);
                    if bookmark < to {
                        bail!("{}: a bookmark at {bookmark} after {to}", self.log.name);
                    }
                    to = bookmark;
                    continue;
                }
                "ERROR" => {
                    // A server that lost its place says so; what came before it counts.
                    is_expired = event["object"]["code"] == 410;
                    break;
                }
                _ => bail!("{}: an event nobody expects: {event}", self.log.name),
            };
            let at = revision(&event["object"]);
            if at <= to && to > from {
                bail!("{}: {at} came after {to}", self.log.name);
            }
            to = at;
            if let Some((key, object)) = read(&event["object"]) {
                events.push(Event { kind, key, object });
            }
        }
        self.log.steps.push(Step::Watch { from, to, events });
        Ok((!is_expired).then_some(to))
    }
}
