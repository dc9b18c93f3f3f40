//! What a write led to, and store failures in the API's words.

use bytes::Bytes;
use fleet::gate::Shut;
use meta::{Reason, Status};
use store::{CommitError, LeaseError, ReadError};

use crate::Target;

/// A write that happened, or would have in a dry run.
#[derive(Clone, Debug)]
pub struct Written {
    /// The object in the client's version.
    pub text: Bytes,
    /// The object is new.
    pub is_new: bool,
    /// For the `Warning` header.
    pub warnings: Vec<String>,
}

/// A commit that failed other than by an unmet requirement.
pub(crate) fn commit_failed(target: &Target, error: &CommitError) -> Status {
    match error {
        CommitError::Unmet { .. } => Status::modified(&target.kind.resource, &target.name),
        CommitError::Rejected(why) => Status::too_large(format!("the store rejected the write: {why}")),
        CommitError::NoLease(_) => Status::internal("the lease of the object ended while it was written"),
        CommitError::ReadOnly(why) => {
            tracing::warn!(why, "the store takes no writes");
            Status::unavailable(
                "the store takes no writes at the moment; see the server's log and /readyz",
                5,
            )
        }
        CommitError::Unavailable(why) => {
            tracing::warn!(why, "the outcome of a write is unknown");
            let message = "Timeout: the store did not confirm the write; it may or may not have happened";
            Status::failure(504, Reason::Timeout, message).retry_after(1)
        }
    }
}

/// A read that failed.
pub(crate) fn read_failed(error: &ReadError) -> Status {
    match error {
        ReadError::Compacted { oldest } => Status::expired(format!(
            "The provided resource version is too old; the oldest available is {oldest}."
        )),
        ReadError::Future { current } => {
            Status::timeout(format!("Too large resource version, current: {current}"), 1)
        }
        ReadError::Unavailable(why) => {
            tracing::warn!(why, "the store cannot be read");
            Status::unavailable("the store cannot be reached at the moment", 1)
        }
    }
}

/// A lease call that failed.
pub(crate) fn lease_failed(error: &LeaseError) -> Status {
    tracing::warn!(%error, "the store gives no lease");
    Status::unavailable("the store takes no writes at the moment; see the server's log and /readyz", 5)
}

/// 503: the version to write is not agreed on yet, or this server may not write.
pub(crate) fn shut(shut: &Shut) -> Status {
    Status::unavailable(shut.to_string(), shut.retry_after())
}
