//! What happens by itself: leases end, history is compacted. A task that holds the store weakly and only
//! hands requests to the writer.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use store::Revision;
use tokio::sync::oneshot;

use crate::{store::Shared, writer::Request};

/// Runs until the store is gone.
pub(crate) async fn run(shared: Weak<Shared>, compaction_interval: Option<Duration>) {
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
        let wake = if inner.disk.failure().is_some() {
            // Nothing ends on a disk that takes no writes.
            None
        } else {
            inner.state.read().next_deadline().into_iter().chain(compaction.due).min()
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
