//! Single values: most have a form of their own in protobuf.

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;

use super::{
    ProtobufError, Value,
    encode::Encoder,
    wire::{Payload, Reader},
};
use crate::model::Scalar;

/// Reads one. `None` is a time that is not set.
pub(super) fn decode(
    scalar: Scalar,
    payload: Payload<'_>,
    field: &str,
) -> Result<Option<Value>, ProtobufError> {
    let invalid = || ProtobufError::Value(field.to_owned());
    Ok(Some(match scalar {
        Scalar::String => payload.text(field)?.into(),
        Scalar::Bool => (payload.number(field)? != 0).into(),
        // As Go: the upper bits do not count.
        Scalar::Int32 => low_half(payload.number(field)?).cast_signed().into(),
        Scalar::Uint32 => low_half(payload.number(field)?).into(),
        Scalar::Int64 => payload.number(field)?.cast_signed().into(),
        Scalar::Uint64 => payload.number(field)?.into(),
        Scalar::Double => {
            let Payload::Fixed64(bytes) = payload else { return Err(payload.wrong(field)) };
            number(f64::from_le_bytes(bytes)).ok_or_else(invalid)?
        }
        Scalar::Bytes => STANDARD.encode(payload.bytes(field)?).into(),
        Scalar::Time | Scalar::MicroTime => {
            let bytes = payload.bytes(field)?;
            if bytes.is_empty() {
                return Ok(None);
            }
            let (seconds, nanos) = numbers(bytes)?;
            let nanos = low_half(nanos.cast_unsigned()).cast_signed();
            let (nanos, format): (_, fn(Timestamp) -> String) = match scalar {
                Scalar::Time => (0, meta::time::format_time),
                _ => (nanos - nanos % 1000, meta::time::format_micro_time),
            };
            format(Timestamp::new(seconds, nanos).map_err(|_| invalid())?).into()
        }
        Scalar::Duration => duration_text(numbers(payload.bytes(field)?)?.0).into(),
        Scalar::Quantity => {
            let mut text = "0";
            let mut reader = Reader::new(payload.bytes(field)?);
            while let Some((number, payload)) = reader.field()? {
                if number == 1 {
                    text = payload.text(field)?;
                }
            }
            if text.is_empty() { "0" } else { text }.into()
        }
        Scalar::IntOrString => int_or_string(payload.bytes(field)?, field)?,
    }))
}

/// Writes one, unless it is not of the type.
pub(super) fn encode(encoder: &mut Encoder<'_>, number: u32, scalar: Scalar, value: &Value) {
    match (scalar, value) {
        (Scalar::String, Value::String(text)) => encoder.bytes(number, text.as_bytes()),
        (Scalar::Bool, Value::Bool(truth)) => encoder.varint(number, (*truth).into()),
        (Scalar::Int32 | Scalar::Uint32 | Scalar::Int64 | Scalar::Uint64, value) => {
            if let Some(whole) = whole(value) {
                encoder.varint(number, whole);
            }
        }
        (Scalar::Double, Value::Number(it)) => {
            if let Some(it) = it.as_f64() {
                encoder.fixed64(number, it.to_le_bytes());
            }
        }
        (Scalar::Bytes, Value::String(text)) => {
            if let Ok(bytes) = STANDARD.decode(text) {
                encoder.bytes(number, &bytes);
            }
        }
        (Scalar::Time | Scalar::MicroTime, Value::String(text)) => {
            if let Some(time) = meta::time::parse_time(text) {
                let nanos = if scalar == Scalar::Time { 0 } else { time.subsec_nanosecond() };
                // Before 1970 the seconds count down and the rest counts up.
                let (seconds, nanos) = match nanos {
                    nanos if nanos < 0 => (time.as_second() - 1, nanos + 1_000_000_000),
                    nanos => (time.as_second(), nanos),
                };
                encoder.message(number, |it| {
                    it.varint(2, i64::from(nanos).cast_unsigned());
                    it.varint(1, seconds.cast_unsigned());
                });
            }
        }
        (Scalar::Duration, Value::String(text)) => {
            if let Some(nanos) = duration_nanos(text) {
                encoder.message(number, |it| it.varint(1, nanos.cast_unsigned()));
            }
        }
        (Scalar::Quantity, Value::String(text)) => {
            encoder.message(number, |it| it.bytes(1, text.as_bytes()));
        }
        (Scalar::Quantity, Value::Number(it)) => {
            let text = it.to_string();
            encoder.message(number, |it| it.bytes(1, text.as_bytes()));
        }
        (Scalar::IntOrString, Value::String(text)) => encoder.message(number, |it| {
            it.bytes(3, text.as_bytes());
            it.varint(2, 0);
            it.varint(1, 1);
        }),
        (Scalar::IntOrString, value @ Value::Number(_)) => {
            if let Some(whole) = whole(value) {
                encoder.message(number, |it| {
                    it.bytes(3, b"");
                    it.varint(2, whole);
                    it.varint(1, 0);
                });
            }
        }
        _ => {}
    }
}

fn low_half(number: u64) -> u32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// A float as Go's JSON has it: whole where it is whole.
fn number(float: f64) -> Option<Value> {
    let text = format!("{float}");
    if let Ok(whole) = text.parse::<i64>() {
        return Some(whole.into());
    }
    serde_json::Number::from_f64(float).map(Value::Number)
}

/// The bits of a whole number.
fn whole(value: &Value) -> Option<u64> {
    let Value::Number(number) = value else { return None };
    let signed = || number.as_i64().map(i64::cast_unsigned);
    signed().or_else(|| number.as_u64()).or_else(|| {
        let float = number.as_f64().filter(|it| it.fract() == 0.0)?;
        format!("{float}").parse::<i64>().ok().map(i64::cast_unsigned)
    })
}

/// The fields 1 and 2 of a message of numbers.
fn numbers(bytes: &[u8]) -> Result<(i64, i64), ProtobufError> {
    let mut found = (0, 0);
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        match number {
            1 => found.0 = payload.number("seconds")?.cast_signed(),
            2 => found.1 = payload.number("nanos")?.cast_signed(),
            _ => {}
        }
    }
    Ok(found)
}

fn int_or_string(bytes: &[u8], field: &str) -> Result<Value, ProtobufError> {
    let (mut is_text, mut whole, mut text) = (false, 0, "");
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        match number {
            1 => is_text = payload.number(field)? != 0,
            2 => whole = low_half(payload.number(field)?).cast_signed(),
            3 => text = payload.text(field)?,
            _ => {}
        }
    }
    Ok(if is_text { text.into() } else { whole.into() })
}

/// `1h0m30s`, as Go writes durations.
fn duration_text(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let left = nanos.unsigned_abs();
    let trimmed = |whole: u64, rest: u64, digits: usize, unit: &str| {
        let fraction = format!("{rest:0digits$}");
        let fraction = fraction.trim_end_matches('0');
        let dot = if fraction.is_empty() { "" } else { "." };
        format!("{whole}{dot}{fraction}{unit}")
    };
    match left {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{left}ns"),
        1_000..1_000_000 => format!("{sign}{}", trimmed(left / 1_000, left % 1_000, 3, "µs")),
        1_000_000..1_000_000_000 => {
            format!("{sign}{}", trimmed(left / 1_000_000, left % 1_000_000, 6, "ms"))
        }
        _ => {
            let (seconds, rest) = (left / 1_000_000_000, left % 1_000_000_000);
            let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
            let head = match (hours, minutes) {
                (0, 0) => String::new(),
                (0, minutes) => format!("{minutes}m"),
                (hours, minutes) => format!("{hours}h{minutes}m"),
            };
            format!("{sign}{head}{}", trimmed(seconds % 60, rest, 9, "s"))
        }
    }
}

/// The reverse, for whole numbers with units and fractions of them.
fn duration_nanos(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut sum: i64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !it.is_ascii_digit() && it != '.')?;
        let (amount, more) = rest.split_at(digits);
        let unit_end = more.find(|it: char| it.is_ascii_digit() || it == '.').unwrap_or(more.len());
        let (unit, more) = more.split_at(unit_end);
        let unit: i64 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = amount.split_once('.').unwrap_or((amount, ""));
        let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        sum = sum.checked_add(whole.checked_mul(unit)?)?;
        let mut step = unit;
        for digit in fraction.chars() {
            step /= 10;
            sum = sum.checked_add(i64::from(digit.to_digit(10)?).checked_mul(step)?)?;
        }
        rest = more;
    }
    (!text.is_empty()).then_some(sum * sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_go_does() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1.5µs"),
            (2_000_000, "2ms"),
            (1_500_000_000, "1.5s"),
            (60_000_000_000, "1m0s"),
            (3_600_000_000_000, "1h0m0s"),
            (-90_000_000_000, "-1m30s"),
        ] {
            assert_eq!(duration_text(nanos), text);
            assert_eq!(duration_nanos(text), Some(nanos));
        }
        for text in ["", "1", "x", "1.s.s", "99999999999h", "-"] {
            let _ = duration_nanos(text);
        }
        assert_eq!(duration_nanos("99999999999h"), None);
    }

    #[test]
    fn whole_floats_lose_their_fraction() {
        assert_eq!(number(5.0), Some(5.into()));
        assert_eq!(number(0.5), Some(0.5.into()));
        assert_eq!(number(f64::NAN), None);
        assert_eq!(number(f64::INFINITY), None);
    }
}
