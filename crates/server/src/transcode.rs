//! Objects in other forms than JSON: bodies that come as protobuf or YAML, answers and watches that leave so.
//!
//! Responsible for finding the type of an object and handing it to the codecs. JSON is what the rest of the server reads
//! and makes; requests and answers in JSON do not come here.
//! Deliberately not here: which form is asked for ([`crate::negotiate`]), and the forms themselves (`schema`).
//! Start at [`read`] and [`finish`].

use bytes::Bytes;
use catalog::Schemas;
use meta::{Status, Value};
use schema::{
    json::Limits,
    model::TypeId,
    protobuf::{self, ListEncoder, ProtobufError},
    yaml,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    answer::{self, Answer},
    chain::Envelope,
    negotiate::{self, Format, Media},
    payer::Payer,
    pool::{self, Pool},
};

/// Why an answer stays JSON.
enum Unfit {
    /// It is no object: `/version`.
    NoObject,
    /// It is one of a kind that has no such form.
    NoType,
}

/// An object that was sent in another form than JSON, or 400. `group_version` and `kind` are what is meant where the
/// body does not say.
pub(crate) fn read(
    schemas: &Schemas,
    media: Media,
    bytes: &[u8],
    group_version: &str,
    kind: &str,
) -> Result<Value, Status> {
    match media {
        // JSON is YAML, too.
        Media::Json | Media::Yaml => read_yaml(bytes, kind).map(|it| it.value),
        Media::Protobuf => {
            let lookup = |api_version: &str, sent: &str| match sent {
                "" => find(schemas, group_version, kind),
                sent => find(schemas, api_version, sent),
            };
            protobuf::decode_object(bytes, &lookup, schemas.schema())
                .map_err(|error| refuse(bytes, kind, &error))
        }
    }
}

/// A YAML body, or 400.
pub(crate) fn read_yaml(bytes: &[u8], kind: &str) -> Result<yaml::Document, Status> {
    yaml::read(bytes, Limits::REQUEST).map_err(|error| unrecognized(bytes, kind, &error))
}

/// Names what was sent, if the envelope says it, as upstream does.
fn refuse(bytes: &[u8], kind: &str, error: &ProtobufError) -> Status {
    match protobuf::open(bytes) {
        Ok(envelope) if !envelope.kind.is_empty() => {
            let version = envelope.api_version.rsplit('/').next().unwrap_or_default();
            let sent = envelope.kind;
            Status::bad_request(format!(
                "{sent} in version {version:?} cannot be handled as a {kind}: {error}"
            ))
        }
        _ => unrecognized(bytes, kind, &error.to_string()),
    }
}

fn unrecognized(bytes: &[u8], kind: &str, error: &str) -> Status {
    let shown = schema::json::summary(bytes);
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {error} ({shown})"
    ))
}

/// The type of a kind; `api_version` is `v1` or `apps/v1`.
pub(crate) fn find(schemas: &Schemas, api_version: &str, kind: &str) -> Option<TypeId> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    schemas.kind(group, version, kind)
}

/// An answer in the form that was asked for, if it is an object.
pub(crate) async fn finish(
    schemas: &Schemas,
    pool: &Pool,
    payer: &Payer,
    exchange: &Envelope,
    mut answer: Answer,
) -> Answer {
    let media = std::mem::take(&mut answer.media);
    if media == Media::Json {
        return answer;
    }
    let Some(text) = answer.response.body_mut().take_full() else { return answer };
    if text.len() < pool::LARGE {
        return transcoded(schemas, exchange, media, text, answer);
    }
    // What is answered was done: it is told, however much there is to do.
    let ticket = pool.enter_anyway(payer);
    ticket.run(async { transcoded(schemas, exchange, media, text, answer) }).await
}

/// The same: `text` is what the answer says in JSON.
fn transcoded(
    schemas: &Schemas,
    exchange: &Envelope,
    media: Media,
    text: Bytes,
    mut answer: Answer,
) -> Answer {
    let can_stay = || answer.failure.is_some() || negotiate::reads_json(&exchange.headers);
    match encode(schemas, media, &text) {
        Ok(bytes) => answer::fill(exchange, &mut answer, media.name(), bytes),
        Err(Unfit::NoType) if !can_stay() => {
            let status = Status::not_acceptable(&negotiate::UNTYPED);
            let refusal =
                answer::json(exchange, status.code, Bytes::from(status.to_json()), Format::default());
            let is_known_resource = answer.is_known_resource;
            return Answer { is_known_resource, failure: Some(Box::new(status)), ..refusal };
        }
        Err(Unfit::NoObject | Unfit::NoType) => {
            answer::fill(exchange, &mut answer, Media::Json.name(), text);
        }
    }
    answer
}

/// One event of a watch in the form that was asked for. The event is a line of JSON.
pub(crate) fn watch_frame(schemas: &Schemas, line: &[u8]) -> Option<Bytes> {
    #[derive(Deserialize)]
    struct Event<'a> {
        #[serde(rename = "type")]
        event: &'a str,
        object: Value,
    }
    let Event { event, object } = serde_json::from_slice(line).ok()?;
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let ty = find(schemas, text("apiVersion"), text("kind"))?;
    let object = protobuf::encode_object(&object, schemas.schema(), ty);
    Some(protobuf::encode_watch_frame(event, &object).into())
}

fn encode(schemas: &Schemas, media: Media, text: &[u8]) -> Result<Bytes, Unfit> {
    match media {
        Media::Json => Ok(Bytes::copy_from_slice(text)),
        Media::Protobuf => to_protobuf(schemas, text),
        Media::Yaml => {
            let value: Value = serde_json::from_slice(text).map_err(|_| Unfit::NoObject)?;
            Ok(yaml::to_text(&value).into())
        }
    }
}

fn to_protobuf(schemas: &Schemas, text: &[u8]) -> Result<Bytes, Unfit> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Head {
        // The oldest documents of discovery do without.
        #[serde(default = "oldest")]
        api_version: String,
        kind: String,
    }
    let Head { api_version, kind } = serde_json::from_slice(text).map_err(|_| Unfit::NoObject)?;
    let ty = find(schemas, &api_version, &kind).ok_or(Unfit::NoType)?;
    if let Some(list) = ListEncoder::new(schemas.schema(), ty) {
        return list_to_protobuf(list, text);
    }
    let mut value: Value = serde_json::from_slice(text).map_err(|_| Unfit::NoType)?;
    value["apiVersion"] = api_version.into();
    Ok(protobuf::encode_object(&value, schemas.schema(), ty).into())
}

fn oldest() -> String {
    "v1".to_owned()
}

/// Item by item: a long list as a tree would take ten times the memory of its text.
fn list_to_protobuf(mut list: ListEncoder<'_>, text: &[u8]) -> Result<Bytes, Unfit> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct List<'a> {
        api_version: Value,
        kind: Value,
        #[serde(default)]
        metadata: Value,
        #[serde(borrow, default)]
        items: Vec<&'a RawValue>,
    }
    let List { api_version, kind, metadata, items } =
        serde_json::from_slice(text).map_err(|_| Unfit::NoType)?;
    for item in items {
        list.push(&serde_json::from_str(item.get()).map_err(|_| Unfit::NoType)?);
    }
    let head = serde_json::json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
    Ok(list.finish(&head).concat().into())
}
