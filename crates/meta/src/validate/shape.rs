//! Whether metadata has the JSON types it must have, with the words of upstream's decoder.
//!
//! Deliberately not here: the types of everything outside `metadata`, `apiVersion` and `kind`.

use crate::{Map, Value, time};

/// The complaint of upstream's decoder about the first wrong type in `apiVersion`, `kind` or `metadata`, if any.
/// `null` is accepted wherever upstream accepts it, which is everywhere.
pub fn metadata_shape(object: &Value) -> Result<(), String> {
    let Value::Object(object) = object else {
        return Err(format!("json: cannot unmarshal {} into Go value of type v1.TypeMeta", describe(object)));
    };
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or("");
    for field in ["apiVersion", "kind"] {
        fits(object.get(field), Type::Text, &format!("{kind}.{field}"))?;
    }
    match object.get("metadata") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Object(metadata)) => all_fit(metadata, &METADATA, "ObjectMeta.metadata"),
        Some(other) => Err(wrong(other, &format!("{kind}.metadata"), "v1.ObjectMeta")),
    }
}

/// The type of a field, as far as it matters here.
#[derive(Clone, Copy)]
enum Type {
    Text,
    Uid,
    Number,
    Bool,
    Time,
    Texts,
    TextList,
    Owners,
    ManagedFields,
}

const METADATA: [(&str, Type); 15] = [
    ("name", Type::Text),
    ("generateName", Type::Text),
    ("namespace", Type::Text),
    ("selfLink", Type::Text),
    ("uid", Type::Uid),
    ("resourceVersion", Type::Text),
    ("generation", Type::Number),
    ("creationTimestamp", Type::Time),
    ("deletionTimestamp", Type::Time),
    ("deletionGracePeriodSeconds", Type::Number),
    ("labels", Type::Texts),
    ("annotations", Type::Texts),
    ("ownerReferences", Type::Owners),
    ("finalizers", Type::TextList),
    ("managedFields", Type::ManagedFields),
];

const OWNER: [(&str, Type); 6] = [
    ("apiVersion", Type::Text),
    ("kind", Type::Text),
    ("name", Type::Text),
    ("uid", Type::Uid),
    ("controller", Type::Bool),
    ("blockOwnerDeletion", Type::Bool),
];

const MANAGED_FIELDS: [(&str, Type); 6] = [
    ("manager", Type::Text),
    ("operation", Type::Text),
    ("apiVersion", Type::Text),
    ("time", Type::Time),
    ("fieldsType", Type::Text),
    ("subresource", Type::Text),
];

fn all_fit(map: &Map, fields: &[(&str, Type)], path: &str) -> Result<(), String> {
    fields.iter().try_for_each(|(field, kind)| fits(map.get(*field), *kind, &format!("{path}.{field}")))
}

fn fits(value: Option<&Value>, kind: Type, path: &str) -> Result<(), String> {
    let Some(value) = value.filter(|it| !it.is_null()) else { return Ok(()) };
    match (kind, value) {
        (Type::Text | Type::Uid, Value::String(_)) | (Type::Bool, Value::Bool(_)) => Ok(()),
        (Type::Text, other) => Err(wrong(other, path, "string")),
        (Type::Uid, other) => Err(wrong(other, path, "types.UID")),
        (Type::Bool, other) => Err(wrong(other, path, "bool")),
        (Type::Number, Value::Number(number)) if number.is_i64() => Ok(()),
        (Type::Number, Value::Number(number)) => {
            Err(format!("json: cannot unmarshal number {number} into Go struct field {path} of type int64"))
        }
        (Type::Number, other) => Err(wrong(other, path, "int64")),
        (Type::Time, Value::String(text)) => time::check_time(text),
        (Type::Time, other) => {
            Err(format!("json: cannot unmarshal {} into Go value of type string", describe(other)))
        }
        (Type::Texts, Value::Object(map)) => map.values().try_for_each(|it| fits(Some(it), Type::Text, path)),
        (Type::Texts, other) => Err(wrong(other, path, "map[string]string")),
        (Type::TextList, Value::Array(list)) => {
            list.iter().try_for_each(|it| fits(Some(it), Type::Text, path))
        }
        (Type::TextList, other) => Err(wrong(other, path, "[]string")),
        (Type::Owners, Value::Array(list)) => entries(list, &OWNER, "OwnerReference", path),
        (Type::Owners, other) => Err(wrong(other, path, "[]v1.OwnerReference")),
        (Type::ManagedFields, Value::Array(list)) => {
            entries(list, &MANAGED_FIELDS, "ManagedFieldsEntry", path)
        }
        (Type::ManagedFields, other) => Err(wrong(other, path, "[]v1.ManagedFieldsEntry")),
    }
}

/// A list of structures. Upstream names the innermost structure, then the whole path.
fn entries(list: &[Value], fields: &[(&str, Type)], name: &str, path: &str) -> Result<(), String> {
    let inner = path.split_once('.').map_or_else(|| name.to_owned(), |(_, rest)| format!("{name}.{rest}"));
    list.iter().try_for_each(|it| match it {
        Value::Null => Ok(()),
        Value::Object(map) => all_fit(map, fields, &inner),
        other => Err(wrong(other, path, &format!("v1.{name}"))),
    })
}

fn wrong(value: &Value, path: &str, kind: &str) -> String {
    format!("json: cannot unmarshal {} into Go struct field {path} of type {kind}", describe(value))
}

fn describe(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
