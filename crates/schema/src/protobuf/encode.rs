//! From trees to messages, back to front: the length of a message stands before it, and is known after it was written.

use std::cmp::Reverse;

use super::{MAGIC, Map, Value, any, scalar};
use crate::model::{ObjectType, Scalar, Schema, Type, TypeId};

/// Deeper than any object that was accepted.
const MAX_DEPTH: usize = 200;

pub(super) struct Encoder<'a> {
    pub(super) schema: &'a Schema,
    /// The last byte first.
    reversed: Vec<u8>,
    depth: usize,
}

/// What is written under one number.
enum Part<'a> {
    Field(TypeId, &'a Value),
    Inlined(TypeId),
}

impl<'a> Encoder<'a> {
    pub(super) fn new(schema: &'a Schema) -> Self {
        Self { schema, reversed: Vec::with_capacity(1024), depth: 0 }
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.reversed.reverse();
        self.reversed
    }

    /// An object in its envelope.
    pub(super) fn enveloped(&mut self, value: &Value, ty: TypeId) {
        let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
        self.envelope_tail();
        let start = self.mark();
        if let (Value::Object(map), Some(object)) = (value, self.schema.object(ty)) {
            self.object(map, object);
        }
        self.delimit(2, start);
        self.envelope_head(text("apiVersion"), text("kind"));
    }

    /// What stands behind the object: an encoding and a type of content, both empty.
    pub(super) fn envelope_tail(&mut self) {
        self.bytes(4, b"");
        self.bytes(3, b"");
    }

    /// What stands before the object.
    pub(super) fn envelope_head(&mut self, api_version: &str, kind: &str) {
        self.message(1, |it| {
            it.bytes(2, kind.as_bytes());
            it.bytes(1, api_version.as_bytes());
        });
        self.push(&MAGIC);
    }

    /// The fields of an object, in the order of their numbers.
    pub(super) fn object(&mut self, map: &Map, object: &ObjectType) {
        if self.depth == MAX_DEPTH {
            return;
        }
        self.depth += 1;
        let mut parts = Vec::with_capacity(map.len() + object.inlined.len());
        for (name, value) in map {
            if let Some(field) = object.field(name)
                && field.within == 0
                && field.number != 0
                && !value.is_null()
            {
                parts.push((field.number, Part::Field(field.ty, value)));
            }
        }
        parts.extend(object.inlined.iter().map(|it| (it.number, Part::Inlined(it.ty))));
        parts.sort_unstable_by_key(|it| Reverse(it.0));
        for (number, part) in parts {
            match part {
                Part::Field(ty, value) => self.value(number, ty, value),
                Part::Inlined(ty) => {
                    let start = self.mark();
                    if let Some(inner) = self.schema.object(ty) {
                        self.object(map, inner);
                    }
                    if self.mark() > start {
                        self.delimit(number, start);
                    }
                }
            }
        }
        self.depth -= 1;
    }

    /// A field. Values that are not of its type are left out.
    pub(super) fn value(&mut self, number: u32, ty: TypeId, value: &Value) {
        let schema = self.schema;
        match (schema.get(ty), value) {
            (Type::Scalar(scalar), value) => scalar::encode(self, number, *scalar, value),
            (Type::Object(object), Value::Object(map)) => self.message(number, |it| it.object(map, object)),
            (Type::Map(ty), Value::Object(map)) => {
                for (key, value) in map.iter().rev() {
                    let is_time =
                        matches!(schema.get(ty.value), Type::Scalar(Scalar::Time | Scalar::MicroTime));
                    self.message(number, |it| {
                        match value {
                            // No time at all is a message without fields.
                            Value::Null if is_time => it.bytes(2, &[]),
                            value => it.value(2, ty.value, value),
                        }
                        it.bytes(1, key.as_bytes());
                    });
                }
            }
            (Type::List(list), Value::Array(elements)) if list.is_wrapped => self.message(number, |it| {
                elements.iter().rev().for_each(|element| it.value(1, list.element, element));
            }),
            (Type::List(list), Value::Array(elements)) => {
                elements.iter().rev().for_each(|element| self.value(number, list.element, element));
            }
            (Type::Any, value) => any::encode(self, number, ty, value),
            (Type::Object(_) | Type::Map(_) | Type::List(_), _) => {}
        }
    }

    /// A message, written by the closure, its last field first.
    pub(super) fn message(&mut self, number: u32, write: impl FnOnce(&mut Self)) {
        let start = self.mark();
        write(self);
        self.delimit(number, start);
    }

    pub(super) fn mark(&self) -> usize {
        self.reversed.len()
    }

    /// Makes what was written since the mark the value of a field.
    pub(super) fn delimit(&mut self, number: u32, start: usize) {
        let length = self.reversed.len() - start;
        self.delimit_length(number, length);
    }

    pub(super) fn delimit_length(&mut self, number: u32, length: usize) {
        self.raw_varint(u64::try_from(length).expect("a length must fit into 64 bits"));
        self.tag(number, 2);
    }

    pub(super) fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.push(bytes);
        self.delimit_length(number, bytes.len());
    }

    pub(super) fn varint(&mut self, number: u32, value: u64) {
        self.raw_varint(value);
        self.tag(number, 0);
    }

    pub(super) fn fixed64(&mut self, number: u32, bytes: [u8; 8]) {
        self.push(&bytes);
        self.tag(number, 1);
    }

    fn tag(&mut self, number: u32, wire: u64) {
        self.raw_varint(u64::from(number) << 3 | wire);
    }

    fn raw_varint(&mut self, mut value: u64) {
        let mut bytes = [0; 10];
        let mut length = 0;
        loop {
            let byte = value.to_le_bytes()[0] & 0x7f;
            value >>= 7;
            bytes[length] = if value == 0 { byte } else { byte | 0x80 };
            length += 1;
            if value == 0 {
                break;
            }
        }
        self.push(&bytes[..length]);
    }

    fn push(&mut self, bytes: &[u8]) {
        self.reversed.extend(bytes.iter().rev());
    }
}
