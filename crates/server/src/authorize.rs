//! Whether the caller may do this.

use access::{Attributes, Target, User, Verdict, user::is_open_to_anonymous};
use bytes::Bytes;
use http::Uri;
use meta::{Fact, RetryAfter, Status};
use registry::Registry;
use store::Revision;

use crate::{
    audit::Record,
    body::RequestBody,
    chain::{Caller, Chain, Envelope, Exchange},
    payer::Payer,
    request::{RequestInfo, ResourcePath, Selection},
    slot::Slot,
};

/// A request that was authorized: who asks, and for what exactly. [`step`] alone makes one, and whatever carries a request
/// out is handed this and not the [`Exchange`]: it cannot see anything that was not authorized.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Authorized<'a> {
    exchange: &'a Exchange,
    caller: &'a Caller,
    /// The revision that made the namespace of the request, as this server knew it when the caller's rights were asked
    /// for: they are rights in that namespace, not in the next one of its name.
    namespace_made: Option<Revision>,
    slot: &'a Slot,
}

/// The request if the caller may do this; else 403.
pub(crate) async fn step<'a>(
    chain: &Chain,
    exchange: &'a Exchange,
    caller: &'a Caller,
    slot: &'a Slot,
    record: &mut Record,
) -> Result<Authorized<'a>, Status> {
    if !caller.is_operator() && !is_open_to_anonymous(&exchange.info.path) {
        check_in_touch(&chain.dispatch.registry)?;
    }
    let may_create = matches!(exchange.info.verb, "create" | "update" | "patch");
    let namespace = exchange.info.resource.as_ref().filter(|_| may_create).map(|it| it.namespace.as_str());
    let namespace_made = namespace.and_then(|it| chain.dispatch.registry.namespace_made(it));
    let attributes = attributes(exchange, &caller.user);
    let verdict = decide(chain, &caller.payer, &attributes).await;
    record.authorized(verdict.is_allowed(), verdict.reason());
    if !verdict.is_allowed() {
        return Err(access::forbidden_status(&attributes, verdict.reason()));
    }
    // Whether a fact holds is seen from the answer, so it is for those who may read the object that it is about.
    for place in exchange.grounds()?.facts().iter().map(Fact::place) {
        let target = Target::Resource {
            group: &place.group,
            version: "*",
            resource: &place.resource,
            subresource: "",
            namespace: &place.namespace,
            name: &place.name,
        };
        check(chain, &caller.payer, &Attributes { user: &caller.user, verb: "get", target }).await?;
    }
    Ok(Authorized { exchange, caller, namespace_made, slot })
}

impl<'a> Authorized<'a> {
    /// Who asks.
    pub(crate) fn caller(&self) -> &'a Caller {
        self.caller
    }

    /// The revision that made the namespace in which this was authorized, if that is known.
    pub(crate) fn namespace_made(&self) -> Option<Revision> {
        self.namespace_made
    }

    /// The whole body, bounded. The request has no slot while its client is waited for.
    pub(crate) async fn read(&self, body: RequestBody) -> Result<Bytes, Status> {
        self.slot.read(body).await
    }

    /// What came with the request besides what it asks for.
    pub(crate) fn envelope(&self) -> &'a Envelope {
        self.exchange
    }

    /// What is asked for.
    pub(crate) fn info(&self) -> &'a RequestInfo {
        &self.exchange.info
    }

    pub(crate) fn verb(&self) -> &'static str {
        self.exchange.info.verb
    }

    pub(crate) fn path(&self) -> &'a str {
        &self.exchange.info.path
    }

    /// The resource, if the request is about one.
    pub(crate) fn resource(&self) -> Option<&'a ResourcePath> {
        self.exchange.info.resource.as_ref()
    }

    /// Which objects of a collection are meant, or 400.
    pub(crate) fn selection(&self) -> Result<&'a Selection, Status> {
        self.exchange.info.selection()
    }

    /// The request line as it came, for another server, which reads and authorizes it again.
    pub(crate) fn uri(&self) -> &'a Uri {
        &self.exchange.uri
    }

    /// What was authorized, as authorizers see it.
    pub(crate) fn attributes(&self) -> Attributes<'a> {
        attributes(self.exchange, &self.caller.user)
    }
}

/// 503 if this server has not heard from the store for so long that rights may have been taken away since.
pub(crate) fn check_in_touch(registry: &Registry) -> Result<(), Status> {
    let silent = registry.station().out_of_touch();
    let cut_off = silent.map(|it| format!("the store has not answered for {} s", it.as_secs()));
    match cut_off.map_or_else(|| registry.cache().health(), Err) {
        Ok(()) => Ok(()),
        Err(why) => Err(Status::unavailable(
            format!("what this apiserver knows of rights may be out of date: {why}"),
            RetryAfter::not_begun(1),
        )),
    }
}

/// What the authorizer says: in the pool if it has to go through much that strangers wrote.
pub(crate) async fn decide(chain: &Chain, payer: &Payer, attributes: &Attributes<'_>) -> Verdict {
    if !chain.authorizer.is_long(attributes.user, attributes.target.namespace()) {
        return chain.authorizer.authorize(attributes);
    }
    let ticket = chain.dispatch.pool.enter_anyway(payer);
    ticket.run(async { chain.authorizer.authorize(attributes) }).await
}

async fn check(chain: &Chain, payer: &Payer, attributes: &Attributes<'_>) -> Result<(), Status> {
    match decide(chain, payer, attributes).await {
        Verdict::Allow(_) => Ok(()),
        Verdict::Deny(reason) | Verdict::NoOpinion(reason) => {
            Err(access::forbidden_status(attributes, &reason))
        }
    }
}

/// The request as authorizers and audit policies see it.
pub(crate) fn attributes<'a>(exchange: &'a Exchange, user: &'a User) -> Attributes<'a> {
    let target = match &exchange.info.resource {
        Some(path) => Target::Resource {
            group: &path.group,
            version: &path.version,
            resource: &path.resource,
            subresource: &path.subresource,
            namespace: &path.namespace,
            name: &path.name,
        },
        None => Target::Path(&exchange.info.path),
    };
    Attributes { user, verb: exchange.info.verb, target }
}
