//! The one thread that writes. It drains whatever waits into one fsynced commit, so the cost of an fsync is
//! shared by everybody who waited for the one before.
//!
//! # Guarantees
//! - Nothing is visible or answered, not even a refusal, before everything it was decided on is on disk.
//! - After a failure of the disk nothing is attempted: what was under way ends as unavailable, the rest as
//!   read-only. A disk that was only full is tried again (`writer/full.rs`).

mod full;

use std::{
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use store::{CommitError, Entry, Key, LeaseError, LeaseId, Revision, Txn};
use tokio::sync::{mpsc, oneshot};

use crate::{
    disk::{Write, WriteError},
    plan::{self, Plan, Values},
    record::{Location, Record, Tally},
    space::Space,
    state::State,
    store::Inner,
};

/// How many requests may wait.
pub(crate) const QUEUE: usize = 1024;

/// When one commit is large enough.
const MAX_BATCH: usize = 1024;
const MAX_BATCH_BYTES: usize = 8 << 20;

/// How much one commit sweeps at most; small, so that nobody waits long behind it.
const SWEEP_KEYS: usize = 4096;
const SWEEP_VERSIONS: usize = 512;

/// What the writer can be asked to do.
pub(crate) enum Request {
    Commit(Txn, oneshot::Sender<Result<Revision, CommitError>>),
    Grant(Duration, oneshot::Sender<Result<LeaseId, LeaseError>>),
    /// Starts the time of a long lease again.
    Renew(LeaseId, oneshot::Sender<Result<(), LeaseError>>),
    Revoke(LeaseId, oneshot::Sender<Result<(), LeaseError>>),
    Compact(Revision, oneshot::Sender<Result<(), CommitError>>),
    /// End the leases whose time is over.
    Expire(oneshot::Sender<()>),
    /// Look again whether there is something to sweep.
    Sweep,
    /// Look again whether there is space.
    Look,
    Stop,
}

pub(crate) struct Writer {
    inner: Arc<Inner>,
    requests: mpsc::Receiver<Request>,
    tally: Tally,
    sweep: Sweep,
    room: Room,
    /// What the index has dropped and the disk has not, because a commit failed.
    unswept: Vec<Location>,
    /// What may be on disk although its commit failed.
    in_doubt: Option<full::InDoubt>,
    /// When the file was last made smaller.
    shrunk: Duration,
    /// When a disk without space was last tried again.
    tried: Duration,
}

/// How much there may be, and is.
pub(crate) struct Room {
    pub(crate) space: Space,
    pub(crate) reserve_bytes: u64,
    /// When the reserve may be made again, after that has failed.
    pub(crate) keep_after: Duration,
    pub(crate) shrink_bytes: u64,
}

enum Sweep {
    Done,
    /// Begin with this key, or the first.
    From(Option<Key>),
}

/// An answer that waits for the disk.
enum Answer {
    Commit(oneshot::Sender<Result<Revision, CommitError>>, Result<Revision, CommitError>),
    Grant(oneshot::Sender<Result<LeaseId, LeaseError>>, LeaseId),
    Renew(oneshot::Sender<Result<(), LeaseError>>, Result<(), LeaseError>),
    Revoke(oneshot::Sender<Result<(), LeaseError>>, Result<(), LeaseError>),
    Compact(oneshot::Sender<Result<(), CommitError>>, Result<(), CommitError>),
}

/// What is decided but not yet written.
#[derive(Default)]
struct Work {
    plan: Plan,
    answers: Vec<Answer>,
    /// About how much of the file it takes.
    cost: u64,
}

/// Starts the writer. It ends after [`Request::Stop`] or when all senders are gone.
pub(crate) fn start(
    inner: Arc<Inner>,
    requests: mpsc::Receiver<Request>,
    tally: Tally,
    room: Room,
) -> std::io::Result<JoinHandle<()>> {
    let (shrunk, tried) = (inner.clock.monotonic(), inner.clock.monotonic());
    // What was compacted before the last stop may not be swept yet.
    let (unswept, in_doubt) = (Vec::new(), None);
    let writer =
        Writer { inner, requests, tally, sweep: Sweep::From(None), room, unswept, in_doubt, shrunk, tried };
    std::thread::Builder::new().name("store-writer".into()).spawn(move || writer.run())
}

impl Writer {
    fn run(mut self) {
        // A panic leaves what was under way unanswered, which callers take as "unknown", and stops writes.
        while catch_unwind(AssertUnwindSafe(|| self.serve_all())).is_err() {
            self.inner.disk.fail("the writer panicked");
        }
        self.inner.close();
        self.requests.close();
        while let Ok(request) = self.requests.try_recv() {
            refuse(request, "the store is closed");
        }
    }

    /// Serves until there will be no more requests.
    fn serve_all(&mut self) {
        while let Some(batch) = self.next_batch() {
            if self.serve(batch).is_break() {
                return;
            }
        }
    }

    /// Waits for requests, unless there is something to sweep.
    fn next_batch(&mut self) -> Option<Vec<Request>> {
        let mut batch = Vec::new();
        if !self.can_sweep() {
            batch.push(self.requests.blocking_recv()?);
        }
        let mut n_bytes = 0;
        while batch.len() < MAX_BATCH && n_bytes < MAX_BATCH_BYTES {
            match self.requests.try_recv() {
                Ok(request) => {
                    n_bytes += if let Request::Commit(txn, _) = &request { plan::size(txn) } else { 0 };
                    batch.push(request);
                }
                Err(mpsc::error::TryRecvError::Empty) => break,
                Err(mpsc::error::TryRecvError::Disconnected) if batch.is_empty() => return None,
                Err(mpsc::error::TryRecvError::Disconnected) => break,
            }
        }
        Some(batch)
    }

    fn can_sweep(&self) -> bool {
        matches!(self.sweep, Sweep::From(_))
            && self.inner.state.read().n_pins == 0
            && self.inner.disk.failure().is_none()
    }

    fn serve(&mut self, batch: Vec<Request>) -> ControlFlow<()> {
        self.look();
        let mut work = Work::default();
        let mut requests = batch.into_iter();
        while let Some(request) = requests.next() {
            let failure = self.inner.disk.failure();
            match request {
                Request::Stop => {
                    self.flush(&mut work);
                    requests.for_each(|it| refuse(it, "the store is closed"));
                    return ControlFlow::Break(());
                }
                // Nothing is attempted after a failure; only the end is still possible.
                request if let Some(why) = &failure => refuse(request, why),
                Request::Commit(txn, answer) => {
                    if let Err(why) = self.admit(&txn, &mut work) {
                        drop(answer.send(Err(CommitError::ReadOnly(why))));
                        continue;
                    }
                    let result = work.plan.commit(&self.inner.state.read(), &FromDisk(&self.inner), txn);
                    work.answers.push(Answer::Commit(answer, result));
                }
                Request::Grant(ttl, answer) => {
                    let now = self.inner.clock.now().as_millisecond();
                    let lease = work.plan.grant(&self.inner.state.read(), ttl, now);
                    work.answers.push(Answer::Grant(answer, lease));
                }
                Request::Renew(lease, answer) => {
                    let now = self.inner.clock.now().as_millisecond();
                    let result = work.plan.renew(&self.inner.state.read(), lease, now);
                    work.answers.push(Answer::Renew(answer, result));
                }
                Request::Revoke(lease, answer) => {
                    self.flush(&mut work);
                    let result = work.plan.end(&mut self.inner.state.write(), lease);
                    work.answers.push(Answer::Revoke(answer, result));
                    self.flush(&mut work);
                }
                Request::Expire(done) => {
                    self.expire(&mut work);
                    done.send(()).ok();
                }
                Request::Compact(before, answer) => {
                    let result = work.plan.compact(&self.inner.state.read(), before);
                    work.answers.push(Answer::Compact(answer, result));
                }
                Request::Sweep | Request::Look => {}
            }
        }
        self.flush(&mut work);
        self.shrink_if_mostly_empty();
        ControlFlow::Continue(())
    }

    fn expire(&mut self, work: &mut Work) {
        self.flush(work);
        let mut state = self.inner.state.write();
        for lease in state.due(self.inner.clock.monotonic()) {
            work.plan.end(&mut state, lease).expect("the lease must be there: it was just found");
        }
        drop(state);
        self.flush(work);
    }

    /// Writes what is planned, makes it visible and answers.
    fn flush(&mut self, work: &mut Work) {
        let Work { plan, answers, cost: _ } = std::mem::take(work);
        let mut removals = if self.can_sweep() { self.sweep_some() } else { Vec::new() };
        removals.append(&mut self.unswept);
        if plan.is_empty() && removals.is_empty() {
            answers.into_iter().for_each(Answer::send);
            return;
        }
        let write = self.to_write(&plan, removals);
        match self.inner.disk.commit(&write, &mut self.tally) {
            Ok(()) => {
                if plan.compact.is_some() {
                    self.sweep = Sweep::From(None);
                }
                self.apply(plan);
                answers.into_iter().for_each(Answer::send);
            }
            Err(error) => self.failed(&error, write, plan, answers),
        }
    }

    fn to_write(&self, plan: &Plan, removals: Vec<Location>) -> Write {
        let state = self.inner.state.read();
        let records = plan.changes.iter().flat_map(|changes| {
            (0..).zip(&changes.events).map(|(position, event)| Record::of_event(event, position))
        });
        Write {
            records: records.collect(),
            removals,
            granted: [plan.granted.as_slice(), plan.renewed.as_slice()].concat(),
            ended: plan.ended.clone(),
            revision: plan.revision(&state),
            compacted: plan.compact.unwrap_or(state.compacted()),
            last_lease: plan.granted.last().map_or(state.last_lease(), |(it, _)| it.0),
        }
    }

    fn apply(&self, plan: Plan) {
        let now = self.inner.clock.monotonic();
        let mut state = self.inner.state.write();
        let leases_changed = !plan.granted.is_empty();
        for (lease, record) in plan.granted.into_iter().chain(plan.renewed) {
            state.grant(lease, record, now);
        }
        for changes in plan.changes {
            state.apply(changes);
        }
        for lease in plan.ended {
            state.end(lease);
        }
        if let Some(before) = plan.compact {
            state.compact(before);
        }
        let revision = state.revision();
        drop(state);
        self.inner.changed.send_replace(revision);
        if leases_changed {
            self.inner.leases_changed.notify_one();
        }
    }

    /// Drops some versions that nobody can ask for any more, from the index first: whoever finds a version
    /// there finds it on disk too.
    fn sweep_some(&mut self) -> Vec<Location> {
        let Sweep::From(from) = std::mem::replace(&mut self.sweep, Sweep::Done) else { return Vec::new() };
        let (dropped, next) = self.inner.state.write().sweep(from.as_ref(), SWEEP_KEYS, SWEEP_VERSIONS);
        if next.is_some() {
            self.sweep = Sweep::From(next);
        }
        dropped
    }
}

impl Answer {
    // A caller that went away does not mind.
    fn send(self) {
        match self {
            Answer::Commit(answer, result) => drop(answer.send(result)),
            Answer::Grant(answer, lease) => drop(answer.send(Ok(lease))),
            Answer::Renew(answer, result) | Answer::Revoke(answer, result) => drop(answer.send(result)),
            Answer::Compact(answer, result) => drop(answer.send(result)),
        }
    }

    /// Answers when the disk failed. Refusals fail too: they may rest on what was not written.
    fn fail(self, error: &WriteError) {
        let (why, commit) = match error {
            WriteError::Unattempted(why) => (why, CommitError::ReadOnly(why.clone())),
            WriteError::Unknown(why, _) => (why, CommitError::Unavailable(why.clone())),
        };
        let lease = LeaseError::Unavailable(why.clone());
        match self {
            Answer::Commit(answer, _) => drop(answer.send(Err(commit))),
            Answer::Grant(answer, _) => drop(answer.send(Err(lease))),
            Answer::Renew(answer, _) | Answer::Revoke(answer, _) => drop(answer.send(Err(lease))),
            Answer::Compact(answer, _) => drop(answer.send(Err(commit))),
        }
    }
}

/// Answers a request that was not attempted.
fn refuse(request: Request, why: &str) {
    match request {
        Request::Commit(_, answer) => drop(answer.send(Err(CommitError::ReadOnly(why.to_owned())))),
        Request::Grant(_, answer) => drop(answer.send(Err(LeaseError::Unavailable(why.to_owned())))),
        Request::Renew(_, answer) | Request::Revoke(_, answer) => {
            drop(answer.send(Err(LeaseError::Unavailable(why.to_owned()))))
        }
        Request::Compact(_, answer) => drop(answer.send(Err(CommitError::ReadOnly(why.to_owned())))),
        Request::Expire(_) | Request::Sweep | Request::Look | Request::Stop => {}
    }
}

struct FromDisk<'a>(&'a Inner);

impl Values for FromDisk<'_> {
    fn newest(&self, state: &State, key: &Key) -> Result<Option<Entry>, String> {
        let Some(version) = state.newest(key) else { return Ok(None) };
        let record = self.0.read(|| self.0.disk.reader()?.record(version.location));
        let record = record.map_err(|error| error.to_string())?;
        Ok(Some(crate::store::to_entry(record)))
    }
}
