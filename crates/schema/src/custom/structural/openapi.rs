//! Which words a schema uses, and whether they stand where they may.

use meta::{FieldError, FieldErrors};

use super::{is_true, listed, object, properties, text};
use crate::{Map, Value, json};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Why no default may stand here, and whether this is inside the metadata of a resource.
#[derive(Clone, Default)]
struct Place {
    no_defaults: Option<String>,
    is_metadata: bool,
}

pub(super) fn check(root: &Map, path: &str, errors: &mut FieldErrors) {
    node(root, path, &Place::default(), true, errors);
}

fn node(schema: &Map, path: &str, place: &Place, is_root: bool, errors: &mut FieldErrors) {
    words(schema, path, place, errors);
    if is_true(schema, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(format!("{path}.uniqueItems"), detail));
    }
    additional(schema, path, place, errors);
    let is_resource = is_root || is_true(schema, "x-kubernetes-embedded-resource");
    for (name, step, property) in properties(schema) {
        let mut below = place.clone();
        if is_resource && matches!(name, "metadata" | "kind" | "apiVersion") {
            below.is_metadata = true;
            if is_root {
                below.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        node(property, &format!("{path}.{step}"), &below, false, errors);
    }
    if let Some(not) = object(schema, "not") {
        node(not, &format!("{path}.not"), place, false, errors);
    }
    for field in ["allOf", "oneOf", "anyOf"] {
        for (step, part) in listed(schema, field) {
            node(part, &format!("{path}.{step}"), place, false, errors);
        }
    }
    if let Some(items) = object(schema, "items") {
        node(items, &format!("{path}.items"), place, false, errors);
    }
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let place = format!("{path}.x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid_shown(place, "false".to_owned(), "must be true or undefined"));
    }
    map_type(schema, path, errors);
    list_type(schema, path, errors);
    list_keys(schema, path, errors);
    rules(schema, path, errors);
}

fn words(schema: &Map, path: &str, place: &Place, errors: &mut FieldErrors) {
    let ty = text(schema, "type");
    if !ty.is_empty() && !TYPES.contains(&ty) {
        errors.push(FieldError::not_supported(format!("{path}.type"), ty, &TYPES));
    }
    if let Some(why) = &place.no_defaults
        && schema.get("default").is_some_and(|it| !it.is_null())
    {
        errors.push(FieldError::forbidden(format!("{path}.default"), format!("must not be set {why}")));
    }
    for field in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        if super::is_set(schema, field) {
            let detail = format!("{field} is not supported");
            errors.push(FieldError::forbidden(format!("{path}.{field}"), detail));
        }
    }
    if ty == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        errors.push(FieldError::forbidden(format!("{path}.type"), detail));
    }
    if schema.get("items").is_some_and(Value::is_array) {
        let detail = "items must be a schema object and not an array";
        errors.push(FieldError::forbidden(format!("{path}.items"), detail));
    }
    if place.is_metadata && is_true(schema, "x-kubernetes-embedded-resource") {
        let detail = "must not be used inside of resource meta";
        errors.push(FieldError::forbidden(format!("{path}.x-kubernetes-embedded-resource"), detail));
    }
}

fn additional(schema: &Map, path: &str, place: &Place, errors: &mut FieldErrors) {
    let at = format!("{path}.additionalProperties");
    let inner = match schema.get("additionalProperties") {
        None | Some(Value::Null) => return,
        Some(inner) => inner,
    };
    let has_properties = object(schema, "properties").is_some_and(|it| !it.is_empty());
    if has_properties && *inner != Value::Bool(true) {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(&at, detail));
    }
    if let Value::Object(inner) = inner {
        let mut below = place.clone();
        if place.is_metadata {
            below.no_defaults = Some("inside additionalProperties applying to object metadata".to_owned());
        }
        node(inner, &at, &below, false, errors);
    }
}

fn map_type(schema: &Map, path: &str, errors: &mut FieldErrors) {
    let map_type = text(schema, "x-kubernetes-map-type");
    if map_type.is_empty() {
        return;
    }
    wants_type(schema, "object", "x-kubernetes-map-type", path, errors);
    if !matches!(map_type, "atomic" | "granular") {
        let place = format!("{path}.x-kubernetes-map-type");
        errors.push(FieldError::not_supported(place, map_type, &["atomic", "granular"]));
    }
}

fn wants_type(schema: &Map, wanted: &str, because: &str, path: &str, errors: &mut FieldErrors) -> bool {
    let ty = text(schema, "type");
    if ty == wanted {
        return true;
    }
    let place = format!("{path}.type");
    let detail = format!("must be {wanted} if {because} is specified");
    errors.push(if ty.is_empty() {
        FieldError::required(place, detail)
    } else {
        FieldError::invalid(place, ty, detail)
    });
    false
}

fn list_type(schema: &Map, path: &str, errors: &mut FieldErrors) {
    let list_type = text(schema, "x-kubernetes-list-type");
    if list_type.is_empty() {
        return;
    }
    let is_array = wants_type(schema, "array", "x-kubernetes-list-type", path, errors);
    if is_array
        && list_type == "set"
        && let Some(items) = object(schema, "items")
    {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let own = text(items, "x-kubernetes-list-type");
        let shown = || if own.is_empty() { "null".to_owned() } else { meta::field::quote(own) };
        match text(items, "type") {
            "array" if !matches!(own, "" | "atomic") => {
                let place = format!("{path}.items.x-kubernetes-list-type");
                errors.push(FieldError::invalid_shown(place, shown(), detail));
            }
            "object" if text(items, "x-kubernetes-map-type") != "atomic" => {
                let place = format!("{path}.items.x-kubernetes-map-type");
                errors.push(FieldError::invalid_shown(place, shown(), detail));
            }
            _ => {}
        }
    }
    if !matches!(list_type, "atomic" | "set" | "map") {
        let place = format!("{path}.x-kubernetes-list-type");
        errors.push(FieldError {
            detail: "supported values: \"atomic\", \"set\", \"map\"".to_owned(),
            ..FieldError::not_supported(place, list_type, &[])
        });
    }
}

fn list_keys(schema: &Map, path: &str, errors: &mut FieldErrors) {
    let list_type = text(schema, "x-kubernetes-list-type");
    let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
    let keys: Vec<&str> = keys.into_iter().flatten().filter_map(Value::as_str).collect();
    let at_type = format!("{path}.x-kubernetes-list-type");
    let at_keys = format!("{path}.x-kubernetes-list-map-keys");
    if !keys.is_empty() && list_type != "map" {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(if list_type.is_empty() {
            FieldError::required(&at_type, detail)
        } else {
            FieldError::invalid(&at_type, list_type, detail)
        });
    }
    let items = object(schema, "items");
    if list_type == "map" {
        if keys.is_empty() {
            let detail = "must not be empty if x-kubernetes-list-type is map";
            errors.push(FieldError::required(&at_keys, detail));
        }
        match items {
            None => {
                let detail = "must have a schema if x-kubernetes-list-type is map";
                errors.push(FieldError::required(format!("{path}.items"), detail));
            }
            Some(items) if text(items, "type") != "object" => {
                let detail = "must be object if parent array's x-kubernetes-list-type is map";
                errors.push(FieldError::invalid(format!("{path}.items.type"), text(items, "type"), detail));
            }
            Some(items) => key_fields(items, &keys, path, &at_keys, errors),
        }
    }
    if let (Some(items), "set" | "map") = (items, list_type) {
        nullable_keys(items, list_type, &keys, path, errors);
    }
}

fn key_fields(items: &Map, keys: &[&str], path: &str, at_keys: &str, errors: &mut FieldErrors) {
    let shown = String::from_utf8_lossy(&json::to_vec(&Value::from(keys.to_vec()))).into_owned();
    for (at, key) in keys.iter().enumerate() {
        match object(items, "properties").and_then(|it| object(it, key)) {
            Some(property) => {
                if matches!(text(property, "type"), "array" | "object") {
                    let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    let place = format!("{path}.items.properties[{key}].type");
                    errors.push(FieldError::invalid(place, text(items, "type"), detail));
                }
            }
            None => {
                let detail = "entries must all be names of item properties";
                errors.push(FieldError::invalid_shown(at_keys, shown.clone(), detail));
            }
        }
        if keys[..at].contains(key) {
            let detail = "must not contain duplicate entries";
            errors.push(FieldError::invalid_shown(at_keys, shown.clone(), detail));
        }
    }
}

fn nullable_keys(items: &Map, list_type: &str, keys: &[&str], path: &str, errors: &mut FieldErrors) {
    if is_true(items, "nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(format!("{path}.items.nullable"), detail));
    }
    if list_type != "map" {
        return;
    }
    let required = items.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for key in keys {
        let Some(property) = object(items, "properties").and_then(|it| object(it, key)) else { continue };
        let place = format!("{path}.items.properties[{key}]");
        if !required.iter().any(|it| it == key) && property.get("default").is_none_or(Value::is_null) {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
                          property";
            errors.push(FieldError::required(format!("{place}.default"), detail));
        }
        if is_true(property, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(format!("{place}.nullable"), detail));
        }
    }
}

/// Rules in CEL: their texts are kept, not compiled, so only their shape is looked at.
fn rules(schema: &Map, path: &str, errors: &mut FieldErrors) {
    for (step, rule) in listed(schema, "x-kubernetes-validations") {
        let place = |field: &str| format!("{path}.{step}.{field}");
        let (expression, message) = (text(rule, "rule").trim(), text(rule, "message"));
        let has_breaks = |text: &str| text.contains(['\n', '\r']);
        if expression.is_empty() {
            errors.push(FieldError::required(place("rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            let detail = "must be non-empty if specified";
            errors.push(FieldError::invalid(place("message"), message, detail));
        } else if has_breaks(message.trim()) {
            let detail = "must not contain line breaks";
            errors.push(FieldError::invalid(place("message"), message, detail));
        } else if has_breaks(expression) && message.trim().is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            errors.push(FieldError::required(place("message"), detail));
        }
        let expression = text(rule, "messageExpression");
        if !expression.is_empty() && expression.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            errors.push(FieldError::required(place("messageExpression"), detail));
        }
        let reason = text(rule, "reason");
        if rule.contains_key("reason") && !REASONS.contains(&reason) {
            errors.push(FieldError::not_supported(place("reason"), reason, &REASONS));
        }
        let field_path = text(rule, "fieldPath");
        if !field_path.is_empty() && field_path.trim().is_empty() {
            let detail = "must be non-empty if specified";
            errors.push(FieldError::invalid(place("fieldPath"), field_path, detail));
        }
        if has_breaks(field_path) {
            let detail = "must not contain line breaks";
            errors.push(FieldError::invalid(place("fieldPath"), field_path, detail));
        }
    }
}
