//! DELETE of one object or of a collection.

use bytes::Bytes;
use meta::{Reason, Status, Value};
use registry::{DeleteOptions, Deleted};

use super::{Call, options, write::written_format};
use crate::{
    admit::Admitter,
    answer::{self, Answer},
    body::RequestBody,
    negotiate, shape,
};

/// `DELETE …/{name}`
pub(super) async fn delete(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    let format = written_format(call)?;
    let options = read_options(call, body).await?;
    authorize_unsafe(call, &options)?;
    let admit = Admitter::of_delete(call, &options);
    let warning = call.registry.warning_on_delete(&call.target, &options);
    let grounds = call.exchange.grounds()?;
    let text = match call.registry.delete(&call.target, &options, &admit, grounds).await? {
        Deleted::Gone { uid } => {
            Bytes::from(Status::deleted(call.resource(), &call.target.name, &uid).to_json())
        }
        Deleted::Marked(text) | Deleted::Last(text) => match shape::wanted(call.exchange) {
            Some(wanted) => shape::object(call, wanted, &text)?,
            None => text,
        },
    };
    call.record.response_object(&text);
    let answer = answer::json(call.exchange, 200, text, format);
    Ok(warning.into_iter().fold(answer, |answer, it| answer.warn(it)))
}

/// `DELETE …`
pub(super) async fn delete_collection(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    let format = negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let list = options::list(call)?;
    let options = read_options(call, body).await?;
    let admit = Admitter::of_delete(call, &options);
    let grounds = call.exchange.grounds()?;
    let page = call.registry.delete_collection(&call.target, &options, &admit, &list, grounds).await?;
    let listed = page.into_text(&call.target);
    if format == negotiate::Format::default() {
        let ticket = || call.dispatch.pool.enter_anyway(&call.caller.payer);
        return Ok(answer::json_pieces(call.exchange, listed.length, listed, ticket));
    }
    let mut text = Vec::with_capacity(listed.length.unwrap_or_default());
    listed.for_each(|it| text.extend_from_slice(&it));
    Ok(answer::json(call.exchange, 200, Bytes::from(text), format))
}

/// The `DeleteOptions` of the body, or of the query where there is no body.
async fn read_options(call: &mut Call<'_>, body: RequestBody) -> Result<DeleteOptions, Status> {
    let mut options = match call.read_delete_options(body).await? {
        Some(object) => from_body(object)?,
        None => options::delete(&call.exchange.query)?,
    };
    if !call.dispatch.catalog.gates().enabled(catalog::Gate::AllowUnsafeMalformedObjectDeletion) {
        options.ignore_store_read_error_with_cluster_breaking_potential = None;
    }
    Ok(options)
}

/// 403 unless the caller may remove what cannot be decoded, which takes a right of its own.
fn authorize_unsafe(call: &mut Call<'_>, options: &DeleteOptions) -> Result<(), Status> {
    const VERB: &str = "unsafe-delete-ignore-read-errors";
    if !options.ignores_read_errors() {
        return Ok(());
    }
    call.record.annotate("apiserver.k8s.io/unsafe-delete-ignore-read-error".to_owned(), String::new());
    let attributes = access::Attributes { verb: VERB, ..call.asked.attributes() };
    match call.dispatch.authorizer.authorize(&attributes) {
        access::Verdict::Allow(_) => Ok(()),
        access::Verdict::Deny(reason) | access::Verdict::NoOpinion(reason) => {
            let why = format!("not permitted to do {VERB:?}, reason: {reason}");
            Err(Status::forbidden(call.resource(), &call.target.name, &why))
        }
    }
}

/// Upstream answers options that it cannot read with a plain error, which is a 500.
pub(super) fn from_body(object: Value) -> Result<DeleteOptions, Status> {
    serde_json::from_value(object).map_err(|error| unreadable(error.to_string()))
}

pub(super) fn unreadable(why: impl Into<String>) -> Status {
    Status::failure(500, Reason::Unknown, why)
}
