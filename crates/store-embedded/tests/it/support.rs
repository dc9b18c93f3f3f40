//! Short words for the tests.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use store::{Entry, Key, ManualClock, Range, ReadAt, Revision, Store, SystemClock, Txn};
use store_embedded::{Carry, EmbeddedStore, Options, SnapshotError, SnapshotReport};

pub fn manual() -> Arc<ManualClock> {
    ManualClock::at(jiff::Timestamp::UNIX_EPOCH)
}

/// A store on the machine's clock that keeps all history.
pub fn open(directory: &Path) -> EmbeddedStore {
    let options = Options { compaction_interval: None, ..Options::new(SystemClock::shared()) };
    EmbeddedStore::open_or_make(directory, options).unwrap()
}

pub fn key(name: &str) -> Key {
    Key::new(format!("/test/{name}"))
}

pub fn everything() -> Range {
    Range::prefix("/")
}

pub async fn put(store: &EmbeddedStore, name: &str, value: &str) -> Revision {
    store.commit(Txn::new().put(&key(name), Bytes::copy_from_slice(value.as_bytes()))).await.unwrap()
}

pub async fn list(store: &EmbeddedStore, at: ReadAt) -> Vec<Entry> {
    store.list(&everything(), at, usize::MAX).await.unwrap().entries
}

/// Restores everything as it is, by the machine's clock.
pub fn restore(snapshot: &Path, directory: &Path) -> Result<SnapshotReport, SnapshotError> {
    store_embedded::restore(snapshot, directory, &SystemClock::new(), |_, _| Ok(Carry::AsIs))
}
