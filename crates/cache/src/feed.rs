//! The one task that follows the store's watch and writes into the collections.
//!
//! # Flow
//! Watch from the last applied revision; apply what comes; after an interruption pause and watch again
//! from there; after a compaction list everything anew, which ends all watchers. A store whose revision
//! went back ends the feed: nothing in memory can be trusted then.
//!
//! Collections come and go between two chunks of events (see [`crate::routes`]), and are loaded beside (see
//! [`crate::open`]): the feed waits for neither.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use store::{Batch, Event, Events, Range, ReadError, SharedClock, SharedStore, Store, WatchError};
use tracing::{error, warn};

use crate::{
    CacheConfig, Collection,
    collection::Prepared,
    load::{Loaded, load},
    progress::Progress,
    routes::Routes,
};

/// At least this many events are applied before readers see any of them, unless there are no more.
const CHUNK: usize = 256;

/// How often everything is listed anew because collections came or went meanwhile.
const MAX_RELOADS: usize = 5;

/// The task. When it ends, also by a panic or before it began, readers and watchers are told.
pub(crate) struct Feed {
    pub(crate) store: SharedStore,
    pub(crate) clock: SharedClock,
    pub(crate) config: CacheConfig,
    pub(crate) routes: Arc<Routes>,
    pub(crate) progress: Arc<Progress>,
}

impl Feed {
    /// Runs until the cache has failed.
    pub(crate) async fn run(mut self) {
        let progress = Arc::clone(&self.progress);
        tokio::select! {
            _ = progress.failed() => {}
            () = self.follow_and_recover() => {}
        }
    }

    async fn follow_and_recover(&mut self) {
        let mut pause = self.config.backoff;
        loop {
            let (error, was_settled) = self.follow().await;
            if was_settled {
                pause = self.config.backoff;
            }
            let recovered = match error {
                WatchError::Compacted { oldest } => {
                    warn!(%oldest, applied = %self.progress.applied(), "the store's history was compacted: listing anew");
                    self.reload().await
                }
                error => Err(error),
            };
            match recovered {
                // A history that is compacted faster than it can be followed gets a pause like any error.
                Ok(()) if was_settled => continue,
                Ok(()) => {}
                Err(error @ WatchError::WentBack { .. }) => {
                    error!(%error, "the cache stops");
                    self.progress.fail(&error.to_string());
                    return;
                }
                Err(error) => {
                    warn!(%error, "the watch of the store ended: watching again soon");
                    self.progress.interrupt(&error.to_string());
                }
            }
            self.clock.sleep(pause).await;
            pause = (pause * 2).min(self.config.backoff_max);
        }
    }

    /// Watches and applies until the watch ends. Also says whether it worked for a while.
    async fn follow(&mut self) -> (WatchError, bool) {
        let range = Range::prefix(&self.config.root);
        let mut events = match self.store.watch(&range, self.progress.applied()).await {
            Ok(events) => events,
            Err(error) => return (error, false),
        };
        // A watch that opens and breaks at once, again and again, is not one that works.
        let mut settled = self.clock.sleep(self.config.backoff_max);
        let mut is_settled = false;
        loop {
            tokio::select! {
                batch = next(&mut events) => match batch {
                    Ok(batch) => self.apply(batch).await,
                    Err(error) => return (error, is_settled),
                },
                () = &mut settled, if !is_settled => {}
            }
            is_settled = true;
            self.progress.resume();
        }
    }

    /// Applies a batch in chunks that never split a revision.
    async fn apply(&self, Batch { revision, events }: Batch) {
        let applied = self.progress.applied();
        let mut chunk: Vec<Event> = Vec::with_capacity(events.len().min(CHUNK));
        // A store that repeats itself after a reconnection does no harm.
        for event in events.into_iter().filter(|it| it.revision() > applied) {
            if let Some(last) = chunk.last()
                && chunk.len() >= CHUNK
                && last.revision() < event.revision()
            {
                let reached = last.revision();
                self.apply_chunk(std::mem::take(&mut chunk));
                self.progress.publish(reached);
                // Watchers get their turn before the history that they read moves on.
                tokio::task::yield_now().await;
            }
            chunk.push(event);
        }
        self.apply_chunk(chunk);
        self.progress.publish(revision);
    }

    fn apply_chunk(&self, events: Vec<Event>) {
        self.routes.with_seats(|find| {
            let mut prepared: Vec<(Arc<Collection>, Vec<Prepared>)> = Vec::new();
            for event in events {
                let seat = find(event.key().as_str());
                if seat.as_ref().is_none_or(|it| !it.is_claimed) {
                    self.routes.unclaimed.lock().count(&event);
                }
                for collection in seat.into_iter().flat_map(|it| it.fed) {
                    let event = collection.prepare(event.clone());
                    match prepared.iter_mut().find(|(it, _)| Arc::ptr_eq(it, &collection)) {
                        Some((_, events)) => events.push(event),
                        None => prepared.push((collection, vec![event])),
                    }
                }
            }
            for (collection, events) in prepared {
                collection.apply(events);
            }
        });
    }

    /// Lists everything anew. All watchers end, because what happened in between is not known.
    async fn reload(&self) -> Result<(), WatchError> {
        for _ in 0..MAX_RELOADS {
            let loaded = load(&self.store, &self.config.root, self.config.page, &self.routes).await;
            let loaded = loaded.map_err(|error| WatchError::Interrupted(error.to_string()))?;
            let seen = self.progress.applied();
            if loaded.revision < seen {
                return Err(WatchError::WentBack { seen, now: loaded.revision });
            }
            if install(loaded, &self.routes, &self.progress) {
                return Ok(());
            }
        }
        Err(WatchError::Interrupted("collections come and go faster than they can be listed".into()))
    }
}

/// Puts what was listed into the collections, if they are still the same ones: another would have missed what happened
/// between what it was loaded from and the list.
pub(crate) fn install(loaded: Loaded, routes: &Routes, progress: &Progress) -> bool {
    let Loaded { revision, collections, fed, unclaimed } = loaded;
    routes.if_unchanged(&fed, || {
        for (collection, contents) in collections {
            // One line a collection: a store that was written by something else would fill the log.
            if let Some((key, unread)) = contents.unreadable().get_min() {
                let n_unreadable = contents.unreadable().len();
                warn!(n_unreadable, first = %key, why = %unread.why, "stored values cannot be served");
            }
            collection.replace(contents, revision);
        }
        *routes.unclaimed.lock() = unclaimed;
        progress.publish(revision);
    })
}

pub(crate) fn timed_out(timeout: Duration) -> ReadError {
    ReadError::Unavailable(format!("no answer within {timeout:?}"))
}

async fn next(events: &mut Events) -> Result<Batch, WatchError> {
    let ended = || Err(WatchError::Interrupted("the stream ended".into()));
    events.next().await.unwrap_or_else(ended)
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.progress.fail("the cache was stopped");
        for (collection, _) in self.routes.fed() {
            collection.close();
        }
    }
}
