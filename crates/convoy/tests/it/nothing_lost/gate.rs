//! A store that holds back what a test chooses, at the last moment: everything about it is decided, and it arrives later.

use std::{fmt, sync::Arc, time::Duration};

use store::{
    Change, CommitError, Entry, Events, Key, LeaseError, LeaseId, Leases, Page, Place, Portion, Range,
    ReadAt, ReadError, Revision, SharedStore, Store, Txn, WatchError,
};
use tokio::sync::watch;

/// One server's way to its store.
pub struct Gated {
    inner: SharedStore,
    gate: Gate,
}

/// Opens and shuts it. Cheap to clone.
#[derive(Clone)]
pub struct Gate(Arc<watch::Sender<State>>);

type Rule = Arc<dyn Fn(&Change) -> bool + Send + Sync>;

#[derive(Clone, Default)]
struct State {
    rule: Option<Rule>,
    n_held: usize,
}

impl Gated {
    pub fn over(inner: SharedStore) -> (SharedStore, Gate) {
        let gate = Gate(Arc::new(watch::Sender::new(State::default())));
        (SharedStore::new(Self { inner, gate: gate.clone() }), gate)
    }
}

impl Gate {
    /// From now on transactions with such a change wait.
    pub fn hold(&self, rule: impl Fn(&Change) -> bool + Send + Sync + 'static) {
        self.0.send_modify(|it| it.rule = Some(Arc::new(rule)));
    }

    /// From now on transactions that delete something below this prefix wait.
    pub fn hold_deletes(&self, prefix: &'static str) {
        self.hold(move |it| matches!(it, Change::Delete(key) if key.as_str().starts_with(prefix)));
    }

    /// From now on transactions that put something below this prefix wait.
    pub fn hold_puts(&self, prefix: &'static str) {
        self.hold(move |it| matches!(it, Change::Put(key, ..) if key.as_str().starts_with(prefix)));
    }

    /// Returns once so many wait.
    pub async fn wait_until_held(&self, n: usize) {
        let mut state = self.0.subscribe();
        let held = tokio::time::timeout(crate::fleet::ground::PATIENCE, state.wait_for(|it| it.n_held >= n));
        held.await.expect("somebody must come to the gate").expect("the sender must live: self holds it");
    }

    /// Everybody passes.
    pub fn open(&self) {
        self.0.send_modify(|it| it.rule = None);
    }

    async fn pass(&self, txn: &Txn) {
        let mut state = self.0.subscribe();
        let is_held = |it: &State| it.rule.as_ref().is_some_and(|rule| txn.changes.iter().any(|it| rule(it)));
        if !is_held(&state.borrow_and_update()) {
            return;
        }
        self.0.send_modify(|it| it.n_held += 1);
        let _leaving = Leaving(self);
        state.wait_for(|it| !is_held(it)).await.expect("the sender must live: self holds it");
    }
}

/// Counts also those who give up.
struct Leaving<'a>(&'a Gate);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|it| it.n_held -= 1);
    }
}

impl fmt::Debug for Gated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gated")
    }
}

impl Store for Gated {
    async fn current(&self) -> Result<Revision, ReadError> {
        self.inner.current().await
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, ReadError> {
        self.inner.get(key).await
    }

    async fn list(&self, range: &Range, at: ReadAt, limit: usize) -> Result<Page, ReadError> {
        self.inner.list(range, at, limit).await
    }

    async fn scan(
        &self,
        range: &Range,
        at: ReadAt,
        from: Option<Place>,
        limit: usize,
    ) -> Result<Portion, ReadError> {
        self.inner.scan(range, at, from, limit).await
    }

    async fn watch(&self, range: &Range, after: Revision) -> Result<Events, WatchError> {
        self.inner.watch(range, after).await
    }

    async fn commit(&self, txn: Txn) -> Result<Revision, CommitError> {
        self.gate.pass(&txn).await;
        self.inner.commit(txn).await
    }

    async fn compact(&self, before: Revision) -> Result<(), CommitError> {
        self.inner.compact(before).await
    }
}

impl Leases for Gated {
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, LeaseError> {
        self.inner.grant(ttl).await
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), LeaseError> {
        self.inner.renew(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), LeaseError> {
        self.inner.revoke(lease).await
    }
}
