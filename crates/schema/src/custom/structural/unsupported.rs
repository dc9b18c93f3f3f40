//! Words for which a structural schema has no place.
//!
//! Upstream cannot even build a structural schema from them, so it says nothing of structure until they are gone: a
//! schema with a `$ref` is told about that, not about the type that is missing beside it.

use super::{is_set, is_true, listed, object, properties};
use crate::{Map, Value};

/// What stands in the way first.
pub(super) fn first(schema: &Map) -> Option<String> {
    let words =
        ["id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"];
    if let Some(word) = words.into_iter().find(|it| is_set(schema, it)) {
        // Upstream calls this one by the name of its field.
        let name = if word == "$schema" { "schema" } else { word };
        return Some(format!("OpenAPIV3Schema '{name}' is not supported"));
    }
    let alternatives = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|it| listed(schema, it));
    let alternatives = object(schema, "not").into_iter().chain(alternatives.map(|(_, it)| it));
    if let Some(found) = alternatives.into_iter().find_map(first) {
        return Some(found);
    }
    let word = "x-kubernetes-preserve-unknown-fields";
    if schema.get(word).is_some_and(|it| !it.is_null()) && !is_true(schema, word) {
        return Some(format!("internal error: '{word}' must be true or undefined"));
    }
    if schema.get("items").is_some_and(Value::is_array) {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    let below = object(schema, "items").into_iter().chain(properties(schema).map(|(_, _, it)| it));
    below.chain(object(schema, "additionalProperties")).find_map(first)
}
