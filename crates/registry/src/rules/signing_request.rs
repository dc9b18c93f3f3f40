//! CertificateSigningRequests: what a write of the status may say. Approval is a subresource of its own.

use meta::{FieldError, FieldErrors, Value};

use super::value::{items, text};

const CONDITIONS: [&str; 2] = ["status", "conditions"];

/// What is wrong with a new status.
pub(super) fn validate_status(new: &Value, old: &Value, errors: &mut FieldErrors) {
    check_conditions(new, errors);
    for kind in ["Approved", "Denied", "Failed"] {
        let (now, then) = (count(new, kind), count(old, kind));
        if now < then {
            let detail = format!("updates may not remove a condition of type {kind:?}");
            errors.push(FieldError::forbidden("status.conditions", detail));
        }
        if now > then && kind != "Failed" {
            let detail = format!("updates may not add a condition of type {kind:?}");
            errors.push(FieldError::forbidden("status.conditions", detail));
        }
    }
    let certificate = ["status", "certificate"];
    let was = text(old, &certificate);
    if !was.is_empty() && text(new, &certificate) != was {
        let detail = "updates may not modify existing certificate content";
        errors.push(FieldError::forbidden("status.certificate", detail));
    }
}

fn count(request: &Value, kind: &str) -> usize {
    items(request, &CONDITIONS).iter().filter(|it| text(it, &["type"]) == kind).count()
}

fn check_conditions(request: &Value, errors: &mut FieldErrors) {
    let all = items(request, &CONDITIONS);
    for (index, condition) in all.iter().enumerate() {
        let at = |field: &str| format!("status.conditions[{index}].{field}");
        let (kind, status) = (text(condition, &["type"]), text(condition, &["status"]));
        let is_decision = matches!(kind, "Approved" | "Denied" | "Failed");
        if kind.is_empty() {
            errors.push(FieldError::required(at("type"), ""));
        }
        match status {
            "" => errors.push(FieldError::required(at("status"), "")),
            "True" => {}
            _ if is_decision => errors.push(FieldError::not_supported(at("status"), status, &["True"])),
            "False" | "Unknown" => {}
            _ => errors.push(FieldError::not_supported(at("status"), status, &["False", "True", "Unknown"])),
        }
        let earlier = &all[..index];
        let is_there = |wanted: &str| earlier.iter().any(|it| text(it, &["type"]) == wanted);
        if !kind.is_empty() && is_there(kind) {
            errors.push(FieldError::duplicate(at("type"), kind));
        }
        if (kind == "Approved" && is_there("Denied")) || (kind == "Denied" && is_there("Approved")) {
            let detail = "Approved and Denied conditions are mutually exclusive";
            errors.push(FieldError::invalid(at("type"), kind, detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(new: &Value, old: &Value) -> bool {
        let mut errors = FieldErrors::default();
        validate_status(new, old, &mut errors);
        !errors.is_empty()
    }

    #[test]
    fn a_status_neither_approves_nor_takes_back() {
        let of = |kinds: &[&str], certificate: &str| {
            let conditions: Vec<Value> =
                kinds.iter().map(|it| json!({"type": it, "status": "True"})).collect();
            json!({"status": {"conditions": conditions, "certificate": certificate}})
        };
        let none = of(&[], "");
        assert!(!refused(&none, &none));
        assert!(!refused(&of(&["Failed"], ""), &none));
        assert!(!refused(&of(&["Approved"], "abc"), &of(&["Approved"], "")));
        assert!(refused(&of(&["Approved"], ""), &none));
        assert!(refused(&of(&["Denied"], ""), &none));
        assert!(refused(&none, &of(&["Approved"], "")));
        assert!(refused(&none, &of(&["Failed"], "")));
        assert!(refused(&of(&["Failed", "Failed"], ""), &none));
        assert!(refused(&of(&[], "other"), &of(&[], "abc")));
        let unsure = json!({"status": {"conditions": [{"type": "Failed", "status": "Unknown"}]}});
        assert!(refused(&unsure, &none));
    }
}
