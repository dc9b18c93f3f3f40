//! What the store knows without reading the disk: where every version of every key is, the leases and the
//! latest changes. Changed by the writer thread only, after the disk has it. No locks and no clock here.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

use smallvec::SmallVec;
use store::{Event, Key, LeaseError, LeaseId, Range, ReadAt, ReadError, Revision, WatchError};

use crate::{
    recent::{Changes, Recent},
    record::{self, LeaseRecord, Location, Meta, RecordView},
};

/// What the store knows without reading the disk.
pub(crate) struct State {
    revision: Revision,
    compacted: Revision,
    keys: BTreeMap<Key, Versions>,
    recent: Recent,
    leases: BTreeMap<LeaseId, Lease>,
    last_lease: i64,
    /// What all versions take together.
    used: u64,
    /// Readers that walk a past state page by page; while there are any, nothing is swept.
    pub(crate) n_pins: usize,
}

/// Oldest first; most keys have one.
type Versions = SmallVec<[Version; 1]>;

/// One version of one key, without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) location: Location,
    pub(crate) is_removal: bool,
    pub(crate) created: Revision,
    pub(crate) lease: Option<LeaseId>,
    /// How long its record is.
    length: u32,
}

impl Version {
    pub(crate) fn length(&self) -> usize {
        usize::try_from(self.length).unwrap_or(usize::MAX)
    }
}

struct Lease {
    record: LeaseRecord,
    deadline: Duration,
    keys: BTreeSet<Key>,
    /// Its removal is being written; it cannot be renewed any more.
    is_ending: bool,
}

/// Where the entries of a page are.
pub(crate) struct Found {
    pub(crate) revision: Revision,
    pub(crate) locations: Vec<Location>,
    pub(crate) remaining: u64,
}

/// What a watcher does next.
pub(crate) enum Next {
    /// It has seen everything.
    Wait,
    /// These are the changes of consecutive revisions; the last one reaches `up_to`.
    Recent { changes: Vec<Arc<Changes>>, up_to: Revision },
    /// The changes are on disk.
    Disk,
}

/// How many revisions a watcher takes at a time.
const REVISIONS_AT_ONCE: usize = 256;

impl State {
    pub(crate) fn new(meta: &Meta, recent_bytes: usize) -> Self {
        Self {
            revision: meta.revision,
            compacted: meta.compacted,
            keys: BTreeMap::new(),
            recent: Recent::starting_at(meta.revision, recent_bytes),
            leases: BTreeMap::new(),
            last_lease: meta.last_lease,
            used: 0,
            n_pins: 0,
        }
    }

    /// Takes in a record while the store is opened, in the order of the log.
    pub(crate) fn load(&mut self, record: &RecordView<'_>) {
        let length = record::length(record.key, record.value.map_or(0, <[u8]>::len));
        self.used = self.used.saturating_add(record::cost(length));
        let version = Version {
            location: record.location,
            is_removal: record.value.is_none(),
            created: record.created,
            lease: record.lease,
            length: u32::try_from(length).unwrap_or(u32::MAX),
        };
        match self.keys.get_mut(record.key) {
            Some(versions) => versions.push(version),
            None => {
                self.keys.insert(Key::from(record.key), SmallVec::from_buf([version]));
            }
        }
    }

    /// Takes in a lease while the store is opened, with so much of its time left.
    pub(crate) fn load_lease(
        &mut self,
        lease: LeaseId,
        record: LeaseRecord,
        now: Duration,
        remaining: Duration,
    ) {
        self.grant(lease, record, now);
        if let Some(lease) = self.leases.get_mut(&lease) {
            lease.deadline = now.saturating_add(remaining);
        }
    }

    /// Connects keys with their leases once everything is loaded. Returns false if a lease is missing.
    pub(crate) fn finish_loading(&mut self) -> bool {
        for (key, versions) in &self.keys {
            let newest = versions.last().filter(|it| !it.is_removal);
            let Some(lease) = newest.and_then(|it| it.lease) else { continue };
            let Some(lease) = self.leases.get_mut(&lease) else { return false };
            lease.keys.insert(key.clone());
        }
        true
    }

    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    pub(crate) fn compacted(&self) -> Revision {
        self.compacted
    }

    /// About how much of the file all versions take.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    pub(crate) fn last_lease(&self) -> i64 {
        self.last_lease
    }

    pub(crate) fn leases(&self) -> impl Iterator<Item = (LeaseId, LeaseRecord)> {
        self.leases.iter().map(|(id, lease)| (*id, lease.record))
    }

    /// A lease that has not ended.
    pub(crate) fn lease(&self, lease: LeaseId) -> Result<LeaseRecord, LeaseError> {
        let found = self.leases.get(&lease).filter(|it| !it.is_ending);
        found.map(|it| it.record).ok_or(LeaseError::NotFound(lease))
    }

    /// The newest version of a key that exists.
    pub(crate) fn newest(&self, key: &Key) -> Option<Version> {
        self.keys.get(key).and_then(|it| it.last()).copied().filter(|it| !it.is_removal)
    }

    pub(crate) fn resolve(&self, at: ReadAt) -> Result<Revision, ReadError> {
        match at {
            ReadAt::Latest => Ok(self.revision),
            ReadAt::Revision(it) if it > self.revision => Err(ReadError::Future { current: self.revision }),
            ReadAt::Revision(it) if it < self.compacted => {
                Err(ReadError::Compacted { oldest: self.compacted })
            }
            ReadAt::Revision(it) => Ok(it),
        }
    }

    /// The first `limit` entries of a range as of a revision, and how many follow.
    pub(crate) fn find(&self, range: &Range, revision: Revision, limit: usize) -> Found {
        let mut found = Found { revision, locations: Vec::new(), remaining: 0 };
        for (_, version) in self.existing(range, revision) {
            if found.locations.len() < limit {
                found.locations.push(version.location);
            } else {
                found.remaining += 1;
            }
        }
        found
    }

    /// Whether a put is what its key holds as of a revision.
    pub(crate) fn is_in_force(&self, key: &Key, put: Location, revision: Revision) -> bool {
        self.keys.get(key).is_some_and(|versions| {
            let newer = versions.partition_point(|it| it.location.revision <= revision);
            versions[..newer].last().is_some_and(|it| it.location == put)
        })
    }

    /// The entries of a range as of a revision.
    pub(crate) fn existing(
        &self,
        range: &Range,
        revision: Revision,
    ) -> impl Iterator<Item = (&Key, Version)> {
        let start = Bound::Included(range.start.as_str());
        // An inverted range is empty; the map would panic.
        let end = Bound::Excluded(range.end.as_str().max(range.start.as_str()));
        self.keys.range::<str, _>((start, end)).filter_map(move |(key, versions)| {
            let newer = versions.partition_point(|it| it.location.revision <= revision);
            versions[..newer].last().filter(|it| !it.is_removal).map(|it| (key, *it))
        })
    }

    pub(crate) fn check_watch(&self, after: Revision) -> Result<(), WatchError> {
        if after < self.compacted {
            return Err(WatchError::Compacted { oldest: self.compacted });
        }
        if after > self.revision {
            return Err(WatchError::WentBack { seen: after, now: self.revision });
        }
        Ok(())
    }

    pub(crate) fn next_for_watch(&self, after: Revision) -> Result<Next, WatchError> {
        self.check_watch(after)?;
        if after == self.revision {
            return Ok(Next::Wait);
        }
        let Some(changes) = self.recent.after(after, REVISIONS_AT_ONCE) else { return Ok(Next::Disk) };
        let up_to = if changes.len() < REVISIONS_AT_ONCE {
            self.revision
        } else {
            changes.last().map_or(self.revision, |it| it.revision)
        };
        Ok(Next::Recent { changes, up_to })
    }

    /// Takes in changes that are on disk now.
    pub(crate) fn apply(&mut self, changes: Changes) {
        for (position, event) in (0..).zip(&changes.events) {
            self.apply_event(event, position);
        }
        self.revision = changes.revision;
        self.recent.push(changes);
    }

    fn apply_event(&mut self, event: &Event, position: u32) {
        let key = event.key();
        let lease_before = self.newest(key).and_then(|it| it.lease);
        if let Some(lease) = lease_before.and_then(|it| self.leases.get_mut(&it)) {
            lease.keys.remove(key);
        }
        let location = Location { revision: event.revision(), position };
        let n_value = if let Event::Put(it) = event { it.value.len() } else { 0 };
        let n_bytes = record::length(key.as_str(), n_value);
        self.used = self.used.saturating_add(record::cost(n_bytes));
        let length = u32::try_from(n_bytes).unwrap_or(u32::MAX);
        let version = match event {
            Event::Put(it) => {
                Version { location, is_removal: false, created: it.created, lease: it.lease, length }
            }
            Event::Delete(_, revision) => {
                Version { location, is_removal: true, created: *revision, lease: None, length }
            }
        };
        if let Some(lease) = version.lease.and_then(|it| self.leases.get_mut(&it)) {
            lease.keys.insert(key.clone());
        }
        self.keys.entry(key.clone()).or_default().push(version);
    }

    /// Takes in a lease that is on disk now: a new one, or one whose time begins again.
    pub(crate) fn grant(&mut self, lease: LeaseId, record: LeaseRecord, now: Duration) {
        self.last_lease = self.last_lease.max(lease.0);
        let deadline = now.saturating_add(record.ttl);
        match self.leases.get_mut(&lease) {
            Some(known) => (known.record, known.deadline) = (record, deadline),
            None => {
                let keys = BTreeSet::new();
                self.leases.insert(lease, Lease { record, deadline, keys, is_ending: false });
            }
        }
    }

    pub(crate) fn renew(&mut self, lease: LeaseId, now: Duration) -> Result<(), LeaseError> {
        let found = self.leases.get_mut(&lease).filter(|it| !it.is_ending);
        let found = found.ok_or(LeaseError::NotFound(lease))?;
        found.deadline = now.saturating_add(found.record.ttl);
        Ok(())
    }

    pub(crate) fn has_lease(&self, lease: LeaseId) -> bool {
        self.leases.get(&lease).is_some_and(|it| !it.is_ending)
    }

    /// Marks a lease as ending and says which keys go with it.
    pub(crate) fn begin_end(&mut self, lease: LeaseId) -> Result<Vec<Key>, LeaseError> {
        let found = self.leases.get_mut(&lease).filter(|it| !it.is_ending);
        let found = found.ok_or(LeaseError::NotFound(lease))?;
        found.is_ending = true;
        Ok(found.keys.iter().cloned().collect())
    }

    /// Its removal was not written after all.
    pub(crate) fn cancel_end(&mut self, lease: LeaseId) {
        if let Some(lease) = self.leases.get_mut(&lease) {
            lease.is_ending = false;
        }
    }

    pub(crate) fn end(&mut self, lease: LeaseId) {
        self.leases.remove(&lease);
    }

    /// Leases whose time is over.
    pub(crate) fn due(&self, now: Duration) -> Vec<LeaseId> {
        let due = self.leases.iter().filter(|(_, it)| it.deadline <= now && !it.is_ending);
        due.map(|(id, _)| *id).collect()
    }

    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.leases.values().filter(|it| !it.is_ending).map(|it| it.deadline).min()
    }

    pub(crate) fn compact(&mut self, before: Revision) {
        self.compacted = self.compacted.max(before);
    }

    /// Looks at up to `n_keys` keys from `from` on and drops what compaction made useless; about
    /// `n_versions` versions at most. Returns what was dropped and the key to go on with, if any.
    pub(crate) fn sweep(
        &mut self,
        from: Option<&Key>,
        n_keys: usize,
        n_versions: usize,
    ) -> (Vec<Location>, Option<Key>) {
        let (compacted, mut freed) = (self.compacted, 0_u64);
        let start = from.map_or(Bound::Unbounded, |it| Bound::Included(it.as_str()));
        let mut dropped = Vec::new();
        let mut empty = Vec::new();
        let mut next = None;
        let keys = self.keys.range_mut::<str, _>((start, Bound::Unbounded));
        for (n_seen, (key, versions)) in keys.enumerate() {
            if n_seen == n_keys || dropped.len() >= n_versions {
                next = Some(key.clone());
                break;
            }
            let n_old = versions.partition_point(|it| it.location.revision <= compacted);
            let n_useless = match versions[..n_old].last() {
                Some(newest) if newest.is_removal => n_old,
                Some(_) => n_old - 1,
                None => 0,
            };
            if n_useless > 0 {
                for version in versions.drain(..n_useless) {
                    freed = freed.saturating_add(record::cost(version.length()));
                    dropped.push(version.location);
                }
                versions.shrink_to_fit();
            }
            if versions.is_empty() {
                empty.push(key.clone());
            }
        }
        for key in &empty {
            self.keys.remove(key);
        }
        self.used = self.used.saturating_sub(freed);
        (dropped, next)
    }
}
