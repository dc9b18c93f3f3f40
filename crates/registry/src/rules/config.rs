//! Config maps, and what secrets share with them: keys, size, and being immutable.

use meta::{FieldError, FieldErrors, Value, name};

use super::value::{at, complain, entries, flag};

/// All values of one object together have at most this many bytes.
pub(super) const MAX_BYTES: usize = 1024 * 1024;

/// A new or changed config map.
pub(super) fn validate(config: &Value, errors: &mut FieldErrors) {
    let mut size: usize = 0;
    for (key, value) in entries(config, &["data"]) {
        check_key("data", key, errors);
        if at(config, &["binaryData"]).is_some_and(|it| it.get(key).is_some()) {
            let detail = "duplicate of key present in binaryData";
            errors.push(FieldError::invalid(format!("data[{key}]"), key, detail));
        }
        size = size.saturating_add(value.as_str().map_or(0, str::len));
    }
    for (key, value) in entries(config, &["binaryData"]) {
        check_key("binaryData", key, errors);
        size = size.saturating_add(decoded_len(value));
    }
    if size > MAX_BYTES {
        // That is how upstream names the object as a whole.
        errors.push(FieldError::too_long("[]", MAX_BYTES));
    }
}

/// A changed config map.
pub(super) fn validate_changed(new: &Value, old: &Value, errors: &mut FieldErrors) {
    check_immutable(new, old, &["data", "binaryData"], errors);
    validate(new, errors);
}

/// An object that was declared immutable stays so, and keeps what is in these fields.
pub(super) fn check_immutable(new: &Value, old: &Value, fields: &[&str], errors: &mut FieldErrors) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    if !flag(old, &["immutable"]) {
        return;
    }
    if !flag(new, &["immutable"]) {
        errors.push(FieldError::forbidden("immutable", DETAIL));
    }
    for field in fields {
        if !entries(new, &[field]).eq(entries(old, &[field])) {
            errors.push(FieldError::forbidden(*field, DETAIL));
        }
    }
}

pub(super) fn check_key(field: &str, key: &str, errors: &mut FieldErrors) {
    complain(errors, &format!("{field}[{key}]"), key, name::config_key(key));
}

/// How many bytes a value in base64 stands for.
pub(super) fn decoded_len(value: &Value) -> usize {
    let text = value.as_str().unwrap_or("");
    let padding = text.bytes().rev().take_while(|it| *it == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::rules::testing::{expect_changed, expect_new};

    const FORM: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
                        'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

    #[test]
    fn ordinary_config_maps_pass() {
        expect_new("v1/configmaps", &json!({}), &[]);
        let config = json!({"data": {"a.b-C_1": "x", ".hidden": ""}, "binaryData": {"b": "AAAA"}});
        expect_new("v1/configmaps", &config, &[]);
        expect_changed("v1/configmaps", &json!({"immutable": true}), &config, &[]);
    }

    #[test]
    fn keys_are_file_names_and_there_once() {
        let long = "x".repeat(254);
        let config = json!({"data": {"": "", "a/b": "", "both": "", long.clone(): ""}, "binaryData": {"..": "", "..x": "", "both": ""}});
        expect_new(
            "v1/configmaps",
            &config,
            &[
                &format!("Invalid data[]: Invalid value: \"\": {FORM}"),
                &format!("Invalid data[a/b]: Invalid value: \"a/b\": {FORM}"),
                "Invalid data[both]: Invalid value: \"both\": duplicate of key present in binaryData",
                &format!(
                    "Invalid data[{long}]: Invalid value: \"{long}\": must be no more than 253 characters"
                ),
                "Invalid binaryData[..]: Invalid value: \"..\": must not be '..'",
                "Invalid binaryData[..x]: Invalid value: \"..x\": must not start with '..'",
            ],
        );
    }

    #[test]
    fn all_values_together_have_a_limit() {
        let half = "x".repeat(512 * 1024);
        // Four characters stand for three bytes.
        let binary = "AAAA".repeat(512 * 1024 / 3);
        expect_new("v1/configmaps", &json!({"data": {"a": half}, "binaryData": {"b": binary}}), &[]);
        let more = json!({"data": {"a": half, "c": "xxx"}, "binaryData": {"b": binary}});
        expect_new("v1/configmaps", &more, &["TooLong []: Too long: may not be more than 1048576 bytes"]);
    }

    #[test]
    fn what_is_immutable_stays() {
        let old = json!({"immutable": true, "data": {"a": "1"}, "binaryData": {"b": "AAAA"}});
        expect_changed("v1/configmaps", &old, &old, &[]);
        expect_changed(
            "v1/configmaps",
            &json!({"data": {"a": "2"}, "binaryData": {}}),
            &old,
            &[
                "Forbidden immutable: Forbidden: field is immutable when `immutable` is set",
                "Forbidden data: Forbidden: field is immutable when `immutable` is set",
                "Forbidden binaryData: Forbidden: field is immutable when `immutable` is set",
            ],
        );
    }
}
