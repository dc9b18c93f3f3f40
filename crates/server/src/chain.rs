//! The path of a request: every request takes the steps of `Chain::steps`, top to bottom.
//!
//! Responsible for the order of the steps and for what every answer carries.
//! Deliberately not here: what a step does; each lives in a module of its own. Routes are in [`crate::dispatch`].

use std::{ops::Deref, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body::Body as _;
use meta::{Grounds, RetryAfter, Status, grounds::HEADER};
use parking_lot::Mutex;

use crate::{
    answer::{self, Answer},
    audit::{self, Record},
    authenticate::{self, Authenticator},
    authorize::{self, Authorized},
    body::{Body, RequestBody, full_body},
    deadline,
    dispatch::Dispatch,
    forward::{self, Candidate, Forwarder},
    impersonate,
    inflight::{self, InFlightLimits},
    lifecycle::Lifecycle,
    listen::{Handler, Peer},
    metrics::{Metrics, RequestKey},
    payer::Payer,
    request::{Query, RequestInfo},
    route::{self, Route},
    slot::Slot,
    storage_gate, transcode,
    uploads::Uploads,
};

/// The longest name of a request that is taken over from its client, as upstream.
const MAX_AUDIT_ID: usize = 64;

/// Everything that requests go through, for one server.
pub struct Chain {
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) authorizer: access::Authorizer,
    pub(crate) audit: audit::Auditor,
    pub(crate) limits: InFlightLimits,
    pub(crate) uploads: Uploads,
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
    /// On whose account it is: that of whoever authenticated.
    pub(crate) payer: Payer,
}

impl Caller {
    /// Somebody who authenticated.
    pub(crate) fn of(user: Arc<access::User>) -> Self {
        let payer = Payer::of(&user);
        Self { user, real: None, payer }
    }

    /// The same acting as somebody else.
    pub(crate) fn acting_as(self, user: access::User) -> Self {
        Self { user: Arc::new(user), real: Some(self.user), payer: self.payer }
    }

    /// The same on the account of whoever acts as them on the server that handed the request on. Only the name is known:
    /// that it is an operator's cannot be.
    pub(crate) fn paid_by(self, name: &str) -> Self {
        Self { payer: Payer::named(name), ..self }
    }

    /// Whoever authenticated is in `system:masters`: their rights do not rest on what a server remembers, and the limits are
    /// not for them. Acting as such a one does not count.
    pub(crate) fn is_operator(&self) -> bool {
        self.payer.is_operator()
    }
}

/// What a request holds until its answer has left.
#[derive(Default)]
struct Held {
    /// On whose account it computes; nobody's if it was refused before that was known.
    payer: Payer,
    slot: Option<Slot>,
}

/// A request on its way, without its body. Behind authorization only [`authorize::Authorized`] goes on.
#[derive(Debug)]
pub struct Exchange {
    /// What it is about.
    pub info: RequestInfo,
    /// The path and query as they came.
    pub uri: http::Uri,
    envelope: Envelope,
}

/// What comes with a request besides what it asks for.
#[derive(Debug)]
pub struct Envelope {
    /// The decoded query, without what says what is asked for.
    pub query: Query,
    /// The headers as they came.
    pub headers: HeaderMap,
    /// The method.
    pub method: http::Method,
    /// Names the request in logs and in the answer.
    pub audit_id: String,
    /// Where it came from.
    pub peer: Arc<Peer>,
    /// The facts on which the request rests, or why they cannot be read.
    grounds: Result<Grounds, String>,
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
        let mut held = Held::default();
        let answer = self.steps(&exchange, body, known, &mut held).await;
        let Dispatch { schemas, pool, .. } = &self.dispatch;
        let answer = transcode::finish(schemas, pool, &held.payer, &exchange, answer).await;
        let took = self.clock.monotonic().saturating_sub(started);
        self.count(&exchange, &answer, took);
        let mut response = finish(&exchange, answer);
        if exchange.info.is_long_running() {
            response = response.map(Body::long);
        }
        response.body_mut().set_time(self.request_timeout);
        if let Some(slot) = held.slot.and_then(Slot::into_guard) {
            response.body_mut().set_slot(slot);
        }
        response
    }

    /// Every request takes this path, top to bottom.
    async fn steps(
        &self,
        exchange: &Exchange,
        body: RequestBody,
        known: Option<Caller>,
        held: &mut Held,
    ) -> Answer {
        let caller = match known {
            Some(caller) => caller,
            None => match authenticate::step(self, exchange).await {
                Ok(user) => Caller::of(user),
                Err(status) => return audit::failed_login(self, exchange, status).await,
            },
        };
        let mut record = Record::begin(self, exchange, &caller.user).await; // after authentication, so that the record has a user
        let result = async {
            check_reserve(exchange, &caller)?; // the last connections are not for everybody
            forward::sender::step(self, exchange).await?; // another cluster's server speaks for nobody here
            let caller = forward::sender::with_payer(self, exchange, caller); // who it is of on that server
            held.payer.clone_from(&caller.payer);
            let caller = impersonate::step(self, exchange, caller).await?;
            record.impersonated(&caller);
            let slot = Slot::take(self, exchange, &caller)?; // before work is done, also before authorization
            let slot = held.slot.insert(slot);
            let asked = authorize::step(self, exchange, &caller, slot, &mut record).await?;
            self.dispatch.prepare_documents(&asked).await;
            match route::step(self, &asked).await? {
                Route::Here(absence) => {
                    storage_gate::step(self, &asked)?; // writes wait until their version is reported
                    let absence = absence.as_ref();
                    let routed = self.dispatch.route(&asked, body, &mut record, absence);
                    let done = deadline::step(self, exchange, routed).await;
                    let code = done.as_ref().map_or_else(|it| it.code, |it| it.response.status().as_u16());
                    match route::after_failure(self, &asked, code) {
                        // Reads have no body.
                        Some(servers) => {
                            self.hand_on(&asked, exchange, full_body(""), &mut record, &servers).await
                        }
                        None => done,
                    }
                }
                Route::There(servers) => self.hand_on(&asked, exchange, body, &mut record, &servers).await,
            }
        }
        .await;
        let answer = result.unwrap_or_else(|status| answer::status(exchange, status));
        record.end(exchange, answer).await
    }

    /// Lets one of `servers` answer.
    async fn hand_on(
        &self,
        asked: &Authorized<'_>,
        exchange: &Exchange,
        body: RequestBody,
        record: &mut Record,
        servers: &[Vec<Candidate>],
    ) -> Result<Answer, Status> {
        let forwarded = async {
            let is_stream = asked.info().is_long_running() || exchange.upgrade.lock().is_some();
            // Also here nobody who sends slowly keeps a slot.
            let body = match is_stream || body.is_end_stream() {
                true => body,
                false => full_body(asked.read(body).await?),
            };
            forward::step(self, asked, body, record, servers).await
        };
        deadline::step(self, exchange, forwarded).await
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
            subresource: match is_known {
                true => known_subresource(&path.subresource),
                false => non_resource(&exchange.info.path),
            },
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
        let grounds = grounds(&parts.headers);
        let envelope = Envelope {
            query: query.without_what_is_asked_for(),
            headers: parts.headers,
            method: parts.method,
            audit_id,
            peer,
            grounds,
            upgrade: Mutex::new(upgrade),
        };
        (Self { info, uri: parts.uri, envelope }, body)
    }
}

/// Before authorization a request is read as a whole.
impl Deref for Exchange {
    type Target = Envelope;

    fn deref(&self) -> &Envelope {
        &self.envelope
    }
}

impl Envelope {
    /// The facts on which the request rests: they hold when it is carried out, or it is not. 400 if they cannot be read,
    /// because then it must not be carried out without them.
    pub(crate) fn grounds(&self) -> Result<&Grounds, Status> {
        let refuse = |why: &String| Status::bad_request(format!("the header {HEADER} cannot be read: {why}"));
        self.grounds.as_ref().map_err(refuse)
    }

    /// One header as text; empty if there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|it| it.to_str().ok()).unwrap_or_default()
    }
}

/// The facts that the client states.
fn grounds(headers: &HeaderMap) -> Result<Grounds, String> {
    let mut values = headers.get_all(HEADER).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(Grounds::asked_for()),
        (Some(value), None) => Grounds::from_header(value.as_bytes()),
        (Some(_), Some(_)) => Err("it is there more than once".to_owned()),
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

/// 429 on one of the last connections, unless it is about health or an administrator's.
fn check_reserve(exchange: &Exchange, caller: &Caller) -> Result<(), Status> {
    let is_health = ["/healthz", "/livez", "/readyz"].iter().any(|it| exchange.info.path.starts_with(it));
    if exchange.peer.is_reserved && caller.is_operator() {
        exchange.peer.stay();
        return Ok(());
    }
    if !exchange.peer.is_reserved || is_health {
        return Ok(());
    }
    Err(Status::too_many_requests(inflight::REFUSAL, RetryAfter::not_begun(1)))
}

/// What every answer carries.
fn finish(exchange: &Exchange, answer: Answer) -> Response<Body> {
    let mut response = answer.response;
    response.body_mut().set_reserved(answer.reserved);
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

/// The label of a subresource: only those that exist, so that strangers cannot make up labels.
fn known_subresource(name: &str) -> &'static str {
    const KNOWN: [&str; 14] = [
        "approval",
        "attach",
        "binding",
        "ephemeralcontainers",
        "eviction",
        "exec",
        "finalize",
        "log",
        "portforward",
        "proxy",
        "resize",
        "scale",
        "status",
        "token",
    ];
    KNOWN.into_iter().find(|it| *it == name).unwrap_or("")
}

/// The label of requests outside the resources: only paths that exist, so that strangers cannot make up labels.
fn non_resource(path: &str) -> &'static str {
    const KNOWN: [&str; 7] = ["/healthz", "/livez", "/readyz", "/version", "/metrics", "/apis", "/api"];
    KNOWN.into_iter().find(|it| path.starts_with(it)).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use access::User;

    use super::*;
    use crate::body::no_body;

    /// Acting as an administrator makes nobody one, here or on the server that hands the request on.
    #[test]
    fn operators_are_those_who_authenticated() {
        let master = User { groups: vec!["system:masters".to_owned()], ..User::named("m") };
        let of = |user: &User| Caller::of(Arc::new(user.clone()));
        let eve = User::named("eve");
        assert!(of(&master).is_operator() && !of(&eve).is_operator());
        assert!(of(&master).acting_as(eve.clone()).is_operator());
        assert!(!of(&eve).acting_as(master.clone()).is_operator());
        assert!(!of(&master).paid_by("eve").is_operator());
        let counted: Vec<String> =
            of(&master).paid_by("eve").payer.parts().map(|it| it.0.to_string()).collect();
        assert_eq!(counted, ["eve"]);
    }

    /// The last connections are for health checks and for those who are administrators themselves.
    #[test]
    fn the_reserve_is_for_health_and_administrators() {
        let check = |path: &str, user: &User, is_reserved: bool| {
            let mut peer = Peer::without_certificate(([10, 0, 0, 1], 1).into());
            peer.is_reserved = is_reserved;
            let peer = Arc::new(peer);
            let (exchange, _) = Exchange::of(Request::get(path).body(no_body()).unwrap(), Arc::clone(&peer));
            let checked = check_reserve(&exchange, &Caller::of(Arc::new(user.clone())));
            (checked.map_err(|it| it.code), peer.is_to_leave())
        };
        let (alice, pods) = (User::named("alice"), "/api/v1/pods");
        let master = User { groups: vec!["system:masters".to_owned()], ..User::named("m") };
        assert_eq!(check(pods, &alice, false), (Ok(()), false));
        assert_eq!(check(pods, &alice, true), (Err(429), true));
        assert_eq!(check("/version", &User::anonymous(), true), (Err(429), true));
        for path in ["/livez", "/readyz/ping", "/healthz"] {
            assert_eq!(check(path, &User::anonymous(), true), (Ok(()), true), "{path}");
        }
        assert_eq!(check(pods, &master, true), (Ok(()), false));
    }
}
