//! Copies of the store in one file, taken while it runs, and new stores made from them.
//!
//! A snapshot holds the newest value of every key as of one revision, and the leases; no history.
//!
//! | part | bytes |
//! |---|---|
//! | header | `convoy snapshot\n`, format u32, crc u32 (of the rest), revision u64, last lease i64 |
//! | frame, many | length u32 (of the rest), crc u32 (of the rest), kind u8, body |
//! | kind 1, lease | id i64, lease record as in `record.rs`; before all entries |
//! | kind 2, entry | log key (12 bytes), log record as in `record.rs` |
//! | kind 3, end | number of frames before u64 |

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, BufReader, BufWriter, Read, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::{Buf, BufMut, Bytes};
use store::{Clock, Key, LeaseId, Range, Revision};

use crate::{
    EmbeddedStore, OpenError,
    disk::{DiskError, Write, create_private, sync_directory},
    open,
    record::{FORMAT, LeaseRecord, Location, Record, RecordView, seal, unseal},
    store::Inner,
};

/// By how much a restore raises the revision at least: more than any store commits between a snapshot and its loss.
const LEAST_RAISE: u64 = 1_000_000_000;

/// The greatest revision of a new store: clients and etcd count in signed 64-bit numbers.
const GREATEST: u64 = i64::MAX.unsigned_abs();

const MAGIC: &[u8; 16] = b"convoy snapshot\n";
const LEASE: u8 = 1;
const ENTRY: u8 = 2;
const END: u8 = 3;

/// How many entries are read at a time.
const PAGE: usize = 512;

/// How much a restore writes at a time.
const COMMIT_BYTES: usize = 8 << 20;

/// The largest frame a restore accepts; larger than the largest transaction.
const MAX_FRAME: usize = 64 << 20;

/// What a snapshot or a restore holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotReport {
    /// The revision that the snapshot shows; after a restore, the revision of the new store.
    pub revision: Revision,
    /// How many entries there are.
    pub n_entries: u64,
}

/// Why a snapshot was not taken or not restored.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// A file cannot be read or written.
    #[error("cannot use {}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The store cannot be read.
    #[error("the store cannot be read: {0}")]
    Unreadable(String),
    /// The file is no snapshot, incomplete or damaged.
    #[error("{} is not a complete snapshot: {what}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// Whoever asked for it has gone.
    #[error("nobody wants the snapshot any more")]
    Unwanted,
    /// A restore needs a directory of its own.
    #[error("the directory {} is not empty: restore into a new one", .directory.display())]
    NotEmpty {
        /// The directory.
        directory: PathBuf,
    },
    /// The new store cannot be made.
    #[error(transparent)]
    Create(#[from] OpenError),
}

impl EmbeddedStore {
    /// Writes the newest state to a file while the store goes on. The file is complete or not there; if it
    /// existed it is replaced.
    pub async fn snapshot(&self, path: &Path) -> Result<SnapshotReport, SnapshotError> {
        let path = path.to_owned();
        self.pinned(move |pin| save(pin, &path)).await
    }

    /// The same into a file that need not have a name; `path` is what errors call it. Stops before it is complete once
    /// nobody wants it, as `is_wanted` says.
    pub async fn snapshot_into(
        &self,
        file: File,
        path: &Path,
        is_wanted: impl Fn() -> bool + Send + 'static,
    ) -> Result<SnapshotReport, SnapshotError> {
        let path = path.to_owned();
        self.pinned(move |pin| write_into(pin, file, &path, &is_wanted).map(|(report, _)| report)).await
    }

    async fn pinned(
        &self,
        write: impl FnOnce(&Pin) -> Result<SnapshotReport, SnapshotError> + Send + 'static,
    ) -> Result<SnapshotReport, SnapshotError> {
        let pin = Pin::new(Arc::clone(self.inner()));
        let task = tokio::task::spawn_blocking(move || write(&pin));
        let result = task.await.unwrap_or_else(|error| Err(SnapshotError::Unreadable(error.to_string())));
        self.nudge().await;
        result
    }
}

/// What becomes of an entry of a snapshot in the store that is made from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carry {
    /// It stays as it is.
    AsIs,
    /// It gets another value, at the revision of the new store.
    Replaced(Bytes),
    /// It is left out.
    Dropped,
}

/// The revision of a store that is made now from a snapshot of this revision; nothing if there is none so great.
///
/// It is the number of microseconds since 1970, and at least [`LEAST_RAISE`] more than the snapshot's. No store commits
/// more often than once a microsecond, so that a store's revision is never ahead of that number: whatever was restored
/// before, from this snapshot or another one, has not reached the new store's first revision. JavaScript counts exactly up
/// to 2^53, which is the year 2255.
fn raised(revision: Revision, clock: &dyn Clock) -> Option<Revision> {
    let by_the_clock = u64::try_from(clock.now().as_microsecond()).unwrap_or(0);
    let raised = revision.get().checked_add(LEAST_RAISE)?.max(by_the_clock);
    (raised <= GREATEST).then(|| Revision::new(raised))
}

/// Reads a snapshot from its first byte to its last and checks everything that can be checked without a store.
pub fn verify(snapshot: &Path) -> Result<SnapshotReport, SnapshotError> {
    let damaged = |what: String| SnapshotError::Damaged { path: snapshot.to_owned(), what };
    let mut frames = Frames::open(snapshot)?;
    let (revision, _) = frames.header().map_err(damaged)?;
    let mut n_entries = 0;
    loop {
        let mut write = Write::default();
        let is_end = frames.fill(&mut write).map_err(damaged)?;
        n_entries += u64::try_from(write.records.len()).unwrap_or(0);
        if is_end {
            return Ok(SnapshotReport { revision, n_entries });
        }
    }
}

/// Makes a store in an empty or new directory from a snapshot. `carry` is asked what becomes of each entry; it fails for a
/// snapshot that must not be restored.
///
/// The new store's revision is greater than that of any store of the same history, and everything before it counts as
/// compacted, so that no client mistakes the restored past for what it saw later. Leases have their whole time again.
pub fn restore(
    snapshot: &Path,
    directory: &Path,
    clock: &dyn Clock,
    mut carry: impl FnMut(&Key, &Bytes) -> Result<Carry, String>,
) -> Result<SnapshotReport, SnapshotError> {
    let damaged = |what: &str| SnapshotError::Damaged { path: snapshot.to_owned(), what: what.to_owned() };
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| SnapshotError::Io { path, source }
    };
    open::create_directory(directory).map_err(io(directory))?;
    if std::fs::read_dir(directory).map_err(io(directory))?.next().is_some() {
        return Err(SnapshotError::NotEmpty { directory: directory.to_owned() });
    }
    let mut frames = Frames::open(snapshot)?;
    let (revision, last_lease) = frames.header().map_err(|it| damaged(&it))?;
    let revision =
        raised(revision, clock).ok_or_else(|| damaged("its revision is too great to be raised"))?;
    let now = clock.now().as_millisecond();
    let _lock = open::lock(directory)?;
    let mut n_entries = 0;
    let mut n_replaced = 0;
    let mut damage = None;
    let made = open::make(directory, open::RESTORING, |maker| {
        loop {
            let mut write = Write { revision, compacted: revision, last_lease, ..Write::default() };
            let is_end = frames
                .fill(&mut write)
                .map_err(|what| DiskError::Inconsistent(damage.insert(what).clone()))?;
            for (_, lease) in &mut write.granted {
                *lease = LeaseRecord::new(lease.ttl, now);
            }
            let records = std::mem::take(&mut write.records);
            for record in records {
                let carried = carried(record, revision, &mut n_replaced, &mut carry);
                write
                    .records
                    .extend(carried.map_err(|what| DiskError::Inconsistent(damage.insert(what).clone()))?);
            }
            n_entries += u64::try_from(write.records.len()).unwrap_or(0);
            maker.write(&write)?;
            if is_end {
                return Ok(());
            }
        }
    });
    if let Some(what) = damage {
        return Err(damaged(&what));
    }
    made?;
    Ok(SnapshotReport { revision, n_entries })
}

/// An entry as `carry` wants it in the new store.
fn carried(
    record: Record,
    revision: Revision,
    n_replaced: &mut u32,
    carry: &mut impl FnMut(&Key, &Bytes) -> Result<Carry, String>,
) -> Result<Option<Record>, String> {
    let value = record.value.clone().unwrap_or_default();
    Ok(match carry(&record.key, &value)? {
        Carry::AsIs => Some(record),
        Carry::Dropped => None,
        Carry::Replaced(value) => {
            // At a revision that no entry of the snapshot has.
            let location = Location { revision, position: *n_replaced };
            *n_replaced += 1;
            Some(Record { location, value: Some(value), ..record })
        }
    })
}

/// Keeps the store from sweeping what a snapshot still has to read.
struct Pin {
    inner: Arc<Inner>,
    revision: Revision,
    last_lease: i64,
    leases: Vec<(LeaseId, LeaseRecord)>,
}

impl Pin {
    fn new(inner: Arc<Inner>) -> Self {
        let mut state = inner.state.write();
        state.n_pins += 1;
        let (revision, last_lease, leases) = (state.revision(), state.last_lease(), state.leases().collect());
        drop(state);
        Self { inner, revision, last_lease, leases }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.inner.state.write().n_pins -= 1;
    }
}

fn save(pin: &Pin, path: &Path) -> Result<SnapshotReport, SnapshotError> {
    let io = |source| SnapshotError::Io { path: path.to_owned(), source };
    // A name that nobody can guess, and put something else there.
    let name = path.file_name().ok_or_else(|| io(io::ErrorKind::InvalidInput.into()))?;
    let unfinished =
        path.with_file_name(format!(".{}.{:032x}", name.to_string_lossy(), rand::random::<u128>()));
    let written = (|| {
        let file = create_private(&unfinished).map_err(io)?;
        let (report, file) = write_into(pin, file, path, &|| true)?;
        file.sync_all().map_err(io)?;
        std::fs::rename(&unfinished, path).map_err(io)?;
        let directory = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
        sync_directory(directory).map_err(io)?;
        Ok(report)
    })();
    if written.is_err() {
        // What is left is useless; if it cannot be removed either, the error says enough.
        std::fs::remove_file(&unfinished).ok();
    }
    written
}

/// Writes everything, and hands the file back.
fn write_into(
    pin: &Pin,
    file: File,
    path: &Path,
    is_wanted: &dyn Fn() -> bool,
) -> Result<(SnapshotReport, File), SnapshotError> {
    let mut output = Output { writer: BufWriter::new(file), n_frames: 0 };
    let n_entries = write_all(pin, &mut output, path, is_wanted)?;
    let file = output
        .writer
        .into_inner()
        .map_err(|error| SnapshotError::Io { path: path.to_owned(), source: error.into_error() })?;
    Ok((SnapshotReport { revision: pin.revision, n_entries }, file))
}

fn write_all(
    pin: &Pin,
    output: &mut Output,
    path: &Path,
    is_wanted: &dyn Fn() -> bool,
) -> Result<u64, SnapshotError> {
    let io = |source| SnapshotError::Io { path: path.to_owned(), source };
    output.header(pin.revision, pin.last_lease).map_err(io)?;
    for (lease, record) in &pin.leases {
        let mut body = lease.0.to_le_bytes().to_vec();
        body.extend(record.encode(*lease));
        output.frame(LEASE, &body).map_err(io)?;
    }
    let mut after = None;
    let mut n_entries = 0;
    loop {
        if !is_wanted() {
            return Err(SnapshotError::Unwanted);
        }
        let page = pin.inner.read(|| read_page(pin, after.as_ref()));
        let page = page.map_err(|error| SnapshotError::Unreadable(error.to_string()))?;
        for record in &page {
            let mut body = record.location.to_key().to_vec();
            body.extend(record.encode());
            output.frame(ENTRY, &body).map_err(io)?;
            n_entries += 1;
        }
        match page.last() {
            Some(record) => after = Some(record.key.clone()),
            None => break,
        }
    }
    let n_frames = output.n_frames;
    output.frame(END, &n_frames.to_le_bytes()).map_err(io)?;
    Ok(n_entries)
}

fn read_page(pin: &Pin, after: Option<&Key>) -> Result<Vec<Record>, DiskError> {
    let everything = Range { start: Key::from(""), end: Key::from(char::MAX.to_string()) };
    let rest = after.map_or(everything.clone(), |it| everything.after(it));
    let (locations, reader) = {
        let state = pin.inner.state.read();
        let page = state.existing(&rest, pin.revision).take(PAGE);
        let locations: Vec<_> = page.map(|(_, version)| version.location).collect();
        (locations, pin.inner.disk.reader()?)
    };
    reader.records(&locations)
}

struct Output {
    writer: BufWriter<File>,
    n_frames: u64,
}

impl Output {
    fn header(&mut self, revision: Revision, last_lease: i64) -> io::Result<()> {
        let mut bytes = vec![0; 4];
        bytes.put_u64_le(revision.get());
        bytes.put_i64_le(last_lease);
        self.writer.write_all(MAGIC)?;
        self.writer.write_all(&FORMAT.to_le_bytes())?;
        self.writer.write_all(&seal(MAGIC, bytes))
    }

    fn frame(&mut self, kind: u8, body: &[u8]) -> io::Result<()> {
        let mut bytes = vec![0; 4];
        bytes.put_u8(kind);
        bytes.put_slice(body);
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        self.writer.write_all(&length.to_le_bytes())?;
        // The number of the frame is part of its CRC: none can be lost, doubled or moved.
        self.writer.write_all(&seal(&self.n_frames.to_le_bytes(), bytes))?;
        self.n_frames += 1;
        Ok(())
    }
}

/// Reads a snapshot frame by frame. Errors are texts that say what is wrong with it.
struct Frames {
    reader: BufReader<File>,
    n_frames: u64,
    leases: BTreeSet<LeaseId>,
}

impl Frames {
    fn open(path: &Path) -> Result<Self, SnapshotError> {
        let file = File::open(path).map_err(|source| SnapshotError::Io { path: path.to_owned(), source })?;
        Ok(Self { reader: BufReader::new(file), n_frames: 0, leases: BTreeSet::new() })
    }

    fn header(&mut self) -> Result<(Revision, i64), String> {
        let magic = self.take(MAGIC.len())?;
        if magic != MAGIC {
            return Err("it does not begin like one".into());
        }
        let format = self.take(4)?.as_slice().get_u32_le();
        if format != FORMAT {
            return Err(format!("it has format {format}, this build reads format {FORMAT}"));
        }
        let sealed = self.take(20)?;
        let mut rest = unseal(MAGIC, &sealed).ok_or("its header is damaged")?;
        Ok((Revision::new(rest.get_u64_le()), rest.get_i64_le()))
    }

    /// Reads frames until there is enough for one commit; true at the end.
    fn fill(&mut self, write: &mut Write) -> Result<bool, String> {
        let mut n_bytes = 0;
        while n_bytes < COMMIT_BYTES {
            let n_frames = self.n_frames;
            let damaged = || format!("frame {n_frames} is damaged");
            let length = self.take(4)?.as_slice().get_u32_le();
            let length = usize::try_from(length).ok().filter(|it| *it <= MAX_FRAME).ok_or_else(damaged)?;
            let sealed = self.take(length)?;
            let rest = unseal(&n_frames.to_le_bytes(), &sealed).ok_or_else(damaged)?;
            let (kind, body) = rest.split_first().ok_or_else(damaged)?;
            match *kind {
                ENTRY => self.entry(body, write)?,
                LEASE => self.lease(body, write)?,
                END => return self.end(body).map(|()| true),
                _ => return Err(damaged()),
            }
            n_bytes += length;
            self.n_frames += 1;
        }
        Ok(false)
    }

    fn entry(&self, body: &[u8], write: &mut Write) -> Result<(), String> {
        let (key, body) = body.split_first_chunk().ok_or("an entry is damaged")?;
        let view = RecordView::decode(Location::from_key(key), body).map_err(|it| it.to_string())?;
        if view.value.is_none() || view.lease.is_some_and(|it| !self.leases.contains(&it)) {
            return Err(format!("the entry of {} makes no sense", view.key));
        }
        write.records.push(view.to_record());
        Ok(())
    }

    fn lease(&mut self, body: &[u8], write: &mut Write) -> Result<(), String> {
        let (id, body) = body.split_first_chunk().ok_or("a lease is damaged")?;
        let lease = LeaseId(i64::from_le_bytes(*id));
        write.granted.push((lease, LeaseRecord::decode(lease, body).map_err(|it| it.to_string())?));
        self.leases.insert(lease);
        Ok(())
    }

    fn end(&mut self, body: &[u8]) -> Result<(), String> {
        let expected = body.first_chunk().map(|it| u64::from_le_bytes(*it));
        if expected != Some(self.n_frames) {
            return Err(format!(
                "it should hold {} frames, but holds {}",
                expected.unwrap_or(0),
                self.n_frames
            ));
        }
        match self.reader.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err("something follows its end".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn take(&mut self, length: usize) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; length];
        match self.reader.read_exact(&mut bytes) {
            Ok(()) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err("it ends too early".into()),
            Err(error) => Err(error.to_string()),
        }
    }
}
