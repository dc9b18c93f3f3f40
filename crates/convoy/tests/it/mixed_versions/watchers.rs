//! Watchers that follow objects through a roll: they go on where they were, through whichever server they get.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use testkit::history::watch::{Event, Kind as EventKind, Log, Object, Step};
use tokio::{
    sync::watch as signal,
    time::{Duration, Instant},
};

use super::{
    hands::Place,
    load::{Kind, VALUE},
    verdict::{Asked, Logbook, Said, Verdict},
};
use crate::fixture::revision;

/// Where watchers end: the resourceVersion of the last object of each resource.
pub type Goal = Option<BTreeMap<&'static str, u64>>;

const RECONNECT: Duration = Duration::from_millis(20);

/// One watcher of one resource in one version.
pub struct Watcher {
    pub place: Place,
    pub kind: Kind,
    pub version: &'static str,
    pub goal: signal::Receiver<Goal>,
    pub logbook: std::sync::Arc<Logbook>,
}

impl Watcher {
    pub async fn run(self) -> Result<Log> {
        let mut log = Log { name: self.name(), selects: None, steps: Vec::new() };
        let (mut at, items) = self.list().await?;
        log.steps.push(Step::List { revision: at, items });
        while !self.is_done(at) {
            let Stretch { to, events, is_expired } = self.watch(at).await?;
            log.steps.push(Step::Watch { from: at, to, events });
            at = to;
            if is_expired {
                // A server that has just started has no history from before; whoever watches lists again.
                let (revision, items) = self.list_again().await;
                log.steps.push(Step::List { revision, items });
                at = revision;
            }
        }
        Ok(log)
    }

    /// Lists as soon as somebody answers.
    async fn list_again(&self) -> (u64, BTreeMap<String, Object>) {
        loop {
            match self.list().await {
                Ok(listed) => return listed,
                Err(_) => tokio::time::sleep(RECONNECT).await,
            }
        }
    }

    fn name(&self) -> String {
        format!("watcher of {} {}", self.kind.resource, self.version)
    }

    fn is_done(&self, reached: u64) -> bool {
        let goal = self.goal.borrow();
        goal.as_ref().and_then(|it| it.get(self.kind.resource)).is_some_and(|it| reached >= *it)
    }

    async fn list(&self) -> Result<(u64, BTreeMap<String, Object>)> {
        let list = self.place.client()?.get(&self.kind.collection(self.version)).await?.expect(200)?;
        let items = list["items"].as_array().context("a list must have items")?;
        let items = items.iter().filter_map(read).collect();
        Ok((revision(&list), items))
    }

    async fn watch(&self, from: u64) -> Result<Stretch> {
        let collection = self.kind.collection(self.version);
        let path = format!("{collection}?watch=true&allowWatchBookmarks=true&resourceVersion={from}");
        let (since, gvr) = (Instant::now(), self.kind.gvr(self.version));
        let mut lines = match self.place.client()?.watch(&path).await {
            Ok(Ok(lines)) => lines,
            refused => {
                let said = refused.map(|it| match it {
                    Ok(_) => unreachable!("matched above"),
                    Err(answer) => Said {
                        code: answer.status.as_u16(),
                        has_retry_after: answer.headers.contains_key("retry-after"),
                        body: answer.json().unwrap_or_default(),
                    },
                });
                let name = self.name();
                let asked = Asked { who: &name, what: path, gvr: Some(&gvr), since };
                let mut is_expired = false;
                if let Verdict::Answered(said) = self.logbook.judge(&asked, said) {
                    is_expired = said.code == 410;
                    ensure!(
                        is_expired,
                        "{}: it cannot go on at {from}: {} {}",
                        self.name(),
                        said.code,
                        said.body
                    );
                }
                tokio::time::sleep(RECONNECT).await;
                return Ok(Stretch { to: from, events: Vec::new(), is_expired });
            }
        };
        let (mut to, mut events) = (from, Vec::new());
        while !self.is_done(to) {
            // A watch may end at any time, also in the middle of a line.
            let Ok(Ok(Some(line))) = tokio::time::timeout(Duration::from_secs(20), lines.next()).await else {
                break;
            };
            let event: Value = serde_json::from_slice(&line).context("a whole line must be JSON")?;
            let kind = match event["type"].as_str().unwrap_or_default() {
                "ADDED" => EventKind::Added,
                "MODIFIED" => EventKind::Modified,
                "DELETED" => EventKind::Deleted,
                "BOOKMARK" => {
                    to = to.max(revision(&event["object"]));
                    continue;
                }
                "ERROR" if event["object"]["code"] == 410 => {
                    return Ok(Stretch { to, events, is_expired: true });
                }
                _ => bail!("{}: it cannot go on at {to}: {event}", self.name()),
            };
            to = revision(&event["object"]);
            if let Some((key, object)) = read(&event["object"]) {
                events.push(Event { kind, key, object });
            }
        }
        Ok(Stretch { to, events, is_expired: false })
    }
}

/// What came after a revision, up to where it is complete, and whether the watch cannot go on from there.
struct Stretch {
    to: u64,
    events: Vec<Event>,
    is_expired: bool,
}

fn read(object: &Value) -> Option<(String, Object)> {
    let value = object["metadata"]["annotations"][VALUE].as_str()?.to_owned();
    let name = object["metadata"]["name"].as_str()?.to_owned();
    Some((name, Object { revision: revision(object), value, label: String::new() }))
}
