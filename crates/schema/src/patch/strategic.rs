//! Strategic merge patches: merge patches that know the schema, so that lists are merged by key and carry orders to
//! delete, replace or sort.
//!
//! Behaves as upstream's `strategicpatch`, with its texts. A field that the schema does not know is merged as a plain
//! one: its lists are replaced. Time and memory are proportional to patch and object: elements are found by hash.
//! Start at [`apply`]; lists are in [`list`].

mod list;
#[cfg(test)]
mod tests;

use super::PatchError;
use crate::{
    Map, Value, go_text,
    json::type_name,
    model::{PatchStrategy, Schema, Type, TypeId},
};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_PREFIX: &str = "$deleteFromPrimitiveList";
const ORDER_PREFIX: &str = "$setElementOrder";

const BAD_DELETE: &str = "invalid patch format of primitive list";
const BAD_RETAIN: &str = "invalid patch format of retainKeys";
const BAD_ORDER: &str = "invalid patch format of setElementOrder list";

/// What is known about the type of a place: nothing, where the schema ends.
#[derive(Clone, Copy)]
struct Place<'a> {
    schema: &'a Schema,
    ty: Option<TypeId>,
}

/// A field as the patch sees it.
struct FieldPlace<'a> {
    place: Place<'a>,
    strategy: PatchStrategy,
}

/// The object as the patch wants it. `ty` is the type of the object.
pub fn apply(schema: &Schema, ty: TypeId, patch: &Value, original: &Value) -> Result<Value, PatchError> {
    let patch = match patch {
        Value::Object(patch) => patch,
        // To Go this is a map with nothing in it.
        Value::Null => return Ok(original.clone()),
        other => {
            return Err(PatchError::Malformed(format!(
                "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                type_name(other)
            )));
        }
    };
    let original = original.as_object().cloned().unwrap_or_default();
    merge_map(Place { schema, ty: Some(ty) }, original, patch.clone()).map(Value::Object)
}

impl<'a> Place<'a> {
    /// The place of the field, or of the value under the key.
    fn field(self, name: &str) -> FieldPlace<'a> {
        let schema = self.schema;
        let unknown = FieldPlace { place: Place { schema, ty: None }, strategy: PatchStrategy::default() };
        let Some(ty) = self.ty else { return unknown };
        match schema.get(ty) {
            Type::Object(object) => object.field(name).map_or(unknown, |field| FieldPlace {
                place: Place { schema, ty: Some(field.ty) },
                strategy: field.patch.clone(),
            }),
            Type::Map(map) => FieldPlace { place: Place { schema, ty: Some(map.value) }, ..unknown },
            Type::Scalar(_) | Type::List(_) | Type::Any => unknown,
        }
    }

    /// The place of the elements of a list.
    fn element(self) -> Self {
        let ty = self.ty.and_then(|ty| match self.schema.get(ty) {
            Type::List(list) => Some(list.element),
            Type::Scalar(_) | Type::Object(_) | Type::Map(_) | Type::Any => None,
        });
        Self { schema: self.schema, ty }
    }
}

fn merge_map(place: Place<'_>, mut original: Map, mut patch: Map) -> Result<Map, PatchError> {
    if let Some(directive) = patch.get(PATCH) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(PATCH);
                Ok(patch)
            }
            Some("delete") => Ok(Map::new()),
            _ => Err(bad_patch_type(directive, &patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    list::order_elements(place, &mut original, &mut patch)?;
    for (key, change) in patch {
        let (key, is_deletion) = match key.strip_prefix(DELETE_PREFIX) {
            Some(rest) => (directive_field(rest, BAD_DELETE)?.to_owned(), true),
            None => (key, false),
        };
        merge_field(place, &mut original, key, change, is_deletion)?;
    }
    Ok(original)
}

fn merge_field(
    place: Place<'_>,
    original: &mut Map,
    key: String,
    change: Value,
    is_deletion: bool,
) -> Result<(), PatchError> {
    if change.is_null() {
        original.remove(&key);
        return Ok(());
    }
    let before = original.get_mut(&key).map_or(Value::Null, Value::take);
    let field = place.field(&key);
    let merged = match (before, change) {
        (Value::Object(_), change @ Value::Object(_)) if field.strategy.is_replaced => Some(change),
        (Value::Object(before), Value::Object(change)) => {
            Some(Value::Object(merge_map(field.place, before, change)?))
        }
        (Value::Array(before), Value::Array(change)) => {
            Some(Value::Array(list::merge(&field, before, change, is_deletion)?))
        }
        (before, _) if is_deletion => original.contains_key(&key).then_some(before),
        (_, change) => without_directives(change),
    };
    match merged {
        Some(merged) => original.insert(key, merged),
        None => original.remove(&key),
    };
    Ok(())
}

/// Fields that the order does not name are removed from the original.
fn retain_keys(original: &mut Map, patch: &mut Map) -> Result<(), PatchError> {
    let Some(order) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let malformed = || PatchError::Malformed(BAD_RETAIN.to_owned());
    let kept: std::collections::HashSet<&str> =
        order.as_array().ok_or_else(malformed)?.iter().filter_map(Value::as_str).collect();
    let is_directive = |key: &str| key.starts_with(DELETE_PREFIX) || key.starts_with(ORDER_PREFIX);
    if patch.iter().any(|(key, it)| !it.is_null() && !is_directive(key) && !kept.contains(key.as_str())) {
        return Err(malformed());
    }
    original.retain(|key, _| kept.contains(key.as_str()));
    Ok(())
}

/// What a directive such as `$setElementOrder/ports` is about, given what follows the prefix.
fn directive_field<'a>(rest: &'a str, complaint: &str) -> Result<&'a str, PatchError> {
    rest.strip_prefix('/').ok_or_else(|| PatchError::Malformed(complaint.to_owned()))
}

/// What is set where nothing of its type was: without nulls, and without orders that have nothing to work on.
/// Nothing, if it was to be deleted.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) => {
            if map.get(PATCH).and_then(Value::as_str) == Some("delete") {
                return None;
            }
            let is_field = |key: &str| {
                key != PATCH
                    && key != RETAIN_KEYS
                    && !key.starts_with(DELETE_PREFIX)
                    && !key.starts_with(ORDER_PREFIX)
            };
            let kept = map.into_iter().filter(|(key, it)| is_field(key) && !it.is_null());
            Some(Value::Object(
                kept.filter_map(|(key, it)| without_directives(it).map(|it| (key, it))).collect(),
            ))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}

fn bad_patch_type(directive: &Value, map: &Map) -> PatchError {
    let shown = match directive {
        Value::String(text) => text.clone(),
        other => format!("%!s({}={})", go_text::type_name(other), go_text::plain(other)),
    };
    PatchError::Failed(format!(
        "unknown patch type: {shown} in map: {}",
        go_text::plain(&Value::Object(map.clone()))
    ))
}

fn no_merge_key(map: &Map, key: &str) -> PatchError {
    PatchError::Failed(format!(
        "map: {} does not contain declared merge key: {key}",
        go_text::plain(&Value::Object(map.clone()))
    ))
}

fn bad_type(expected: &str, value: &Value) -> PatchError {
    PatchError::Failed(format!("expected a {expected}, but received a {}", go_text::type_name(value)))
}
