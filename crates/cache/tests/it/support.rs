//! A store to write to, caches in front of it, and a store that misbehaves on demand.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use cache::{Cache, CacheConfig, Collection, CollectionSpec, FieldSpec};
use parking_lot::Mutex;
use store::{
    CommitError, Entry, Events, Key, LeaseError, LeaseId, Leases, MemoryStore, Page, Range, ReadAt,
    ReadError, Revision, SharedClock, SharedStore, Store, SystemClock, Txn, WatchError,
};

pub const MAPS: &str = "/registry/configmaps/";
pub const WIDGETS: &str = "/registry/example.com/widgets/";

pub fn clock() -> SharedClock {
    SystemClock::shared()
}

pub fn memory_store() -> SharedStore {
    SharedStore::new(MemoryStore::new(clock()))
}

pub fn specs() -> Vec<CollectionSpec> {
    vec![
        CollectionSpec { fields: vec![FieldSpec::new("data.a")], ..CollectionSpec::new(MAPS, true) },
        CollectionSpec::new(WIDGETS, false),
    ]
}

/// Quick to try again, so that tests are quick.
pub fn config() -> CacheConfig {
    CacheConfig {
        backoff: Duration::from_millis(1),
        backoff_max: Duration::from_millis(5),
        page: 7,
        ..CacheConfig::default()
    }
}

pub async fn start(store: &SharedStore) -> Cache {
    Cache::start(store.clone(), clock(), config(), specs()).await.unwrap()
}

pub fn maps(cache: &Cache) -> Arc<Collection> {
    cache.collection(MAPS).unwrap()
}

pub fn widgets(cache: &Cache) -> Arc<Collection> {
    cache.collection(WIDGETS).unwrap()
}

pub fn map_key(name: &str) -> Key {
    Key::new(format!("{MAPS}default/{name}"))
}

/// A ConfigMap as the registry stores it.
pub fn map_text(name: &str, value: &str) -> Bytes {
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"a":"{value}"}}}}"#
    )
    .into()
}

pub async fn put(store: &SharedStore, key: &Key, value: impl Into<Bytes>) -> Revision {
    store.commit(Txn::new().put(key, value.into())).await.unwrap()
}

pub async fn put_map(store: &SharedStore, name: &str, value: &str) -> Revision {
    put(store, &map_key(name), map_text(name, value)).await
}

pub async fn delete(store: &SharedStore, key: &Key) -> Revision {
    store.commit(Txn::new().delete(key)).await.unwrap()
}

/// A store that answers what a test tells it to.
pub struct Odd {
    inner: SharedStore,
    tricks: Arc<Tricks>,
}

#[derive(Default)]
pub struct Tricks {
    pub n_current: AtomicU64,
    /// What `current` answers instead of the truth.
    pub current: Mutex<Option<Revision>>,
    /// The store that is listed instead.
    pub lists: Mutex<Option<SharedStore>>,
    /// Every list needs a permit of this.
    pub hold: Mutex<Option<Arc<tokio::sync::Semaphore>>>,
    /// What the next watches fail with, last first.
    pub watch_errors: Mutex<Vec<WatchError>>,
}

impl Odd {
    pub fn around(inner: SharedStore) -> (SharedStore, Arc<Tricks>) {
        let tricks = Arc::new(Tricks::default());
        (SharedStore::new(Self { inner, tricks: Arc::clone(&tricks) }), tricks)
    }
}

impl Store for Odd {
    async fn current(&self) -> Result<Revision, ReadError> {
        self.tricks.n_current.fetch_add(1, Ordering::SeqCst);
        let lie = *self.tricks.current.lock();
        match lie {
            Some(lie) => Ok(lie),
            None => self.inner.current().await,
        }
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, ReadError> {
        self.inner.get(key).await
    }

    async fn list(&self, range: &Range, at: ReadAt, limit: usize) -> Result<Page, ReadError> {
        let hold = self.tricks.hold.lock().clone();
        if let Some(hold) = hold {
            hold.acquire().await.unwrap().forget();
        }
        let elsewhere = self.tricks.lists.lock().clone();
        elsewhere.as_ref().unwrap_or(&self.inner).list(range, at, limit).await
    }

    async fn watch(&self, range: &Range, after: Revision) -> Result<Events, WatchError> {
        let error = self.tricks.watch_errors.lock().pop();
        match error {
            Some(error) => Err(error),
            None => self.inner.watch(range, after).await,
        }
    }

    async fn commit(&self, txn: Txn) -> Result<Revision, CommitError> {
        self.inner.commit(txn).await
    }

    async fn compact(&self, before: Revision) -> Result<(), CommitError> {
        self.inner.compact(before).await
    }
}

impl Leases for Odd {
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
