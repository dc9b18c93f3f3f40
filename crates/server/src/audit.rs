//! What is written down about a request, and when. Which requests are written is the policy's business (`access`), how
//! lines reach a file is [`crate::audit_log`]'s.
//!
//! A [`Record`] is a guard: whatever becomes of the request, be it answered, given up, or a panic, its last event is
//! written.

use access::{Attributes, AuditDecision, AuditEvent, Policy, Stage, User};
use bytes::Bytes;
use meta::{Status, Value};
use store::SharedClock;

use crate::{
    answer::{self, Answer},
    audit_log::AuditLog,
    authorize,
    chain::{Caller, Chain, Exchange},
    forward::BY,
    route,
};

/// Upstream's names of what authorization decided.
const DECISION: &str = "authorization.k8s.io/decision";
const REASON: &str = "authorization.k8s.io/reason";

/// What is recorded of requests that were neither answered nor panicked: the server stopped, or nobody waited any more.
const GIVEN_UP: &str = "the request was given up before it was answered; it may have taken effect";

/// A policy and where its events go; neither by default.
#[derive(Default)]
pub struct Auditor {
    /// What is written.
    pub policy: Policy,
    /// Where to.
    pub log: Option<AuditLog>,
}

/// The audit record of one request, while it is on its way.
pub struct Record {
    // Boxed, because most requests have none.
    active: Option<Box<Active>>,
}

struct Active {
    decision: AuditDecision,
    event: AuditEvent,
    log: AuditLog,
    clock: SharedClock,
    is_over: bool,
}

impl Drop for Active {
    /// The last event, if it was not written: the end of a watch, a panic, or a request that was given up.
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let stage = match std::thread::panicking() {
            true => Stage::Panic,
            false => Stage::ResponseComplete,
        };
        match stage {
            Stage::Panic => self.event.set_failure(&Status::internal("APIServer panic'd")),
            _ if !self.event.is_answered() => self.event.set_failure(&Status::timeout(GIVEN_UP)),
            _ => {}
        }
        self.event.set_stage(stage, self.clock.now());
        if self.decision.wants(stage) {
            self.log.write_now(Bytes::from(self.event.to_line()));
        }
    }
}

impl Record {
    /// Decides whether the request is recorded, and records that it came.
    pub(crate) async fn begin(chain: &Chain, exchange: &Exchange, user: &User) -> Self {
        let active = Active::of(chain, exchange, user);
        if let Some(active) = &active
            && active.decision.wants(Stage::RequestReceived)
        {
            active.log.write(Bytes::from(active.event.to_line())).await;
        }
        Self { active }
    }

    /// The request goes on as somebody else.
    pub(crate) fn impersonated(&mut self, caller: &Caller) {
        if let Some(active) = &mut self.active
            && caller.real.is_some()
        {
            active.event.set_impersonated(&caller.user);
        }
    }

    /// What authorization decided, and why.
    pub(crate) fn authorized(&mut self, is_allowed: bool, reason: &str) {
        if let Some(active) = &mut self.active {
            let decision = if is_allowed { "allow" } else { "forbid" };
            active.event.annotations.insert(DECISION.to_owned(), decision.to_owned());
            active.event.annotations.insert(REASON.to_owned(), reason.to_owned());
        }
    }

    /// The patch, or whatever else is no object of its own, that was sent as JSON.
    pub(crate) fn request_text(&mut self, body: &[u8]) {
        let Some(active) = &mut self.active else { return };
        if active.decision.wants_request()
            && let Ok(object) = serde_json::from_slice::<Value>(body)
        {
            active.event.set_request(&object);
        }
    }

    /// The same as a tree.
    pub(crate) fn request_tree(&mut self, sent: &Value) {
        let Some(active) = &mut self.active else { return };
        if active.decision.wants_request() {
            active.event.set_request(sent);
        }
    }

    /// The object that was sent. What it is called is recorded on every level.
    pub(crate) fn request_object(&mut self, object: &Value) {
        if let Some(active) = &mut self.active {
            active.event.complete_reference(object);
        }
        self.request_tree(object);
    }

    /// Whether the answer is to be recorded, so that it must be put together as a whole.
    pub(crate) fn wants_response(&self) -> bool {
        self.active.as_ref().is_some_and(|it| it.decision.wants_response())
    }

    /// Something that is worth knowing about the request.
    pub(crate) fn annotate(&mut self, key: String, value: String) {
        if let Some(active) = &mut self.active {
            active.event.annotations.insert(key, value);
        }
    }

    /// The body that is answered.
    pub(crate) fn response_object(&mut self, text: &[u8]) {
        let Some(active) = &mut self.active else { return };
        if active.decision.wants_response()
            && let Ok(object) = serde_json::from_slice::<Value>(text)
        {
            active.event.set_response(&object);
        }
    }

    /// Records how the request was answered. A watch only starts here; its end is recorded with its last byte.
    pub(crate) async fn end(self, exchange: &Exchange, mut answer: Answer) -> Answer {
        let Some(mut active) = self.active else { return answer };
        match &answer.failure {
            Some(status) => active.event.set_failure(status),
            None => active.event.set_code(answer.response.status().as_u16()),
        }
        if !exchange.info.is_long_running() {
            active.write_last(Stage::ResponseComplete).await;
            return answer;
        }
        active.event.set_stage(Stage::ResponseStarted, active.clock.now());
        if active.decision.wants(Stage::ResponseStarted) {
            active.log.write(Bytes::from(active.event.to_line())).await;
        }
        answer.response.body_mut().set_record(Self { active: Some(active) });
        answer
    }
}

impl Active {
    /// The record of a request, if the policy wants one.
    fn of(chain: &Chain, exchange: &Exchange, user: &User) -> Option<Box<Self>> {
        let log = chain.audit.log.as_ref()?;
        let attributes = authorize::attributes(exchange, user);
        let decision = chain.audit.policy.decide(&attributes);
        if decision.level == access::Level::None {
            return None;
        }
        let event = event(chain, exchange, &decision, &attributes);
        Some(Box::new(Self { decision, event, log: log.clone(), clock: chain.clock.clone(), is_over: false }))
    }

    async fn write_last(&mut self, stage: Stage) {
        self.event.set_stage(stage, self.clock.now());
        self.is_over = true;
        if self.decision.wants(stage) {
            self.log.write(Bytes::from(self.event.to_line())).await;
        }
    }
}

fn event(
    chain: &Chain,
    exchange: &Exchange,
    decision: &AuditDecision,
    attributes: &Attributes<'_>,
) -> AuditEvent {
    let uri = exchange.uri.path_and_query().map_or("", |it| it.as_str());
    let now = chain.clock.now();
    let mut event = AuditEvent::received(decision, attributes, exchange.audit_id.as_str(), uri, now);
    event.source_ips = vec![exchange.peer.address.ip().to_string()];
    if route::is_forwarded(chain, exchange) {
        // The client first, then the server that it asked.
        event.source_ips.insert(0, exchange.header("x-forwarded-for").to_owned());
        event.annotations.insert("convoy/forwarded-by".to_owned(), exchange.header(BY).to_owned());
    }
    event.user_agent = exchange.header("user-agent").to_owned();
    event
}

/// The answer to somebody who could not be recognised, recorded as upstream does: without a user, and with how they tried.
pub(crate) async fn failed_login(chain: &Chain, exchange: &Exchange, status: Status) -> Answer {
    if status.code == 403 {
        // Nobody in particular is recognised, and may not do this.
        let record = Record::begin(chain, exchange, &User::anonymous()).await;
        return record.end(exchange, answer::status(exchange, status)).await;
    }
    let answer = answer::status(exchange, status.clone());
    if let Some(mut active) = Active::of(chain, exchange, &User::named("")) {
        active.event.set_failure(&Status { message: attempted(exchange), ..status });
        active.write_last(Stage::ResponseStarted).await;
    }
    answer
}

/// Which credentials were sent, in upstream's words.
fn attempted(exchange: &Exchange) -> String {
    let scheme = exchange.header("authorization").trim().split_once(' ').map(|it| it.0.to_ascii_lowercase());
    let mut methods = Vec::new();
    match scheme.as_deref() {
        Some("basic") => methods.push("basic"),
        Some("bearer") => methods.push("bearer"),
        _ => {}
    }
    if exchange.peer.certificates.is_some() {
        methods.push("x509");
    }
    match methods.is_empty() {
        true => "Authentication failed, no credentials provided".to_owned(),
        false => format!("Authentication failed, attempted: {}", methods.join(", ")),
    }
}
