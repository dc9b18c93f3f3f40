//! Whether defaults fit the schema that they stand in.

use meta::{FieldError, FieldErrors};

use crate::{
    Value,
    custom::{Node, prune, validate},
    json,
};

pub(super) fn check(schema: &Value, path: &str, errors: &mut FieldErrors) {
    let root = Node::compile(schema).into_root();
    node(&root, path, errors);
}

fn node(node: &Node, path: &str, errors: &mut FieldErrors) {
    if let Some(default) = node.default.as_deref() {
        one(node, default, &format!("{path}.default"), errors);
    }
    // Defaults below `additionalProperties` are not looked at, as upstream.
    if let Some(items) = &node.items {
        self::node(items, &format!("{path}.items"), errors);
    }
    for (name, property) in &node.properties {
        if !node.has_own(name) {
            self::node(property, &format!("{path}.properties[{name}]"), errors);
        }
    }
}

fn one(node: &Node, default: &Value, path: &str, errors: &mut FieldErrors) {
    if !prune::is_pruned(node, default) {
        let shown = String::from_utf8_lossy(&json::to_vec(default)).into_owned();
        errors.push(FieldError::invalid_shown(path, shown, "must not have unknown fields"));
    }
    validate(node, default, path).into_iter().for_each(|it| errors.push(it));
}
