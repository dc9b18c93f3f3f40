//! A store that counts how long its calls take, under upstream's name `etcd_request_duration_seconds`.
//!
//! Deliberately not here: caching, retries. Reading the current revision is not counted: every consistent read does it,
//! and most stores answer it from memory.

use std::{sync::Arc, time::Duration};

use store::{
    Change, CommitError, Entry, Events, Key, LeaseError, LeaseId, Leases, Page, Place, Portion, Range,
    ReadAt, ReadError, Require, Revision, SharedClock, SharedStore, Store, Txn, WatchError,
};

use crate::metrics::Metrics;

/// A store whose calls are counted.
pub struct MeasuredStore {
    inner: SharedStore,
    metrics: Arc<Metrics>,
    clock: SharedClock,
}

impl MeasuredStore {
    /// Counts the calls to `inner`.
    pub fn new(inner: SharedStore, metrics: Arc<Metrics>, clock: SharedClock) -> Self {
        Self { inner, metrics, clock }
    }

    fn observe(&self, operation: &'static str, key: &str, started: Duration) {
        let took = self.clock.monotonic().saturating_sub(started);
        self.metrics.store_request(operation, resource(key)).observe(took.as_secs_f64());
    }
}

impl Store for MeasuredStore {
    async fn current(&self) -> Result<Revision, ReadError> {
        self.inner.current().await
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, ReadError> {
        let started = self.clock.monotonic();
        let result = self.inner.get(key).await;
        self.observe("get", key.as_str(), started);
        result
    }

    async fn list(&self, range: &Range, at: ReadAt, limit: usize) -> Result<Page, ReadError> {
        let started = self.clock.monotonic();
        let result = self.inner.list(range, at, limit).await;
        self.observe("list", range.start.as_str(), started);
        result
    }

    async fn scan(
        &self,
        range: &Range,
        at: ReadAt,
        from: Option<Place>,
        limit: usize,
    ) -> Result<Portion, ReadError> {
        let started = self.clock.monotonic();
        let result = self.inner.scan(range, at, from, limit).await;
        self.observe("list", range.start.as_str(), started);
        result
    }

    async fn watch(&self, range: &Range, after: Revision) -> Result<Events, WatchError> {
        self.inner.watch(range, after).await
    }

    async fn commit(&self, txn: Txn) -> Result<Revision, CommitError> {
        let started = self.clock.monotonic();
        let operation = operation(&txn);
        let key = txn.changes.first().map(|it| it.key().clone());
        let result = self.inner.commit(txn).await;
        self.observe(operation, key.as_ref().map_or("", Key::as_str), started);
        result
    }

    async fn compact(&self, before: Revision) -> Result<(), CommitError> {
        self.inner.compact(before).await
    }
}

impl Leases for MeasuredStore {
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, LeaseError> {
        self.inner.grant(ttl).await
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), LeaseError> {
        self.inner.renew(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), LeaseError> {
        self.inner.revoke(lease).await
    }
}

/// What upstream calls the transaction.
fn operation(txn: &Txn) -> &'static str {
    match (txn.changes.first(), txn.require.first()) {
        (Some(Change::Delete(_)), _) => "delete",
        (Some(Change::Put(..)), Some(Require::Absent(_))) => "create",
        (Some(Change::Put(..)), _) => "update",
        (None, _) => "other",
    }
}

/// `/registry/configmaps/default/a` is about `configmaps`. Only the first part is taken: names never become labels.
fn resource(key: &str) -> &str {
    key.strip_prefix("/registry/").and_then(|it| it.split('/').next()).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_named_after_what_they_do_and_to_what() {
        let key = Key::new("/registry/configmaps/default/a");
        assert_eq!(resource(key.as_str()), "configmaps");
        assert_eq!(resource("/convoy/members/a"), "");
        assert_eq!(operation(&Txn::new().require_absent(&key).put(&key, "".into())), "create");
        assert_eq!(operation(&Txn::new().require_at(&key, Revision::new(1)).put(&key, "".into())), "update");
        assert_eq!(operation(&Txn::new().delete(&key)), "delete");
    }
}
