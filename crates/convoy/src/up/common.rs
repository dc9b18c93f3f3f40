//! What the servers of `convoy up` have in common: above all the store, which may have to be opened again.

use std::{net::IpAddr, path::PathBuf, sync::Arc};

use server::lifecycle::Lifecycle;
use store::{SharedClock, Store};

use super::{COMPACTION, release::Remembered};
use crate::{
    failure::Failure,
    flags::{San, StorageFlags},
    storage::Storage,
};

/// What all servers have in common.
pub(super) struct Common {
    pub(super) storage: Arc<Storage>,
    /// How it was opened; nothing of one that is in memory.
    pub(super) opened: Option<StorageFlags>,
    /// What the store needs beside it.
    pub(super) tasks: Lifecycle,
    pub(super) clock: SharedClock,
    pub(super) cert_dir: PathBuf,
    pub(super) tls_san: Vec<San>,
    pub(super) bind_address: IpAddr,
    pub(super) ports: Vec<u16>,
    /// Where the release is kept that all servers have.
    pub(super) remembered: Remembered,
}

impl Common {
    /// Connects to etcd anew if the connection is beyond help: one that has seen etcd go back, as after a restore from a
    /// backup, trusts nothing any more. Whoever is started after that begins with what is there now.
    pub(super) async fn renew_storage(&mut self) -> Result<(), Failure> {
        let (Storage::Etcd(before, _), Some(flags)) = (&*self.storage, &self.opened) else { return Ok(()) };
        if before.current().await.is_ok() {
            return Ok(());
        }
        let renewed = Storage::open_or_make(flags, &self.clock).await?;
        if before.current().await.is_ok() {
            // It was only out of reach.
            return Ok(());
        }
        self.tasks.stop();
        self.tasks = Lifecycle::new();
        renewed.start_tasks(COMPACTION, &self.clock, &self.tasks);
        self.storage = Arc::new(renewed);
        Ok(())
    }
}
