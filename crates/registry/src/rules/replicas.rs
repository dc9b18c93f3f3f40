//! The status of workloads: counts that fit each other.

use meta::{FieldError, FieldErrors, Value};

use super::value::{at, number};

/// What is wrong with a status that replaces another.
pub(super) fn validate_status(resource: &str, new: &Value, old: &Value, errors: &mut FieldErrors) {
    let none = Value::Null;
    let (status, before) = (at(new, &["status"]).unwrap_or(&none), at(old, &["status"]).unwrap_or(&none));
    let Some(shape) = Shape::of(resource) else { return };
    for field in shape.counts {
        if let Some(count) = number(status, &[field]).filter(|it| *it < 0) {
            refuse(field, count, "must be greater than or equal to 0", errors);
        }
    }
    let count = |field: &str| number(status, &[field]).unwrap_or_default();
    for field in shape.parts {
        if count(field) > count("replicas") {
            refuse(field, count(field), "cannot be greater than status.replicas", errors);
        }
    }
    if !shape.ready.is_empty() && count("availableReplicas") > count("readyReplicas") {
        let detail = format!("cannot be greater than {}", shape.ready);
        refuse("availableReplicas", count("availableReplicas"), &detail, errors);
    }
    let collisions = |it: &Value| number(it, &["collisionCount"]);
    if let (true, Some(then)) = (shape.counts_collisions, collisions(before)) {
        match collisions(status) {
            Some(now) if now >= then => {}
            now => refuse("collisionCount", now.unwrap_or_default(), "cannot be decremented", errors),
        }
    }
}

/// What the status of a workload counts.
struct Shape {
    counts: &'static [&'static str],
    /// At most as many as there are replicas.
    parts: &'static [&'static str],
    /// What the limit of available replicas is called, if there is one.
    ready: &'static str,
    counts_collisions: bool,
}

impl Shape {
    fn of(resource: &str) -> Option<Self> {
        Some(match resource {
            "deployments" => Self {
                counts: &[
                    "observedGeneration",
                    "replicas",
                    "updatedReplicas",
                    "readyReplicas",
                    "availableReplicas",
                    "unavailableReplicas",
                    "terminatingReplicas",
                    "collisionCount",
                ],
                parts: &["updatedReplicas", "readyReplicas", "availableReplicas"],
                ready: "readyReplicas",
                counts_collisions: true,
            },
            "replicasets" | "replicationcontrollers" => Self {
                counts: &[
                    "replicas",
                    "fullyLabeledReplicas",
                    "readyReplicas",
                    "availableReplicas",
                    "observedGeneration",
                    "terminatingReplicas",
                ],
                parts: &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
                ready: "readyReplicas",
                counts_collisions: false,
            },
            "statefulsets" => Self {
                counts: &[
                    "replicas",
                    "readyReplicas",
                    "currentReplicas",
                    "updatedReplicas",
                    "availableReplicas",
                    "observedGeneration",
                    "collisionCount",
                ],
                parts: &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
                ready: "status.readyReplicas",
                counts_collisions: false,
            },
            "daemonsets" => Self {
                counts: &[
                    "currentNumberScheduled",
                    "numberMisscheduled",
                    "desiredNumberScheduled",
                    "numberReady",
                    "observedGeneration",
                    "updatedNumberScheduled",
                    "numberAvailable",
                    "numberUnavailable",
                    "collisionCount",
                ],
                parts: &[],
                ready: "",
                counts_collisions: true,
            },
            _ => return None,
        })
    }
}

fn refuse(field: &str, count: i64, detail: &str, errors: &mut FieldErrors) {
    errors.push(FieldError::invalid_shown(format!("status.{field}"), count.to_string(), detail));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::rules::testing::expect_changed;

    #[test]
    fn counts_fit_each_other() {
        let fine = json!({"status": {"replicas": 3, "readyReplicas": 2, "availableReplicas": 2, "updatedReplicas": 3}});
        expect_changed("apps/v1/deployments/status", &fine, &json!({}), &[]);
        let bad = json!({"status": {"replicas": 1, "readyReplicas": -1, "availableReplicas": 2}});
        expect_changed(
            "apps/v1/deployments/status",
            &bad,
            &json!({}),
            &[
                "Invalid status.readyReplicas: Invalid value: -1: must be greater than or equal to 0",
                "Invalid status.availableReplicas: Invalid value: 2: cannot be greater than status.replicas",
                "Invalid status.availableReplicas: Invalid value: 2: cannot be greater than readyReplicas",
            ],
        );
        let negative = json!({"status": {"numberReady": -2}});
        let told = "Invalid status.numberReady: Invalid value: -2: must be greater than or equal to 0";
        expect_changed("apps/v1/daemonsets/status", &negative, &json!({}), &[told]);
    }

    #[test]
    fn collisions_are_never_fewer() {
        let count = |it: i64| json!({"status": {"collisionCount": it}});
        let told = "Invalid status.collisionCount: Invalid value: 1: cannot be decremented";
        expect_changed("apps/v1/deployments/status", &count(1), &count(2), &[told]);
        expect_changed("apps/v1/deployments/status", &count(3), &count(2), &[]);
        expect_changed("apps/v1/statefulsets/status", &count(1), &count(2), &[]);
    }
}
