//! Trees to text. Keys are sorted, floats are written as Go does, nothing is indented.

use std::io::Write;

use bytes::Bytes;

use super::number;
use crate::{Map, Value};

/// The text of a tree.
pub fn to_vec(value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    write_value(&mut out, value);
    out
}

/// The text in which an object is stored.
///
/// It begins with `{"apiVersion":"…","kind":"…","metadata":{`, in this order, so that a reader finds the version
/// without reading the whole; the other keys follow sorted. `resourceVersion` and `selfLink` are not part of it: the
/// store knows the one, nobody needs the other.
pub fn encode_stored(object: &Value) -> Bytes {
    let empty = Map::new();
    let map = object.as_object().unwrap_or(&empty);
    let mut out = Vec::with_capacity(1024);
    for (before, field) in [("{", "apiVersion"), (",", "kind")] {
        out.extend_from_slice(before.as_bytes());
        write_text(&mut out, field);
        out.push(b':');
        write_text(&mut out, map.get(field).and_then(Value::as_str).unwrap_or(""));
    }
    out.extend_from_slice(b",\"metadata\":");
    let metadata = map.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let is_stored = |key: &str| !matches!(key, "resourceVersion" | "selfLink");
    write_fields(&mut out, metadata.iter().filter(|(key, _)| is_stored(key)));
    for (key, value) in
        map.iter().filter(|(key, _)| !matches!(key.as_str(), "apiVersion" | "kind" | "metadata"))
    {
        out.push(b',');
        write_text(&mut out, key);
        out.push(b':');
        write_value(&mut out, value);
    }
    out.push(b'}');
    Bytes::from(out)
}

fn write_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(it) if it.is_f64() => {
            let text = number::to_text(it.as_f64().unwrap_or_default());
            out.extend_from_slice(text.as_bytes());
        }
        Value::Number(it) => write!(out, "{it}").expect("a Vec must take what is written"),
        Value::String(text) => write_text(out, text),
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_value(out, item);
            }
            out.push(b']');
        }
        Value::Object(map) => write_fields(out, map.iter()),
    }
}

fn write_fields<'a>(out: &mut Vec<u8>, fields: impl Iterator<Item = (&'a String, &'a Value)>) {
    out.push(b'{');
    for (index, (key, value)) in fields.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_text(out, key);
        out.push(b':');
        write_value(out, value);
    }
    out.push(b'}');
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut start = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let escape: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0..=0x1f => b"",
            _ => continue,
        };
        out.extend_from_slice(&bytes[start..at]);
        if escape.is_empty() {
            write!(out, "\\u{byte:04x}").expect("a Vec must take what is written");
        } else {
            out.extend_from_slice(escape);
        }
        start = at + 1;
    }
    out.extend_from_slice(&bytes[start..]);
    out.push(b'"');
}
