//! POST, PUT and PATCH of objects.

use meta::Status;
use registry::{Patch, Written};
use schema::patch::PatchKind;

use super::{Call, options};
use crate::{
    answer::{self, Answer},
    body::RequestBody,
    negotiate, rbac_guard,
};

/// The patch languages of built-in kinds, as upstream lists them.
const PATCHES: [&str; 2] = ["application/json-patch+json", "application/merge-patch+json"];

/// `POST …`
pub(super) async fn create(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    let format = negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let object = call.read_object(body).await?;
    let review = rbac_guard::review(call);
    let options = options::write(&call.exchange.query, "CreateOptions", &review)?;
    let written = call.registry.create(&call.target, &options, object).await?;
    Ok(answer_written(call, written, format))
}

/// `PUT …/{name}`
pub(super) async fn update(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    let format = negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let object = call.read_object(body).await?;
    let review = rbac_guard::review(call);
    let options = options::write(&call.exchange.query, "UpdateOptions", &review)?;
    let written = call.registry.update(&call.target, &options, object).await?;
    Ok(answer_written(call, written, format))
}

/// `PATCH …/{name}`
pub(super) async fn patch(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    let format = negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let review = rbac_guard::review(call);
    let options = options::write(&call.exchange.query, "PatchOptions", &review)?;
    let kind = match negotiate::content_type(&call.exchange.headers) {
        "application/json-patch+json" => PatchKind::Json,
        "application/merge-patch+json" => PatchKind::Merge,
        _ => return Err(Status::unsupported_media_type(&PATCHES)),
    };
    let body = call.read(body).await?;
    let patch = Patch { kind, body };
    let written = call.registry.patch(&call.target, &options, &patch).await?;
    Ok(answer_written(call, written, format))
}

/// `PUT /api/v1/namespaces/{name}/finalize`
pub(super) async fn finalize(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    let format = negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let options = options::write(&call.exchange.query, "UpdateOptions", &registry::anything)?;
    let object = call.read_object(body).await?;
    let text = call.registry.finalize(&call.target, &options, &object).await?;
    Ok(answer::json(call.exchange, 200, text, format))
}

fn answer_written(call: &mut Call<'_>, written: Written, format: negotiate::Format) -> Answer {
    let Written { text, is_new, warnings } = written;
    call.record.response_object(&text);
    let answer = answer::json(call.exchange, if is_new { 201 } else { 200 }, text, format);
    warnings.iter().fold(answer, |answer, warning| answer.warn(warning))
}
