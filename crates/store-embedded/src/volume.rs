//! The disk under a store: how its file is reached, how much space is left, and the part of it that is kept for
//! removals.
//!
//! Deliberately not here: deciding when the reserve is given up (`space.rs`).

use std::{
    fs::File,
    io::{self, Write as _},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use redb::{Builder, Database, DatabaseError, StorageBackend};

use crate::disk::create_private;

/// The file that keeps space for removals.
const RESERVE: &str = "reserve";

/// How a store reaches its disk.
pub(crate) struct Volume {
    open: Box<dyn Fn(File, usize) -> Result<Database, DatabaseError> + Send + Sync>,
    room: Box<dyn Room>,
    trouble: Arc<Trouble>,
}

/// The space of a disk.
pub(crate) trait Room: Send + Sync {
    /// How many bytes are left.
    fn free(&self) -> io::Result<u64>;
    /// Keeps so many bytes from everybody.
    fn keep(&self, n_bytes: u64) -> io::Result<()>;
    /// Gives up what is kept.
    fn release(&self) -> io::Result<()>;
    /// Whether so many bytes are kept.
    fn is_kept(&self, n_bytes: u64) -> bool;
}

impl Volume {
    /// A disk whose file is reached through `backend`, as often as it is opened.
    pub(crate) fn new<B: StorageBackend>(
        backend: impl Fn(File) -> Result<B, DatabaseError> + Send + Sync + 'static,
        room: impl Room + 'static,
    ) -> Self {
        let trouble = Arc::new(Trouble::default());
        let noted = Arc::clone(&trouble);
        let open = move |file, cache_bytes| {
            let watched = Watched { inner: backend(file)?, trouble: Arc::clone(&noted) };
            Builder::new().set_cache_size(cache_bytes).create_with_backend(watched)
        };
        Self { open: Box::new(open), room: Box::new(room), trouble }
    }

    pub(crate) fn open(&self, file: File, cache_bytes: usize) -> Result<Database, DatabaseError> {
        (self.open)(file, cache_bytes)
    }

    /// Whether the only thing that ever went wrong is that there was no space. After a failed sync, nothing that is read
    /// proves what is on the disk.
    pub(crate) fn was_only_full(&self) -> bool {
        self.trouble.is_full.load(Ordering::Acquire) && !self.trouble.is_broken.load(Ordering::Acquire)
    }

    /// How many bytes are left, if that can be told.
    pub(crate) fn free(&self) -> Option<u64> {
        self.room.free().ok()
    }

    pub(crate) fn has_reserve(&self, n_bytes: u64) -> bool {
        self.room.is_kept(n_bytes)
    }

    pub(crate) fn keep(&self, n_bytes: u64) -> io::Result<()> {
        self.room.keep(n_bytes)
    }

    pub(crate) fn release(&self) {
        if let Err(error) = self.room.release() {
            tracing::error!(%error, "the space that is kept for removals cannot be given up");
        }
    }
}

/// The disk that a directory is on.
pub(crate) struct DiskOf(pub(crate) PathBuf);

impl Room for DiskOf {
    fn free(&self) -> io::Result<u64> {
        let space = rustix::fs::statvfs(&self.0)?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }

    fn keep(&self, n_bytes: u64) -> io::Result<()> {
        let path = self.0.join(RESERVE);
        let kept = create_private(&path).and_then(|file| allocate(&file, n_bytes));
        if kept.is_err() {
            std::fs::remove_file(&path).ok();
        }
        kept
    }

    fn release(&self) -> io::Result<()> {
        match std::fs::remove_file(self.0.join(RESERVE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn is_kept(&self, n_bytes: u64) -> bool {
        /// The unit in which systems count what a file takes.
        const BLOCK: u64 = 512;
        let kept = std::fs::metadata(self.0.join(RESERVE)).map_or(0, |it| it.blocks().saturating_mul(BLOCK));
        kept >= n_bytes
    }
}

/// Has a file take up space, also where the file system cannot do that without writing.
fn allocate(file: &File, n_bytes: u64) -> io::Result<()> {
    use rustix::{fs::FallocateFlags, io::Errno};
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, n_bytes) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            let (mut file, zeros) = (file, [0; 64 << 10]);
            let mut left = n_bytes;
            while left > 0 {
                let n = usize::try_from(left).unwrap_or(usize::MAX).min(zeros.len());
                file.write_all(&zeros[..n])?;
                left -= u64::try_from(n).map_err(io::Error::other)?;
            }
            file.sync_data()
        }
        Err(error) => Err(error.into()),
    }
}

/// The parent of a file, where a reserve lies beside it.
pub(crate) fn disk_of(directory: &Path) -> DiskOf {
    DiskOf(directory.to_owned())
}

/// What went wrong so far.
#[derive(Debug, Default)]
struct Trouble {
    is_full: AtomicBool,
    is_broken: AtomicBool,
}

/// A file whose troubles are noted: the engine above only says that there were some.
#[derive(Debug)]
struct Watched<B> {
    inner: B,
    trouble: Arc<Trouble>,
}

impl<B> Watched<B> {
    /// Writing fails as a whole or in part, never behind somebody's back.
    fn wrote<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            let is_full = matches!(
                error.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
            );
            let trouble = if is_full { &self.trouble.is_full } else { &self.trouble.is_broken };
            trouble.store(true, Ordering::Release);
        }
        result
    }

    fn did<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() {
            self.trouble.is_broken.store(true, Ordering::Release);
        }
        result
    }
}

impl<B: StorageBackend> StorageBackend for Watched<B> {
    fn len(&self) -> io::Result<u64> {
        self.did(self.inner.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.did(self.inner.read(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.wrote(self.inner.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.did(self.inner.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.wrote(self.inner.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }
}
