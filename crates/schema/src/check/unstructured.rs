//! The words in which upstream's converter of trees refuses a value: it knows the Go kinds of both sides.

use crate::{
    Value,
    model::{Scalar, Schema, Type, TypeId},
};

/// Why a value cannot become a structure, map or list.
pub(super) fn of_structure(schema: &Schema, ty: TypeId, value: &Value) -> String {
    let from = kind(value);
    match schema.get(ty) {
        Type::Object(_) => format!("cannot restore struct from: {from}"),
        Type::Map(_) => format!("cannot restore map from {from}"),
        Type::List(_) => format!("cannot restore slice from {from}"),
        Type::Scalar(_) | Type::Any => format!("unrecognized type: {from}"),
    }
}

/// Why a value cannot become a single value of another type; `go` is the name of that type.
pub(super) fn of_scalar(scalar: Scalar, go: &str, value: &Value) -> String {
    // Go converts between numbers, and a whole number to a text of one character, but upstream refuses the latter.
    let is_convertible = match (scalar, value) {
        (Scalar::String, Value::Number(number)) => number.is_i64(),
        (Scalar::Int32 | Scalar::Int64 | Scalar::Uint32 | Scalar::Uint64, Value::Number(_)) => true,
        _ => false,
    };
    match scalar {
        _ if is_convertible => format!("cannot convert {} to {go}", kind(value)),
        Scalar::Bytes => format!("cannot restore slice from {}", kind(value)),
        Scalar::Int32 => "unrecognized type: int32".to_owned(),
        Scalar::Int64 => "unrecognized type: int64".to_owned(),
        Scalar::Uint32 => "unrecognized type: uint32".to_owned(),
        Scalar::Uint64 => "unrecognized type: uint64".to_owned(),
        Scalar::Double => "unrecognized type: float64".to_owned(),
        Scalar::Bool => "unrecognized type: bool".to_owned(),
        Scalar::String
        | Scalar::Time
        | Scalar::MicroTime
        | Scalar::Duration
        | Scalar::Quantity
        | Scalar::IntOrString => "unrecognized type: string".to_owned(),
    }
}

/// Go's kind of a decoded value.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}
