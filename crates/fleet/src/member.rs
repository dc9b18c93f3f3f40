//! Who is a member, who may become one, and whether a server still is.
//!
//! # Flow
//! [`join`] decides; the record is written under a store lease, together with [`crate::keys::joined`]
//! ([`crate::write::join`]). [`standing`] is asked whenever the record was looked at.
//!
//! # Guarantees
//! A joiner can read every version in use: the join requires [`crate::keys::moved`] at the revision at which the
//! fences were read. Which of two processes of one identity writes is decided by the fence, not here.
//! Deliberately not here: leases, probes and their time limits.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use meta::{GroupResource, Release, StorageVersion};
use serde::{Deserialize, Serialize};
use store::Revision;

use crate::{
    ClusterId, FenceRecord, Identity, Incarnation,
    cluster::PROTOCOL,
    fence::MAX_VERSIONS,
    offer::Offer,
    record::{Record, Unknown, bounded},
    serial,
    stored::Undecodable,
};

/// The gate under which a server takes part in agreements.
pub const FEATURE: &str = "StorageVersionAPI";

/// Among the features of a record: the server requires the facts that justify a request (`meta::grounds`) when it commits.
/// Servers of 0.1.0 do not say so, and ignore the facts.
pub const REQUIRES_GROUNDS: &str = "RequiresGrounds";

const MAX_RESOURCES: usize = 4096;

/// What a server says of itself to the others.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberRecord {
    /// See [`crate::record`].
    pub format: u32,
    /// The server.
    pub identity: Identity,
    /// The process.
    pub incarnation: Incarnation,
    /// What the binary is.
    #[serde(with = "serial::release")]
    pub release: Release,
    /// What it behaves as.
    #[serde(with = "serial::release")]
    pub emulated: Release,
    /// The oldest release it stays compatible with.
    #[serde(with = "serial::release")]
    pub min_compatible: Release,
    /// `host:port` under which other servers reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_address: Option<String>,
    /// The protocol it speaks.
    pub protocol: u32,
    /// The cluster that it joined; `None` of servers of 0.1.0, which know no ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterId>,
    /// Gates that matter to others. One that is not named is off.
    #[serde(default)]
    pub features: BTreeMap<String, bool>,
    /// The built-in resources it persists; each is named by its fence record. Custom resources are persisted by all.
    #[serde(with = "serial::by_resource")]
    pub persisted: BTreeMap<GroupResource, Persisted>,
    /// What it offers to clients by itself. Shared, because records are copied and this is most of one.
    #[serde(default)]
    pub offer: Arc<Offer>,
    /// Since when.
    #[serde(with = "serial::time")]
    pub since: Timestamp,
    /// Of newer releases.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// What a member can do with a resource it persists.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Persisted {
    /// What it would like to write.
    #[serde(with = "serial::version")]
    pub preferred: StorageVersion,
    /// What it can read.
    #[serde(with = "serial::versions")]
    pub decodable: Vec<StorageVersion>,
}

/// The live members, as read in one list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Members {
    by_identity: BTreeMap<Identity, MemberRecord>,
}

/// What is known of an identity's record when a server wants to join.
#[derive(Clone, Debug)]
pub struct Applicant<'a> {
    /// What the server would record.
    pub me: &'a MemberRecord,
    /// The record under its identity, and its revision.
    pub taken: Option<(&'a MemberRecord, Revision)>,
    /// Why that record's process cannot, or might, still live.
    pub other: Other,
    /// The live members.
    pub members: &'a Members,
    /// The fence records of built-in resources.
    pub fences: &'a [FenceRecord],
    /// What is stored and cannot be read here ([`crate::stored::undecodable`]), counted after `fences` were read.
    pub unreadable: &'a [Undecodable],
    /// Resources that this server has built in and that users have defined, as the store says.
    pub defined: &'a [GroupResource],
}

/// What is known of the process behind a record with our identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Other {
    /// The store admits one process at a time, and that is us.
    Excluded,
    /// Its peer address has not been asked yet.
    NotAsked,
    /// Nobody answered there: the connection was refused, or nothing came in time.
    Silent,
    /// Something answered there that could not be proven to be anybody: it may well be the other process.
    Unproven(String),
    /// Somebody answered, and was proven to be a server of this cluster.
    Answered(Identity, Incarnation),
}

/// How to join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Join {
    /// Write the record where there is none.
    Create,
    /// Replace the record at this revision: that of a process that is gone, or one that this process wrote without
    /// being told so. That one hangs on a lease which nobody renews.
    TakeOver(Revision),
    /// Ask this address who is there, then decide again.
    Probe(String),
    /// Remove the departed from these fences first ([`crate::collect`]): what they were to write stands in the
    /// way, and as long as their entries stand they may still write it.
    Prune(Vec<GroupResource>),
}

/// Why a server does not join.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The same identity is alive elsewhere.
    #[error(
        "the identity {identity} is in use by another process (incarnation {incarnation}{}): \
         give this server another name with --hostname-override, or stop the other one",
        .address.as_ref().map(|it| format!(" at {it}")).unwrap_or_default()
    )]
    Taken {
        /// The identity.
        identity: Identity,
        /// The process that holds it.
        incarnation: Incarnation,
        /// Where it answered.
        address: Option<String>,
    },
    /// The same identity is recorded for another process, and whether that is gone cannot be told.
    #[error(
        "the identity {identity} is recorded for another process (incarnation {incarnation} at {address}), and it is not \
         known to be gone: {why}; give this server another name with --hostname-override, stop the other one, or wait \
         until its record expires"
    )]
    Unproven {
        /// The identity.
        identity: Identity,
        /// The process that is recorded.
        incarnation: Incarnation,
        /// Where it should answer.
        address: String,
        /// What answered there.
        why: String,
    },
    /// A member speaks a protocol that this release does not know.
    #[error("{identity} speaks protocol {protocol}, this release knows protocols up to {PROTOCOL}")]
    NewerProtocol {
        /// The member.
        identity: Identity,
        /// Its protocol.
        protocol: u32,
    },
    /// Stored objects cannot be read here.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Unreadable(Vec<Undecodable>),
    /// Live members write what cannot be read here.
    #[error(
        "{resource} is written as {version}, which release {release} cannot read: \
         upgrade one minor release at a time, or back"
    )]
    InUse {
        /// The resource.
        resource: GroupResource,
        /// The version in use.
        version: StorageVersion,
        /// This server's release.
        release: Release,
    },
    /// Users have defined what this server has built in.
    #[error(
        "the CustomResourceDefinition {resource} stands in the way: release {release} has {resource} built in, and its \
         objects are stored elsewhere and in another form. With a server that emulates an older release \
         (--emulated-version), save the objects, delete the definition, and create them again after the upgrade"
    )]
    Defined {
        /// The resource, and the name of the definition.
        resource: GroupResource,
        /// This server's release.
        release: Release,
    },
}

/// Whether a server is still the member it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is.
    Member,
    /// Its record went with its lease: stop writing, join anew, report anew.
    Lost,
    /// Another process has its identity: stop with a clear message, never repair.
    TakenOver(Incarnation),
}

/// Decides how a server becomes a member, or why not.
pub fn join(applicant: &Applicant<'_>) -> Result<Join, JoinError> {
    let Applicant { me, members, fences, unreadable, defined, .. } = applicant;
    if let Some(newer) = members.iter().find(|it| it.protocol > PROTOCOL) {
        let (identity, protocol) = (newer.identity.clone(), newer.protocol);
        return Err(JoinError::NewerProtocol { identity, protocol });
    }
    let how = claim(applicant)?;
    if let Join::Probe(_) = how {
        return Ok(how);
    }
    if let Some(resource) = defined.first() {
        return Err(JoinError::Defined { resource: resource.clone(), release: me.emulated });
    }
    if !unreadable.is_empty() {
        return Err(JoinError::Unreadable(unreadable.to_vec()));
    }
    let mut stale = Vec::new();
    for fence in *fences {
        let Some(version) = first_unreadable(me, fence) else { continue };
        if is_in_use(me, fence, version, members) {
            let (resource, version, release) = (fence.resource.clone(), version.clone(), me.emulated);
            return Err(JoinError::InUse { resource, version, release });
        }
        stale.push(fence.resource.clone());
    }
    Ok(if stale.is_empty() { how } else { Join::Prune(stale) })
}

/// Compares the record under a server's identity with the server.
pub fn standing(me: &Identity, incarnation: &Incarnation, current: Option<&MemberRecord>) -> Standing {
    match current {
        None => Standing::Lost,
        Some(it) if it.identity == *me && it.incarnation == *incarnation => Standing::Member,
        Some(it) => Standing::TakenOver(it.incarnation.clone()),
    }
}

/// Whether the identity is free, or can be made so. Only silence, or an answer of this very process, shows that the
/// recorded one is gone from its address; whatever else answers may be it, and would end by a take-over.
fn claim(applicant: &Applicant<'_>) -> Result<Join, JoinError> {
    let Applicant { me, taken, other, .. } = applicant;
    let Some((record, revision)) = taken else { return Ok(Join::Create) };
    if record.incarnation == me.incarnation {
        return Ok(Join::TakeOver(*revision));
    }
    match (other, &record.peer_address) {
        (Other::NotAsked, Some(address)) => Ok(Join::Probe(address.clone())),
        (Other::Answered(identity, incarnation), address)
            if *identity == me.identity && *incarnation != me.incarnation =>
        {
            let (identity, incarnation) = (identity.clone(), incarnation.clone());
            Err(JoinError::Taken { identity, incarnation, address: address.clone() })
        }
        (Other::Answered(identity, _), Some(address)) if *identity != me.identity => {
            Err(unproven(record, address, format!("{identity} answers there")))
        }
        (Other::Unproven(why), Some(address)) => Err(unproven(record, address, why.clone())),
        // This very process answers where the other one was, or there is nobody to ask.
        (Other::Excluded | Other::NotAsked | Other::Silent | Other::Unproven(_) | Other::Answered(..), _) => {
            Ok(Join::TakeOver(*revision))
        }
    }
}

fn unproven(record: &MemberRecord, address: &str, why: String) -> JoinError {
    let (identity, incarnation) = (record.identity.clone(), record.incarnation.clone());
    JoinError::Unproven { identity, incarnation, address: address.to_owned(), why }
}

/// A version that may be written, which the server persists and cannot read.
fn first_unreadable<'a>(me: &MemberRecord, fence: &'a FenceRecord) -> Option<&'a StorageVersion> {
    let persisted = me.persisted.get(&fence.resource)?;
    fence.in_use().find(|it| !persisted.decodable.contains(it))
}

/// Whether a live member other than this server writes the version, or will once it has reported.
fn is_in_use(me: &MemberRecord, fence: &FenceRecord, version: &StorageVersion, members: &Members) -> bool {
    let writes = |it: &crate::Entry| it.identity != me.identity && it.encoding == *version;
    let is_selected = fence.selection.as_ref() == Some(version);
    fence.entries.iter().any(|it| writes(it) && members.is_live(it))
        || is_selected && members.counted(&fence.resource).any(|it| it.identity != me.identity)
}

impl MemberRecord {
    /// Whether the server requires the facts that justify a request when it commits.
    pub fn requires_grounds(&self) -> bool {
        self.features.get(REQUIRES_GROUNDS).copied().unwrap_or(false)
    }

    /// Whether it takes part in agreements.
    pub fn takes_part(&self) -> bool {
        self.features.get(FEATURE).copied().unwrap_or(false)
    }

    /// Whether it can read the version; true of resources it does not persist, which it never reads.
    pub fn decodes(&self, resource: &GroupResource, version: &StorageVersion) -> bool {
        self.persisted.get(resource).is_none_or(|it| it.decodable.contains(version))
    }
}

impl Members {
    /// These members.
    pub fn of(records: impl IntoIterator<Item = MemberRecord>) -> Self {
        Self { by_identity: records.into_iter().map(|it| (it.identity.clone(), it)).collect() }
    }

    /// All, by identity.
    pub fn iter(&self) -> impl Iterator<Item = &MemberRecord> {
        self.by_identity.values()
    }

    /// One of them.
    pub fn get(&self, identity: &Identity) -> Option<&MemberRecord> {
        self.by_identity.get(identity)
    }

    /// Whether the process that wrote an entry is a member.
    pub fn is_live(&self, entry: &crate::Entry) -> bool {
        self.get(&entry.identity).is_some_and(|it| it.incarnation == entry.incarnation)
    }

    /// Those that persist a built-in resource.
    pub fn counted(&self, resource: &GroupResource) -> impl Iterator<Item = &MemberRecord> {
        self.iter().filter(|it| it.persisted.contains_key(resource))
    }
}

impl Record for MemberRecord {
    fn check(&self) -> Result<(), String> {
        bounded("resources", self.persisted.len(), MAX_RESOURCES)?;
        self.offer.check()?;
        bounded("features", self.features.len(), MAX_RESOURCES)?;
        for (resource, Persisted { preferred, decodable }) in &self.persisted {
            bounded("decodable versions", decodable.len(), MAX_VERSIONS)?;
            if !decodable.contains(preferred) {
                return Err(format!("{resource}: {preferred} is preferred but cannot be decoded"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
