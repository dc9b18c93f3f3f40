//! What may be removed: entries of the departed, objects that nobody serves, records of which nothing is stored.
//!
//! Asked by the leader's loop, at every bootstrap, and by a server that a dead one's entries keep from joining.
//! Only proof of absence removes anything: the caller has *read* the members, and the write requires that nobody
//! joined since. A list that could not be read is no list. Deliberately not here: electing the leader.

use std::time::Duration;

use jiff::Timestamp;
use store::Revision;

use crate::{
    FenceRecord, MemberRecord, Members,
    agree::{self, Blocked, Facts, Plan},
    custom::{self, Definition},
};

/// What a fence record belongs to.
#[derive(Clone, Copy, Debug)]
pub enum Owner<'a> {
    /// A built-in resource.
    BuiltIn,
    /// A custom resource with this definition.
    Custom(&'a Definition),
    /// A custom resource whose definition was found to be gone at this revision.
    Gone(Revision),
}

/// What to do with a fence record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collect {
    /// Nothing.
    Keep,
    /// Write it without those that left; when no entry is left, the mirror goes.
    Write(Box<Plan>),
    /// Remove it with its mirror.
    Remove,
}

/// Decides about one record. `keys_remain` says whether anything is stored below the resource's prefix, read
/// after the record: what was in flight then fails its fence.
pub fn collect(
    facts: &Facts<'_>,
    record: &FenceRecord,
    owner: Owner<'_>,
    keys_remain: bool,
) -> Result<Collect, Blocked> {
    let facts = &Facts { fence: Some(record), ..*facts };
    let (plan, is_served) = match owner {
        Owner::BuiltIn => (agree::plan(facts, None)?, facts.members.counted(facts.resource).next().is_some()),
        Owner::Custom(definition) => (custom::plan(facts, None, definition)?, true),
        Owner::Gone(revision) => {
            let next = custom::retire(record, revision.max(record.definition.unwrap_or_default()), facts.now);
            // Retiring again with a later revision would be a write for nothing.
            let next =
                if record.entries.is_empty() && record.selection.is_none() { record.clone() } else { next };
            (agree::finish(facts, next, None), false)
        }
    };
    let is_abandoned = plan.record.entries.is_empty() && !is_served;
    // While entries stand, a put may be in flight: the record goes one step after its last entry.
    if is_abandoned && record.entries.is_empty() && !keys_remain {
        return Ok(Collect::Remove);
    }
    Ok(if plan.changed { Collect::Write(Box::new(plan)) } else { Collect::Keep })
}

/// How long a StorageVersion object that a person made may stand without a record behind it.
pub const ORPHAN_AGE: Duration = Duration::from_secs(60);

/// Whether a StorageVersion object belongs to nothing and may go, on the condition that it is unchanged: there is
/// no record that it mirrors, and nobody is about to write one with it.
pub fn is_orphan(record: Option<&FenceRecord>, created: Timestamp, now: Timestamp) -> bool {
    let age = Duration::try_from(now.duration_since(created)).unwrap_or_default();
    record.is_none_or(|it| it.entries.is_empty()) && age >= ORPHAN_AGE
}

/// Clears the way for a server that cannot read what the departed were to write: their entries go, also that of an
/// older process of its own, which it is about to replace, and with the last of them a selection that it cannot
/// read. It then counts again what is stored, and asks [`crate::member::join`] again.
pub fn clear_for(facts: &Facts<'_>, record: &FenceRecord, joiner: &MemberRecord) -> Plan {
    let facts = &Facts { fence: Some(record), ..*facts };
    let others = Members::of(facts.members.iter().filter(|it| it.identity != joiner.identity).cloned());
    let mut next = record.clone();
    agree::prune(&mut next, &others, facts.now, None);
    let is_alone = others.counted(facts.resource).next().is_none();
    if is_alone && next.selection.as_ref().is_some_and(|it| !joiner.decodes(facts.resource, it)) {
        next.selection = None;
    }
    agree::settle_common(&mut next, &others, others.counted(facts.resource), facts.now);
    agree::finish(facts, next, None)
}

#[cfg(test)]
mod tests;
