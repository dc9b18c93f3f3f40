//! The one task that follows the store's watch and writes into the collections.
//!
//! # Flow
//! Watch from the last applied revision; apply what comes; after an interruption pause and watch again
//! from there; after a compaction list everything anew, which ends all watchers. A store whose revision
//! went back ends the feed: nothing in memory can be trusted then.
//!
//! Collections are added here too, between two batches, so that no event can be missed or doubled.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use store::{Batch, Event, Events, Range, ReadAt, ReadError, SharedClock, SharedStore, Store, WatchError};
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info, warn};

use crate::{
    AddError, CacheConfig, Collection, CollectionSpec,
    collection::Prepared,
    load::{Loaded, load, load_one},
    progress::Progress,
    routes::Routes,
};

/// At least this many events are applied before readers see any of them, unless there are no more.
const CHUNK: usize = 256;

/// What the feed is asked to do between two batches.
pub(crate) struct Add {
    pub(crate) spec: CollectionSpec,
    pub(crate) reply: oneshot::Sender<Result<Arc<Collection>, AddError>>,
}

/// The task. When it ends, also by a panic or before it began, readers and watchers are told.
pub(crate) struct Feed {
    pub(crate) store: SharedStore,
    pub(crate) clock: SharedClock,
    pub(crate) config: CacheConfig,
    pub(crate) routes: Arc<Routes>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) adds: mpsc::Receiver<Add>,
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
                Some(add) = self.adds.recv() => {
                    self.add(add).await;
                    continue;
                }
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
        let mut prepared: Vec<(Arc<Collection>, Vec<Prepared>)> = Vec::new();
        for event in events {
            let Some(collection) = self.routes.find(event.key().as_str()) else {
                self.routes.unclaimed.lock().count(&event);
                continue;
            };
            let event = collection.prepare(event);
            match prepared.iter_mut().find(|(it, _)| Arc::ptr_eq(it, &collection)) {
                Some((_, events)) => events.push(event),
                None => prepared.push((collection, vec![event])),
            }
        }
        for (collection, events) in prepared {
            collection.apply(events);
        }
    }

    /// Lists everything anew. All watchers end, because what happened in between is not known.
    async fn reload(&self) -> Result<(), WatchError> {
        let loaded = load(&self.store, &self.config.root, self.config.page, &self.routes).await;
        let loaded = loaded.map_err(|error| WatchError::Interrupted(error.to_string()))?;
        let seen = self.progress.applied();
        if loaded.revision < seen {
            return Err(WatchError::WentBack { seen, now: loaded.revision });
        }
        install(loaded, &self.routes, &self.progress);
        Ok(())
    }

    async fn add(&self, Add { spec, reply }: Add) {
        // Who asked may have stopped waiting, and must not find a collection later that nobody owns.
        if reply.is_closed() {
            return;
        }
        let added = tokio::select! {
            added = self.try_add(spec) => added,
            () = self.clock.sleep(self.config.timeout) => Err(AddError::List(timed_out(self.config.timeout))),
        };
        if let Err(Ok(unwanted)) = reply.send(added) {
            self.routes.remove(&unwanted.spec().prefix);
        }
    }

    async fn try_add(&self, spec: CollectionSpec) -> Result<Arc<Collection>, AddError> {
        let bad = |why| AddError::BadPrefix { prefix: spec.prefix.clone(), why };
        self.routes.check(&spec).map_err(bad)?;
        let collection = Arc::new(Collection::new(spec, &self.config, Arc::clone(&self.progress)));
        // Exactly what the feed has applied. If that is compacted, something newer, and the collection
        // passes over the events that it already has.
        let at = ReadAt::Revision(self.progress.applied());
        let (contents, revision) = load_one(&self.store, &collection, at, self.config.page).await?;
        self.routes.unclaimed.lock().subtract(&collection.spec().prefix, contents.n_keys());
        collection.replace(contents, revision);
        self.routes.insert(Arc::clone(&collection));
        info!(prefix = collection.spec().prefix, n_objects = collection.len(), "a collection was added");
        Ok(collection)
    }
}

/// Puts what was listed into the collections.
pub(crate) fn install(loaded: Loaded, routes: &Routes, progress: &Progress) {
    let Loaded { revision, collections, unclaimed } = loaded;
    for (collection, contents) in collections {
        // One line a collection: a store that was written by something else would fill the log.
        if let Some((key, why)) = contents.unreadable().next() {
            let n_unreadable = contents.unreadable().count();
            warn!(n_unreadable, first = %key, %why, "stored values cannot be served");
        }
        collection.replace(contents, revision);
    }
    *routes.unclaimed.lock() = unclaimed;
    progress.publish(revision);
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
        for collection in self.routes.all() {
            collection.close();
        }
    }
}
