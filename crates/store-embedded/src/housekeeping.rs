//! What happens by itself: leases end, history is compacted, a full disk is looked at again. A task that holds the store
//! weakly and only hands requests to the writer.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::FutureExt;
use store::Revision;
use tokio::sync::oneshot;

use crate::{store::Shared, writer::Request};

/// How often a disk without space is looked at, and how long history is kept meanwhile.
const WHILE_FULL: Duration = Duration::from_secs(5);

/// Until the next attempt after a panic.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// Runs until the store is gone, and begins again after a panic: nothing but the store's own state is kept.
pub(crate) async fn keep_running(shared: Weak<Shared>, compaction_interval: Option<Duration>) {
    let run = || AssertUnwindSafe(run(shared.clone(), compaction_interval)).catch_unwind();
    while run().await.is_err() {
        tracing::error!("the store's housekeeping panicked, and begins again");
        let Some(clock) = shared.upgrade().map(|it| Arc::clone(&it.inner.clock)) else { return };
        clock.sleep(AFTER_PANIC).await;
    }
}

async fn run(shared: Weak<Shared>, compaction_interval: Option<Duration>) {
    let Some(mut compaction) = shared.upgrade().map(|it| Compaction::new(&it, compaction_interval)) else {
        return;
    };
    loop {
        // Held only while there is something to do, never while sleeping.
        let Some(strong) = shared.upgrade() else { return };
        let inner = Arc::clone(&strong.inner);
        expire(&strong).await;
        compaction.step(&strong).await;
        drop(strong);
        let is_full = inner.alarm.lock().is_some();
        let look = (is_full || inner.disk.is_recoverable())
            .then(|| inner.clock.monotonic().saturating_add(WHILE_FULL));
        let wake = if inner.disk.failure().is_some() {
            // Nothing ends on a disk that takes no writes.
            look
        } else {
            inner.state.read().next_deadline().into_iter().chain(compaction.due).chain(look).min()
        };
        let sleep = async {
            match wake {
                Some(at) => inner.clock.sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleep => {}
            () = inner.leases_changed.notified() => {}
        }
        if inner.is_closed() {
            return;
        }
        if look.is_some_and(|it| it <= inner.clock.monotonic())
            && let Some(strong) = shared.upgrade()
        {
            strong.requests.send(Request::Look).await.ok();
            compaction.hurry(&strong);
        }
    }
}

/// Has the writer end the leases whose time is over, and waits for it.
async fn expire(shared: &Shared) {
    let now = shared.inner.clock.monotonic();
    let deadline = shared.inner.state.read().next_deadline();
    if deadline.is_some_and(|it| it <= now) {
        let (done, is_done) = oneshot::channel();
        if shared.requests.send(Request::Expire(done)).await.is_ok() {
            // An error means that the writer is gone.
            is_done.await.ok();
        }
    }
}

struct Compaction {
    interval: Option<Duration>,
    due: Option<Duration>,
    /// The revision that was current when the interval began.
    mark: Revision,
}

impl Compaction {
    fn new(shared: &Shared, interval: Option<Duration>) -> Self {
        let due = interval.map(|it| shared.inner.clock.monotonic().saturating_add(it));
        Self { interval, due, mark: shared.inner.state.read().revision() }
    }

    /// Has history go now: there is no space for it. What is newer than the last look stays.
    fn hurry(&mut self, shared: &Shared) {
        if self.due.is_some() && shared.inner.alarm.lock().is_some() {
            self.due = Some(shared.inner.clock.monotonic());
        }
    }

    /// Once an interval: forgets what was history when the interval began.
    async fn step(&mut self, shared: &Shared) {
        let now = shared.inner.clock.monotonic();
        if self.due.is_none_or(|it| it > now) {
            return;
        }
        self.due = self.interval.map(|it| now.saturating_add(it));
        let (answer, answered) = oneshot::channel();
        let sent = shared.requests.send(Request::Compact(self.mark, answer)).await;
        if sent.is_ok()
            && let Ok(Err(error)) = answered.await
        {
            tracing::warn!(%error, "history could not be compacted");
        }
        self.mark = shared.inner.state.read().revision();
    }
}
