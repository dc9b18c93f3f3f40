//! Acting as somebody else: only for callers who may impersonate every part of that identity.

use access::{Impersonation, impersonation};
use meta::Status;

use crate::{
    authorize,
    chain::{Caller, Chain, Envelope},
};

/// The caller, or whom they act as; 403 if they may not.
pub(crate) async fn step(chain: &Chain, exchange: &Envelope, caller: Caller) -> Result<Caller, Status> {
    let is_asked = exchange.headers.keys().any(|it| impersonation::is_impersonation(it.as_str()));
    if !is_asked {
        return Ok(caller);
    }
    let mut headers = Vec::new();
    for (name, value) in exchange.headers.iter().filter(|it| impersonation::is_impersonation(it.0.as_str())) {
        // Left out, it would make the caller somebody with more rights than those who were asked for.
        let value = str::from_utf8(value.as_bytes())
            .map_err(|_| Status::bad_request(format!("the header {name} is not UTF-8")))?;
        headers.push((name.as_str(), value));
    }
    let Some(wanted) = Impersonation::from_headers(headers.into_iter())? else { return Ok(caller) };
    if !caller.is_operator() {
        // The right to do this may have been taken away, whatever may be done as that user.
        authorize::check_in_touch(&chain.dispatch.registry)?;
    }
    for check in &wanted.checks {
        let attributes = check.attributes(&caller.user);
        let verdict = authorize::decide(chain, &caller.payer, &attributes).await;
        if !verdict.is_allowed() {
            return Err(access::forbidden_status(&attributes, verdict.reason()));
        }
    }
    Ok(caller.acting_as(wanted.user))
}
