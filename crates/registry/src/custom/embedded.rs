//! Resources inside of custom objects (`x-kubernetes-embedded-resource`): their version, kind and metadata.
//!
//! They are brought into shape when an object is read ([`shape`]) and checked when it is written ([`validate`]), on an
//! update as on a create. Deliberately not here: the resource that the object itself is, and the fields that its schema
//! lists, which are judged like any other.

use meta::{FieldError, FieldErrors, GroupVersion, Value, name, object, validate::NameRule};
use schema::{
    custom::Node,
    model::{Schema, TypeId},
};

use super::accept;

/// Brings embedded resources into shape: versions and kinds are texts, metadata has the types of all metadata, and what
/// is unknown in it goes. The answer is the paths of what went; `Err` says why one cannot be read.
pub(super) fn shape(
    typed: Option<(&Schema, TypeId)>,
    root: &Node,
    object: &mut Value,
) -> Result<Vec<String>, String> {
    let mut shaper = Shaper { typed, unknown: Vec::new() };
    shaper.fields(root, "", object)?;
    Ok(shaper.unknown)
}

struct Shaper<'a> {
    typed: Option<(&'a Schema, TypeId)>,
    unknown: Vec<String>,
}

impl Shaper<'_> {
    fn value(&mut self, node: &Node, path: &str, value: &mut Value) -> Result<(), String> {
        if node.is_embedded && value.is_object() {
            for field in ["apiVersion", "kind"] {
                if let Some(own) = value.get(field).filter(|it| !it.is_string()) {
                    return Err(not_a_text(path, field, own).to_string());
                }
            }
            if value.get("metadata").is_some() {
                let found = accept::metadata(self.typed, value).map_err(|it| format!("{path}.{it}"))?;
                self.unknown.extend(found.iter().map(|it| format!("{path}.{it}")));
            }
        }
        self.fields(node, path, value)
    }

    /// What is below a place.
    fn fields(&mut self, node: &Node, path: &str, value: &mut Value) -> Result<(), String> {
        match (value, &node.items) {
            (Value::Object(map), _) => {
                for (name, value) in map {
                    if let Some(child) = node.child(name) {
                        self.value(child, &step(node, path, name), value)?;
                    }
                }
            }
            (Value::Array(items), Some(inner)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.value(inner, &format!("{path}[{index}]"), item)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// What is wrong with embedded resources.
pub(super) fn validate(root: &Node, object: &Value, errors: &mut FieldErrors) {
    fields(root, "", object, errors);
}

fn fields(node: &Node, path: &str, value: &Value, errors: &mut FieldErrors) {
    match (value, &node.items) {
        (Value::Object(map), _) => {
            for (name, value) in map {
                if let Some(child) = node.child(name) {
                    inside(child, &step(node, path, name), value, errors);
                }
            }
        }
        (Value::Array(items), Some(inner)) => {
            for (index, item) in items.iter().enumerate() {
                inside(inner, &format!("{path}[{index}]"), item, errors);
            }
        }
        _ => {}
    }
}

fn inside(node: &Node, path: &str, value: &Value, errors: &mut FieldErrors) {
    if node.is_embedded && value.is_object() {
        resource(path, value, errors);
    }
    fields(node, path, value, errors);
}

fn resource(path: &str, value: &Value, errors: &mut FieldErrors) {
    for field in ["apiVersion", "kind"] {
        let place = format!("{path}.{field}");
        match value.get(field) {
            None => errors.push(FieldError::required(place, "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(place, text, "must not be empty"));
            }
            Some(Value::String(text)) => {
                if let Some(detail) = complaint(field, text) {
                    errors.push(FieldError::invalid(place, text, detail));
                }
            }
            Some(other) => errors.push(not_a_text(path, field, other)),
        }
    }
    if value.get("metadata").is_some_and(Value::is_object) {
        let mut named = serde_json::json!({"metadata": value["metadata"]});
        if object::name(&named).is_empty() {
            // An embedded resource need not have a name; one that is fine stands in for it.
            object::metadata_mut(&mut named).insert("name".to_owned(), Value::from("fakename"));
        }
        let is_namespaced = !object::namespace(&named).is_empty();
        let found = meta::validate::validate_object_meta(&named, is_namespaced, NameRule::PathSegment);
        for error in found.0 {
            errors.push(FieldError { field: format!("{path}.{}", error.field), ..error });
        }
    }
}

fn complaint(field: &str, text: &str) -> Option<String> {
    if field == "apiVersion" {
        return GroupVersion::parse(text)
            .is_none()
            .then(|| format!("unexpected GroupVersion string: {text}"));
    }
    let found = name::dns_1035_label(&text.to_lowercase());
    let is_wrong = !found.is_empty();
    is_wrong.then(|| format!("may have mixed case, but should otherwise match: {}", found.join(",")))
}

fn not_a_text(path: &str, field: &str, value: &Value) -> FieldError {
    FieldError::invalid_shown(format!("{path}.{field}"), value.to_string(), "must be a string")
}

fn step(node: &Node, path: &str, name: &str) -> String {
    match (node.property(name), path) {
        (Some(_), "") => name.to_owned(),
        (Some(_), path) => format!("{path}.{name}"),
        (None, path) => format!("{path}[{name}]"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn root() -> Node {
        let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true});
        Node::compile(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "one": embedded, "many": {"type": "array", "items": embedded},
            "map": {"type": "object", "additionalProperties": embedded}}}}}))
        .into_root()
    }

    #[track_caller]
    fn check(spec: &Value, expected: &[&str]) {
        let mut errors = FieldErrors::default();
        validate(&root(), &json!({"metadata": {"name": "A_b"}, "spec": spec}), &mut errors);
        let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn embedded_resources_say_what_they_are() {
        check(&json!({"one": {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {}}}), &[]);
        check(
            &json!({"one": {}, "many": [{"apiVersion": "", "kind": "Pod"}], "map": {"k": {"apiVersion": "a/b/c", "kind": 5}}}),
            &[
                "spec.many[0].apiVersion: Invalid value: \"\": must not be empty",
                "spec.map[k].apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
                "spec.map[k].kind: Invalid value: 5: must be a string",
                "spec.one.apiVersion: Required value",
                "spec.one.kind: Required value",
            ],
        );
    }

    #[test]
    fn embedded_metadata_is_checked_like_any_other() {
        check(
            &json!({"one": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a/b", "generation": -1}}}),
            &[
                "spec.one.metadata.name: Invalid value: \"a/b\": may not contain '/'",
                "spec.one.metadata.generation: Invalid value: -1: must be greater than or equal to 0",
            ],
        );
    }

    #[test]
    fn embedded_metadata_loses_what_metadata_does_not_have() {
        let schemas = catalog::Schemas::new(catalog::LAST_RELEASE);
        let schema: &Schema = schemas.schema();
        let typed = Some((schema, schema.find("io.k8s.api.core.v1.ConfigMap").unwrap()));
        let with = |metadata: &Value| json!({"spec": {"many": [{"kind": "A", "metadata": metadata, "any": {"a": 1}}]}});
        let mut object = with(&json!({"name": "x", "odd": 1, "creationTimestamp": null}));
        assert_eq!(shape(typed, &root(), &mut object).unwrap(), ["spec.many[0].metadata.odd"]);
        assert_eq!(object, with(&json!({"name": "x"})));
        let refused = shape(typed, &root(), &mut with(&json!({"labels": {"a": 1}}))).unwrap_err();
        let start = "spec.many[0].metadata: Invalid value: {\"labels\":{\"a\":1}}: ";
        assert!(refused.starts_with(start), "{refused}");
    }

    #[test]
    fn a_kind_that_is_no_text_cannot_be_read() {
        let mut object = json!({"spec": {"one": {"kind": 5}}});
        let refused = shape(None, &root(), &mut object);
        assert_eq!(refused, Err("spec.one.kind: Invalid value: 5: must be a string".to_owned()));
    }
}
