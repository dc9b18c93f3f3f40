//! The store itself: what it is made of and its contract, each method in the module of its verb.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64},
    },
    time::Duration,
};

use parking_lot::Mutex;
use store::{
    CommitError, Entry, Events, Key, LeaseError, LeaseId, Leases, Page, Range, ReadAt, ReadError, Revision,
    Store, Txn, WatchError,
};
use tokio::sync::Semaphore;

use crate::{
    client::{Client, request},
    config::{ConnectError, Credentials, EtcdConfig},
    failure::Harm,
    history::History,
    layout::Layout,
    proto::{StatusRequest, StatusResponse, maintenance_client::MaintenanceClient},
    read::{Current, unavailable},
    settle, watch,
};

/// A store in etcd. Cheap to clone; all clones are the same store.
///
/// # Layout
/// Callers use `/registry/…` for objects and `/convoy/…` for our own records. With the default prefix keys are
/// stored as they are. With a prefix `/other` objects lie at `/other/…` and records at `/other.convoy/…`;
/// nothing else can be stored then. Ranges may span both roots, also in one watch.
///
/// # Progress
/// A watch whose range holds all of `/registry/` follows every write in etcd, foreign ones included, and
/// reports those as progress: it reaches every revision that [`Store::current`] returned. A narrower watch only
/// hears of its own keys (and of progress every ten minutes), because etcd before 3.4.31 and 3.5.13 cannot be
/// asked for progress reliably. With a user that etcd shows only its own keys the same watch hears only of those;
/// then [`Store::current`] writes a key among the objects (`/registry/convoy.progress`) whenever something foreign may
/// be the newest, and returns that write's revision, which the watch reaches.
///
/// # Errors
/// Reads and lease calls are tried again at other members for about the request timeout. A commit is tried
/// again only if it certainly did not happen: it never reached etcd, or it was withdrawn (`settle.rs`). If that takes
/// too long it fails as [`CommitError::ReadOnly`], and as [`CommitError::Unavailable`] whenever it may have happened.
/// Once etcd's revision went back, another cluster answers, or its history is another one ([`EtcdStore::begin_history`]),
/// everything fails until the process restarts.
#[derive(Clone)]
pub struct EtcdStore {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    config: EtcdConfig,
    /// What was read from the files that the configuration names, and is in use.
    credentials: Mutex<Credentials>,
    pub(crate) client: Client,
    pub(crate) layout: Layout,
    pub(crate) current: Mutex<Current>,
    pub(crate) history: History,
    /// Under which term writes are sent, see [`crate::settle`].
    pub(crate) term: AtomicI64,
    /// Reads of history that may begin.
    pub(crate) histories: Semaphore,
    /// Whether etcd lets us see only our own keys.
    pub(crate) is_limited: AtomicBool,
    /// How far a watch of all objects got.
    pub(crate) reached: Mutex<Revision>,
}

impl EtcdStore {
    /// Connects, and makes sure that etcd answers.
    pub async fn connect(config: EtcdConfig) -> Result<Self, ConnectError> {
        let credentials = config.credentials()?;
        let addresses = config.addresses(&credentials)?;
        let layout = Layout::new(&config.prefix)?;
        let client = Client::new(addresses, config.clock.clone(), config.request_timeout);
        let inner = Inner {
            config,
            credentials: Mutex::new(credentials),
            client,
            layout,
            current: Mutex::default(),
            history: History::default(),
            term: AtomicI64::new(0),
            histories: Semaphore::new(settle::HISTORIES),
            is_limited: AtomicBool::new(false),
            reached: Mutex::default(),
        };
        let store = Self { inner: Arc::new(inner) };
        let unreachable = |it: ReadError| ConnectError::Unreachable(it.to_string());
        store.inner.look_for_limits().await.map_err(unreachable)?;
        store.inner.read_term().await.map_err(unreachable)?;
        let revision = store.inner.current().await.map_err(unreachable)?;
        match store.release().await {
            Ok(release) => tracing::info!(release, %revision, "connected to etcd"),
            Err(error) => {
                tracing::warn!(%revision, "connected to etcd, which does not tell its release: {error}")
            }
        }
        Ok(store)
    }

    /// Reads the certificates again. If they have changed and etcd answers over them, they are used from the next call on;
    /// says whether that is so. On an error everything stays as it was.
    pub async fn reload_certificates(&self) -> Result<bool, ConnectError> {
        let Inner { config, credentials: used, client, .. } = &*self.inner;
        let credentials = config.credentials()?;
        if *used.lock() == credentials {
            return Ok(false);
        }
        let addresses = config.addresses(&credentials)?;
        client.renew(&addresses).await.map_err(|it| ConnectError::Rejected(it.to_string()))?;
        *used.lock() = credentials;
        Ok(true)
    }

    /// The release of the member that is asked now, such as `3.5.21`.
    pub async fn release(&self) -> Result<String, ReadError> {
        let call =
            |channel| async move { MaintenanceClient::new(channel).status(request(StatusRequest {})).await };
        let answer: StatusResponse =
            self.inner.client.call(Harm::None, call).await.map_err(|it| unavailable(&it))?;
        Ok(answer.version)
    }
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtcdStore({:?})", self.inner.layout)
    }
}

impl Store for EtcdStore {
    async fn current(&self) -> Result<Revision, ReadError> {
        self.coalesced_current().await
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, ReadError> {
        self.inner.get(key).await
    }

    async fn list(&self, range: &Range, at: ReadAt, limit: usize) -> Result<Page, ReadError> {
        self.inner.list(range, at, limit).await
    }

    async fn watch(&self, range: &Range, after: Revision) -> Result<Events, WatchError> {
        watch::open(Arc::clone(&self.inner), range.clone(), after).await
    }

    async fn commit(&self, txn: Txn) -> Result<Revision, CommitError> {
        self.inner.commit(txn).await
    }

    async fn compact(&self, before: Revision) -> Result<(), CommitError> {
        self.inner.compact(before).await
    }
}

impl Leases for EtcdStore {
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
