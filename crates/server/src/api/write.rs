//! POST, PUT and PATCH of objects.

use meta::{Status, Value};
use registry::{Patch, Written};
use schema::{check::FieldValidation, patch::PatchKind, yaml};

use super::{Call, options};
use crate::{
    admit::Admitter,
    answer::{self, Answer},
    body::RequestBody,
    denial, negotiate,
    rbac_guard::Attempts,
    shape,
};

/// The patch languages of built-in kinds, as upstream lists them.
const PATCHES: [PatchKind; 4] = [PatchKind::Json, PatchKind::Merge, PatchKind::Strategic, PatchKind::Apply];

/// Kinds without Go types have no strategic merge.
const CUSTOM_PATCHES: [PatchKind; 3] = [PatchKind::Json, PatchKind::Merge, PatchKind::Apply];

/// `POST …`
pub(super) async fn create(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    if call.target.kind.custom.as_ref().is_some_and(|it| it.is_terminating()) {
        // It may have been defined anew, if this is not known for sure.
        let refusal = |_| registry::custom::terminating(&call.target);
        return Err(call.absence.map_or_else(denial::unsure, refusal));
    }
    let format = written_format(call)?;
    negotiate::request(&call.exchange.headers)?;
    let admit = Admitter::of(call);
    let options = options::write(call.exchange, "CreateOptions", &admit)?;
    let mut object = Some(call.read_sent(body).await?);
    let mut attempts = Attempts::of(call);
    while let Some(sent) = attempts.next(&mut object) {
        let result = call.registry.create(&call.target, &options, sent).await;
        if !attempts.again(call, &result).await? {
            return answer_written(call, result?, format);
        }
    }
    Err(Status::internal("a write was given up"))
}

/// `PUT …/{name}`
pub(super) async fn update(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    let format = written_format(call)?;
    let admit = Admitter::of(call);
    let options = options::write(call.exchange, "UpdateOptions", &admit)?;
    let mut object = Some(call.read_sent(body).await?);
    let mut attempts = Attempts::of(call);
    while let Some(sent) = attempts.next(&mut object) {
        let result = call.registry.update(&call.target, &options, sent).await;
        if !attempts.again(call, &result).await? {
            return answer_written(call, result?, format);
        }
    }
    Err(Status::internal("a write was given up"))
}

/// `PATCH …/{name}`
pub(super) async fn patch(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    let kind = patch_kind(call)?;
    let format = written_format(call)?;
    let admit = Admitter::of(call);
    let options = options::patch(call.exchange, kind, &admit)?;
    let body = call.read(body).await?;
    let config = match kind {
        PatchKind::Apply => {
            let config = configuration(&body, options.field_validation)?;
            call.record.request_tree(&config);
            Some(config)
        }
        _ => None,
    };
    let force = call.exchange.query.is_true("force");
    let patch = Patch { kind, body };
    let mut attempts = Attempts::of(call);
    loop {
        let result = match &config {
            Some(config) => call.registry.apply(&call.target, &options, config, force).await,
            None => call.registry.patch(&call.target, &options, &patch).await,
        };
        if !attempts.again(call, &result).await? {
            return answer_written(call, result?, format);
        }
    }
}

/// `PUT /api/v1/namespaces/{name}/finalize`
pub(super) async fn finalize(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    let format = negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let admit = Admitter::of(call);
    let options = options::write(call.exchange, "UpdateOptions", &admit)?;
    let (object, warnings) = call.read_accepted(&options, body).await?;
    let text = call.registry.finalize(&call.target, &options, &object).await?;
    answer_written(call, Written { text, is_new: false, warnings }, format)
}

/// The patch language that is sent, or 415.
pub(super) fn patch_kind(call: &Call<'_>) -> Result<PatchKind, Status> {
    let content_type = negotiate::content_type(&call.exchange.headers);
    let patches: &[PatchKind] = if call.target.kind.custom.is_some() { &CUSTOM_PATCHES } else { &PATCHES };
    patches.iter().copied().find(|it| it.media_type() == content_type).ok_or_else(|| {
        let accepted: Vec<&str> = patches.iter().map(|it| it.media_type()).collect();
        Status::unsupported_media_type(&accepted)
    })
}

/// What is to be applied.
pub(super) fn configuration(body: &[u8], validation: FieldValidation) -> Result<Value, Status> {
    let refuse = |why: String| Status::bad_request(format!("error decoding YAML: {why}"));
    let document = yaml::read(body, schema::json::Limits::REQUEST)
        .map_err(|why| refuse(format!("error converting YAML to JSON: {why}")))?;
    if let Some(duplicate) = document.duplicate
        && validation == FieldValidation::Strict
    {
        return Err(Status::bad_request(format!(
            "error strict decoding YAML: error converting YAML to JSON: {duplicate}"
        )));
    }
    match document.value {
        Value::Object(_) => Ok(document.value),
        // To Go this is an object in which nothing is set.
        Value::Null => Ok(Value::Object(meta::Map::new())),
        other => Err(refuse(format!(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type \
             map[string]interface {{}}",
            schema::json::type_name(&other)
        ))),
    }
}

/// The form of the answer to a write: plain, unless a shape is asked for.
pub(super) fn written_format(call: &Call<'_>) -> Result<negotiate::Format, Status> {
    match shape::wanted(call.exchange) {
        Some(_) => Ok(negotiate::Format::default()),
        None => negotiate::response(&call.exchange.headers, &call.exchange.query),
    }
}

pub(super) fn answer_written(
    call: &mut Call<'_>,
    written: Written,
    format: negotiate::Format,
) -> Result<Answer, Status> {
    let Written { text, is_new, warnings } = written;
    call.record.response_object(&text);
    let text = match shape::wanted(call.exchange) {
        Some(wanted) if call.target.subresource.is_empty() => shape::object(call, wanted, &text)?,
        _ => text,
    };
    let answer = answer::json(call.exchange, if is_new { 201 } else { 200 }, text, format);
    Ok(warnings.iter().fold(answer, |answer, warning| answer.warn(warning)))
}
