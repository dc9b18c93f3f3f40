//! Merge patches: an object says what to set, `null` says what to remove.
//!
//! The one difference to RFC 7396 is upstream's: in what is set where nothing (or no object) was before, nulls are
//! removed inside arrays as well. The result is never deeper than the deeper of patch and original.

use super::PatchError;
use crate::{Map, Value, json::type_name};

/// Applies the patch.
pub(super) fn apply(patch: &Value, original: &Value) -> Result<Value, PatchError> {
    let patch = match patch {
        Value::Object(patch) => patch,
        Value::Null => return Err(PatchError::Malformed("Invalid JSON Patch".to_owned())),
        other => {
            return Err(PatchError::Malformed(format!(
                "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                type_name(other)
            )));
        }
    };
    let mut merged = original.as_object().cloned().unwrap_or_default();
    merge(&mut merged, patch);
    Ok(Value::Object(merged))
}

fn merge(into: &mut Map, patch: &Map) {
    for (key, change) in patch {
        match (into.get_mut(key), change) {
            (_, Value::Null) => {
                into.remove(key);
            }
            (Some(Value::Object(before)), Value::Object(change)) => merge(before, change),
            // Upstream leaves nulls alone in what replaces an object.
            (Some(before @ Value::Object(_)), change) => *before = change.clone(),
            (_, change) => {
                into.insert(key.clone(), without_nulls(change));
            }
        }
    }
}

/// A copy without fields that are null. Items of arrays may be null.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, it)| !it.is_null());
            Value::Object(kept.map(|(key, it)| (key.clone(), without_nulls(it))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}
