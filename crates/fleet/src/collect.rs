//! What may be removed: entries of the departed, objects that nobody serves, records of which nothing is stored.
//!
//! Asked by the leader's loop, at every bootstrap, and by a server that a dead one's entries keep from joining.
//! Only proof of absence removes anything: the caller has *read* the members, and the write requires that nobody
//! joined since. A list that could not be read is no list. Deliberately not here: electing the leader.

use store::Revision;

use crate::{
    FenceRecord, MemberRecord,
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

/// Clears the way for a server that cannot read what the departed were to write: their entries go, and with the
/// last of them a selection that the server cannot read. It then counts again what is stored, and asks
/// [`crate::member::join`] again.
pub fn clear_for(facts: &Facts<'_>, record: &FenceRecord, joiner: &MemberRecord) -> Result<Plan, Blocked> {
    let facts = &Facts { fence: Some(record), ..*facts };
    let plan = agree::plan(facts, None)?;
    let is_read = plan.record.selection.as_ref().is_none_or(|it| joiner.decodes(facts.resource, it));
    let is_alone = facts.members.counted(facts.resource).all(|it| it.identity == joiner.identity);
    if is_read || !is_alone {
        return Ok(plan);
    }
    let mut next = plan.record;
    // An older process of the joiner's own identity may still be listed; it is about to be replaced.
    next.entries.clear();
    next.selection = None;
    agree::settle_common(&mut next, facts.members, std::iter::empty(), facts.now);
    Ok(agree::finish(facts, next, None))
}

#[cfg(test)]
mod tests;
