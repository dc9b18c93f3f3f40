//! What a write led to, and store failures in the API's words.
//!
//! client-go sends a request again by itself if the answer is 429 or 5xx with `Retry-After`. So that header stands only
//! where nothing happened, and [`meta::RetryAfter`] cannot be made without saying why that is so. All answers that
//! carry it:
//!
//! | where | answer | why nothing happened |
//! |---|---|---|
//! | `server::chain` (requests in flight) | 429, 1 s | not begun |
//! | `server::storage_gate`, [`shut`] | 503, 1 or 30 s | not begun, or the fence refused the put |
//! | `server::route` (other members not known yet, misdirected) | 503, 1 s | not begun |
//! | `server::forward` (no server reached, or it refused the stream) | 503, 1 s | not sent, or the other server says so |
//! | `pod::eviction` (budget still processed) | 429, 10 s | not begun |
//! | [`read_failed`], `resource_version::too_large` | 503, 504, 1 s | a read |
//! | `custom` (definitions or a collection cannot be read) | 503, 1 s | a read |
//! | [`lease_failed`] | 503, 5 s | a lease without keys is nothing |
//! | [`commit_failed`] (no room, not reached, withdrawn) | 503, 5 s | the store says so |
//! | [`fences_lost`] | 503, 1 s | every transaction was refused |
//!
//! Answers that do not, because something may have happened: a commit whose outcome stays unknown after
//! [`Registry::commit_or_find_out`], a forwarded write whose answer is lost, a deadline, whatever fails after a write of
//! the same request ([`Status::after_the_fact`]).

use std::time::Duration;

use bytes::Bytes;
use cache::{Closed, Undecodable};
use fleet::gate::Shut;
use meta::{Cause, DidNotHappen, RetryAfter, Status};
use store::{
    Change, CommitError, Entry, Key, LeaseError, Range, ReadAt, ReadError, Require, Revision, Store, Txn,
};

use crate::{Registry, Target};

/// How long it may take to find out what became of a write.
const FIND_OUT_WITHIN: Duration = Duration::from_secs(5);

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

/// What is known of a commit that failed.
enum Failed {
    DidNotHappen(Refused),
    Unknown,
}

/// A store that refused: the error is not the one that leaves it open.
struct Refused(());

impl DidNotHappen for Refused {}

impl Failed {
    fn of(error: &CommitError) -> Self {
        match error {
            CommitError::Unavailable(_) => Self::Unknown,
            CommitError::Unmet { .. }
            | CommitError::Rejected(_)
            | CommitError::NoLease(_)
            | CommitError::ReadOnly(_) => Self::DidNotHappen(Refused(())),
        }
    }
}

impl Registry {
    /// Commits. Where the store cannot tell what became of it, it is asked once what is there: an object that was made is
    /// known by its uid, another write by its bytes. What is not there may still come, or has gone again, so that its
    /// absence proves nothing; of a removal neither: somebody else may have done the same, and was told so.
    pub(crate) async fn commit_or_find_out(&self, txn: Txn) -> Result<Revision, CommitError> {
        let Some(trace) = Trace::of(&txn) else { return self.store.commit(txn).await };
        let error = match self.store.commit(txn).await {
            Err(error @ CommitError::Unavailable(_)) => error,
            known => return known,
        };
        let range = Range::single(&trace.key);
        let found = tokio::select! {
            found = self.store.list(&range, ReadAt::Latest, 1) => found.ok(),
            () = self.clock.sleep(FIND_OUT_WITHIN) => None,
        };
        let found = found.and_then(|it| it.entries.into_iter().next());
        match found.and_then(|it| trace.find(&it)) {
            Some(revision) => {
                tracing::info!(key = %trace.key, %revision, "a write whose answer was lost was found to have happened");
                Ok(revision)
            }
            None => Err(error),
        }
    }
}

/// By what a write is known after it happened.
struct Trace {
    key: Key,
    /// What the key was required to be.
    require: Require,
    /// What it becomes.
    value: Bytes,
}

impl Trace {
    /// The first change, if it is a put and conditional on its own key.
    fn of(txn: &Txn) -> Option<Self> {
        let Change::Put(key, value, _) = txn.changes.first()? else { return None };
        let value = value.clone();
        let require = txn.require.iter().find(|it| it.key() == key)?;
        Some(Self { key: key.clone(), require: require.clone(), value })
    }

    /// The revision of the write, if what is there now shows that it happened.
    fn find(&self, found: &Entry) -> Option<Revision> {
        match &self.require {
            // Nobody else chooses this uid, so that nobody else made it, whatever was written since.
            Require::Absent(_) => {
                let is_it = found.value == self.value || has_same_uid(&found.value, &self.value);
                is_it.then_some(found.created)
            }
            Require::At(_, old) => {
                (found.modified != *old && found.value == self.value).then_some(found.modified)
            }
        }
    }
}

fn has_same_uid(one: &[u8], other: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Named {
        metadata: Uid,
    }
    #[derive(serde::Deserialize)]
    struct Uid {
        uid: String,
    }
    let uid = |text: &[u8]| serde_json::from_slice::<Named>(text).ok().map(|it| it.metadata.uid);
    uid(one).is_some_and(|it| !it.is_empty() && uid(other).as_ref() == Some(&it))
}

/// What both stores say when there is no space.
const NO_SPACE: &str = "mvcc: database space exceeded";

/// A commit that failed other than by an unmet requirement.
pub(crate) fn commit_failed(target: &Target, error: &CommitError) -> Status {
    let proof = match Failed::of(error) {
        Failed::DidNotHappen(proof) => proof,
        Failed::Unknown => {
            tracing::warn!(%error, "the outcome of a write is unknown");
            return Status::timeout("the store did not confirm the write; it may or may not have happened");
        }
    };
    match error {
        CommitError::Unmet { .. } => Status::modified(&target.kind.resource, &target.name),
        CommitError::Rejected(why) => Status::too_large(format!("the store rejected the write: {why}")),
        CommitError::NoLease(_) => Status::internal("the lease of the object ended while it was written"),
        CommitError::ReadOnly(why) | CommitError::Unavailable(why) => {
            tracing::warn!(why, "the store takes no writes");
            // In etcd's words, as kube-apiserver passes them on: waiting does not help, removing something does.
            if why.contains(NO_SPACE) {
                return Status::internal(format!("etcdserver: {NO_SPACE}"));
            }
            let message = "the store takes no writes at the moment; see the server's log and /readyz";
            Status::unavailable(message, RetryAfter::proven(5, &proof))
        }
    }
}

/// 503: what proves the version of a put moved as often as it was tried.
pub(crate) fn fences_lost(target: &Target) -> Status {
    let message = format!(
        "the servers agreed on another version of {} at every attempt to write; nothing was written",
        target.kind.resource
    );
    Status::unavailable(message, RetryAfter::proven(1, &Refused(())))
}

/// 503: what justifies a removal changed as often as it was tried.
pub(crate) fn grounds_lost(target: &Target) -> Status {
    let message = format!(
        "what the removal of {} {:?} rests on changed at every attempt; nothing was removed",
        target.kind.resource, target.name
    );
    Status::unavailable(message, RetryAfter::proven(1, &Refused(())))
}

/// A read that failed.
pub(crate) fn read_failed(error: &ReadError) -> Status {
    match error {
        ReadError::Compacted { oldest } => Status::expired(format!(
            "The provided resource version is too old; the oldest available is {oldest}."
        )),
        ReadError::Future { current } => {
            let message = format!("Too large resource version, current: {current}");
            Status::timeout(message).retry_after(RetryAfter::only_read(1))
        }
        ReadError::Unavailable(why) => {
            tracing::warn!(why, "the store cannot be read");
            Status::unavailable("the store cannot be reached at the moment", RetryAfter::only_read(1))
        }
    }
}

/// What is said where a collection was closed in the middle of a request. Reads begin anew instead ([`is_closed`]).
const CLOSED: &str = "the objects of this resource are being loaded anew";

/// A collection that does not answer: nothing has happened, and the next attempt finds another one.
pub(crate) fn closed(_: Closed) -> Status {
    Status::unavailable(CLOSED, RetryAfter::only_read(1))
}

/// Whether a read failed because its collection was closed.
pub(crate) fn is_closed(status: &Status) -> bool {
    status.code == 503 && status.message == CLOSED
}

/// 500: one stored value cannot be served.
pub(crate) fn undecodable(target: &Target, key: &Key, why: impl std::fmt::Display) -> Status {
    let resource = &target.kind.resource;
    let name = if target.name.is_empty() { key.as_str() } else { &target.name };
    Status::internal(format!("{resource} {name:?} cannot be decoded: {why}"))
}

/// 500: among what is asked for are stored values that cannot be served. The first of them are named.
pub(crate) fn some_undecodable(target: &Target, found: &Undecodable) -> Status {
    let Undecodable { first, n_keys } = found;
    let named =
        first.first().map_or_else(String::new, |(key, it)| format!("; the first is {key}: {}", it.why));
    let mut status = Status::internal(format!(
        "failed to read one or more {} from the storage: unable to decode {n_keys} of them{named}",
        target.kind.resource
    ));
    let causes = first.iter().map(|(key, it)| Cause {
        reason: "UnexpectedServerResponse".to_owned(),
        message: it.why.to_string(),
        field: key.to_string(),
    });
    let details = status.details.get_or_insert_default();
    details.kind = target.kind.resource.resource.to_string();
    details.causes = causes.collect();
    status
}

/// A lease call that failed. A lease that was granted and is not known of holds nothing.
pub(crate) fn lease_failed(error: &LeaseError) -> Status {
    tracing::warn!(%error, "the store gives no lease");
    let message = "the store takes no writes at the moment; see the server's log and /readyz";
    Status::unavailable(message, RetryAfter::not_begun(5))
}

/// 503: the version to write is not agreed on yet, or this server may not write. Asked before a put, and after one that
/// its fence refused.
pub(crate) fn shut(shut: &Shut) -> Status {
    Status::unavailable(shut.to_string(), RetryAfter::not_begun(shut.retry_after()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(value: &'static str, created: u64, modified: u64) -> Entry {
        let (created, modified) = (Revision::new(created), Revision::new(modified));
        Entry { key: "/a".into(), value: value.into(), created, modified, lease: None }
    }

    fn found(txn: &Txn, entry: &Entry) -> Option<u64> {
        Trace::of(txn).unwrap().find(entry).map(Revision::get)
    }

    const MINE: &str = r#"{"metadata":{"uid":"1"},"data":{}}"#;
    const CHANGED: &str = r#"{"metadata":{"uid":"1"},"data":{"k":"v"}}"#;
    const OTHER: &str = r#"{"metadata":{"uid":"2"},"data":{}}"#;

    #[test]
    fn a_new_object_is_known_by_its_uid() {
        let key = Key::new("/a");
        let txn = Txn::new().require_absent(&key).put(&key, MINE.into());
        assert_eq!(found(&txn, &entry(MINE, 11, 11)), Some(11));
        assert_eq!(found(&txn, &entry(CHANGED, 11, 15)), Some(11), "somebody changed it since");
        assert_eq!(found(&txn, &entry(OTHER, 11, 11)), None);
    }

    #[test]
    fn a_change_is_known_by_its_bytes() {
        let key = Key::new("/a");
        let txn = Txn::new().require_at(&key, Revision::new(5)).put(&key, CHANGED.into());
        assert_eq!(found(&txn, &entry(CHANGED, 3, 11)), Some(11));
        assert_eq!(found(&txn, &entry(MINE, 3, 5)), None, "it may still come");
        assert_eq!(found(&txn, &entry(MINE, 3, 12)), None);
    }

    #[test]
    fn a_removal_leaves_no_trace_of_its_own() {
        let key = Key::new("/a");
        assert!(Trace::of(&Txn::new().require_at(&key, Revision::new(5)).delete(&key)).is_none());
    }

    #[test]
    fn what_does_not_depend_on_its_own_key_is_not_looked_for() {
        assert!(Trace::of(&Txn::new().delete(&"/a".into())).is_none());
        assert!(Trace::of(&Txn::new()).is_none());
    }
}
