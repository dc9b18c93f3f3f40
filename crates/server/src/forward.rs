//! Hands a request to another server of the cluster, and its answer back.
//!
//! # Flow
//! [`step`] tries the servers in the order it was given them, equals in turn. What is carried along, and what is not, is
//! in [`headers`]; connections that become something else than HTTP are in [`upgrade`].
//!
//! # Guarantees
//! A request is tried again only if nothing of it was sent, or if it can only read; a server that answers 503 to a read
//! is passed over, too. Bodies are streamed in both directions. The client never learns where the other servers are.
//! Deliberately not here: which servers can answer ([`crate::route`], `fleet::route`).

mod headers;
mod upgrade;

use std::sync::{
    Arc, Weak,
    atomic::{AtomicUsize, Ordering},
};

use access::RequestHeaderConfig;
use fleet::Identity;
use futures_util::StreamExt;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use meta::Status;
use station::Station;

use crate::{
    answer::Answer,
    audit::Record,
    body::{Body, BoxError, RequestBody, no_body},
    chain::{Caller, Chain, Exchange},
    lifecycle::{Lifecycle, Tasks},
    peers::{
        Peers,
        link::{Incoming, pieces, whole},
        pool::{NoAnswer, Place, Pool, Pools},
    },
};

use headers::Carrier;
pub(crate) use headers::{BY, MARK};
pub(crate) use upgrade::Upgrade;

/// Answers up to this length are read as a whole: one write to the client instead of several.
const SMALL: u64 = 64 * 1024;

/// What the client is told, in the seed's words.
const FAILED: &str = "Error while proxying request to destination apiserver";

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

/// The answer of one of the candidates, or 503.
pub(crate) async fn step(
    chain: &Chain,
    exchange: &Exchange,
    caller: &Caller,
    body: RequestBody,
    record: &mut Record,
    candidates: &[Vec<Candidate>],
) -> Result<Answer, Status> {
    let forwarder = &chain.forwarder;
    let Some(pools) = &forwarder.pools else {
        chain.metrics.peer_proxy_error("proxy_transport", exchange);
        tracing::warn!("a request cannot be handed on: this server has no --peer-ca-file");
        return Err(failed());
    };
    let me = chain.dispatch.registry.station().identity();
    let mut carried = Some(forwarder.carrier.headers(exchange, caller, me)?);
    let order = forwarder.order(pools, candidates);
    if order.is_empty() {
        chain.metrics.peer_proxy_error("endpoint_resolution", exchange);
        return Err(failed());
    }
    let wanted = exchange.upgrade.lock().take();
    if let Some(wanted) = wanted {
        let request = build(exchange, carried.take().unwrap_or_default(), body);
        let upgraded = upgrade::forward(forwarder, pools, &order, request, wanted).await;
        return finish(chain, exchange, record, upgraded);
    }
    let is_watch = exchange.info.is_long_running();
    let can_repeat = matches!(exchange.method, Method::GET | Method::HEAD | Method::OPTIONS);
    let mut last: Result<(&Candidate, Response<Body>), BoxError> = Err(FAILED.into());
    let mut body = Some(body);
    for Reachable { candidate, address, pool } in order {
        let Some(body_left) = body.take().or_else(|| can_repeat.then(no_body)) else { break };
        let headers = match carried.take() {
            Some(headers) => headers,
            None => forwarder.carrier.headers(exchange, caller, me)?,
        };
        let request = at(build(exchange, headers, body_left), address)?;
        match pools.send(&pool, request, is_watch).await {
            Ok((response, place)) => {
                let response = receive(forwarder, response, place, is_watch).await;
                let is_good =
                    response.as_ref().is_ok_and(|it| it.status() != StatusCode::SERVICE_UNAVAILABLE);
                last = response.map(|it| (candidate, it));
                if is_good || !can_repeat {
                    break;
                }
            }
            Err(NoAnswer { error, unsent }) => {
                last = Err(error);
                body = unsent;
            }
        }
        if let Err(error) = &last {
            tracing::warn!(peer = %candidate.identity, address, %error, "{FAILED}");
        }
    }
    finish(chain, exchange, record, last)
}

/// 503, without a word about where the others are.
fn failed() -> Status {
    Status::unavailable(FAILED, 1)
}

/// Counts and records what became of it.
fn finish(
    chain: &Chain,
    exchange: &Exchange,
    record: &mut Record,
    result: Result<(&Candidate, Response<Body>), BoxError>,
) -> Result<Answer, Status> {
    match result {
        Ok((candidate, mut response)) => {
            chain.metrics.rerouted(exchange, response.status().as_u16());
            record.annotate("convoy/forwarded-to".to_owned(), candidate.identity.to_string());
            headers::strip_answer(response.headers_mut());
            Ok(Answer::forwarded(response))
        }
        Err(_logged) => {
            chain.metrics.rerouted(exchange, 503);
            Err(failed())
        }
    }
}

fn build(exchange: &Exchange, headers: HeaderMap, body: RequestBody) -> Request<RequestBody> {
    let mut request = Request::new(body);
    *request.method_mut() = exchange.method.clone();
    *request.headers_mut() = headers;
    *request.uri_mut() = exchange.uri.clone();
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
