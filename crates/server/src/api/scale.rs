//! `…/scale`: GET, PUT and PATCH of how many replicas a workload has.

use meta::Status;
use registry::Patch;
use schema::patch::PatchKind;

use super::{Call, options};
use crate::{
    answer::{self, Answer},
    body::RequestBody,
    negotiate,
};

/// The patch languages that a Scale can be changed in.
const PATCHES: [PatchKind; 3] = [PatchKind::Json, PatchKind::Merge, PatchKind::Strategic];

pub(super) async fn get(call: &mut Call<'_>) -> Result<Answer, Status> {
    let format = negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let text = call.registry.scale(&call.target, call.exchange.query.get("resourceVersion")).await?;
    Ok(answer::json(call.exchange, 200, text, format))
}

pub(super) async fn update(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    let format = negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let scale = call.read_object(body).await?;
    let options = options::write(call.exchange, "UpdateOptions", &registry::anything)?;
    let text = call.registry.update_scale(&call.target, &options, &scale).await?;
    Ok(answer::json(call.exchange, 200, text, format))
}

pub(super) async fn patch(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    let format = negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let content_type = negotiate::content_type(&call.exchange.headers);
    let kind = match PATCHES.into_iter().find(|it| it.media_type() == content_type) {
        Some(PatchKind::Json) => PatchKind::Json,
        // A Scale has no lists, so that both merge languages mean the same.
        Some(_) => PatchKind::Merge,
        None => return Err(Status::unsupported_media_type(&PATCHES.map(PatchKind::media_type))),
    };
    let options = options::write(call.exchange, "PatchOptions", &registry::anything)?;
    let body = call.read(body).await?;
    let text = call.registry.patch_scale(&call.target, &options, &Patch { kind, body }).await?;
    Ok(answer::json(call.exchange, 200, text, format))
}
