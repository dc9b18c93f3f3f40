//! What became of a write whose answer is missing.
//!
//! # Flow
//! Every transaction requires one more key, the *term*, to be as this client knows it (absent until somebody needs it).
//! When an answer is missing, the term is written anew through any member that answers. From then on the transaction
//! cannot be carried out any more, however late it arrives: it waits in a buffer of a member that hangs, or in a log that
//! is not replicated. What is left is whether it *was* carried out, and that the keys say, or etcd's history: never
//! happened, happened at this revision, or nobody can tell.
//!
//! # Guarantees
//! "Happened" and "withdrawn" are proven. A write is withdrawn only after a linearizable read came back while its own
//! answer did not: an etcd that is slow as a whole is waited for, or it would be busy with withdrawals alone.
//!
//! # Assumptions
//! A put of the same bytes under the same requirements counts as this one; a removal does not, because whoever else
//! removed the key was told so. Nobody deletes the term. Servers of earlier
//! releases do not know it; their writes are not withdrawn.

use bytes::Bytes;
use store::{Change, Entry, Key, ReadError, Require, Revision, Txn};
use tonic::transport::Channel;

use crate::{
    client::{MAX_ANSWER, request},
    commit::{op, precisely},
    convert::revision,
    failure::{Failure, Harm},
    layout::TERM,
    proto::{
        PutRequest, RangeRequest, TxnRequest, TxnResponse, kv_client::KvClient, request_op::Request as Op,
        response_op::Response as Done,
    },
    read::unavailable,
    store::Inner,
    watch,
};

/// How many histories are read at a time: after a cut many writes may wait for theirs.
pub(crate) const HISTORIES: usize = 4;

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// It was carried out, at this revision.
    Happened(Revision),
    /// It was not, and never will be.
    Withdrawn,
    /// Nobody can tell.
    Unknown(String),
}

/// What a look at the keys says of a write that can no longer be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Trace {
    Happened(Revision),
    Never,
    /// Somebody wrote or removed the key since, or may have: only history tells.
    Overwritten,
}

impl Inner {
    /// The term's key, as etcd knows it.
    pub(crate) fn term_key(&self) -> Bytes {
        self.layout.outward(&Key::new(TERM)).unwrap_or_default()
    }

    /// Learns what the term is.
    pub(crate) async fn read_term(&self) -> Result<(), ReadError> {
        let ask = RangeRequest { key: self.term_key(), limit: 1, ..Default::default() };
        let answer = self.range(ask).await.map_err(|it| unavailable(&it))?;
        self.learn_term(answer.kvs.first().map_or(0, |it| it.mod_revision));
        Ok(())
    }

    /// Terms only grow.
    pub(crate) fn learn_term(&self, term: i64) {
        self.term.fetch_max(term, std::sync::atomic::Ordering::AcqRel);
    }

    /// Makes sure that a transaction under this term, sent when the store was at `sent`, is not carried out any more, and
    /// finds out whether it was.
    pub(crate) async fn settle(&self, txn: &Txn, term: i64, sent: Revision) -> Settled {
        match self.end_term(term).await {
            Ok(ended) => self.look_back(txn, sent, ended).await,
            Err(failure) => Settled::Unknown(failure.to_string()),
        }
    }

    /// Finds out whether a transaction was carried out that cannot be any more since `until`.
    pub(crate) async fn look_back(&self, txn: &Txn, sent: Revision, until: Revision) -> Settled {
        let Some(change) = telling(txn) else { return Settled::Withdrawn };
        if until <= sent {
            // Nothing at all was written since.
            return Settled::Withdrawn;
        }
        let found = match self.get(change.key()).await {
            Ok(found) => found,
            Err(error) => return Settled::Unknown(error.to_string()),
        };
        match trace(txn, change, found.as_ref(), sent) {
            Trace::Happened(revision) => Settled::Happened(revision),
            Trace::Never => Settled::Withdrawn,
            Trace::Overwritten => {
                let Ok(_turn) = self.histories.acquire().await else {
                    return Settled::Unknown("the store was closed".to_owned());
                };
                match watch::find(self, change, sent, until).await {
                    Ok(Some(revision)) => Settled::Happened(revision),
                    Ok(None) => Settled::Withdrawn,
                    Err(why) => Settled::Unknown(why),
                }
            }
        }
    }

    /// Ends a term, unless it has ended; since which revision nothing can happen under it.
    async fn end_term(&self, term: i64) -> Result<Revision, Failure> {
        let key = self.term_key();
        let read = op(Op::RequestRange(RangeRequest { key: key.clone(), limit: 1, ..Default::default() }));
        let put = PutRequest { key: key.clone(), value: Bytes::new(), lease: 0 };
        let ask = TxnRequest {
            compare: vec![precisely(key, term)],
            success: vec![op(Op::RequestPut(put))],
            failure: vec![read],
        };
        let ask = &ask;
        let call = |channel: Channel| async move {
            KvClient::new(channel).max_decoding_message_size(MAX_ANSWER).txn(request(ask.clone())).await
        };
        // A second one finds that the first has done it.
        let answer: TxnResponse = self.client.call(Harm::None, call).await?;
        let ended = if answer.succeeded {
            answer.header.map_or(0, |it| it.revision)
        } else {
            let found = answer.responses.into_iter().next().and_then(|it| it.response);
            match found {
                Some(Done::ResponseRange(range)) => range.kvs.first().map_or(0, |it| it.mod_revision),
                _ => 0,
            }
        };
        if ended <= term {
            return Err(Failure::Unknown("somebody removed the term's key".to_owned()));
        }
        self.learn_term(ended);
        Ok(revision(ended))
    }
}

/// The change by which a transaction is known: all are done or none. Puts tell more than removals.
fn telling(txn: &Txn) -> Option<&Change> {
    let puts = txn.changes.iter().filter(|it| matches!(it, Change::Put(..)));
    puts.chain(&txn.changes).next()
}

/// What the key itself says, without its history.
fn trace(txn: &Txn, change: &Change, found: Option<&Entry>, sent: Revision) -> Trace {
    let key = change.key();
    let required = txn.require.iter().find(|it| it.key() == key);
    match (change, found) {
        (Change::Put(_, value, _), Some(it)) if it.modified > sent && it.value == *value => {
            Trace::Happened(it.modified)
        }
        // As it was before: no change of it was carried out.
        (_, Some(it)) if it.modified <= sent => Trace::Never,
        (_, Some(it)) if required == Some(&Require::At(key.clone(), it.modified)) => Trace::Never,
        _ => Trace::Overwritten,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: Revision = Revision::new(10);

    fn entry(value: &'static str, modified: u64) -> Entry {
        let revision = Revision::new(modified);
        Entry { key: "/a".into(), value: value.into(), created: revision, modified: revision, lease: None }
    }

    fn check(txn: &Txn, found: Option<&Entry>, expect: &Trace) {
        assert_eq!(&trace(txn, telling(txn).unwrap(), found, SENT), expect, "{found:?}");
    }

    #[test]
    fn a_put_is_known_by_its_bytes() {
        let key = Key::new("/a");
        let txn = Txn::new().require_at(&key, Revision::new(5)).put(&key, "new".into());
        check(&txn, Some(&entry("new", 11)), &Trace::Happened(Revision::new(11)));
        check(&txn, Some(&entry("old", 5)), &Trace::Never);
        check(&txn, Some(&entry("else", 12)), &Trace::Overwritten);
        check(&txn, None, &Trace::Overwritten);
    }

    /// A key that is absent may have been made and removed in between.
    #[test]
    fn absence_says_nothing_of_a_create() {
        let key = Key::new("/a");
        let txn = Txn::new().require_absent(&key).put(&key, "new".into());
        check(&txn, None, &Trace::Overwritten);
        check(&txn, Some(&entry("else", 12)), &Trace::Overwritten);
    }

    #[test]
    fn what_is_still_there_was_not_removed() {
        let key = Key::new("/a");
        let txn = Txn::new().require_at(&key, Revision::new(5)).delete(&key);
        check(&txn, Some(&entry("old", 5)), &Trace::Never);
        check(&txn, None, &Trace::Overwritten);
    }

    #[test]
    fn puts_are_looked_for_before_removals() {
        let txn = Txn::new().delete(&"/a".into()).put(&"/b".into(), "new".into());
        assert_eq!(telling(&txn).unwrap().key().as_str(), "/b");
        assert!(telling(&Txn::new()).is_none());
    }
}
