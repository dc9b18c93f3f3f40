//! The audit log: lines in a file that is rotated, or on standard output.
//!
//! Responsible for: a bounded queue, one thread that writes, rotation by size, number and age as kube-apiserver's
//! flags say.
//! Deliberately not here: what is audited and how an event looks (`access`).
//!
//! # Flow
//! A request hands over a line and goes on. If the queue is full the request waits a moment; if it is still full, or
//! the disk refuses, the line is lost, counted and logged: an audit log that cannot be written does not stop a server.

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
use tokio::sync::mpsc;

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
/// How long a request waits for room in the queue.
const PATIENCE: Duration = Duration::from_millis(250);
/// Lines written between two flushes.
const BATCH: usize = 512;

/// The log of one server. Dropping the last handle writes what is queued.
#[derive(Debug)]
pub struct AuditLog {
    lines: Mutex<Option<mpsc::Sender<Bytes>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    metrics: Arc<Metrics>,
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
        Ok(Self { lines: Mutex::new(Some(lines)), writer: Mutex::new(Some(writer)), metrics })
    }

    /// Queues one line, which need not end in a line break.
    pub async fn write(&self, line: Bytes) {
        let Some(lines) = self.lines.lock().clone() else { return self.metrics.audit_event_lost("log") };
        match lines.try_send(line) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(line)) => {
                if lines.send_timeout(line, PATIENCE).await.is_err() {
                    self.metrics.audit_event_lost("log");
                }
            }
            Err(mpsc::error::TrySendError::Closed(_)) => self.metrics.audit_event_lost("log"),
        }
    }

    /// Writes what is queued and closes the log. Blocks.
    pub fn close(&self) {
        self.lines.lock().take();
        let writer = self.writer.lock().take();
        if let Some(writer) = writer
            && writer.join().is_err()
        {
            tracing::error!("the writer of the audit log panicked");
        }
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        self.close();
    }
}

fn write_all(mut sink: Box<dyn Write + Send>, mut queue: mpsc::Receiver<Bytes>, metrics: &Metrics) {
    let mut batch = Vec::with_capacity(BATCH);
    let mut is_failing = false;
    while queue.blocking_recv_many(&mut batch, BATCH) > 0 {
        let mut result = Ok(());
        for line in batch.drain(..) {
            match write_line(sink.as_mut(), &line) {
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
