//! Fills in defaults, and takes away `null` where it is no value.

use super::node::{Additional, Node};
use crate::{Map, Value};

/// Fills in what the object does not say and the schema has a default for. A `null` where none may be counts as not
/// said; without a default it goes.
pub fn fill(node: &Node, value: &mut Value) {
    match value {
        Value::Object(map) => fill_object(node, map),
        Value::Array(items) => {
            let Some(inner) = &node.items else { return };
            for item in items {
                if is_unsaid(inner, item)
                    && let Some(default) = &inner.default
                {
                    *item = (**default).clone();
                }
                fill(inner, item);
            }
        }
        _ => {}
    }
}

/// Takes away every `null` that is no value and has no default to become one: what a version that an object is
/// converted to makes of what another version let be `null`. Defaults are not filled in.
pub fn drop_nulls(node: &Node, value: &mut Value) {
    match value {
        Value::Object(map) => map.retain(|name, value| {
            let Some(child) = node.child(name) else { return true };
            if is_unsaid(child, value) && child.default.is_none() {
                return false;
            }
            drop_nulls(child, value);
            true
        }),
        Value::Array(items) => {
            let Some(inner) = &node.items else { return };
            items.iter_mut().for_each(|it| drop_nulls(inner, it));
        }
        _ => {}
    }
}

fn fill_object(node: &Node, map: &mut Map) {
    map.retain(|name, value| match node.child(name) {
        Some(child) => child.default.is_some() || !is_unsaid(child, value),
        None => true,
    });
    for (name, property) in &node.properties {
        let Some(default) = &property.default else { continue };
        if map.get(&**name).is_none_or(|it| is_unsaid(property, it)) {
            map.insert(name.to_string(), (**default).clone());
        }
    }
    for (name, value) in map.iter_mut() {
        if let Some(property) = node.property(name) {
            fill(property, value);
        } else if let Some(Additional::Of(inner)) = &node.additional {
            if is_unsaid(inner, value)
                && let Some(default) = &inner.default
            {
                *value = (**default).clone();
            }
            fill(inner, value);
        }
    }
}

/// A `null` where the schema has another type in mind. Where it has none, `null` is as good as anything.
fn is_unsaid(node: &Node, value: &Value) -> bool {
    value.is_null() && !node.is_nullable
}
