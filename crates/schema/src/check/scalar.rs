//! Single values: their types, and the forms that some texts must have.

use super::{go_name, quantity};
use crate::{Value, json, model::Scalar};

/// What is wrong with a value.
pub(super) enum Problem {
    /// It has the wrong type.
    Type { what: String, go: &'static str },
    /// It has the wrong type, says the decoder of its own type, which ends everything.
    Inner { what: String, go: &'static str },
    /// It cannot be read, which ends everything.
    Unreadable(String),
    /// It cannot be read.
    Text(String),
}

/// The value in its canonical form.
pub(super) fn read(scalar: Scalar, value: Value) -> Result<Value, Problem> {
    let go = go_name::of_scalar(scalar);
    match (scalar, value) {
        (Scalar::String, Value::String(text)) => Ok(Value::String(text)),
        (Scalar::Bool, Value::Bool(value)) => Ok(Value::Bool(value)),
        (Scalar::Int32 | Scalar::Int64 | Scalar::Uint32 | Scalar::Uint64, Value::Number(number)) => {
            if fits(scalar, &number) {
                Ok(Value::Number(number))
            } else {
                Err(Problem::Type { what: format!("number {number}"), go })
            }
        }
        (Scalar::Double, Value::Number(number)) => Ok(Value::Number(number)),
        (Scalar::Bytes, Value::String(text)) => bytes(text).map(Value::String),
        (Scalar::Time, Value::String(text)) => {
            meta::time::check_time(&text).map_err(Problem::Unreadable)?;
            let time = meta::time::parse_time(&text).map(meta::time::format_time);
            Ok(Value::String(time.unwrap_or(text)))
        }
        (Scalar::MicroTime, Value::String(text)) => {
            meta::time::check_micro_time(&text).map_err(Problem::Unreadable)?;
            let time = meta::time::parse_time(&text).map(meta::time::format_micro_time);
            Ok(Value::String(time.unwrap_or(text)))
        }
        (Scalar::Duration, Value::String(text)) => {
            duration(&text).map_err(Problem::Unreadable)?;
            Ok(Value::String(text))
        }
        (Scalar::Quantity, Value::String(text)) => of_quantity(&text),
        (Scalar::Quantity, Value::Number(number)) => of_quantity(&number.to_string()),
        (Scalar::Quantity, _) => Err(Problem::Unreadable(quantity::FORMAT_WRONG.to_owned())),
        (Scalar::IntOrString, Value::String(text)) => Ok(Value::String(text)),
        (Scalar::IntOrString, Value::Number(number)) if fits(Scalar::Int32, &number) => {
            Ok(Value::Number(number))
        }
        (Scalar::IntOrString, Value::Number(number)) => {
            Err(Problem::Inner { what: format!("number {number}"), go: "int32" })
        }
        (Scalar::IntOrString, other) => {
            Err(Problem::Inner { what: json::type_name(&other).to_owned(), go: "int32" })
        }
        (Scalar::Time | Scalar::MicroTime | Scalar::Duration, other) => {
            Err(Problem::Inner { what: json::type_name(&other).to_owned(), go: "string" })
        }
        (_, other) => Err(Problem::Type { what: json::type_name(&other).to_owned(), go }),
    }
}

/// What Go makes of `null`.
pub(super) fn zero(scalar: Scalar) -> Value {
    match scalar {
        Scalar::String => Value::from(""),
        Scalar::Bool => Value::Bool(false),
        Scalar::Int32
        | Scalar::Int64
        | Scalar::Uint32
        | Scalar::Uint64
        | Scalar::Double
        | Scalar::IntOrString => Value::from(0),
        Scalar::Quantity => Value::from("0"),
        Scalar::Duration => Value::from("0s"),
        Scalar::Bytes | Scalar::Time | Scalar::MicroTime => Value::Null,
    }
}

fn fits(scalar: Scalar, number: &serde_json::Number) -> bool {
    match scalar {
        Scalar::Int32 => number.as_i64().is_some_and(|it| i32::try_from(it).is_ok()),
        Scalar::Uint32 => number.as_u64().is_some_and(|it| u32::try_from(it).is_ok()),
        Scalar::Uint64 => number.as_u64().is_some(),
        _ => number.as_i64().is_some(),
    }
}

fn of_quantity(text: &str) -> Result<Value, Problem> {
    let canonical = quantity::canonical(text.trim()).map_err(|it| Problem::Unreadable(it.to_owned()))?;
    Ok(Value::String(canonical))
}

/// Base64 as Go reads it: line breaks are skipped.
fn bytes(text: String) -> Result<String, Problem> {
    if let Some(at) = bad_base64(text.as_bytes()) {
        return Err(Problem::Text(format!("illegal base64 data at input byte {at}")));
    }
    Ok(if text.contains(['\r', '\n']) { text.replace(['\r', '\n'], "") } else { text })
}

/// Where base64 ends to be base64.
fn bad_base64(text: &[u8]) -> Option<usize> {
    let is_break = |at: usize| matches!(text.get(at), Some(b'\r' | b'\n'));
    let (mut at, mut n_in_group) = (0, 0);
    while at < text.len() {
        match text[at] {
            b'\r' | b'\n' => {}
            b'=' => {
                if n_in_group < 2 {
                    return Some(at);
                }
                at += 1;
                if n_in_group == 2 {
                    while is_break(at) {
                        at += 1;
                    }
                    match text.get(at) {
                        None => return Some(text.len()),
                        Some(b'=') => at += 1,
                        Some(_) => return Some(at - 1),
                    }
                }
                while is_break(at) {
                    at += 1;
                }
                return (at < text.len()).then_some(at);
            }
            byte if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/') => {
                n_in_group = (n_in_group + 1) % 4;
            }
            _ => return Some(at),
        }
        at += 1;
    }
    (n_in_group > 0).then(|| text.len() - n_in_group)
}

/// `1h30m`, `-1.5s`, `0`: what Go reads as a duration.
pub(super) fn duration(text: &str) -> Result<(), String> {
    let invalid = || format!("time: invalid duration {}", meta::field::quote(text));
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(());
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let n_whole = rest.bytes().take_while(u8::is_ascii_digit).count();
        let after = &rest[n_whole..];
        let n_fraction = match after.strip_prefix('.') {
            Some(it) => 1 + it.bytes().take_while(u8::is_ascii_digit).count(),
            None => 0,
        };
        if n_whole == 0 && n_fraction < 2 {
            return Err(invalid());
        }
        rest = &after[n_fraction..];
        let n_unit = rest.bytes().take_while(|it| *it != b'.' && !it.is_ascii_digit()).count();
        let unit = &rest[..n_unit];
        match unit {
            "" => return Err(format!("time: missing unit in duration {}", meta::field::quote(text))),
            "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h" => {}
            unit => {
                return Err(format!(
                    "time: unknown unit {} in duration {}",
                    meta::field::quote(unit),
                    meta::field::quote(text)
                ));
            }
        }
        rest = &rest[n_unit..];
    }
    Ok(())
}
