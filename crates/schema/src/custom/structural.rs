//! Whether a schema in OpenAPI's words can be the schema of a custom resource: upstream's rules, texts and paths.
//!
//! Three parts, in upstream's order: whether the schema is structural (`invariants`, `complete`, `patterns`), whether its
//! defaults fit it (`defaults`), and which words it uses (`openapi`). The first two are not asked of a schema with words that a
//! structural schema has no place for (`unsupported`).
//! Deliberately not here: what is said about the definition around the schema.

mod complete;
mod defaults;
mod invariants;
mod openapi;
mod patterns;
mod unsupported;

use meta::{FieldError, FieldErrors};

use super::{json_path::JsonPath, node::Node};
use crate::{Map, Value, json};

/// What may stand at the root of the schema of a resource whose status is written separately.
const AT_ROOT: [(&str, &str); 22] = [
    ("description", "Description"),
    ("type", "Type"),
    ("format", "Format"),
    ("title", "Title"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("required", "Required"),
    ("items", "Items"),
    ("properties", "Properties"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
    ("x-kubernetes-validations", "XValidations"),
];

/// Everything against the schema that stands at `path`.
pub fn structural_errors(schema: &Value, path: &str, has_status: bool) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let Value::Object(root) = schema else { return errors };
    if has_status {
        check_root(root, schema, path, &mut errors);
    }
    if is_true(root, "nullable") {
        let detail = "nullable cannot be true at the root";
        errors.push(FieldError::forbidden(format!("{path}.nullable"), detail));
    }
    let unsupported = unsupported::first(root);
    if unsupported.is_none() {
        let mut structural = FieldErrors::default();
        invariants::check(root, path, &mut structural);
        complete::check(root, path, &mut structural);
        patterns::check(root, path, &mut structural);
        structural.0.sort_by_key(ToString::to_string);
        if structural.is_empty() {
            defaults::check(schema, path, &mut structural);
        }
        structural.0.into_iter().for_each(|it| errors.push(it));
    }
    openapi::check(root, path, &mut errors);
    if let Some(why) = unsupported.filter(|_| errors.is_empty()) {
        errors.push(FieldError::invalid(path, "", why));
    }
    errors
}

/// Everything against selectable fields that stand at `path`. The answer is also how many different ones there are.
pub fn check_selectable(schema: &Value, fields: &[Value], path: &str, errors: &mut FieldErrors) {
    const MAX_FIELDS: usize = 8;
    let root = Node::compile(schema);
    let mut seen: Vec<&str> = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        let place = format!("{path}[{index}].jsonPath");
        let text = field.get("jsonPath").and_then(Value::as_str).unwrap_or_default();
        if text.is_empty() {
            errors.push(FieldError::required(place, ""));
            continue;
        }
        let Some(node) = selected(&root, text) else {
            let detail = "is an invalid path: does not refer to a valid field";
            errors.push(FieldError::invalid(place, text, detail));
            continue;
        };
        if text.starts_with(".metadata") {
            let detail = "must not point to fields in metadata";
            errors.push(FieldError::invalid(&place, text, detail));
        }
        if !matches!(node.kind.name(), "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings \
                          with formats are allowed.";
            errors.push(FieldError::invalid(&place, text, detail));
        }
        if seen.contains(&text) {
            errors.push(FieldError::duplicate(place, text));
        } else {
            seen.push(text);
        }
    }
    if seen.len() > MAX_FIELDS {
        errors.push(FieldError {
            field: path.to_owned(),
            problem: meta::field::FieldProblem::TooMany,
            shown: Some(seen.len().to_string()),
            detail: format!("must have at most {MAX_FIELDS} items"),
        });
    }
}

fn selected<'a>(root: &'a Node, text: &str) -> Option<&'a Node> {
    let path = JsonPath::parse(text).ok().filter(|_| text.starts_with('.'))?;
    path.fields()?.into_iter().try_fold(root, |node, name| node.child(name))
}

fn check_root(root: &Map, schema: &Value, path: &str, errors: &mut FieldErrors) {
    if let Some(ty) = root.get("type").and_then(Value::as_str).filter(|it| !it.is_empty() && *it != "object")
    {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        errors.push(FieldError::invalid(format!("{path}.type"), ty, detail));
    }
    let is_allowed = |name: &str| AT_ROOT.iter().any(|(it, _)| *it == name);
    if root.iter().any(|(name, value)| !is_allowed(name) && !is_zero(value)) {
        let names: Vec<&str> = AT_ROOT.iter().map(|(_, it)| *it).collect();
        let detail = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            names.join(" ")
        );
        let shown = String::from_utf8_lossy(&json::to_vec(schema)).into_owned();
        errors.push(FieldError::invalid_shown(path, shown, detail));
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Whether a word is used that has no meaning here. Some count as used even if they say nothing.
fn is_set(schema: &Map, field: &str) -> bool {
    match (field, schema.get(field)) {
        (_, None | Some(Value::Null)) => false,
        ("additionalItems" | "dependencies" | "$ref", Some(_)) => true,
        (_, Some(Value::Object(inner))) => !inner.is_empty(),
        (_, Some(value)) => !is_zero(value),
    }
}

fn is_true(schema: &Map, field: &str) -> bool {
    schema.get(field) == Some(&Value::Bool(true))
}

fn text<'a>(schema: &'a Map, field: &str) -> &'a str {
    schema.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn object<'a>(schema: &'a Map, field: &str) -> Option<&'a Map> {
    schema.get(field).and_then(Value::as_object)
}

/// The schemas in a list, such as `anyOf`, with their places.
fn listed<'a>(schema: &'a Map, field: &'static str) -> impl Iterator<Item = (String, &'a Map)> {
    let items = schema.get(field).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    items.iter().enumerate().filter_map(move |(at, it)| Some((format!("{field}[{at}]"), it.as_object()?)))
}

/// The schemas of fields, with their places.
fn properties(schema: &Map) -> impl Iterator<Item = (&str, String, &Map)> {
    let properties = object(schema, "properties").into_iter().flatten();
    properties.filter_map(|(name, it)| Some((name.as_str(), format!("properties[{name}]"), it.as_object()?)))
}
