//! What is written down about a request, and when. Which requests are written is the policy's business (`access`), how
//! lines reach a file is [`crate::audit_log`]'s.

use access::{AuditDecision, AuditEvent, Policy, Stage};
use bytes::Bytes;
use meta::Value;

use crate::{
    answer::Answer,
    audit_log::AuditLog,
    authorize,
    chain::{Caller, Chain, Exchange},
    forward::BY,
    route,
};

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
}

impl Record {
    /// Decides whether the request is recorded, and records that it came.
    pub(crate) async fn begin(chain: &Chain, exchange: &Exchange, caller: &Caller) -> Self {
        let Some(log) = &chain.audit.log else { return Self { active: None } };
        let real = caller.real.as_ref().unwrap_or(&caller.user);
        let attributes = authorize::attributes(exchange, real);
        let decision = chain.audit.policy.decide(&attributes);
        if decision.level == access::Level::None {
            return Self { active: None };
        }
        let uri = exchange.uri.path_and_query().map_or("", |it| it.as_str());
        let now = chain.clock.now();
        let mut event = AuditEvent::received(&decision, &attributes, exchange.audit_id.as_str(), uri, now);
        if caller.real.is_some() {
            event.set_impersonated(&caller.user);
        }
        event.source_ips = vec![exchange.peer.address.ip().to_string()];
        if route::is_forwarded(chain, exchange) {
            // The client first, then the server that it asked.
            event.source_ips.insert(0, exchange.header("x-forwarded-for").to_owned());
            event.annotations.insert("convoy/forwarded-by".to_owned(), exchange.header(BY).to_owned());
        }
        event.user_agent = exchange.header("user-agent").to_owned();
        if decision.wants(Stage::RequestReceived) {
            log.write(Bytes::from(event.to_line())).await;
        }
        Self { active: Some(Box::new(Active { decision, event })) }
    }

    /// The body that was sent.
    pub(crate) fn request_object(&mut self, body: &[u8]) {
        let Some(active) = &mut self.active else { return };
        if active.decision.wants_request()
            && let Ok(object) = serde_json::from_slice::<Value>(body)
        {
            active.event.set_request(&object);
        }
    }

    /// The body that was sent, where it was not JSON.
    pub(crate) fn request_tree(&mut self, object: &Value) {
        let Some(active) = &mut self.active else { return };
        if active.decision.wants_request() {
            active.event.set_request(object);
        }
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

    /// Records how the request was answered. A watch only starts here; its end is not waited for.
    pub(crate) async fn end(self, chain: &Chain, exchange: &Exchange, answer: Answer) -> Answer {
        let (Some(log), Some(mut active)) = (&chain.audit.log, self.active) else { return answer };
        let stage =
            if exchange.info.is_long_running() { Stage::ResponseStarted } else { Stage::ResponseComplete };
        match &answer.failure {
            Some(status) => active.event.set_failure(status),
            None => active.event.set_code(answer.response.status().as_u16()),
        }
        active.event.set_stage(stage, chain.clock.now());
        if active.decision.wants(stage) {
            log.write(Bytes::from(active.event.to_line())).await;
        }
        answer
    }
}
