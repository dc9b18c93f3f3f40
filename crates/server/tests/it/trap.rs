//! A store that does what a test wants at a moment that a test chooses.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use store::{
    CommitError, Entry, Events, Key, LeaseError, LeaseId, Leases, Page, Place, Portion, Range, ReadAt,
    ReadError, Revision, SharedStore, Store, Txn, WatchError,
};

/// What is about to be asked of the store.
pub enum Call<'a> {
    Commit(&'a Txn),
    Renew,
}

/// What somebody else writes a moment before a call.
pub struct Touch {
    pub key: Key,
    /// `None` to write what is there once more.
    pub value: Option<Bytes>,
}

/// Sees every call before the store does, and may panic. What it returns is committed first.
type Hook = dyn Fn(Call<'_>) -> Option<Touch> + Send + Sync;

/// A store with a trap in it.
pub struct Trap {
    inner: SharedStore,
    hook: Arc<Hook>,
}

impl Trap {
    /// What the hook returns is written before the call.
    pub fn on(
        inner: SharedStore,
        hook: impl Fn(Call<'_>) -> Option<Touch> + Send + Sync + 'static,
    ) -> SharedStore {
        SharedStore::new(Self { inner, hook: Arc::new(hook) })
    }
}

impl Store for Trap {
    async fn current(&self) -> Result<Revision, ReadError> {
        self.inner.current().await
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, ReadError> {
        self.inner.get(key).await
    }

    async fn list(&self, range: &Range, at: ReadAt, limit: usize) -> Result<Page, ReadError> {
        self.inner.list(range, at, limit).await
    }

    async fn scan(
        &self,
        range: &Range,
        at: ReadAt,
        from: Option<Place>,
        limit: usize,
    ) -> Result<Portion, ReadError> {
        self.inner.scan(range, at, from, limit).await
    }

    async fn watch(&self, range: &Range, after: Revision) -> Result<Events, WatchError> {
        self.inner.watch(range, after).await
    }

    async fn commit(&self, txn: Txn) -> Result<Revision, CommitError> {
        if let Some(Touch { key, value }) = (self.hook)(Call::Commit(&txn)) {
            let value = match value {
                Some(value) => value,
                None => self.inner.get(&key).await.unwrap().unwrap().value,
            };
            self.inner.commit(Txn::new().put(&key, value)).await?;
        }
        self.inner.commit(txn).await
    }

    async fn compact(&self, before: Revision) -> Result<(), CommitError> {
        self.inner.compact(before).await
    }
}

impl Leases for Trap {
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, LeaseError> {
        self.inner.grant(ttl).await
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), LeaseError> {
        (self.hook)(Call::Renew);
        self.inner.renew(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), LeaseError> {
        self.inner.revoke(lease).await
    }
}
