//! The StorageVersion object: a fence record as people and tools see it.
//!
//! It is written in the same transaction as the record ([`crate::write`]) and put back when somebody deletes or
//! damages it. Equal records give equal objects, so an unchanged report never changes a resourceVersion.
//! Deliberately not here: how clients read it, and who may annotate it.

use jiff::Timestamp;
use meta::{Map, StorageVersion, Value, time::format_time};
use serde_json::json;

use crate::{Entry, FenceRecord, keys};

/// The API version of the object.
pub const API_VERSION: &str = "internal.apiserver.k8s.io/v1alpha1";

/// Its kind.
pub const KIND: &str = "StorageVersion";

/// The type of its only condition.
pub const CONDITION: &str = "AllEncodingVersionsEqual";

/// What a new object gets; an existing one keeps its own.
#[derive(Clone, Copy, Debug)]
pub struct New<'a> {
    /// Its uid.
    pub uid: &'a str,
    /// Its creation time.
    pub now: Timestamp,
}

/// The object for a record; `None` when nobody reports the resource, because then there is none.
/// Of an `existing` object everything that people may write is kept.
pub fn mirror(record: &FenceRecord, existing: Option<&Value>, new: New<'_>) -> Option<Value> {
    if record.entries.is_empty() {
        return None;
    }
    let mut metadata = existing
        .and_then(|it| it.get("metadata"))
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_else(|| metadata(new));
    metadata.insert("name".to_owned(), keys::mirror_name(&record.resource).into());
    metadata.remove("resourceVersion");
    Some(json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": {},
        "status": status(record),
    }))
}

/// Whether an object shows what the record says.
pub fn is_true(record: &FenceRecord, object: Option<&Value>) -> bool {
    match object {
        None => record.entries.is_empty(),
        Some(object) => !record.entries.is_empty() && object.get("status") == Some(&status(record)),
    }
}

fn metadata(new: New<'_>) -> Map {
    let fields = [("uid", new.uid.to_owned()), ("creationTimestamp", format_time(new.now))];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
}

fn status(record: &FenceRecord) -> Value {
    let FenceRecord { selection, common, epoch, condition, entries, .. } = record;
    let mut status = Map::new();
    status.insert("storageVersions".to_owned(), entries.iter().map(entry).collect());
    if let Some(common) = common {
        status.insert("commonEncodingVersion".to_owned(), common.as_str().into());
    }
    if let Some(selection) = selection {
        status.insert("selectedVersion".to_owned(), selection.as_str().into());
    }
    status.insert("epoch".to_owned(), epoch.get().into());
    let condition = json!({
        "type": CONDITION,
        "status": if common.is_some() { "True" } else { "False" },
        "lastTransitionTime": format_time(condition.since),
        "reason": condition.reason.as_str(),
        "message": condition.message,
    });
    status.insert("conditions".to_owned(), json!([condition]));
    Value::Object(status)
}

fn entry(entry: &Entry) -> Value {
    let Entry { identity, encoding, preferred, decodable, served, .. } = entry;
    let texts =
        |versions: &[StorageVersion]| -> Value { versions.iter().map(StorageVersion::as_str).collect() };
    let mut fields = Map::new();
    fields.insert("apiServerID".to_owned(), identity.as_str().into());
    fields.insert("encodingVersion".to_owned(), encoding.as_str().into());
    fields.insert("preferredVersion".to_owned(), preferred.as_str().into());
    fields.insert("decodableVersions".to_owned(), texts(decodable));
    if !served.is_empty() {
        fields.insert("servedVersions".to_owned(), texts(served));
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests;
