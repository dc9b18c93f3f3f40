//! POST, PUT and PATCH of objects.

use meta::{Status, Value};
use registry::{Patch, Written};
use schema::patch::PatchKind;

use super::{Call, options};
use crate::{
    admit::Admitter,
    answer::{self, Answer},
    body::RequestBody,
    negotiate,
};

/// The patch languages of built-in kinds, as upstream lists them.
const PATCHES: [PatchKind; 4] = [PatchKind::Json, PatchKind::Merge, PatchKind::Strategic, PatchKind::Apply];

/// `POST …`
pub(super) async fn create(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    let format = negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    negotiate::request(&call.exchange.headers)?;
    let admit = Admitter::of(call);
    let options = options::write(call.exchange, "CreateOptions", &admit)?;
    let object = call.read_sent(body).await?;
    let written = call.registry.create(&call.target, &options, object).await?;
    Ok(answer_written(call, written, format))
}

/// `PUT …/{name}`
pub(super) async fn update(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    let format = negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let admit = Admitter::of(call);
    let options = options::write(call.exchange, "UpdateOptions", &admit)?;
    let object = call.read_sent(body).await?;
    let written = call.registry.update(&call.target, &options, object).await?;
    Ok(answer_written(call, written, format))
}

/// `PATCH …/{name}`
pub(super) async fn patch(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    let kind = patch_kind(call)?;
    let format = negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let admit = Admitter::of(call);
    let options = options::patch(call.exchange, kind, &admit)?;
    let body = call.read(body).await?;
    let written = if kind == PatchKind::Apply {
        let config = configuration(&body)?;
        let force = call.exchange.query.is_true("force");
        call.registry.apply(&call.target, &options, &config, force).await?
    } else {
        call.registry.patch(&call.target, &options, &Patch { kind, body }).await?
    };
    Ok(answer_written(call, written, format))
}

/// `PUT /api/v1/namespaces/{name}/finalize`
pub(super) async fn finalize(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    let format = negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let admit = Admitter::of(call);
    let options = options::write(call.exchange, "UpdateOptions", &admit)?;
    let (object, warnings) = call.read_accepted(&options, body).await?;
    let text = call.registry.finalize(&call.target, &options, &object).await?;
    Ok(answer_written(call, Written { text, is_new: false, warnings }, format))
}

/// The patch language that is sent, or 415.
pub(super) fn patch_kind(call: &Call<'_>) -> Result<PatchKind, Status> {
    let content_type = negotiate::content_type(&call.exchange.headers);
    PATCHES
        .into_iter()
        .find(|it| it.media_type() == content_type)
        .ok_or_else(|| Status::unsupported_media_type(&PATCHES.map(PatchKind::media_type)))
}

/// What is to be applied.
pub(super) fn configuration(body: &[u8]) -> Result<Value, Status> {
    schema::yaml::parse(body, schema::json::Limits::REQUEST)
        .map_err(|it| Status::bad_request(format!("error decoding YAML: {it}")))
}

pub(super) fn answer_written(call: &mut Call<'_>, written: Written, format: negotiate::Format) -> Answer {
    let Written { text, is_new, warnings } = written;
    call.record.response_object(&text);
    let answer = answer::json(call.exchange, if is_new { 201 } else { 200 }, text, format);
    warnings.iter().fold(answer, |answer, warning| answer.warn(warning))
}
