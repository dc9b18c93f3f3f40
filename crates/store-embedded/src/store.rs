//! The store as callers see it: hands writes to the writer thread, answers reads from index and disk.

use std::{
    fmt,
    ops::ControlFlow,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use redb::backends::FileBackend;
use store::{
    CommitError, Entry, Events, Key, LeaseError, LeaseId, Leases, Page, Place, Portion, Range, ReadAt,
    ReadError, Revision, SharedClock, Store, Txn, WatchError,
};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::{
    disk::{self, Disk, DiskError, Reader},
    fault::DiskFaults,
    housekeeping,
    open::{self, IfMissing, OpenError},
    record::Record,
    space::{Alarm, Limits},
    state::State,
    volume::{self, Volume},
    writer::{self, Request},
};

/// A store in a directory. Cheap to clone; all clones are the same store. Closed by [`EmbeddedStore::close`]
/// or when the last clone goes.
#[derive(Clone)]
pub struct EmbeddedStore {
    shared: Arc<Shared>,
}

/// What can be chosen when a directory is opened.
#[derive(Clone)]
pub struct Options {
    /// What leases and compaction run on.
    pub clock: SharedClock,
    /// History is kept for at least this long, and at most twice as long; for ever if not given.
    pub compaction_interval: Option<Duration>,
    /// How much of the file is kept in memory.
    pub cache_bytes: usize,
    /// How much of the latest changes is kept in memory for watchers; who falls behind reads the disk.
    pub recent_bytes: usize,
    /// How much may be stored, old versions included; no limit if not given. Beyond it only removals are written.
    pub quota_bytes: Option<u64>,
    /// How much of the disk is kept for removals when it is full; zero keeps nothing and looks after nothing.
    pub reserve_bytes: u64,
    /// Prefixes of keys that are written although there is no space, because a server cannot do without them.
    pub essential: Vec<String>,
    /// A file of at least this size that is mostly empty is made smaller, also while the store is open.
    pub shrink_bytes: u64,
}

impl Options {
    /// Five minutes of history, 64 MiB of cache, 16 MiB of latest changes, no quota, 16 MiB kept for removals.
    pub fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            compaction_interval: Some(Duration::from_secs(300)),
            cache_bytes: 64 << 20,
            recent_bytes: 16 << 20,
            quota_bytes: None,
            reserve_bytes: 16 << 20,
            essential: Vec::new(),
            shrink_bytes: 256 << 20,
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        let Self { quota_bytes: quota, reserve_bytes: reserve, essential, .. } = self.clone();
        Limits { quota, reserve, essential }
    }
}

/// Whether the store does what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Reads and writes work.
    Writable,
    /// Reads and removals work; there is no space for more. It ends by itself.
    Full(String),
    /// Nothing is written any more; the reason is for people. Restart once the disk works again.
    ReadOnly(String),
}

impl EmbeddedStore {
    /// Opens the store in a directory; it is an error if there is none, and then nothing is changed there. Must be called
    /// inside a Tokio runtime.
    pub fn open(directory: &Path, options: Options) -> Result<Self, OpenError> {
        let volume = Volume::new(FileBackend::new, volume::disk_of(directory));
        Self::open_on(directory, options, IfMissing::Refuse, volume)
    }

    /// The same, but makes the directory and an empty store in it if there is none: only for who may start a cluster.
    pub fn open_or_make(directory: &Path, options: Options) -> Result<Self, OpenError> {
        let volume = Volume::new(FileBackend::new, volume::disk_of(directory));
        Self::open_on(directory, options, IfMissing::Make, volume)
    }

    /// Opens or makes a store on a disk that a test can fill and slow down.
    pub fn open_with_faults(
        directory: &Path,
        options: Options,
        faults: &DiskFaults,
    ) -> Result<Self, OpenError> {
        Self::open_on(directory, options, IfMissing::Make, faults.volume())
    }

    /// Opens a directory on a disk.
    pub(crate) fn open_on(
        directory: &Path,
        options: Options,
        if_missing: IfMissing,
        volume: Volume,
    ) -> Result<Self, OpenError> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| OpenError::NoRuntime)?;
        let opened = open::open(directory, &options, if_missing, volume)?;
        let room = writer::Room {
            space: opened.space,
            keep_after: Duration::ZERO,
            reserve_bytes: options.reserve_bytes,
            shrink_bytes: options.shrink_bytes,
        };
        let inner = Arc::new(Inner {
            changed: watch::Sender::new(opened.state.revision()),
            state: RwLock::new(opened.state),
            disk: opened.disk,
            alarm: Mutex::new(room.space.alarm()),
            clock: options.clock,
            leases_changed: Notify::new(),
            closed: AtomicBool::new(false),
        });
        let (requests, receiver) = mpsc::channel(writer::QUEUE);
        let thread = writer::start(Arc::clone(&inner), receiver, opened.tally, room)
            .map_err(|source| OpenError::Io { path: directory.to_owned(), source })?;
        let shared = Arc::new(Shared { requests, inner, thread: Mutex::new(Some(thread)) });
        runtime.spawn(housekeeping::keep_running(Arc::downgrade(&shared), options.compaction_interval));
        Ok(Self { shared })
    }

    /// Whether writes work, and if not, why.
    pub fn health(&self) -> Health {
        if let Some(why) = self.shared.inner.disk.failure() {
            return Health::ReadOnly(why);
        }
        if self.shared.inner.is_closed() {
            return Health::ReadOnly("the store is closed".into());
        }
        if let Some(alarm) = *self.shared.inner.alarm.lock() {
            return Health::Full(alarm.to_string());
        }
        Health::Writable
    }

    /// Finishes what was handed in before, closes the files and lets others have the directory.
    pub async fn close(&self) {
        self.shared.requests.send(Request::Stop).await.ok();
        let thread = self.shared.thread.lock().take();
        if let Some(thread) = thread {
            let joined = tokio::task::spawn_blocking(move || thread.join().is_ok()).await;
            if !joined.unwrap_or(false) {
                tracing::error!("the store's writer ended unexpectedly");
            }
        }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.shared.inner
    }

    /// Has the writer look whether it can sweep now.
    pub(crate) async fn nudge(&self) {
        self.shared.requests.send(Request::Sweep).await.ok();
    }

    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Result<T, Unasked> {
        let (answer, answered) = oneshot::channel();
        self.shared.requests.send(request(answer)).await.map_err(|_| Unasked::Closed)?;
        answered.await.map_err(|_| Unasked::Lost)
    }

    /// Reads away from the threads that serve requests: a slow disk must not stop them.
    async fn read<T: Send + 'static>(
        &self,
        read: impl Fn(&Inner) -> Result<Result<T, ReadError>, DiskError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let inner = Arc::clone(&self.shared.inner);
        let result = tokio::task::spawn_blocking(move || inner.read(|| read(&inner))).await;
        match result {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => Err(ReadError::Unavailable(error.advice())),
            // The engine checks what it reads, but not everywhere: some damage ends in a panic.
            Err(error) if error.is_panic() => {
                Err(ReadError::Unavailable(disk::damaged("its structure makes no sense")))
            }
            Err(error) => Err(ReadError::Unavailable(error.to_string())),
        }
    }

    fn check_open(&self) -> Result<(), ReadError> {
        if self.shared.inner.is_closed() { Err(ReadError::Unavailable(CLOSED.into())) } else { Ok(()) }
    }
}

const CLOSED: &str = "the store is closed";

/// Why the writer gave no answer.
enum Unasked {
    /// It did not get the request.
    Closed,
    /// It got the request and ended.
    Lost,
}

impl Unasked {
    fn of_commit(self) -> CommitError {
        match self {
            Unasked::Closed => CommitError::ReadOnly(CLOSED.into()),
            Unasked::Lost => CommitError::Unavailable("the writer ended".into()),
        }
    }

    fn of_lease(self) -> LeaseError {
        LeaseError::Unavailable(CLOSED.into())
    }
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EmbeddedStore")
    }
}

impl Store for EmbeddedStore {
    async fn current(&self) -> Result<Revision, ReadError> {
        self.check_open()?;
        Ok(self.shared.inner.state.read().revision())
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, ReadError> {
        self.check_open()?;
        if self.shared.inner.state.read().newest(key).is_none() {
            return Ok(None);
        }
        let key = key.clone();
        self.read(move |inner| inner.get(&key).map(Ok)).await
    }

    async fn list(&self, range: &Range, at: ReadAt, limit: usize) -> Result<Page, ReadError> {
        self.check_open()?;
        let range = range.clone();
        self.read(move |inner| inner.list(&range, at, limit)).await
    }

    async fn scan(
        &self,
        range: &Range,
        at: ReadAt,
        from: Option<Place>,
        limit: usize,
    ) -> Result<Portion, ReadError> {
        self.check_open()?;
        let after = match from {
            None => Revision::ZERO,
            Some(Place::Revision(revision)) => revision,
            Some(Place::Key(_)) => return Err(ReadError::Unavailable("no place of this store".to_owned())),
        };
        let range = range.clone();
        self.read(move |inner| inner.scan(&range, at, after, limit)).await
    }

    async fn watch(&self, range: &Range, after: Revision) -> Result<Events, WatchError> {
        self.shared.inner.state.read().check_watch(after)?;
        Ok(crate::watch::start(Arc::clone(&self.shared.inner), range.clone(), after))
    }

    async fn commit(&self, txn: Txn) -> Result<Revision, CommitError> {
        self.ask(|answer| Request::Commit(txn, answer)).await.unwrap_or_else(|it| Err(it.of_commit()))
    }

    async fn compact(&self, before: Revision) -> Result<(), CommitError> {
        self.ask(|answer| Request::Compact(before, answer)).await.unwrap_or_else(|it| Err(it.of_commit()))
    }
}

impl Leases for EmbeddedStore {
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, LeaseError> {
        self.ask(|answer| Request::Grant(ttl, answer)).await.unwrap_or_else(|it| Err(it.of_lease()))
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), LeaseError> {
        let inner = &self.shared.inner;
        if inner.is_closed() {
            return Err(Unasked::Closed.of_lease());
        }
        let record = inner.state.read().lease(lease)?;
        if record.is_long() {
            // Its time goes on while nobody has the store open, so that the disk must know when it began.
            return self
                .ask(|answer| Request::Renew(lease, answer))
                .await
                .unwrap_or_else(|it| Err(it.of_lease()));
        }
        let now = inner.clock.monotonic();
        inner.state.write().renew(lease, now)
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), LeaseError> {
        self.ask(|answer| Request::Revoke(lease, answer)).await.unwrap_or_else(|it| Err(it.of_lease()))
    }
}

/// What all clones share; its end closes the store.
pub(crate) struct Shared {
    pub(crate) requests: mpsc::Sender<Request>,
    pub(crate) inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Housekeeping sees that there is nothing left to keep.
        self.inner.leases_changed.notify_one();
        // The writer ends when the last sender goes, and closes the files.
        let (closed, _) = mpsc::channel(1);
        drop(std::mem::replace(&mut self.requests, closed));
        if let Some(thread) = self.thread.lock().take() {
            thread.join().ok();
        }
    }
}

/// What callers, the writer and watches share.
pub(crate) struct Inner {
    pub(crate) state: RwLock<State>,
    pub(crate) disk: Disk,
    /// Why only removals are written.
    pub(crate) alarm: Mutex<Option<Alarm>>,
    pub(crate) clock: SharedClock,
    /// Tells watchers to look again.
    pub(crate) changed: watch::Sender<Revision>,
    /// Tells housekeeping that the next deadline may be another one.
    pub(crate) leases_changed: Notify,
    closed: AtomicBool,
}

impl Inner {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Called by the writer when it ends.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.disk.close();
        self.changed.send_modify(|_| {});
        self.leases_changed.notify_one();
    }

    /// Reads; if the engine fails, once more after it was reopened.
    pub(crate) fn read<T>(&self, read: impl Fn() -> Result<T, DiskError>) -> Result<T, DiskError> {
        match read() {
            Err(DiskError::Engine(error)) => {
                self.disk.fail(&DiskError::Engine(error).advice());
                read()
            }
            other => other,
        }
    }

    fn get(&self, key: &Key) -> Result<Option<Entry>, DiskError> {
        // The reader is made under the lock: what the index knows now stays readable through it.
        let (version, reader) = {
            let state = self.state.read();
            let Some(version) = state.newest(key) else { return Ok(None) };
            (version, self.disk.reader()?)
        };
        Ok(Some(to_entry(reader.record(version.location)?)))
    }

    pub(crate) fn list(
        &self,
        range: &Range,
        at: ReadAt,
        limit: usize,
    ) -> Result<Result<Page, ReadError>, DiskError> {
        let (found, reader) = {
            let state = self.state.read();
            let revision = match state.resolve(at) {
                Ok(revision) => revision,
                Err(error) => return Ok(Err(error)),
            };
            (state.find(range, revision, limit), self.disk.reader()?)
        };
        let entries = reader.records(&found.locations)?.into_iter().map(to_entry).collect();
        Ok(Ok(Page { entries, remaining: found.remaining, revision: found.revision }))
    }

    /// Walks the log in the order in which it lies on disk, from behind the revision `after`.
    fn scan(
        &self,
        range: &Range,
        at: ReadAt,
        after: Revision,
        limit: usize,
    ) -> Result<Result<Portion, ReadError>, DiskError> {
        let (resolved, reader) = {
            let state = self.state.read();
            (state.resolve(at), self.disk.reader()?)
        };
        let revision = match resolved {
            Ok(revision) => revision,
            Err(error) => return Ok(Err(error)),
        };
        let WalkedLog { mut records, next } = walk_log(&reader, range, after, revision, limit)?;
        let state = self.state.read();
        if let Err(error) = state.resolve(ReadAt::Revision(revision)) {
            return Ok(Err(error));
        }
        records.retain(|it| state.is_in_force(&it.key, it.location, revision));
        let entries = records.into_iter().map(to_entry).collect();
        Ok(Ok(Portion { entries, revision, next }))
    }
}

/// Puts that lie together in the log, overwritten ones among them.
struct WalkedLog {
    records: Vec<Record>,
    next: Option<Place>,
}

/// Reads puts of a range from behind one revision up to another, until there are enough. Never splits a revision.
fn walk_log(
    reader: &Reader,
    range: &Range,
    after: Revision,
    up_to: Revision,
    limit: usize,
) -> Result<WalkedLog, DiskError> {
    /// So many bytes are enough, or so many records for each entry wanted.
    const BYTES: usize = 4 << 20;
    const SEEN: usize = 16;
    let mut walked = WalkedLog { records: Vec::new(), next: None };
    let (mut n_bytes, mut n_seen, mut reached) = (0, 0, after);
    reader.scan(after, |record| {
        let revision = record.location.revision;
        if revision > up_to {
            return ControlFlow::Break(());
        }
        let is_enough = walked.records.len() >= limit || n_bytes >= BYTES || n_seen >= limit * SEEN;
        if is_enough && n_seen > 0 && revision > reached {
            walked.next = Some(Place::Revision(reached));
            return ControlFlow::Break(());
        }
        if let Some(value) = record.value.filter(|_| range.contains(record.key)) {
            n_bytes += value.len();
            walked.records.push(record.to_record());
        }
        n_seen += 1;
        reached = revision;
        ControlFlow::Continue(())
    })?;
    Ok(walked)
}

/// The entry that a put made.
pub(crate) fn to_entry(record: Record) -> Entry {
    Entry {
        key: record.key,
        value: record.value.unwrap_or_default(),
        created: record.created,
        modified: record.location.revision,
        lease: record.lease,
    }
}
