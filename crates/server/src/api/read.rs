//! GET and LIST.

use bytes::Bytes;
use meta::Status;
use serde_json::json;

use super::{Call, options};
use crate::{
    answer::{self, Answer},
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
        let options = options::list(&call.exchange.query)?;
        let page = match wanted {
            shape::Shape::Metadata { .. } => call.registry.list_at_best(&call.target, &options).await?,
            shape::Shape::Table(_) => call.registry.list(&call.target, &options).await?,
        };
        let shaped = shape::page(call, wanted, &page)?;
        return Ok(answer::json(call.exchange, 200, shaped, Format::default()));
    }
    let format = negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let options = options::list(&call.exchange.query)?;
    let page = call.registry.list(&call.target, &options).await?;
    let listed = page.into_text(&call.target);
    if format == Format::default() && !call.record.wants_response() {
        return Ok(answer::json_pieces(call.exchange, listed.length, listed));
    }
    let mut text = Vec::with_capacity(listed.length.unwrap_or_default());
    listed.for_each(|it| text.extend_from_slice(&it));
    let text = Bytes::from(text);
    call.record.response_object(&text);
    Ok(answer::json(call.exchange, 200, text, format))
}

/// `componentstatuses`: not stored, made up on the spot from what this server knows: its store.
pub(super) fn component_status(call: &mut Call<'_>) -> Result<Answer, Status> {
    if &*call.served.definition.resource != "componentstatuses" {
        return Err(Status::method_not_allowed());
    }
    let format = negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let health = call.registry.cache().health();
    let condition = match &health {
        Ok(()) => json!({"type": "Healthy", "status": "True", "message": "ok"}),
        Err(why) => json!({"type": "Healthy", "status": "False", "message": why}),
    };
    let mut item = json!({"metadata": {"name": "etcd-0"}, "conditions": [condition]});
    let document = match call.path.name.as_str() {
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
