//! Types that are JSON of any shape to everybody else, and have a message of their own in protobuf.

use super::{MAGIC, Map, ProtobufError, Value, decode::Decoder, encode::Encoder, wire::Reader};
use crate::{
    json::{self, Limits},
    model::{ObjectType, Schema, TypeId},
};

/// The forms; they are told apart by the names of their types.
enum Form<'a> {
    /// JSON, or an object in its envelope, as the bytes of field 1: `RawExtension`, `FieldsV1`, `JSON`.
    Raw,
    /// `JSONSchemaPropsOrArray`
    SchemaOrArray(&'a ObjectType),
    /// `JSONSchemaPropsOrBool`
    SchemaOrBool(&'a ObjectType),
    /// `JSONSchemaPropsOrStringArray`
    SchemaOrNames(&'a ObjectType),
}

/// Reads one. `None` where nothing is in it.
pub(super) fn decode(
    decoder: &mut Decoder<'_>,
    ty: TypeId,
    bytes: &[u8],
    field: &str,
    depth: usize,
) -> Result<Option<Value>, ProtobufError> {
    let form = form(decoder.schema, ty);
    if let Form::Raw = form {
        return raw_value(decoder, raw(bytes)?, field, depth);
    }
    let (mut schema, mut list, mut truth) = (None, Vec::new(), false);
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        decoder.charge(100)?;
        let mut message = |object| -> Result<Value, ProtobufError> {
            let mut map = Map::new();
            decoder.message(payload.bytes(field)?, object, &mut map, depth + 1)?;
            Ok(Value::Object(map))
        };
        match (&form, number) {
            (Form::SchemaOrArray(object) | Form::SchemaOrNames(object), 1)
            | (Form::SchemaOrBool(object), 2) => schema = Some(message(object)?),
            (Form::SchemaOrArray(object), 2) => list.push(message(object)?),
            (Form::SchemaOrNames(_), 2) => list.push(payload.text(field)?.into()),
            (Form::SchemaOrBool(_), 1) => truth = payload.number(field)? != 0,
            _ => {}
        }
    }
    Ok(match form {
        Form::SchemaOrBool(_) => Some(schema.unwrap_or(truth.into())),
        _ if !list.is_empty() => Some(list.into()),
        _ => schema,
    })
}

/// Writes one.
pub(super) fn encode(encoder: &mut Encoder<'_>, number: u32, ty: TypeId, value: &Value) {
    match (form(encoder.schema, ty), value) {
        (Form::Raw, value) => {
            let text = json::to_vec(value);
            encoder.message(number, |it| it.bytes(1, &text));
        }
        (Form::SchemaOrArray(object), Value::Array(elements)) => encoder.message(number, |it| {
            for element in elements.iter().rev().filter_map(Value::as_object) {
                it.message(2, |it| it.object(element, object));
            }
        }),
        (Form::SchemaOrNames(_), Value::Array(names)) => encoder.message(number, |it| {
            for name in names.iter().rev().filter_map(Value::as_str) {
                it.bytes(2, name.as_bytes());
            }
        }),
        (Form::SchemaOrBool(_), Value::Bool(truth)) => {
            encoder.message(number, |it| it.varint(1, (*truth).into()));
        }
        (Form::SchemaOrBool(object), Value::Object(map)) => encoder.message(number, |it| {
            it.message(2, |it| it.object(map, object));
            it.varint(1, 1);
        }),
        (Form::SchemaOrArray(object) | Form::SchemaOrNames(object), Value::Object(map)) => {
            encoder.message(number, |it| it.message(1, |it| it.object(map, object)));
        }
        _ => {}
    }
}

/// The bytes of field 1.
pub(super) fn raw(bytes: &[u8]) -> Result<&[u8], ProtobufError> {
    let mut found: &[u8] = &[];
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        if number == 1 {
            found = payload.bytes("raw")?;
        }
    }
    Ok(found)
}

fn raw_value(
    decoder: &mut Decoder<'_>,
    raw: &[u8],
    field: &str,
    depth: usize,
) -> Result<Option<Value>, ProtobufError> {
    if raw.is_empty() {
        return Ok(None);
    }
    if raw.starts_with(&MAGIC) {
        return decoder.enveloped(raw, depth + 1).map(Some);
    }
    // A tree of one-byte values takes about fifty times the text.
    decoder.charge(raw.len().saturating_mul(50))?;
    let value = json::parse(raw, Limits::REQUEST).map_err(|_| ProtobufError::Value(field.to_owned()))?;
    Ok((!value.is_null()).then_some(value))
}

fn form(schema: &Schema, ty: TypeId) -> Form<'_> {
    let Some((package, name)) = schema.name(ty).rsplit_once('.') else { return Form::Raw };
    if !name.starts_with("JSONSchemaPropsOr") {
        return Form::Raw;
    }
    let object = schema.find(&format!("{package}.JSONSchemaProps")).and_then(|it| schema.object(it));
    match (object, name) {
        (Some(object), "JSONSchemaPropsOrArray") => Form::SchemaOrArray(object),
        (Some(object), "JSONSchemaPropsOrBool") => Form::SchemaOrBool(object),
        (Some(object), "JSONSchemaPropsOrStringArray") => Form::SchemaOrNames(object),
        _ => Form::Raw,
    }
}
