//! The reference store: everything in memory, nothing survives the process. Tests of the layers above
//! use it, and every other store is compared with it.
//!
//! The state and its rules are in `memory/state.rs`, free of tasks and locks; here is what connects
//! them with callers, watchers and the clock. History is kept until somebody compacts it.

mod state;

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};

use crate::{
    Batch, CommitError, Entry, Events, Key, LeaseError, LeaseId, Leases, Page, Range, ReadAt, ReadError,
    Revision, SharedClock, Store, Txn, WatchError,
};
use state::State;

/// A store that lives in this process. Cheap to clone; all clones are the same store.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

impl MemoryStore {
    /// An empty store whose leases run on `clock`.
    pub fn new(clock: SharedClock) -> Self {
        let shared = Shared {
            state: Mutex::new(State::default()),
            changed: watch::Sender::new(Revision::ZERO),
            clock,
            leases_changed: Arc::new(Notify::new()),
        };
        Self { shared: Arc::new(shared) }
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryStore")
    }
}

impl Store for MemoryStore {
    async fn current(&self) -> Result<Revision, ReadError> {
        Ok(self.shared.state().revision())
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, ReadError> {
        Ok(self.shared.state().get(key))
    }

    async fn list(&self, range: &Range, at: ReadAt, limit: usize) -> Result<Page, ReadError> {
        self.shared.state().list(range, at, limit)
    }

    async fn watch(&self, range: &Range, after: Revision) -> Result<Events, WatchError> {
        self.shared.state().check_watch(after)?;
        let cursor = Cursor {
            shared: Arc::clone(&self.shared),
            changed: self.shared.changed.subscribe(),
            range: range.clone(),
            after,
            ended: false,
        };
        Ok(Box::pin(futures_util::stream::unfold(cursor, Cursor::next)))
    }

    async fn commit(&self, txn: Txn) -> Result<Revision, CommitError> {
        self.shared.change(|state| state.commit(txn))
    }

    async fn compact(&self, before: Revision) -> Result<(), CommitError> {
        self.shared.state().compact(before)
    }
}

impl Leases for MemoryStore {
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, LeaseError> {
        let (lease, is_first) = {
            let mut state = self.shared.state();
            let is_first = state.claim_expiry_task();
            (state.grant(ttl, self.shared.clock.monotonic()), is_first)
        };
        if is_first {
            tokio::spawn(expire_leases(Arc::downgrade(&self.shared)));
        }
        self.shared.leases_changed.notify_one();
        Ok(lease)
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), LeaseError> {
        let now = self.shared.clock.monotonic();
        self.shared.state().renew(lease, now)
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), LeaseError> {
        self.shared.change(|state| state.revoke(lease))
    }
}

struct Shared {
    state: Mutex<State>,
    /// Tells watchers to look at the log again.
    changed: watch::Sender<Revision>,
    clock: SharedClock,
    /// Tells the expiry task that the next deadline may be another one.
    leases_changed: Arc<Notify>,
}

impl Shared {
    /// The state, without leases whose time is over.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        if state.expire(self.clock.monotonic()) {
            self.changed.send_replace(state.revision());
        }
        state
    }

    /// Changes the state and wakes the watchers.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let before = state.revision();
        let result = change(&mut state);
        if state.revision() != before {
            self.changed.send_replace(state.revision());
        }
        result
    }
}

/// One watch: a position in the log, nothing buffered.
struct Cursor {
    shared: Arc<Shared>,
    changed: watch::Receiver<Revision>,
    range: Range,
    after: Revision,
    ended: bool,
}

impl Cursor {
    async fn next(mut self) -> Option<(Result<Batch, WatchError>, Self)> {
        while !self.ended {
            // Marked before the look, so that a change right after it is not slept through.
            self.changed.mark_unchanged();
            let looked = self.shared.state().events(&self.range, self.after);
            match looked {
                Ok(Some(batch)) => {
                    self.after = batch.revision;
                    return Some((Ok(batch), self));
                }
                Ok(None) => {
                    let alive = self.changed.changed().await;
                    alive.expect("the sender must live: the cursor holds the store");
                }
                Err(error) => {
                    self.ended = true;
                    return Some((Err(error), self));
                }
            }
        }
        None
    }
}

/// Removes the keys of leases whose time is over even when nobody calls the store. Ends with the store.
async fn expire_leases(shared: Weak<Shared>) {
    loop {
        let Some(strong) = shared.upgrade() else { return };
        let deadline = strong.state().next_deadline();
        let leases_changed = Arc::clone(&strong.leases_changed);
        let sleep = deadline.map(|it| strong.clock.sleep_until(it));
        drop(strong);
        match sleep {
            Some(sleep) => tokio::select! {
                () = sleep => {}
                () = leases_changed.notified() => {}
            },
            None => leases_changed.notified().await,
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The expiry task holds the store weakly and must notice.
        self.leases_changed.notify_one();
    }
}
