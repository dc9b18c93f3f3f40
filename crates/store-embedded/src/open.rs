//! Opening a directory: who may, what must be in it, and what is wrong with it otherwise.
//!
//! The files: `lock` (held while open, contains the process id), `store.redb` (everything), `reserve` (space for
//! removals on a full disk). A store is made under another name and renamed when complete, so a file with the right name
//! is never half made.

use std::{
    fs::{File, TryLockError},
    io::{self, Read, Seek, Write as _},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use crate::{
    disk::{Disk, DiskError, Maker, Write, sync_directory},
    record::{Damage, FORMAT, Tally},
    space::{self, Space},
    state::State,
    store::Options,
    volume::Volume,
};

/// The file that holds everything.
pub(crate) const FILE: &str = "store.redb";
/// Its name while an empty store is made.
const NEW: &str = "store.redb.new";
/// Its name while a snapshot is restored.
pub(crate) const RESTORING: &str = "store.redb.restoring";
const LOCK: &str = "lock";
/// What the names of copies begin with that a server made for somebody.
const SNAPSHOT: &str = ".snapshot-";

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
    /// There is no store. One is made only by whoever asks for that.
    #[error("there is no store in {}: {FILE} is missing; name the directory that a server was given as --data-dir, and make sure that its disk is mounted", .directory.display())]
    Missing {
        /// The directory.
        directory: PathBuf,
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
    pub(crate) space: Space,
}

/// What becomes of a directory without a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfMissing {
    /// It is refused, and nothing in it changes.
    Refuse,
    /// An empty store is made.
    Make,
}

/// Opens the store in a directory.
pub(crate) fn open(
    directory: &Path,
    options: &Options,
    if_missing: IfMissing,
    volume: Volume,
) -> Result<Opened, OpenError> {
    match if_missing {
        // Before the lock, which is a file as well.
        IfMissing::Refuse => must_exist(directory)?,
        IfMissing::Make => create_directory(directory)
            .map_err(|source| OpenError::Io { path: directory.to_owned(), source })?,
    }
    let lock = lock(directory)?;
    sweep(directory);
    let path = directory.join(FILE);
    let io = |source| OpenError::Io { path: path.clone(), source };
    if !path.try_exists().map_err(io)? {
        let restoring = directory.join(RESTORING);
        if restoring.try_exists().map_err(io)? {
            return Err(OpenError::Unfinished { path: restoring });
        }
        if if_missing == IfMissing::Refuse {
            return Err(OpenError::Missing { directory: directory.to_owned() });
        }
        make(directory, NEW, |maker| maker.write(&Write::default()))?;
    }
    let file = File::options().read(true).write(true).open(&path).map_err(io)?;
    if file.metadata().map_err(io)?.len() == 0 {
        // The engine would quietly start anew.
        return Err(OpenError::Damaged { path, what: "the file is empty".into() });
    }
    let mut space = Space::new(options.limits(), volume.has_reserve(options.reserve_bytes));
    // Even opening writes a little.
    space::look(&mut space, &volume, options.reserve_bytes, 0, true);
    // The engine checks what it reads, but not everywhere: some damage ends in a panic.
    let opened = catch_unwind(AssertUnwindSafe(|| {
        let disk = Disk::open(&path, options.cache_bytes, lock, file, volume)
            .map_err(|error| engine(&path, error.into()))?;
        load(disk, options, space).map_err(|error| unreadable(&path, error))
    }));
    opened.unwrap_or_else(|_| {
        Err(OpenError::Damaged { path: path.clone(), what: "its structure makes no sense".into() })
    })
}

/// Removes copies of the store that earlier releases left in its directory when somebody hung up: nobody knows of them, and
/// they hold every Secret.
fn sweep(directory: &Path) {
    let Ok(files) = std::fs::read_dir(directory) else { return };
    for file in files.flatten() {
        let is_left = file.file_name().to_string_lossy().starts_with(SNAPSHOT);
        if is_left && let Err(error) = std::fs::remove_file(file.path()) {
            tracing::warn!(path = %file.path().display(), %error, "a copy of the store that was left cannot be removed");
        }
    }
}

/// Whether there is a store, or what is left of a restore.
fn must_exist(directory: &Path) -> Result<(), OpenError> {
    for name in [FILE, RESTORING] {
        let path = directory.join(name);
        match path.try_exists() {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(source) => return Err(OpenError::Io { path, source }),
        }
    }
    Err(OpenError::Missing { directory: directory.to_owned() })
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

/// Creates a directory for this user only, and makes sure that it is there after a crash: its name is written in its
/// parent, as that of a parent which is new is in its own.
pub(crate) fn create_directory(directory: &Path) -> io::Result<()> {
    let unsynced = holders_of_new(directory);
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)?;
    unsynced.iter().try_for_each(|it| sync_directory(it))
}

/// The directories in which a name will be new once `directory` is made, the topmost last.
fn holders_of_new(directory: &Path) -> Vec<PathBuf> {
    let missing = directory.ancestors().take_while(|it| !it.as_os_str().is_empty() && !it.exists());
    let holder = |it: &Path| match it.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    missing.map(holder).collect()
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
    // For people only: on a full disk it may be missing.
    let pid = format!("{}\n", std::process::id());
    let written = file.rewind().and_then(|()| file.write_all(pid.as_bytes()));
    match written.and_then(|()| file.set_len(u64::try_from(pid.len()).map_err(io::Error::other)?)) {
        Err(error) if error.kind() != io::ErrorKind::StorageFull => Err(io(error)),
        _ => Ok(file),
    }
}

fn load(disk: Disk, options: &Options, mut space: Space) -> Result<Opened, DiskError> {
    let (now, wall) = (options.clock.monotonic(), options.clock.now().as_millisecond());
    let mut state = None;
    let mut leases = Vec::new();
    let meta = disk.load(
        |meta, record| {
            state.get_or_insert_with(|| State::new(meta, options.recent_bytes)).load(record);
        },
        |_, lease, record| leases.push((lease, record)),
    )?;
    let mut state = state.unwrap_or_else(|| State::new(&meta, options.recent_bytes));
    for (lease, record) in leases {
        state.load_lease(lease, record, now, record.remaining(wall));
    }
    if !state.finish_loading() {
        return Err(DiskError::Inconsistent("a key hangs on a lease that is missing".into()));
    }
    space::look(&mut space, &disk.volume, options.reserve_bytes, state.used(), true);
    // Moving things about needs a little space for a while.
    if space.alarm().is_none() && space::is_mostly_empty(disk.size()?, state.used(), options.shrink_bytes) {
        tracing::info!(size = disk.size()?, used = state.used(), "shrinking the store's file");
        disk.shrink()?;
    }
    Ok(Opened { disk, state, tally: meta.tally, space })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What is in a directory survives a crash only if its own name does.
    #[test]
    fn every_directory_that_gets_a_new_name_is_synced() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("a"), dir.path().join("a/b"));
        assert_eq!(holders_of_new(&two.join("c")), [two.clone(), one.clone(), dir.path().to_owned()]);
        create_directory(&two).unwrap();
        assert_eq!(holders_of_new(&two), Vec::<PathBuf>::new());
        assert_eq!(holders_of_new(&two.join("c")), [two]);
        assert_eq!(holders_of_new(Path::new("surely-not-there")), [PathBuf::from(".")]);
    }
}
