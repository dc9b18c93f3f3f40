//! One metric, or what was measured of it, in the words of v2 and in those that v1 keeps in annotations.

use meta::{Map, Value};
use serde_json::json;

/// The metrics that an annotation of v1 names.
pub(super) fn specs_to_hub(list: &Value) -> Value {
    each(list, |kind, v1| {
        let mut target = Map::new();
        let (average, value) = match kind {
            "object" => ("averageValue", "targetValue"),
            _ => ("targetAverageValue", "targetValue"),
        };
        copy(v1, "targetAverageUtilization", &mut target, "averageUtilization");
        copy(v1, average, &mut target, "averageValue");
        copy(v1, value, &mut target, "value");
        if kind == "object" && target.contains_key("averageValue") && is_zero(target.get("value")) {
            // v1 cannot leave the value out.
            target.remove("value");
        }
        let ty = match kind {
            "object" if target.contains_key("averageValue") => "AverageValue",
            "object" => "Value",
            "external" if target.contains_key("value") => "Value",
            _ if target.contains_key("averageUtilization") => "Utilization",
            _ => "AverageValue",
        };
        target.insert("type".to_owned(), Value::from(ty));
        described(kind, v1, "target", target)
    })
}

/// What an annotation of v1 says was measured.
pub(super) fn statuses_to_hub(list: &Value) -> Value {
    each(list, |kind, v1| {
        let mut current = Map::new();
        let average = if kind == "object" { "averageValue" } else { "currentAverageValue" };
        copy(v1, "currentAverageUtilization", &mut current, "averageUtilization");
        copy(v1, average, &mut current, "averageValue");
        copy(v1, "currentValue", &mut current, "value");
        if current.contains_key("averageValue") && is_zero(current.get("value")) {
            current.remove("value");
        }
        described(kind, v1, "current", current)
    })
}

/// A metric as v1 writes it.
pub(super) fn spec_to_v1(metric: &Value) -> Value {
    one(metric, |kind, v2| {
        let target = &v2["target"];
        let mut v1 = named(kind, v2);
        match kind {
            "object" => {
                quantity(target, "value", &mut v1, "targetValue");
                copy(target, "averageValue", &mut v1, "averageValue");
            }
            "pods" => quantity(target, "averageValue", &mut v1, "targetAverageValue"),
            "external" => {
                copy(target, "value", &mut v1, "targetValue");
                copy(target, "averageValue", &mut v1, "targetAverageValue");
            }
            _ => {
                copy(target, "averageUtilization", &mut v1, "targetAverageUtilization");
                copy(target, "averageValue", &mut v1, "targetAverageValue");
            }
        }
        v1
    })
}

/// What was measured as v1 writes it.
pub(super) fn status_to_v1(metric: &Value) -> Value {
    one(metric, |kind, v2| {
        let current = &v2["current"];
        let mut v1 = named(kind, v2);
        match kind {
            "object" => {
                quantity(current, "value", &mut v1, "currentValue");
                copy(current, "averageValue", &mut v1, "averageValue");
            }
            "external" => {
                quantity(current, "value", &mut v1, "currentValue");
                copy(current, "averageValue", &mut v1, "currentAverageValue");
            }
            "pods" => quantity(current, "averageValue", &mut v1, "currentAverageValue"),
            _ => {
                copy(current, "averageUtilization", &mut v1, "currentAverageUtilization");
                quantity(current, "averageValue", &mut v1, "currentAverageValue");
            }
        }
        v1
    })
}

/// The kinds of metrics, as the fields are called that hold them.
const KINDS: [&str; 5] = ["object", "pods", "resource", "containerResource", "external"];

fn each(list: &Value, change: impl Fn(&str, &Value) -> Map) -> Value {
    match list {
        Value::Array(items) => items.iter().map(|it| one(it, &change)).collect(),
        // Not a list, and therefore refused by the check that follows.
        other => other.clone(),
    }
}

fn one(metric: &Value, change: impl Fn(&str, &Value) -> Map) -> Value {
    let Value::Object(metric) = metric else { return metric.clone() };
    let mut out = Map::new();
    for (field, value) in metric {
        let value = match KINDS.iter().find(|it| *it == field) {
            Some(kind) if value.is_object() => Value::Object(change(kind, value)),
            _ => value.clone(),
        };
        out.insert(field.clone(), value);
    }
    Value::Object(out)
}

/// Which metric v1 means, in the words of v2, beside its target or what was measured.
fn described(kind: &str, v1: &Value, field: &str, value: Map) -> Map {
    let mut out = Map::new();
    out.insert(field.to_owned(), Value::Object(value));
    if matches!(kind, "resource" | "containerResource") {
        copy(v1, "name", &mut out, "name");
        copy(v1, "container", &mut out, "container");
        return out;
    }
    let mut metric = Map::new();
    copy(v1, "metricName", &mut metric, "name");
    copy(v1, if kind == "external" { "metricSelector" } else { "selector" }, &mut metric, "selector");
    out.insert("metric".to_owned(), Value::Object(metric));
    if kind == "object" {
        copy(v1, "target", &mut out, "describedObject");
    }
    out
}

/// Which metric v2 means, in the words of v1.
fn named(kind: &str, v2: &Value) -> Map {
    let mut out = Map::new();
    if matches!(kind, "resource" | "containerResource") {
        out.insert("name".to_owned(), v2.get("name").cloned().unwrap_or_else(|| json!("")));
        if kind == "containerResource" {
            out.insert("container".to_owned(), v2.get("container").cloned().unwrap_or_else(|| json!("")));
        }
        return out;
    }
    let metric = &v2["metric"];
    out.insert("metricName".to_owned(), metric.get("name").cloned().unwrap_or_else(|| json!("")));
    copy(metric, "selector", &mut out, if kind == "external" { "metricSelector" } else { "selector" });
    if kind == "object" {
        let target = v2.get("describedObject").cloned();
        out.insert("target".to_owned(), target.unwrap_or_else(|| json!({"kind": "", "name": ""})));
    }
    out
}

fn copy(from: &Value, field: &str, to: &mut Map, name: &str) {
    if let Some(value) = from.get(field).filter(|it| !it.is_null()) {
        to.insert(name.to_owned(), value.clone());
    }
}

/// A quantity that v1 always writes.
fn quantity(from: &Value, field: &str, to: &mut Map, name: &str) {
    let value = from.get(field).filter(|it| !it.is_null()).cloned();
    to.insert(name.to_owned(), value.unwrap_or_else(|| json!("0")));
}

fn is_zero(value: Option<&Value>) -> bool {
    value.is_none_or(|it| *it == "0" || *it == 0)
}
