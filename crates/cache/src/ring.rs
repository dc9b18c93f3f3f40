//! The changes that a collection remembers for its watchers: bounded in number and in bytes.
//!
//! Every change has a sequence number, and a watcher is nothing but the number of the change it wants
//! next. Who wants a number that is gone has fallen behind.

use std::{collections::VecDeque, sync::Arc};

use store::Revision;

use crate::{Change, Expired};

#[derive(Debug)]
pub(crate) struct Ring {
    changes: VecDeque<Arc<Change>>,
    /// The sequence number of the first remembered change.
    first: u64,
    /// Every change after this revision is remembered.
    floor: Revision,
    bytes: usize,
    max_events: usize,
    max_bytes: usize,
}

impl Ring {
    pub(crate) fn new(floor: Revision, max_events: usize, max_bytes: usize) -> Self {
        Self { changes: VecDeque::new(), first: 0, floor, bytes: 0, max_events: max_events.max(1), max_bytes }
    }

    /// The newest change is always remembered, however large it is.
    pub(crate) fn push(&mut self, change: Change) {
        self.bytes += change.cost();
        self.changes.push_back(Arc::new(change));
        while self.changes.len() > self.max_events || (self.bytes > self.max_bytes && self.changes.len() > 1)
        {
            self.pop();
        }
    }

    fn pop(&mut self) {
        if let Some(change) = self.changes.pop_front() {
            self.bytes -= change.cost();
            self.first += 1;
            self.floor = change.revision;
        }
    }

    /// Forgets everything, so that every watcher there is has fallen behind.
    pub(crate) fn reset(&mut self, floor: Revision) {
        self.first = self.end() + 1;
        self.changes = VecDeque::new();
        self.bytes = 0;
        self.floor = floor;
    }

    /// The sequence number that the next change will get.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.changes.len() as u64
    }

    /// The sequence number of the first change after `revision`.
    pub(crate) fn after(&self, revision: Revision) -> Result<u64, Expired> {
        if revision < self.floor {
            return Err(self.expired());
        }
        let position = self.changes.partition_point(|it| it.revision <= revision);
        Ok(self.first + position as u64)
    }

    /// The change with this number; nothing if it has not happened yet.
    pub(crate) fn get(&self, number: u64) -> Result<Option<&Arc<Change>>, Expired> {
        let position = number.checked_sub(self.first).ok_or_else(|| self.expired())?;
        Ok(usize::try_from(position).ok().and_then(|it| self.changes.get(it)))
    }

    pub(crate) fn expired(&self) -> Expired {
        Expired { oldest: self.floor }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use store::{Entry, Key};

    use super::*;
    use crate::{
        CollectionSpec,
        ingest::{Interner, ingest},
    };

    fn change(revision: u64) -> Change {
        let entry = Entry {
            key: Key::new("/registry/things/a"),
            value: Bytes::from(format!("{{\"data\":\"{}\"}}", "x".repeat(100))),
            created: Revision::new(1),
            modified: Revision::new(revision),
            lease: None,
        };
        let item =
            ingest(&CollectionSpec::new("/registry/things/", false), &Interner::default(), &entry).unwrap();
        Change::new(entry.modified, None, Some(Arc::new(item))).unwrap()
    }

    fn revisions(ring: &Ring, mut number: u64) -> Vec<u64> {
        let mut revisions = Vec::new();
        while let Some(change) = ring.get(number).unwrap() {
            revisions.push(change.revision.get());
            number += 1;
        }
        revisions
    }

    #[test]
    fn what_is_remembered_is_bounded_in_number() {
        let mut ring = Ring::new(Revision::new(10), 3, usize::MAX);
        assert_eq!(ring.after(Revision::new(9)), Err(Expired { oldest: Revision::new(10) }));
        let start = ring.after(Revision::new(10)).unwrap();
        for revision in [11, 12, 12, 15] {
            ring.push(change(revision));
        }
        assert_eq!(ring.get(start).unwrap_err(), Expired { oldest: Revision::new(11) });
        assert_eq!(ring.after(Revision::new(10)), Err(Expired { oldest: Revision::new(11) }));
        assert_eq!(revisions(&ring, ring.after(Revision::new(11)).unwrap()), [12, 12, 15]);
        assert_eq!(revisions(&ring, ring.after(Revision::new(12)).unwrap()), [15]);
        assert_eq!(revisions(&ring, ring.after(Revision::new(99)).unwrap()), [] as [u64; 0]);
        ring.push(change(16));
        // Half of revision 12 is forgotten: who has seen 11 would miss it, who has seen 12 does not.
        assert_eq!(ring.after(Revision::new(11)), Err(Expired { oldest: Revision::new(12) }));
        assert_eq!(revisions(&ring, ring.after(Revision::new(12)).unwrap()), [15, 16]);
    }

    #[test]
    fn what_is_remembered_is_bounded_in_bytes() {
        let cost = change(1).cost();
        let mut ring = Ring::new(Revision::ZERO, 1000, cost * 5);
        for revision in 1..100 {
            ring.push(change(revision));
            assert!(ring.bytes <= cost * 5 + 50);
        }
        assert!(ring.changes.len() >= 4);
        let mut tiny = Ring::new(Revision::ZERO, 1000, 1);
        tiny.push(change(1));
        tiny.push(change(2));
        assert_eq!(revisions(&tiny, tiny.after(Revision::new(1)).unwrap()), [2]);
    }

    #[test]
    fn a_reset_leaves_every_watcher_behind() {
        let mut ring = Ring::new(Revision::ZERO, 10, usize::MAX);
        ring.push(change(1));
        let drained = ring.end();
        ring.reset(Revision::new(20));
        assert_eq!(ring.get(drained).unwrap_err(), Expired { oldest: Revision::new(20) });
        let new = ring.after(Revision::new(20)).unwrap();
        ring.push(change(21));
        assert_eq!(revisions(&ring, new), [21]);
    }
}
