//! Takes fields out of an object.
//!
//! What loses all of its parts without being in the set itself becomes null, as upstream has it: whoever decides what
//! else is to be removed must still see that it was there. [`settle_nulls`] takes those away in the end.

use std::collections::BTreeMap;

use super::{
    path::PathElement,
    set::FieldSet,
    shape::{Chosen, Ty, shape},
};
use crate::{Map, Value, model::Schema};

/// The value without the places in the set.
pub(super) fn remove(schema: &Schema, ty: Ty, value: &Value, gone: &FieldSet) -> Value {
    match shape(schema, ty).choose(Some(value)) {
        None | Some(Chosen::Scalar(_)) => value.clone(),
        Some(Chosen::List(list)) => {
            let Value::Array(items) = value else { return Value::Null };
            if list.is_atomic() {
                return Value::Null;
            }
            let mut kept = Vec::with_capacity(items.len());
            for item in items {
                let Ok(step) = list.step(schema, item) else {
                    kept.push(item.clone());
                    continue;
                };
                if gone.has(&step) {
                    continue;
                }
                kept.push(match gone.below(&step) {
                    Some(gone) => remove(schema, list.element, item, gone),
                    None => item.clone(),
                });
            }
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        Some(Chosen::Map(map)) => {
            let Value::Object(fields) = value else { return Value::Null };
            if map.is_atomic {
                return Value::Null;
            }
            let mut kept = Map::new();
            for (name, value) in fields {
                let step = PathElement::field(name);
                if gone.has(&step) {
                    continue;
                }
                let value = match gone.below(&step) {
                    Some(gone) => remove(schema, map.found(name), value, gone),
                    None => value.clone(),
                };
                kept.insert(name.clone(), value);
            }
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
    }
}

/// Removes fields that are null, but were not null in the object before.
pub(super) fn drop_nulls(schema: &Schema, ty: Ty, value: &mut Value, before: Option<&Value>) {
    settle_nulls(schema, ty, value, before, &FieldSet::new());
}

/// The same after [`remove`]: what somebody owns for itself stays, empty.
pub(super) fn settle_nulls(
    schema: &Schema,
    ty: Ty,
    value: &mut Value,
    before: Option<&Value>,
    owned: &FieldSet,
) {
    let nothing = FieldSet::new();
    match (shape(schema, ty).choose(Some(value)), value) {
        (Some(Chosen::Map(map)), Value::Object(fields)) if !map.is_atomic => {
            let before = before.and_then(Value::as_object);
            let was = |name: &str| before.and_then(|it| it.get(name));
            for (name, value) in fields.iter_mut().filter(|(_, it)| it.is_null()) {
                match was(name) {
                    Some(Value::Object(_)) if owned.has(&PathElement::field(name)) => {
                        *value = Value::Object(Map::new());
                    }
                    Some(Value::Array(_)) if owned.has(&PathElement::field(name)) => {
                        *value = Value::Array(Vec::new());
                    }
                    _ => {}
                }
            }
            fields.retain(|name, it| !it.is_null() || was(name).is_some_and(Value::is_null));
            for (name, value) in fields {
                // Mostly nothing is owned, and then no step need be made.
                let owned = match owned.is_empty() {
                    true => &nothing,
                    false => owned.below(&PathElement::field(name)).unwrap_or(&nothing),
                };
                settle_nulls(schema, map.found(name), value, was(name), owned);
            }
        }
        (Some(Chosen::List(list)), Value::Array(items)) if !list.is_atomic() => {
            let before: BTreeMap<_, _> = before
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|item| Some((list.step(schema, item).ok()?, item)))
                .collect();
            items.retain(|it| !it.is_null());
            for item in items {
                let Ok(step) = list.step(schema, item) else { continue };
                let owned = owned.below(&step).unwrap_or(&nothing);
                settle_nulls(schema, list.element, item, before.get(&step).copied(), owned);
            }
        }
        _ => {}
    }
}
