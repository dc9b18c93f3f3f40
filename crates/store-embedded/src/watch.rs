//! One watch: a position in the history and nothing buffered. Watchers that keep up read the latest changes
//! from memory, the others read the log on disk until they have caught up.

use std::{ops::ControlFlow, sync::Arc};

use store::{Batch, Event, Events, Range, Revision, WatchError};
use tokio::sync::watch;

use crate::{disk::DiskError, state::Next, store::Inner};

/// How much one batch from disk holds or looks at, unless a single revision has more.
const EVENTS_AT_ONCE: usize = 500;
const BYTES_AT_ONCE: usize = 4 << 20;
const RECORDS_AT_ONCE: usize = 10_000;

/// Starts a watch that was checked to be possible.
pub(crate) fn start(inner: Arc<Inner>, range: Range, after: Revision) -> Events {
    let changed = inner.changed.subscribe();
    let cursor = Cursor { inner, changed, range, after, is_over: false };
    Box::pin(futures_util::stream::unfold(cursor, Cursor::next))
}

struct Cursor {
    inner: Arc<Inner>,
    changed: watch::Receiver<Revision>,
    range: Range,
    after: Revision,
    is_over: bool,
}

impl Cursor {
    async fn next(mut self) -> Option<(Result<Batch, WatchError>, Self)> {
        if self.is_over {
            return None;
        }
        let batch = self.next_batch().await;
        match &batch {
            Ok(batch) => self.after = batch.revision,
            Err(_) => self.is_over = true,
        }
        Some((batch, self))
    }

    async fn next_batch(&mut self) -> Result<Batch, WatchError> {
        loop {
            // Marked before the look, so that a change right after it is not slept through.
            self.changed.mark_unchanged();
            if self.inner.is_closed() {
                return Err(WatchError::Interrupted("the store is closed".into()));
            }
            let next = self.inner.state.read().next_for_watch(self.after)?;
            match next {
                Next::Recent { changes, up_to } => {
                    let events = changes.iter().flat_map(|it| &it.events);
                    let events =
                        events.filter(|it| self.range.contains(it.key().as_str())).cloned().collect();
                    return Ok(Batch { revision: up_to, events });
                }
                Next::Disk => return self.read_disk().await,
                Next::Wait => {
                    let alive = self.changed.changed().await;
                    alive.expect("the sender must live: the cursor holds it");
                }
            }
        }
    }

    async fn read_disk(&self) -> Result<Batch, WatchError> {
        let (inner, range, after) = (Arc::clone(&self.inner), self.range.clone(), self.after);
        let read = tokio::task::spawn_blocking(move || inner.read(|| read_log(&inner, &range, after)));
        match read.await {
            Ok(Ok(batch)) => batch,
            Ok(Err(error)) => Err(WatchError::Interrupted(error.to_string())),
            Err(error) => Err(WatchError::Interrupted(error.to_string())),
        }
    }
}

fn read_log(inner: &Inner, range: &Range, after: Revision) -> Result<Result<Batch, WatchError>, DiskError> {
    // Both under the lock: what is not compacted now stays readable through this reader.
    let (reader, revision) = {
        let state = inner.state.read();
        if let Err(error) = state.check_watch(after) {
            return Ok(Err(error));
        }
        (inner.disk.reader()?, state.revision())
    };
    let mut batch = Batch { revision, events: Vec::new() };
    let (mut n_records, mut n_bytes) = (0, 0);
    let mut last = after;
    reader.scan(after, |record| {
        let at = record.location.revision;
        let is_full =
            n_records >= RECORDS_AT_ONCE || n_bytes >= BYTES_AT_ONCE || batch.events.len() >= EVENTS_AT_ONCE;
        // The disk may be ahead of what is visible, and a revision is never split.
        if at > revision || (is_full && at > last) {
            batch.revision = if at > revision { revision } else { last };
            return ControlFlow::Break(());
        }
        last = at;
        n_records += 1;
        if range.contains(record.key) {
            n_bytes += record.value.map_or(0, <[u8]>::len);
            let event: Event = record.to_record().into_event();
            batch.events.push(event);
        }
        ControlFlow::Continue(())
    })?;
    Ok(Ok(batch))
}
