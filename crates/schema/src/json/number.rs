//! Numbers as Go's decoder takes them and its encoder writes them.

use serde_json::Number;

/// The number of a well-formed literal; `None` if it is too large for a float.
pub(super) fn from_literal(literal: &str) -> Option<Number> {
    let is_integer = !literal.bytes().any(|it| matches!(it, b'.' | b'e' | b'E'));
    if is_integer && let Ok(number) = literal.parse::<i64>() {
        return Some(Number::from(number));
    }
    let float: f64 = literal.parse().ok().filter(|it: &f64| it.is_finite())?;
    // A float that would be written as an integer is one, so that reading what was written changes nothing.
    match to_text(float).parse::<i64>() {
        Ok(number) => Some(Number::from(number)),
        Err(_) => Number::from_f64(float),
    }
}

/// A float as Go writes it: shortest digits, an exponent only for the very small and the very large.
pub(super) fn to_text(float: f64) -> String {
    let size = float.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    if (1e-6..1e21).contains(&size) {
        return float.to_string();
    }
    let text = format!("{float:e}");
    if size >= 1e21 { text.replace('e', "e+") } else { text }
}
