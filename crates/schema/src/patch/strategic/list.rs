//! Lists in strategic merge patches: merging by key or by value, deleting, and sorting.
//!
//! The order of the result is upstream's: what the patch names comes in the patch's order, what only the object has
//! keeps its place relative to the elements that were there before.

use std::collections::{HashMap, HashSet};

use super::{
    BAD_ORDER, FieldPlace, ORDER_PREFIX, PATCH, Place, bad_patch_type, bad_type, directive_field, merge_map,
    no_merge_key,
};
use crate::{Map, Value, json, patch::PatchError};

/// Merges two lists, or replaces the one by the other, as the field's strategy says.
pub(super) fn merge(
    field: &FieldPlace<'_>,
    original: Vec<Value>,
    patch: Vec<Value>,
    is_deletion: bool,
) -> Result<Vec<Value>, PatchError> {
    if !field.strategy.is_merged {
        return Ok(patch);
    }
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    let is_maps = are_maps(original.iter().chain(&patch))?;
    if !is_maps {
        if is_deletion {
            let gone: HashSet<String> = patch.iter().map(text).collect();
            return Ok(original.into_iter().filter(|it| !gone.contains(&text(it))).collect());
        }
        let mut seen = HashSet::new();
        let order = original.clone();
        let all: Vec<Value> =
            original.into_iter().chain(patch.iter().cloned()).filter(|it| seen.insert(text(it))).collect();
        return sort(all, &patch, &order, None);
    }
    let Some(key) = field.strategy.merge_key.as_deref() else {
        return Err(PatchError::Failed("cannot merge lists without merge key for type struct".to_owned()));
    };
    let (original, patch) = take_orders(original, patch, key)?;
    let order = original.clone();
    let merged = merge_maps(field.place.element(), original, &patch, key)?;
    sort(merged, &patch, &order, Some(key))
}

/// Carries out every `$setElementOrder/…` of a patch, and the change of the list it is about.
pub(super) fn order_elements(
    place: Place<'_>,
    original: &mut Map,
    patch: &mut Map,
) -> Result<(), PatchError> {
    let orders: Vec<String> = patch.keys().filter(|it| it.starts_with(ORDER_PREFIX)).cloned().collect();
    for directive in orders {
        let Some(order) = patch.remove(&directive) else { continue };
        let Value::Array(order) = order else { return Err(bad_type("[]interface {}", &order)) };
        let name = directive_field(&directive[ORDER_PREFIX.len()..], BAD_ORDER)?;
        let field = place.field(name);
        let key = field.strategy.merge_key.as_deref();
        let change = patch.remove(name).map(into_list).transpose()?;
        let before = match original.get(name) {
            None => None,
            Some(Value::Array(before)) => Some(before.clone()),
            Some(other) => return Err(bad_type("[]interface {}", other)),
        };
        check_order(change.as_deref().unwrap_or_default(), &order, key)?;
        let live = before.clone().unwrap_or_default();
        let merged = match (before, change) {
            (None, None) => continue,
            (Some(before), None) => before,
            (before, Some(change)) => merge(&field, before.unwrap_or_default(), change, false)?,
        };
        if merged.is_empty() && live.is_empty() {
            return Err(PatchError::Failed("no elements in any of the given slices".to_owned()));
        }
        are_maps(live.iter().chain(&merged))?;
        original.insert(name.to_owned(), Value::Array(sort(merged, &order, &live, key)?));
    }
    Ok(())
}

/// The elements of the patch must come in the order that is asked for, and none may be missing from it.
fn check_order(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let is_order = |it: &Value| it.as_object().is_some_and(|map| map.contains_key(PATCH));
    let mut wanted = order.iter();
    for item in patch.iter().filter(|it| !is_order(it)) {
        let id = identity(item, key)?;
        let mut is_found = false;
        for place in wanted.by_ref() {
            if identity(place, key)? == id {
                is_found = true;
                break;
            }
        }
        if !is_found {
            return Err(PatchError::Failed(format!(
                "The order in patch list:\n{}\n doesn't match {ORDER_PREFIX} list:\n{}\n",
                crate::go_text::plain(&Value::from(patch)),
                crate::go_text::plain(&Value::from(order))
            )));
        }
    }
    Ok(())
}

/// Carries out the `$patch` orders among the elements. What is left of both lists is merged.
fn take_orders(
    original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut rest = Vec::with_capacity(patch.len());
    let mut gone = HashSet::new();
    let mut is_replaced = false;
    for item in patch {
        let Some(map) = item.as_object() else { return Err(not_a_map(0)) };
        match map.get(PATCH) {
            None => rest.push(item),
            Some(order) => match order.as_str() {
                Some("delete") => {
                    gone.insert(text(map.get(key).ok_or_else(|| no_merge_key(map, key))?));
                }
                Some("replace") => is_replaced = true,
                Some("merge") => {
                    let why = "merging lists cannot yet be specified in the patch";
                    return Err(PatchError::Failed(why.to_owned()));
                }
                _ => return Err(bad_patch_type(order, map)),
            },
        }
    }
    if is_replaced {
        return Ok((rest, Vec::new()));
    }
    let is_kept = |it: &Value| it.get(key).is_none_or(|id| !gone.contains(&text(id)));
    Ok((original.into_iter().filter(is_kept).collect(), rest))
}

fn merge_maps(
    place: Place<'_>,
    mut original: Vec<Value>,
    patch: &[Value],
    key: &str,
) -> Result<Vec<Value>, PatchError> {
    let mut places = HashMap::new();
    for (at, item) in original.iter().enumerate() {
        let map = item.as_object().ok_or_else(|| not_a_map(at))?;
        if let Some(id) = map.get(key) {
            places.entry(text(id)).or_insert(at);
        }
    }
    for item in patch {
        let change = item.as_object().ok_or_else(|| not_a_map(0))?;
        let id = text(change.get(key).ok_or_else(|| no_merge_key(change, key))?);
        if let Some(at) = places.get(&id) {
            let Value::Object(before) = original[*at].take() else { return Err(not_a_map(*at)) };
            original[*at] = Value::Object(merge_map(place, before, change.clone())?);
        } else {
            places.insert(id, original.len());
            original.extend(super::without_directives(item.clone()));
        }
    }
    Ok(original)
}

/// Puts the elements that `order` names into its order, and the others where `live` had them.
fn sort(
    items: Vec<Value>,
    order: &[Value],
    live: &[Value],
    key: Option<&str>,
) -> Result<Vec<Value>, PatchError> {
    let wanted = positions(order, key)?;
    let lived = positions(live, key)?;
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for item in items {
        let id = identity(&item, key)?;
        match wanted.get(&id) {
            Some(at) => named.push((*at, lived.get(&id).copied(), item)),
            None => {
                let at = lived.get(&id).copied();
                others.push((at, item));
            }
        }
    }
    named.sort_by_key(|(at, _, _)| *at);
    others.sort_by_key(|(at, _)| at.unwrap_or(usize::MAX));
    let mut others = others.into_iter().peekable();
    let mut sorted = Vec::with_capacity(named.len() + others.len());
    for (_, place, item) in named {
        let is_before = |other: &(Option<usize>, Value)| match (other.0, place) {
            (Some(other), Some(place)) => other < place,
            _ => false,
        };
        while let Some((_, other)) = others.next_if(is_before) {
            sorted.push(other);
        }
        sorted.push(item);
    }
    sorted.extend(others.map(|(_, other)| other));
    Ok(sorted)
}

fn positions(list: &[Value], key: Option<&str>) -> Result<HashMap<String, usize>, PatchError> {
    let mut positions = HashMap::with_capacity(list.len());
    for (at, item) in list.iter().enumerate() {
        positions.entry(identity(item, key)?).or_insert(at);
    }
    Ok(positions)
}

/// What tells an element from the others.
fn identity(item: &Value, key: Option<&str>) -> Result<String, PatchError> {
    let Some(key) = key else { return Ok(text(item)) };
    let map = item.as_object().ok_or_else(|| bad_type("map[string]interface {}", item))?;
    map.get(key).map(text).ok_or_else(|| no_merge_key(map, key))
}

/// Whether the elements are objects. They must all be of one type, and no lists.
fn are_maps<'a>(items: impl Iterator<Item = &'a Value>) -> Result<bool, PatchError> {
    let mut first = None;
    for item in items {
        if item.is_array() {
            return Err(PatchError::Rejected("lists of lists are not supported".to_owned()));
        }
        let name = json::type_name(item);
        if *first.get_or_insert(name) != name || item.is_null() {
            let why = format!("list element types are not identical: {name}");
            return Err(PatchError::Failed(why));
        }
    }
    Ok(first == Some("object"))
}

fn into_list(value: Value) -> Result<Vec<Value>, PatchError> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(bad_type("[]interface {}", &other)),
    }
}

fn not_a_map(at: usize) -> PatchError {
    PatchError::Failed(format!("value for key {at} is not a map."))
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(&json::to_vec(value)).into_owned()
}
