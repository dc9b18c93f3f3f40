//! Acting as somebody else: only for callers who may impersonate every part of that identity.

use std::sync::Arc;

use access::{Impersonation, impersonation};
use meta::Status;

use crate::chain::{Caller, Chain, Exchange};

/// The caller, or whom they act as; 403 if they may not.
pub(crate) fn step(chain: &Chain, exchange: &Exchange, caller: Caller) -> Result<Caller, Status> {
    let is_asked = exchange.headers.keys().any(|it| impersonation::is_impersonation(it.as_str()));
    if !is_asked {
        return Ok(caller);
    }
    let headers = exchange
        .headers
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), str::from_utf8(value.as_bytes()).ok()?)));
    let Some(wanted) = Impersonation::from_headers(headers)? else { return Ok(caller) };
    for check in &wanted.checks {
        let attributes = check.attributes(&caller.user);
        let verdict = chain.authorizer.authorize(&attributes);
        if !verdict.is_allowed() {
            return Err(access::forbidden_status(&attributes, verdict.reason()));
        }
    }
    Ok(Caller { user: Arc::new(wanted.user), real: Some(caller.user) })
}
