//! Keeps the board up to date: lists all records and mirrors, then watches both.
//!
//! After any interruption everything is listed anew; there are few records, and a list cannot miss anything.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use store::{Entry, Events, Range, ReadAt, ReadError, Revision, SharedStore, Store, WatchError};

use crate::station::Inner;

/// How many records are read at once.
const PAGE: usize = 500;

/// Pauses after a watch broke or a list failed.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

impl Inner {
    /// Follows the records until the task is dropped.
    pub(crate) async fn follow(self: Arc<Self>) {
        let mut pause = PAUSE;
        loop {
            match self.load().await {
                Ok(revision) => {
                    pause = PAUSE;
                    let error = self.watch(revision).await;
                    tracing::debug!(%error, "the watch of the fleet's records ended: listing them anew");
                }
                Err(error) => tracing::warn!(%error, "the fleet's records cannot be read"),
            }
            self.clock.sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn load(&self) -> Result<Revision, ReadError> {
        let prefix = &self.config.mirrors;
        let (records, revision) = list(&self.store, "/convoy/", ReadAt::Latest).await?;
        let (mirrors, _) = list(&self.store, prefix, ReadAt::Revision(revision)).await?;
        {
            let mut board = self.board.write();
            board.replace(records, mirrors, prefix, revision);
            board.is_loaded = true;
        }
        self.measure_consensus();
        self.tick();
        Ok(revision)
    }

    async fn watch(&self, after: Revision) -> WatchError {
        let prefix = &self.config.mirrors;
        let mut records = match self.store.watch(&Range::prefix("/convoy/"), after).await {
            Ok(events) => events,
            Err(error) => return error,
        };
        let mut mirrors = match self.store.watch(&Range::prefix(prefix), after).await {
            Ok(events) => events,
            Err(error) => return error,
        };
        loop {
            let is_news = tokio::select! {
                batch = next(&mut records) => match batch {
                    Ok(batch) => {
                        let mut board = self.board.write();
                        let before = board.applied;
                        board.apply(batch.events, batch.revision) || board.applied != before
                    }
                    Err(error) => return error,
                },
                batch = next(&mut mirrors) => match batch {
                    Ok(batch) => self.board.write().apply_mirrors(&batch.events, prefix, batch.revision),
                    Err(error) => return error,
                },
            };
            if is_news {
                self.measure_consensus();
                self.tick();
            }
        }
    }

    /// Waits until the records have been read for the first time.
    pub(crate) async fn loaded(&self) {
        let mut ticks = self.ticks.subscribe();
        while !self.board.read().is_loaded {
            if ticks.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Everything below a prefix, as of one revision.
pub async fn list(
    store: &SharedStore,
    prefix: &str,
    at: ReadAt,
) -> Result<(Vec<Entry>, Revision), ReadError> {
    let whole = Range::prefix(prefix);
    let mut page = store.list(&whole, at, PAGE).await?;
    let revision = page.revision;
    let mut entries = std::mem::take(&mut page.entries);
    while let (true, Some(last)) = (page.remaining > 0, entries.last()) {
        page = store.list(&whole.after(&last.key), ReadAt::Revision(revision), PAGE).await?;
        entries.append(&mut page.entries);
    }
    Ok((entries, revision))
}

async fn next(events: &mut Events) -> Result<store::Batch, WatchError> {
    let ended = || Err(WatchError::Interrupted("the stream ended".into()));
    events.next().await.unwrap_or_else(ended)
}
