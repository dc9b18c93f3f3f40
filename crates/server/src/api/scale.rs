//! `…/scale`: GET, PUT and PATCH of how many replicas a workload has.

use meta::Status;
use registry::{Patch, Written};
use schema::patch::PatchKind;

use super::{
    Call, options,
    write::{answer_written, configuration, patch_kind},
};
use crate::{
    admit::Admitter,
    answer::{self, Answer},
    body::RequestBody,
    negotiate::{self, Format},
    shape,
};

pub(super) async fn get(call: &mut Call<'_>) -> Result<Answer, Status> {
    let shape = shape::wanted(call.exchange);
    let format = match shape {
        Some(_) => Format::default(),
        None => negotiate::response(&call.exchange.headers, &call.exchange.query)?,
    };
    let mut text = call.registry.scale(&call.target, call.exchange.query.get("resourceVersion")).await?;
    if let Some(shape) = shape {
        text = shape::scale(call, shape, &text)?;
    }
    Ok(answer::json(call.exchange, 200, text, format))
}

pub(super) async fn update(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    let format = negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let admit = Admitter::of(call);
    let options = options::write(call.exchange, "UpdateOptions", &admit)?;
    let (scale, warnings) = call.read_accepted(&options, body).await?;
    let text = call.registry.update_scale(&call.target, &options, scale).await?;
    answer_written(call, Written { text, is_new: false, warnings }, format)
}

pub(super) async fn patch(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    let kind = patch_kind(call)?;
    let format = negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let admit = Admitter::of(call);
    let options = options::patch(call.exchange, kind, &admit)?;
    let body = call.read(body).await?;
    let written = if kind == PatchKind::Apply {
        let config = configuration(&body, options.field_validation)?;
        let force = call.exchange.query.is_true("force");
        let text = call.registry.apply_scale(&call.target, &options, &config, force).await?;
        Written { text, is_new: false, warnings: Vec::new() }
    } else {
        call.registry.patch_scale(&call.target, &options, &Patch { kind, body }).await?
    };
    answer_written(call, written, format)
}
