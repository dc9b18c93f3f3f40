//! The transactions that change records. All of them are conditional on what the decision was based on.
//!
//! The caller adds the mirror to a fence's transaction; a fence never changes without it.
//! Deliberately not here: carrying them out, and puts of objects ([`crate::encoding`]).

use bytes::Bytes;
use store::{Key, LeaseId, Require, Revision, Txn};

use crate::{
    FenceRecord, Identity, MemberRecord,
    agree::Plan,
    keys,
    member::Join,
    record::{self, RecordError},
};

/// What a decision about a fence was based on. The keys come in this order in the transaction's requirements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Basis {
    /// When the fence record was last written; `None` if there was none.
    pub fence: Option<Revision>,
    /// When somebody last joined, as of the list of members; `None` if nobody ever has.
    pub joined: Option<Revision>,
    /// The record of the server that reports, so that only a member can; `None` when entries are only pruned.
    pub member: Option<(Identity, Revision)>,
    /// More: the definition of a custom resource.
    pub also: Vec<Require>,
}

/// Writes a planned record.
pub fn fence(plan: &Plan, basis: &Basis) -> Result<Txn, RecordError> {
    let key = keys::fence(&plan.record.resource);
    let mut txn = based_on(&key, basis).put(&key, record::write(&key, &plan.record)?);
    if plan.moves {
        txn = txn.put(&keys::moved(), mark());
    }
    Ok(txn)
}

/// Removes the record of a resource that nobody serves and of which nothing is stored.
pub fn remove_fence(record: &FenceRecord, basis: &Basis) -> Txn {
    let key = keys::fence(&record.resource);
    based_on(&key, basis).delete(&key)
}

/// Where [`join`] requires that the modes of the cluster are as they were read.
pub const JOIN_REQUIRES_MODES: usize = 2;

/// Writes a member's record under its lease. `moved` is the revision of [`keys::moved`] at which the fences were
/// read, `modes` that of [`keys::cluster`]; `None` if it had never been written.
///
/// Returns `None` where there is nothing to write yet: a probe or a prune comes first.
pub fn join(
    member: &MemberRecord,
    how: &Join,
    moved: Option<Revision>,
    modes: Option<Revision>,
    lease: LeaseId,
) -> Result<Option<Txn>, RecordError> {
    let key = keys::member(&member.identity);
    let free = match how {
        Join::Create => Require::Absent(key.clone()),
        Join::TakeOver(revision) => Require::At(key.clone(), *revision),
        Join::Probe(_) | Join::Prune(_) => return Ok(None),
    };
    let txn = Txn::new()
        .require(free)
        .require(unchanged(keys::moved(), moved))
        .require(unchanged(keys::cluster(), modes))
        .put_leased(&key, record::write(&key, member)?, lease)
        .put(&keys::joined(), mark());
    Ok(Some(txn))
}

/// Removes a member's record after its writes have been drained.
pub fn leave(identity: &Identity, revision: Revision) -> Txn {
    let key = keys::member(identity);
    Txn::new().require_at(&key, revision).delete(&key)
}

fn based_on(fence: &Key, basis: &Basis) -> Txn {
    let Basis { fence: modified, joined, member, also } = basis;
    let mut txn =
        Txn::new().require(unchanged(fence.clone(), *modified)).require(unchanged(keys::joined(), *joined));
    if let Some((identity, revision)) = member {
        txn = txn.require_at(&keys::member(identity), *revision);
    }
    also.iter().fold(txn, |txn, it| txn.require(it.clone()))
}

fn unchanged(key: Key, modified: Option<Revision>) -> Require {
    match modified {
        Some(revision) => Require::At(key, revision),
        None => Require::Absent(key),
    }
}

/// What `joined` and `moved` hold: only their revision counts.
fn mark() -> Bytes {
    Bytes::from_static(br#"{"format":1}"#)
}
