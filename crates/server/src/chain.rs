//! The path of a request: every request takes the steps of `Chain::steps`, top to bottom.
//!
//! Responsible for the order of the steps and for what every answer carries.
//! Deliberately not here: what a step does; each lives in a module of its own. Routes are in [`crate::dispatch`].

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Request, Response, header};
use meta::Status;
use parking_lot::Mutex;

use crate::{
    answer::{self, Answer},
    audit::Record,
    authenticate::{self, Authenticator},
    authorize,
    body::{Body, RequestBody},
    deadline,
    dispatch::Dispatch,
    forward::{self, Forwarder},
    impersonate,
    inflight::{self, InFlightGuard, InFlightLimits, RequestKind},
    lifecycle::Lifecycle,
    listen::{Handler, Peer},
    metrics::{Metrics, RequestKey},
    request::{Query, RequestInfo},
    route::{self, Route},
    storage_gate, transcode,
};

/// The longest name of a request that is taken over from its client, as upstream.
const MAX_AUDIT_ID: usize = 64;

/// Everything that requests go through, for one server.
pub struct Chain {
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) authorizer: access::Authorizer,
    pub(crate) audit: crate::audit::Auditor,
    pub(crate) limits: InFlightLimits,
    pub(crate) dispatch: Dispatch,
    pub(crate) forwarder: Forwarder,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) clock: store::SharedClock,
    pub(crate) request_timeout: Duration,
}

/// Who asks, once that is known.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Who it is, after impersonation.
    pub user: Arc<access::User>,
    /// Who it was before, if it impersonates somebody.
    pub real: Option<Arc<access::User>>,
}

/// A request on its way, without its body.
#[derive(Debug)]
pub struct Exchange {
    /// What it is about.
    pub info: RequestInfo,
    /// The decoded query.
    pub query: Query,
    /// The headers as they came.
    pub headers: HeaderMap,
    /// The method.
    pub method: http::Method,
    /// The path and query as they came.
    pub uri: http::Uri,
    /// Names the request in logs and in the answer.
    pub audit_id: String,
    /// Where it came from.
    pub peer: Arc<Peer>,
    /// What the client wants to make of the connection, until somebody takes it.
    pub(crate) upgrade: Mutex<Option<forward::Upgrade>>,
}

impl Handler for Chain {
    async fn handle(&self, request: Request<RequestBody>, peer: Arc<Peer>) -> Response<Body> {
        self.serve(request, peer, None).await
    }
}

impl Chain {
    /// Whether `/readyz` passes.
    pub fn is_ready(&self) -> bool {
        self.dispatch.health.is_ready()
    }

    /// One request, from the network or, with a caller that is known already, from this process.
    pub async fn serve(
        &self,
        request: Request<RequestBody>,
        peer: Arc<Peer>,
        known: Option<Caller>,
    ) -> Response<Body> {
        let started = self.clock.monotonic();
        let _counted = self.lifecycle.request_started();
        let (exchange, body) = Exchange::of(request, peer);
        let answer = self.steps(&exchange, body, known).await;
        let answer = transcode::finish(&self.dispatch.schemas, &exchange, answer).await;
        let took = self.clock.monotonic().saturating_sub(started);
        self.count(&exchange, &answer, took);
        finish(&exchange, answer)
    }

    /// Every request takes this path, top to bottom.
    async fn steps(&self, exchange: &Exchange, body: RequestBody, known: Option<Caller>) -> Answer {
        let caller = match known {
            Some(caller) => caller,
            None => match authenticate::step(self, exchange).await {
                Ok(user) => Caller { user, real: None },
                Err(status) => return self.refuse(exchange, status),
            },
        };
        let caller = match impersonate::step(self, exchange, caller) {
            Ok(caller) => caller,
            Err(status) => return self.refuse(exchange, status),
        };
        let mut record = Record::begin(self, exchange, &caller).await; // after authentication, so that the record has a user
        let result = async {
            let _slot = admit(self, exchange, &caller)?; // before work is done, also before authorization
            authorize::step(self, exchange, &caller)?;
            match route::step(self, exchange, &caller).await? {
                Route::Here => {
                    storage_gate::step(self, exchange, &caller)?; // writes wait until their version is reported
                    deadline::step(self, exchange, self.dispatch.route(exchange, &caller, body, &mut record))
                        .await
                }
                Route::There(servers) => {
                    let forwarded = forward::step(self, exchange, &caller, body, &mut record, &servers);
                    deadline::step(self, exchange, forwarded).await
                }
            }
        }
        .await;
        let answer = result.unwrap_or_else(|status| answer::status(exchange, status));
        record.end(self, exchange, answer).await
    }

    /// An answer to somebody who could not be recognised.
    fn refuse(&self, exchange: &Exchange, status: Status) -> Answer {
        answer::status(exchange, status)
    }

    fn count(&self, exchange: &Exchange, answer: &Answer, took: Duration) {
        let empty = crate::request::ResourcePath::default();
        let path = exchange.info.resource.as_ref().unwrap_or(&empty);
        let is_known = answer.is_known_resource;
        let shown = |text| if is_known { text } else { "" };
        let key = RequestKey {
            verb: metric_verb(exchange),
            dry_run: exchange.query.has("dryRun"),
            group: shown(path.group.as_str()),
            version: shown(path.version.as_str()),
            resource: shown(path.resource.as_str()),
            subresource: if is_known { path.subresource.as_str() } else { non_resource(&exchange.info.path) },
            scope: scope(path, is_known),
            code: answer.response.status().as_u16(),
        };
        if matches!(key.code, 429 | 504) {
            self.metrics.request_terminated(&key);
        }
        self.metrics.request_done(&key, took, answer.response.body().len());
    }
}

impl Exchange {
    pub(crate) fn of(request: Request<RequestBody>, peer: Arc<Peer>) -> (Self, RequestBody) {
        let (mut parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let info = RequestInfo::resolve(&parts.method, parts.uri.path(), &query);
        let audit_id = audit_id(&parts.headers);
        let upgrade = forward::Upgrade::of(&mut parts);
        let exchange = Self {
            info,
            query,
            headers: parts.headers,
            method: parts.method,
            uri: parts.uri,
            audit_id,
            peer,
            upgrade: Mutex::new(upgrade),
        };
        (exchange, body)
    }

    /// One header as text; empty if there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|it| it.to_str().ok()).unwrap_or_default()
    }
}

/// The name that the client, or the server that handed the request on, gave it; else a new one.
fn audit_id(headers: &HeaderMap) -> String {
    let given = headers.get("audit-id").and_then(|it| it.to_str().ok());
    if let Some(given) = given.filter(|it| (1..=MAX_AUDIT_ID).contains(&it.len())) {
        return given.to_owned();
    }
    // From the thread's generator: one call to the system per request would be felt.
    uuid::Builder::from_random_bytes(rand::random()).into_uuid().to_string()
}

/// 429 if too much is going on. Watches do not count, and operators always get in.
fn admit(chain: &Chain, exchange: &Exchange, caller: &Caller) -> Result<Option<InFlightGuard>, Status> {
    if exchange.info.is_long_running() {
        return Ok(None);
    }
    let kind = RequestKind::of_verb(exchange.info.verb);
    if caller.user.is_in("system:masters") {
        return Ok(Some(chain.limits.acquire(kind)));
    }
    let slot = chain.limits.try_acquire(kind);
    slot.map(Some).ok_or_else(|| Status::too_many_requests(inflight::REFUSAL, 1))
}

/// What every answer carries.
fn finish(exchange: &Exchange, answer: Answer) -> Response<Body> {
    let mut response = answer.response;
    let headers = response.headers_mut();
    if let Ok(mut id) = HeaderValue::from_str(&exchange.audit_id) {
        // No two answers have the same: HTTP/2 does not try to remember it.
        id.set_sensitive(true);
        headers.insert("audit-id", id);
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    response
}

/// Upstream's names of verbs in metrics.
fn metric_verb(exchange: &Exchange) -> &'static str {
    match exchange.info.verb {
        "list" => "LIST",
        "watch" => "WATCH",
        "create" | "post" => "POST",
        "update" | "put" => "PUT",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        "get" => "GET",
        _ => "other",
    }
}

fn scope(path: &crate::request::ResourcePath, is_known: bool) -> &'static str {
    match (is_known, path.name.is_empty(), path.namespace.is_empty()) {
        (false, _, _) => "",
        (true, false, _) => "resource",
        (true, true, false) => "namespace",
        (true, true, true) => "cluster",
    }
}

/// The label of requests outside the resources: only paths that exist, so that strangers cannot make up labels.
fn non_resource(path: &str) -> &'static str {
    const KNOWN: [&str; 7] = ["/healthz", "/livez", "/readyz", "/version", "/metrics", "/apis", "/api"];
    KNOWN.into_iter().find(|it| path.starts_with(it)).unwrap_or("")
}
