//! GET and LIST.

use bytes::Bytes;
use meta::Status;
use registry::{ListOptions, ListPage};
use serde_json::json;

use super::{Call, MANY, options};
use crate::{
    answer::{self, Answer},
    memory::Reserved,
    negotiate::{self, Format},
    shape,
};

/// `GET …/{name}`
pub(super) async fn get(call: &mut Call<'_>) -> Result<Answer, Status> {
    if let Some(wanted) = shape::wanted(call.exchange) {
        let text = call.registry.get(&call.target, call.exchange.query.get("resourceVersion")).await?;
        let shaped = shape::object(call, wanted, &text)?;
        return Ok(answer::json(call.exchange, 200, shaped, Format::default()));
    }
    let format = negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let text = call.registry.get(&call.target, call.exchange.query.get("resourceVersion")).await?;
    call.record.response_object(&text);
    Ok(answer::json(call.exchange, 200, text, format))
}

/// `GET …`
pub(super) async fn list(call: &mut Call<'_>) -> Result<Answer, Status> {
    if let Some(wanted) = shape::wanted(call.exchange) {
        let options = options::list(call)?;
        let read = reserve_read(call, &options)?;
        let page = match wanted {
            shape::Shape::Metadata { .. } => call.registry.list_at_best(&call.target, &options).await?,
            shape::Shape::Table(_) => call.registry.list(&call.target, &options).await?,
        };
        let reserved = reserve(call, SHAPED, &page, read)?;
        let shaped = shape::page(call, wanted, &page)?;
        let answer = answer::json(call.exchange, 200, shaped, Format::default());
        return Ok(answer.holding(reserved));
    }
    let format = negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let options = options::list(call)?;
    let read = reserve_read(call, &options)?;
    let page = call.registry.list(&call.target, &options).await?;
    let is_sent_as_it_is = format == Format::default() && !call.record.wants_response();
    let reserved = if is_sent_as_it_is { read } else { reserve(call, FORMATTED, &page, read)? };
    let listed = page.into_text(&call.target);
    if is_sent_as_it_is {
        let ticket = || call.dispatch.pool.enter_anyway(&call.caller.payer);
        return Ok(answer::json_pieces(call.exchange, listed.length, listed, ticket).holding(reserved));
    }
    let mut text = Vec::with_capacity(listed.length.unwrap_or_default());
    listed.for_each(|it| text.extend_from_slice(&it));
    let text = Bytes::from(text);
    call.record.response_object(&text);
    Ok(answer::json(call.exchange, 200, text, format).holding(reserved))
}

/// How many times its own size a list takes while it is made into a table or bare metadata.
const SHAPED: usize = 3;

/// The same for YAML, protobuf, indented JSON and the audit log: text, tree, and text again.
const FORMATTED: usize = 4;

/// The same for objects that are read from the store, or converted.
const READ: usize = 2;

/// Memory for what is made of a page, before it is made.
fn reserve(call: &Call<'_>, times: usize, page: &ListPage, read: Reserved) -> Result<Reserved, Status> {
    let n_bytes: usize = page.items.iter().map(|it| it.text().len()).sum();
    call.dispatch.memory.reserve(&call.caller.payer, n_bytes.saturating_mul(times), read)
}

/// Memory for what is not in the cache as the client sees it: old revisions, and objects that have to be converted.
fn reserve_read(call: &Call<'_>, options: &ListOptions) -> Result<Reserved, Status> {
    let is_old = !options.continue_token.is_empty() || options.resource_version_match == "Exact";
    if !is_old && call.target.kind.custom.is_none() {
        return Ok(Reserved::default());
    }
    let limit = options.limit.filter(|it| *it > 0).and_then(|it| usize::try_from(it).ok());
    let is_plain = options.labels.is_everything() && options.fields.is_everything();
    let most = match limit {
        Some(limit) if is_plain => limit,
        // What is not selected is read as well, some at a time.
        Some(limit) if is_old => limit.saturating_add(MANY),
        _ => usize::MAX,
    };
    let extent = call.registry.extent(&call.target, most);
    let n_bytes = if is_old { extent.n_bytes } else { extent.n_converted };
    call.dispatch.memory.reserve(&call.caller.payer, n_bytes.saturating_mul(READ), Reserved::default())
}

/// `componentstatuses`: not stored, made up on the spot from what this server knows: its store.
pub(super) fn component_status(call: &mut Call<'_>) -> Result<Answer, Status> {
    if &*call.served.definition.resource != "componentstatuses" {
        return Err(Status::internal("a resource that is not stored can only be created"));
    }
    let format = negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let health = call.registry.cache().health();
    let condition = match &health {
        Ok(()) => json!({"type": "Healthy", "status": "True", "message": "ok"}),
        Err(why) => json!({"type": "Healthy", "status": "False", "message": why}),
    };
    let mut item = json!({"metadata": {"name": "etcd-0"}, "conditions": [condition]});
    let document = match call.target.name.as_str() {
        "" => {
            json!({"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": [item]})
        }
        "etcd-0" => {
            item["kind"] = "ComponentStatus".into();
            item["apiVersion"] = "v1".into();
            item
        }
        name => return Err(Status::not_found(call.resource(), name)),
    };
    Ok(answer::json(call.exchange, 200, Bytes::from(document.to_string()), format))
}
