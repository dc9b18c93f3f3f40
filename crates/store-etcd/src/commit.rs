//! Writes: one transaction is one transaction of etcd. The failure branch reads every required key, so that
//! an unmet requirement comes with what is there.

use store::{Change, CommitError, Entry, LeaseId, Require, Revision, Txn};

use crate::{
    client::{MAX_ANSWER, request},
    convert::{entry, number, revision},
    failure::{Failure, Harm, Refusal},
    layout::Layout,
    proto::{
        CompactionRequest, CompactionResponse, Compare, DeleteRangeRequest, PutRequest, RangeRequest,
        RequestOp, ResponseOp, TxnRequest, TxnResponse,
        compare::{Result as Relation, Target, TargetUnion},
        kv_client::KvClient,
        request_op::Request as Op,
        response_op::Response as Done,
    },
    store::Inner,
};

/// etcd's default for `--max-txn-ops`.
const MAX_OPS: usize = 128;
/// No key was ever written at this revision.
const NEVER: i64 = -1;

impl Inner {
    pub(crate) async fn commit(&self, txn: Txn) -> Result<Revision, CommitError> {
        let ask = plan(&self.layout, &txn)?;
        let ask = &ask;
        let call = |channel| async move {
            KvClient::new(channel).max_decoding_message_size(MAX_ANSWER).txn(request(ask.clone())).await
        };
        let answer: Result<TxnResponse, Failure> = self.client.call(Harm::Possible, call).await;
        let answer = match answer {
            Ok(answer) => answer,
            // etcd does not say which one.
            Err(Failure::Refused(Refusal::NoLease)) => {
                return Err(CommitError::NoLease(self.first_missing(&leases(&txn)).await));
            }
            Err(Failure::Refused(Refusal::ReadOnly(text))) => return Err(self.refused(&txn, text).await),
            Err(failure) => return Err(commit_error(failure)),
        };
        let at = answer.header.map_or(Revision::ZERO, |it| revision(it.revision));
        if answer.succeeded { Ok(at) } else { Err(unmet(&self.layout, &txn.require, answer.responses, at)) }
    }

    /// What is to be said of a transaction that etcd has no room for. One that fills it up is refused in the same words
    /// and done all the same, so the store is asked whether what was to be put is there.
    async fn refused(&self, txn: &Txn, text: String) -> CommitError {
        let put = txn.changes.iter().find_map(|it| match it {
            Change::Put(key, value, _) => Some((key, value)),
            Change::Delete(_) => None,
        });
        let Some((key, value)) = put else { return CommitError::Unavailable(text) };
        match self.get(key).await {
            Ok(found) if found.as_ref().is_none_or(|it| it.value != *value) => CommitError::ReadOnly(text),
            _ => CommitError::Unavailable(text),
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

/// The transaction in etcd's words, or why there is none.
fn plan(layout: &Layout, txn: &Txn) -> Result<TxnRequest, CommitError> {
    txn.check()?;
    let n_ops = txn.changes.len().max(txn.require.len());
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

fn op(request: Op) -> RequestOp {
    RequestOp { request: Some(request) }
}

fn unmet(layout: &Layout, require: &[Require], found: Vec<ResponseOp>, revision: Revision) -> CommitError {
    let read = |it: ResponseOp| match it.response {
        Some(Done::ResponseRange(range)) => range.kvs.first().and_then(|it| entry(layout, it)),
        _ => None,
    };
    let mut current: Vec<Option<Entry>> = found.into_iter().map(read).collect();
    current.resize(require.len(), None);
    let holds = |(it, entry): (&Require, &Option<Entry>)| it.holds(entry.as_ref().map(|it| it.modified));
    match require.iter().zip(&current).position(|it| !holds(it)) {
        Some(failed) => CommitError::Unmet { failed, current, revision },
        // Compares and reads of one transaction see one state, so this cannot be etcd.
        None => CommitError::Unavailable("etcd refused requirements that hold".into()),
    }
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
