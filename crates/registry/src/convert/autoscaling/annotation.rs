//! JSON in an annotation, in the order and with the escapes of Go's encoder: clients compare such texts.

use std::fmt::Write as _;

use meta::{Map, Value, object::child_mut};
use schema::json::{self, Limits};

/// Fields in the order in which Go's structures of v1 have them. No two structures disagree about it.
const ORDER: [&str; 39] = [
    "type",
    "status",
    "lastTransitionTime",
    "reason",
    "message",
    "object",
    "pods",
    "resource",
    "containerResource",
    "external",
    "target",
    "kind",
    "name",
    "apiVersion",
    "metricName",
    "metricSelector",
    "targetAverageUtilization",
    "targetValue",
    "targetAverageValue",
    "currentAverageUtilization",
    "currentValue",
    "currentAverageValue",
    "selector",
    "averageValue",
    "container",
    "matchLabels",
    "matchExpressions",
    "key",
    "operator",
    "values",
    // What stands in a behavior, whose names are those of Go.
    "ScaleUp",
    "ScaleDown",
    "StabilizationWindowSeconds",
    "SelectPolicy",
    "Policies",
    "Tolerance",
    "Type",
    "Value",
    "PeriodSeconds",
];

/// What is kept under a name, if it is JSON.
pub(super) fn read(object: &Map, name: &str) -> Option<Value> {
    let text = object.get("metadata")?.get("annotations")?.get(name)?.as_str()?;
    json::parse(text.as_bytes(), Limits::REQUEST).ok()
}

pub(super) fn write(object: &mut Map, name: &str, text: String) {
    let annotations = child_mut(child_mut(object, "metadata"), "annotations");
    annotations.insert(name.to_owned(), Value::from(text));
}

/// Metrics or conditions as text.
pub(super) fn in_order(value: &Value) -> String {
    let mut out = String::new();
    push(&mut out, value, true);
    out
}

/// A behavior as text: upstream writes its internal type, with Go's names and everything that is not set.
pub(super) fn behavior(behavior: &Value) -> String {
    let rules = |field: &str| match behavior.get(field) {
        Some(Value::Object(rules)) => {
            let get = |field: &str| rules.get(field).cloned().unwrap_or_default();
            let policies = match rules.get("policies") {
                Some(Value::Array(policies)) => policies.iter().map(policy).collect(),
                _ => Value::Null,
            };
            let fields = [
                ("StabilizationWindowSeconds", get("stabilizationWindowSeconds")),
                ("SelectPolicy", get("selectPolicy")),
                ("Policies", policies),
                ("Tolerance", get("tolerance")),
            ];
            Value::Object(fields.map(|(key, value)| (key.to_owned(), value)).into_iter().collect())
        }
        _ => Value::Null,
    };
    let fields = [("ScaleUp", rules("scaleUp")), ("ScaleDown", rules("scaleDown"))];
    in_order(&Value::Object(fields.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()))
}

/// The names of a behavior as v2 has them.
pub(super) fn lower_names(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let lower = |(key, value): (String, Value)| {
                let mut letters = key.chars();
                let first = letters.next().map(|it| it.to_ascii_lowercase());
                (first.into_iter().chain(letters).collect(), lower_names(value))
            };
            Value::Object(map.into_iter().map(lower).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(lower_names).collect()),
        other => other,
    }
}

/// A policy with Go's names.
fn policy(policy: &Value) -> Value {
    let get = |field: &str, unset: Value| policy.get(field).cloned().unwrap_or(unset);
    let fields = [
        ("Type", get("type", Value::from(""))),
        ("Value", get("value", Value::from(0))),
        ("PeriodSeconds", get("periodSeconds", Value::from(0))),
    ];
    Value::Object(fields.map(|(key, value)| (key.to_owned(), value)).into_iter().collect())
}

fn push(out: &mut String, value: &Value, by_rank: bool) {
    match value {
        Value::Object(map) => {
            let mut fields: Vec<(&String, &Value)> = map.iter().collect();
            if by_rank {
                fields.sort_by_key(|(key, _)| rank(key));
            }
            out.push('{');
            for (at, (key, value)) in fields.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                push_text(out, key);
                out.push(':');
                // Labels are a map, which Go sorts.
                push(out, value, key != "matchLabels");
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                push(out, item, by_rank);
            }
            out.push(']');
        }
        Value::String(text) => push_text(out, text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            out.push_str(&String::from_utf8_lossy(&json::to_vec(value)));
        }
    }
}

fn rank(key: &str) -> usize {
    ORDER.iter().position(|it| *it == key).unwrap_or(ORDER.len())
}

/// As Go's `json.Marshal`, which keeps texts harmless in HTML.
fn push_text(out: &mut String, text: &str) {
    for letter in String::from_utf8_lossy(&json::to_vec(&Value::from(text))).chars() {
        match letter {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            other => out.push(other),
        }
    }
}
