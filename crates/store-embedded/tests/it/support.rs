//! Short words for the tests.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use store::{Entry, Key, ManualClock, Range, ReadAt, Revision, Store, SystemClock, Txn};
use store_embedded::{EmbeddedStore, Options};

pub fn manual() -> Arc<ManualClock> {
    ManualClock::at(jiff::Timestamp::UNIX_EPOCH)
}

/// A store on the machine's clock that keeps all history.
pub fn open(directory: &Path) -> EmbeddedStore {
    let options = Options { compaction_interval: None, ..Options::new(SystemClock::shared()) };
    EmbeddedStore::open(directory, options).unwrap()
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
