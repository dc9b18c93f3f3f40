//! A reader of a collection's changes: a position in the shared history, and nothing buffered.

use std::{fmt, sync::Arc};

use store::{Key, Revision};
use tokio::sync::watch;

use crate::{Change, Closed, Collection, Expired, Unreadable};

/// What a watcher gets next.
#[derive(Clone, Debug)]
pub enum Step {
    /// A change in the watcher's scope.
    Event(Arc<Change>),
    /// Everything up to here has been delivered. Only after [`Watcher::request_progress`].
    Progress(Revision),
    /// A value that cannot be served came or went in the watcher's scope: what follows would leave it out.
    Undecodable(Key, Unreadable),
    /// The watcher fell behind, or the history was lost, or the cache ended: list again. Nothing follows.
    Ended(Expired),
}

/// Yields the changes of a collection after a revision, each once and in order.
pub struct Watcher {
    collection: Arc<Collection>,
    changed: watch::Receiver<()>,
    /// The sequence number of the next change to look at.
    cursor: u64,
    after: Revision,
    scope: Box<str>,
    wants_progress: bool,
}

impl Watcher {
    pub(crate) fn new(
        collection: Arc<Collection>,
        changed: watch::Receiver<()>,
        cursor: u64,
        after: Revision,
        scope: &str,
    ) -> Self {
        Self { collection, changed, cursor, after, scope: scope.into(), wants_progress: false }
    }

    /// Waits for the next step. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Step {
        loop {
            // Marked before the look, so that a change right after it is not slept through.
            self.changed.mark_unchanged();
            if let Some(step) = self.try_next() {
                return step;
            }
            let alive = self.changed.changed().await;
            alive.expect("the sender must live: the watcher holds the collection");
        }
    }

    /// The next step, if there is one without waiting. For taking several at one wake-up.
    pub fn try_next(&mut self) -> Option<Step> {
        match self.look() {
            Ok(Some(change)) => Some(match &change.undecodable {
                Some((key, why)) => Step::Undecodable(key.clone(), why.clone()),
                None => Step::Event(change),
            }),
            Ok(None) if self.wants_progress => {
                let position = self.position()?;
                self.wants_progress = false;
                Some(Step::Progress(position))
            }
            Ok(None) => None,
            Err(expired) => Some(Step::Ended(expired)),
        }
    }

    /// Makes the watcher yield one [`Step::Progress`] as soon as there is no change to deliver first.
    pub fn request_progress(&mut self) {
        self.wants_progress = true;
    }

    /// The revision up to which everything in scope has been delivered. `None` if that is not known any more: the
    /// watcher fell behind, or its collection is not fed any more.
    pub fn position(&self) -> Option<Revision> {
        // Read before the state: everything up to `applied` is in the ring that is looked at later.
        let applied = self.collection.progress.applied();
        let state = self.collection.state.read();
        state.open().ok()?;
        let position = match state.ring.get(self.cursor).ok()? {
            None => applied.max(state.last),
            Some(next) => next.revision.previous(),
        };
        Some(position.max(self.after))
    }

    fn look(&mut self) -> Result<Option<Arc<Change>>, Expired> {
        let state = self.collection.state.read();
        if let Err(Closed) = state.open() {
            return Err(state.ring.expired());
        }
        while let Some(change) = state.ring.get(self.cursor)? {
            self.cursor += 1;
            if change.revision > self.after && change.key().as_str().starts_with(&*self.scope) {
                return Ok(Some(Arc::clone(change)));
            }
        }
        Ok(None)
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watcher({} after {})", self.scope, self.after)
    }
}
