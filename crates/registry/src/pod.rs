//! What can be done to pods beside writing and deleting them: evicting them, and binding them to a node.
//!
//! Nothing runs in this control plane, but tests, schedulers and drains that talk to it expect both.

pub mod binding;
pub mod eviction;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use meta::{Map, Value, object, time::format_time};
use serde_json::json;

/// Sets a condition of a pod. Its time changes with its status only.
fn set_condition(pod: &mut Value, mut condition: Value, now: Timestamp) {
    let generation = object::meta_number(pod, "generation");
    if generation > 0 {
        condition["observedGeneration"] = json!(generation);
    }
    condition["lastProbeTime"] = Value::Null;
    let status = object::child_mut(object::as_map_mut(pod), "status");
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Value::Array(conditions) = conditions else { return };
    let old = conditions.iter_mut().find(|it| it["type"] == condition["type"]);
    let since = old.as_ref().filter(|it| it["status"] == condition["status"]);
    condition["lastTransitionTime"] =
        since.map_or_else(|| json!(format_time(now)), |it| it["lastTransitionTime"].clone());
    match old {
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
}

/// A text of a part of the object; empty if there is none.
fn text<'a>(object: &'a Value, part: &str, field: &str) -> &'a str {
    object.get(part).and_then(|it| it.get(field)).and_then(Value::as_str).unwrap_or_default()
}

/// A number of the status; zero if there is none.
fn status_number(object: &Value, field: &str) -> i64 {
    object.get("status").and_then(|it| it.get(field)).and_then(Value::as_i64).unwrap_or(0)
}

fn labels(object: &Value) -> Option<&Map> {
    object.get("metadata").and_then(|it| it.get("labels")).and_then(Value::as_object)
}
