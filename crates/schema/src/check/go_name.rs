//! What Go calls a type.

use crate::model::{Scalar, Schema, Type, TypeId};

/// `v1.PodSpec`, `[]v1.Container`, `map[string]string`.
pub(super) fn of(schema: &Schema, ty: TypeId) -> String {
    match schema.get(ty) {
        Type::Scalar(scalar) => of_scalar(*scalar).to_owned(),
        Type::Object(object) => short(&object.name),
        Type::List(list) if list.is_wrapped => short(schema.name(ty)),
        Type::List(list) => format!("[]{}", of(schema, list.element)),
        Type::Map(map) => format!("map[string]{}", of(schema, map.value)),
        Type::Any => short(schema.name(ty)),
    }
}

pub(super) fn of_scalar(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::String => "string",
        Scalar::Bool => "bool",
        Scalar::Int32 => "int32",
        Scalar::Int64 => "int64",
        Scalar::Uint32 => "uint32",
        Scalar::Uint64 => "uint64",
        Scalar::Double => "float64",
        Scalar::Bytes => "[]uint8",
        Scalar::Time => "v1.Time",
        Scalar::MicroTime => "v1.MicroTime",
        Scalar::Duration => "v1.Duration",
        Scalar::Quantity => "resource.Quantity",
        Scalar::IntOrString => "intstr.IntOrString",
    }
}

/// The package is the second last part of a full name.
fn short(name: &str) -> String {
    let at = name.rmatch_indices('.').nth(1).map_or(0, |(at, _)| at + 1);
    name[at..].to_owned()
}
