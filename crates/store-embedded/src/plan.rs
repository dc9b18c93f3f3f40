//! Decides what a batch of requests does, before anything is written. Transactions are decided in order,
//! each seeing the ones before it. Pure apart from fetching values for refusals.

use std::{collections::HashMap, time::Duration};

use store::{Change, CommitError, Entry, Event, Key, LeaseError, LeaseId, Require, Revision, Txn};

use crate::{recent::Changes, record::LeaseRecord, state::State};

/// The largest transaction, keys and values together.
const MAX_TXN_BYTES: usize = 32 << 20;

/// The longest key.
const MAX_KEY_BYTES: usize = 4096;

/// Fetches the value of a version that is on disk.
pub(crate) trait Values {
    /// The newest entry of a key, if it exists.
    fn newest(&self, state: &State, key: &Key) -> Result<Option<Entry>, String>;
}

/// What will be written together, and become visible together.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) changes: Vec<Changes>,
    pub(crate) granted: Vec<(LeaseId, LeaseRecord)>,
    /// Leases whose time begins again.
    pub(crate) renewed: Vec<(LeaseId, LeaseRecord)>,
    pub(crate) ended: Vec<LeaseId>,
    pub(crate) compact: Option<Revision>,
    /// What keys hold after `changes`; nothing for removed ones.
    pending: HashMap<Key, Option<Entry>>,
}

impl Plan {
    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
            && self.granted.is_empty()
            && self.renewed.is_empty()
            && self.ended.is_empty()
            && self.compact.is_none()
    }

    /// The newest revision once the plan is carried out.
    pub(crate) fn revision(&self, state: &State) -> Revision {
        self.changes.last().map_or(state.revision(), |it| it.revision)
    }

    pub(crate) fn commit(
        &mut self,
        state: &State,
        values: &dyn Values,
        txn: Txn,
    ) -> Result<Revision, CommitError> {
        txn.check()?;
        check_size(&txn)?;
        self.check_requirements(state, values, &txn.require)?;
        for change in &txn.changes {
            if let Change::Put(_, _, Some(lease)) = change
                && !state.has_lease(*lease)
            {
                return Err(CommitError::NoLease(*lease));
            }
        }
        Ok(self.change(state, txn.changes))
    }

    /// A new lease; `now` is in milliseconds since 1970.
    pub(crate) fn grant(&mut self, state: &State, ttl: Duration, now: i64) -> LeaseId {
        let last = self.granted.last().map_or(state.last_lease(), |(it, _)| it.0);
        let lease = LeaseId(last + 1);
        self.granted.push((lease, LeaseRecord::new(ttl, now)));
        lease
    }

    /// Starts the time of a lease again.
    pub(crate) fn renew(&mut self, state: &State, lease: LeaseId, now: i64) -> Result<(), LeaseError> {
        let record = state.lease(lease)?;
        self.renewed.push((lease, LeaseRecord::new(record.ttl, now)));
        Ok(())
    }

    /// Ends a lease. The plan must hold no changes of other requests: they might move keys of the lease.
    pub(crate) fn end(&mut self, state: &mut State, lease: LeaseId) -> Result<(), LeaseError> {
        let keys = state.begin_end(lease)?;
        self.change(state, keys.into_iter().map(Change::Delete).collect());
        self.ended.push(lease);
        Ok(())
    }

    pub(crate) fn compact(&mut self, state: &State, before: Revision) -> Result<(), CommitError> {
        let current = self.revision(state);
        if before > current {
            return Err(CommitError::Rejected(format!(
                "revision {before} is newer than the current one, {current}"
            )));
        }
        if before > self.compact.unwrap_or(state.compacted()) {
            self.compact = Some(before);
        }
        Ok(())
    }

    fn check_requirements(
        &self,
        state: &State,
        values: &dyn Values,
        require: &[Require],
    ) -> Result<(), CommitError> {
        let unmet =
            require.iter().position(|it| !it.holds(self.head(state, it.key()).map(|(_, modified)| modified)));
        let Some(failed) = unmet else { return Ok(()) };
        let newest = |key: &Key| match self.pending.get(key) {
            Some(entry) => Ok(entry.clone()),
            None => values.newest(state, key),
        };
        let current: Result<Vec<_>, String> = require.iter().map(|it| newest(it.key())).collect();
        // Nothing happened, but without the values there is no honest refusal.
        let current = current.map_err(CommitError::ReadOnly)?;
        Err(CommitError::Unmet { failed, current, revision: self.revision(state) })
    }

    /// When a key was created and last written, if it exists.
    fn head(&self, state: &State, key: &Key) -> Option<(Revision, Revision)> {
        match self.pending.get(key) {
            Some(entry) => entry.as_ref().map(|it| (it.created, it.modified)),
            None => state.newest(key).map(|it| (it.created, it.location.revision)),
        }
    }

    fn change(&mut self, state: &State, changes: Vec<Change>) -> Revision {
        let current = self.revision(state);
        let revision = current.next();
        let mut events = Vec::with_capacity(changes.len());
        for change in changes {
            let head = self.head(state, change.key());
            match change {
                Change::Put(key, value, lease) => {
                    let created = head.map_or(revision, |(created, _)| created);
                    let entry = Entry { key: key.clone(), value, created, modified: revision, lease };
                    self.pending.insert(key, Some(entry.clone()));
                    events.push(Event::Put(entry));
                }
                Change::Delete(key) if head.is_some() => {
                    self.pending.insert(key.clone(), None);
                    events.push(Event::Delete(key, revision));
                }
                // Removing what is not there is no change.
                Change::Delete(_) => {}
            }
        }
        if events.is_empty() {
            return current;
        }
        self.changes.push(Changes { revision, events });
        revision
    }
}

/// How much memory and disk a transaction asks for.
pub(crate) fn size(txn: &Txn) -> usize {
    let size_of = |it: &Change| match it {
        Change::Put(key, value, _) => key.as_str().len() + value.len(),
        Change::Delete(key) => key.as_str().len(),
    };
    txn.changes.iter().map(size_of).sum()
}

fn check_size(txn: &Txn) -> Result<(), CommitError> {
    let mut keys = txn.changes.iter().map(Change::key).chain(txn.require.iter().map(Require::key));
    if keys.any(|it| it.as_str().len() > MAX_KEY_BYTES) {
        return Err(CommitError::Rejected(format!("a key is longer than {MAX_KEY_BYTES} bytes")));
    }
    if size(txn) > MAX_TXN_BYTES {
        return Err(CommitError::Rejected(format!("the transaction is larger than {MAX_TXN_BYTES} bytes")));
    }
    Ok(())
}
