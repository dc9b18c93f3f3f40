//! What Go's typed round trip takes away from an object, and what it adds: empty fields.
//!
//! Upstream reads every object into a structure and writes it again. A field that holds nothing is then left out or
//! written, as its tag says: `labels: {}` is gone, an empty `status: {}` appears. Explicit zeros behind a pointer
//! (`replicas: 0`) mean something and stay.
//! Deliberately not here: unknown fields; [`crate::check`] takes them away.
//! Start at [`drop_empty`], before defaults are filled in, and [`fill_always`], after everything.

use crate::{
    Map, Value,
    model::{Field, ObjectType, Scalar, Schema, Type, TypeId},
};

/// Takes away fields that hold nothing, where Go would not write them: `null`, and `""`, `0`, `false`, `[]`, `{}` of
/// fields that are neither pointers nor always written.
pub fn drop_empty(schema: &Schema, ty: TypeId, value: &mut Value) {
    match (schema.get(ty), value) {
        (Type::Object(object), Value::Object(map)) => {
            map.retain(|key, value| {
                let Some(field) = object.field(key) else { return true };
                drop_empty(schema, field.ty, value);
                !field.is_known || !is_left_out(schema, field, value)
            });
        }
        (Type::Map(map_type), Value::Object(map)) => {
            map.values_mut().for_each(|it| drop_empty(schema, map_type.value, it));
        }
        (Type::List(list), Value::Array(items)) => {
            items.iter_mut().for_each(|it| drop_empty(schema, list.element, it));
        }
        _ => {}
    }
}

/// Adds fields that Go writes even when they hold nothing.
pub fn fill_always(schema: &Schema, ty: TypeId, value: &mut Value) {
    match (schema.get(ty), value) {
        (Type::Object(object), Value::Object(map)) => {
            add_always(schema, object, map);
            for (key, value) in map.iter_mut() {
                if let Some(field) = object.field(key) {
                    fill_always(schema, field.ty, value);
                }
            }
        }
        (Type::Map(map_type), Value::Object(map)) => {
            map.values_mut().for_each(|it| fill_always(schema, map_type.value, it));
        }
        (Type::List(list), Value::Array(items)) => {
            items.iter_mut().for_each(|it| fill_always(schema, list.element, it));
        }
        _ => {}
    }
}

fn add_always(schema: &Schema, object: &ObjectType, map: &mut Map) {
    for field in object.fields.iter().filter(|it| it.is_always && it.is_known) {
        if !map.contains_key(&*field.name)
            && let Some(empty) = empty(schema, field)
        {
            map.insert(field.name.as_ref().to_owned(), empty);
        }
    }
}

fn is_left_out(schema: &Schema, field: &Field, value: &Value) -> bool {
    if field.is_always {
        // A list that is always written is `null` or `[]`, as it was.
        return value.is_null() && empty(schema, field) != Some(Value::Null);
    }
    match (schema.get(field.ty), value) {
        (_, Value::Null) => true,
        (Type::List(_), Value::Array(items)) => items.is_empty(),
        (Type::Map(_), Value::Object(map)) => map.is_empty(),
        (Type::Scalar(scalar), value) if !field.is_pointer => is_zero(*scalar, value),
        _ => false,
    }
}

/// What Go writes for a field that was never set.
fn empty(schema: &Schema, field: &Field) -> Option<Value> {
    match schema.get(field.ty) {
        Type::Object(_) => Some(Value::Object(Map::new())),
        Type::List(_) | Type::Map(_) => Some(Value::Null),
        Type::Scalar(Scalar::String) => Some(Value::from("")),
        Type::Scalar(Scalar::Bool) => Some(Value::Bool(false)),
        Type::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Uint32 | Scalar::Uint64) => Some(Value::from(0)),
        // They have forms of their own, and upstream gives them a value before it writes them.
        Type::Scalar(_) | Type::Any => None,
    }
}

fn is_zero(scalar: Scalar, value: &Value) -> bool {
    match (scalar, value) {
        (Scalar::String | Scalar::Bytes, Value::String(text)) => text.is_empty(),
        (Scalar::Bool, Value::Bool(value)) => !value,
        (Scalar::Int32 | Scalar::Int64 | Scalar::Uint32 | Scalar::Uint64, Value::Number(number)) => {
            number.as_i64() == Some(0)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
