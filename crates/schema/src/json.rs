//! JSON text to trees and back, as Go's encoder and decoder have it, with bounds.
//!
//! Responsible for: numbers (`1.0` is `1`, `1e3` is `1000`, what does not fit an `i64` is a float), duplicate fields,
//! the decoder's complaints in upstream's words, and the layout in which objects are stored.
//! Deliberately not here: YAML, and the types that single fields must have.
//! Start at [`parse`] and [`encode_stored`].

mod number;
mod read;
#[cfg(test)]
mod tests;
mod write;

#[cfg(test)]
pub(crate) use tests::any_value;

pub use write::{encode_stored, to_vec};

use crate::Value;

/// How much is read before giving up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Length of the text.
    pub max_bytes: usize,
    /// Objects and arrays inside each other.
    pub max_depth: usize,
    /// Memory that the tree takes, roughly. A hostile text takes a hundred times its length as a tree.
    pub max_memory: usize,
}

impl Limits {
    /// For the body of a request: 3 MiB as upstream.
    pub const REQUEST: Self = Self { max_bytes: 3 << 20, max_depth: 128, max_memory: 192 << 20 };

    /// For what the server itself has written.
    pub const STORED: Self = Self { max_bytes: 16 << 20, max_depth: 256, max_memory: 1 << 30 };
}

impl Default for Limits {
    fn default() -> Self {
        Self::REQUEST
    }
}

/// A tree, and what was odd about its text.
#[derive(Clone, Debug, PartialEq)]
pub struct ParseReport {
    /// The tree. Of a field that is there twice it has the last value.
    pub value: Value,
    /// Paths of fields that are there twice, such as `spec.ports[0].name`; at most 100, as upstream.
    pub duplicates: Vec<String>,
}

/// Why a text is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// It is no JSON. The words are those of Go's decoder.
    #[error("{0}")]
    Syntax(String),
    /// A number is too large for a float.
    #[error("json: cannot unmarshal number {0} into Go value of type float64")]
    Number(String),
    /// There are too many objects and arrays inside each other.
    #[error("exceeded max depth")]
    TooDeep,
    /// There is too much text.
    #[error("limit is {0}")]
    TooLarge(usize),
    /// The tree would take too much memory.
    #[error("the text has too many values")]
    TooManyValues,
}

/// Reads one JSON value.
pub fn parse(text: &[u8], limits: Limits) -> Result<Value, ParseError> {
    parse_report(text, limits).map(|it| it.value)
}

/// Reads one JSON value and tells about duplicate fields.
pub fn parse_report(text: &[u8], limits: Limits) -> Result<ParseReport, ParseError> {
    if text.len() > limits.max_bytes {
        return Err(ParseError::TooLarge(limits.max_bytes));
    }
    read::document(text, limits)
}

/// What a value is called in the decoder's complaints.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The beginning of a body as upstream shows it behind a complaint: text if it looks like an object, else hexadecimal.
pub fn summary(body: &[u8]) -> String {
    const MAX: usize = 30;
    let shown = &body[..body.len().min(MAX)];
    let more = if body.len() > MAX { " ..." } else { "" };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(shown)),
        Some(_) => {
            let hex: String = shown.iter().map(|it| format!("{it:02x}")).collect();
            format!("{hex}{more}")
        }
    }
}
