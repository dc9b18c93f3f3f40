//! Bringing an existing default role or binding up to date: what is missing is added, nothing is taken away.
//!
//! An operator keeps an object from being touched by setting its `autoupdate` annotation to `false`.

use meta::{Map, Value, object};
use serde_json::json;

use crate::PolicyRule;
use crate::rbac::{compact, uncovered};

/// The annotation that says whether defaults may be added to an object.
pub const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// What `existing` must become so that it has all of `wanted`; `None` if it is fine, or protected.
pub fn reconcile(existing: &Value, wanted: &Value) -> Option<Value> {
    let annotation =
        existing.get("metadata").and_then(|it| it.get("annotations")).and_then(|it| it.get(AUTO_UPDATE));
    if annotation.and_then(Value::as_str) == Some("false") {
        return None;
    }
    let mut changed = existing.clone();
    for field in ["labels", "annotations"] {
        add_metadata(&mut changed, wanted, field);
    }
    if wanted.get("roleRef").is_some() {
        add_subjects(&mut changed, wanted);
    } else if wanted.get("aggregationRule").is_some() {
        add_selectors(&mut changed, wanted);
    } else {
        add_rules(&mut changed, wanted);
    }
    (changed != *existing).then_some(changed)
}

/// Adds labels or annotations that are not there; values that are there stay.
fn add_metadata(changed: &mut Value, wanted: &Value, field: &str) {
    let Some(wanted) = wanted.get("metadata").and_then(|it| it.get(field)).and_then(Value::as_object) else {
        return;
    };
    let map: &mut Map = object::child_mut(object::metadata_mut(changed), field);
    for (key, value) in wanted {
        map.entry(key.clone()).or_insert_with(|| value.clone());
    }
}

fn add_rules(changed: &mut Value, wanted: &Value) {
    let held = PolicyRule::all_from_json(changed);
    let missing = uncovered(&held, &PolicyRule::all_from_json(wanted));
    append(changed, "rules", compact(&missing).iter().map(PolicyRule::to_json).collect());
}

fn add_selectors(changed: &mut Value, wanted: &Value) {
    let selectors = |role: &Value| list(role.get("aggregationRule"), "clusterRoleSelectors");
    let held = selectors(changed);
    let missing: Vec<Value> = selectors(wanted).into_iter().filter(|it| !held.contains(it)).collect();
    if !missing.is_empty() {
        let rule = object::as_map_mut(changed).entry("aggregationRule").or_insert_with(|| json!({}));
        append(rule, "clusterRoleSelectors", missing);
    }
}

/// Adds subjects. A binding to another role is pointed at the right one; only its subjects that are wanted stay.
fn add_subjects(changed: &mut Value, wanted: &Value) {
    if changed.get("roleRef") != wanted.get("roleRef") {
        changed["roleRef"] = wanted["roleRef"].clone();
        changed["subjects"] = json!(list(Some(wanted), "subjects"));
        return;
    }
    let held = list(Some(changed), "subjects");
    let missing = list(Some(wanted), "subjects").into_iter().filter(|it| !held.contains(it)).collect();
    append(changed, "subjects", missing);
}

fn append(value: &mut Value, field: &str, items: Vec<Value>) {
    if items.is_empty() {
        return;
    }
    let slot = object::as_map_mut(value).entry(field).or_insert(Value::Null);
    match slot {
        Value::Array(list) => list.extend(items),
        other => *other = Value::Array(items),
    }
}

fn list(value: Option<&Value>, field: &str) -> Vec<Value> {
    value.and_then(|it| it.get(field)).and_then(Value::as_array).cloned().unwrap_or_default()
}
