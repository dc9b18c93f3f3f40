//! Everything that is stored while a story is told, for the judges: what it was encoded in (G1), and what clients were told
//! of it (G3).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use convoy::SharedStore;
use futures_util::StreamExt;
use parking_lot::Mutex;
use serde_json::Value;
use store::{Event, Range, Revision, Store};
use testkit::history::{
    encoding::Encodings,
    linearizable::{self, Stored, Verdict},
};
use tokio::time::Instant;

use super::{
    ground::{built_in, eventually},
    load::{Journal, VALUE},
};

/// Everything that is stored from its making on, and when it was heard of.
pub struct History {
    events: Arc<Mutex<Vec<(Instant, Event)>>>,
    store: SharedStore,
    task: tokio::task::JoinHandle<()>,
}

impl History {
    pub fn from(store: SharedStore, from: Revision) -> Self {
        let events: Arc<Mutex<Vec<(Instant, Event)>>> = Arc::default();
        let (seen, watched) = (Arc::clone(&events), store.clone());
        let task = tokio::spawn(async move {
            let mut batches = watched.watch(&Range::prefix("/registry/"), from).await.unwrap();
            while let Some(batch) = batches.next().await {
                let batch = batch.expect("the watch of a test must not break");
                let now = Instant::now();
                seen.lock().extend(batch.events.into_iter().map(|it| (now, it)));
            }
        });
        Self { events, store, task }
    }

    /// How long after the last of so many votes for a version, as the StorageVersion shows them, it was the common one.
    pub fn time_to_move(&self, record: &str, version: &str, n_votes: usize) -> Option<Duration> {
        let key = format!("/registry/storageversions/{record}");
        let events = self.events.lock();
        let shown = events.iter().filter_map(|(at, event)| match event {
            Event::Put(it) if it.key.as_str() == key => {
                Some((*at, serde_json::from_slice::<Value>(&it.value).unwrap()["status"].take()))
            }
            _ => None,
        });
        let mut voted = None;
        for (at, status) in shown {
            let votes = status["storageVersions"].as_array().into_iter().flatten();
            let n = votes.filter(|it| it["preferredVersion"] == version).count();
            if n == n_votes {
                voted.get_or_insert(at);
            }
            if status["commonEncodingVersion"] == version {
                return Some(at - voted?);
            }
        }
        None
    }

    /// Judges what everything was stored in; custom resources are named by their group and plural.
    pub async fn judge(self, custom: &[(&str, &str)]) -> Encodings {
        self.judge_with(custom, &[]).await
    }

    /// The same, and whether what clients were told of their writes is what was stored.
    pub async fn judge_with(self, custom: &[(&str, &str)], journals: &[Arc<Journal>]) -> Encodings {
        let events = self.complete().await;
        for journal in journals {
            judge_writes(&events, journal).unwrap_or_else(|it| panic!("G3: {it}"));
        }
        judge_encodings(&events, custom)
    }

    async fn complete(self) -> Vec<Event> {
        // The last change of the test's own, so that nothing can follow that is not judged.
        let end = store::Key::new("/registry/end-of-history");
        let last = self.store.commit(store::Txn::new().put(&end, "{}".into())).await.unwrap();
        eventually("the whole history is seen", async || {
            self.events.lock().last().is_some_and(|it| it.1.revision() >= last)
        })
        .await;
        self.task.abort();
        std::mem::take(&mut *self.events.lock()).into_iter().map(|it| it.1).collect()
    }
}

fn judge_encodings(events: &[Event], custom: &[(&str, &str)]) -> Encodings {
    let mut prefixes = built_in();
    prefixes.extend(
        custom
            .iter()
            .map(|(group, plural)| (format!("/registry/{group}/{plural}/"), format!("{group}.{plural}"))),
    );
    let mut history = Encodings::new("/registry/storageversions/", prefixes);
    for event in events {
        match event {
            Event::Put(it) => history.see(it.modified.get(), it.key.as_str(), Some(&it.value)),
            Event::Delete(key, at) => history.see(at.get(), key.as_str(), None),
        }
    }
    assert_eq!(history.faults, Vec::<String>::new());
    history
}

/// G3: whatever was acknowledged is in the store's history, at the revision that was told, and nothing else is.
fn judge_writes(events: &[Event], journal: &Journal) -> Result<(), String> {
    let mut stored: BTreeMap<&str, Vec<Stored>> = BTreeMap::new();
    for event in events {
        let (key, value) = match event {
            Event::Put(it) => {
                let object: Value = serde_json::from_slice(&it.value).unwrap_or_default();
                (it.key.as_str(), object["metadata"]["annotations"][VALUE].as_str().map(str::to_owned))
            }
            Event::Delete(key, _) => (key.as_str(), None),
        };
        let revision = event.revision().get();
        stored.entry(key).or_default().push(Stored { revision, value });
    }
    for (key, ops) in journal.ops() {
        let states = stored.get(key.as_str()).map_or(&[][..], Vec::as_slice);
        match linearizable::check(&ops, states) {
            Ok(Verdict::Linearizable) => {}
            Ok(Verdict::Undecided) => return Err(format!("{key}: too many ways to look at")),
            Err(violation) => return Err(format!("{key}: {violation}")),
        }
    }
    Ok(())
}

mod tests {
    use testkit::history::linearizable::{Action, Op, Outcome};

    use super::*;

    /// The judge is fed: a write that was acknowledged and is not in the history is found.
    #[test]
    fn a_write_that_was_acknowledged_and_lost_is_found() {
        let (action, outcome) = (Action::Create("1".to_owned()), Outcome::Put(7));
        let op = Op { who: "a test".to_owned(), asked: 0, answered: 1, action, outcome };
        let journal = Journal::of(BTreeMap::from([("/registry/things/x".to_owned(), vec![op])]));
        let lost = judge_writes(&[], &journal).unwrap_err();
        assert!(lost.starts_with("/registry/things/x: acknowledged, but not in the store"), "{lost}");
    }
}
