//! Namespaces: their own finalizers, and a phase that follows from whether they are being deleted.

use meta::{FieldError, FieldErrors, Value, name, object};

use super::value::{complain, text, texts};

const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// A new namespace.
pub(super) fn validate(namespace: &Value, errors: &mut FieldErrors) {
    for finalizer in texts(namespace, &["spec", "finalizers"]) {
        check_finalizer(finalizer, "spec.finalizers", errors);
    }
}

/// A write of `finalize`.
pub(super) fn validate_finalize(namespace: &Value, errors: &mut FieldErrors) {
    for (index, finalizer) in texts(namespace, &["spec", "finalizers"]).into_iter().enumerate() {
        check_finalizer(finalizer, &format!("spec.finalizers[{index}]"), errors);
    }
}

/// A write of the status.
pub(super) fn validate_status(namespace: &Value, errors: &mut FieldErrors) {
    let phase = text(namespace, &["status", "phase"]);
    let (wanted, detail) = if object::is_deleting(namespace) {
        ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty")
    } else {
        ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
    };
    if phase != wanted {
        errors.push(FieldError::invalid("status.Phase", phase, detail));
    }
}

fn check_finalizer(finalizer: &str, field: &str, errors: &mut FieldErrors) {
    complain(errors, field, finalizer, name::qualified(finalizer));
    if !finalizer.contains('/') && !STANDARD.contains(&finalizer) {
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        errors.push(FieldError::invalid(field, finalizer, detail));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::rules::testing::{expect_changed, expect_new};

    #[test]
    fn finalizers_are_known_or_have_a_domain() {
        let fine = json!({"spec": {"finalizers": ["kubernetes", "example.com/mine"]}});
        expect_new("v1/namespaces", &fine, &[]);
        expect_new("v1/namespaces", &json!({}), &[]);
        expect_changed("v1/namespaces/finalize", &fine, &fine, &[]);
        let bad = json!({"spec": {"finalizers": ["kubernetes", "mine", "a//b"]}});
        let unknown =
            "Invalid value: \"mine\": name is neither a standard finalizer name nor is it fully qualified";
        let slashes = "Invalid value: \"a//b\": a valid label key must consist of alphanumeric characters, '-', '_' or \
                       '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
                       '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an \
                       optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
        let expected =
            [format!("Invalid spec.finalizers: {unknown}"), format!("Invalid spec.finalizers: {slashes}")];
        expect_new("v1/namespaces", &bad, &[&expected[0], &expected[1]]);
        let expected = [
            format!("Invalid spec.finalizers[1]: {unknown}"),
            format!("Invalid spec.finalizers[2]: {slashes}"),
        ];
        expect_changed("v1/namespaces/finalize", &bad, &fine, &[&expected[0], &expected[1]]);
        // Upstream does not look at them when the namespace itself is changed; they are kept from the old one.
        expect_changed("v1/namespaces", &bad, &bad, &[]);
    }

    #[test]
    fn the_phase_follows_from_the_deletion() {
        let active = json!({"status": {"phase": "Active"}});
        let ending = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Terminating"}});
        expect_changed("v1/namespaces/status", &active, &active, &[]);
        expect_changed("v1/namespaces/status", &ending, &ending, &[]);
        expect_changed(
            "v1/namespaces/status",
            &json!({"status": {"phase": "Terminating"}}),
            &active,
            &[
                "Invalid status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty",
            ],
        );
        expect_changed(
            "v1/namespaces/status",
            &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            &ending,
            &[
                "Invalid status.Phase: Invalid value: \"\": may only be 'Terminating' if `deletionTimestamp` is not empty",
            ],
        );
    }
}
