//! The audit log: lines in a file that is rotated, or on standard output.
//!
//! Responsible for: a bounded queue, one thread that writes, rotation by size, number and age as kube-apiserver's
//! flags say.
//! Deliberately not here: what is audited and how an event looks (`access`).
//!
//! # Flow
//! A request hands over a line and goes on. If the queue is full the request waits a moment; if it is still full, or
//! the disk refuses, the line is lost, counted and logged: an audit log that cannot be written does not stop a server.
//! The queue is full when it has too many lines or too many bytes: a line may hold two objects of several megabytes.

mod rotate;

use std::{
    io::{self, Write},
    path::PathBuf,
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use store::SharedClock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use self::rotate::RotatedFile;
use crate::metrics::Metrics;

/// Where the log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// `-`.
    StandardOutput,
    /// A file, rotated.
    File(Rotation),
}

/// A file and how it is rotated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The file that is written to.
    pub path: PathBuf,
    /// It is put aside when it would get larger than this many bytes; 0 is never.
    pub max_bytes: u64,
    /// How many old files are kept; 0 is all.
    pub max_backups: usize,
    /// For how long; zero is for ever.
    pub max_age: Duration,
}

/// Lines that may wait to be written.
const QUEUE: usize = 10_000;
/// Bytes of those lines.
const QUEUE_BYTES: usize = 64 << 20;
/// How long a request waits for room in the queue.
const PATIENCE: Duration = Duration::from_millis(250);
/// Lines written between two flushes.
const BATCH: usize = 512;

/// The log of one server. Clones are the same one; dropping the last writes what is queued.
#[derive(Clone, Debug)]
pub struct AuditLog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    lines: Mutex<Option<mpsc::Sender<Queued>>>,
    room: Arc<Semaphore>,
    writer: Mutex<Option<JoinHandle<()>>>,
    metrics: Arc<Metrics>,
}

/// A line with the room that it takes in the queue.
#[derive(Debug)]
struct Queued {
    line: Bytes,
    _room: OwnedSemaphorePermit,
}

impl AuditLog {
    /// Opens the log, so that a file that cannot be written is noticed now.
    pub fn open(destination: Destination, clock: SharedClock, metrics: Arc<Metrics>) -> io::Result<Self> {
        let sink: Box<dyn Write + Send> = match destination {
            Destination::StandardOutput => Box::new(io::stdout()),
            Destination::File(rotation) => Box::new(RotatedFile::open(rotation, clock)?),
        };
        let (lines, queue) = mpsc::channel(QUEUE);
        let counted = Arc::clone(&metrics);
        let writer = std::thread::Builder::new()
            .name("audit-log".to_owned())
            .spawn(move || write_all(sink, queue, &counted))?;
        let room = Arc::new(Semaphore::new(QUEUE_BYTES));
        let (lines, writer) = (Mutex::new(Some(lines)), Mutex::new(Some(writer)));
        Ok(Self(Arc::new(Inner { lines, room, writer, metrics })))
    }

    /// Queues one line, which need not end in a line break. The line is not lost if this is dropped while it waits.
    pub async fn write(&self, line: Bytes) {
        let Some(unsent) = self.try_queue(line) else { return };
        let mut waiting = Waiting { log: self, line: Some(unsent) };
        // There is no other way to wait for two kinds of room, and a queue this full is rare.
        let room = u32::try_from(room_of(waiting.line.as_ref().map_or(0, Bytes::len))).unwrap_or(u32::MAX);
        let found = tokio::time::timeout(PATIENCE, async {
            let sender = self.0.lines.lock().clone()?;
            let room = Arc::clone(&self.0.room).acquire_many_owned(room).await.ok()?;
            let place = sender.reserve_owned().await.ok()?;
            Some((place, room))
        })
        .await;
        match (found.ok().flatten(), waiting.line.take()) {
            (Some((place, room)), Some(line)) => {
                place.send(Queued { line, _room: room });
            }
            _ => self.0.metrics.audit_event_lost("log"),
        }
    }

    /// The same for those who cannot wait: a line for which there is no room is lost.
    pub fn write_now(&self, line: Bytes) {
        if self.try_queue(line).is_some() {
            self.0.metrics.audit_event_lost("log");
        }
    }

    /// Queues a line, or gives it back if there is no room. Once the log is closed, lines are lost.
    fn try_queue(&self, line: Bytes) -> Option<Bytes> {
        let Some(sender) = self.0.lines.lock().clone() else {
            self.0.metrics.audit_event_lost("log");
            return None;
        };
        let room = u32::try_from(room_of(line.len())).unwrap_or(u32::MAX);
        let Ok(room) = Arc::clone(&self.0.room).try_acquire_many_owned(room) else { return Some(line) };
        match sender.try_send(Queued { line, _room: room }) {
            Ok(()) => None,
            Err(mpsc::error::TrySendError::Full(it) | mpsc::error::TrySendError::Closed(it)) => Some(it.line),
        }
    }

    /// Writes what is queued and closes the log. Blocks.
    pub fn close(&self) {
        self.0.close();
    }
}

/// The room that a line takes. One that is larger than the whole queue has it for itself.
fn room_of(bytes: usize) -> usize {
    bytes.clamp(1, QUEUE_BYTES)
}

/// A line that waits for room. If nobody waits for it any more, it is tried once again.
struct Waiting<'a> {
    log: &'a AuditLog,
    line: Option<Bytes>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(line) = self.line.take() {
            self.log.write_now(line);
        }
    }
}

impl Inner {
    fn close(&self) {
        self.lines.lock().take();
        let writer = self.writer.lock().take();
        if let Some(writer) = writer
            && writer.join().is_err()
        {
            tracing::error!("the writer of the audit log panicked");
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

fn write_all(mut sink: Box<dyn Write + Send>, mut queue: mpsc::Receiver<Queued>, metrics: &Metrics) {
    let mut batch = Vec::with_capacity(BATCH);
    let mut is_failing = false;
    while queue.blocking_recv_many(&mut batch, BATCH) > 0 {
        let mut result = Ok(());
        for queued in batch.drain(..) {
            match write_line(sink.as_mut(), &queued.line) {
                Ok(()) => {
                    metrics.audit_events.inc();
                }
                Err(error) => {
                    metrics.audit_event_lost("log");
                    result = Err(error);
                }
            }
        }
        match result.and_then(|()| sink.flush()) {
            Ok(()) => is_failing = false,
            Err(error) => {
                if !is_failing {
                    tracing::error!(%error, "the audit log cannot be written; events are lost");
                }
                is_failing = true;
            }
        }
    }
}

fn write_line(sink: &mut dyn Write, line: &[u8]) -> io::Result<()> {
    if line.ends_with(b"\n") {
        return sink.write_all(line);
    }
    // One write, so that rotation never splits a line.
    let mut whole = Vec::with_capacity(line.len() + 1);
    whole.extend_from_slice(line);
    whole.push(b'\n');
    sink.write_all(&whole)
}

#[cfg(test)]
mod tests;
