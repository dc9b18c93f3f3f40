//! From messages to trees.

use super::{
    Envelope, Lookup, MAX_DEPTH, Map, ProtobufError, Value, any, open, scalar,
    wire::{Payload, Reader},
};
use crate::model::{Field, ListType, MapType, ObjectType, Scalar, Schema, Type, TypeId};

/// What a value costs in memory, and an object with something in it, roughly.
const VALUE_COST: usize = 100;
const OBJECT_COST: usize = 700;

pub(super) struct Decoder<'a> {
    pub(super) schema: &'a Schema,
    lookup: Lookup<'a>,
    memory: usize,
    max_memory: usize,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(schema: &'a Schema, lookup: Lookup<'a>, max_memory: usize) -> Self {
        Self { schema, lookup, memory: 0, max_memory }
    }

    /// An object in its envelope.
    pub(super) fn enveloped(&mut self, bytes: &[u8], depth: usize) -> Result<Value, ProtobufError> {
        let Envelope { api_version, kind, raw } = open(bytes)?;
        let object = (self.lookup)(&api_version, &kind).and_then(|it| self.schema.object(it));
        let Some(object) = object else { return Err(ProtobufError::NotRegistered { api_version, kind }) };
        let mut map = Map::new();
        self.message(raw, object, &mut map, depth)?;
        for (name, value) in [("apiVersion", api_version), ("kind", kind)] {
            if !value.is_empty() {
                map.insert(name.to_owned(), value.into());
            }
        }
        Ok(Value::Object(map))
    }

    /// Adds the fields of a message to an object.
    pub(super) fn message(
        &mut self,
        bytes: &[u8],
        object: &ObjectType,
        into: &mut Map,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        if depth >= MAX_DEPTH {
            return Err(ProtobufError::TooDeep);
        }
        if !bytes.is_empty() {
            self.charge(OBJECT_COST)?;
        }
        let mut reader = Reader::new(bytes);
        while let Some((number, payload)) = reader.field()? {
            let mut fields = object.fields.iter();
            if let Some(field) = fields.find(|it| it.number == number && it.within == 0) {
                // As in a server that has never heard of it.
                if field.is_known {
                    self.field(field, payload, into, depth)?;
                }
            } else if let Some(inlined) = object.inlined.iter().find(|it| it.number == number)
                && let Some(inner) = self.schema.object(inlined.ty)
            {
                self.message(payload.bytes(inner.short_name())?, inner, into, depth + 1)?;
            }
        }
        Ok(())
    }

    pub(super) fn charge(&mut self, cost: usize) -> Result<(), ProtobufError> {
        self.memory += cost;
        if self.memory <= self.max_memory { Ok(()) } else { Err(ProtobufError::TooLarge(self.max_memory)) }
    }

    fn field(
        &mut self,
        field: &Field,
        payload: Payload<'_>,
        into: &mut Map,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        let name = &*field.name;
        match self.schema.get(field.ty) {
            Type::Scalar(scalar) => {
                let value = self.scalar(*scalar, payload, name)?;
                // Go writes every value that is not behind a pointer, set or not.
                let is_set = |it: &Value| field.is_pointer || field.is_always || !is_zero(it);
                match value.filter(is_set) {
                    Some(value) => into.insert(name.to_owned(), value),
                    None => into.remove(name),
                };
            }
            Type::Object(object) => {
                // A message that comes in two parts is one message.
                let value = into.entry(name).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(inner) = value {
                    self.charge(VALUE_COST)?;
                    self.message(payload.bytes(name)?, object, inner, depth + 1)?;
                }
            }
            Type::Map(map) => {
                let value = into.entry(name).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(inner) = value {
                    self.map_entry(map, payload.bytes(name)?, name, inner, depth)?;
                }
            }
            // No numbers in one field: Go has no list then.
            Type::List(list) if self.is_packable(list) && matches!(payload, Payload::Bytes([])) => {}
            Type::List(list) => {
                let value = into.entry(name).or_insert_with(|| Value::Array(Vec::new()));
                if let Value::Array(elements) = value {
                    self.list(list, payload, name, elements, depth)?;
                }
            }
            Type::Any => match any::decode(self, field.ty, payload.bytes(name)?, name, depth)? {
                Some(value) => drop(into.insert(name.to_owned(), value)),
                None => drop(into.remove(name)),
            },
        }
        Ok(())
    }

    fn scalar(
        &mut self,
        scalar: Scalar,
        payload: Payload<'_>,
        name: &str,
    ) -> Result<Option<Value>, ProtobufError> {
        self.charge(VALUE_COST)?;
        if let Payload::Bytes(bytes) = payload {
            self.charge(bytes.len())?;
        }
        scalar::decode(scalar, payload, name)
    }

    fn map_entry(
        &mut self,
        map: &MapType,
        bytes: &[u8],
        name: &str,
        into: &mut Map,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        let (mut key, mut value) = ("", None);
        let mut reader = Reader::new(bytes);
        while let Some((number, payload)) = reader.field()? {
            match number {
                1 => key = payload.text(name)?,
                2 => value = Some(self.element(map.value, payload, name, depth)?),
                _ => {}
            }
        }
        self.charge(VALUE_COST + key.len())?;
        let value = match value {
            Some(value) => value,
            None => self.element(map.value, self.nothing(map.value), name, depth)?,
        };
        into.insert(key.to_owned(), value);
        Ok(())
    }

    /// What a value that is left out stands for.
    fn nothing(&self, ty: TypeId) -> Payload<'static> {
        match self.schema.get(ty) {
            Type::Scalar(Scalar::Double) => Payload::Fixed64([0; 8]),
            Type::Scalar(it) if is_packable(*it) => Payload::Varint(0),
            Type::Scalar(_) | Type::Object(_) | Type::Map(_) | Type::List(_) | Type::Any => {
                Payload::Bytes(&[])
            }
        }
    }

    fn list(
        &mut self,
        list: &ListType,
        payload: Payload<'_>,
        name: &str,
        into: &mut Vec<Value>,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        if list.is_wrapped {
            return self.wrapped(list, payload.bytes(name)?, name, into, depth);
        }
        // Numbers may be written one by one, or all in one field.
        if let Payload::Bytes(packed) = payload
            && self.is_packable(list)
        {
            let mut reader = Reader::new(packed);
            while !reader.is_empty() {
                let payload = Payload::Varint(reader.varint()?);
                into.push(self.element(list.element, payload, name, depth)?);
            }
            return Ok(());
        }
        into.push(self.element(list.element, payload, name, depth)?);
        Ok(())
    }

    /// Whether the elements are numbers, so that they can stand in one field.
    fn is_packable(&self, list: &ListType) -> bool {
        matches!(self.schema.get(list.element), Type::Scalar(it) if is_packable(*it))
    }

    fn wrapped(
        &mut self,
        list: &ListType,
        bytes: &[u8],
        name: &str,
        into: &mut Vec<Value>,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        let mut reader = Reader::new(bytes);
        while let Some((number, payload)) = reader.field()? {
            if number == 1 {
                into.push(self.element(list.element, payload, name, depth)?);
            }
        }
        Ok(())
    }

    /// A value that stands in a list or a map.
    fn element(
        &mut self,
        ty: TypeId,
        payload: Payload<'_>,
        name: &str,
        depth: usize,
    ) -> Result<Value, ProtobufError> {
        Ok(match self.schema.get(ty) {
            Type::Scalar(scalar) => self.scalar(*scalar, payload, name)?.unwrap_or_default(),
            Type::Object(object) => {
                self.charge(VALUE_COST)?;
                let mut map = Map::new();
                self.message(payload.bytes(name)?, object, &mut map, depth + 1)?;
                Value::Object(map)
            }
            Type::List(list) => {
                self.charge(VALUE_COST)?;
                let mut elements = Vec::new();
                self.wrapped(list, payload.bytes(name)?, name, &mut elements, depth)?;
                Value::Array(elements)
            }
            Type::Map(map) => {
                self.charge(VALUE_COST)?;
                let mut entries = Map::new();
                self.map_entry(map, payload.bytes(name)?, name, &mut entries, depth)?;
                Value::Object(entries)
            }
            Type::Any => any::decode(self, ty, payload.bytes(name)?, name, depth)?.unwrap_or_default(),
        })
    }
}

fn is_packable(scalar: Scalar) -> bool {
    matches!(scalar, Scalar::Bool | Scalar::Int32 | Scalar::Int64 | Scalar::Uint32 | Scalar::Uint64)
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(_) | Value::Object(_) => false,
    }
}
