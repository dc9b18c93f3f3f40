//! What people see and steer of the fleet: `GET /convoy/status`, `GET /convoy/census`, `GET /convoy/identity`,
//! `POST /convoy/hold`.
//!
//! Outside the resources, so that only those may ask whom RBAC names these paths for.

use bytes::Bytes;
use fleet::fence::Hold;
use http::Method;
use meta::{GroupResource, Reason, Status};
use serde::{Deserialize, Serialize};
use station::hold::HoldError;

use crate::{
    answer::{self, Answer},
    audit::Record,
    authorize::Authorized,
    body::RequestBody,
    chain::Envelope,
    dispatch::Dispatch,
    negotiate, peers,
};

/// The longest reason for a hold.
const MAX_REASON: usize = 1024;

/// The body of `POST /convoy/hold`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HoldRequest {
    /// `deviceclasses.resource.k8s.io`
    resource: String,
    /// Why, in the operator's words.
    #[serde(default)]
    reason: String,
    /// Lift the hold instead.
    #[serde(default)]
    release: bool,
}

/// Who this server is.
pub(crate) fn identity(dispatch: &Dispatch, exchange: &Envelope) -> Result<Answer, Status> {
    let station = dispatch.registry.station();
    let answer =
        peers::Answer { identity: station.identity().clone(), incarnation: station.incarnation().clone() };
    document(exchange, &answer)
}

/// The whole fleet.
pub(crate) fn status(dispatch: &Dispatch, exchange: &Envelope) -> Result<Answer, Status> {
    document(exchange, &dispatch.registry.station().view())
}

/// What is stored, by version.
pub(crate) async fn census(dispatch: &Dispatch, exchange: &Envelope) -> Result<Answer, Status> {
    document(exchange, &crate::census::view(&dispatch.registry).await?)
}

/// Sets or lifts a hold.
pub(crate) async fn hold(
    dispatch: &Dispatch,
    asked: &Authorized<'_>,
    body: RequestBody,
    record: &mut Record,
) -> Result<Answer, Status> {
    let (exchange, caller) = (asked.envelope(), asked.caller());
    if exchange.method != Method::POST {
        return Err(Status::method_not_allowed());
    }
    let body = asked.read(body).await?;
    record.request_text(&body);
    let request: HoldRequest =
        serde_json::from_slice(&body).map_err(|it| Status::bad_request(format!("not a hold: {it}")))?;
    let HoldRequest { resource, reason, release } = request;
    let resource = GroupResource::from(resource.as_str());
    let record = dispatch.catalog.definition(&resource.group, &resource.resource);
    let record = record.map_or_else(|| resource.clone(), |it| it.record.clone());
    let station = dispatch.registry.station();
    let hold = (!release).then(|| Hold {
        unknown: fleet::record::Unknown::new(),
        by: caller.user.name.clone(),
        reason: reason.chars().take(MAX_REASON).collect(),
        since: dispatch.registry.clock().now(),
    });
    station.hold(&record, hold).await.map_err(|error| match error {
        HoldError::Unknown(_) => Status::not_found(&resource, ""),
        HoldError::Custom(_) | HoldError::Reported(_) => Status::bad_request(error.to_string()),
        // It may have been set: the store does not always say.
        HoldError::Failed(_) => Status::failure(503, Reason::ServiceUnavailable, error.to_string()),
    })?;
    tracing::info!(%record, by = caller.user.name, release, "a hold was set or lifted");
    let view = station.view().resources.into_iter().find(|it| it.resource == record.to_string());
    document(exchange, &view)
}

fn document(exchange: &Envelope, content: &impl Serialize) -> Result<Answer, Status> {
    let text = serde_json::to_vec(content).map_err(Status::internal)?;
    let format = negotiate::response(&exchange.headers, &exchange.query)?;
    Ok(answer::json(exchange, 200, Bytes::from(text), format))
}
