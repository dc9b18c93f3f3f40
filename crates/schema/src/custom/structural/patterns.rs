//! Whether the patterns of a schema are any.

use meta::{FieldError, FieldErrors};

use super::{listed, object, properties, text};
use crate::{Map, custom::pattern::Patterns};

pub(super) fn check(root: &Map, path: &str, errors: &mut FieldErrors) {
    node(root, path, &mut Patterns::default(), errors);
}

fn node<'a>(schema: &'a Map, path: &str, patterns: &mut Patterns<'a>, errors: &mut FieldErrors) {
    let pattern = text(schema, "pattern");
    if !pattern.is_empty()
        && let Some(complaint) = patterns.complaint(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {complaint}");
        errors.push(FieldError::invalid(format!("{path}.pattern"), pattern, detail));
    }
    for field in ["items", "additionalProperties", "not"] {
        if let Some(inner) = object(schema, field) {
            node(inner, &format!("{path}.{field}"), patterns, errors);
        }
    }
    for field in ["allOf", "anyOf", "oneOf"] {
        for (step, part) in listed(schema, field) {
            node(part, &format!("{path}.{step}"), patterns, errors);
        }
    }
    for (_, step, property) in properties(schema) {
        node(property, &format!("{path}.{step}"), patterns, errors);
    }
}
