//! A model of a store, so simple that it is obviously right, and a runner that drives a real store with
//! random calls and compares every answer.
//!
//! The model keeps the whole map for every revision. It takes over the numbers of revisions and leases from
//! the store and only checks that they grow. Deliberately not here: concurrency and time; one call at a time.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::StreamExt;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::{
    Change, CommitError, Entry, Event, Events, Key, LeaseError, LeaseId, Leases, Page, Range, ReadAt,
    ReadError, Require, Revision, SharedStore, Store, Txn, WatchError,
};

/// Drives `store`, which must be empty below `/model/`, with `steps` random calls made from `seed`.
///
/// # Panics
/// When the store answers differently from the model; the text names seed and step.
pub async fn check_against_model(store: SharedStore, seed: u64, steps: usize) {
    let revision = store.current().await.expect("the current revision must be readable");
    let model = Model { states: BTreeMap::from([(revision, State::new())]), ..Model::default() };
    let everything = store.watch(&Range::prefix(PREFIX), revision).await.expect("a watch must start");
    let random = StdRng::seed_from_u64(seed);
    let mut runner = Runner { store, model, random, context: String::new(), everything, n_seen: 0 };
    for step in 0..steps {
        runner.context = format!("seed {seed}, step {step}");
        runner.step().await;
    }
    runner.catch_up().await;
}

const PREFIX: &str = "/model/";

/// What the store holds at one revision.
type State = BTreeMap<Key, Entry>;

#[derive(Default)]
struct Model {
    states: BTreeMap<Revision, State>,
    compacted: Revision,
    events: Vec<Event>,
    leases: Vec<LeaseId>,
}

impl Model {
    fn revision(&self) -> Revision {
        *self.states.last_key_value().expect("there must be a state").0
    }

    fn now(&self) -> &State {
        self.states.last_key_value().expect("there must be a state").1
    }

    fn modified(&self, key: &Key) -> Option<Revision> {
        self.now().get(key).map(|it| it.modified)
    }

    /// Why the store must refuse the transaction.
    fn refusal(&self, txn: &Txn) -> Option<CommitError> {
        let mut keys: Vec<&Key> = txn.changes.iter().map(Change::key).collect();
        keys.sort_unstable();
        if keys.windows(2).any(|it| it[0] == it[1]) {
            return Some(CommitError::Rejected(String::new()));
        }
        if let Some(failed) = txn.require.iter().position(|it| !it.holds(self.modified(it.key()))) {
            let current = txn.require.iter().map(|it| self.now().get(it.key()).cloned()).collect();
            return Some(CommitError::Unmet { failed, current, revision: self.revision() });
        }
        txn.changes.iter().find_map(|it| match it {
            Change::Put(_, _, Some(lease)) if !self.leases.contains(lease) => {
                Some(CommitError::NoLease(*lease))
            }
            Change::Put(..) | Change::Delete(_) => None,
        })
    }

    fn has_effect(&self, changes: &[Change]) -> bool {
        changes.iter().any(|it| match it {
            Change::Put(..) => true,
            Change::Delete(key) => self.now().contains_key(key),
        })
    }

    fn apply(&mut self, changes: &[Change], revision: Revision) {
        let mut state = self.now().clone();
        for change in changes {
            match change {
                Change::Put(key, value, lease) => {
                    let created = state.get(key).map_or(revision, |it| it.created);
                    let value = value.clone();
                    let entry = Entry { key: key.clone(), value, created, modified: revision, lease: *lease };
                    state.insert(key.clone(), entry.clone());
                    self.events.push(Event::Put(entry));
                }
                Change::Delete(key) => {
                    if state.remove(key).is_some() {
                        self.events.push(Event::Delete(key.clone(), revision));
                    }
                }
            }
        }
        self.states.insert(revision, state);
    }

    fn list(&self, range: &Range, at: ReadAt, limit: usize) -> Result<Page, ReadError> {
        let revision = match at {
            ReadAt::Latest => self.revision(),
            ReadAt::Revision(it) if it > self.revision() => {
                return Err(ReadError::Future { current: self.revision() });
            }
            ReadAt::Revision(it) if it < self.compacted => {
                return Err(ReadError::Compacted { oldest: self.compacted });
            }
            ReadAt::Revision(it) => it,
        };
        let (_, state) = self.states.range(..=revision).next_back().expect("the revision must be known");
        let mut entries: Vec<Entry> =
            state.values().filter(|it| range.contains(it.key.as_str())).cloned().collect();
        let remaining = entries.len().saturating_sub(limit);
        entries.truncate(limit);
        Ok(Page { entries, remaining: u64::try_from(remaining).expect("a count must fit"), revision })
    }

    fn events(&self, range: &Range, after: Revision) -> Vec<Event> {
        let events =
            self.events.iter().filter(|it| it.revision() > after && range.contains(it.key().as_str()));
        events.cloned().collect()
    }
}

struct Runner {
    store: SharedStore,
    model: Model,
    random: StdRng,
    context: String,
    /// A watch that lives as long as the run.
    everything: Events,
    n_seen: usize,
}

impl Runner {
    async fn step(&mut self) {
        match self.random.random_range(0..100) {
            0..50 => self.commit().await,
            50..60 => self.get().await,
            60..78 => self.list().await,
            78..88 => self.watch().await,
            88..92 => self.grant().await,
            92..94 => self.revoke().await,
            94..97 => self.compact().await,
            _ => self.catch_up().await,
        }
    }

    async fn commit(&mut self) {
        let txn = self.any_txn();
        let result = self.store.commit(txn.clone()).await;
        let context = format!("{}: {txn:?}", self.context);
        match self.model.refusal(&txn) {
            Some(CommitError::Rejected(_)) => {
                assert!(matches!(result, Err(CommitError::Rejected(_))), "{context}: {result:?}");
            }
            Some(refusal) => assert_eq!(result, Err(refusal), "{context}"),
            None if self.model.has_effect(&txn.changes) => {
                let revision = result.unwrap_or_else(|error| panic!("{context}: {error}"));
                assert!(revision > self.model.revision(), "{context}: the revision did not grow");
                self.model.apply(&txn.changes, revision);
            }
            None => assert_eq!(result, Ok(self.model.revision()), "{context}"),
        }
    }

    async fn get(&mut self) {
        let key = self.any_key();
        let expected = self.model.now().get(&key).cloned();
        assert_eq!(self.store.get(&key).await, Ok(expected), "{}: get {key}", self.context);
        assert_eq!(self.store.current().await, Ok(self.model.revision()), "{}", self.context);
    }

    async fn list(&mut self) {
        let range = self.any_range();
        let at =
            if self.random.random_bool(0.3) { ReadAt::Latest } else { ReadAt::Revision(self.any_revision()) };
        let limit = self.random.random_range(0..12);
        let expected = self.model.list(&range, at, limit);
        let page = self.store.list(&range, at, limit).await;
        assert_eq!(page, expected, "{}: list {range:?} {at:?}", self.context);
    }

    async fn watch(&mut self) {
        let range = self.any_range();
        let after = self.any_revision();
        let context = format!("{}: watch {range:?} after {after}", self.context);
        let events = self.store.watch(&range, after).await;
        let mut events = match events {
            Ok(events) => events,
            Err(WatchError::Compacted { .. }) if after < self.model.compacted => return,
            Err(WatchError::WentBack { .. }) if after > self.model.revision() => return,
            Err(error) => panic!("{context}: {error}"),
        };
        if after < self.model.compacted || after > self.model.revision() {
            // The refusal may come as the first item; delivering everything is fine too.
            return;
        }
        let expected = self.model.events(&range, after);
        expect_events(&mut events, expected, &context).await;
    }

    async fn grant(&mut self) {
        let lease = self.store.grant(std::time::Duration::from_secs(3600)).await;
        self.model.leases.push(lease.unwrap_or_else(|error| panic!("{}: {error}", self.context)));
    }

    async fn revoke(&mut self) {
        let Some(lease) = self.any_lease() else { return };
        let result = self.store.revoke(lease).await;
        let Some(position) = self.model.leases.iter().position(|it| *it == lease) else {
            assert_eq!(result, Err(LeaseError::NotFound(lease)), "{}", self.context);
            return;
        };
        assert_eq!(result, Ok(()), "{}", self.context);
        self.model.leases.remove(position);
        let of_lease = self.model.now().values().filter(|it| it.lease == Some(lease));
        let changes: Vec<Change> = of_lease.map(|it| Change::Delete(it.key.clone())).collect();
        let revision = self.store.current().await.expect("the current revision must be readable");
        assert_eq!(
            revision > self.model.revision(),
            !changes.is_empty(),
            "{}: revoke {lease:?}",
            self.context
        );
        if !changes.is_empty() {
            self.model.apply(&changes, revision);
        }
    }

    async fn compact(&mut self) {
        // A watch that is behind may be ended by a compaction; this one must live.
        self.catch_up().await;
        let before = self.any_revision();
        let result = self.store.compact(before).await;
        if before > self.model.revision() {
            assert!(matches!(result, Err(CommitError::Rejected(_))), "{}: {result:?}", self.context);
        } else {
            assert_eq!(result, Ok(()), "{}: compact {before}", self.context);
            self.model.compacted = self.model.compacted.max(before);
        }
    }

    /// Reads the long watch up to now.
    async fn catch_up(&mut self) {
        let expected = self.model.events[self.n_seen..].to_vec();
        self.n_seen = self.model.events.len();
        expect_events(&mut self.everything, expected, &self.context).await;
    }

    fn any_txn(&mut self) -> Txn {
        let mut txn = Txn::new();
        for _ in 0..self.random.random_range(0..3) {
            txn.require.push(self.any_requirement());
        }
        for _ in 0..self.random.random_range(0..4) {
            let key = self.any_key();
            // Duplicates are wanted, but rarely.
            if txn.changes.iter().any(|it| *it.key() == key) && self.random.random_bool(0.8) {
                continue;
            }
            txn.changes.push(self.any_change(key));
        }
        txn
    }

    fn any_requirement(&mut self) -> Require {
        let key = self.any_key();
        let holds = self.random.random_bool(0.8);
        match self.model.modified(&key) {
            Some(modified) if holds => Require::At(key, modified),
            None if !holds => Require::At(key, self.any_revision()),
            Some(_) if self.random.random_bool(0.5) => Require::At(key, self.any_revision()),
            _ => Require::Absent(key),
        }
    }

    fn any_change(&mut self, key: Key) -> Change {
        if self.random.random_bool(0.3) {
            return Change::Delete(key);
        }
        let size = if self.random.random_bool(0.05) { 70_000 } else { self.random.random_range(0..200) };
        let byte: u8 = self.random.random();
        let lease = if self.random.random_bool(0.2) { self.any_lease() } else { None };
        Change::Put(key, Bytes::from(vec![byte; size]), lease)
    }

    fn any_lease(&mut self) -> Option<LeaseId> {
        if self.random.random_bool(0.1) {
            return Some(LeaseId(123_456_789));
        }
        let n_leases = self.model.leases.len();
        (n_leases > 0).then(|| self.model.leases[self.random.random_range(0..n_leases)])
    }

    fn any_key(&mut self) -> Key {
        let names = ["a", "b", "b/1", "b/2", "b0", "c/x/1", "c/x/2", "ü", "z\0", "z"];
        Key::new(format!("{PREFIX}{}", names[self.random.random_range(0..names.len())]))
    }

    fn any_range(&mut self) -> Range {
        match self.random.random_range(0..4) {
            0 => Range::prefix(PREFIX),
            1 => Range::prefix("/model/b/"),
            2 => Range::single(&self.any_key()),
            _ => Range { start: self.any_key(), end: self.any_key() },
        }
    }

    /// Mostly one that can be read.
    fn any_revision(&mut self) -> Revision {
        let first = *self.model.states.first_key_value().expect("there must be a state").0;
        let oldest = if self.random.random_bool(0.8) { self.model.compacted.max(first) } else { first };
        let newest = self.model.revision().get() + u64::from(self.random.random_bool(0.05)) * 1000;
        Revision::new(self.random.random_range(oldest.get()..=newest))
    }
}

/// Reads exactly `expected` from a watch. Within one revision the order does not matter.
async fn expect_events(events: &mut Events, mut expected: Vec<Event>, context: &str) {
    let mut seen = Vec::new();
    while seen.len() < expected.len() {
        let next = tokio::time::timeout(std::time::Duration::from_secs(20), events.next()).await;
        let next =
            next.unwrap_or_else(|_| panic!("{context}: {} events are missing", expected.len() - seen.len()));
        let batch = next.expect("a watch must not end without an error");
        seen.extend(batch.unwrap_or_else(|error| panic!("{context}: {error}")).events);
    }
    expected.sort_by_key(|it| (it.revision(), it.key().clone()));
    seen.sort_by_key(|it| (it.revision(), it.key().clone()));
    assert_eq!(seen, expected, "{context}");
}
