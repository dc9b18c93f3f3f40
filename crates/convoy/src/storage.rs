//! The store that the flags ask for, with what only its kind can do.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use fleet::keys;
use parking_lot::Mutex;
use server::{follow, lifecycle::Lifecycle, snapshot::Snapshots};
use store::{MemoryStore, Range, ReadAt, SharedClock, SharedStore, Store, Txn};
use store_embedded::{EmbeddedStore, Health, OpenError, Options};
use store_etcd::{EtcdConfig, EtcdStore};

use crate::{failure::Failure, flags::StorageFlags, snapshot};

/// Where objects are kept without a flag.
pub const DEFAULT_DATA_DIR: &str = "./convoy-data";

/// How often etcd is asked whether it still answers, and how long it may take.
const ETCD_CHECK: Duration = Duration::from_secs(2);

/// A store that is open.
pub enum Storage {
    /// In a directory.
    Embedded(EmbeddedStore, PathBuf),
    /// In this process, and gone with it.
    Memory(MemoryStore),
    /// Handed in by whoever embeds the server, perhaps for several at once.
    Shared(SharedStore),
    /// Opened for several servers of this process by whoever closes it when they are gone.
    Lent(Arc<Storage>),
    /// In etcd; the result of the last check.
    Etcd(EtcdStore, Arc<Mutex<Result<(), String>>>),
}

impl Storage {
    /// Opens what the flags ask for, to serve from it: a directory without a store gets one.
    pub async fn open_or_make(flags: &StorageFlags, clock: &SharedClock) -> Result<Self, Failure> {
        if !flags.etcd.etcd_servers.is_empty() {
            let store = connect(flags, clock).await?;
            store.refuse_nested().await.map_err(|it| Failure::because(&it))?;
            let nonce = format!("{:032x}", rand::random::<u128>());
            store.begin_history(&nonce).await.map_err(|it| Failure::because(&it))?;
            return Ok(Self::Etcd(store, Arc::new(Mutex::new(Ok(())))));
        }
        let (folder, options) = (folder(flags), options(flags, clock));
        let store = EmbeddedStore::open_or_make(&folder, options).map_err(|it| Failure::because(&it))?;
        if let Err(failure) = forget_the_dead(&store).await {
            // Their leases end anyway, a little later.
            tracing::warn!("what earlier servers said of themselves could not be removed: {failure}");
        }
        Ok(Self::Embedded(store, folder))
    }

    /// Opens what the flags ask for, to look at it: nothing is made where there is nothing.
    pub async fn open(flags: &StorageFlags, clock: &SharedClock) -> Result<Self, NotOpened> {
        if flags.etcd.etcd_servers.is_empty() {
            // Nothing is kept for removals by somebody who only looks.
            let options = Options { reserve_bytes: 0, quota_bytes: None, ..options(flags, clock) };
            let folder = folder(flags);
            let store = EmbeddedStore::open(&folder, options)?;
            return Ok(Self::Embedded(store, folder));
        }
        let store = connect(flags, clock).await?;
        must_be_used(&store, &flags.etcd.etcd_prefix).await?;
        Ok(Self::Etcd(store, Arc::new(Mutex::new(Ok(())))))
    }

    /// The store, to hand in.
    pub fn shared(&self) -> SharedStore {
        match self {
            Self::Embedded(store, _) => SharedStore::new(store.clone()),
            Self::Memory(store) => SharedStore::new(store.clone()),
            Self::Shared(store) => store.clone(),
            Self::Lent(storage) => storage.shared(),
            Self::Etcd(store, _) => SharedStore::new(store.clone()),
        }
    }

    /// Whether no other process can be using the store at the same time.
    pub fn is_exclusive(&self) -> bool {
        match self {
            Self::Embedded(..) | Self::Memory(_) => true,
            Self::Shared(_) | Self::Lent(_) | Self::Etcd(..) => false,
        }
    }

    /// Whether the store takes writes, for health checks.
    pub fn health(&self) -> Box<dyn Fn() -> Result<(), String> + Send + Sync> {
        match self {
            Self::Embedded(store, _) => {
                let store = store.clone();
                Box::new(move || match store.health() {
                    // What is there can be read and removed: others could not do more.
                    Health::Writable | Health::Full(_) => Ok(()),
                    Health::ReadOnly(why) => Err(why),
                })
            }
            Self::Memory(_) | Self::Shared(_) => Box::new(|| Ok(())),
            Self::Lent(storage) => storage.health(),
            Self::Etcd(_, last) => {
                let last = Arc::clone(last);
                Box::new(move || last.lock().clone())
            }
        }
    }

    /// Copies of the store while it runs, where it can make them.
    pub fn snapshots(&self) -> Option<Snapshots> {
        match self {
            Self::Embedded(store, folder) => Some(snapshot::of(store.clone(), folder.clone())),
            Self::Lent(storage) => storage.snapshots(),
            Self::Memory(_) | Self::Shared(_) | Self::Etcd(..) => None,
        }
    }

    /// Starts what the store needs beside it.
    pub fn start_tasks(&self, compaction_interval: Duration, clock: &SharedClock, lifecycle: &Lifecycle) {
        let (store, last) = match self {
            Self::Etcd(store, last) => (store, last),
            Self::Memory(store) => {
                let forget = forget_every(store.clone(), compaction_interval, Arc::clone(clock));
                return lifecycle.tasks().supervise("memory-compaction", forget);
            }
            // The embedded store looks after itself, and whoever hands in a store looks after it.
            Self::Embedded(..) | Self::Shared(_) | Self::Lent(_) => return,
        };
        let compacted = store.clone();
        lifecycle
            .tasks()
            .supervise("etcd-compaction", async move { compacted.compact_every(compaction_interval).await });
        let followed = store.clone();
        let reload = move || {
            let store = followed.clone();
            async move { Ok(store.reload_certificates().await?) }
        };
        let follow = follow::files("authority, certificate and key for etcd", Arc::clone(clock), reload);
        lifecycle.tasks().supervise("etcd-files", follow);
        let (store, last, clock) = (store.clone(), Arc::clone(last), Arc::clone(clock));
        lifecycle.tasks().supervise("etcd-check", async move {
            loop {
                clock.sleep(ETCD_CHECK).await;
                let checked = store.current().await.map(drop).map_err(|it| it.to_string());
                *last.lock() = checked;
            }
        });
    }

    /// Finishes what was handed in, and lets others have the store.
    pub async fn close(&self) {
        match self {
            Self::Embedded(store, _) => store.close().await,
            Self::Memory(_) | Self::Shared(_) | Self::Lent(_) | Self::Etcd(..) => {}
        }
    }
}

/// Why a store was not opened.
#[derive(Debug)]
pub enum NotOpened {
    /// A process has the directory: it can be asked instead.
    InUse(OpenError),
    /// There is no store.
    Missing(Failure),
    /// Anything else, damage included.
    Failed(Failure),
}

impl From<OpenError> for NotOpened {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::InUse { .. } => Self::InUse(error),
            OpenError::Missing { .. } => Self::Missing(Failure::because(&error)),
            error => Self::Failed(Failure::because(&error)),
        }
    }
}

impl From<Failure> for NotOpened {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<NotOpened> for Failure {
    fn from(error: NotOpened) -> Self {
        match error {
            NotOpened::InUse(error) => Self::because(&error),
            NotOpened::Missing(failure) | NotOpened::Failed(failure) => failure,
        }
    }
}

fn folder(flags: &StorageFlags) -> PathBuf {
    flags.data_dir.clone().unwrap_or_else(|| DEFAULT_DATA_DIR.into())
}

fn options(flags: &StorageFlags, clock: &SharedClock) -> Options {
    let interval = flags.etcd_compaction_interval.0;
    let compaction_interval = (!interval.is_zero()).then_some(interval);
    let quota_bytes = Some(flags.quota_backend_bytes).filter(|it| *it > 0);
    // A server that cannot join or vote cannot even remove anything.
    let essential = vec![keys::ROOT.to_owned()];
    Options { compaction_interval, quota_bytes, essential, ..Options::new(Arc::clone(clock)) }
}

async fn connect(flags: &StorageFlags, clock: &SharedClock) -> Result<EtcdStore, Failure> {
    let config = EtcdConfig {
        ca: flags.etcd.etcd_cafile.clone(),
        cert: flags.etcd.etcd_certfile.clone(),
        key: flags.etcd.etcd_keyfile.clone(),
        prefix: flags.etcd.etcd_prefix.clone(),
        ..EtcdConfig::new(flags.etcd.etcd_servers.clone(), Arc::clone(clock))
    };
    EtcdStore::connect(config).await.map_err(|it| Failure::because(&it))
}

/// An etcd has every prefix; what makes it a store is that something was written there.
async fn must_be_used(store: &EtcdStore, prefix: &str) -> Result<(), NotOpened> {
    for root in ["/convoy/", "/registry/"] {
        let found = store.list(&Range::prefix(root), ReadAt::Latest, 1).await;
        if !found.map_err(|it| Failure::because(&it))?.entries.is_empty() {
            return Ok(());
        }
    }
    Err(NotOpened::Missing(Failure::failed(format!(
        "nothing is stored in etcd under the prefix {prefix}: name the one that a server was given as --etcd-prefix"
    ))))
}

/// Removes what servers said of themselves that had a directory before: whoever has it now knows that they are gone, and
/// nobody need wait for them, or hand requests to them.
async fn forget_the_dead(store: &EmbeddedStore) -> Result<(), Failure> {
    for range in [keys::members(), keys::refusals()] {
        let page =
            store.list(&range, ReadAt::Latest, usize::MAX).await.map_err(|it| Failure::because(&it))?;
        if page.entries.is_empty() {
            continue;
        }
        let gone = |txn: Txn, it: &store::Entry| txn.require_at(&it.key, it.modified).delete(&it.key);
        let txn = page.entries.iter().fold(Txn::new(), gone);
        store.commit(txn).await.map_err(|it| Failure::because(&it))?;
    }
    Ok(())
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Embedded(..) => "Embedded",
            Self::Memory(_) => "Memory",
            Self::Shared(_) => "Shared",
            Self::Lent(_) => "Lent",
            Self::Etcd(..) => "Etcd",
        })
    }
}

/// Forgets what is older than the interval, as long as it runs; nothing if the interval is zero.
async fn forget_every(store: MemoryStore, interval: Duration, clock: SharedClock) {
    if interval.is_zero() {
        return;
    }
    let mut before = None;
    loop {
        if let Some(before) = before.take()
            && let Err(error) = store.compact(before).await
        {
            tracing::warn!("could not forget the store's history: {error}");
        }
        before = store.current().await.ok();
        clock.sleep(interval).await;
    }
}

#[cfg(test)]
mod tests {
    use store::{Key, ManualClock, Revision};

    use super::*;

    #[tokio::test]
    async fn a_store_in_memory_forgets_what_is_older_than_the_interval() {
        let clock = ManualClock::at(jiff::Timestamp::UNIX_EPOCH);
        let shared: SharedClock = clock.clone();
        let store = MemoryStore::new(Arc::clone(&shared));
        let lifecycle = Lifecycle::new();
        let minute = Duration::from_secs(60);
        Storage::Memory(store.clone()).start_tasks(minute, &shared, &lifecycle);
        let mut is_forgotten = false;
        for n in 0..50 {
            let key = Key::new("/a");
            store.commit(Txn::new().put(&key, n.to_string().into())).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
            clock.advance(minute);
            is_forgotten |= store.watch(&Range::prefix("/"), Revision::new(1)).await.is_err();
        }
        assert!(is_forgotten);
        let present = store.current().await.unwrap();
        assert!(store.watch(&Range::prefix("/"), present).await.is_ok());
        lifecycle.stop();
    }
}
