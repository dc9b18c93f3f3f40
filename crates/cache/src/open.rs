//! Loads a collection beside the one that answers, while the feed goes on.
//!
//! # Flow
//! The new collection is fed from the moment at which its load begins. Then it takes in what was there: from the old
//! collection of its prefix, if there is one, else from the store, portion by portion, each as of whatever is newest.
//! Of every key the newest state counts, wherever it came from. Once the feed has come as far as the newest portion the
//! collection is complete, and takes the place of the old one at a moment that its owner chooses ([`Swap`]).
//!
//! # Guarantees
//! - The feed never waits for a load, and a load for the feed only at its end.
//! - No portion must be of the same revision as another, so that a load goes on however often history is compacted.
//! - A load has no time limit: a portion that does not come is asked for again, and what was loaded stays loaded.

use std::{fmt, sync::Arc, time::Duration};

use store::{Range, ReadAt, ReadError, Revision, SharedClock, SharedStore, Store};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    AddError, CacheConfig, Collection, CollectionSpec, Snapshot, collection::Prepared, feed::timed_out,
    progress::Progress, routes::Routes,
};

/// So many collections are loaded at the same time; others wait for their turn.
pub(crate) const MAX_LOADS: usize = 8;

/// So many items are taken in at once.
const CHUNK: usize = 256;

/// A portion is as large as this or `config.page` entries, whichever is more, but not more than ten times that many.
const PORTION_BYTES: usize = 2 << 20;

/// What came of a load, once it is over.
type Outcome = Option<Result<Arc<Collection>, AddError>>;

/// A collection that is being loaded. Whoever forgets this does not end the load.
#[derive(Clone, Debug)]
pub struct Opening(watch::Receiver<Outcome>);

impl Opening {
    /// Waits until the collection answers, or will not.
    pub async fn wait(mut self) -> Result<Arc<Collection>, AddError> {
        match self.0.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or(Err(AddError::Unwanted)),
            Err(_) => Err(AddError::Unwanted),
        }
    }

    pub(crate) fn done(collection: Arc<Collection>) -> Self {
        Self(watch::Sender::new(Some(Ok(collection))).subscribe())
    }
}

/// A collection that is complete and about to take the place of another.
pub struct Swap {
    collection: Arc<Collection>,
    routes: Arc<Routes>,
    cancel: CancellationToken,
}

impl Swap {
    /// From now on the collection answers, and the one before it does not. Nothing if it is not wanted any more.
    pub fn finish(self) -> Option<Arc<Collection>> {
        let is_done = self.routes.promote(&self.collection, || !self.cancel.is_cancelled());
        is_done.then_some(self.collection)
    }
}

impl fmt::Debug for Swap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Swap({:?})", self.collection)
    }
}

/// A load that is under way.
pub(crate) struct Load {
    spec: CollectionSpec,
    order: Revision,
    cancel: CancellationToken,
    outcome: watch::Receiver<Outcome>,
}

impl Load {
    pub(crate) fn new(spec: CollectionSpec, order: Revision) -> (Self, Loader) {
        let (sender, outcome) = watch::channel(None);
        let cancel = CancellationToken::new();
        let loader = Loader { cancel: cancel.clone(), outcome: sender };
        (Self { spec, order, cancel, outcome }, loader)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.outcome.borrow().is_some() || self.outcome.has_changed().is_err()
    }

    /// Whether somebody who wants this collection, in the order of definitions, is served by this load.
    pub(crate) fn serves(&self, spec: &CollectionSpec, order: Revision) -> bool {
        self.order > order || self.spec == *spec
    }

    pub(crate) fn opening(&self) -> Opening {
        Opening(self.outcome.clone())
    }

    pub(crate) fn cancel(&self) {
        self.cancel.cancel();
    }
}

/// The task's end of a [`Load`].
pub(crate) struct Loader {
    cancel: CancellationToken,
    outcome: watch::Sender<Outcome>,
}

/// What a load works with.
pub(crate) struct Around {
    pub(crate) store: SharedStore,
    pub(crate) clock: SharedClock,
    pub(crate) config: Arc<CacheConfig>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) turns: Arc<Semaphore>,
}

impl Around {
    /// Loads a collection and hands it over. Ends when that is done, or nobody wants it any more.
    pub(crate) async fn run(self, loader: Loader, spec: CollectionSpec, swap: impl FnOnce(Swap)) {
        let Loader { cancel, outcome } = loader;
        let collection = Arc::new(Collection::new(spec, &self.config, Arc::clone(&self.progress)));
        let unwanted = Unwanted { collection: Arc::clone(&collection), routes: Arc::clone(&self.routes) };
        let loaded = cancel.run_until_cancelled(self.load(&collection)).await;
        let loaded = loaded.unwrap_or(Err(AddError::Unwanted)).and_then(|()| {
            let routes = Arc::clone(&self.routes);
            swap(Swap { collection: Arc::clone(&collection), routes, cancel: cancel.clone() });
            if collection.is_open() { Ok(Arc::clone(&collection)) } else { Err(AddError::Unwanted) }
        });
        // Does nothing to a collection that answers.
        drop(unwanted);
        let prefix = &collection.spec().prefix;
        match &loaded {
            Ok(_) => info!(prefix, n_keys = collection.n_keys(), "a collection was loaded"),
            Err(error) => info!(prefix, %error, "a collection was not loaded"),
        }
        outcome.send_replace(Some(loaded));
    }

    async fn load(&self, collection: &Arc<Collection>) -> Result<(), AddError> {
        let _turn = self.turns.acquire().await.map_err(|_| AddError::Unwanted)?;
        self.routes.begin(collection);
        let newest = match collection.source() {
            Some(source) => take_over(collection, &source).await,
            None => self.read(collection).await?,
        };
        while self.progress.wait_for(newest, self.config.timeout).await.is_err() {
            self.check_live()?;
            warn!(prefix = collection.spec().prefix, "a collection waits for the watch of the store");
        }
        Ok(())
    }

    /// Reads everything from the store; the answer is the newest revision that was read.
    async fn read(&self, collection: &Collection) -> Result<Revision, AddError> {
        let whole = Range::prefix(&collection.spec().prefix);
        let (mut rest, mut newest) = (whole.clone(), Revision::ZERO);
        let (mut limit, mut pause) = (self.config.page.max(1), self.config.backoff);
        loop {
            let page = match self.page(collection, &rest, limit).await {
                Ok(page) => page,
                Err(error) => {
                    self.check_live()?;
                    let prefix = &collection.spec().prefix;
                    warn!(prefix, %error, n_keys = collection.n_keys(), "a collection is not loaded yet: reading on soon");
                    self.clock.sleep(pause).await;
                    pause = (pause * 2).min(self.config.backoff_max);
                    continue;
                }
            };
            pause = self.config.backoff;
            newest = newest.max(page.revision);
            let last = page.entries.last().map(|it| it.key.clone());
            let n_bytes: usize = page.entries.iter().map(|it| it.value.len()).sum();
            limit = next_limit(self.config.page, page.entries.len(), n_bytes);
            for entries in page.entries.chunks(CHUNK) {
                let prepared = entries.iter().map(|it| Prepared {
                    key: it.key.clone(),
                    revision: it.modified,
                    value: Some(collection.read(it)),
                });
                if !collection.take(prepared.collect()) {
                    // The feed has listed everything anew, this collection with it.
                    return Ok(newest);
                }
                // Reading values takes time; other tasks get their turn.
                tokio::task::yield_now().await;
            }
            match last {
                Some(last) if page.remaining > 0 => rest = whole.after(&last),
                _ => return Ok(newest),
            }
        }
    }

    async fn page(
        &self,
        collection: &Collection,
        rest: &Range,
        limit: usize,
    ) -> Result<store::Page, ReadError> {
        collection.expect_portion();
        let seen = self.progress.applied();
        let page = tokio::select! {
            page = self.store.list(rest, ReadAt::Latest, limit) => page?,
            () = self.clock.sleep(self.config.timeout) => return Err(timed_out(self.config.timeout)),
        };
        if page.revision < seen {
            // What is known to be gone could stand in it.
            let why = format!("the store answered as of revision {}, after {seen}", page.revision);
            return Err(ReadError::Unavailable(why));
        }
        Ok(page)
    }

    fn check_live(&self) -> Result<(), AddError> {
        self.progress.health(Duration::MAX).map_err(AddError::NotLive)
    }
}

/// Takes everything from another collection; the answer is how far that is.
async fn take_over(collection: &Collection, source: &Snapshot) -> Revision {
    let mut prepared = Vec::with_capacity(CHUNK);
    let unreadable = source.unreadable("").map(|(key, it)| Prepared {
        key: key.clone(),
        revision: it.revision,
        value: Some(Err(it.why.clone())),
    });
    let readable = source.readable("", None).map(|it| Prepared {
        key: it.key().clone(),
        revision: it.revision(),
        value: Some(collection.reread(it)),
    });
    for item in unreadable.chain(readable) {
        prepared.push(item);
        if prepared.len() == CHUNK {
            if !collection.take(std::mem::take(&mut prepared)) {
                return source.revision();
            }
            tokio::task::yield_now().await;
        }
    }
    collection.take(prepared);
    source.revision()
}

/// How many entries are asked for next, after so many of so many bytes.
fn next_limit(page: usize, n_entries: usize, n_bytes: usize) -> usize {
    let page = page.max(1);
    let fitting = PORTION_BYTES * n_entries.max(1) / n_bytes.max(1);
    fitting.clamp(page, page * 10)
}

/// Ends what was begun, unless it has become the collection that answers.
struct Unwanted {
    collection: Arc<Collection>,
    routes: Arc<Routes>,
}

impl Drop for Unwanted {
    fn drop(&mut self) {
        self.routes.abandon(&self.collection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_grow_with_small_entries_and_stay_bounded() {
        assert_eq!(next_limit(500, 500, 500 * 1024), 2048);
        assert_eq!(next_limit(500, 500, 500), 5000);
        assert_eq!(next_limit(500, 3, 3 << 20), 500);
        assert_eq!(next_limit(500, 0, 0), 5000);
        assert_eq!(next_limit(0, 0, 0), 10);
    }
}
