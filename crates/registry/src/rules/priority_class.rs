//! Priority classes. Names with upstream's own prefix are for upstream's own classes.

use meta::{FieldError, FieldErrors, Value, object, validate::IMMUTABLE};

use super::value::{at, flag, number};

const PREFIX: &str = "system-";
const HIGHEST: i64 = 1_000_000_000;
const KNOWN: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
const POLICIES: [&str; 2] = ["PreemptLowerPriority", "Never"];

/// A new priority class.
pub(super) fn validate(class: &Value, errors: &mut FieldErrors) {
    let (name, value) = (object::name(class), number(class, &["value"]).unwrap_or(0));
    if name.starts_with(PREFIX) {
        if let Some(why) = not_a_system_class(name, value, flag(class, &["globalDefault"])) {
            let detail = format!(
                "priority class names with '{PREFIX}' prefix are reserved for system use only. error: {why}"
            );
            errors.push(FieldError::forbidden("metadata.name", detail));
        }
    } else if value > HIGHEST {
        let detail = format!("maximum allowed value of a user defined priority is {HIGHEST}");
        errors.push(FieldError::forbidden("value", detail));
    }
    match at(class, &["preemptionPolicy"]).and_then(Value::as_str) {
        Some("") => errors.push(FieldError::required("preemptionPolicy", "")),
        Some(policy) if !POLICIES.contains(&policy) => {
            errors.push(FieldError::not_supported("preemptionPolicy", policy, &POLICIES));
        }
        _ => {}
    }
}

/// A changed priority class: pods that use it already have its value.
pub(super) fn validate_changed(new: &Value, old: &Value, errors: &mut FieldErrors) {
    if number(new, &["value"]).unwrap_or(0) != number(old, &["value"]).unwrap_or(0) {
        errors.push(FieldError::forbidden("value", "may not be changed in an update."));
    }
    let policy = at(new, &["preemptionPolicy"]);
    if policy != at(old, &["preemptionPolicy"]) {
        let shown = policy.map_or_else(|| "\"null\"".to_owned(), Value::to_string);
        errors.push(FieldError::invalid_shown("preemptionPolicy", shown, IMMUTABLE));
    }
}

fn not_a_system_class(name: &str, value: i64, is_default: bool) -> Option<String> {
    let Some((_, known)) = KNOWN.iter().find(|(known, _)| *known == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if value != *known {
        return Some(format!("value of {name} PriorityClass must be {known}"));
    }
    is_default.then(|| format!("globalDefault of {name} PriorityClass must be false"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::rules::testing::{expect_changed, expect_new};

    const CLASSES: &str = "scheduling.k8s.io/v1/priorityclasses";

    #[test]
    fn ordinary_classes_and_upstreams_own_pass() {
        expect_new(
            CLASSES,
            &json!({"metadata": {"name": "a"}, "value": 1_000_000_000, "preemptionPolicy": "Never"}),
            &[],
        );
        expect_new(
            CLASSES,
            &json!({"metadata": {"name": "system-node-critical"}, "value": 2_000_001_000}),
            &[],
        );
    }

    #[test]
    fn system_names_and_values_are_reserved() {
        let reserved = "Forbidden metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for \
                        system use only. error: ";
        for (class, why) in [
            (
                json!({"metadata": {"name": "system-mine"}}),
                "system-mine is not a known system priority class",
            ),
            (
                json!({"metadata": {"name": "system-cluster-critical"}, "value": 1}),
                "value of system-cluster-critical PriorityClass must be 2000000000",
            ),
            (
                json!({"metadata": {"name": "system-node-critical"}, "value": 2_000_001_000, "globalDefault": true}),
                "globalDefault of system-node-critical PriorityClass must be false",
            ),
        ] {
            expect_new(CLASSES, &class, &[&format!("{reserved}{why}")]);
        }
        expect_new(
            CLASSES,
            &json!({"metadata": {"name": "a"}, "value": 1_000_000_001, "preemptionPolicy": "Often"}),
            &[
                "Forbidden value: Forbidden: maximum allowed value of a user defined priority is 1000000000",
                "NotSupported preemptionPolicy: Unsupported value: \"Often\": supported values: \
                 \"PreemptLowerPriority\", \"Never\"",
            ],
        );
    }

    #[test]
    fn value_and_policy_stay() {
        expect_changed(
            CLASSES,
            &json!({"value": 2}),
            &json!({"value": 1, "preemptionPolicy": "Never"}),
            &[
                "Forbidden value: Forbidden: may not be changed in an update.",
                "Invalid preemptionPolicy: Invalid value: \"null\": field is immutable",
            ],
        );
    }
}
