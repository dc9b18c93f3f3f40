//! What alternatives say something about must be described outside of them, too.

use meta::{FieldError, FieldErrors};

use super::{listed, object, properties};
use crate::Map;

pub(super) fn check(root: &Map, path: &str, errors: &mut FieldErrors) {
    parts(root, root, path, path, errors);
    // Upstream looks into alternatives at the root only; those further down belong to schemas of their own.
}

/// The alternatives in `rules`, which stand at `at` and speak of `schema` at `path`.
fn parts(rules: &Map, schema: &Map, path: &str, at: &str, errors: &mut FieldErrors) {
    if let Some(not) = object(rules, "not") {
        nested(not, Some(schema), path, &format!("{at}.not"), errors);
    }
    for field in ["allOf", "anyOf", "oneOf"] {
        for (step, part) in listed(rules, field) {
            nested(part, Some(schema), path, &format!("{at}.{step}"), errors);
        }
    }
}

fn nested(rules: &Map, schema: Option<&Map>, path: &str, at: &str, errors: &mut FieldErrors) {
    let Some(schema) = schema else {
        errors.push(FieldError::required(path, format!("because it is defined in {at}")));
        return;
    };
    parts(rules, schema, path, at, errors);
    if let Some(items) = object(rules, "items") {
        let own = object(schema, "items");
        nested(items, own, &format!("{path}.items"), &format!("{at}.items"), errors);
    }
    for (name, step, property) in properties(rules) {
        let own = object(schema, "properties").and_then(|it| object(it, name));
        nested(property, own, &format!("{path}.{step}"), &format!("{at}.{step}"), errors);
    }
}
