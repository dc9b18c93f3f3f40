//! What every conversion between two versions of a kind has in common.
//!
//! Responsible for telling whether two types have the same shape, for bringing a converted object into the form that
//! Go writes in its new version, and for the moves that conversions are made of.
//! Deliberately not here: which kinds have which versions, and how those differ; that is code of the kinds.
//! Start at [`is_same_shape`] and [`fit`].

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use crate::{
    Map, Value,
    model::{Field, ObjectType, Schema, Type, TypeId},
    prune,
};

/// Whether an object of one type is written in exactly the same way in the other.
pub fn is_same_shape(schema: &Schema, one: TypeId, other: TypeId) -> bool {
    Shapes { schema, seen: HashSet::new() }.is_same(one, other)
}

/// Makes of an object that was converted what Go writes in the type: what the type cannot hold is gone, what holds
/// nothing is left out, and what is always written is there.
pub fn fit(schema: &Schema, ty: TypeId, object: &mut Value) {
    drop_foreign(schema, ty, object);
    prune::drop_empty(schema, ty, object);
    prune::fill_always(schema, ty, object);
}

/// Gives fields other names.
pub fn rename(object: &mut Map, names: &[(&str, &str)]) {
    for (from, to) in names {
        if let Some(value) = object.remove(*from) {
            object.insert((*to).to_owned(), value);
        }
    }
}

/// Moves fields into an object within this one.
pub fn move_in(object: &mut Map, into: &str, is_moved: impl Fn(&str) -> bool) {
    let names: Vec<String> = object.keys().filter(|it| *it != into && is_moved(it)).cloned().collect();
    let moved: Map = names.into_iter().filter_map(|it| object.remove_entry(&it)).collect();
    object.insert(into.to_owned(), Value::Object(moved));
}

/// Moves the fields of an object within this one out of it.
pub fn move_out(object: &mut Map, from: &str) {
    if let Some(Value::Object(inner)) = object.remove(from) {
        object.extend(inner);
    }
}

/// Visits the objects of a list, or of a list in each object of a list; anything else is passed over.
pub fn each<'v>(value: &'v mut Value, path: &[&str], visit: &mut impl FnMut(&'v mut Map)) {
    match (value, path) {
        (Value::Array(items), path) => items.iter_mut().for_each(|it| each(it, path, visit)),
        (Value::Object(map), []) => visit(map),
        (Value::Object(map), [first, rest @ ..]) => {
            if let Some(inner) = map.get_mut(*first) {
                each(inner, rest, visit);
            }
        }
        _ => {}
    }
}

/// Takes away fields that the type does not have, in any release.
fn drop_foreign(schema: &Schema, ty: TypeId, value: &mut Value) {
    match (schema.get(ty), value) {
        (Type::Object(object), Value::Object(map)) => {
            map.retain(|key, value| match object.field(key) {
                Some(field) => {
                    drop_foreign(schema, field.ty, value);
                    true
                }
                None => object.keeps_unknown,
            });
        }
        (Type::Map(map_type), Value::Object(map)) => {
            map.values_mut().for_each(|it| drop_foreign(schema, map_type.value, it));
        }
        (Type::List(list), Value::Array(items)) => {
            items.iter_mut().for_each(|it| drop_foreign(schema, list.element, it));
        }
        _ => {}
    }
}

struct Shapes<'s> {
    schema: &'s Schema,
    /// Pairs that are compared already, or just now: types may contain themselves.
    seen: HashSet<(TypeId, TypeId)>,
}

impl Shapes<'_> {
    fn is_same(&mut self, one: TypeId, other: TypeId) -> bool {
        if one == other || !self.seen.insert((one, other)) {
            return true;
        }
        match (self.schema.get(one), self.schema.get(other)) {
            (Type::Scalar(one), Type::Scalar(other)) => one == other,
            (Type::Object(one), Type::Object(other)) => self.is_same_object(one, other),
            (Type::Map(one), Type::Map(other)) => self.is_same(one.value, other.value),
            (Type::List(one), Type::List(other)) => self.is_same(one.element, other.element),
            (Type::Any, Type::Any) => true,
            (Type::Scalar(_) | Type::Object(_) | Type::Map(_) | Type::List(_) | Type::Any, _) => false,
        }
    }

    fn is_same_object(&mut self, one: &ObjectType, other: &ObjectType) -> bool {
        // Whatever says when Go writes a field, and whether this release has it.
        let traits = |it: &Field| (it.name.clone(), it.is_known, it.is_always, it.is_pointer);
        one.keeps_unknown == other.keeps_unknown
            && one.fields.len() == other.fields.len()
            && one
                .fields
                .iter()
                .zip(&other.fields)
                .all(|(one, other)| traits(one) == traits(other) && self.is_same(one.ty, other.ty))
    }
}
