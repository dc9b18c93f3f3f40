//! The store that the flags ask for, with what only its kind can do.

use std::{path::PathBuf, sync::Arc, time::Duration};

use parking_lot::Mutex;
use server::{lifecycle::Lifecycle, snapshot::Snapshots};
use store::{MemoryStore, SharedClock, SharedStore, Store};
use store_embedded::{EmbeddedStore, Health, Options};
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
    /// In etcd; the result of the last check.
    Etcd(EtcdStore, Arc<Mutex<Result<(), String>>>),
}

impl Storage {
    /// Opens what the flags ask for.
    pub async fn open(flags: &StorageFlags, clock: &SharedClock) -> Result<Self, Failure> {
        if flags.etcd.etcd_servers.is_empty() {
            let folder = flags.data_dir.clone().unwrap_or_else(|| DEFAULT_DATA_DIR.into());
            let interval = flags.etcd_compaction_interval.0;
            let compaction_interval = (!interval.is_zero()).then_some(interval);
            let options = Options { compaction_interval, ..Options::new(Arc::clone(clock)) };
            let store = EmbeddedStore::open(&folder, options).map_err(|it| Failure::because(&it))?;
            return Ok(Self::Embedded(store, folder));
        }
        let config = EtcdConfig {
            ca: flags.etcd.etcd_cafile.clone(),
            cert: flags.etcd.etcd_certfile.clone(),
            key: flags.etcd.etcd_keyfile.clone(),
            prefix: flags.etcd.etcd_prefix.clone(),
            ..EtcdConfig::new(flags.etcd.etcd_servers.clone(), Arc::clone(clock))
        };
        let store = EtcdStore::connect(config).await.map_err(|it| Failure::because(&it))?;
        Ok(Self::Etcd(store, Arc::new(Mutex::new(Ok(())))))
    }

    /// The store, to hand in.
    pub fn shared(&self) -> SharedStore {
        match self {
            Self::Embedded(store, _) => SharedStore::new(store.clone()),
            Self::Memory(store) => SharedStore::new(store.clone()),
            Self::Shared(store) => store.clone(),
            Self::Etcd(store, _) => SharedStore::new(store.clone()),
        }
    }

    /// Whether no other process can be using the store at the same time.
    pub fn is_exclusive(&self) -> bool {
        match self {
            Self::Embedded(..) | Self::Memory(_) => true,
            Self::Shared(_) | Self::Etcd(..) => false,
        }
    }

    /// Whether the store takes writes, for health checks.
    pub fn health(&self) -> Box<dyn Fn() -> Result<(), String> + Send + Sync> {
        match self {
            Self::Embedded(store, _) => {
                let store = store.clone();
                Box::new(move || match store.health() {
                    Health::Writable => Ok(()),
                    Health::ReadOnly(why) => Err(why),
                })
            }
            Self::Memory(_) | Self::Shared(_) => Box::new(|| Ok(())),
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
            Self::Memory(_) | Self::Shared(_) | Self::Etcd(..) => None,
        }
    }

    /// Starts what the store needs beside it.
    pub fn start_tasks(&self, compaction_interval: Duration, clock: &SharedClock, lifecycle: &Lifecycle) {
        // The embedded store looks after itself.
        let Self::Etcd(store, last) = self else { return };
        let compacted = store.clone();
        lifecycle
            .tasks()
            .spawn("etcd-compaction", async move { compacted.compact_every(compaction_interval).await });
        let (store, last, clock) = (store.clone(), Arc::clone(last), Arc::clone(clock));
        lifecycle.tasks().spawn("etcd-check", async move {
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
            Self::Memory(_) | Self::Shared(_) | Self::Etcd(..) => {}
        }
    }
}
