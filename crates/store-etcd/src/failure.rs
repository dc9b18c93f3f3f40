//! What an error of a call means: whether the request may have been carried out, and what etcd said.
//! etcd's own answers are told from those of proxies and libraries by their text, which has been the same
//! since 3.0; a code alone proves nothing.

use std::error::Error;

use store::WatchError;
use tonic::{Code, Status};

use crate::{config::chain, guard::WentBack};

/// How all texts of etcd itself begin.
const ETCD: &str = "etcdserver: ";

/// Why a call brought no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// Nobody began to carry out the request: it never left, or the member said that it cannot serve now.
    #[error("{0}")]
    NotSent(String),
    /// etcd decided not to do it.
    #[error("{0}")]
    Refused(Refusal),
    /// The answer is larger than we accept. A request that writes was carried out.
    #[error("the answer is too large")]
    TooLarge,
    /// It may have been carried out.
    #[error("{0}")]
    Unknown(String),
    /// The store is not the one we knew; nothing more is asked of it.
    #[error("{0}")]
    WentBack(WentBack),
}

/// etcd's reason for not doing something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the revision has been compacted")]
    Compacted,
    #[error("the revision lies in the future")]
    Future,
    #[error("the lease does not exist")]
    NoLease,
    #[error("{0}")]
    ReadOnly(String),
    #[error("{0}")]
    Denied(String),
    #[error("{0}")]
    Invalid(String),
}

impl Failure {
    /// Whether another try, at another member, may succeed without doing harm.
    pub(crate) fn may_try_again(&self, harmless: Harm) -> bool {
        match self {
            Failure::NotSent(_) => true,
            Failure::Unknown(_) => harmless == Harm::None,
            Failure::Refused(_) | Failure::TooLarge | Failure::WentBack(_) => false,
        }
    }

    /// As the end of a watch.
    pub(crate) fn into_watch_error(self) -> WatchError {
        match self {
            Failure::WentBack(WentBack { seen, now, .. }) => WatchError::WentBack { seen, now },
            other => WatchError::Interrupted(other.to_string()),
        }
    }
}

/// What happens if a request is carried out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    /// Nothing.
    None,
    /// Something that was not asked for.
    Possible,
}

impl From<&Status> for Failure {
    fn from(status: &Status) -> Self {
        let message = status.message();
        if was_not_sent(status) {
            return Failure::NotSent(chain_of(status));
        }
        if message.starts_with(ETCD) {
            return said_by_etcd(status.code(), message);
        }
        if status.code() == Code::OutOfRange && message.contains("decoded message length too large") {
            return Failure::TooLarge;
        }
        if status.code() == Code::ResourceExhausted
            && message.starts_with("grpc: trying to send message larger")
        {
            return Failure::TooLarge;
        }
        // grpc-go refuses before the request reaches etcd.
        if status.code() == Code::ResourceExhausted && message.starts_with("grpc: received message larger") {
            return Failure::Refused(Refusal::Invalid(message.into()));
        }
        Failure::Unknown(chain_of(status))
    }
}

fn said_by_etcd(code: Code, text: &str) -> Failure {
    let refusal = match text.trim_start_matches(ETCD) {
        "mvcc: required revision has been compacted" => Refusal::Compacted,
        "mvcc: required revision is a future revision" => Refusal::Future,
        "requested lease not found" => Refusal::NoLease,
        "mvcc: database space exceeded" | "too many requests" | "corrupt cluster" => {
            Refusal::ReadOnly(text.into())
        }
        "permission denied" => Refusal::Denied(text.into()),
        // We send `hasleader`, so that etcd answers these before it looks at the request.
        "no leader" | "not capable" | "rpc not supported for learner" => {
            return Failure::NotSent(text.into());
        }
        _ => match code {
            Code::InvalidArgument | Code::FailedPrecondition | Code::NotFound | Code::OutOfRange => {
                Refusal::Invalid(text.into())
            }
            Code::PermissionDenied | Code::Unauthenticated => Refusal::Denied(text.into()),
            // "request timed out", "server stopped", "leader changed" and what is not known yet.
            _ => return Failure::Unknown(text.into()),
        },
    };
    Failure::Refused(refusal)
}

/// Whether the request certainly never left this process.
fn was_not_sent(status: &Status) -> bool {
    // Only errors that were made here have a source. hyper cancels a request while it still waits for the
    // connection, never later; tonic hands that on under the same text.
    let is_made_here = status.source().is_some();
    if is_made_here && status.code() == Code::Cancelled && status.message() == "operation was canceled" {
        return true;
    }
    let mut source = status.source();
    while let Some(error) = source {
        if error.downcast_ref::<tonic::ConnectError>().is_some() {
            return true;
        }
        source = error.source();
    }
    false
}

fn chain_of(status: &Status) -> String {
    match status.source() {
        Some(source) => chain(source),
        None => status.message().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: Code, message: &str, expect: &str) {
        let failure = Failure::from(&Status::new(code, message));
        assert_eq!(format!("{failure:?}").split(['(', ' ']).next(), Some(expect), "{message}");
    }

    #[test]
    fn only_what_etcd_decided_counts_as_refused() {
        check(Code::InvalidArgument, "etcdserver: duplicate key given in txn request", "Refused");
        check(Code::InvalidArgument, "etcdserver: request is too large", "Refused");
        check(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", "Refused");
        check(Code::ResourceExhausted, "grpc: received message larger than max (3 vs. 2)", "Refused");
        check(Code::InvalidArgument, "some proxy did not like it", "Unknown");
        check(Code::ResourceExhausted, "too many pings", "Unknown");
    }

    #[test]
    fn what_may_have_happened_is_unknown() {
        check(Code::Unavailable, "etcdserver: request timed out", "Unknown");
        check(Code::Unavailable, "etcdserver: leader changed", "Unknown");
        check(Code::Unavailable, "etcdserver: server stopped", "Unknown");
        check(Code::Unavailable, "transport is closing", "Unknown");
        check(Code::Cancelled, "cancelled", "Unknown");
        check(Code::Cancelled, "operation was canceled", "Unknown");
    }

    #[test]
    fn a_request_that_found_no_connection_was_not_sent() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let status = Status::from_error(Box::new(tonic::ConnectError(Box::new(refused))));
        assert!(matches!(Failure::from(&status), Failure::NotSent(text) if text.contains("refused")));
    }

    #[test]
    fn a_member_without_a_leader_did_nothing() {
        check(Code::Unavailable, "etcdserver: no leader", "NotSent");
    }

    #[test]
    fn an_answer_that_is_too_large_was_carried_out() {
        check(
            Code::OutOfRange,
            "Error, decoded message length too large: found 5 bytes, the limit is: 4 bytes",
            "TooLarge",
        );
    }
}
