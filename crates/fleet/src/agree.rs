//! How the fence record of a built-in resource changes: votes, reports, departures, holds and the passing of time.
//!
//! One function, [`plan`], makes the next record from the present one; every write of a fence is its result.
//! # Flow
//! Entries of processes that are no longer members go; the caller's entry comes; the selection moves if it may;
//! what is common follows from the entries.
//! # Guarantees
//! - The common version is what every entry names. It appears only when every counted member has an entry, and
//!   ends only when an entry says otherwise.
//! - With votes, whoever moves the selection rewrites it in all entries: there is no moment without a common
//!   version, and nobody who may still write the old one.
//! - No entry names a version that a counted member cannot read.
//! # Assumptions
//! The members were read in one list, at a revision not older than the record's; the write requires that nobody
//! joined since ([`crate::write`]). Times come from several clocks: they decide when a departure has settled and
//! nothing else.
//!
//! Deliberately not here: custom resources, whose selection is made by their definition ([`crate::custom`]).

mod common;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use meta::{GroupResource, GroupVersion, StorageVersion};
use store::Revision;

use crate::{
    Entry, FenceRecord, Identity, Incarnation, Members,
    cluster::Agreement,
    fence::{Departed, MAX_ENTRIES},
    record::Unknown,
};

pub(crate) use common::{list, settle_common};

/// What is known when a fence record is to change.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The resource that names the record.
    pub resource: &'a GroupResource,
    /// What is recorded.
    pub fence: Option<&'a FenceRecord>,
    /// The live members.
    pub members: &'a Members,
    /// How the cluster agrees.
    pub agreement: Agreement,
    /// How long a departed voter may take to come back.
    pub settle: Duration,
    /// The time.
    pub now: Timestamp,
    /// A revision not newer than the one the record was read at.
    pub revision: Revision,
}

/// What a server says of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The server.
    pub identity: Identity,
    /// The process.
    pub incarnation: Incarnation,
    /// What it would like to write.
    pub preferred: StorageVersion,
    /// What it can read.
    pub decodable: Vec<StorageVersion>,
    /// What it serves.
    pub served: Vec<StorageVersion>,
    /// Whether it takes part: false with the feature gate off.
    pub votes: bool,
}

/// The next record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The record as it should be.
    pub record: FenceRecord,
    /// Whether that differs from what is there. If not, nothing is written.
    pub changed: bool,
    /// Whether a version comes into use that was not before; then [`crate::keys::moved`] is written too.
    pub moves: bool,
    /// Why the selection is not what somebody prefers.
    pub waiting: Option<Waiting>,
}

/// What keeps a selection from moving.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// These members vote for another version or not at all.
    Votes(Vec<Identity>),
    /// These voters left a moment ago; look again at this time.
    Settle(Vec<Identity>, Timestamp),
    /// An operator holds it.
    Hold {
        /// Who.
        by: String,
    },
}

/// Why a server's entry cannot be recorded, so that its gate stays closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Blocked {
    /// The others write something that this server cannot read: it must leave.
    #[error("{resource} is written as {version}, which this server cannot read")]
    CannotRead {
        /// The resource.
        resource: GroupResource,
        /// The version.
        version: StorageVersion,
    },
    /// Members cannot read what this server would write.
    #[error("{resource} would be written as {version}, which {} cannot read", list(.by))]
    OthersCannotRead {
        /// The resource.
        resource: GroupResource,
        /// The version.
        version: StorageVersion,
        /// Those members.
        by: Vec<Identity>,
    },
    /// There is no version that all members can read.
    #[error("there is no version of {resource} that all members can read")]
    NothingCommon {
        /// The resource.
        resource: GroupResource,
    },
    /// More servers than a record holds.
    #[error("{resource} has been reported by {MAX_ENTRIES} servers already")]
    Full {
        /// The resource.
        resource: GroupResource,
    },
    /// The definition of a custom resource has moved on: catch up first.
    #[error("{resource} has been reported with a newer definition")]
    Behind {
        /// The resource.
        resource: GroupResource,
        /// The revision of the newer definition.
        definition: Revision,
    },
    /// A CustomResourceDefinition has the name of a resource that this server has built in.
    #[error(
        "{resource} is built in, and a CustomResourceDefinition of that name is in use: delete the definition with a \
         server that does not have {resource} built in"
    )]
    Defined {
        /// The resource.
        resource: GroupResource,
    },
    /// The reverse: a definition has the name of a resource that other servers have built in.
    #[error(
        "{resource} is built into other servers: a CustomResourceDefinition of that name cannot be used beside them"
    )]
    BuiltIn {
        /// The resource.
        resource: GroupResource,
    },
}

/// The next record of a resource, with this server's report, or without one when entries are only to be pruned
/// or time has passed.
pub fn plan(facts: &Facts<'_>, report: Option<&Report>) -> Result<Plan, Blocked> {
    let Facts { resource, fence, members, agreement, now, revision, .. } = *facts;
    let mut next = fence.cloned().unwrap_or_else(|| FenceRecord::new(resource, revision, now));
    if next.definition.is_some() {
        if next.in_use().next().is_some() {
            return Err(Blocked::Defined { resource: resource.clone() });
        }
        // The definition is gone, and nobody may write by it any more.
        (next.definition, next.definition_uid) = (None, None);
    }
    let is_fresh = report.is_some_and(|it| !has_voted(&next, it));
    let departures = prune(&mut next, members, now, report);
    if let Some(report) = report {
        let encoding = encoding(facts, &next, report)?;
        put_entry(&mut next, report, encoding)?;
    }
    let waiting = match agreement {
        Agreement::Vote => select(facts, &mut next, is_fresh, &departures),
        Agreement::Report => {
            next.selection = None;
            None
        }
    };
    settle_common(&mut next, members, members.counted(resource), now);
    Ok(finish(facts, next, waiting))
}

/// A plan out of the next record. What has settled is only forgotten when there is something else to write.
pub(crate) fn finish(facts: &Facts<'_>, mut next: FenceRecord, waiting: Option<Waiting>) -> Plan {
    let changed = facts.fence != Some(&next);
    if changed {
        let back: Vec<Identity> = next.entries.iter().map(|it| it.identity.clone()).collect();
        next.departed.retain(|it| !back.contains(&it.identity) && until(facts, it).is_some());
        let excess = next.departed.len().saturating_sub(MAX_ENTRIES);
        next.departed.drain(..excess);
    }
    let was_used =
        |version: &StorageVersion| facts.fence.is_some_and(|it| it.in_use().any(|it| it == version));
    let moves = next.in_use().any(|it| !was_used(it));
    Plan { record: next, changed, moves, waiting }
}

/// Whether the same server has voted for the same version before, perhaps as another process.
fn has_voted(record: &FenceRecord, report: &Report) -> bool {
    let is_same = |identity: &Identity, preferred: &StorageVersion| {
        *identity == report.identity && *preferred == report.preferred
    };
    record.entries.iter().any(|it| it.votes && is_same(&it.identity, &it.preferred))
        || record.departed.iter().any(|it| is_same(&it.identity, &it.preferred))
}

/// Removes the entries of processes that are no longer members and remembers their votes. Returns those that
/// were not known to have left before; the reporter is not among them, it is back.
pub(crate) fn prune(
    next: &mut FenceRecord,
    members: &Members,
    now: Timestamp,
    report: Option<&Report>,
) -> Vec<Departed> {
    let (live, stale): (Vec<_>, Vec<_>) = next.entries.drain(..).partition(|it| {
        // The reporter's old entry is replaced in place, so that the order stays.
        members.is_live(it) || report.is_some_and(|report| report.identity == it.identity)
    });
    next.entries = live;
    let departures: Vec<Departed> = stale
        .into_iter()
        .filter(|it| it.votes)
        .map(|Entry { identity, preferred, .. }| Departed {
            identity,
            preferred,
            at: now,
            unknown: Unknown::new(),
        })
        .collect();
    next.departed.retain(|old| departures.iter().all(|it| it.identity != old.identity));
    next.departed.extend(departures.iter().cloned());
    departures
}

/// What the reporter may write.
fn encoding(facts: &Facts<'_>, next: &FenceRecord, report: &Report) -> Result<StorageVersion, Blocked> {
    let resource = || facts.resource.clone();
    // Its own old entry may name what it no longer reads; that one is replaced.
    let others = next.entries.iter().filter(|it| it.identity != report.identity).map(|it| &it.encoding);
    if let Some(version) = next.selection.iter().chain(others).find(|it| !report.decodable.contains(it)) {
        return Err(Blocked::CannotRead { resource: resource(), version: version.clone() });
    }
    let readable = |version: &StorageVersion| {
        let mut counted = facts.members.counted(facts.resource);
        counted.all(|it| it.identity == report.identity || it.decodes(facts.resource, version))
    };
    match (facts.agreement, &next.selection) {
        (Agreement::Vote, Some(selection)) if report.votes => Ok(selection.clone()),
        (Agreement::Vote, None) if report.votes => {
            if readable(&report.preferred) {
                return Ok(report.preferred.clone());
            }
            let newest = report.decodable.iter().filter(|it| readable(it)).max_by_key(|it| rank(it));
            newest.cloned().ok_or_else(|| Blocked::NothingCommon { resource: resource() })
        }
        (Agreement::Vote | Agreement::Report, _) => {
            let (version, members) = (&report.preferred, facts.members.counted(facts.resource));
            let cannot = members
                .filter(|it| it.identity != report.identity && !it.decodes(facts.resource, version))
                .map(|it| it.identity.clone());
            let by: Vec<Identity> = cannot.collect();
            if by.is_empty() {
                return Ok(version.clone());
            }
            Err(Blocked::OthersCannotRead { resource: resource(), version: version.clone(), by })
        }
    }
}

/// Replaces the server's entry where it stands, or adds it at the end.
pub(crate) fn put_entry(
    next: &mut FenceRecord,
    report: &Report,
    encoding: StorageVersion,
) -> Result<(), Blocked> {
    let Report { identity, incarnation, preferred, decodable, served, votes } = report.clone();
    let place = next.entries.iter().position(|it| it.identity == identity);
    let unknown = place.map_or_else(Unknown::new, |it| next.entries[it].unknown.clone());
    let entry = Entry { identity, incarnation, encoding, preferred, decodable, served, votes, unknown };
    match place {
        Some(place) => next.entries[place] = entry,
        None if next.entries.len() < MAX_ENTRIES => next.entries.push(entry),
        None => return Err(Blocked::Full { resource: next.resource.clone() }),
    }
    Ok(())
}

/// Makes the first selection or moves it, if it may move, and rewrites it in every voter's entry.
fn select(
    facts: &Facts<'_>,
    next: &mut FenceRecord,
    is_fresh: bool,
    departures: &[Departed],
) -> Option<Waiting> {
    if next.selection.is_none() {
        // The entries of voters name it already: made by the first of them just now, or reported before the
        // cluster turned to votes; then the first that everybody writes, or can read, is as good as any.
        let mut first = next.entries.iter().filter(|it| it.votes).map(|it| &it.encoding);
        let readable =
            |version: &&StorageVersion| next.entries.iter().all(|it| it.decodable.contains(version));
        next.selection = first.find(readable).cloned();
    }
    let selection = next.selection.clone()?;
    let waiting = match unanimous(facts, next) {
        Ok(target) if target == selection => None,
        Ok(target) => match obstacle(facts, next, &target, is_fresh, departures) {
            None => {
                next.selection = Some(target);
                None
            }
            waiting => waiting,
        },
        Err(waiting) => waiting,
    };
    if let Some(selection) = &next.selection {
        for entry in next.entries.iter_mut().filter(|it| it.votes) {
            entry.encoding = selection.clone();
        }
    }
    waiting
}

/// What all counted members vote for; else whose votes are missing for what the first other vote is for.
fn unanimous(facts: &Facts<'_>, next: &FenceRecord) -> Result<StorageVersion, Option<Waiting>> {
    let selection = next.selection.as_ref();
    let votes = next.entries.iter().filter(|it| it.votes).map(|it| &it.preferred);
    let Some(target) = votes.clone().find(|it| Some(*it) != selection) else { return Err(None) };
    let is_for = |entry: &Entry| entry.votes && entry.preferred == *target;
    let counted = facts.members.counted(facts.resource);
    let missing = counted.filter(|it| {
        let entry = next.own_entry(&it.identity, &it.incarnation);
        !it.takes_part() || !entry.is_some_and(is_for)
    });
    let mut against: Vec<Identity> = missing.map(|it| it.identity.clone()).collect();
    let others = next.entries.iter().filter(|it| !is_for(it)).map(|it| it.identity.clone());
    against.extend(others);
    against.sort();
    against.dedup();
    if against.is_empty() { Ok(target.clone()) } else { Err(Some(Waiting::Votes(against))) }
}

/// What stands against a move that all counted members want.
fn obstacle(
    facts: &Facts<'_>,
    next: &FenceRecord,
    target: &StorageVersion,
    is_fresh: bool,
    departures: &[Departed],
) -> Option<Waiting> {
    if let Some(hold) = &next.hold {
        return Some(Waiting::Hold { by: hold.by.clone() });
    }
    // A vote may move the selection at once, over departures that are known; those found with this very write
    // happened unseen, as when all servers were down and the first one is back.
    let absent = if is_fresh { departures } else { &next.departed[..] };
    let is_back = |it: &Departed| next.entry(&it.identity).is_some();
    let open: Vec<(&Departed, Timestamp)> = absent
        .iter()
        .filter(|it| it.preferred != *target && !is_back(it))
        .filter_map(|it| Some((it, until(facts, it)?)))
        .collect();
    let last = open.iter().map(|(_, until)| *until).max()?;
    Some(Waiting::Settle(open.iter().map(|(it, _)| it.identity.clone()).collect(), last))
}

/// Until when a departure counts; `None` if it has settled. A time far in the future is another clock's fault.
fn until(facts: &Facts<'_>, departed: &Departed) -> Option<Timestamp> {
    let settle = SignedDuration::try_from(facts.settle).unwrap_or(SignedDuration::MAX);
    let since = facts.now.duration_since(departed.at);
    if since >= settle || since <= -settle {
        return None;
    }
    departed.at.checked_add(settle).ok()
}

/// Newer is greater; between groups the text decides, so that all servers choose alike.
fn rank(version: &StorageVersion) -> Option<(meta::ApiVersion, &str)> {
    let parsed = GroupVersion::parse(version.as_str())?;
    Some((parsed.version, version.as_str()))
}

#[cfg(test)]
mod tests;
