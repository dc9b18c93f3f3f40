//! Between etcd's messages and the contract's types. Numbers that etcd never sends become harmless ones.

use bytes::Bytes;
use store::{Entry, Event, LeaseId, Revision};

use crate::{layout::Layout, proto};

/// A revision that etcd sent.
pub(crate) fn revision(number: i64) -> Revision {
    Revision::new(u64::try_from(number).unwrap_or_default())
}

/// A revision to send; nothing if etcd cannot have it yet.
pub(crate) fn number(revision: Revision) -> Option<i64> {
    i64::try_from(revision.get()).ok()
}

/// An entry, if its key is one of ours.
pub(crate) fn entry(layout: &Layout, kv: &proto::KeyValue) -> Option<Entry> {
    Some(Entry {
        key: layout.inward(&kv.key)?,
        // A copy: the decoded bytes are a slice that would keep the whole answer in memory.
        value: Bytes::copy_from_slice(&kv.value),
        created: revision(kv.create_revision),
        modified: revision(kv.mod_revision),
        lease: (kv.lease != 0).then_some(LeaseId(kv.lease)),
    })
}

/// An event, if its key is one of ours.
pub(crate) fn event(layout: &Layout, is_delete: bool, kv: &proto::KeyValue) -> Option<Event> {
    if is_delete {
        return Some(Event::Delete(layout.inward(&kv.key)?, revision(kv.mod_revision)));
    }
    entry(layout, kv).map(Event::Put)
}
