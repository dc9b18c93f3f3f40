//! The contract between a store and everybody else. The suite in [`crate::conformance`] checks it.
//!
//! Deliberately not here: any implementation, and [`crate::SharedStore`], the type-erased handle that
//! the rest of the project holds.

use std::{fmt, future::Future, pin::Pin, time::Duration};

use bytes::Bytes;
use futures_util::Stream;

use crate::{Key, Range, Revision, Txn};

/// A linearizable, revisioned map from keys to bytes. It knows no objects and no API versions.
///
/// Every implementation passes [`crate::conformance`], which checks that:
/// - a commit that changes something returns a revision greater than every earlier one, and all its changes
///   carry that revision; a commit that changes nothing returns the current revision;
/// - `watch` yields every event after `from`, once and in order, never splits the events of one revision over
///   two batches; it may end in an error, it never skips;
/// - a transaction that fails as [`CommitError::Unavailable`] may have happened; after any other error it did not;
/// - [`CommitError::Unmet`] names the requirement that failed and carries what is there now, so nobody reads twice.
pub trait Store: Send + Sync + 'static {
    /// The newest committed revision, linearizable: not older than any commit acknowledged before the call.
    fn current(&self) -> impl Future<Output = Result<Revision, ReadError>> + Send;

    /// The newest value of one key, linearizable.
    fn get(&self, key: &Key) -> impl Future<Output = Result<Option<Entry>, ReadError>> + Send;

    /// The first `limit` entries of a range in key order, all as of one revision. A limit of zero only counts.
    fn list(
        &self,
        range: &Range,
        at: ReadAt,
        limit: usize,
    ) -> impl Future<Output = Result<Page, ReadError>> + Send;

    /// A portion of the entries of a range, all as of one revision, in whatever order the store reads fastest.
    ///
    /// Begin nowhere; go on at the revision of the first portion, from where the last one ended, until none follows.
    /// Together the portions hold every entry once. A portion has about `limit` entries at most, and may have none.
    fn scan(
        &self,
        range: &Range,
        at: ReadAt,
        from: Option<Place>,
        limit: usize,
    ) -> impl Future<Output = Result<Portion, ReadError>> + Send {
        scan_by_key(self, range, at, from, limit)
    }

    /// Every change in the range with a revision greater than `after`.
    ///
    /// It fails, at once or as its first item, as [`WatchError::Compacted`] if events are gone and as
    /// [`WatchError::WentBack`] if the store has never reached `after`. Stores in this process also report
    /// progress at once, with an empty batch, when only keys outside the range change; others need not.
    fn watch(
        &self,
        range: &Range,
        after: Revision,
    ) -> impl Future<Output = Result<Events, WatchError>> + Send;

    /// Carries out a transaction, or says why not. Refusals are found in this order: malformed, a requirement
    /// that does not hold, a missing lease.
    fn commit(&self, txn: Txn) -> impl Future<Output = Result<Revision, CommitError>> + Send;

    /// Forgets history: afterwards reads and watches from before `before` may fail as `Compacted`.
    /// The newest value of every key stays. What is compacted already may be compacted again; a revision in
    /// the future is [`CommitError::Rejected`].
    fn compact(&self, before: Revision) -> impl Future<Output = Result<(), CommitError>> + Send;
}

/// Keys that go away by themselves. All stores have it; most callers only need [`Store`].
pub trait Leases: Send + Sync + 'static {
    /// A new lease that ends `ttl` after the last renewal.
    fn grant(&self, ttl: Duration) -> impl Future<Output = Result<LeaseId, LeaseError>> + Send;

    /// Starts the lease's time again.
    fn renew(&self, lease: LeaseId) -> impl Future<Output = Result<(), LeaseError>> + Send;

    /// Ends the lease now; its keys are removed.
    fn revoke(&self, lease: LeaseId) -> impl Future<Output = Result<(), LeaseError>> + Send;
}

/// One key with its value and its history in two numbers.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Key,
    /// The bytes.
    pub value: Bytes,
    /// The revision that created the key (since its last removal).
    pub created: Revision,
    /// The revision that last wrote the key.
    pub modified: Revision,
    /// The lease the key hangs on.
    pub lease: Option<LeaseId>,
}

// Values may be secrets, so Debug, which ends up in logs, shows only their size.
impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{} ({} bytes)", self.key, self.modified, self.value.len())
    }
}

/// Which state of the store a list shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAt {
    /// The newest, linearizable.
    Latest,
    /// Exactly as it was after this revision.
    Revision(Revision),
}

/// A part of a range, as of one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Entries in key order.
    pub entries: Vec<Entry>,
    /// How many entries of the range follow behind the last one here.
    pub remaining: u64,
    /// The revision that the page shows.
    pub revision: Revision,
}

/// A part of what a range holds, as of one revision; see [`Store::scan`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portion {
    /// Entries in no particular order.
    pub entries: Vec<Entry>,
    /// The revision that the portion shows.
    pub revision: Revision,
    /// Where the next portion begins, if this is not the last.
    pub next: Option<Place>,
}

/// How far a scan is. Only the store that it came from understands it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Everything up to this key is delivered.
    Key(Key),
    /// Everything last written up to this revision is delivered.
    Revision(Revision),
}

/// A scan of stores that have nothing faster than a list.
async fn scan_by_key<S: Store + ?Sized>(
    store: &S,
    range: &Range,
    at: ReadAt,
    from: Option<Place>,
    limit: usize,
) -> Result<Portion, ReadError> {
    let rest = match from {
        None => range.clone(),
        Some(Place::Key(last)) => range.after(&last),
        Some(Place::Revision(_)) => return Err(ReadError::Unavailable("no place of this store".to_owned())),
    };
    let Page { entries, remaining, revision } = store.list(&rest, at, limit.max(1)).await?;
    let next = entries.last().filter(|_| remaining > 0).map(|it| Place::Key(it.key.clone()));
    Ok(Portion { entries, revision, next })
}

/// A stream of batches that only ever ends after an error.
pub type Events = Pin<Box<dyn Stream<Item = Result<Batch, WatchError>> + Send>>;

/// All changes of one or more consecutive revisions. With no events it is a sign of progress:
/// everything up to `revision` has been delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Everything up to and including this revision has been delivered.
    pub revision: Revision,
    /// The changes, in order of revision.
    pub events: Vec<Event>,
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The key was written.
    Put(Entry),
    /// The key was removed at this revision.
    Delete(Key, Revision),
}

impl Event {
    /// The key that changed.
    pub fn key(&self) -> &Key {
        match self {
            Event::Put(entry) => &entry.key,
            Event::Delete(key, _) => key,
        }
    }

    /// When it changed.
    pub fn revision(&self) -> Revision {
        match self {
            Event::Put(entry) => entry.modified,
            Event::Delete(_, revision) => *revision,
        }
    }
}

/// Names a lease within one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

/// Why a read did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// History before `oldest` is gone.
    #[error("the requested revision has been compacted; the oldest one available is {oldest}")]
    Compacted {
        /// The oldest revision that can still be read.
        oldest: Revision,
    },
    /// The revision lies in the future.
    #[error("the requested revision is newer than the current one, {current}")]
    Future {
        /// The newest revision.
        current: Revision,
    },
    /// The store cannot be reached, or stopped.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
}

/// Why a watch ended or did not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// Events after the wanted revision are gone; list again.
    #[error("the events have been compacted; the oldest revision to watch from is {oldest}")]
    Compacted {
        /// The oldest revision that can still be watched from.
        oldest: Revision,
    },
    /// The connection ended. Watch again from the last revision seen.
    #[error("the watch was interrupted: {0}")]
    Interrupted(String),
    /// The store's revision went back: it was restored without raising the revision, or is another store.
    /// Nothing that is held in memory can be trusted.
    #[error("the store's revision went back from {seen} to {now}: the store was replaced or restored")]
    WentBack {
        /// The newest revision seen before.
        seen: Revision,
        /// The store's newest revision now.
        now: Revision,
    },
}

/// Why a commit was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// A requirement did not hold. Nothing happened.
    #[error("requirement {failed} of the transaction does not hold")]
    Unmet {
        /// The position in [`Txn::require`] of the first requirement that failed.
        failed: usize,
        /// What each required key holds now, in the order of [`Txn::require`].
        current: Vec<Option<Entry>>,
        /// The store's revision at which `current` was read.
        revision: Revision,
    },
    /// The transaction is malformed or too large for this store. Nothing happened.
    #[error("the transaction was rejected: {0}")]
    Rejected(String),
    /// The lease of a put is not there. Nothing happened.
    #[error("lease {0:?} does not exist")]
    NoLease(LeaseId),
    /// The store takes no writes (disk full, disk error, stopping). Nothing happened.
    #[error("the store takes no writes: {0}")]
    ReadOnly(String),
    /// It is not known whether it happened. Read before trying again.
    #[error("the outcome of the write is unknown: {0}")]
    Unavailable(String),
}

/// Why a lease call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// The lease ended or never was.
    #[error("lease {0:?} does not exist")]
    NotFound(LeaseId),
    /// The store cannot be reached or takes no writes.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
}
