//! Writes: one transaction is one transaction of etcd. The failure branch reads every required key, so that
//! an unmet requirement comes with what is there. What becomes of a write without an answer is in `settle.rs`.

use std::time::Duration;

use bytes::Bytes;
use store::{Change, CommitError, Entry, LeaseId, Require, Revision, Txn};

use crate::{
    client::{MAX_ANSWER, request},
    convert::{entry, number, revision},
    failure::{Failure, Harm, Refusal},
    history::{Found, Known},
    layout::Layout,
    proto::{
        CompactionRequest, CompactionResponse, Compare, DeleteRangeRequest, PutRequest, RangeRequest,
        RequestOp, ResponseOp, TxnRequest, TxnResponse,
        compare::{Result as Relation, Target, TargetUnion},
        kv_client::KvClient,
        request_op::Request as Op,
        response_op::Response as Done,
    },
    settle::Settled,
    store::Inner,
};

/// etcd's default for `--max-txn-ops`.
const MAX_OPS: usize = 128;
/// No key was ever written at this revision.
const NEVER: i64 = -1;

/// How long an answer is waited for before it is looked whether etcd answers at all.
const DOUBT_AFTER: Duration = Duration::from_secs(1);

/// How long an answer is waited for after etcd was found to answer others: what stands in line is not hung.
const GRACE: Duration = Duration::from_millis(250);

/// How long it may take at least to find out what became of a write, however little time is left.
const SETTLE_WITHIN: Duration = Duration::from_secs(2);

/// What one try led to.
enum Tried {
    Answered(Result<Revision, CommitError>),
    /// It did not happen and cannot happen any more.
    Withdrawn,
    /// It was sent under a term that had ended, or a server has started since.
    Outdated,
}

impl Inner {
    pub(crate) async fn commit(&self, txn: Txn) -> Result<Revision, CommitError> {
        let give_up = self.client.clock.monotonic() + self.client.request_timeout;
        loop {
            let again = match self.try_commit(&txn, give_up).await? {
                Tried::Answered(answer) => return answer,
                Tried::Withdrawn => "a write that got no answer was withdrawn",
                Tried::Outdated => "a write was refused because others were withdrawn",
            };
            if self.client.clock.monotonic() >= give_up {
                return Err(CommitError::ReadOnly(format!("etcd did not answer in time: {again}")));
            }
            tracing::debug!("{again}, and is sent again");
        }
    }

    async fn try_commit(&self, txn: &Txn, give_up: Duration) -> Result<Tried, CommitError> {
        let term = self.term.load(std::sync::atomic::Ordering::Acquire);
        let mut ask = plan(self, txn, term)?;
        let known = self.history.guard(&self.layout, &mut ask);
        let ask = &ask;
        let call = |channel| async move {
            KvClient::new(channel).max_decoding_message_size(MAX_ANSWER).txn(request(ask.clone())).await
        };
        let sent = self.client.guard.newest();
        // What changes nothing may be asked twice.
        let harm = if txn.changes.is_empty() { Harm::None } else { Harm::Possible };
        let answer = self.client.call::<TxnResponse, _>(harm, call);
        let answer = tokio::select! {
            biased;
            answer = answer => answer,
            settled = self.doubted(txn, term, sent), if harm == Harm::Possible => {
                return Ok(match settled {
                    Settled::Happened(revision) => Tried::Answered(Ok(revision)),
                    Settled::Withdrawn => Tried::Withdrawn,
                    Settled::Unknown(why) => Tried::Answered(Err(CommitError::Unavailable(why))),
                });
            }
        };
        match answer {
            Ok(answer) => Ok(self.answered(txn, term, known.as_ref(), answer)),
            // etcd does not say which one.
            Err(Failure::Refused(Refusal::NoLease)) => {
                Err(CommitError::NoLease(self.first_missing(&leases(txn)).await))
            }
            Err(Failure::Refused(Refusal::ReadOnly(text))) => {
                self.refused(txn, sent, text).await.map(Tried::Answered)
            }
            Err(Failure::Unknown(why)) if harm == Harm::Possible => {
                let left = give_up.saturating_sub(self.client.clock.monotonic()).max(SETTLE_WITHIN);
                let settled = tokio::select! {
                    settled = self.settle(txn, term, sent) => settled,
                    () = self.client.clock.sleep(left) => Settled::Unknown(why.clone()),
                };
                Ok(match settled {
                    Settled::Happened(revision) => Tried::Answered(Ok(revision)),
                    Settled::Withdrawn => Tried::Withdrawn,
                    Settled::Unknown(_) => Tried::Answered(Err(CommitError::Unavailable(why))),
                })
            }
            Err(failure) => Err(commit_error(failure)),
        }
    }

    /// Settles a write that gets no answer while etcd answers others; never ends as long as it cannot be settled.
    async fn doubted(&self, txn: &Txn, term: i64, sent: Revision) -> Settled {
        self.client.clock.sleep(DOUBT_AFTER).await;
        loop {
            if self.current().await.is_ok() {
                self.client.clock.sleep(GRACE).await;
                let settled = self.settle(txn, term, sent).await;
                if !matches!(settled, Settled::Unknown(_)) {
                    return settled;
                }
            }
            self.client.clock.sleep(DOUBT_AFTER).await;
        }
    }

    fn answered(&self, txn: &Txn, term: i64, known: Option<&Known>, mut answer: TxnResponse) -> Tried {
        let at = answer.header.map_or(Revision::ZERO, |it| revision(it.revision));
        if answer.succeeded {
            self.history.hold(known, at);
            return Tried::Answered(Ok(at));
        }
        let found = known.map_or(Found::Same, |it| self.history.look_at(it, &mut answer.responses, at));
        if let Found::Other { written, known } = found {
            let went_back = self.client.guard.is_another_history(known, written);
            return Tried::Answered(Err(commit_error(Failure::WentBack(went_back))));
        }
        let now = match answer.responses.pop().and_then(|it| it.response) {
            Some(Done::ResponseRange(range)) => range.kvs.first().map_or(0, |it| it.mod_revision),
            _ => 0,
        };
        if now == 0 {
            // Somebody removed it; better another term than none for ever.
            self.term.store(0, std::sync::atomic::Ordering::Release);
        }
        self.learn_term(now);
        match unmet(&self.layout, &txn.require, answer.responses, at) {
            Some(unmet) => Tried::Answered(Err(unmet)),
            None if now != term || found == Found::Newer => Tried::Outdated,
            // Compares and reads of one transaction see one state, so this cannot be etcd.
            None => {
                let why = "etcd refused requirements that hold".to_owned();
                Tried::Answered(Err(CommitError::Unavailable(why)))
            }
        }
    }

    /// What is to be said of a transaction that etcd has no room for. One that fills it up is refused in the same words
    /// and done all the same, so the store is asked. What was refused does not happen later: etcd has answered.
    async fn refused(
        &self,
        txn: &Txn,
        sent: Revision,
        text: String,
    ) -> Result<Result<Revision, CommitError>, CommitError> {
        let until = self.current().await.map_err(|_| CommitError::Unavailable(text.clone()))?;
        match self.look_back(txn, sent, until).await {
            Settled::Happened(revision) => Ok(Ok(revision)),
            Settled::Withdrawn => Err(CommitError::ReadOnly(text)),
            Settled::Unknown(_) => Err(CommitError::Unavailable(text)),
        }
    }

    pub(crate) async fn compact(&self, before: Revision) -> Result<(), CommitError> {
        let Some(number) = number(before) else { return Err(future(before)) };
        if number == 0 {
            return Ok(());
        }
        let call = |channel| async move {
            KvClient::new(channel).compact(request(CompactionRequest { revision: number })).await
        };
        let answer: Result<CompactionResponse, Failure> = self.client.call(Harm::None, call).await;
        match answer {
            Ok(_) | Err(Failure::Refused(Refusal::Compacted)) => Ok(()),
            Err(Failure::Refused(Refusal::Future)) => Err(future(before)),
            Err(failure) => Err(commit_error(failure)),
        }
    }
}

/// The transaction in etcd's words, under this term, or why there is none.
fn plan(inner: &Inner, txn: &Txn, term: i64) -> Result<TxnRequest, CommitError> {
    let layout = &inner.layout;
    txn.check()?;
    // The term and the value of the history are two more comparisons.
    let n_ops = txn.changes.len().max(txn.require.len() + 2);
    if n_ops > MAX_OPS {
        return Err(CommitError::Rejected(format!(
            "{n_ops} operations are more than the {MAX_OPS} etcd takes"
        )));
    }
    let place = |key: &store::Key| {
        layout
            .outward(key)
            .ok_or_else(|| CommitError::Rejected(format!("key {key} lies outside the store's roots")))
    };
    let mut ask = TxnRequest::default();
    for requirement in &txn.require {
        let key = place(requirement.key())?;
        let (target, value) = condition(requirement);
        ask.compare.push(Compare {
            result: Relation::Equal.into(),
            target: target.into(),
            key: key.clone(),
            target_union: Some(value),
        });
        ask.failure.push(op(Op::RequestRange(RangeRequest { key, limit: 1, ..Default::default() })));
    }
    for change in &txn.changes {
        let key = place(change.key())?;
        ask.success.push(op(match change {
            // etcd reads a zero as "no lease".
            Change::Put(_, _, Some(LeaseId(0))) => return Err(CommitError::NoLease(LeaseId(0))),
            Change::Put(_, value, lease) => {
                let lease = lease.map_or(0, |it| it.0);
                Op::RequestPut(PutRequest { key, value: value.clone(), lease })
            }
            Change::Delete(_) => Op::RequestDeleteRange(DeleteRangeRequest { key }),
        }));
    }
    let key = inner.term_key();
    ask.compare.push(precisely(key.clone(), term));
    ask.failure.push(op(Op::RequestRange(RangeRequest { key, limit: 1, ..Default::default() })));
    if ask.success.is_empty() {
        // Without any operation etcd would answer from a member's own, perhaps old, state.
        let key = layout.probe();
        ask.success.push(op(Op::RequestRange(RangeRequest { key, count_only: true, ..Default::default() })));
    }
    Ok(ask)
}

fn condition(requirement: &Require) -> (Target, TargetUnion) {
    match requirement {
        Require::Absent(_) => (Target::Create, TargetUnion::CreateRevision(0)),
        // etcd says zero of absent keys, but "at zero" holds for none.
        Require::At(_, Revision::ZERO) => (Target::Mod, TargetUnion::ModRevision(NEVER)),
        Require::At(_, revision) => {
            (Target::Mod, TargetUnion::ModRevision(number(*revision).unwrap_or(NEVER)))
        }
    }
}

/// Whether a key was last written at this revision of etcd's; zero if it must be absent.
pub(crate) fn precisely(key: Bytes, revision: i64) -> Compare {
    let target_union = Some(TargetUnion::ModRevision(revision));
    Compare { result: Relation::Equal.into(), target: Target::Mod.into(), key, target_union }
}

pub(crate) fn op(request: Op) -> RequestOp {
    RequestOp { request: Some(request) }
}

/// The requirement that does not hold, with what is there; nothing if all do.
fn unmet(
    layout: &Layout,
    require: &[Require],
    found: Vec<ResponseOp>,
    revision: Revision,
) -> Option<CommitError> {
    let read = |it: ResponseOp| match it.response {
        Some(Done::ResponseRange(range)) => range.kvs.first().and_then(|it| entry(layout, it)),
        _ => None,
    };
    let mut current: Vec<Option<Entry>> = found.into_iter().map(read).collect();
    current.resize(require.len(), None);
    let holds = |(it, entry): (&Require, &Option<Entry>)| it.holds(entry.as_ref().map(|it| it.modified));
    let failed = require.iter().zip(&current).position(|it| !holds(it))?;
    Some(CommitError::Unmet { failed, current, revision })
}

fn commit_error(failure: Failure) -> CommitError {
    match failure {
        Failure::NotSent(text) => CommitError::ReadOnly(format!("etcd was not reached: {text}")),
        Failure::Refused(Refusal::ReadOnly(text)) => CommitError::ReadOnly(text),
        Failure::Refused(refusal) => CommitError::Rejected(refusal.to_string()),
        Failure::TooLarge | Failure::Unknown(_) => CommitError::Unavailable(failure.to_string()),
        Failure::WentBack(it) => CommitError::ReadOnly(it.to_string()),
    }
}

/// The leases that puts hang on, each once.
fn leases(txn: &Txn) -> Vec<LeaseId> {
    let mut leases = Vec::new();
    for change in &txn.changes {
        if let Change::Put(_, _, Some(lease)) = change
            && !leases.contains(lease)
        {
            leases.push(*lease);
        }
    }
    leases
}

fn future(before: Revision) -> CommitError {
    CommitError::Rejected(format!("revision {before} is newer than the current one"))
}
