//! The walk through tree and schema. Most complaints wait until the end, as in Go: a value that cannot be read at all
//! (a time, a quantity) comes before one of the wrong type.

use std::sync::Arc;

use super::{Checked, DecodeError, MAX_REPORTED, Words, go_name, scalar, unstructured};
use crate::{
    Map, Value, json, keep,
    model::{Field, ListKind, ListType, MapType, ObjectType, Scalar, Schema, Type, TypeId},
};

/// At most this many elements of a stored list are asked whether they have an unknown field already.
const MAX_CANDIDATES: usize = 64;

pub(super) fn decode(
    schema: &Schema,
    ty: TypeId,
    value: Value,
    old: Option<&Value>,
    words: Words,
) -> Result<Checked, DecodeError> {
    // Objects without fields of other releases, nearly all, need no comparison.
    let olds: Vec<&Value> = old.filter(|it| keep::has_unknown(schema, ty, it)).into_iter().collect();
    let mut decoder = Decoder {
        schema,
        holder: Arc::default(),
        fields: Vec::new(),
        path: String::new(),
        unknown: Vec::new(),
        is_silent: false,
        complaint: None,
        words,
    };
    let value = decoder.value(ty, None, value, &olds).map_err(DecodeError)?;
    match decoder.complaint {
        Some(complaint) => Err(DecodeError(complaint)),
        None => Ok(Checked { value, unknown: decoder.unknown }),
    }
}

struct Decoder<'a> {
    schema: &'a Schema,
    /// The innermost structure, and the fields that lead into it from the root: Go's context of a complaint.
    holder: Arc<str>,
    fields: Vec<Arc<str>>,
    /// The whole path, with keys and indices.
    path: String,
    unknown: Vec<String>,
    /// Inside types with a decoder of their own unknown fields are not reported.
    is_silent: bool,
    complaint: Option<String>,
    words: Words,
}

impl<'a> Decoder<'a> {
    /// The value as the type has it; an error ends the decoding.
    fn value(
        &mut self,
        ty: TypeId,
        go: Option<&str>,
        value: Value,
        olds: &[&Value],
    ) -> Result<Value, String> {
        match (self.schema.get(ty), value) {
            (Type::Any, value) => self.any(ty, value, olds),
            (_, Value::Null) => Ok(zero(self.schema, ty)),
            (Type::Object(object), Value::Object(map)) => self.object(object, map, olds),
            (Type::Map(map_type), Value::Object(map)) => self.map(map_type, go, map, olds),
            (Type::List(list), Value::Array(items)) => self.list(list, go, items, olds),
            (Type::Scalar(scalar), value) => self.scalar(*scalar, go, value),
            (Type::Object(_) | Type::Map(_) | Type::List(_), value) if self.words == Words::Unstructured => {
                Err(unstructured::of_structure(self.schema, ty, &value))
            }
            (Type::Object(_) | Type::Map(_) | Type::List(_), value) => {
                let go = go.map_or_else(|| go_name::of(self.schema, ty), str::to_owned);
                self.complain(json::type_name(&value), &go);
                Ok(zero(self.schema, ty))
            }
        }
    }

    fn object(&mut self, object: &'a ObjectType, map: Map, olds: &[&Value]) -> Result<Value, String> {
        let short: Arc<str> = object.short_name().into();
        let outer = std::mem::replace(&mut self.holder, short);
        let mut out = Map::new();
        for (key, value) in map {
            match object.field(&key) {
                Some(field) if field.is_known => {
                    if !value.is_null() {
                        let value = self.field(field, value, olds)?;
                        out.insert(key, value);
                    }
                }
                Some(_) if olds.iter().any(|it| it.get(&key) == Some(&value)) => {
                    out.insert(key, value);
                }
                None if object.keeps_unknown => {
                    out.insert(key, value);
                }
                Some(_) | None => self.report(&key),
            }
        }
        self.holder = outer;
        Ok(Value::Object(out))
    }

    fn field(&mut self, field: &Field, value: Value, olds: &[&Value]) -> Result<Value, String> {
        let end = self.enter(&field.name);
        self.fields.push(Arc::clone(&field.name));
        let olds: Vec<&Value> = olds.iter().filter_map(|it| it.get(&*field.name)).collect();
        let value = self.value(field.ty, field.go_type.as_deref(), value, &olds)?;
        self.fields.pop();
        self.path.truncate(end);
        Ok(value)
    }

    fn map(
        &mut self,
        map_type: &MapType,
        go: Option<&str>,
        map: Map,
        olds: &[&Value],
    ) -> Result<Value, String> {
        let go = go.and_then(|it| it.split_once(']')).map(|(_, value)| value);
        let mut out = Map::new();
        for (key, value) in map {
            let end = self.enter(&key);
            let olds: Vec<&Value> = olds.iter().filter_map(|it| it.get(&key)).collect();
            let value = self.value(map_type.value, go, value, &olds)?;
            self.path.truncate(end);
            out.insert(key, value);
        }
        Ok(Value::Object(out))
    }

    fn list(
        &mut self,
        list: &ListType,
        go: Option<&str>,
        items: Vec<Value>,
        olds: &[&Value],
    ) -> Result<Value, String> {
        let go = go.and_then(|it| it.strip_prefix("[]"));
        let old_items: Vec<&Value> = olds.iter().filter_map(|it| it.as_array()).flatten().collect();
        let mut out = Vec::with_capacity(items.len());
        for (index, item) in items.into_iter().enumerate() {
            let end = self.path.len();
            self.path.push_str(&format!("[{index}]"));
            let olds: Vec<&Value> = match &list.kind {
                _ if old_items.is_empty() => Vec::new(),
                ListKind::Map(keys) => old_items
                    .iter()
                    .filter(|old| keep::has_same_keys(self.schema, list, keys, old, &item))
                    .copied()
                    .collect(),
                ListKind::Atomic | ListKind::Set => old_items.iter().take(MAX_CANDIDATES).copied().collect(),
            };
            out.push(self.value(list.element, go, item, &olds)?);
            self.path.truncate(end);
        }
        Ok(Value::Array(out))
    }

    fn scalar(&mut self, scalar: Scalar, go: Option<&str>, value: Value) -> Result<Value, String> {
        // Only who reads trees asks what it was.
        let sent = (self.words == Words::Unstructured).then(|| value.clone());
        match scalar::read(scalar, value) {
            Ok(value) => Ok(value),
            Err(scalar::Problem::Unreadable(why)) => Err(why),
            Err(scalar::Problem::Inner { what, go }) => {
                // The field's own decoder complains, and the outer one says where.
                let place = self.place();
                Err(format!("json: cannot unmarshal {what} into Go {place} of type {go}"))
            }
            Err(scalar::Problem::Type { go: own, .. }) if let Some(sent) = &sent => {
                Err(unstructured::of_scalar(scalar, go.unwrap_or(own), sent))
            }
            Err(scalar::Problem::Type { what, go: own }) => {
                self.complain(&what, go.unwrap_or(own));
                Ok(Value::Null)
            }
            Err(scalar::Problem::Text(why)) => {
                self.complaint.get_or_insert(why);
                Ok(Value::Null)
            }
        }
    }

    /// Schemas inside a custom resource definition may be a schema or something else; all other such types are free.
    fn any(&mut self, ty: TypeId, value: Value, olds: &[&Value]) -> Result<Value, String> {
        let name = self.schema.name(ty);
        let inner = ["OrArray", "OrBool", "OrStringArray"].iter().find_map(|it| name.strip_suffix(it));
        let Some(inner) = inner.and_then(|it| self.schema.find(it)) else { return Ok(value) };
        let was_silent = std::mem::replace(&mut self.is_silent, true);
        let value = match value {
            Value::Object(_) => self.value(inner, None, value, olds)?,
            Value::Array(items) if name.ends_with("OrArray") => {
                let items = items.into_iter().map(|it| self.value(inner, None, it, &[]));
                Value::Array(items.collect::<Result<_, _>>()?)
            }
            other => other,
        };
        self.is_silent = was_silent;
        Ok(value)
    }

    fn enter(&mut self, key: &str) -> usize {
        let end = self.path.len();
        if end > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        end
    }

    fn report(&mut self, key: &str) {
        if self.is_silent || self.unknown.len() >= MAX_REPORTED {
            return;
        }
        let end = self.enter(key);
        self.unknown.push(self.path.clone());
        self.path.truncate(end);
    }

    fn complain(&mut self, what: &str, go: &str) {
        if self.complaint.is_none() {
            self.complaint =
                Some(format!("json: cannot unmarshal {what} into Go {} of type {go}", self.place()));
        }
    }

    fn place(&self) -> String {
        if self.holder.is_empty() && self.fields.is_empty() {
            return "value".to_owned();
        }
        format!("struct field {}.{}", self.holder, self.fields.join("."))
    }
}

/// What Go makes of `null` where something must be: in a list or as the value of a map.
fn zero(schema: &Schema, ty: TypeId) -> Value {
    match schema.get(ty) {
        Type::Object(_) => Value::Object(Map::new()),
        Type::Scalar(scalar) => scalar::zero(*scalar),
        Type::Map(_) | Type::List(_) | Type::Any => Value::Null,
    }
}
