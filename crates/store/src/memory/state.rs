//! What the in-memory store holds and the rules by which it changes. No locks, no tasks, no clock:
//! time is a parameter.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    time::Duration,
};

use crate::{
    Batch, Change, CommitError, Entry, Event, Key, LeaseError, LeaseId, Page, Range, ReadAt, ReadError,
    Require, Revision, Txn, WatchError,
};

/// How many events one batch of a watch holds, unless a single revision has more.
const BATCH: usize = 500;

#[derive(Default)]
pub(super) struct State {
    revision: Revision,
    /// History before this revision is gone.
    compacted: Revision,
    /// What each key held since which revision, oldest first; `None` is a removal.
    keys: BTreeMap<Key, Vec<(Revision, Option<Entry>)>>,
    /// The events of every revision after `compacted`.
    log: BTreeMap<Revision, Vec<Event>>,
    leases: BTreeMap<LeaseId, Lease>,
    last_lease: i64,
    has_expiry_task: bool,
}

struct Lease {
    ttl: Duration,
    deadline: Duration,
    keys: BTreeSet<Key>,
}

impl State {
    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    pub(super) fn get(&self, key: &Key) -> Option<Entry> {
        self.keys.get(key).and_then(|it| at(it, self.revision)).cloned()
    }

    pub(super) fn list(&self, range: &Range, read_at: ReadAt, limit: usize) -> Result<Page, ReadError> {
        let revision = match read_at {
            ReadAt::Latest => self.revision,
            ReadAt::Revision(it) if it > self.revision => {
                return Err(ReadError::Future { current: self.revision });
            }
            ReadAt::Revision(it) if it < self.compacted => {
                return Err(ReadError::Compacted { oldest: self.compacted });
            }
            ReadAt::Revision(it) => it,
        };
        let mut page = Page { entries: Vec::new(), remaining: 0, revision };
        if range.start >= range.end {
            return Ok(page);
        }
        let keys = self
            .keys
            .range::<str, _>((Bound::Included(range.start.as_str()), Bound::Excluded(range.end.as_str())));
        for entry in keys.filter_map(|(_, versions)| at(versions, revision)) {
            if page.entries.len() < limit {
                page.entries.push(entry.clone());
            } else {
                page.remaining += 1;
            }
        }
        Ok(page)
    }

    pub(super) fn check_watch(&self, after: Revision) -> Result<(), WatchError> {
        if after < self.compacted {
            return Err(WatchError::Compacted { oldest: self.compacted });
        }
        if after > self.revision {
            return Err(WatchError::WentBack { seen: after, now: self.revision });
        }
        Ok(())
    }

    /// The next batch behind `after`; nothing if the watcher has seen everything.
    pub(super) fn events(&self, range: &Range, after: Revision) -> Result<Option<Batch>, WatchError> {
        self.check_watch(after)?;
        if after == self.revision {
            return Ok(None);
        }
        let mut batch = Batch { revision: self.revision, events: Vec::new() };
        for (revision, events) in self.log.range((Bound::Excluded(after), Bound::Unbounded)) {
            let events = events.iter().filter(|it| range.contains(it.key().as_str()));
            batch.events.extend(events.cloned());
            if batch.events.len() >= BATCH {
                batch.revision = *revision;
                break;
            }
        }
        Ok(Some(batch))
    }

    pub(super) fn commit(&mut self, txn: Txn) -> Result<Revision, CommitError> {
        txn.check()?;
        self.check_requirements(&txn.require)?;
        for change in &txn.changes {
            if let Change::Put(_, _, Some(lease)) = change
                && !self.leases.contains_key(lease)
            {
                return Err(CommitError::NoLease(*lease));
            }
        }
        self.apply(txn.changes);
        Ok(self.revision)
    }

    pub(super) fn compact(&mut self, before: Revision) -> Result<(), CommitError> {
        if before > self.revision {
            let current = self.revision;
            return Err(CommitError::Rejected(format!(
                "revision {before} is newer than the current one, {current}"
            )));
        }
        if before <= self.compacted {
            return Ok(());
        }
        self.compacted = before;
        self.log = self.log.split_off(&before.next());
        self.keys.retain(|_, versions| {
            let newest = versions.partition_point(|(revision, _)| *revision <= before).saturating_sub(1);
            versions.drain(..newest);
            if versions.first().is_some_and(|(revision, entry)| *revision <= before && entry.is_none()) {
                versions.remove(0);
            }
            !versions.is_empty()
        });
        Ok(())
    }

    pub(super) fn grant(&mut self, ttl: Duration, now: Duration) -> LeaseId {
        self.last_lease += 1;
        let lease = LeaseId(self.last_lease);
        self.leases.insert(lease, Lease { ttl, deadline: now.saturating_add(ttl), keys: BTreeSet::new() });
        lease
    }

    pub(super) fn renew(&mut self, lease: LeaseId, now: Duration) -> Result<(), LeaseError> {
        let it = self.leases.get_mut(&lease).ok_or(LeaseError::NotFound(lease))?;
        it.deadline = now.saturating_add(it.ttl);
        Ok(())
    }

    pub(super) fn revoke(&mut self, lease: LeaseId) -> Result<(), LeaseError> {
        let keys = self.leases.get(&lease).ok_or(LeaseError::NotFound(lease))?.keys.clone();
        self.apply(keys.into_iter().map(Change::Delete).collect());
        self.leases.remove(&lease);
        Ok(())
    }

    /// Ends the leases whose deadline is not after `now`; says whether there were any.
    pub(super) fn expire(&mut self, now: Duration) -> bool {
        let due: Vec<LeaseId> =
            self.leases.iter().filter(|(_, lease)| lease.deadline <= now).map(|(id, _)| *id).collect();
        for lease in &due {
            self.revoke(*lease).expect("the lease must be there: it was just found");
        }
        !due.is_empty()
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.leases.values().map(|it| it.deadline).min()
    }

    /// True once: whoever asks first starts the task that expires leases.
    pub(super) fn claim_expiry_task(&mut self) -> bool {
        !std::mem::replace(&mut self.has_expiry_task, true)
    }

    fn check_requirements(&self, require: &[Require]) -> Result<(), CommitError> {
        let current: Vec<Option<Entry>> = require.iter().map(|it| self.get(it.key())).collect();
        let failed = require
            .iter()
            .zip(&current)
            .position(|(it, entry)| !it.holds(entry.as_ref().map(|it| it.modified)));
        match failed {
            Some(failed) => Err(CommitError::Unmet { failed, current, revision: self.revision }),
            None => Ok(()),
        }
    }

    fn apply(&mut self, changes: Vec<Change>) {
        let revision = self.revision.next();
        let events: Vec<Event> = changes.into_iter().filter_map(|it| self.apply_one(it, revision)).collect();
        if !events.is_empty() {
            self.log.insert(revision, events);
            self.revision = revision;
        }
    }

    fn apply_one(&mut self, change: Change, revision: Revision) -> Option<Event> {
        let key = change.key().clone();
        let before = self.get(&key);
        let event = match change {
            Change::Put(key, value, lease) => {
                let created = before.as_ref().map_or(revision, |it| it.created);
                Event::Put(Entry { key, value, created, modified: revision, lease })
            }
            // Removing what is not there is no change.
            Change::Delete(_) if before.is_none() => return None,
            Change::Delete(key) => Event::Delete(key, revision),
        };
        if let Some(lease) = before.and_then(|it| it.lease).and_then(|it| self.leases.get_mut(&it)) {
            lease.keys.remove(&key);
        }
        let entry = match &event {
            Event::Put(entry) => Some(entry.clone()),
            Event::Delete(..) => None,
        };
        let lease = entry.as_ref().and_then(|it| it.lease);
        if let Some(lease) = lease.and_then(|it| self.leases.get_mut(&it)) {
            lease.keys.insert(key.clone());
        }
        self.keys.entry(key).or_default().push((revision, entry));
        Some(event)
    }
}

/// What a key held after `revision`.
fn at(versions: &[(Revision, Option<Entry>)], revision: Revision) -> Option<&Entry> {
    let newer = versions.partition_point(|(it, _)| *it <= revision);
    versions[..newer].last().and_then(|(_, entry)| entry.as_ref())
}
