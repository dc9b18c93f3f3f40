//! The fence of a custom resource: its definition (CRD) makes the selection, so there is nothing to vote on.
//!
//! # Flow
//! A server that sees a definition reports it ([`plan`]) before it serves writes in the definition's storage
//! version. Whoever sees a newer one first moves the selection in *all* entries: a put of a server that has not
//! seen it fails its fence, and [`crate::put`] tells that server how far to catch up. So there is no window in
//! which the mirror shows the new version and somebody writes the old one.
//! # Assumptions
//! The write requires the definition's key at `revision` (`also` in [`crate::write::Basis`]), so that nobody
//! reports a definition that is gone or replaced.
//!
//! Deliberately not here: definitions as objects, and conversion between versions.

use std::sync::Arc;

use jiff::Timestamp;
use meta::StorageVersion;
use store::Revision;

use crate::{
    Entry, FenceRecord, Identity, Members,
    agree::{self, Blocked, Facts, Plan, Report},
};

/// What the definition of a custom resource says of its versions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Definition {
    /// Tells it from an earlier definition of the same resource.
    pub uid: Arc<str>,
    /// When it was last written.
    pub revision: Revision,
    /// The version with `storage: true`.
    pub storage: StorageVersion,
    /// All versions, served or not: objects in any of them can be read.
    pub versions: Vec<StorageVersion>,
    /// The versions with `served: true`.
    pub served: Vec<StorageVersion>,
}

/// A server's report of a custom resource; all else is in the definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reporter {
    /// The server.
    pub identity: Identity,
    /// The process.
    pub incarnation: crate::Incarnation,
    /// Whether it takes part: false with the feature gate off.
    pub votes: bool,
}

/// The next record of a custom resource, with this server's entry, or without when entries are only to be pruned.
/// Every member is counted: all persist custom resources.
pub fn plan(
    facts: &Facts<'_>,
    reporter: Option<&Reporter>,
    definition: &Definition,
) -> Result<Plan, Blocked> {
    let Facts { resource, fence, members, now, revision, .. } = *facts;
    let mut next = fence.cloned().unwrap_or_else(|| FenceRecord::new(resource, revision, now));
    match next.definition {
        Some(newer) if newer > definition.revision => {
            return Err(Blocked::Behind { resource: resource.clone(), definition: newer });
        }
        None if next.in_use().next().is_some() => {
            return Err(Blocked::BuiltIn { resource: resource.clone() });
        }
        Some(_) | None => {}
    }
    let is_recreated = fence.is_some() && next.definition_uid.as_deref() != Some(&*definition.uid);
    if next.definition_uid.as_deref() != Some(&*definition.uid) {
        // The entries and what they had in common are about an earlier definition: nobody has seen this one yet.
        next.entries.clear();
        next.common = None;
        next.definition_uid = Some(definition.uid.clone());
    }
    let report = reporter.map(|it| definition.report(it));
    agree::prune(&mut next, members, now, report.as_ref());
    // Votes that nobody counts need not be remembered.
    next.departed.clear();
    if let Some(report) = &report {
        agree::put_entry(&mut next, report, definition.storage.clone())?;
    }
    next.selection = Some(definition.storage.clone());
    next.definition = Some(definition.revision);
    for entry in &mut next.entries {
        definition.rewrite(entry);
    }
    agree::settle_common(&mut next, members, members.iter(), now);
    if is_recreated && fence.is_some_and(|it| it.epoch == next.epoch) {
        // Whoever noted the epoch of the earlier definition must not find it again, even if the versions are the same.
        next.epoch = next.epoch.next();
        next.condition.since = now;
    }
    Ok(agree::finish(facts, next, None))
}

/// The record after the definition was deleted at `deleted`: nobody may write, and nobody who still knows the
/// definition can report it again.
pub fn retire(record: &FenceRecord, deleted: Revision, now: Timestamp) -> FenceRecord {
    let mut next = record.clone();
    next.entries.clear();
    next.departed.clear();
    next.selection = None;
    next.definition = Some(deleted);
    agree::settle_common(&mut next, &Members::default(), std::iter::empty(), now);
    next
}

/// The members that have not reported the definition yet; when there is none, it is Established. A change of the
/// definition that leaves its versions alone need not be reported again.
pub fn awaited(record: Option<&FenceRecord>, members: &Members, definition: &Definition) -> Vec<Identity> {
    let has_reported = |it: &crate::MemberRecord| {
        record.is_some_and(|record| {
            record.definition_uid.as_deref() == Some(&*definition.uid)
                && record.selection.as_ref() == Some(&definition.storage)
                && record.own_entry(&it.identity, &it.incarnation).is_some()
        })
    };
    members.iter().filter(|it| !has_reported(it)).map(|it| it.identity.clone()).collect()
}

impl Definition {
    fn report(&self, reporter: &Reporter) -> Report {
        let Reporter { identity, incarnation, votes } = reporter.clone();
        let Self { storage, versions, served, .. } = self.clone();
        Report { identity, incarnation, preferred: storage, decodable: versions, served, votes }
    }

    fn rewrite(&self, entry: &mut Entry) {
        entry.encoding = self.storage.clone();
        entry.preferred = self.storage.clone();
        entry.decodable.clone_from(&self.versions);
        entry.served.clone_from(&self.served);
    }
}

#[cfg(test)]
mod tests;
