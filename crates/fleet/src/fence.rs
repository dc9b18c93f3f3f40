//! The fence record: per persisted resource, what each server writes and what all have agreed on.
//!
//! A put requires the record at the revision at which the writer's own entry, identity and incarnation, names the
//! version of the bytes. All entries name the common version while there is one, so nothing else can be committed.
//! Deliberately not here: how the record changes; see [`crate::agree`] and [`crate::custom`].

use std::sync::Arc;

use jiff::Timestamp;
use meta::{GroupResource, StorageVersion};
use serde::{Deserialize, Serialize};
use store::Revision;

use crate::{
    Epoch, Identity, Incarnation,
    record::{FORMAT, Record, Unknown, bounded},
    serial,
};

/// More servers than anybody runs; a record must stay small because every put is compared with it.
pub const MAX_ENTRIES: usize = 128;

/// More versions than any resource has had.
pub const MAX_VERSIONS: usize = 64;

/// What the servers have agreed on for one resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FenceRecord {
    /// See [`crate::record`].
    pub format: u32,
    /// The resource that names the record; others that share its keys share the record.
    #[serde(with = "serial::resource")]
    pub resource: GroupResource,
    /// What everybody writes, where that is agreed on: by votes, or by the definition of a custom resource.
    #[serde(with = "serial::maybe_version", default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<StorageVersion>,
    /// The revision of the definition that `selection` was taken from; custom resources only.
    #[serde(with = "serial::maybe_revision", default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<Revision>,
    /// The uid of that definition, so that entries about an earlier one are not taken for reports of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition_uid: Option<Arc<str>>,
    /// What all entries name, once every counted member had an entry.
    #[serde(with = "serial::maybe_version", default, skip_serializing_if = "Option::is_none")]
    pub common: Option<StorageVersion>,
    /// Grows with every change of `common`, and when a definition takes the place of another.
    pub epoch: Epoch,
    /// Why there is a common version, or none.
    pub condition: Condition,
    /// An operator's vote for the selection as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// One for each server that reported, in the order in which they first did.
    pub entries: Vec<Entry>,
    /// Voters that left and may come back unchanged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub departed: Vec<Departed>,
    /// Of newer releases.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// What one server said of the resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The server.
    pub identity: Identity,
    /// The process: another one of the same server must not write on this entry.
    pub incarnation: Incarnation,
    /// What it may write.
    #[serde(with = "serial::version")]
    pub encoding: StorageVersion,
    /// What it would like to write: its vote.
    #[serde(with = "serial::version")]
    pub preferred: StorageVersion,
    /// What it can read.
    #[serde(with = "serial::versions")]
    pub decodable: Vec<StorageVersion>,
    /// What it serves.
    #[serde(with = "serial::versions")]
    pub served: Vec<StorageVersion>,
    /// False for a server whose feature gate is off: it writes what it prefers, whatever is selected.
    pub votes: bool,
    /// Of newer releases.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A voter that left.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Departed {
    /// The server.
    pub identity: Identity,
    /// What it voted for.
    #[serde(with = "serial::version")]
    pub preferred: StorageVersion,
    /// When that was noticed.
    #[serde(with = "serial::time")]
    pub at: Timestamp,
    /// Of newer releases.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// While it stands, the selection does not move.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Hold {
    /// Who asked for it.
    pub by: String,
    /// Why, in their words.
    pub reason: String,
    /// When.
    #[serde(with = "serial::time")]
    pub since: Timestamp,
    /// Of newer releases.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// The condition `AllEncodingVersionsEqual`; it is true exactly when there is a common version.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Condition {
    /// In one word.
    pub reason: Reason,
    /// In a sentence that names servers.
    pub message: String,
    /// Since when: changes when the condition flips or the common version changes.
    #[serde(with = "serial::time")]
    pub since: Timestamp,
    /// Of newer releases.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Why there is a common version, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// There is one.
    CommonEncodingVersionSet,
    /// Servers write different versions.
    CommonEncodingVersionUnset,
    /// A counted member has not reported, or takes no part.
    MembersMissing,
}

/// A record and the revision it was read at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The record.
    pub record: FenceRecord,
    /// When it was last written.
    pub modified: Revision,
}

impl FenceRecord {
    /// The record of a resource that nobody has reported yet, as of `revision`, which starts its epochs: each
    /// write is a commit and raises the epoch by one at most, so no epoch of an earlier record of the same
    /// resource can be as great.
    pub fn new(resource: &GroupResource, revision: Revision, now: Timestamp) -> Self {
        Self {
            format: FORMAT,
            resource: resource.clone(),
            selection: None,
            definition: None,
            definition_uid: None,
            common: None,
            epoch: Epoch::new(revision.get()),
            condition: Condition {
                reason: Reason::CommonEncodingVersionUnset,
                message: "Common encoding version unset".to_owned(),
                since: now,
                unknown: Unknown::new(),
            },
            hold: None,
            entries: Vec::new(),
            departed: Vec::new(),
            unknown: Unknown::new(),
        }
    }

    /// The entry of a server, whichever process wrote it.
    pub fn entry(&self, identity: &Identity) -> Option<&Entry> {
        self.entries.iter().find(|it| it.identity == *identity)
    }

    /// The entry of one process.
    pub fn own_entry(&self, identity: &Identity, incarnation: &Incarnation) -> Option<&Entry> {
        self.entry(identity).filter(|it| it.incarnation == *incarnation)
    }

    /// Whether all servers write the same version, and none of them would like another one.
    pub fn is_settled(&self) -> bool {
        let common = self.common.as_ref();
        common.is_some() && self.entries.iter().all(|it| Some(&it.preferred) == common)
    }

    /// Every version that somebody may write now or, being selected, would write.
    pub fn in_use(&self) -> impl Iterator<Item = &StorageVersion> {
        self.selection.iter().chain(self.entries.iter().map(|it| &it.encoding))
    }
}

impl Reason {
    /// As it stands in the condition.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::CommonEncodingVersionSet => "CommonEncodingVersionSet",
            Reason::CommonEncodingVersionUnset => "CommonEncodingVersionUnset",
            Reason::MembersMissing => "MembersMissing",
        }
    }
}

impl Record for FenceRecord {
    fn check(&self) -> Result<(), String> {
        bounded("entries", self.entries.len(), MAX_ENTRIES)?;
        bounded("departed voters", self.departed.len(), MAX_ENTRIES)?;
        for (n, entry) in self.entries.iter().enumerate() {
            let Entry { identity, encoding, preferred, decodable, served, .. } = entry;
            bounded("decodable versions", decodable.len(), MAX_VERSIONS)?;
            bounded("served versions", served.len(), MAX_VERSIONS)?;
            if self.entries[..n].iter().any(|it| it.identity == *identity) {
                return Err(format!("{identity} has two entries"));
            }
            for version in [encoding, preferred].into_iter().chain(served) {
                if !decodable.contains(version) {
                    return Err(format!("{identity} names {version}, which it cannot decode"));
                }
            }
        }
        match &self.common {
            Some(common) if self.entries.iter().any(|it| it.encoding != *common || !it.votes) => {
                Err(format!("not every server writes the common version {common}"))
            }
            _ => Ok(()),
        }
    }
}
