//! A store seen through a bad connection: pauses, delays and cuts, for one holder of a store and not for
//! the others. This is how tests pause one of several servers that run in one process.
//!
//! # Flow
//! Wrap the store once per holder with [`FaultStore::new`]; give the [`FaultStore`] to the holder and keep
//! the [`Faults`]. Calls pass a gate before they reach the store and again before they return, so a pause
//! also holds back answers, like a process that is stopped while its request is on the way.
//!
//! # Guarantees
//! - Paused calls go on when resumed; nothing is lost or repeated.
//! - While cut, reads and lease calls fail as unavailable and commits fail as
//!   [`CommitError::Unavailable`]; whether they happened depends on [`Cut`].
//! - Watches end as [`WatchError::Interrupted`] at a cut and stall during a pause.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use futures_util::StreamExt;
use tokio::sync::watch;

use crate::{
    Batch, CommitError, Entry, Events, Key, LeaseError, LeaseId, Leases, Page, Place, Portion, Range, ReadAt,
    ReadError, Revision, SharedClock, SharedStore, Store, Txn, WatchError,
};

/// What happens to commits that meet a cut. The holder sees the same error either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// They never reach the store.
    Unsent,
    /// They happen, and the answer is lost.
    AnswerLost,
}

/// A store whose holder can be paused, slowed down and cut off.
pub struct FaultStore {
    inner: SharedStore,
    clock: SharedClock,
    faults: Faults,
}

/// Steers one [`FaultStore`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Faults(Arc<watch::Sender<State>>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    is_paused: bool,
    pauses_at_commit: bool,
    delay: Duration,
    cut: Option<Cut>,
    cut_next_commit: Option<Cut>,
    /// How many cuts there have been: what was under way during a cut is lost even if it healed since.
    n_cuts: u64,
}

impl FaultStore {
    /// Wraps a store; delays run on `clock`.
    pub fn new(inner: SharedStore, clock: SharedClock) -> (Self, Faults) {
        let faults = Faults(Arc::new(watch::Sender::new(State::default())));
        (Self { inner, clock, faults: faults.clone() }, faults)
    }

    /// Runs a call between the two gates; `None` means that it was cut off.
    async fn pass<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        let before = self.gate().await;
        if before.cut.is_some() {
            return None;
        }
        let result = call.await;
        let after = self.faults.unpaused().await;
        (after.n_cuts == before.n_cuts).then_some(result)
    }

    async fn gate(&self) -> State {
        let state = self.faults.unpaused().await;
        if !state.delay.is_zero() {
            self.clock.sleep(state.delay).await;
        }
        self.faults.unpaused().await
    }
}

impl Faults {
    /// From now on calls hang and watches stall.
    pub fn pause(&self) {
        self.0.send_modify(|it| it.is_paused = true);
    }

    /// Pauses at the moment the next commit is about to be sent: everything the holder decided is decided.
    pub fn pause_at_next_commit(&self) {
        self.0.send_modify(|it| it.pauses_at_commit = true);
    }

    /// Returns once the holder is paused.
    pub async fn wait_until_paused(&self) {
        let mut state = self.0.subscribe();
        state.wait_for(|it| it.is_paused).await.expect("the sender must live: self holds it");
    }

    /// Lets everything that hangs go on.
    pub fn resume(&self) {
        self.0.send_modify(|it| {
            it.is_paused = false;
            it.pauses_at_commit = false;
        });
    }

    /// Every call and every batch of a watch takes this much longer.
    pub fn delay(&self, delay: Duration) {
        self.0.send_modify(|it| it.delay = delay);
    }

    /// Cuts the holder off.
    pub fn cut(&self, cut: Cut) {
        self.0.send_modify(|it| {
            it.cut = Some(cut);
            it.n_cuts += 1;
        });
    }

    /// Fails just the next commit.
    pub fn cut_next_commit(&self, cut: Cut) {
        self.0.send_modify(|it| it.cut_next_commit = Some(cut));
    }

    /// Ends a cut. Watches that it interrupted stay interrupted.
    pub fn heal(&self) {
        self.0.send_modify(|it| {
            it.cut = None;
            it.cut_next_commit = None;
        });
    }

    async fn unpaused(&self) -> State {
        let mut state = self.0.subscribe();
        *state.wait_for(|it| !it.is_paused).await.expect("the sender must live: self holds it")
    }

    /// Returns once there was a cut since `n_cuts` of them.
    async fn cut_since(&self, n_cuts: u64) {
        let mut state = self.0.subscribe();
        state.wait_for(|it| it.n_cuts != n_cuts).await.expect("the sender must live: self holds it");
    }

    /// Notes that a commit is about to be sent.
    fn reach_commit(&self) {
        self.0.send_if_modified(|it| {
            let pauses = std::mem::take(&mut it.pauses_at_commit);
            it.is_paused |= pauses;
            pauses
        });
    }

    /// The cut that meets a commit now; a cut for one commit is used up.
    fn take_commit_cut(&self) -> Option<Cut> {
        let mut cut = None;
        self.0.send_if_modified(|it| {
            let next = it.cut_next_commit.take();
            cut = it.cut.or(next);
            next.is_some()
        });
        cut
    }
}

impl fmt::Debug for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultStore({:?})", *self.faults.0.borrow())
    }
}

fn why() -> String {
    "cut off by a test".into()
}

fn unreadable() -> ReadError {
    ReadError::Unavailable(why())
}

impl Store for FaultStore {
    async fn current(&self) -> Result<Revision, ReadError> {
        self.pass(self.inner.current()).await.unwrap_or_else(|| Err(unreadable()))
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, ReadError> {
        self.pass(self.inner.get(key)).await.unwrap_or_else(|| Err(unreadable()))
    }

    async fn list(&self, range: &Range, at: ReadAt, limit: usize) -> Result<Page, ReadError> {
        self.pass(self.inner.list(range, at, limit)).await.unwrap_or_else(|| Err(unreadable()))
    }

    async fn scan(
        &self,
        range: &Range,
        at: ReadAt,
        from: Option<Place>,
        limit: usize,
    ) -> Result<Portion, ReadError> {
        self.pass(self.inner.scan(range, at, from, limit)).await.unwrap_or_else(|| Err(unreadable()))
    }

    async fn watch(&self, range: &Range, after: Revision) -> Result<Events, WatchError> {
        let n_cuts = self.faults.0.borrow().n_cuts;
        let opened = self.pass(self.inner.watch(range, after)).await;
        let events = opened.unwrap_or_else(|| Err(WatchError::Interrupted(why())))?;
        let watch = Watch {
            events,
            faults: self.faults.clone(),
            clock: Arc::clone(&self.clock),
            n_cuts,
            ended: false,
        };
        Ok(Box::pin(futures_util::stream::unfold(watch, Watch::next)))
    }

    async fn commit(&self, txn: Txn) -> Result<Revision, CommitError> {
        self.faults.reach_commit();
        let before = self.gate().await;
        let lost = || Err(CommitError::Unavailable(why()));
        let cut = self.faults.take_commit_cut();
        if cut == Some(Cut::Unsent) {
            return lost();
        }
        let result = self.inner.commit(txn).await;
        let after = self.faults.unpaused().await;
        if cut.is_some() || after.n_cuts != before.n_cuts { lost() } else { result }
    }

    async fn compact(&self, before: Revision) -> Result<(), CommitError> {
        self.pass(self.inner.compact(before)).await.unwrap_or_else(|| Err(CommitError::Unavailable(why())))
    }
}

impl Leases for FaultStore {
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, LeaseError> {
        self.pass(self.inner.grant(ttl)).await.unwrap_or_else(|| Err(LeaseError::Unavailable(why())))
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), LeaseError> {
        self.pass(self.inner.renew(lease)).await.unwrap_or_else(|| Err(LeaseError::Unavailable(why())))
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), LeaseError> {
        self.pass(self.inner.revoke(lease)).await.unwrap_or_else(|| Err(LeaseError::Unavailable(why())))
    }
}

/// One watch through the bad connection.
struct Watch {
    events: Events,
    faults: Faults,
    clock: SharedClock,
    n_cuts: u64,
    ended: bool,
}

impl Watch {
    async fn next(mut self) -> Option<(Result<Batch, WatchError>, Self)> {
        if self.ended {
            return None;
        }
        let batch = tokio::select! {
            biased;
            () = self.faults.cut_since(self.n_cuts) => None,
            batch = self.events.next() => batch,
        };
        let delay = self.faults.0.borrow().delay;
        if !delay.is_zero() {
            self.clock.sleep(delay).await;
        }
        let state = self.faults.unpaused().await;
        let batch = batch.filter(|_| state.n_cuts == self.n_cuts);
        let batch = batch.unwrap_or_else(|| Err(WatchError::Interrupted(why())));
        self.ended = batch.is_err();
        Some((batch, self))
    }
}
