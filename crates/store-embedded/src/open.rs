//! Opening a directory: who may, what must be in it, and what is wrong with it otherwise.
//!
//! The files: `lock` (held while open, contains the process id), `store.redb` (everything). A store is made
//! under another name and renamed when complete, so a file with the right name is never half made.

use std::{
    fs::{File, TryLockError},
    io::{self, Read, Seek, Write as _},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use redb::{DatabaseError, StorageBackend};

use crate::{
    disk::{Disk, DiskError, Maker, Write, sync_directory},
    record::{Damage, FORMAT, Tally},
    state::State,
    store::Options,
};

/// The file that holds everything.
pub(crate) const FILE: &str = "store.redb";
/// Its name while an empty store is made.
const NEW: &str = "store.redb.new";
/// Its name while a snapshot is restored.
pub(crate) const RESTORING: &str = "store.redb.restoring";
const LOCK: &str = "lock";

/// Why a directory cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("the data directory {} is in use by another process{}", .directory.display(), of_pid(*.pid))]
    InUse {
        /// The directory.
        directory: PathBuf,
        /// Who has it, if that could be read.
        pid: Option<u32>,
    },
    /// A file or directory cannot be read or written.
    #[error("cannot use {}", .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not what was written. Restore a snapshot.
    #[error("the store in {} is damaged: {what}; restore a snapshot into an empty directory", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// Another build wrote the file.
    #[error("the store in {} has format {found}, this build reads format {FORMAT}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The format of the file.
        found: u32,
    },
    /// A restore was interrupted.
    #[error("{} is left over from a restore that was interrupted: empty the directory and restore again", .path.display())]
    Unfinished {
        /// The file.
        path: PathBuf,
    },
    /// There is no Tokio runtime to expire leases in.
    #[error("the store must be opened inside a Tokio runtime")]
    NoRuntime,
}

fn of_pid(pid: Option<u32>) -> String {
    pid.map(|it| format!(" (process {it})")).unwrap_or_default()
}

/// An open directory.
pub(crate) struct Opened {
    pub(crate) disk: Disk,
    pub(crate) state: State,
    pub(crate) tally: Tally,
}

/// Opens a directory, making an empty store in it if it has none.
pub(crate) fn open<B: StorageBackend>(
    directory: &Path,
    options: &Options,
    backend: impl FnOnce(File) -> Result<B, DatabaseError>,
) -> Result<Opened, OpenError> {
    create_directory(directory).map_err(|source| OpenError::Io { path: directory.to_owned(), source })?;
    let lock = lock(directory)?;
    let path = directory.join(FILE);
    let io = |source| OpenError::Io { path: path.clone(), source };
    if !path.try_exists().map_err(io)? {
        let restoring = directory.join(RESTORING);
        if restoring.try_exists().map_err(io)? {
            return Err(OpenError::Unfinished { path: restoring });
        }
        make(directory, NEW, |maker| maker.write(&Write::default()))?;
    }
    let file = File::options().read(true).write(true).open(&path).map_err(io)?;
    if file.metadata().map_err(io)?.len() == 0 {
        // The engine would quietly start anew.
        return Err(OpenError::Damaged { path, what: "the file is empty".into() });
    }
    // The engine checks what it reads, but not everywhere: some damage ends in a panic.
    let opened = catch_unwind(AssertUnwindSafe(|| {
        let backend = backend(file).map_err(|error| engine(&path, error.into()))?;
        let disk = Disk::open(&path, options.cache_bytes, lock, backend)
            .map_err(|error| engine(&path, error.into()))?;
        load(disk, options).map_err(|error| unreadable(&path, error))
    }));
    opened.unwrap_or_else(|_| {
        Err(OpenError::Damaged { path: path.clone(), what: "its structure makes no sense".into() })
    })
}

/// Makes a store under another name and renames it. A crash leaves nothing that looks like a store.
pub(crate) fn make(
    directory: &Path,
    name: &str,
    fill: impl FnOnce(&mut Maker) -> Result<(), DiskError>,
) -> Result<(), OpenError> {
    let (unfinished, path) = (directory.join(name), directory.join(FILE));
    let made = Maker::new(&unfinished).and_then(|mut maker| fill(&mut maker));
    made.map_err(|error| unreadable(&path, error))?;
    let finish = || {
        std::fs::rename(&unfinished, &path)?;
        sync_directory(directory)
    };
    finish().map_err(|source| OpenError::Io { path: path.clone(), source })
}

/// Creates a directory for this user only.
pub(crate) fn create_directory(directory: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

/// Takes the directory for this process. The lock goes with the process, however it ends.
pub(crate) fn lock(directory: &Path) -> Result<File, OpenError> {
    let path = directory.join(LOCK);
    let io = |source| OpenError::Io { path: path.clone(), source };
    // Not truncated: somebody else's process id may be in it.
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&path).map_err(io)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
            return Err(OpenError::InUse { directory: directory.to_owned(), pid });
        }
        Err(TryLockError::Error(source)) => return Err(io(source)),
    }
    let mut write_pid = || {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    write_pid().map_err(io)?;
    Ok(file)
}

fn load(disk: Disk, options: &Options) -> Result<Opened, DiskError> {
    let now = options.clock.monotonic();
    let mut state = None;
    let mut leases = Vec::new();
    let mut n_live_bytes = 0;
    let meta = disk.load(
        |meta, record| {
            n_live_bytes +=
                u64::try_from(record.key.len() + record.value.map_or(0, <[u8]>::len)).unwrap_or(0);
            state.get_or_insert_with(|| State::new(meta, options.recent_bytes)).load(record);
        },
        |_, lease, ttl| leases.push((lease, ttl)),
    )?;
    let mut state = state.unwrap_or_else(|| State::new(&meta, options.recent_bytes));
    for (lease, ttl) in leases {
        state.load_lease(lease, ttl, now);
    }
    if !state.finish_loading() {
        return Err(DiskError::Inconsistent("a key hangs on a lease that is missing".into()));
    }
    disk.shrink_if_mostly_empty(n_live_bytes)?;
    Ok(Opened { disk, state, tally: meta.tally })
}

fn unreadable(path: &Path, error: DiskError) -> OpenError {
    match error {
        DiskError::Engine(error) => engine(path, error),
        DiskError::Damage(Damage::Format { found }) => OpenError::Format { path: path.to_owned(), found },
        DiskError::Damage(_) | DiskError::Inconsistent(_) | DiskError::Closed => {
            OpenError::Damaged { path: path.to_owned(), what: error.to_string() }
        }
    }
}

fn engine(path: &Path, error: redb::Error) -> OpenError {
    let path = path.to_owned();
    match error {
        // Reading behind the end or a wrong magic number: the file was cut or overwritten.
        redb::Error::Io(source)
            if matches!(source.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData) =>
        {
            OpenError::Damaged { path, what: source.to_string() }
        }
        redb::Error::Io(source) => OpenError::Io { path, source },
        redb::Error::DatabaseAlreadyOpen => {
            OpenError::InUse { directory: path.parent().unwrap_or(&path).to_owned(), pid: None }
        }
        other => OpenError::Damaged { path, what: other.to_string() },
    }
}
