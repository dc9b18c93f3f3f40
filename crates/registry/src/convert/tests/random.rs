//! Random values of a type, always the same ones.

use meta::{Map, Value};
use schema::model::{ListKind, Scalar, Schema, Type, TypeId};
use serde_json::json;

/// A stream of numbers that look random.
pub(super) struct Random {
    state: u64,
    /// Fields of other releases appear too.
    all_releases: bool,
}

impl Random {
    pub(super) fn new(seed: u64, all_releases: bool) -> Self {
        Self { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, all_releases }
    }

    fn next(&mut self, below: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) % below
    }

    pub(super) fn value(&mut self, schema: &Schema, ty: TypeId, depth: u32) -> Value {
        match schema.get(ty) {
            Type::Scalar(scalar) => self.single(*scalar),
            Type::Any => json!({"any": self.next(3)}),
            Type::Map(map) => {
                let n = self.next(3);
                Value::Object(
                    (0..n).map(|it| (format!("k{it}"), self.value(schema, map.value, depth + 1))).collect(),
                )
            }
            Type::List(list) => {
                let n = match list.kind {
                    _ if depth > 12 => 0,
                    ListKind::Set | ListKind::Map(_) => self.next(2),
                    ListKind::Atomic => self.next(3),
                };
                (0..n).map(|_| self.value(schema, list.element, depth + 1)).collect()
            }
            Type::Object(object) => {
                let mut map = Map::new();
                let all = self.all_releases;
                for field in object.fields.iter().filter(|it| all || it.is_known) {
                    if field.is_required || (depth < 10 && (depth < 2 || self.next(2) == 0)) {
                        let value = self.value(schema, field.ty, depth + 1);
                        // What is required is never empty in an object that was accepted.
                        let is_valid = !field.is_required || value != "";
                        map.insert(field.name.to_string(), if is_valid { value } else { json!("a") });
                    }
                }
                Value::Object(map)
            }
        }
    }

    fn single(&mut self, scalar: Scalar) -> Value {
        let choice = usize::try_from(self.next(4)).unwrap();
        match scalar {
            Scalar::String => json!(["", "a", "b c", "\u{fc}"][choice]),
            Scalar::Bool => json!(choice > 1),
            Scalar::Int32 | Scalar::Int64 | Scalar::Uint32 | Scalar::Uint64 | Scalar::Double => json!(choice),
            Scalar::Bytes => json!(["", "YQ==", "YWI=", "YWJj"][choice]),
            Scalar::Time => json!("2026-01-02T03:04:05Z"),
            Scalar::MicroTime => json!("2026-01-02T03:04:05.123456Z"),
            Scalar::Duration => json!("1h0m0s"),
            Scalar::Quantity => json!(["0", "1", "500m", "1Gi"][choice]),
            Scalar::IntOrString => [json!(0), json!(80), json!("http"), json!("25%")][choice].clone(),
        }
    }
}
