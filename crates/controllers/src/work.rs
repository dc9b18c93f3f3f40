//! The loop under every controller: names come in, passes go out.
//!
//! # Flow
//! A stream says which objects may need a look. Each gets a worker that runs passes until one says that nothing is
//! left to do before the next change. A change during a pass or a pause leads to another pass.
//!
//! # Guarantees
//! - At most one pass per object at a time, and at most so many per controller as it says.
//! - An object that keeps failing is tried again with growing pauses and never holds up another: a pass is bounded in
//!   time, and a pause takes no slot.
//! - A pass that panics counts as failed.

use std::{
    collections::{HashMap, hash_map::Entry},
    panic::AssertUnwindSafe,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures_util::{FutureExt, Stream, StreamExt, stream::FuturesUnordered};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::backoff::Backoff;
use crate::error::{Chain, Error};
use crate::observe::Counted;

/// When to look again after a pass that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing to do until something changes.
    OnChange,
    /// Something is under way that no change will tell of.
    After(Duration),
}

/// Passes of most controllers that may run at the same time.
pub(crate) const AT_ONCE: usize = 4;

/// A pass that takes longer has failed; what it achieved stays.
const PASS_LIMIT: Duration = Duration::from_secs(180);

/// Between two passes over the same object there is at least this.
const LEAST_PAUSE: Duration = Duration::from_millis(50);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LAST_PAUSE: Duration = Duration::from_secs(30);

/// Works off what `triggers` names, `at_once` at the same time, until that stream ends.
pub(crate) async fn work<R, P>(
    counted: Counted,
    at_once: usize,
    triggers: impl Stream<Item = String>,
    reconcile: R,
) where
    R: Fn(String) -> P,
    P: Future<Output = Result<Next, Error>>,
{
    let slots = Semaphore::new(at_once);
    let mut triggers = pin!(triggers);
    let mut active: HashMap<String, Arc<Notify>> = HashMap::new();
    let mut workers = FuturesUnordered::new();
    loop {
        tokio::select! {
            trigger = triggers.next() => match trigger.map(|it| active.entry(it)) {
                None => return,
                Some(Entry::Occupied(worker)) => worker.get().notify_one(),
                Some(Entry::Vacant(entry)) => {
                    let worker =
                        Worker { counted: &counted, object: entry.key().clone(), changed: Arc::default() };
                    entry.insert(Arc::clone(&worker.changed));
                    workers.push(worker.run(&slots, &reconcile));
                }
            },
            // Nothing runs between the last look at `changed` and this, so no change is lost.
            Some(object) = workers.next(), if !workers.is_empty() => {
                active.remove(&object);
            }
        }
    }
}

struct Worker<'a> {
    counted: &'a Counted,
    object: String,
    changed: Arc<Notify>,
}

impl Worker<'_> {
    /// Runs passes until nothing is left to do; returns what it worked on.
    async fn run<R, P>(self, slots: &Semaphore, reconcile: &R) -> String
    where
        R: Fn(String) -> P,
        P: Future<Output = Result<Next, Error>>,
    {
        let mut backoff = Backoff::new(FIRST_PAUSE, LAST_PAUSE);
        loop {
            let pause = match self.pass(slots, reconcile).await {
                Ok(Next::OnChange) if !self.has_changed() => return self.object,
                Ok(Next::OnChange) => LEAST_PAUSE,
                Ok(Next::After(pause)) => {
                    backoff.reset();
                    pause
                }
                Err(error) => {
                    let pause = backoff.pause();
                    self.counted.retried();
                    self.log(&error, pause);
                    pause
                }
            };
            tokio::time::sleep(pause.min(LEAST_PAUSE)).await;
            // A change ends the pause early.
            let rest = pause.saturating_sub(LEAST_PAUSE);
            let _ = tokio::time::timeout(rest, self.changed.notified()).await;
        }
    }

    async fn pass<R, P>(&self, slots: &Semaphore, reconcile: &R) -> Result<Next, Error>
    where
        R: Fn(String) -> P,
        P: Future<Output = Result<Next, Error>>,
    {
        let (queued, since) = (self.counted.queue(), Instant::now());
        let _slot = slots.acquire().await.expect("the semaphore must stay open");
        drop(queued);
        let begin = Instant::now();
        self.counted.begins(begin - since);
        // What changed up to here is seen by this pass.
        self.has_changed();
        // Boxed: of the many that wait for a slot, none should take the room of a whole pass.
        let pass = tokio::time::timeout(PASS_LIMIT, Box::pin(reconcile(self.object.clone())));
        let result = match AssertUnwindSafe(pass).catch_unwind().await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Error::TooLong(PASS_LIMIT)),
            Err(_) => Err(Error::Panicked),
        };
        self.counted.ended(begin.elapsed(), result.is_err());
        result
    }

    /// Whether there was a change since this was last asked.
    fn has_changed(&self) -> bool {
        self.changed.notified().now_or_never().is_some()
    }

    fn log(&self, error: &Error, pause: Duration) {
        let Self { counted: Counted { controller, .. }, object, .. } = self;
        // Two writers at once is everyday life.
        if error.is(409) && !error.is_unserved_content() {
            debug!(controller, object, error = %Chain(error), "a pass met a conflict");
        } else {
            warn!(controller, object, error = %Chain(error), ?pause, "a pass failed and will be repeated");
        }
    }
}

#[cfg(test)]
mod tests;
