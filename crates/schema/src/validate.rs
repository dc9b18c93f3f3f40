//! What a schema alone can say against an object: missing fields, and elements of lists that are there twice.
//!
//! Deliberately not here: rules that are special to a kind. Built-in kinds have rules of their own for all of this, with
//! words of their own; this is for kinds of which only a schema is known.

use std::collections::HashSet;

use meta::{FieldError, field::FieldProblem};

use crate::{
    Map, Value, json,
    model::{ListKind, ListType, ObjectType, Schema, Type, TypeId},
};

/// At most this many complaints.
const MAX_ERRORS: usize = 100;

/// Everything that the schema has against the object.
pub fn validate(schema: &Schema, ty: TypeId, value: &Value) -> Vec<FieldError> {
    let mut validator = Validator { schema, path: String::new(), errors: Vec::new() };
    validator.value(ty, value);
    validator.errors
}

struct Validator<'a> {
    schema: &'a Schema,
    path: String,
    errors: Vec<FieldError>,
}

impl Validator<'_> {
    fn value(&mut self, ty: TypeId, value: &Value) {
        if self.errors.len() >= MAX_ERRORS {
            return;
        }
        match (self.schema.get(ty), value) {
            (Type::Object(object), Value::Object(map)) => self.object(object, map),
            (Type::Map(map_type), Value::Object(map)) => {
                for (key, value) in map {
                    self.inside(&format!("[{key}]"), map_type.value, value);
                }
            }
            (Type::List(list), Value::Array(items)) => {
                self.duplicates(list, items);
                for (index, item) in items.iter().enumerate() {
                    self.inside(&format!("[{index}]"), list.element, item);
                }
            }
            _ => {}
        }
    }

    fn object(&mut self, object: &ObjectType, map: &Map) {
        for field in object.fields.iter().filter(|it| it.is_required && it.is_known) {
            if map.get(&*field.name).is_none_or(Value::is_null) {
                let path = self.below(&field.name);
                self.errors.push(FieldError::required(path, ""));
            }
        }
        for (key, value) in map {
            if let Some(field) = object.field(key) {
                let end = self.path.len();
                self.path = self.below(key);
                self.value(field.ty, value);
                self.path.truncate(end);
            }
        }
    }

    fn inside(&mut self, step: &str, ty: TypeId, value: &Value) {
        let end = self.path.len();
        self.path.push_str(step);
        self.value(ty, value);
        self.path.truncate(end);
    }

    fn duplicates(&mut self, list: &ListType, items: &[Value]) {
        let identity = |item: &Value| match &list.kind {
            ListKind::Atomic => None,
            ListKind::Set => Some(item.clone()),
            ListKind::Map(keys) => {
                let object = self.schema.object(list.element);
                let default =
                    |key: &str| object.and_then(|it| it.field(key)).and_then(|it| it.default.clone());
                let pairs = keys.iter().filter_map(|key| {
                    let value = item.get(&**key).cloned().or_else(|| default(key))?;
                    Some((key.as_ref().to_owned(), value))
                });
                Some(Value::Object(pairs.collect()))
            }
        };
        let mut seen = HashSet::new();
        for (index, item) in items.iter().enumerate() {
            let Some(identity) = identity(item) else { return };
            let shown = String::from_utf8_lossy(&json::to_vec(&identity)).into_owned();
            if !seen.insert(shown.clone()) && self.errors.len() < MAX_ERRORS {
                self.errors.push(FieldError {
                    field: format!("{}[{index}]", self.path),
                    problem: FieldProblem::Duplicate,
                    shown: Some(shown),
                    detail: String::new(),
                });
            }
        }
    }

    fn below(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

#[cfg(test)]
mod tests;
