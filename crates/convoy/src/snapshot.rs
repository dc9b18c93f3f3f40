//! `convoy snapshot`: copies of the embedded store, taken from a directory at rest or from a server that runs.

mod remote;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use clap::Subcommand;
use server::{
    body::{Body, BoxError},
    snapshot::{Making, Snapshots},
};
use store::SystemClock;
use store_embedded::{DEFAULT_RAISE, EmbeddedStore, OpenError, Options, SnapshotReport};
use tokio::{fs::File, io::AsyncReadExt};

use crate::{cli::say, failure::Failure};

/// What can be done with snapshots.
#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// Write a copy of the store to a file, while the server runs or not.
    Save {
        /// The file to write; replaced if it exists.
        file: PathBuf,
        /// The store's directory. If a server has it open, the server is asked through the kubeconfig.
        #[arg(long, value_name = "DIR")]
        data_dir: Option<PathBuf>,
        /// Ask the server that this kubeconfig names [default: $KUBECONFIG, or admin.kubeconfig in the data directory].
        #[arg(long, value_name = "FILE")]
        kubeconfig: Option<PathBuf>,
    },
    /// Make a store from a copy. Its revision is raised, so that no client takes the past for the present.
    Restore {
        /// The file to read.
        file: PathBuf,
        /// The directory of the new store: new, or empty.
        #[arg(long, value_name = "DIR")]
        data_dir: PathBuf,
    },
}

/// Runs one of them.
pub fn run(command: SnapshotCommand) -> Result<(), Failure> {
    match command {
        SnapshotCommand::Restore { file, data_dir } => restore(&file, &data_dir),
        SnapshotCommand::Save { file, data_dir, kubeconfig } => {
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .map_err(|it| Failure::failed(format!("cannot start threads: {it}")))?;
            runtime.block_on(save(&file, data_dir.as_deref(), kubeconfig))
        }
    }
}

fn restore(file: &Path, data_dir: &Path) -> Result<(), Failure> {
    let SnapshotReport { revision, n_entries } =
        store_embedded::restore(file, data_dir, DEFAULT_RAISE).map_err(|it| Failure::because(&it))?;
    say(&format!(
        "Restored {n_entries} entries into {}; the store is at revision {revision}.\n",
        data_dir.display()
    ));
    Ok(())
}

async fn save(file: &Path, data_dir: Option<&Path>, kubeconfig: Option<PathBuf>) -> Result<(), Failure> {
    let mut kubeconfig = kubeconfig;
    if let Some(folder) = data_dir.filter(|_| kubeconfig.is_none()) {
        match save_at_rest(file, folder).await {
            Err(AtRest::InUse(in_use)) => {
                let beside = folder.join("admin.kubeconfig");
                let found = if beside.exists() { Some(beside) } else { from_environment() };
                let hint = || {
                    Failure::failed(format!("{in_use}; ask the server that runs there, with --kubeconfig"))
                };
                kubeconfig = Some(found.ok_or_else(hint)?);
            }
            Err(AtRest::Failed(failure)) => return Err(failure),
            Ok(report) => {
                let SnapshotReport { revision, n_entries } = report;
                let file = file.display();
                say(&format!("Saved {n_entries} entries at revision {revision} to {file}.\n"));
                return Ok(());
            }
        }
    }
    let kubeconfig = kubeconfig.or_else(from_environment);
    let kubeconfig =
        kubeconfig.ok_or_else(|| Failure::usage("either --data-dir or --kubeconfig is needed"))?;
    let n_bytes = remote::save(file, &kubeconfig).await?;
    say(&format!("Saved {n_bytes} bytes to {}.\n", file.display()));
    Ok(())
}

fn from_environment() -> Option<PathBuf> {
    let value = std::env::var_os("KUBECONFIG").filter(|it| !it.is_empty())?;
    std::env::split_paths(&value).next()
}

enum AtRest {
    InUse(String),
    Failed(Failure),
}

async fn save_at_rest(file: &Path, folder: &Path) -> Result<SnapshotReport, AtRest> {
    // Opening would make a store where there is none.
    if !folder.is_dir() {
        return Err(AtRest::Failed(Failure::failed(format!("there is no directory {}", folder.display()))));
    }
    let options = Options { compaction_interval: None, ..Options::new(SystemClock::shared()) };
    let store = EmbeddedStore::open(folder, options).map_err(|error| match error {
        OpenError::InUse { .. } => AtRest::InUse(error.to_string()),
        error => AtRest::Failed(Failure::because(&error)),
    })?;
    let saved = store.snapshot(file).await;
    store.close().await;
    saved.map_err(|it| AtRest::Failed(Failure::because(&it)))
}

/// Snapshots of a store that runs, for the server to hand out: each is written beside the store, then sent and gone.
pub fn of(store: EmbeddedStore, folder: PathBuf) -> Snapshots {
    let folder: Arc<Path> = folder.into();
    Snapshots::new(move || -> Making {
        let (store, folder) = (store.clone(), Arc::clone(&folder));
        Box::pin(async move {
            let path = folder.join(format!(".snapshot-{:016x}", rand::random::<u64>()));
            let saved = store.snapshot(&path).await.map_err(|it| crate::failure::chain(&it));
            let opened = match &saved {
                Ok(_) => File::open(&path).await.map_err(|it| it.to_string()),
                Err(error) => Err(error.clone()),
            };
            // The name goes at once, the file when the last byte was read.
            let _ = tokio::fs::remove_file(&path).await;
            Ok(Body::stream(chunks(opened?)))
        })
    })
}

fn chunks(file: File) -> impl futures_util::Stream<Item = Result<Bytes, BoxError>> + Send {
    futures_util::stream::try_unfold(file, |mut file| async move {
        let mut chunk = bytes::BytesMut::with_capacity(256 * 1024);
        let n_bytes = file.read_buf(&mut chunk).await?;
        Ok((n_bytes > 0).then(|| (chunk.freeze(), file)))
    })
}
