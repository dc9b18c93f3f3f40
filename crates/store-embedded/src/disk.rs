//! The files: the engine, the lock, and what happens when the disk fails. The only module that knows redb.
//!
//! # Guarantees
//! - [`Disk::commit`] returns `Ok` only after everything is fsynced, in two phases: an interrupted commit
//!   never damages the one before.
//! - After any error of the engine nothing is written any more. Reads go on: the files are opened a second
//!   time, with whatever the engine wants to write during its recovery kept in memory (`disk/overlay.rs`).
//! - If there was no space and nothing else, writing goes on once everything was read again and found to be what was
//!   acknowledged ([`Disk::recover`]).

mod overlay;

use std::{
    fs::File,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use parking_lot::{Mutex, RwLock};
use redb::{
    Builder, Database, DatabaseError, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable,
    TableDefinition, WriteTransaction,
};
use store::{LeaseId, Revision};

use crate::{
    record::{Damage, LeaseRecord, Location, Meta, Record, RecordView, Tally},
    volume::Volume,
};
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
    pub(crate) volume: Volume,
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
    /// New leases, and those whose time begins again.
    pub(crate) granted: Vec<(LeaseId, LeaseRecord)>,
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
    /// The engine failed during the commit: it may be on disk, and then the tally is this one.
    Unknown(String, Tally),
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

impl DiskError {
    /// For people: what is damaged stays so, and what to do about it is said.
    pub(crate) fn advice(&self) -> String {
        match self {
            Self::Engine(redb::Error::Corrupted(_))
            | Self::Damage(Damage::Bytes { .. })
            | Self::Inconsistent(_) => damaged(&self.to_string()),
            Self::Engine(_) | Self::Damage(_) | Self::Closed => self.to_string(),
        }
    }
}

/// What is said of a store that is not what was written.
pub(crate) fn damaged(what: &str) -> String {
    format!("the store is damaged: {what}; restore a snapshot into an empty directory")
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
        file: File,
        volume: Volume,
    ) -> Result<Self, DatabaseError> {
        let database = volume.open(file, cache_bytes)?;
        Ok(Self {
            path: path.to_owned(),
            cache_bytes,
            volume,
            database: RwLock::new(Some(database)),
            failure: Mutex::new(None),
            lock: Mutex::new(Some(lock)),
        })
    }

    /// Reads everything once: all records in order, then all leases. Checks that none is missing.
    pub(crate) fn load(
        &self,
        record: impl FnMut(&Meta, &RecordView<'_>),
        lease: impl FnMut(&Meta, LeaseId, LeaseRecord),
    ) -> Result<Meta, DiskError> {
        load(&self.begin_read()?, record, lease)
    }

    /// How large the file is.
    pub(crate) fn size(&self) -> Result<u64, DiskError> {
        Ok(std::fs::metadata(&self.path).map_err(redb::Error::Io)?.len())
    }

    /// Gives space back to the file system; says whether it could. It cannot while somebody reads. Whoever wants to read
    /// meanwhile waits.
    pub(crate) fn shrink(&self) -> Result<bool, DiskError> {
        let mut database = self.database.write();
        if self.failure().is_some() {
            return Ok(false);
        }
        let database = database.as_mut().ok_or(DiskError::Closed)?;
        match database.compact() {
            Ok(_) => Ok(true),
            Err(redb::CompactionError::TransactionInProgress) => Ok(false),
            Err(error) => Err(redb::Error::from(error).into()),
        }
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
                let (WriteError::Unattempted(why) | WriteError::Unknown(why, _)) = &error;
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
        transaction.commit().map_err(|error| WriteError::Unknown(error.to_string(), tally))?;
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

    /// Whether writing may go on one day without a restart.
    pub(crate) fn is_recoverable(&self) -> bool {
        self.failure().is_some() && self.volume.was_only_full()
    }

    /// Opens the files for writing again after there was no space. Everything is read, and must be what was acknowledged
    /// (`before`) or that and the commit that failed (`after`); then a commit must succeed. Says which of the two it is.
    pub(crate) fn recover(&self, before: &Meta, after: Option<&Meta>) -> Result<Meta, DiskError> {
        if !self.is_recoverable() {
            return Err(DiskError::Inconsistent("only a restart can help".into()));
        }
        let file = File::options().read(true).write(true).open(&self.path).map_err(redb::Error::Io)?;
        let database = self.volume.open(file, self.cache_bytes).map_err(redb::Error::from)?;
        let transaction = database.begin_read().map_err(redb::Error::from)?;
        let found = load(&transaction, |_, _| {}, |_, _, _| {})?;
        drop(transaction);
        if found != *before && Some(&found) != after {
            let text = format!("it is at revision {}, which is not what was written", found.revision);
            return Err(DiskError::Inconsistent(text));
        }
        let trial = begin(&database)?;
        trial
            .open_table(META)
            .map_err(redb::Error::from)?
            .insert(COUNTERS, found.encode().as_slice())
            .map_err(redb::Error::from)?;
        trial.commit().map_err(redb::Error::from)?;
        *self.database.write() = Some(database);
        *self.failure.lock() = None;
        tracing::info!(path = %self.path.display(), "the disk takes writes again; everything that was acknowledged is there");
        Ok(found)
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

/// Creates a file for this user only: it holds secrets. What has the name goes first, so that nobody's link is followed
/// and nobody's file is written to.
pub(crate) fn create_private(path: &Path) -> std::io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Makes renames and new files in a directory durable.
pub(crate) fn sync_directory(directory: &Path) -> std::io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Reads everything once, and checks that nothing is missing.
fn load(
    transaction: &ReadTransaction,
    mut record: impl FnMut(&Meta, &RecordView<'_>),
    mut lease: impl FnMut(&Meta, LeaseId, LeaseRecord),
) -> Result<Meta, DiskError> {
    let meta = read_meta(transaction)?;
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
        lease(&meta, id, LeaseRecord::decode(id, bytes.value())?);
    }
    if tally != meta.tally {
        let (found, expected) = (tally.count, meta.tally.count);
        let text = format!("the store should hold {expected} records, but {found} were found or some differ");
        return Err(DiskError::Inconsistent(text));
    }
    Ok(meta)
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
    for (lease, record) in &write.granted {
        let bytes = record.encode(*lease);
        tally.add(&bytes);
        if let Some(before) = leases.insert(lease.0, bytes.as_slice()).map_err(redb::Error::from)? {
            tally.remove(before.value());
        }
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
