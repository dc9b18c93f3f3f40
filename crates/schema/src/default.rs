//! Fills in what an object does not say.
//!
//! A schema knows defaults of single fields; they are filled in wherever the object around them is there. What depends
//! on other fields is code, and code is called once per structure with its type.
//! Deliberately not here: that code.

use crate::{
    Map, Value,
    model::{ObjectType, Schema, Type, TypeId},
};

/// Fills in the defaults of the schema.
pub fn fill(schema: &Schema, ty: TypeId, value: &mut Value) {
    fill_with(schema, ty, value, &mut |_, _| {});
}

/// Fills in the defaults of the schema, and lets `more` change every structure that has a type with a name.
/// Outer structures come before inner ones, so that what `more` adds is filled in too.
pub fn fill_with(
    schema: &Schema,
    ty: TypeId,
    value: &mut Value,
    more: &mut dyn FnMut(&ObjectType, &mut Map),
) {
    match (schema.get(ty), value) {
        (Type::Object(object), Value::Object(map)) => {
            if !object.name.is_empty() {
                more(object, map);
            }
            add(schema, object, map);
            for (key, value) in map.iter_mut() {
                if let Some(field) = object.field(key).filter(|it| it.is_known) {
                    fill_with(schema, field.ty, value, more);
                }
            }
        }
        (Type::Map(map_type), Value::Object(map)) => {
            map.values_mut().for_each(|it| fill_with(schema, map_type.value, it, more));
        }
        (Type::List(list), Value::Array(items)) => {
            items.iter_mut().for_each(|it| fill_with(schema, list.element, it, more));
        }
        _ => {}
    }
}

fn add(schema: &Schema, object: &ObjectType, map: &mut Map) {
    for field in object.fields.iter().filter(|it| it.is_known) {
        if field.is_always
            && !map.contains_key(&*field.name)
            && matches!(schema.get(field.ty), Type::Object(_))
        {
            // To Go a part that is always written is always there, and has defaults of its own.
            map.insert(field.name.as_ref().to_owned(), Value::Object(Map::new()));
        }
        if let Some(default) = &field.default
            && map.get(&*field.name).is_none_or(Value::is_null)
        {
            map.insert(field.name.as_ref().to_owned(), default.clone());
        }
    }
}

#[cfg(test)]
mod tests;
