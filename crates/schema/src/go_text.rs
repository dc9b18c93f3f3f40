//! Values as Go prints them in messages (`%v`, `%#v`), which clients see in upstream's words.

use std::fmt::Write;

use crate::{Value, json};

/// At most this many bytes of a value are shown.
const MAX_SHOWN: usize = 1024;

/// `map[a:1 b:[x y]]`
pub(crate) fn plain(value: &Value) -> String {
    let mut out = String::new();
    write_plain(&mut out, value);
    shorten(out)
}

/// The name of the type that Go's decoder makes of a value.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// `"text"`, `80`, `map[string]interface {}{"a":1}`
pub(crate) fn syntax(value: &Value) -> String {
    let mut out = String::new();
    write_syntax(&mut out, value);
    shorten(out)
}

/// A text in quotes, as `%q`.
pub(crate) fn quote(text: &str) -> String {
    String::from_utf8_lossy(&json::to_vec(&Value::from(text))).into_owned()
}

fn write_plain(out: &mut String, value: &Value) {
    if out.len() > MAX_SHOWN {
        return;
    }
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(_) | Value::Number(_) => out.push_str(&scalar(value)),
        Value::String(text) => out.push_str(text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                write_plain(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push_str("map[");
            for (index, (key, item)) in map.iter().enumerate() {
                let space = if index > 0 { " " } else { "" };
                write!(out, "{space}{key}:").expect("a String must take what is written");
                write_plain(out, item);
            }
            out.push(']');
        }
    }
}

fn write_syntax(out: &mut String, value: &Value) {
    if out.len() > MAX_SHOWN {
        return;
    }
    match value {
        Value::Null => out.push_str("interface {}(nil)"),
        Value::Bool(_) | Value::Number(_) => out.push_str(&scalar(value)),
        Value::String(text) => out.push_str(&quote(text)),
        Value::Array(items) => {
            out.push_str("[]interface {}{");
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write_syntax(out, item);
            }
            out.push('}');
        }
        Value::Object(map) => {
            out.push_str("map[string]interface {}{");
            for (index, (key, item)) in map.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                out.push_str(&quote(key));
                out.push(':');
                write_syntax(out, item);
            }
            out.push('}');
        }
    }
}

fn scalar(value: &Value) -> String {
    String::from_utf8_lossy(&json::to_vec(value)).into_owned()
}

fn shorten(mut text: String) -> String {
    if text.len() > MAX_SHOWN {
        let end = text.floor_char_boundary(MAX_SHOWN);
        text.truncate(end);
        text.push_str("...");
    }
    text
}
