//! How to go on when a put of an object has failed its fence.
//!
//! The failed commit brought the fence record as it is now, so nothing is read twice. The caller bounds the
//! number of attempts by the request's deadline. Deliberately not here: what the client is told beyond the reason.

use meta::StorageVersion;
use store::{Require, Revision};

use crate::{Encoding, Identity, Incarnation, cluster::Guarantee, fence::Fence, keys};

/// What is known after the failure.
#[derive(Clone, Copy, Debug)]
pub struct Failed<'a> {
    /// The fence as the failed commit found it.
    pub fence: Option<&'a Fence>,
    /// The server that wanted to write.
    pub identity: &'a Identity,
    /// Its process.
    pub incarnation: &'a Incarnation,
    /// Whether it is a member, as far as it knows.
    pub is_member: bool,
    /// Whether the resource still exists: false once the definition of a custom resource is gone.
    pub is_defined: bool,
    /// Why this server may not write the resource at all (G6).
    pub refused: Option<&'a str>,
}

/// How to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Encode again and commit again; of a custom resource, with a definition not older than this.
    Encode(Encoding, Option<Revision>),
    /// Report the resource again, then go on.
    Report,
    /// 503: no longer a member. Join and report anew.
    Rejoin,
    /// 404: the resource is gone.
    Gone,
    /// 503 with the reason.
    Refused(String),
}

/// The five outcomes of a failed fence.
pub fn after_failure(failed: &Failed<'_>) -> Next {
    let Failed { fence, identity, incarnation, is_member, is_defined, refused } = *failed;
    if let Some(reason) = refused {
        return Next::Refused(reason.to_owned());
    }
    if !is_defined {
        return Next::Gone;
    }
    if !is_member {
        return Next::Rejoin;
    }
    match fence.and_then(|it| it.record.entry(identity)) {
        // Only a member writes its entry, so another process has taken over.
        Some(entry) if entry.incarnation != *incarnation => Next::Rejoin,
        Some(_) => match fence.and_then(|it| encoding(it, identity, incarnation, Guarantee::Strict)) {
            Some(encoding) => Next::Encode(encoding, fence.and_then(|it| it.record.definition)),
            None => Next::Report,
        },
        None => Next::Report,
    }
}

/// What a process must encode a put in, and what the put must require; `None` if it has no entry.
pub fn encoding(
    fence: &Fence,
    identity: &Identity,
    incarnation: &Incarnation,
    guarantee: Guarantee,
) -> Option<Encoding> {
    let entry = fence.record.own_entry(identity, incarnation)?;
    let version: StorageVersion = entry.encoding.clone();
    let fence = match guarantee {
        Guarantee::Strict => Some(Require::At(keys::fence(&fence.record.resource), fence.modified)),
        Guarantee::Loose => None,
    };
    Some(Encoding { version, fence })
}

#[cfg(test)]
mod tests;
