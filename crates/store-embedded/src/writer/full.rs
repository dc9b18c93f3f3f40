//! The writer on a disk without space: what it still takes, how it finds out that a failed commit did no harm, and how the
//! file becomes smaller.

use std::time::Duration;

use store::Txn;

use crate::{
    disk::{Write, WriteError},
    plan::Plan,
    record::Meta,
    space,
};

use super::{Answer, Room, Sweep, Work, Writer};

/// How often the file is made smaller at most: nobody can read meanwhile.
const SHRINK_EVERY: Duration = Duration::from_secs(60);

/// How often a disk without space is tried again at most.
const TRY_EVERY: Duration = Duration::from_secs(5);

/// How often the reserve is made at most where that fails.
const KEEP_EVERY: Duration = Duration::from_secs(5);

/// A commit that failed and may be on disk.
pub(super) struct InDoubt {
    /// The counters if it is.
    meta: Meta,
    plan: Plan,
}

impl Writer {
    /// Looks how much space there is, and tries a disk again that had none.
    pub(super) fn look(&mut self) {
        let used = self.inner.state.read().used();
        let now = self.inner.clock.monotonic();
        let Room { space, reserve_bytes, keep_after, .. } = &mut self.room;
        let may_keep = now >= *keep_after;
        if space::look(space, &self.inner.disk.volume, *reserve_bytes, used, may_keep) {
            *keep_after = now.saturating_add(KEEP_EVERY);
        }
        *self.inner.alarm.lock() = self.room.space.alarm();
        // Everything is read for it, and requests wait meanwhile.
        if self.inner.disk.is_recoverable() && now >= self.tried.saturating_add(TRY_EVERY) {
            self.tried = now;
            self.recover();
        }
    }

    /// Whether there is space for a transaction; if not, why not.
    pub(super) fn admit(&mut self, txn: &Txn, work: &mut Work) -> Result<(), String> {
        let state = self.inner.state.read();
        let length = |key: &_| state.newest(key).map(|it| it.length());
        let (demand, cost) = self.room.space.demand(txn, length);
        let used = state.used().saturating_add(work.cost);
        drop(state);
        let before = self.room.space.alarm();
        let admitted = self.room.space.admit(demand, cost, used);
        if let (None, Some(alarm)) = (before, self.room.space.alarm()) {
            tracing::error!("{alarm}; only removals are written until there is space");
            *self.inner.alarm.lock() = Some(alarm);
            // Housekeeping looks more often from now on.
            self.inner.leases_changed.notify_one();
        }
        admitted.map_err(|alarm| alarm.to_string())?;
        work.cost = work.cost.saturating_add(cost);
        Ok(())
    }

    /// A commit failed. If there was no space for it, what became of it is found out at once.
    pub(super) fn failed(&mut self, error: &WriteError, write: Write, plan: Plan, answers: Vec<Answer>) {
        let Write { removals, revision, compacted, last_lease, .. } = write;
        self.unswept = removals;
        let mut state = self.inner.state.write();
        plan.ended.iter().for_each(|it| state.cancel_end(*it));
        drop(state);
        if let WriteError::Unknown(_, tally) = error {
            let meta = Meta { revision, compacted, last_lease, tally: *tally };
            self.in_doubt = Some(InDoubt { meta, plan });
        }
        self.inner.leases_changed.notify_one();
        if !self.inner.disk.is_recoverable() {
            return answers.into_iter().for_each(|it| it.fail(error));
        }
        self.inner.disk.volume.release();
        self.room.space.reserve_changed(false);
        *self.inner.alarm.lock() = self.room.space.alarm();
        match self.recover() {
            Some(Found::After) => answers.into_iter().for_each(Answer::send),
            Some(Found::Before) => {
                let why = self.room.space.alarm().map_or_else(String::new, |it| it.to_string());
                answers.into_iter().for_each(|it| it.fail(&WriteError::Unattempted(why.clone())));
            }
            None => answers.into_iter().for_each(|it| it.fail(error)),
        }
    }

    /// Tries to write again; says what became of the commit that failed.
    fn recover(&mut self) -> Option<Found> {
        let state = self.inner.state.read();
        let before = Meta {
            revision: state.revision(),
            compacted: state.compacted(),
            last_lease: state.last_lease(),
            tally: self.tally,
        };
        drop(state);
        let after = self.in_doubt.as_ref().map(|it| it.meta);
        let found = match self.inner.disk.recover(&before, after.as_ref()) {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "the store takes no writes yet");
                return None;
            }
        };
        let in_doubt = self.in_doubt.take();
        self.inner.leases_changed.notify_one();
        if found == before {
            return Some(Found::Before);
        }
        if let Some(InDoubt { meta, plan }) = in_doubt {
            self.tally = meta.tally;
            self.unswept = Vec::new();
            if plan.compact.is_some() {
                self.sweep = Sweep::From(None);
            }
            self.apply(plan);
        }
        Some(Found::After)
    }

    /// Gives back what the file does not need, when nobody waits.
    pub(super) fn shrink_if_mostly_empty(&mut self) {
        let now = self.inner.clock.monotonic();
        let is_idle = matches!(self.sweep, Sweep::Done) && self.requests.is_empty();
        if !is_idle || now < self.shrunk.saturating_add(SHRINK_EVERY) || self.inner.state.read().n_pins > 0 {
            return;
        }
        let (Ok(size), used) = (self.inner.disk.size(), self.inner.state.read().used()) else { return };
        if !space::is_mostly_empty(size, used, self.room.shrink_bytes) {
            return;
        }
        match self.inner.disk.shrink() {
            Ok(false) => {}
            Ok(true) => {
                self.shrunk = now;
                let left = self.inner.disk.size().unwrap_or(0);
                tracing::info!(size, left, used, "the store's file was made smaller");
            }
            Err(error) => self.inner.disk.fail(&error.to_string()),
        }
    }
}

/// What a failed commit turned out to be.
enum Found {
    /// It did not happen.
    Before,
    /// It did.
    After,
}
