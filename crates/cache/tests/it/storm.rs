//! Random writers, a bad connection, compactions, and watchers of all kinds: every watcher's view must
//! equal the store's history, in order, without gap or repeat.
//!
//! Writers note what they committed and at which revision. Afterwards the notes are replayed in order of
//! revision, which gives every state and every event that a watcher may have seen.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use cache::{Cache, CacheConfig, Collection, EventType, Step, Watcher};
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use store::{
    Change, Key, Revision, SharedStore, Store, Txn,
    fault::{Cut, FaultStore, Faults},
};
use tokio::sync::watch;

use crate::support::*;

const WRITERS: u64 = 4;
const COMMITS: usize = 400;
const HISTORY: usize = 200;

type Notes = Arc<Mutex<BTreeMap<Revision, Vec<Change>>>>;

/// What a watcher saw after one list: the list, the events, and the positions it was told.
struct Seen {
    prefix: &'static str,
    listed_at: Revision,
    listed: BTreeMap<Key, Revision>,
    events: Vec<(Revision, Key, EventType)>,
    /// Position, and how many events had been delivered then.
    positions: Vec<(Revision, usize)>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_view_equals_the_history() {
    for seed in 0..4 {
        storm(seed).await;
    }
}

async fn storm(seed: u64) {
    let store = memory_store();
    let (bad, faults) = FaultStore::new(store.clone(), clock());
    let config = CacheConfig { history_events: HISTORY, ..config() };
    let cache = Cache::start(SharedStore::new(bad), clock(), config, specs()).await.unwrap();
    let notes = Notes::default();
    let (done, is_done) = watch::channel(None);

    // Nobody reads from this one until the end, when far more has happened than is remembered.
    let mut lagging = maps(&cache).watch(Revision::ZERO, MAPS).unwrap();
    let watchers: Vec<_> = (0..12_u64)
        .map(|number| {
            let prefix = if number % 3 == 0 { WIDGETS } else { MAPS };
            let watching = follow(cache.clone(), prefix, is_done.clone(), seed * 100 + number);
            tokio::spawn(watching)
        })
        .collect();
    let writers: Vec<_> = (0..WRITERS)
        .map(|it| tokio::spawn(write(store.clone(), Arc::clone(&notes), seed * 10 + it)))
        .collect();
    let trouble = tokio::spawn(trouble(store.clone(), faults.clone(), is_done.clone(), seed));
    for writer in writers {
        writer.await.unwrap();
    }
    let last = store.current().await.unwrap();
    done.send(Some(last)).unwrap();
    trouble.await.unwrap();

    let history = replay(&notes.lock());
    let (mut n_events, mut n_lists) = (0, 0);
    for watcher in watchers {
        for seen in watcher.await.unwrap() {
            check(&history, &seen);
            n_lists += 1;
            n_events += seen.events.len();
        }
    }
    assert!(matches!(lagging.next().await, Step::Ended(_)));
    check_final(&cache, &history, last).await;
    println!("seed {seed}: {last} revisions, {n_lists} lists, {n_events} events delivered and checked");
}

async fn write(store: SharedStore, notes: Notes, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    for _ in 0..COMMITS {
        let mut changes = BTreeMap::new();
        for _ in 0..random.random_range(1..4) {
            let number = random.random_range(0..20);
            let (key, text) = if random.random_bool(0.5) {
                (map_key(&number.to_string()), map_text("m", "x"))
            } else {
                (Key::new(format!("{WIDGETS}{number}")), "{\"apiVersion\":\"example.com/v1\"}".into())
            };
            let change = if random.random_bool(0.3) {
                Change::Delete(key.clone())
            } else {
                Change::Put(key.clone(), text, None)
            };
            changes.insert(key, change);
        }
        // Something always changes, so that every commit has a revision of its own.
        let own = Key::new(format!("/convoy/writer-{seed}"));
        let txn = Txn { require: Vec::new(), changes: changes.into_values().collect() }.put(&own, "x".into());
        let changes = txn.changes.clone();
        let revision = store.commit(txn).await.unwrap();
        assert!(notes.lock().insert(revision, changes).is_none(), "a revision must not be used twice");
        if random.random_bool(0.3) {
            tokio::time::sleep(Duration::from_micros(random.random_range(0..300))).await;
        }
    }
}

/// Interrupts the cache's watch again and again, sometimes with a compaction in between.
async fn trouble(store: SharedStore, faults: Faults, is_done: watch::Receiver<Option<Revision>>, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed ^ 0xbad);
    while is_done.borrow().is_none() {
        faults.cut(Cut::Unsent);
        tokio::time::sleep(Duration::from_millis(random.random_range(0..4))).await;
        if random.random_bool(0.3) {
            store.compact(store.current().await.unwrap()).await.unwrap();
        }
        faults.heal();
        tokio::time::sleep(Duration::from_millis(random.random_range(1..15))).await;
    }
}

/// Lists, then watches; lists again whenever the watch ends; until all has been written.
async fn follow(
    cache: Cache,
    prefix: &'static str,
    mut is_done: watch::Receiver<Option<Revision>>,
    seed: u64,
) -> Vec<Seen> {
    let mut random = StdRng::seed_from_u64(seed);
    let collection = cache.collection(prefix).unwrap();
    let mut all = Vec::new();
    loop {
        let (mut watcher, mut seen) = list_and_watch(&collection, prefix);
        let has_ended = loop {
            let step = tokio::select! {
                step = watcher.next() => step,
                last = last(&mut is_done) => break drain(&cache, &mut watcher, &mut seen, last).await,
            };
            if note(step, &mut seen) {
                break true;
            }
            while let Some(step) = watcher.try_next() {
                if note(step, &mut seen) {
                    break;
                }
            }
            seen.positions.extend(watcher.position().map(|it| (it, seen.events.len())));
            if random.random_bool(0.1) {
                watcher.request_progress();
            }
            if random.random_bool(0.02) {
                // Slow now and then, so that some fall behind.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        all.push(seen);
        if !has_ended {
            return all;
        }
    }
}

/// The last revision, once it is known.
async fn last(is_done: &mut watch::Receiver<Option<Revision>>) -> Revision {
    is_done.wait_for(Option::is_some).await.unwrap().unwrap()
}

fn list_and_watch(collection: &Arc<Collection>, prefix: &'static str) -> (Watcher, Seen) {
    loop {
        let snapshot = collection.snapshot().unwrap();
        let listed_at = snapshot.revision();
        // Only a history that was lost in between makes a list too old to watch from.
        let Ok(watcher) = collection.watch(listed_at, prefix) else { continue };
        let listed = snapshot.readable(prefix, None).map(|it| (it.key().clone(), it.revision())).collect();
        return (watcher, Seen { prefix, listed_at, listed, events: Vec::new(), positions: Vec::new() });
    }
}

/// Notes a step and says whether it was the last.
fn note(step: Step, seen: &mut Seen) -> bool {
    match step {
        Step::Event(change) => seen.events.push((change.revision, change.key().clone(), change.event())),
        Step::Progress(revision) => seen.positions.push((revision, seen.events.len())),
        Step::Undecodable(key, why) => panic!("{key}: {why}"),
        Step::Ended(_) => return true,
    }
    false
}

/// Takes everything up to the last revision; says whether the watch ended on the way.
async fn drain(cache: &Cache, watcher: &mut Watcher, seen: &mut Seen, last: Revision) -> bool {
    cache.wait_for(last, Duration::from_secs(30)).await.unwrap();
    while let Some(step) = watcher.try_next() {
        if note(step, seen) {
            return true;
        }
    }
    let position = watcher.position().expect("nothing is left to deliver");
    assert!(position >= last);
    seen.positions.push((position, seen.events.len()));
    false
}

/// Every event in order, and the state after every revision.
struct History {
    events: Vec<(Revision, Key, EventType)>,
    states: BTreeMap<Revision, BTreeMap<Key, Revision>>,
}

fn replay(notes: &BTreeMap<Revision, Vec<Change>>) -> History {
    let mut state: BTreeMap<Key, Revision> = BTreeMap::new();
    let mut history =
        History { events: Vec::new(), states: BTreeMap::from([(Revision::ZERO, state.clone())]) };
    for (revision, changes) in notes {
        for change in changes {
            let key = change.key().clone();
            let event = match change {
                Change::Put(..) => match state.insert(key.clone(), *revision) {
                    Some(_) => EventType::Modified,
                    None => EventType::Added,
                },
                Change::Delete(_) => match state.remove(&key) {
                    Some(_) => EventType::Deleted,
                    None => continue,
                },
            };
            history.events.push((*revision, key, event));
        }
        history.states.insert(*revision, state.clone());
    }
    history
}

impl History {
    fn state(&self, prefix: &str, revision: Revision) -> BTreeMap<Key, Revision> {
        let (_, state) = self.states.range(..=revision).next_back().unwrap();
        let in_prefix = state.iter().filter(|(key, _)| key.as_str().starts_with(prefix));
        in_prefix.map(|(key, revision)| (key.clone(), *revision)).collect()
    }
}

fn check(history: &History, seen: &Seen) {
    assert_eq!(seen.listed, history.state(seen.prefix, seen.listed_at), "the list at {}", seen.listed_at);
    let expected: Vec<_> = history
        .events
        .iter()
        .filter(|(revision, key, _)| *revision > seen.listed_at && key.as_str().starts_with(seen.prefix))
        .take(seen.events.len())
        .cloned()
        .collect();
    assert_eq!(seen.events, expected, "the events after {}", seen.listed_at);
    let mut told = seen.listed_at;
    for (position, n_delivered) in &seen.positions {
        assert!(*position >= told, "a position must not go back");
        told = *position;
        let due = history.events.iter().filter(|(revision, key, _)| {
            *revision > seen.listed_at && revision <= position && key.as_str().starts_with(seen.prefix)
        });
        assert!(due.count() <= *n_delivered, "position {position} was told too early");
    }
}

async fn check_final(cache: &Cache, history: &History, last: Revision) {
    assert_eq!(cache.catch_up().await, Ok(last));
    for prefix in [MAPS, WIDGETS] {
        let collection = cache.collection(prefix).unwrap();
        let snapshot = collection.snapshot().unwrap();
        let listed: BTreeMap<_, _> =
            snapshot.readable(prefix, None).map(|it| (it.key().clone(), it.revision())).collect();
        assert_eq!(listed, history.state(prefix, last));
        assert_eq!(collection.counts().unwrap().values().sum::<u64>(), listed.len() as u64);
        let versions: BTreeSet<_> =
            snapshot.readable(prefix, None).map(|it| it.storage_version().clone()).collect();
        assert!(versions.iter().eq(collection.counts().unwrap().keys()));
    }
}
