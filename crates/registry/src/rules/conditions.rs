//! Conditions in the form that newer kinds share, by upstream's rules for that form.

use std::collections::BTreeSet;

use meta::{FieldError, FieldErrors, Value, name};

use super::value::{complain, number, text};

const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
const MAX_REASON: usize = 1024;
const MAX_MESSAGE: usize = 32 * 1024;

/// What is wrong with a list of conditions.
pub(super) fn validate(conditions: &[Value], field: &str, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let (kind, field) = (text(condition, &["type"]), format!("{field}[{index}]"));
        if !seen.insert(kind) {
            errors.push(FieldError::duplicate(format!("{field}.type"), kind));
        }
        check_condition(condition, &field, errors);
    }
}

fn check_condition(condition: &Value, field: &str, errors: &mut FieldErrors) {
    let (kind, status) = (text(condition, &["type"]), text(condition, &["status"]));
    complain(errors, &format!("{field}.type"), kind, name::qualified(kind));
    if !STATUSES.contains(&status) {
        errors.push(FieldError::not_supported(format!("{field}.status"), status, &STATUSES));
    }
    if let Some(generation) = number(condition, &["observedGeneration"]).filter(|it| *it < 0) {
        let detail = "must be greater than or equal to zero";
        let field = format!("{field}.observedGeneration");
        errors.push(FieldError::invalid_shown(field, generation.to_string(), detail));
    }
    if text(condition, &["lastTransitionTime"]).is_empty() {
        errors.push(FieldError::required(format!("{field}.lastTransitionTime"), "must be set"));
    }
    check_reason(text(condition, &["reason"]), format!("{field}.reason"), errors);
    if text(condition, &["message"]).len() > MAX_MESSAGE {
        errors.push(FieldError::too_long(format!("{field}.message"), MAX_MESSAGE));
    }
}

fn check_reason(reason: &str, field: String, errors: &mut FieldErrors) {
    const FORM: &str = "a condition reason must start with alphabetic character, optionally followed by a string of \
                        alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. \
                        'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex \
                        used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";
    if reason.is_empty() {
        return errors.push(FieldError::required(field, "must be set"));
    }
    if !is_reason(reason) {
        errors.push(FieldError::invalid(field.clone(), reason, FORM));
    }
    if reason.len() > MAX_REASON {
        errors.push(FieldError::too_long(field, MAX_REASON));
    }
}

fn is_reason(text: &str) -> bool {
    let is_word = |it: u8| it.is_ascii_alphanumeric() || it == b'_';
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(|it| is_word(*it))
        && bytes.iter().all(|it| is_word(*it) || matches!(it, b',' | b':'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(condition: &Value, expected: &[&str]) {
        let mut errors = FieldErrors::default();
        validate(std::slice::from_ref(condition), "c", &mut errors);
        let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        let matches =
            found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| a.starts_with(b));
        assert!(matches, "{found:#?}");
    }

    #[test]
    fn a_condition_is_complete_and_well_formed() {
        let time = "2026-01-01T00:00:00Z";
        check(&json!({"type": "A", "status": "True", "lastTransitionTime": time, "reason": "A_1,b:C"}), &[]);
        check(
            &json!({"type": "", "status": "Yes", "observedGeneration": -1}),
            &[
                "c[0].type: Invalid value: \"\": name part must be non-empty",
                "c[0].type: Invalid value: \"\": name part must consist of",
                "c[0].status: Unsupported value: \"Yes\": supported values: \"False\", \"True\", \"Unknown\"",
                "c[0].observedGeneration: Invalid value: -1: must be greater than or equal to zero",
                "c[0].lastTransitionTime: Required value: must be set",
                "c[0].reason: Required value: must be set",
            ],
        );
        let long = json!({"type": "A", "status": "True", "lastTransitionTime": time,
            "reason": "a".repeat(1025), "message": "m".repeat(32 * 1024 + 1)});
        check(&long, &["c[0].reason: Too long", "c[0].message: Too long"]);
        for reason in ["1", "a-b", "a:", "a b"] {
            let odd = json!({"type": "A", "status": "True", "lastTransitionTime": time, "reason": reason});
            check(&odd, &[&format!("c[0].reason: Invalid value: {reason:?}: a condition reason must start")]);
        }
    }

    #[test]
    fn a_type_is_there_once() {
        let condition = json!({"type": "A", "status": "True", "lastTransitionTime": "t", "reason": "R"});
        let mut errors = FieldErrors::default();
        validate(&[condition.clone(), condition], "c", &mut errors);
        let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["c[1].type: Duplicate value: \"A\""]);
    }
}
