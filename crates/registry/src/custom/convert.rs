//! Conversion by webhook: the review that is sent, and what must be true of the answer before any of it is used.
//!
//! **Guarantees.** Whatever comes back has the wanted version, the kind, name, namespace and uid of what was sent, and
//! there are as many objects in the same order. Metadata is what it was, labels and annotations aside. Every failure
//! names the definition whose webhook it was.
//! Deliberately not here: HTTPS, time-outs and certificates; the server brings them.

#[cfg(test)]
mod tests;

use std::{future::Future, pin::Pin, sync::Arc};

use bytes::Bytes;
use meta::{GroupVersion, Status, Value, object};
use serde_json::json;
use uuid::Uuid;

/// How many objects are sent at once, and about how many bytes.
const MAX_BATCH: usize = 500;
const MAX_BATCH_BYTES: usize = 4 << 20;

/// How a webhook is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// The definition whose webhook it is.
    pub definition: String,
    /// `spec.conversion.webhook.clientConfig`
    pub client: Value,
    /// The versions of `ConversionReview` that it understands, preferred first.
    pub review_versions: Vec<String>,
}

/// A call on its way: the body of the answer, or why there is none.
pub type Call = Pin<Box<dyn Future<Output = Result<Bytes, String>> + Send>>;

/// Sends reviews to webhooks.
pub trait Webhooks: Send + Sync + 'static {
    /// Sends one review.
    fn call(&self, config: &Arc<ClientConfig>, review: Bytes) -> Call;
}

/// For servers that call nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoWebhooks;

impl Webhooks for NoWebhooks {
    fn call(&self, _: &Arc<ClientConfig>, _: Bytes) -> Call {
        Box::pin(async { Err("this server calls no webhooks".to_owned()) })
    }
}

/// Converts objects of one kind; the answer has them in the same order.
pub(crate) async fn convert(
    webhooks: &dyn Webhooks,
    config: &Arc<ClientConfig>,
    objects: Vec<Value>,
    wanted: &GroupVersion,
) -> Result<Vec<Value>, Status> {
    let mut converted = Vec::with_capacity(objects.len());
    let mut rest = objects.into_iter().peekable();
    while rest.peek().is_some() {
        let mut batch = Vec::new();
        let mut n_bytes = 0;
        while let Some(object) =
            rest.next_if(|_| batch.len() < MAX_BATCH && (batch.is_empty() || n_bytes < MAX_BATCH_BYTES))
        {
            n_bytes += object.to_string().len();
            batch.push(object);
        }
        converted.extend(convert_batch(webhooks, config, &batch, wanted).await?);
    }
    Ok(converted)
}

/// Whether a conversion failed because the webhook did not answer at all, which says nothing about the objects.
pub(crate) fn is_unreached(status: &Status) -> bool {
    let (is_webhook, is_post) =
        (status.message.contains("conversion webhook for "), status.message.contains(" failed: Post "));
    is_webhook && is_post && !status.message.contains("the response is larger than")
}

async fn convert_batch(
    webhooks: &dyn Webhooks,
    config: &Arc<ClientConfig>,
    objects: &[Value],
    wanted: &GroupVersion,
) -> Result<Vec<Value>, Status> {
    let from = objects
        .first()
        .map_or_else(String::new, |it| format!("{}, Kind={}", object::api_version(it), object::kind(it)));
    let fail = |what: String| {
        let name = &config.definition;
        Status::internal(format!("conversion webhook for {from} failed: {what} (webhook of {name})"))
    };
    let version = config.review_versions.iter().find(|it| matches!(it.as_str(), "v1" | "v1beta1"));
    let Some(version) = version else {
        return Err(fail("no supported conversion review versions".to_owned()));
    };
    let uid = Uuid::new_v4().to_string();
    let review = json!({
        "kind": "ConversionReview",
        "apiVersion": format!("apiextensions.k8s.io/{version}"),
        "request": {"uid": uid, "desiredAPIVersion": wanted.to_string(), "objects": objects},
    });
    let answer = webhooks.call(config, Bytes::from(review.to_string())).await.map_err(&fail)?;
    let limits = schema::json::Limits { max_bytes: 64 << 20, ..schema::json::Limits::STORED };
    let answer = schema::json::parse(&answer, limits)
        .map_err(|error| fail(format!("the answer is not readable: {error}")))?;
    let converted = answered(&answer, version, &uid).map_err(&fail)?;
    if converted.len() != objects.len() {
        let what = format!("returned {} objects, expected {}", converted.len(), objects.len());
        return Err(fail(what));
    }
    let pairs = objects.iter().zip(converted).enumerate();
    pairs
        .map(|(at, (original, converted))| {
            check(original, converted, wanted)
                .map_err(|why| fail(format!("returned invalid converted object at index {at}: {why}")))
        })
        .collect()
}

/// The objects of an answer that says it worked.
fn answered(answer: &Value, version: &str, uid: &str) -> Result<Vec<Value>, String> {
    let wanted = format!("apiextensions.k8s.io/{version}");
    if object::kind(answer) != "ConversionReview" || object::api_version(answer) != wanted {
        return Err(format!(
            "expected webhook response of {wanted}, Kind=ConversionReview, got {}, Kind={}",
            object::api_version(answer),
            object::kind(answer)
        ));
    }
    let response = answer.get("response").filter(|it| it.is_object()).ok_or("no response provided")?;
    let text = |path: &str| response.pointer(path).and_then(Value::as_str).unwrap_or_default();
    if text("/uid") != uid {
        return Err(format!("expected response.uid={uid:?}, got {:?}", text("/uid")));
    }
    match (text("/result/status"), text("/result/message")) {
        ("Success", _) => {}
        (status, "") => return Err(format!("response.result.status was '{status}', not 'Success'")),
        (_, message) => return Err(message.to_owned()),
    }
    Ok(response.get("convertedObjects").and_then(Value::as_array).cloned().unwrap_or_default())
}

/// What came back for one object, with the metadata that it went with.
fn check(original: &Value, mut converted: Value, wanted: &GroupVersion) -> Result<Value, String> {
    let is = object::api_version(&converted);
    if is != wanted.to_string() {
        return Err(format!("invalid groupVersion (expected {wanted}, received {is})"));
    }
    let (expected, got) = (object::kind(original), object::kind(&converted));
    if expected != got {
        return Err(format!("invalid kind (expected {expected}, received {got})"));
    }
    if !converted.get("metadata").is_some_and(Value::is_object) {
        return Err("missing metadata in converted object".to_owned());
    }
    for (what, field) in [("name", "name"), ("namespace", "namespace"), ("UID", "uid")] {
        let (expected, got) = (object::meta_text(original, field), object::meta_text(&converted, field));
        if expected != got {
            return Err(format!("must have the same {what}: {expected} != {got}"));
        }
    }
    let mut metadata = original.get("metadata").cloned().unwrap_or_else(|| json!({}));
    for field in ["labels", "annotations"] {
        let map = object::as_map_mut(&mut metadata);
        match converted.pointer_mut(&format!("/metadata/{field}")).map(Value::take) {
            None | Some(Value::Null) => {
                map.remove(field);
            }
            Some(Value::Object(texts)) => {
                if let Some((key, _)) = texts.iter().find(|(_, it)| !it.is_string()) {
                    return Err(format!("metadata.{field}[{key}] must be a string in converted object"));
                }
                map.insert(field.to_owned(), Value::Object(texts));
            }
            Some(_) => return Err(format!("invalid metadata.{field} in converted object")),
        }
    }
    let errors = meta::validate::validate_object_meta(
        &json!({"metadata": metadata}),
        metadata.get("namespace").is_some(),
        meta::validate::NameRule::Subdomain,
    );
    let is_about_texts = |it: &&meta::FieldError| {
        it.field.starts_with("metadata.labels") || it.field.starts_with("metadata.annotations")
    };
    if let Some(error) = errors.0.iter().find(is_about_texts) {
        return Err(error.to_string());
    }
    object::as_map_mut(&mut converted).insert("metadata".to_owned(), metadata);
    Ok(converted)
}
