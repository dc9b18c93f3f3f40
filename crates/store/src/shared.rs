//! One handle for every kind of store, so that the layers above are compiled once and tests can
//! wrap any store in faults. Adds nothing but the indirection.

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use crate::{
    CommitError, Events, Key, LeaseError, LeaseId, Leases, Page, Place, Portion, Range, ReadAt, ReadError,
    Revision, Store, Txn, WatchError, contract::Entry,
};

/// A store behind a pointer. Cheap to clone.
#[derive(Clone)]
pub struct SharedStore(Arc<dyn Erased>);

impl SharedStore {
    /// Erases the type of a store.
    pub fn new(store: impl Store + Leases) -> Self {
        Self(Arc::new(store))
    }
}

impl fmt::Debug for SharedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedStore")
    }
}

impl Store for SharedStore {
    async fn current(&self) -> Result<Revision, ReadError> {
        self.0.current().await
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, ReadError> {
        self.0.get(key).await
    }

    async fn list(&self, range: &Range, at: ReadAt, limit: usize) -> Result<Page, ReadError> {
        self.0.list(range, at, limit).await
    }

    async fn scan(
        &self,
        range: &Range,
        at: ReadAt,
        from: Option<Place>,
        limit: usize,
    ) -> Result<Portion, ReadError> {
        self.0.scan(range, at, from, limit).await
    }

    async fn watch(&self, range: &Range, after: Revision) -> Result<Events, WatchError> {
        self.0.watch(range, after).await
    }

    async fn commit(&self, txn: Txn) -> Result<Revision, CommitError> {
        self.0.commit(txn).await
    }

    async fn compact(&self, before: Revision) -> Result<(), CommitError> {
        self.0.compact(before).await
    }
}

impl Leases for SharedStore {
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, LeaseError> {
        self.0.grant(ttl).await
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), LeaseError> {
        self.0.renew(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), LeaseError> {
        self.0.revoke(lease).await
    }
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The object-safe form of [`Store`] and [`Leases`].
trait Erased: Send + Sync + 'static {
    fn current(&self) -> Boxed<'_, Result<Revision, ReadError>>;
    fn get<'a>(&'a self, key: &'a Key) -> Boxed<'a, Result<Option<Entry>, ReadError>>;
    fn list<'a>(&'a self, range: &'a Range, at: ReadAt, limit: usize) -> Boxed<'a, Result<Page, ReadError>>;
    fn scan<'a>(
        &'a self,
        range: &'a Range,
        at: ReadAt,
        from: Option<Place>,
        limit: usize,
    ) -> Boxed<'a, Result<Portion, ReadError>>;
    fn watch<'a>(&'a self, range: &'a Range, after: Revision) -> Boxed<'a, Result<Events, WatchError>>;
    fn commit(&self, txn: Txn) -> Boxed<'_, Result<Revision, CommitError>>;
    fn compact(&self, before: Revision) -> Boxed<'_, Result<(), CommitError>>;
    fn grant(&self, ttl: Duration) -> Boxed<'_, Result<LeaseId, LeaseError>>;
    fn renew(&self, lease: LeaseId) -> Boxed<'_, Result<(), LeaseError>>;
    fn revoke(&self, lease: LeaseId) -> Boxed<'_, Result<(), LeaseError>>;
}

impl<S: Store + Leases> Erased for S {
    fn current(&self) -> Boxed<'_, Result<Revision, ReadError>> {
        Box::pin(Store::current(self))
    }

    fn get<'a>(&'a self, key: &'a Key) -> Boxed<'a, Result<Option<Entry>, ReadError>> {
        Box::pin(Store::get(self, key))
    }

    fn list<'a>(&'a self, range: &'a Range, at: ReadAt, limit: usize) -> Boxed<'a, Result<Page, ReadError>> {
        Box::pin(Store::list(self, range, at, limit))
    }

    fn scan<'a>(
        &'a self,
        range: &'a Range,
        at: ReadAt,
        from: Option<Place>,
        limit: usize,
    ) -> Boxed<'a, Result<Portion, ReadError>> {
        Box::pin(Store::scan(self, range, at, from, limit))
    }

    fn watch<'a>(&'a self, range: &'a Range, after: Revision) -> Boxed<'a, Result<Events, WatchError>> {
        Box::pin(Store::watch(self, range, after))
    }

    fn commit(&self, txn: Txn) -> Boxed<'_, Result<Revision, CommitError>> {
        Box::pin(Store::commit(self, txn))
    }

    fn compact(&self, before: Revision) -> Boxed<'_, Result<(), CommitError>> {
        Box::pin(Store::compact(self, before))
    }

    fn grant(&self, ttl: Duration) -> Boxed<'_, Result<LeaseId, LeaseError>> {
        Box::pin(Leases::grant(self, ttl))
    }

    fn renew(&self, lease: LeaseId) -> Boxed<'_, Result<(), LeaseError>> {
        Box::pin(Leases::renew(self, lease))
    }

    fn revoke(&self, lease: LeaseId) -> Boxed<'_, Result<(), LeaseError>> {
        Box::pin(Leases::revoke(self, lease))
    }
}
