//! Fields of other releases survive an update by a client that cannot know them.
//!
//! A server of an older release serves what a newer one stored, fields it does not know included. A client of the
//! older release reads, changes and puts back, and would strip them without meaning to.
//!
//! **The rule.** What the stored object has and this release does not know comes back if its parent is still there.
//! Elements of lists are the same if their keys are; without keys, only if the lists are equal but for such fields.
//! Deliberately not here: fields that no release knows; those are gone ([`crate::check`]).

use std::sync::Arc;

use crate::{
    Map, Value,
    model::{Field, ListKind, ListType, Schema, Type, TypeId},
};

/// Copies from `old` into `new` what this release does not know and `new` therefore cannot have.
pub fn keep_unknown(schema: &Schema, ty: TypeId, new: &mut Value, old: &Value) {
    if has_unknown(schema, ty, old) {
        keep(schema, ty, new, old);
    }
}

/// Whether the object has fields that are known, but not to this release.
pub fn has_unknown(schema: &Schema, ty: TypeId, value: &Value) -> bool {
    match (schema.get(ty), value) {
        (Type::Object(object), Value::Object(map)) => map.iter().any(|(key, value)| {
            object.field(key).is_some_and(|field| !field.is_known || has_unknown(schema, field.ty, value))
        }),
        (Type::Map(map_type), Value::Object(map)) => {
            map.values().any(|it| has_unknown(schema, map_type.value, it))
        }
        (Type::List(list), Value::Array(items)) => {
            items.iter().any(|it| has_unknown(schema, list.element, it))
        }
        _ => false,
    }
}

/// Whether two elements of a list are the same as far as its keys tell.
pub(crate) fn has_same_keys(
    schema: &Schema,
    list: &ListType,
    keys: &[Arc<str>],
    one: &Value,
    other: &Value,
) -> bool {
    keys.iter().all(|key| {
        let field = schema.object(list.element).and_then(|it| it.field(key));
        let is_missing = one.get(&**key).is_none() || other.get(&**key).is_none();
        if is_missing && field.is_some_and(|it| !it.is_known) {
            // A key of another release, which a client of this one cannot have sent.
            return true;
        }
        let of = |element: &Value| match element.get(&**key) {
            None | Some(Value::Null) => field.and_then(|it| it.default.clone()).unwrap_or_default(),
            Some(value) => value.clone(),
        };
        of(one) == of(other)
    })
}

fn keep(schema: &Schema, ty: TypeId, new: &mut Value, old: &Value) {
    match (schema.get(ty), new, old) {
        (Type::Object(object), Value::Object(new), Value::Object(old)) => {
            for (key, old_value) in old {
                match object.field(key) {
                    Some(field) if field.is_known => keep_inside(schema, field.ty, new, key, old_value),
                    Some(_) if !new.contains_key(key) => {
                        new.insert(key.clone(), old_value.clone());
                    }
                    Some(_) | None => {}
                }
            }
        }
        (Type::Map(map_type), Value::Object(new), Value::Object(old)) => {
            for (key, old_value) in old {
                keep_inside(schema, map_type.value, new, key, old_value);
            }
        }
        (Type::List(list), Value::Array(new), Value::Array(old)) => keep_elements(schema, list, new, old),
        _ => {}
    }
}

fn keep_inside(schema: &Schema, ty: TypeId, new: &mut Map, key: &str, old: &Value) {
    if let Some(new) = new.get_mut(key) {
        keep(schema, ty, new, old);
    }
}

fn keep_elements(schema: &Schema, list: &ListType, new: &mut [Value], old: &[Value]) {
    match &list.kind {
        ListKind::Map(keys) => {
            for old in old.iter().filter(|it| has_unknown(schema, list.element, it)) {
                let mut same = new.iter_mut().filter(|it| has_same_keys(schema, list, keys, it, old));
                if let (Some(new), None) = (same.next(), same.next()) {
                    keep(schema, list.element, new, old);
                }
            }
        }
        ListKind::Atomic => {
            let is_equal = new.len() == old.len()
                && new.iter().zip(old).all(|(new, old)| is_same_but_unknown(schema, list.element, new, old));
            if is_equal {
                for (new, old) in new.iter_mut().zip(old) {
                    keep(schema, list.element, new, old);
                }
            }
        }
        ListKind::Set => {}
    }
}

/// Whether the values are equal, fields aside that this release does not know.
fn is_same_but_unknown(schema: &Schema, ty: TypeId, new: &Value, old: &Value) -> bool {
    match (schema.get(ty), new, old) {
        (Type::Object(object), Value::Object(new), Value::Object(old)) => {
            let is_unknown = |it: Option<&Field>| it.is_some_and(|it| !it.is_known);
            let known = |map: &Map| map.keys().filter(|it| !is_unknown(object.field(it))).count();
            known(new) == known(old)
                && old.iter().all(|(key, old)| {
                    let field = object.field(key);
                    is_unknown(field)
                        || new.get(key).is_some_and(|new| match field {
                            Some(field) => is_same_but_unknown(schema, field.ty, new, old),
                            None => new == old,
                        })
                })
        }
        (Type::Map(map_type), Value::Object(new), Value::Object(old)) => {
            new.len() == old.len()
                && old.iter().all(|(key, old)| {
                    new.get(key).is_some_and(|new| is_same_but_unknown(schema, map_type.value, new, old))
                })
        }
        (Type::List(list), Value::Array(new), Value::Array(old)) => {
            new.len() == old.len()
                && new.iter().zip(old).all(|(new, old)| is_same_but_unknown(schema, list.element, new, old))
        }
        _ => new == old,
    }
}

#[cfg(test)]
mod tests;
