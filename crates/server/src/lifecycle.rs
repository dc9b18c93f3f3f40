//! The life of a server, from its first task to its last.
//!
//! ```text
//! Starting ──ready()──► Ready ──leave()──► Leaving ──drain()──► Draining ──stop()──► Stopped
//!
//! Starting   listening; /livez answers, /readyz does not pass yet
//! Ready      /readyz passes
//! Leaving    first SIGTERM or SIGINT: /readyz fails at once, everything is still served, so that load
//!            balancers can look away (--shutdown-delay-duration)
//! Draining   no new connections; idle ones are closed, HTTP/2 clients get GOAWAY; watches end cleanly;
//!            requests that have begun are finished, up to a deadline
//! Stopped    connections left over are cut, tasks are dropped; the caller closes the store
//! ```
//!
//! A second signal skips to the end: the process exits at once with code 1.
//!
//! Responsible for: the phase, who waits for it, and the tasks of the server. Phases only move forward.
//! Deliberately not here: sockets (`listen`), signals (the binary).

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio_util::{
    sync::{CancellationToken, WaitForCancellationFutureOwned},
    task::TaskTracker,
};

/// Where a server is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Not ready yet.
    Starting,
    /// Serving.
    Ready,
    /// Told to stop: says so, and still serves.
    Leaving,
    /// Takes nothing new and finishes what it has.
    Draining,
    /// Over.
    Stopped,
}

/// The life of one server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    phase: watch::Sender<Phase>,
    // Thousands of watches wait for this one, so it is a future of its own.
    draining: CancellationToken,
    requests: AtomicUsize,
    tasks: Tasks,
}

impl Lifecycle {
    /// A server that is starting.
    pub fn new() -> Self {
        let inner = Inner {
            phase: watch::Sender::new(Phase::Starting),
            draining: CancellationToken::new(),
            requests: AtomicUsize::new(0),
            tasks: Tasks::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Where the server is.
    pub fn phase(&self) -> Phase {
        *self.inner.phase.borrow()
    }

    /// Starting is over. Does nothing if the server has already been told to stop.
    pub fn ready(&self) {
        self.advance(Phase::Ready);
    }

    /// Readiness fails from now on; everything is still served.
    pub fn leave(&self) {
        self.advance(Phase::Leaving);
    }

    /// Nothing new from now on.
    pub fn drain(&self) {
        self.advance(Phase::Draining);
        self.inner.draining.cancel();
    }

    /// Drops every task that is left.
    pub fn stop(&self) {
        self.drain();
        self.advance(Phase::Stopped);
        self.inner.tasks.stop();
    }

    /// Ends when the server has got to `phase`, or past it.
    pub async fn reached(&self, phase: Phase) {
        let mut phases = self.inner.phase.subscribe();
        // The sender lives in `self`, so that waiting cannot fail.
        let _ = phases.wait_for(|it| *it >= phase).await;
    }

    /// Ends when the server drains: what every watch waits for beside its events.
    pub fn draining(&self) -> WaitForCancellationFutureOwned {
        self.inner.draining.clone().cancelled_owned()
    }

    /// Whether the server drains or has stopped.
    pub fn is_draining(&self) -> bool {
        self.inner.draining.is_cancelled()
    }

    /// Counts a request until the guard is dropped.
    pub fn request_started(&self) -> RequestGuard {
        self.inner.requests.fetch_add(1, Ordering::Relaxed);
        RequestGuard(Arc::clone(&self.inner))
    }

    /// How many requests are being worked on.
    pub fn requests(&self) -> usize {
        self.inner.requests.load(Ordering::Relaxed)
    }

    /// The tasks of this server.
    pub fn tasks(&self) -> &Tasks {
        &self.inner.tasks
    }

    fn advance(&self, to: Phase) {
        self.inner.phase.send_if_modified(|phase| {
            let forward = *phase < to;
            if forward {
                tracing::debug!(from = ?*phase, ?to, "phase");
                *phase = to;
            }
            forward
        });
    }
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self::new()
    }
}

/// One request that is being worked on.
#[derive(Debug)]
pub struct RequestGuard(Arc<Inner>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Everything that runs beside the requests. A task that panics is logged and the others go on; all are dropped
/// when the server stops.
#[derive(Clone, Debug)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    /// No tasks yet.
    pub fn new() -> Self {
        Self { tracker: TaskTracker::new(), stop: CancellationToken::new() }
    }

    /// Runs `task` until it ends or the server stops. The name is for logs.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        // Caught inside the task, so that nobody has to keep its handle to hear of a panic.
        let caught = std::panic::AssertUnwindSafe(task).catch_unwind();
        self.tracker.spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                ended = caught => {
                    if ended.is_err() {
                        tracing::error!(task = name, "a task panicked; the server goes on without it");
                    }
                }
            }
        });
    }

    /// How many run.
    pub fn len(&self) -> usize {
        self.tracker.len()
    }

    /// Whether none runs.
    pub fn is_empty(&self) -> bool {
        self.tracker.is_empty()
    }

    /// Drops all tasks at their next await.
    pub fn stop(&self) {
        self.tracker.close();
        self.stop.cancel();
    }

    /// Waits until all have ended, at most this long. Says whether they have.
    pub async fn ended(&self, within: Duration) -> bool {
        self.tracker.close();
        tokio::time::timeout(within, self.tracker.wait()).await.is_ok()
    }
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn phases_only_move_forward() {
        let lifecycle = Lifecycle::new();
        assert_eq!(lifecycle.phase(), Phase::Starting);
        lifecycle.leave();
        lifecycle.ready();
        assert_eq!(lifecycle.phase(), Phase::Leaving);
        assert!(!lifecycle.is_draining());
        lifecycle.stop();
        lifecycle.drain();
        assert_eq!(lifecycle.phase(), Phase::Stopped);
        lifecycle.reached(Phase::Ready).await;
    }

    #[tokio::test]
    async fn draining_wakes_those_who_wait() {
        let lifecycle = Lifecycle::new();
        let (early, late) = (lifecycle.draining(), lifecycle.clone());
        let waiter = tokio::spawn(early);
        lifecycle.drain();
        tokio::time::timeout(SOON, waiter).await.unwrap().unwrap();
        tokio::time::timeout(SOON, late.draining()).await.unwrap();
    }

    #[tokio::test]
    async fn requests_are_counted_while_their_guards_live() {
        let lifecycle = Lifecycle::new();
        let (one, two) = (lifecycle.request_started(), lifecycle.request_started());
        assert_eq!(lifecycle.requests(), 2);
        drop((one, two));
        assert_eq!(lifecycle.requests(), 0);
    }

    #[tokio::test]
    async fn a_stopped_server_drops_its_tasks_and_a_panic_ends_only_its_own() {
        let lifecycle = Lifecycle::new();
        let (held, mut seen) = tokio::sync::mpsc::channel::<()>(1);
        lifecycle.tasks().spawn("panics", async { panic!("on purpose") });
        lifecycle.tasks().spawn("never-ends", async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        assert!(!lifecycle.tasks().ended(Duration::from_millis(50)).await);
        lifecycle.stop();
        assert!(lifecycle.tasks().ended(SOON).await);
        assert!(seen.recv().await.is_none());
    }
}
