//! `convoy snapshot`: copies of the embedded store, taken from a directory at rest or from a server that runs.

mod remote;

use std::{
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
};

use bytes::Bytes;
use clap::Subcommand;
use fleet::{ClusterId, restore::Carried};
use server::{
    body::{Body, BoxError},
    snapshot::{Making, NotMade, Snapshots},
};
use store::{Key, SystemClock};
use store_embedded::{Carry, EmbeddedStore, OpenError, Options, SnapshotError, SnapshotReport};
use tokio::{
    fs::File,
    io::{AsyncReadExt, AsyncSeekExt},
    sync::{OwnedSemaphorePermit, Semaphore},
};

use crate::{cli::say, failure::Failure};

/// What can be done with snapshots.
#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// Write a copy of the store to a file, while the server runs or not.
    Save {
        /// The file to write; replaced if it exists.
        file: PathBuf,
        /// The store's directory. If a server has it open, the server is asked through admin.kubeconfig in it.
        #[arg(long, value_name = "DIR")]
        data_dir: Option<PathBuf>,
        /// Ask the server that this kubeconfig names [default: $KUBECONFIG, if --data-dir is not given].
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
    let id = ClusterId::new(format!("{:032x}", rand::random::<u128>()));
    let carry = |key: &Key, value: &Bytes| match fleet::restore::carry(key, value, &id) {
        Ok(Carried::AsIs) => Ok(Carry::AsIs),
        Ok(Carried::Replaced(value)) => Ok(Carry::Replaced(value)),
        Ok(Carried::Dropped) => Ok(Carry::Dropped),
        Err(error) => Err(error.to_string()),
    };
    // Before anything is made: a file that cannot be restored leaves the directory as it was.
    store_embedded::verify(file).map_err(|it| Failure::because(&it))?;
    let restored = store_embedded::restore(file, data_dir, &SystemClock::new(), carry);
    let SnapshotReport { revision, n_entries } = restored.map_err(|it| Failure::because(&it))?;
    say(&format!(
        "Restored {n_entries} entries into {}; the store is at revision {revision} and is cluster {id}.\n",
        data_dir.display()
    ));
    Ok(())
}

async fn save(file: &Path, data_dir: Option<&Path>, kubeconfig: Option<PathBuf>) -> Result<(), Failure> {
    let mut kubeconfig = kubeconfig;
    if let Some(folder) = data_dir.filter(|_| kubeconfig.is_none()) {
        match save_at_rest(file, folder).await {
            Err(AtRest::InUse(in_use)) => {
                // $KUBECONFIG may name another cluster, whose copy would replace the one that is wanted.
                let beside = folder.join("admin.kubeconfig");
                if !beside.exists() {
                    let hint = format!("{in_use}; ask the server that runs there, with --kubeconfig");
                    return Err(Failure::failed(hint));
                }
                kubeconfig = Some(beside);
            }
            Err(AtRest::Failed(failure)) => return Err(failure),
            Ok(report) => return tell_saved(file, report),
        }
    }
    let kubeconfig = kubeconfig.or_else(from_environment);
    let kubeconfig =
        kubeconfig.ok_or_else(|| Failure::usage("either --data-dir or --kubeconfig is needed"))?;
    tell_saved(file, remote::save(file, &kubeconfig).await?)
}

fn tell_saved(file: &Path, report: SnapshotReport) -> Result<(), Failure> {
    let SnapshotReport { revision, n_entries } = report;
    let note = if n_entries == 0 { " The store is empty." } else { "" };
    say(&format!("Saved {n_entries} entries at revision {revision} to {}.{note}\n", file.display()));
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
    let options =
        Options { compaction_interval: None, reserve_bytes: 0, ..Options::new(SystemClock::shared()) };
    let store = EmbeddedStore::open(folder, options).map_err(|error| match error {
        OpenError::InUse { .. } => AtRest::InUse(error.to_string()),
        error => AtRest::Failed(Failure::because(&error)),
    })?;
    let saved = store.snapshot(file).await;
    store.close().await;
    saved.map_err(|it| AtRest::Failed(Failure::because(&it)))
}

/// Snapshots of a store that runs, for the server to hand out, one at a time: each is written to a file without a name
/// beside the store, then sent. Nothing is left of it, however this process or the receiver ends.
pub fn of(store: EmbeddedStore, folder: PathBuf) -> Snapshots {
    let folder: Arc<Path> = folder.into();
    let one = Arc::new(Semaphore::new(1));
    Snapshots::new(move || -> Making {
        let (store, folder, one) = (store.clone(), Arc::clone(&folder), Arc::clone(&one));
        Box::pin(async move {
            let turn = one.try_acquire_owned().map_err(|_| NotMade::Busy)?;
            let file = unnamed(&folder).map_err(|it| {
                NotMade::Failed(format!("no file can be made in {}: {it}", folder.display()))
            })?;
            let wanted = Arc::new(());
            let reader = file.try_clone().map_err(|it| NotMade::Failed(it.to_string()))?;
            let receiver = Arc::downgrade(&wanted);
            let made = async move {
                let is_wanted = move || receiver.strong_count() > 0;
                store.snapshot_into(file, &folder.join(UNNAMED), is_wanted).await
            };
            // Made while it is answered: a receiver that has gone takes the body with it, and that ends the making.
            let sending =
                Sending { made: Some(Box::pin(made)), file: File::from_std(reader), _held: (wanted, turn) };
            Ok(Body::stream(chunks(sending)))
        })
    })
}

/// How errors call a copy that is made for somebody.
const UNNAMED: &str = ".snapshot";

/// A file that only its descriptor leads to.
fn unnamed(folder: &Path) -> std::io::Result<std::fs::File> {
    tempfile::Builder::new().prefix(".snapshot-").tempfile_in(folder).map(tempfile::NamedTempFile::into_file)
}

/// The making of a copy.
type Made = Pin<Box<dyn Future<Output = Result<SnapshotReport, SnapshotError>> + Send>>;

/// A copy on its way.
struct Sending {
    /// Ends when the copy is complete; nothing once it has.
    made: Option<Made>,
    file: File,
    /// Lets the making go on, and keeps the next one waiting.
    _held: (Arc<()>, OwnedSemaphorePermit),
}

fn chunks(sending: Sending) -> impl futures_util::Stream<Item = Result<Bytes, BoxError>> + Send {
    futures_util::stream::try_unfold(sending, |mut sending| async move {
        if let Some(made) = sending.made.take() {
            if let Err(error) = made.await {
                let why = crate::failure::chain(&error);
                tracing::error!(why, "a snapshot could not be made");
                return Err(why.into());
            }
            sending.file.rewind().await?;
        }
        let mut chunk = bytes::BytesMut::with_capacity(256 * 1024);
        let n_bytes = sending.file.read_buf(&mut chunk).await?;
        Ok((n_bytes > 0).then(|| (chunk.freeze(), sending)))
    })
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use store::{Store, Txn};

    use super::*;

    fn left_in(folder: &Path) -> Vec<String> {
        let names = std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name());
        names.map(|it| it.to_string_lossy().into_owned()).filter(|it| it.starts_with(".snapshot")).collect()
    }

    /// Four receivers that hung up left four copies of every Secret, also after a restart.
    #[tokio::test]
    async fn copies_have_no_name_are_made_one_at_a_time_and_end_with_their_receiver() {
        let folder = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open_or_make(folder.path(), Options::new(SystemClock::shared())).unwrap();
        store.commit(Txn::new().put(&Key::new("/secret"), Bytes::from(vec![b'x'; 1 << 20]))).await.unwrap();
        let snapshots = of(store, folder.path().to_owned());
        for _ in 0..4 {
            let mut body = snapshots.make().await.unwrap();
            assert_eq!(snapshots.make().await.map(drop), Err(NotMade::Busy));
            assert_eq!(left_in(folder.path()), Vec::<String>::new());
            let first = body.frame().await.unwrap().unwrap();
            assert!(first.into_data().unwrap().starts_with(b"convoy snapshot"));
            assert_eq!(left_in(folder.path()), Vec::<String>::new());
            // The receiver hangs up.
            drop(body);
        }
        let whole = snapshots.make().await.unwrap().collect().await.unwrap().to_bytes();
        let file = folder.path().join("received");
        std::fs::write(&file, whole).unwrap();
        assert_eq!(store_embedded::verify(&file).unwrap().n_entries, 1);
        drop(snapshots.make().await.unwrap());
    }
}
