//! Whether the caller may do this.

use access::{Attributes, Target, Verdict};
use meta::Status;

use crate::chain::{Caller, Chain, Exchange};

/// 403 if not.
pub(crate) fn step(chain: &Chain, exchange: &Exchange, caller: &Caller) -> Result<(), Status> {
    let attributes = attributes(exchange, &caller.user);
    match chain.authorizer.authorize(&attributes) {
        Verdict::Allow(_) => Ok(()),
        Verdict::Deny(reason) | Verdict::NoOpinion(reason) => {
            Err(access::forbidden_status(&attributes, &reason))
        }
    }
}

/// The request as authorizers and audit policies see it.
pub(crate) fn attributes<'a>(exchange: &'a Exchange, user: &'a access::User) -> Attributes<'a> {
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
