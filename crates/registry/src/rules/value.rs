//! Reading trees the way Go structs are read: what is missing, null or of another type counts as empty.

use std::fmt;

use meta::{FieldError, FieldErrors, Map, Value, field::quote};

/// What stands at the end of a path of fields.
pub(super) fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |it, field| it.get(field)).filter(|it| !it.is_null())
}

/// A text; empty if there is none.
pub(super) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or("")
}

/// A whole number, if there is one.
pub(super) fn number(value: &Value, path: &[&str]) -> Option<i64> {
    at(value, path).and_then(Value::as_i64)
}

/// Whether something is switched on.
pub(super) fn flag(value: &Value, path: &[&str]) -> bool {
    at(value, path).and_then(Value::as_bool).unwrap_or(false)
}

/// The elements of a list.
pub(super) fn items<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The texts of a list.
pub(super) fn texts<'a>(value: &'a Value, path: &[&str]) -> Vec<&'a str> {
    items(value, path).iter().filter_map(Value::as_str).collect()
}

/// The entries of a map, in order of their keys as upstream's encoder writes them.
pub(super) fn entries<'a>(value: &'a Value, path: &[&str]) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let mut entries: Vec<_> =
        at(value, path).and_then(Value::as_object).into_iter().flat_map(Map::iter).collect();
    entries.sort_by_key(|(key, _)| *key);
    entries.into_iter()
}

/// One error for each complaint about a text.
pub(super) fn complain(errors: &mut FieldErrors, field: &str, value: &str, complaints: Vec<String>) {
    for complaint in complaints {
        errors.push(FieldError::invalid(field, value, complaint));
    }
}

/// A struct of upstream's own as its errors show it: a JSON object with the names that the fields have in Go.
pub(super) struct GoStruct<'a>(pub(super) &'a [(&'a str, &'a str)]);

impl fmt::Display for GoStruct<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: Vec<String> =
            self.0.iter().map(|(name, text)| format!("{}:{}", quote(name), Value::from(*text))).collect();
        write!(f, "{{{}}}", fields.join(","))
    }
}
