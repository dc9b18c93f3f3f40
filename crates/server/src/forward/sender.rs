//! Takes in a request that another server handed on, if that server is a member of this cluster.
//!
//! A copy of a cluster has its certificates, and knows where its servers were. So a certificate is not enough: the sender
//! must be a process that this server finds among the members, and of the same cluster. `fleet::sender` decides.

use fleet::{
    Identity,
    sender::{Claim, Verdict},
};
use meta::{GroupResource, RetryAfter, Status};

use super::{BY, CLUSTER, INCARNATION, REAL};
use crate::{
    chain::{Caller, Chain, Envelope},
    route,
};

/// 403 if the sender is of another cluster, 503 if it is no member; nothing of the request has been done then.
pub(crate) async fn step(chain: &Chain, exchange: &Envelope) -> Result<(), Status> {
    if !route::is_forwarded(chain, exchange) {
        return Ok(());
    }
    let station = chain.dispatch.registry.station();
    let sender = Identity::new(exchange.header(BY));
    let said = |name| Some(exchange.header(name)).filter(|it| !it.is_empty());
    let claim = Claim { incarnation: said(INCARNATION), cluster: said(CLUSTER) };
    let mut verdict = station.judge(&sender, &claim);
    if verdict == Verdict::Unknown {
        // It may have joined a moment ago. Whoever asks at the same time shares the look at the store.
        if let Err(why) = station.catch_up().await {
            tracing::warn!(why, "whether a request comes from a member cannot be told");
        }
        verdict = station.judge(&sender, &claim);
    }
    let address = exchange.peer.address;
    let (reason, status) = match verdict {
        Verdict::Member => return Ok(()),
        Verdict::OtherCluster => ("other_cluster", other_cluster()),
        Verdict::Unknown => ("unknown_member", unknown_member()),
    };
    chain.metrics.peer_request_refused(reason);
    tracing::warn!(
        %sender, %address, incarnation = claim.incarnation, cluster = claim.cluster, reason,
        "a request that was handed on by a server that is no member of this cluster was refused"
    );
    Err(status)
}

/// The caller, on the account of whoever acts as them on the server that handed the request on. Servers of 0.1.0, which do
/// not say which process they are, pass such a header on as it came from a client.
pub(crate) fn with_payer(chain: &Chain, exchange: &Envelope, caller: Caller) -> Caller {
    let is_said = exchange.headers.contains_key(REAL) && exchange.headers.contains_key(INCARNATION);
    if !is_said || !route::is_forwarded(chain, exchange) {
        return caller;
    }
    caller.paid_by(exchange.header(REAL))
}

fn other_cluster() -> Status {
    let why = "the request was proxied by an apiserver of another cluster, which may be a copy of this one";
    Status::forbidden(&GroupResource::new("", ""), "", why)
}

fn unknown_member() -> Status {
    Status::unavailable(
        "the request was proxied by an apiserver that is no member of this cluster",
        RetryAfter::not_begun(1),
    )
}
