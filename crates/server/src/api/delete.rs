//! DELETE of one object or of a collection.

use bytes::Bytes;
use meta::Status;
use registry::{DeleteOptions, Deleted};

use super::{Call, options};
use crate::{
    answer::{self, Answer},
    body::RequestBody,
    negotiate,
};

/// `DELETE …/{name}`
pub(super) async fn delete(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    let format = negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let options = read_options(call, body).await?;
    let warning = call.registry.warning_on_delete(&call.target, &options);
    let text = match call.registry.delete(&call.target, &options).await? {
        Deleted::Gone { uid } => {
            Bytes::from(Status::deleted(call.resource(), &call.target.name, &uid).to_json())
        }
        Deleted::Marked(text) | Deleted::Last(text) => text,
    };
    call.record.response_object(&text);
    let answer = answer::json(call.exchange, 200, text, format);
    Ok(warning.into_iter().fold(answer, |answer, it| answer.warn(it)))
}

/// `DELETE …`
pub(super) async fn delete_collection(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    let format = negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let list = options::list(&call.exchange.query)?;
    let options = read_options(call, body).await?;
    let page = call.registry.delete_collection(&call.target, &options, &list).await?;
    let listed = page.into_text(&call.target);
    if format == negotiate::Format::default() {
        return Ok(answer::json_pieces(call.exchange, listed.length, listed));
    }
    let mut text = Vec::with_capacity(listed.length);
    listed.for_each(|it| text.extend_from_slice(&it));
    Ok(answer::json(call.exchange, 200, Bytes::from(text), format))
}

/// The `DeleteOptions` of the body, and what the query adds.
async fn read_options(call: &mut Call<'_>, body: RequestBody) -> Result<DeleteOptions, Status> {
    let mut options = match call.read_delete_options(body).await? {
        Some(object) => serde_json::from_value(object).map_err(|error| {
            Status::bad_request(format!("couldn't get version/kind; json parse error: {error}"))
        })?,
        None => DeleteOptions::default(),
    };
    let query = &call.exchange.query;
    if options::dry_run(query, "DeleteOptions")? {
        options.dry_run = vec!["All".to_owned()];
    }
    if query.has("gracePeriodSeconds") {
        let seconds = options::number(query.get("gracePeriodSeconds"))?;
        options.grace_period_seconds = Some(i64::try_from(seconds).unwrap_or(i64::MAX));
    }
    if query.has("propagationPolicy") {
        options.propagation_policy = Some(query.get("propagationPolicy").to_owned());
    }
    if query.has("orphanDependents") {
        options.orphan_dependents = Some(query.is_true("orphanDependents"));
    }
    Ok(options)
}
