//! Reading and writing the parts that every object has, in a JSON tree. What the parts may contain is not decided here.

use crate::{Map, Value};

/// `apiVersion` of the object; empty if there is none.
pub fn api_version(object: &Value) -> &str {
    text(object, "apiVersion")
}

/// `kind` of the object; empty if there is none.
pub fn kind(object: &Value) -> &str {
    text(object, "kind")
}

/// `metadata.name`; empty if there is none.
pub fn name(object: &Value) -> &str {
    meta_text(object, "name")
}

/// `metadata.namespace`; empty if there is none.
pub fn namespace(object: &Value) -> &str {
    meta_text(object, "namespace")
}

/// `metadata.uid`; empty if there is none.
pub fn uid(object: &Value) -> &str {
    meta_text(object, "uid")
}

/// `metadata.resourceVersion`; empty if there is none.
pub fn resource_version(object: &Value) -> &str {
    meta_text(object, "resourceVersion")
}

/// A text of `metadata`; empty if there is none.
pub fn meta_text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").map_or("", |it| text(it, field))
}

/// A number of `metadata`; zero if there is none.
pub fn meta_number(object: &Value, field: &str) -> i64 {
    object.get("metadata").and_then(|it| it.get(field)).and_then(Value::as_i64).unwrap_or(0)
}

/// `metadata.deletionTimestamp` is set.
pub fn is_deleting(object: &Value) -> bool {
    !meta_text(object, "deletionTimestamp").is_empty()
}

/// `metadata.finalizers`.
pub fn finalizers(object: &Value) -> Vec<&str> {
    object
        .get("metadata")
        .and_then(|it| it.get("finalizers"))
        .and_then(Value::as_array)
        .map(|it| it.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

/// `metadata` as something to change; made if it is not there or not an object.
pub fn metadata_mut(object: &mut Value) -> &mut Map {
    child_mut(as_map_mut(object), "metadata")
}

/// The object as a map; replaced by an empty one if it is something else.
pub fn as_map_mut(value: &mut Value) -> &mut Map {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("the value must be an object now"),
    }
}

/// A child that is a map; made if it is not there or something else.
pub fn child_mut<'a>(map: &'a mut Map, field: &str) -> &'a mut Map {
    as_map_mut(map.entry(field.to_owned()).or_insert(Value::Null))
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or("")
}
