//! The files: the engine, the lock, and what happens when the disk fails. The only module that knows redb.
//!
//! # Guarantees
//! - [`Disk::commit`] returns `Ok` only after everything is fsynced, in two phases: an interrupted commit
//!   never damages the one before.
//! - After any error of the engine nothing is written any more. Reads go on: the files are opened a second
//!   time, with whatever the engine wants to write during its recovery kept in memory (`disk/overlay.rs`).

mod overlay;

use std::{
    fs::File,
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use redb::{
    Builder, Database, DatabaseError, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable,
    StorageBackend, TableDefinition, WriteTransaction,
};
use store::{LeaseId, Revision};

use crate::record::{Damage, Location, Meta, Record, RecordView, Tally, decode_lease, encode_lease};
use overlay::Overlay;

const LOG: TableDefinition<'_, &[u8; 12], &[u8]> = TableDefinition::new("log");
const LEASES: TableDefinition<'_, i64, &[u8]> = TableDefinition::new("leases");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");

/// The only row of the meta table.
const COUNTERS: &str = "counters";

/// An engine that is open, or was.
pub(crate) struct Disk {
    path: PathBuf,
    cache_bytes: usize,
    /// Nothing once closed, or when not even reading works any more.
    database: RwLock<Option<Database>>,
    /// Why nothing is written any more.
    failure: Mutex<Option<String>>,
    /// Held as long as the directory is ours; the engine must be closed before it.
    lock: Mutex<Option<File>>,
}

/// An engine in a new file, before it has its final name.
pub(crate) struct Maker {
    database: Database,
    tally: Tally,
}

/// How much of a new file is kept in memory while it is made.
const MAKER_CACHE: usize = 16 << 20;

/// Everything that one commit writes.
#[derive(Debug, Default)]
pub(crate) struct Write {
    pub(crate) records: Vec<Record>,
    pub(crate) removals: Vec<Location>,
    pub(crate) granted: Vec<(LeaseId, Duration)>,
    pub(crate) ended: Vec<LeaseId>,
    pub(crate) revision: Revision,
    pub(crate) compacted: Revision,
    pub(crate) last_lease: i64,
}

/// Why a commit failed.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// The engine failed before the commit began: nothing happened.
    Unattempted(String),
    /// The engine failed during the commit: it may be on disk.
    Unknown(String),
}

/// Why something cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskError {
    #[error(transparent)]
    Engine(#[from] redb::Error),
    #[error(transparent)]
    Damage(#[from] Damage),
    #[error("{0}")]
    Inconsistent(String),
    #[error("the store is closed")]
    Closed,
}

/// Consecutive records.
type Rows = redb::Range<'static, &'static [u8; 12], &'static [u8]>;

/// One consistent state of the files.
pub(crate) struct Reader {
    log: ReadOnlyTable<&'static [u8; 12], &'static [u8]>,
    /// Keeps the state alive.
    _transaction: ReadTransaction,
}

impl Maker {
    /// Starts with an empty file.
    pub(crate) fn new(path: &Path) -> Result<Self, DiskError> {
        let file = create_private(path).map_err(redb::Error::Io)?;
        let backend = redb::backends::FileBackend::new(file).map_err(redb::Error::from)?;
        let database = Builder::new().set_cache_size(MAKER_CACHE).create_with_backend(backend);
        Ok(Self { database: database.map_err(redb::Error::from)?, tally: Tally::default() })
    }

    /// Adds something; there must be at least one such call.
    pub(crate) fn write(&mut self, write: &Write) -> Result<(), DiskError> {
        let transaction = begin(&self.database)?;
        self.tally = fill(&transaction, write, self.tally)?;
        transaction.commit().map_err(redb::Error::from)?;
        Ok(())
    }
}

impl Disk {
    /// Opens the engine in a file that a [`Maker`] made.
    pub(crate) fn open(
        path: &Path,
        cache_bytes: usize,
        lock: File,
        backend: impl StorageBackend,
    ) -> Result<Self, DatabaseError> {
        let database = Builder::new().set_cache_size(cache_bytes).create_with_backend(backend)?;
        Ok(Self {
            path: path.to_owned(),
            cache_bytes,
            database: RwLock::new(Some(database)),
            failure: Mutex::new(None),
            lock: Mutex::new(Some(lock)),
        })
    }

    /// Reads everything once: all records in order, then all leases. Checks that none is missing.
    pub(crate) fn load(
        &self,
        mut record: impl FnMut(&Meta, &RecordView<'_>),
        mut lease: impl FnMut(&Meta, LeaseId, Duration),
    ) -> Result<Meta, DiskError> {
        let transaction = self.begin_read()?;
        let meta = read_meta(&transaction)?;
        let mut tally = Tally::default();
        let log = transaction.open_table(LOG).map_err(redb::Error::from)?;
        for row in log.iter().map_err(redb::Error::from)? {
            let (location, bytes) = row.map_err(redb::Error::from)?;
            let location = Location::from_key(location.value());
            tally.add(bytes.value());
            record(&meta, &RecordView::decode(location, bytes.value())?);
        }
        let leases = transaction.open_table(LEASES).map_err(redb::Error::from)?;
        for row in leases.iter().map_err(redb::Error::from)? {
            let (id, bytes) = row.map_err(redb::Error::from)?;
            let id = LeaseId(id.value());
            tally.add(bytes.value());
            lease(&meta, id, decode_lease(id, bytes.value())?);
        }
        if tally != meta.tally {
            let (found, expected) = (tally.count, meta.tally.count);
            let text =
                format!("the store should hold {expected} records, but {found} were found or some differ");
            return Err(DiskError::Inconsistent(text));
        }
        Ok(meta)
    }

    /// Gives space back to the file system if most of the file is unused. Only while nobody reads.
    pub(crate) fn shrink_if_mostly_empty(&self, n_live_bytes: u64) -> Result<(), DiskError> {
        const WORTHWHILE: u64 = 256 << 20;
        let size = std::fs::metadata(&self.path).map_err(redb::Error::Io)?.len();
        if size < WORTHWHILE || size / 4 < n_live_bytes {
            return Ok(());
        }
        tracing::info!(size, n_live_bytes, "shrinking the store's file");
        if let Some(database) = self.database.write().as_mut() {
            database.compact().map_err(redb::Error::from)?;
        }
        Ok(())
    }

    /// Writes and fsyncs; the tally is brought up to date if that worked.
    pub(crate) fn commit(&self, write: &Write, tally: &mut Tally) -> Result<(), WriteError> {
        let result = self.try_commit(write, *tally);
        match result {
            Ok(new) => {
                *tally = new;
                Ok(())
            }
            Err(error) => {
                let (WriteError::Unattempted(why) | WriteError::Unknown(why)) = &error;
                self.fail(why);
                Err(error)
            }
        }
    }

    fn try_commit(&self, write: &Write, tally: Tally) -> Result<Tally, WriteError> {
        let unattempted = |error: DiskError| WriteError::Unattempted(error.to_string());
        let database = self.database.read();
        // Asked under the lock: after a failure the engine writes to memory only.
        if let Some(why) = self.failure() {
            return Err(WriteError::Unattempted(why));
        }
        let database = database.as_ref().ok_or_else(|| unattempted(DiskError::Closed))?;
        let transaction = begin(database).map_err(unattempted)?;
        let tally = fill(&transaction, write, tally).map_err(unattempted)?;
        transaction.commit().map_err(|error| WriteError::Unknown(error.to_string()))?;
        Ok(tally)
    }

    /// Why nothing is written any more.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Stops writing for good and goes on reading what is on disk. Called once or more, by whoever sees an error.
    pub(crate) fn fail(&self, why: &str) {
        let mut database = self.database.write();
        let mut failure = self.failure.lock();
        if failure.is_some() || database.is_none() {
            return;
        }
        tracing::error!(path = %self.path.display(), why, "the disk failed; the store takes no more writes");
        *failure = Some(why.to_owned());
        drop(failure);
        // The engine refuses even reads after an error. Its own close writes nothing then.
        *database = None;
        match self.reopen_for_reading() {
            Ok(reopened) => *database = Some(reopened),
            Err(error) => tracing::error!(%error, "the store cannot be read any more"),
        }
    }

    fn reopen_for_reading(&self) -> Result<Database, redb::Error> {
        let overlay = Overlay::over(File::open(&self.path)?)?;
        let database = Builder::new().set_cache_size(self.cache_bytes).create_with_backend(overlay)?;
        Ok(database)
    }

    /// The state that is on disk now.
    pub(crate) fn reader(&self) -> Result<Reader, DiskError> {
        let transaction = self.begin_read()?;
        let log = transaction.open_table(LOG).map_err(redb::Error::from)?;
        Ok(Reader { log, _transaction: transaction })
    }

    fn begin_read(&self) -> Result<ReadTransaction, DiskError> {
        let database = self.database.read();
        let database = database.as_ref().ok_or(DiskError::Closed)?;
        Ok(database.begin_read().map_err(redb::Error::from)?)
    }

    /// Closes the files, then lets others have the directory.
    pub(crate) fn close(&self) {
        *self.database.write() = None;
        *self.lock.lock() = None;
    }
}

impl Reader {
    pub(crate) fn record(&self, location: Location) -> Result<Record, DiskError> {
        let bytes = self.log.get(&location.to_key()).map_err(redb::Error::from)?;
        let Some(bytes) = bytes else {
            let Location { revision, position } = location;
            return Err(DiskError::Inconsistent(format!(
                "change {position} of revision {revision} is missing"
            )));
        };
        Ok(RecordView::decode(location, bytes.value())?.to_record())
    }

    /// Many records, in the order asked for. Walks the log where they lie close together, which is several
    /// times faster than looking up each.
    pub(crate) fn records(&self, locations: &[Location]) -> Result<Vec<Record>, DiskError> {
        let mut order: Vec<usize> = (0..locations.len()).collect();
        order.sort_unstable_by_key(|it| locations[*it]);
        let mut records: Vec<Option<Record>> = vec![None; locations.len()];
        let mut walk = None;
        for position in order {
            let location = locations[position];
            let mut found = None;
            if let Some(rows) = &mut walk {
                found = walk_to(rows, location)?;
            }
            if found.is_none() {
                let mut rows =
                    self.log.range::<&[u8; 12]>(&location.to_key()..).map_err(redb::Error::from)?;
                found = walk_to(&mut rows, location)?;
                walk = Some(rows);
            }
            records[position] = Some(found.ok_or_else(|| missing(location))?);
        }
        Ok(records.into_iter().flatten().collect())
    }

    /// Every record after a revision, in order, until `visit` breaks.
    pub(crate) fn scan(
        &self,
        after: Revision,
        mut visit: impl FnMut(&RecordView<'_>) -> ControlFlow<()>,
    ) -> Result<(), DiskError> {
        let start = Location::first_of(after.next()).to_key();
        for row in self.log.range::<&[u8; 12]>(&start..).map_err(redb::Error::from)? {
            let (location, bytes) = row.map_err(redb::Error::from)?;
            let record = RecordView::decode(Location::from_key(location.value()), bytes.value())?;
            if visit(&record).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Takes a few steps towards a location; nothing if it is not there or too far away.
fn walk_to(rows: &mut Rows, location: Location) -> Result<Option<Record>, DiskError> {
    const STEPS: usize = 16;
    for row in rows.take(STEPS) {
        let (key, bytes) = row.map_err(redb::Error::from)?;
        let found = Location::from_key(key.value());
        if found == location {
            return Ok(Some(RecordView::decode(location, bytes.value())?.to_record()));
        }
        if found > location {
            break;
        }
    }
    Ok(None)
}

fn missing(location: Location) -> DiskError {
    let Location { revision, position } = location;
    DiskError::Inconsistent(format!("change {position} of revision {revision} is missing"))
}

/// Creates a file, or empties it, for this user only: it holds secrets.
pub(crate) fn create_private(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Makes renames and new files in a directory durable.
pub(crate) fn sync_directory(directory: &Path) -> std::io::Result<()> {
    File::open(directory)?.sync_all()
}

fn begin(database: &Database) -> Result<WriteTransaction, DiskError> {
    let mut transaction = database.begin_write().map_err(redb::Error::from)?;
    transaction.set_two_phase_commit(true);
    Ok(transaction)
}

/// Puts everything into the tables and returns the tally afterwards.
fn fill(transaction: &WriteTransaction, write: &Write, mut tally: Tally) -> Result<Tally, DiskError> {
    let mut log = transaction.open_table(LOG).map_err(redb::Error::from)?;
    for record in &write.records {
        let bytes = record.encode();
        tally.add(&bytes);
        log.insert(&record.location.to_key(), bytes.as_slice()).map_err(redb::Error::from)?;
    }
    for location in &write.removals {
        if let Some(bytes) = log.remove(&location.to_key()).map_err(redb::Error::from)? {
            tally.remove(bytes.value());
        }
    }
    drop(log);
    let mut leases = transaction.open_table(LEASES).map_err(redb::Error::from)?;
    for (lease, ttl) in &write.granted {
        let bytes = encode_lease(*lease, *ttl);
        tally.add(&bytes);
        leases.insert(lease.0, bytes.as_slice()).map_err(redb::Error::from)?;
    }
    for lease in &write.ended {
        if let Some(bytes) = leases.remove(lease.0).map_err(redb::Error::from)? {
            tally.remove(bytes.value());
        }
    }
    drop(leases);
    let meta =
        Meta { revision: write.revision, compacted: write.compacted, last_lease: write.last_lease, tally };
    let mut table = transaction.open_table(META).map_err(redb::Error::from)?;
    table.insert(COUNTERS, meta.encode().as_slice()).map_err(redb::Error::from)?;
    Ok(tally)
}

fn read_meta(transaction: &ReadTransaction) -> Result<Meta, DiskError> {
    let missing = || DiskError::Inconsistent("the store's counters are missing".into());
    let table = transaction.open_table(META).map_err(|_| missing())?;
    let bytes = table.get(COUNTERS).map_err(redb::Error::from)?.ok_or_else(missing)?;
    Ok(Meta::decode(bytes.value())?)
}
