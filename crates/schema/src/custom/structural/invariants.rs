//! What makes a schema structural: every place has one type, and rules about values do not add structure.

use meta::{FieldError, FieldErrors};

use super::{is_true, listed, object, properties, text};
use crate::{Map, Value};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

pub(super) fn check(root: &Map, path: &str, errors: &mut FieldErrors) {
    node(root, Level::Root, path, errors);
}

fn node(schema: &Map, level: Level, path: &str, errors: &mut FieldErrors) {
    let ty = text(schema, "type");
    if ty == "array" && !schema.contains_key("items") {
        errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
    }
    if let Some(items) = object(schema, "items") {
        node(items, Level::Item, &format!("{path}.items"), errors);
    }
    for (_, step, property) in properties(schema) {
        node(property, Level::Field, &format!("{path}.{step}"), errors);
    }
    additional(schema, level, path, errors);
    extensions(schema, path, errors);
    let skips = Skips { any_of: is_number_or_text(schema), first_all_of: is_first_number_or_text(schema) };
    values(schema, skips, path, errors);
    kind(schema, ty, level, path, errors);
    own_fields(schema, level, path, errors);
}

fn additional(schema: &Map, level: Level, path: &str, errors: &mut FieldErrors) {
    let place = format!("{path}.additionalProperties");
    let Some(inner) = schema.get("additionalProperties").filter(|it| !it.is_null()) else { return };
    if level == Level::Root {
        errors.push(FieldError::forbidden(&place, "must not be used at the root"));
    }
    if let Value::Object(inner) = inner {
        node(inner, Level::Field, &place, errors);
    }
    if is_true(schema, "x-kubernetes-embedded-resource") {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(place, detail));
    }
}

fn extensions(schema: &Map, path: &str, errors: &mut FieldErrors) {
    if !is_true(schema, "x-kubernetes-int-or-string") {
        return;
    }
    for field in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if is_true(schema, field) {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid_shown(format!("{path}.{field}"), "true".to_owned(), detail));
        }
    }
}

fn kind(schema: &Map, ty: &str, level: Level, path: &str, errors: &mut FieldErrors) {
    let place = format!("{path}.type");
    let is_free = is_true(schema, "x-kubernetes-int-or-string")
        || is_true(schema, "x-kubernetes-preserve-unknown-fields");
    if is_true(schema, "x-kubernetes-embedded-resource") && ty != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if ty.is_empty() {
            FieldError::required(&place, detail)
        } else {
            FieldError::invalid(&place, ty, detail)
        });
    } else if ty.is_empty() && !is_free {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(&place, detail));
    }
    if level == Level::Root && !ty.is_empty() && ty != "object" {
        errors.push(FieldError::invalid(place, ty, "must be object at the root"));
    }
}

/// `apiVersion`, `kind` and `metadata` of a resource are given; a schema can say little about them.
fn own_fields(schema: &Map, level: Level, path: &str, errors: &mut FieldErrors) {
    let is_embedded = is_true(schema, "x-kubernetes-embedded-resource");
    let is_resource = level == Level::Root || is_embedded;
    for (name, step, property) in properties(schema) {
        let ty = text(property, "type");
        let place = format!("{path}.{step}");
        match name {
            "kind" | "apiVersion" if is_resource && ty != "string" => {
                errors.push(FieldError::invalid(format!("{place}.type"), ty, "must be string"));
            }
            "metadata" => {
                if is_resource && ty != "object" {
                    errors.push(FieldError::invalid(format!("{place}.type"), ty, "must be object"));
                }
                if level == Level::Root && !is_bare_metadata(property) {
                    let detail = "must not specify anything other than name and generateName, but metadata is \
                                  implicitly specified";
                    errors.push(FieldError::forbidden(place, detail));
                }
            }
            _ => {}
        }
    }
    let has_properties = object(schema, "properties").is_some_and(|it| !it.is_empty());
    if is_embedded && !is_true(schema, "x-kubernetes-preserve-unknown-fields") && !has_properties {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                      x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(format!("{path}.properties"), detail));
    }
}

fn is_bare_metadata(schema: &Map) -> bool {
    schema.iter().all(|(name, value)| match name.as_str() {
        "type" | "default" => true,
        "properties" => value
            .as_object()
            .is_some_and(|it| it.keys().all(|name| matches!(name.as_str(), "name" | "generateName"))),
        _ => super::is_zero(value),
    })
}

/// Which alternatives may name a type: those that spell out a number or a text.
#[derive(Clone, Copy, Default)]
struct Skips {
    any_of: bool,
    first_all_of: bool,
}

/// The two alternatives that `x-kubernetes-int-or-string` is written with.
fn is_number_or_text(schema: &Map) -> bool {
    let parts: Vec<_> = listed(schema, "anyOf").collect();
    let is_just = |part: &Map, ty: &str| part.len() == 1 && text(part, "type") == ty;
    matches!(parts.as_slice(), [(_, a), (_, b)] if is_just(a, "integer") && is_just(b, "string"))
}

fn is_first_number_or_text(schema: &Map) -> bool {
    listed(schema, "allOf").next().is_some_and(|(_, first)| is_number_or_text(first))
}

fn values(schema: &Map, skips: Skips, path: &str, errors: &mut FieldErrors) {
    if !skips.any_of {
        for (step, part) in listed(schema, "anyOf") {
            nested(part, Skips::default(), &format!("{path}.{step}"), errors);
        }
    }
    for (at, (step, part)) in listed(schema, "allOf").enumerate() {
        let skips = Skips { any_of: skips.first_all_of && at == 0, first_all_of: false };
        nested(part, skips, &format!("{path}.{step}"), errors);
    }
    for (step, part) in listed(schema, "oneOf") {
        nested(part, Skips::default(), &format!("{path}.{step}"), errors);
    }
    if let Some(part) = object(schema, "not") {
        nested(part, Skips::default(), &format!("{path}.not"), errors);
    }
}

/// Inside alternatives there are only rules about values.
fn nested(schema: &Map, skips: Skips, path: &str, errors: &mut FieldErrors) {
    values(schema, skips, path, errors);
    if let Some(items) = object(schema, "items") {
        nested(items, Skips::default(), &format!("{path}.items"), errors);
    }
    for (name, step, property) in properties(schema) {
        nested(property, Skips::default(), &format!("{path}.{step}"), errors);
        if name == "metadata" {
            let detail = "must not be specified in a nested context";
            errors.push(FieldError::forbidden(format!("{path}.{step}"), detail));
        }
    }
    const FORBIDDEN: [(&str, &str); 14] = [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("externalDocs", "must be undefined to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ];
    for (field, detail) in FORBIDDEN {
        if schema.get(field).is_some_and(|it| !super::is_zero(it)) {
            errors.push(FieldError::forbidden(format!("{path}.{field}"), detail));
        }
    }
}
