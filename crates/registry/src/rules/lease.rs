//! Leases.

use meta::{FieldError, FieldErrors, Value, name};

use super::value::{at, complain, number, text};

const STRATEGIES: [&str; 1] = ["OldestEmulationVersion"];

pub(super) fn validate(lease: &Value, errors: &mut FieldErrors) {
    if let Some(seconds) = number(lease, &["spec", "leaseDurationSeconds"]).filter(|it| *it <= 0) {
        let (field, detail) = ("spec.leaseDurationSeconds", "must be greater than 0");
        errors.push(FieldError::invalid_shown(field, seconds.to_string(), detail));
    }
    if let Some(transitions) = number(lease, &["spec", "leaseTransitions"]).filter(|it| *it < 0) {
        let (field, detail) = ("spec.leaseTransitions", "must be greater than or equal to 0");
        errors.push(FieldError::invalid_shown(field, transitions.to_string(), detail));
    }
    let strategy = at(lease, &["spec", "strategy"]).and_then(Value::as_str);
    if let Some(strategy) = strategy {
        // Upstream names the field twice.
        check_strategy(strategy, "spec.strategy.strategy", errors);
    }
    if !text(lease, &["spec", "preferredHolder"]).is_empty() && strategy.unwrap_or("").is_empty() {
        let detail = "may only be specified if `strategy` is defined";
        errors.push(FieldError::forbidden("spec.preferredHolder", detail));
    }
}

/// A name that upstream defines, or one with a domain.
fn check_strategy(strategy: &str, field: &str, errors: &mut FieldErrors) {
    if strategy.contains('/') {
        complain(errors, field, strategy, name::qualified(strategy));
    } else if !STRATEGIES.contains(&strategy) {
        errors.push(FieldError::not_supported(field, strategy, &STRATEGIES));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::rules::testing::{expect_changed, expect_new};

    const LEASES: &str = "coordination.k8s.io/v1/leases";

    #[test]
    fn ordinary_leases_pass() {
        for spec in [
            json!({}),
            json!({"holderIdentity": "a", "leaseDurationSeconds": 1, "leaseTransitions": 0}),
            json!({"strategy": "OldestEmulationVersion", "preferredHolder": "b"}),
            json!({"strategy": "example.com/Youngest"}),
            json!({"preferredHolder": ""}),
        ] {
            expect_new(LEASES, &json!({"spec": spec}), &[]);
            expect_changed(LEASES, &json!({"spec": spec}), &json!({"spec": {}}), &[]);
        }
        expect_new(LEASES, &json!({}), &[]);
    }

    #[test]
    fn everything_wrong_with_a_lease_is_said_in_order() {
        let bad = json!({"spec": {
            "leaseDurationSeconds": 0, "leaseTransitions": -1, "strategy": "", "preferredHolder": "b",
        }});
        let expected = [
            "Invalid spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
            "Invalid spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
            "NotSupported spec.strategy.strategy: Unsupported value: \"\": supported values: \"OldestEmulationVersion\"",
            "Forbidden spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined",
        ];
        expect_new(LEASES, &bad, &expected);
        expect_changed(LEASES, &bad, &bad, &expected);
        expect_new(
            LEASES,
            &json!({"spec": {"strategy": "/x"}}),
            &["Invalid spec.strategy.strategy: Invalid value: \"/x\": prefix part must be non-empty"],
        );
    }
}
