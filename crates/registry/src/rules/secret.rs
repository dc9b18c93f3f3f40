//! Secrets: what each type must hold. No value of a secret ever stands in an error.

use base64::{Engine, engine::general_purpose::STANDARD};
use meta::{FieldError, FieldErrors, Value, validate::IMMUTABLE};
use schema::json::{self, Limits};

use super::{
    config::{MAX_BYTES, check_immutable, check_key, decoded_len},
    value::{at, entries, text},
};

const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

/// A new or changed secret.
pub(super) fn validate(secret: &Value, errors: &mut FieldErrors) {
    let mut size: usize = 0;
    for (key, value) in entries(secret, &["data"]) {
        check_key("data", key, errors);
        size = size.saturating_add(decoded_len(value));
    }
    if size > MAX_BYTES {
        errors.push(FieldError::too_long("data", MAX_BYTES));
    }
    check_type(secret, errors);
}

/// A changed secret.
pub(super) fn validate_changed(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let kind = text(new, &["type"]);
    if kind != text(old, &["type"]) {
        errors.push(FieldError::invalid("type", kind, IMMUTABLE));
    }
    check_immutable(new, old, &["data"], errors);
    validate(new, errors);
}

fn check_type(secret: &Value, errors: &mut FieldErrors) {
    let has = |key: &str| at(secret, &["data", key]).is_some();
    let mut require = |field: String| errors.push(FieldError::required(field, ""));
    match text(secret, &["type"]) {
        // Everything else may be added later by a controller.
        "kubernetes.io/service-account-token"
            if text(secret, &["metadata", "annotations", ACCOUNT_NAME]).is_empty() =>
        {
            require(format!("metadata.annotations[{ACCOUNT_NAME}]"));
        }
        "kubernetes.io/dockercfg" => check_json(secret, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => check_json(secret, ".dockerconfigjson", errors),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            require("data[username]".to_owned());
            require("data[password]".to_owned());
        }
        "kubernetes.io/ssh-auth" if text(secret, &["data", "ssh-privatekey"]).is_empty() => {
            require("data[ssh-privatekey]".to_owned());
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if !has(key) {
                    require(format!("data[{key}]"));
                }
            }
        }
        _ => {}
    }
}

/// The value under the key is a JSON object.
fn check_json(secret: &Value, key: &str, errors: &mut FieldErrors) {
    let field = format!("data[{key}]");
    let Some(value) = at(secret, &["data", key]) else {
        errors.push(FieldError::required(field, ""));
        return;
    };
    let bytes = STANDARD.decode(value.as_str().unwrap_or("")).unwrap_or_default();
    let why = match json::parse(&bytes, Limits::REQUEST) {
        Ok(Value::Object(_) | Value::Null) => return,
        Ok(other) => format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            json::type_name(&other)
        ),
        Err(error) => error.to_string(),
    };
    errors.push(FieldError::invalid(field, "<secret contents redacted>", why));
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use serde_json::{Value, json};

    use crate::rules::testing::{expect_changed, expect_new};

    #[track_caller]
    fn check(kind: &str, data: &Value, expected: &[&str]) {
        let secret = json!({"type": kind, "data": data});
        expect_new("v1/secrets", &secret, expected);
        expect_changed("v1/secrets", &secret, &secret, expected);
    }

    #[test]
    fn each_type_has_its_keys() {
        check("Opaque", &json!({"a": ""}), &[]);
        check("example.com/mine", &json!({}), &[]);
        check("bootstrap.kubernetes.io/token", &json!({}), &[]);
        check("kubernetes.io/basic-auth", &json!({"username": ""}), &[]);
        check("kubernetes.io/basic-auth", &json!({"password": "AAAA"}), &[]);
        check(
            "kubernetes.io/basic-auth",
            &json!({"user": ""}),
            &["Required data[username]: Required value", "Required data[password]: Required value"],
        );
        check("kubernetes.io/ssh-auth", &json!({"ssh-privatekey": "AAAA"}), &[]);
        let key = "Required data[ssh-privatekey]: Required value";
        check("kubernetes.io/ssh-auth", &json!({"ssh-privatekey": ""}), &[key]);
        check("kubernetes.io/ssh-auth", &json!({}), &[key]);
        check("kubernetes.io/tls", &json!({"tls.crt": "", "tls.key": ""}), &[]);
        check("kubernetes.io/tls", &json!({"tls.crt": ""}), &["Required data[tls.key]: Required value"]);
        check(
            "kubernetes.io/tls",
            &json!({}),
            &["Required data[tls.crt]: Required value", "Required data[tls.key]: Required value"],
        );
        let account = "Required metadata.annotations[kubernetes.io/service-account.name]: Required value";
        check("kubernetes.io/service-account-token", &json!({}), &[account]);
        let annotations = json!({"kubernetes.io/service-account.name": "a"});
        let secret =
            json!({"type": "kubernetes.io/service-account-token", "metadata": {"annotations": annotations}});
        expect_new("v1/secrets", &secret, &[]);
    }

    #[test]
    fn registry_credentials_are_json_and_never_shown() {
        for (kind, key) in [
            ("kubernetes.io/dockercfg", ".dockercfg"),
            ("kubernetes.io/dockerconfigjson", ".dockerconfigjson"),
        ] {
            let data = |text: &str| json!({key: STANDARD.encode(text)});
            let bad = |why: &str| {
                format!("Invalid data[{key}]: Invalid value: \"<secret contents redacted>\": {why}")
            };
            check(kind, &data(r#"{"auths": {}}"#), &[]);
            check(kind, &data("null"), &[]);
            check(kind, &json!({}), &[&format!("Required data[{key}]: Required value")]);
            check(kind, &data(""), &[&bad("unexpected end of JSON input")]);
            check(kind, &data("hunter2"), &[&bad("invalid character 'h' looking for beginning of value")]);
            check(
                kind,
                &data("[1]"),
                &[&bad("json: cannot unmarshal array into Go value of type map[string]interface {}")],
            );
        }
    }

    #[test]
    fn the_size_of_the_values_is_limited() {
        let most = "AAAA".repeat(1024 * 1024 / 3);
        check("Opaque", &json!({"a": most, "b": "AA=="}), &[]);
        check(
            "Opaque",
            &json!({"a": most, "b": "AAA="}),
            &["TooLong data: Too long: may not be more than 1048576 bytes"],
        );
    }

    #[test]
    fn the_type_and_what_is_immutable_stay() {
        let old = json!({"type": "Opaque", "immutable": true, "data": {"a": "AAAA"}});
        expect_changed("v1/secrets", &old, &old, &[]);
        expect_changed(
            "v1/secrets",
            &json!({"type": "kubernetes.io/tls", "data": {"a": "BBBB"}}),
            &old,
            &[
                "Invalid type: Invalid value: \"kubernetes.io/tls\": field is immutable",
                "Forbidden immutable: Forbidden: field is immutable when `immutable` is set",
                "Forbidden data: Forbidden: field is immutable when `immutable` is set",
                "Required data[tls.crt]: Required value",
                "Required data[tls.key]: Required value",
            ],
        );
    }
}
