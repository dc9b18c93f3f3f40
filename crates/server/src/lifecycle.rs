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
use tokio::{
    runtime::{Handle, Runtime},
    sync::watch,
};
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

    /// The same with a thread for tasks that must not wait for requests.
    pub fn with(apart: &Apart) -> Self {
        let mut inner = Self::new().inner;
        if let Some(inner) = Arc::get_mut(&mut inner) {
            inner.tasks.apart = apart.handle();
        }
        Self { inner }
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

/// Everything that runs beside the requests; all of it is dropped when the server stops. What a server cannot do without
/// is supervised: if it panics, the server has to stop ([`Tasks::broken`]). Other tasks are about one connection or
/// one request, and end alone.
#[derive(Clone, Debug)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
    /// Why the server has to stop.
    broken: watch::Sender<Option<String>>,
    /// Where those run that must not wait for requests, if there is such a place.
    apart: Option<Handle>,
}

/// A thread for tasks that must not wait for requests, however busy the others are. They end with it.
#[derive(Debug)]
pub struct Apart(Option<Runtime>);

impl Apart {
    /// Starts the thread.
    pub fn start() -> std::io::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).thread_name("convoy-lease").enable_all().build().map(|it| Self(Some(it)))
    }

    fn handle(&self) -> Option<Handle> {
        self.0.as_ref().map(|it| it.handle().clone())
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Waiting for it is not possible where tasks run.
            runtime.shutdown_background();
        }
    }
}

impl Tasks {
    /// No tasks yet.
    pub fn new() -> Self {
        let (tracker, stop) = (TaskTracker::new(), CancellationToken::new());
        Self { tracker, stop, broken: watch::Sender::new(None), apart: None }
    }

    /// Runs a task about one connection or one request until it ends or the server stops. If it panics, only it ends.
    /// The name is for logs.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.run(None, task, move || {
            tracing::error!(task = name, "a task panicked; what it was about ends with it");
        });
    }

    /// Runs a task that the server cannot do without, until it ends or the server stops. If it panics, the server has to
    /// stop: whatever it did is half done, and nobody would do the rest.
    pub fn supervise(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.supervise_on(None, name, task);
    }

    /// The same for a task that must not wait for requests.
    pub fn supervise_apart(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.supervise_on(self.apart.as_ref(), name, task);
    }

    fn supervise_on(
        &self,
        runtime: Option<&Handle>,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let guard = self.guard(name);
        self.run(
            runtime,
            async move {
                let _guard = guard;
                task.await;
            },
            || {},
        );
    }

    /// The same for a task that runs elsewhere: it keeps the guard for as long as it runs.
    pub fn guard(&self, name: &'static str) -> TaskGuard {
        TaskGuard { name, broken: self.broken.clone() }
    }

    fn run(
        &self,
        runtime: Option<&Handle>,
        task: impl Future<Output = ()> + Send + 'static,
        panicked: impl FnOnce() + Send + 'static,
    ) {
        let stop = self.stop.clone();
        // Caught inside the task, so that nobody has to keep its handle to hear of a panic.
        let caught = std::panic::AssertUnwindSafe(task).catch_unwind();
        let task = async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                ended = caught => if ended.is_err() {
                    panicked();
                },
            }
        };
        match runtime {
            Some(runtime) => self.tracker.spawn_on(task, runtime),
            None => self.tracker.spawn(task),
        };
    }

    /// Ends when a task panicked that the server cannot do without, and says which.
    pub async fn broken(&self) -> String {
        let mut broken = self.broken.subscribe();
        let why = broken.wait_for(Option::is_some).await.ok().and_then(|it| it.clone());
        match why {
            Some(why) => why,
            // The sender lives in `self`.
            None => std::future::pending().await,
        }
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

/// Held by a task that the server cannot do without.
#[derive(Debug)]
pub struct TaskGuard {
    name: &'static str,
    broken: watch::Sender<Option<String>>,
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        let name = self.name;
        if !std::thread::panicking() {
            return;
        }
        tracing::error!(task = name, "a task panicked; the server stops");
        self.broken.send_if_modified(|it| {
            let is_first = it.is_none();
            it.get_or_insert_with(|| format!("the task {name:?} panicked; see the log"));
            is_first
        });
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

    /// Leases were kept by the threads that serve requests: with those busy, a server lost its membership.
    #[tokio::test]
    async fn tasks_that_run_apart_wait_for_no_request() {
        let apart = Apart::start().unwrap();
        let lifecycle = Lifecycle::with(&apart);
        let (told, hears) = std::sync::mpsc::channel();
        lifecycle.tasks().supervise_apart("keeps a lease", async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let _ = told.send(());
        });
        // The only thread of this runtime does nothing else meanwhile.
        hears.recv_timeout(SOON).unwrap();
    }

    #[tokio::test]
    async fn a_server_stops_if_a_task_panics_that_it_cannot_do_without() {
        let lifecycle = Lifecycle::new();
        lifecycle.tasks().spawn("of one connection", async { panic!("on purpose") });
        lifecycle.tasks().supervise("ends in good order", async {});
        let broken = lifecycle.tasks().broken();
        assert!(tokio::time::timeout(Duration::from_millis(50), broken).await.is_err());
        lifecycle.tasks().supervise("membership", async { panic!("on purpose") });
        let why = tokio::time::timeout(SOON, lifecycle.tasks().broken()).await.unwrap();
        assert!(why.contains("membership"), "{why}");
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
