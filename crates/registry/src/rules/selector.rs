//! Label selectors as objects hold them: `matchLabels` and `matchExpressions`.

use meta::{FieldError, FieldErrors, Value, name};

use super::value::{complain, entries, items, text, texts};

/// What is wrong with the single parts of a selector at `path`.
pub(super) fn validate(selector: &Value, path: &str, errors: &mut FieldErrors) {
    let field = format!("{path}.matchLabels");
    for (key, value) in entries(selector, &["matchLabels"]) {
        complain(errors, &field, key, name::qualified(key));
        let value = value.as_str().unwrap_or("");
        complain(errors, &field, value, name::label_value(value));
    }
    for (index, requirement) in items(selector, &["matchExpressions"]).iter().enumerate() {
        check_requirement(requirement, &format!("{path}.matchExpressions[{index}]"), errors);
    }
}

fn check_requirement(requirement: &Value, path: &str, errors: &mut FieldErrors) {
    let values = texts(requirement, &["values"]);
    let (key, operator) = (text(requirement, &["key"]), text(requirement, &["operator"]));
    let field = |field: &str| format!("{path}.{field}");
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(field("values"), detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(field("values"), detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        _ => errors.push(FieldError::invalid(field("operator"), operator, "not a valid selector operator")),
    }
    complain(errors, &field("key"), key, name::qualified(key));
    for (index, value) in values.into_iter().enumerate() {
        complain(errors, &field(&format!("values[{index}]")), value, name::label_value(value));
    }
}

/// Why nothing can be selected with this, as upstream's parser of selectors says it about the first part that is wrong.
pub(super) fn unusable(selector: &Value) -> Option<String> {
    for (key, value) in entries(selector, &["matchLabels"]) {
        let mut errors = FieldErrors::default();
        parse_key(key, &mut errors);
        parse_value(key, value.as_str().unwrap_or(""), 0, &mut errors);
        if !errors.is_empty() {
            return Some(joined(&errors));
        }
    }
    items(selector, &["matchExpressions"]).iter().find_map(unusable_requirement)
}

fn unusable_requirement(requirement: &Value) -> Option<String> {
    let values = texts(requirement, &["values"]);
    let (key, operator) = (text(requirement, &["key"]), text(requirement, &["operator"]));
    if !matches!(operator, "In" | "NotIn" | "Exists" | "DoesNotExist") {
        return Some(format!("{} is not a valid label selector operator", meta::field::quote(operator)));
    }
    let mut errors = FieldErrors::default();
    parse_key(key, &mut errors);
    let shown = || Value::from(values.clone()).to_string();
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "for 'in', 'notin' operators, values set can't be empty";
            errors.push(FieldError::invalid_shown("values", shown(), detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "values set must be empty for exists and does not exist";
            errors.push(FieldError::invalid_shown("values", shown(), detail));
        }
        _ => {}
    }
    for (index, value) in values.iter().enumerate() {
        parse_value(key, value, index, &mut errors);
    }
    (!errors.is_empty()).then(|| joined(&errors))
}

fn parse_key(key: &str, errors: &mut FieldErrors) {
    let complaints = name::qualified(key);
    if !complaints.is_empty() {
        errors.push(FieldError::invalid("key", key, complaints.join("; ")));
    }
}

fn parse_value(key: &str, value: &str, index: usize, errors: &mut FieldErrors) {
    let complaints = name::label_value(value);
    if !complaints.is_empty() {
        errors.push(FieldError::invalid(format!("values[{index}][{key}]"), value, complaints.join("; ")));
    }
}

fn joined(errors: &FieldErrors) -> String {
    let texts: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}
