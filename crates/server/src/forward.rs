//! Hands a request to another server of the cluster, and its answer back.
//!
//! # Flow
//! [`step`] tries the servers in the order it was given them, equals in turn. What is carried along, and what is not, is
//! in [`headers`]; connections that become something else than HTTP are in [`upgrade`].
//!
//! # Guarantees
//! A request is tried again only if nothing of it was sent, or if it can only read; a server that answers 503 to a read
//! is passed over, too. The client is told to try again only where the other servers did nothing: a write that was sent,
//! if only in part, and whose answer is lost may have happened. Bodies are streamed in both directions. The client never
//! learns where the other servers are. What comes from another server is taken in only if that is a member ([`sender`]).
//! Deliberately not here: which servers can answer ([`crate::route`], `fleet::route`).

mod headers;
pub(crate) mod sender;
mod upgrade;

use std::borrow::Cow;
use std::sync::{
    Arc, Weak,
    atomic::{AtomicUsize, Ordering},
};

use access::RequestHeaderConfig;
use fleet::{Identity, MemberRecord};
use futures_util::StreamExt;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use meta::{DidNotHappen, RetryAfter, Status};
use station::Station;

use crate::{
    answer::Answer,
    audit::Record,
    authorize::Authorized,
    body::{Body, BoxError, RequestBody, no_body},
    chain::{Chain, Envelope},
    lifecycle::{Lifecycle, Tasks},
    peers::{
        Peers,
        link::{Incoming, pieces, whole},
        pool::{NoAnswer, Place, Pool, Pools},
    },
};

pub(crate) use headers::{BY, CLUSTER, INCARNATION, MARK, REAL};
use headers::{Carrier, Sender};
pub(crate) use upgrade::Upgrade;

/// Answers up to this length are read as a whole: one write to the client instead of several.
const SMALL: u64 = 64 * 1024;

/// What the client is told, in the seed's words.
const FAILED: &str = "Error while proxying request to destination apiserver";

/// What it is told of a write that may have happened.
const LOST: &str = "request did not complete within the allotted timeout: the answer of the destination apiserver was \
                    lost; the request may or may not have been carried out";

/// How many servers are tried for one request.
const MAX_TRIES: usize = 8;

/// A server that can answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) identity: Identity,
    /// `None` if it did not say where it is.
    pub(crate) address: Option<String>,
}

/// A candidate that has said where it is.
struct Reachable<'a> {
    candidate: &'a Candidate,
    address: &'a str,
    pool: Arc<Pool>,
}

/// What forwards requests, for one server.
pub(crate) struct Forwarder {
    /// `None` if this server cannot prove itself to others.
    pools: Option<Pools>,
    carrier: Carrier,
    /// Which of several equal servers is next.
    turn: AtomicUsize,
    tasks: Tasks,
    lifecycle: Lifecycle,
}

impl Forwarder {
    pub(crate) fn new(
        peers: Option<Peers>,
        names: RequestHeaderConfig,
        lifecycle: &Lifecycle,
        clock: &store::SharedClock,
    ) -> Self {
        let tasks = lifecycle.tasks().clone();
        let pools = peers.map(|it| Pools::new(it, tasks.clone(), clock.clone()));
        Self {
            pools,
            carrier: Carrier::new(names),
            turn: AtomicUsize::new(0),
            tasks,
            lifecycle: lifecycle.clone(),
        }
    }

    /// Forgets connections to servers that are no longer members, for as long as this server runs.
    pub(crate) async fn forget_departed(chain: Weak<Chain>, station: Station) {
        let mut seen = 0;
        loop {
            station.until(|it| it.memberships() != seen).await;
            seen = station.memberships();
            let Some(chain) = chain.upgrade() else { return };
            if let Some(pools) = &chain.forwarder.pools {
                let (members, _) = station.members();
                pools.keep_only(&members.iter().filter_map(|it| it.peer_address.as_deref()).collect());
            }
        }
    }

    /// The candidates in the order in which they are tried: better ones first, equals in turn, and those that could not
    /// be reached a moment ago last.
    fn order<'a>(&self, pools: &Pools, candidates: &'a [Vec<Candidate>]) -> Vec<Reachable<'a>> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for equals in candidates.iter().filter(|it| !it.is_empty()) {
            let (before, after) = equals.split_at(turn % equals.len());
            for candidate in after.iter().chain(before) {
                let Some(address) = candidate.address.as_deref() else { continue };
                let it = Reachable { candidate, address, pool: pools.pool(address) };
                if pools.is_worth_asking(&it.pool) { good.push(it) } else { bad.push(it) }
            }
        }
        good.append(&mut bad);
        good.truncate(MAX_TRIES);
        good
    }
}

/// The answer of one of the candidates; 503 if none did anything, 504 if one may have.
pub(crate) async fn step(
    chain: &Chain,
    asked: &Authorized<'_>,
    body: RequestBody,
    record: &mut Record,
    candidates: &[Vec<Candidate>],
) -> Result<Answer, Status> {
    let (exchange, caller, forwarder) = (asked.envelope(), asked.caller(), &chain.forwarder);
    let Some(pools) = &forwarder.pools else {
        chain.metrics.peer_proxy_error("proxy_transport", asked);
        tracing::warn!("a request cannot be handed on: this server has no --peer-ca-file");
        return Err(failed());
    };
    let station = chain.dispatch.registry.station();
    let me = Sender {
        identity: station.identity().clone(),
        incarnation: station.incarnation().clone(),
        cluster: station.cluster_id(),
    };
    let mut carried = Some(forwarder.carrier.headers(exchange, caller, &me)?);
    let candidates = justified(chain, exchange, candidates)?;
    let order = forwarder.order(pools, &candidates);
    if order.is_empty() {
        chain.metrics.peer_proxy_error("endpoint_resolution", asked);
        return Err(failed());
    }
    let wanted = exchange.upgrade.lock().take();
    if let Some(wanted) = wanted {
        let request = build(asked, carried.take().unwrap_or_default(), body);
        let upgraded = upgrade::forward(forwarder, pools, &order, request, wanted).await;
        // What a connection became cannot be repeated, whatever the method.
        return finish(chain, asked, record, upgraded);
    }
    let is_watch = asked.info().is_long_running();
    let can_repeat = only_reads(&exchange.method);
    let mut last: Result<(&Candidate, Response<Body>), Unanswered> = Err(Unanswered::Undone(Undone));
    let mut body = Some(body);
    for Reachable { candidate, address, pool } in order {
        let Some(body_left) = body.take().or_else(|| can_repeat.then(no_body)) else { break };
        let headers = match carried.take() {
            Some(headers) => headers,
            None => forwarder.carrier.headers(exchange, caller, &me)?,
        };
        let request = at(build(asked, headers, body_left), address)?;
        match pools.send(&pool, request, is_watch).await {
            Ok((response, place)) => {
                let response = receive(forwarder, response, place, is_watch).await;
                let is_good =
                    response.as_ref().is_ok_and(|it| it.status() != StatusCode::SERVICE_UNAVAILABLE);
                last = match response {
                    Ok(response) => Ok((candidate, response)),
                    Err(error) => {
                        warn(candidate, address, &error);
                        Err(Unanswered::after(can_repeat))
                    }
                };
                if is_good || !can_repeat {
                    break;
                }
            }
            Err(NoAnswer { error, unsent, was_done }) => {
                warn(candidate, address, &error);
                last = Err(if was_done { Unanswered::after(can_repeat) } else { Unanswered::Undone(Undone) });
                body = unsent;
            }
        }
    }
    finish(chain, asked, record, last)
}

/// The candidates that will require the facts on which the request rests; all of them if it rests on none.
fn justified<'a>(
    chain: &Chain,
    exchange: &Envelope,
    candidates: &'a [Vec<Candidate>],
) -> Result<Cow<'a, [Vec<Candidate>]>, Status> {
    if exchange.grounds()?.facts().is_empty() {
        return Ok(Cow::Borrowed(candidates));
    }
    let (members, _) = chain.dispatch.registry.station().members();
    let requires = |it: &Candidate| members.get(&it.identity).is_some_and(MemberRecord::requires_grounds);
    let mut candidates = candidates.to_vec();
    candidates.iter_mut().for_each(|list| list.retain(requires));
    Ok(Cow::Owned(candidates))
}

fn warn(candidate: &Candidate, address: &str, error: &BoxError) {
    tracing::warn!(peer = %candidate.identity, address, %error, "{FAILED}");
}

/// Why there is no answer.
enum Unanswered {
    /// Nobody did anything.
    Undone(Undone),
    /// Somebody may have.
    Unknown,
}

/// Nothing was sent, or the other server said that it did nothing with it, or it could only read.
struct Undone;

impl DidNotHappen for Undone {}

impl Unanswered {
    /// What is known of a request that was sent.
    fn after(can_repeat: bool) -> Self {
        if can_repeat { Self::Undone(Undone) } else { Self::Unknown }
    }

    /// Without a word about where the others are.
    fn status(&self) -> Status {
        match self {
            Self::Undone(proof) => Status::unavailable(FAILED, RetryAfter::proven(1, proof)),
            Self::Unknown => Status::timeout(LOST),
        }
    }
}

/// 503: there is nobody to send it to.
fn failed() -> Status {
    Unanswered::Undone(Undone).status()
}

/// Whether a request can be sent twice without harm.
fn only_reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Counts and records what became of it.
fn finish(
    chain: &Chain,
    asked: &Authorized<'_>,
    record: &mut Record,
    result: Result<(&Candidate, Response<Body>), Unanswered>,
) -> Result<Answer, Status> {
    match result {
        Ok((candidate, mut response)) => {
            chain.metrics.rerouted(asked, response.status().as_u16());
            record.annotate("convoy/forwarded-to".to_owned(), candidate.identity.to_string());
            headers::strip_answer(response.headers_mut());
            if response.status().is_server_error() && !only_reads(&asked.envelope().method) {
                let (members, _) = chain.dispatch.registry.station().members();
                // Servers of 0.1.0 ask clients to try again though something may have happened.
                if !members.get(&candidate.identity).is_some_and(MemberRecord::requires_grounds) {
                    response.headers_mut().remove(header::RETRY_AFTER);
                }
            }
            Ok(Answer::forwarded(response))
        }
        Err(unanswered) => {
            let status = unanswered.status();
            chain.metrics.rerouted(asked, status.code);
            Err(status)
        }
    }
}

fn build(asked: &Authorized<'_>, headers: HeaderMap, body: RequestBody) -> Request<RequestBody> {
    let mut request = Request::new(body);
    *request.method_mut() = asked.envelope().method.clone();
    *request.headers_mut() = headers;
    *request.uri_mut() = asked.uri().clone();
    request
}

/// The request for one server: path and query stay byte for byte what they were.
fn at(mut request: Request<RequestBody>, address: &str) -> Result<Request<RequestBody>, Status> {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(http::uri::Scheme::HTTPS);
    parts.authority = Some(address.parse().map_err(Status::internal)?);
    parts.path_and_query = request.uri().path_and_query().cloned();
    *request.uri_mut() = Uri::from_parts(parts).map_err(Status::internal)?;
    Ok(request)
}

/// The answer with a body that is read as it comes; a small one is read at once.
async fn receive(
    forwarder: &Forwarder,
    response: Response<Incoming>,
    place: Place,
    is_watch: bool,
) -> Result<Response<Body>, BoxError> {
    let (parts, incoming) = response.into_parts();
    let length =
        parts.headers.get(header::CONTENT_LENGTH).and_then(|it| it.to_str().ok()?.parse::<u64>().ok());
    let body = match length {
        Some(0) => Body::empty(),
        Some(length) if length <= SMALL && !is_watch => Body::full(whole(incoming).await?),
        _ => {
            let pieces = pieces(incoming).inspect(move |_| {
                // Counted for as long as it is read.
                let _held = &place;
            });
            if is_watch {
                // A watch ends with the server through which it was opened.
                Body::stream(pieces.take_until(Box::pin(forwarder.lifecycle.draining())))
            } else {
                Body::stream(pieces)
            }
        }
    };
    Ok(Response::from_parts(parts, body))
}
