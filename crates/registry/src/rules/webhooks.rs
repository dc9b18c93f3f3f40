//! Configurations of admission webhooks, and where a webhook is called.

use std::collections::HashSet;

use meta::{FieldError, FieldErrors, Value, field::quote, name};

use super::{
    selector,
    value::{at, complain, items, number, text, texts},
};

const REVIEWS: [&str; 2] = ["v1", "v1beta1"];
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const MAX_CONDITIONS: usize = 64;

/// What is wrong with a configuration.
pub(super) fn validate(resource: &str, configuration: &Value, errors: &mut FieldErrors) {
    let mut names = HashSet::new();
    for (index, hook) in items(configuration, &["webhooks"]).iter().enumerate() {
        let path = format!("webhooks[{index}]");
        check_hook(hook, &path, resource == "mutatingwebhookconfigurations", errors);
        check_reviews(hook, &format!("{path}.admissionReviewVersions"), errors);
        let own = text(hook, &["name"]);
        if !own.is_empty() && !names.insert(own) {
            errors.push(FieldError::duplicate(format!("{path}.name"), own));
        }
    }
}

/// The same for a change: what was wrong before may stay.
pub(super) fn validate_changed(resource: &str, new: &Value, old: &Value, errors: &mut FieldErrors) {
    let (mut found, mut before) = (FieldErrors::default(), FieldErrors::default());
    validate(resource, new, &mut found);
    if !found.is_empty() {
        validate(resource, old, &mut before);
    }
    found.0.into_iter().filter(|it| !before.0.contains(it)).for_each(|it| errors.push(it));
}

fn check_hook(hook: &Value, path: &str, is_mutating: bool, errors: &mut FieldErrors) {
    let field = |name: &str| format!("{path}.{name}");
    check_name(text(hook, &["name"]), field("name"), errors);
    for (index, rule) in items(hook, &["rules"]).iter().enumerate() {
        check_rule(rule, &format!("{path}.rules[{index}]"), errors);
    }
    check_choice(hook, "failurePolicy", &["Fail", "Ignore"], path, errors);
    check_choice(hook, "matchPolicy", &["Equivalent", "Exact"], path, errors);
    if at(hook, &["sideEffects"]).is_none() {
        errors.push(FieldError::required(field("sideEffects"), "must specify one of None, NoneOnDryRun"));
    }
    check_choice(hook, "sideEffects", &["None", "NoneOnDryRun"], path, errors);
    if let Some(seconds) = number(hook, &["timeoutSeconds"]).filter(|it| !(1..=30).contains(it)) {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.push(FieldError::invalid_shown(field("timeoutSeconds"), seconds.to_string(), detail));
    }
    for name in ["namespaceSelector", "objectSelector"] {
        if let Some(it) = at(hook, &[name]) {
            selector::validate(it, &field(name), errors);
        }
    }
    if is_mutating {
        check_choice(hook, "reinvocationPolicy", &["IfNeeded", "Never"], path, errors);
    }
    check_client_config(at(hook, &["clientConfig"]).unwrap_or(&Value::Null), &field("clientConfig"), errors);
    check_conditions(items(hook, &["matchConditions"]), &field("matchConditions"), errors);
}

fn check_name(own: &str, field: String, errors: &mut FieldErrors) {
    let complaints = name::dns_subdomain(own);
    if own.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else if !complaints.is_empty() {
        errors.push(FieldError::invalid(field, own, complaints.join(",")));
    } else if own.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        errors.push(FieldError::invalid(field, own, detail));
    }
}

fn check_choice(hook: &Value, field: &str, choices: &[&str], path: &str, errors: &mut FieldErrors) {
    if let Some(choice) = at(hook, &[field]).and_then(Value::as_str)
        && !choices.contains(&choice)
    {
        errors.push(FieldError::not_supported(format!("{path}.{field}"), choice, choices));
    }
}

fn check_reviews(hook: &Value, path: &str, errors: &mut FieldErrors) {
    let versions = texts(hook, &["admissionReviewVersions"]);
    if versions.is_empty() {
        errors.push(FieldError::required(path, "must specify one of v1, v1beta1"));
        return;
    }
    let mut seen = HashSet::new();
    for (index, version) in versions.iter().enumerate() {
        let field = format!("{path}[{index}]");
        if seen.insert(*version) {
            complain(errors, &field, version, name::dns_1035_label(version));
        } else {
            errors.push(FieldError::invalid(field, version, "duplicate version"));
        }
    }
    if !versions.iter().any(|it| REVIEWS.contains(it)) {
        let detail = "must include at least one of v1, v1beta1";
        errors.push(FieldError::invalid_shown(path, shown(&versions), detail));
    }
}

fn check_rule(rule: &Value, path: &str, errors: &mut FieldErrors) {
    let operations = texts(rule, &["operations"]);
    let field = |name: &str| format!("{path}.{name}");
    check_list(&operations, field("operations"), "operations", errors);
    for (index, operation) in operations.iter().enumerate() {
        if !OPERATIONS.contains(operation) {
            let field = format!("{path}.operations[{index}]");
            errors.push(FieldError::not_supported(field, operation, &OPERATIONS));
        }
    }
    check_list(&texts(rule, &["apiGroups"]), field("apiGroups"), "API groups", errors);
    let versions = texts(rule, &["apiVersions"]);
    check_list(&versions, field("apiVersions"), "API versions", errors);
    for (index, _) in versions.iter().enumerate().filter(|(_, it)| it.is_empty()) {
        errors.push(FieldError::required(format!("{path}.apiVersions[{index}]"), ""));
    }
    check_resources(&texts(rule, &["resources"]), &field("resources"), errors);
    check_choice(rule, "scope", &["*", "Cluster", "Namespaced"], path, errors);
}

/// Something must be there, and everything must be alone.
fn check_list(list: &[&str], field: String, called: &str, errors: &mut FieldErrors) {
    if list.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else if list.len() > 1 && list.contains(&"*") {
        let detail = format!("if '*' is present, must not specify other {called}");
        errors.push(FieldError::invalid_shown(field, shown(list), detail));
    }
}

fn check_resources(resources: &[&str], path: &str, errors: &mut FieldErrors) {
    if resources.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    let (mut whole, mut everywhere) = (HashSet::new(), HashSet::new());
    let mut has_plain = false;
    for (index, resource) in resources.iter().enumerate() {
        let field = format!("{path}[{index}]");
        if resource.is_empty() {
            errors.push(FieldError::required(field, ""));
            continue;
        }
        let Some((name, sub)) = resource.split_once('/') else {
            has_plain = *resource != "*";
            continue;
        };
        if whole.contains(name) {
            let detail = format!("if '{name}/*' is present, must not specify {resource}");
            errors.push(FieldError::invalid(field.clone(), resource, detail));
        }
        if everywhere.contains(sub) {
            let detail = format!("if '*/{sub}' is present, must not specify {resource}");
            errors.push(FieldError::invalid(field, resource, detail));
        }
        if sub == "*" {
            whole.insert(name);
        }
        if name == "*" {
            everywhere.insert(sub);
        }
    }
    if resources.len() > 1 && resources.contains(&"*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid_shown(path, shown(resources), detail));
    }
    if resources.contains(&"*") && has_plain {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid_shown(path, shown(resources), detail));
    }
}

/// What is wrong with where a webhook is, for any kind of webhook.
pub(super) fn check_client_config(config: &Value, path: &str, errors: &mut FieldErrors) {
    let (url, service) = (at(config, &["url"]).and_then(Value::as_str), at(config, &["service"]));
    match (url, service) {
        (Some(url), None) => check_url(url, &format!("{path}.url"), errors),
        (None, Some(service)) => check_service(service, &format!("{path}.service"), errors),
        (None, None) | (Some(_), Some(_)) => {
            errors.push(FieldError::required(path, "exactly one of url or service is required"));
        }
    }
}

fn check_url(url: &str, field: &str, errors: &mut FieldErrors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once(':').unwrap_or(("", rest));
    let authority = rest.strip_prefix("//").map_or("", |it| it.split('/').next().unwrap_or_default());
    if url.chars().any(char::is_control) {
        let why = format!("parse {}: net/url: invalid control character in URL", quote(url));
        errors.push(FieldError::required(field, format!("url must be a valid URL: {why}{FORM}")));
        return;
    }
    let (user, host) =
        authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    if scheme != "https" {
        errors.push(FieldError::invalid(
            field,
            scheme,
            format!("'https' is the only allowed URL scheme{FORM}"),
        ));
    }
    if host.is_empty() {
        errors.push(FieldError::invalid(field, "", format!("host must be specified{FORM}")));
    }
    if let Some(user) = user {
        errors.push(FieldError::invalid(field, user, "user information is not permitted in the URL"));
    }
    if !fragment.is_empty() {
        errors.push(FieldError::invalid(field, fragment, "fragments are not permitted in the URL"));
    }
    if !query.is_empty() {
        errors.push(FieldError::invalid(field, query, "query parameters are not permitted in the URL"));
    }
}

fn check_service(service: &Value, path: &str, errors: &mut FieldErrors) {
    for (field, detail) in
        [("name", "service name is required"), ("namespace", "service namespace is required")]
    {
        if text(service, &[field]).is_empty() {
            errors.push(FieldError::required(format!("{path}.{field}"), detail));
        }
    }
    if let Some(port) = number(service, &["port"]).filter(|it| !(1..=65535).contains(it)) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid_shown(format!("{path}.port"), port.to_string(), detail));
    }
    let (whole, field) = (text(service, &["path"]), format!("{path}.path"));
    match whole {
        "" | "/" => return,
        "//" => return errors.push(FieldError::invalid(field, whole, "segment[0] may not be empty")),
        _ if !whole.starts_with('/') => {
            errors.push(FieldError::invalid(field.clone(), whole, "must start with a '/'"));
        }
        _ => {}
    }
    // Upstream drops the first character, whatever it is.
    let rest: String = whole.chars().skip(1).collect();
    for (index, step) in rest.strip_suffix('/').unwrap_or(&rest).split('/').enumerate() {
        if step.is_empty() {
            let detail = format!("segment[{index}] may not be empty");
            errors.push(FieldError::invalid(field.clone(), whole, detail));
            continue;
        }
        for complaint in name::dns_subdomain(step) {
            errors.push(FieldError::invalid(field.clone(), whole, format!("segment[{index}]: {complaint}")));
        }
    }
}

fn check_conditions(conditions: &[Value], path: &str, errors: &mut FieldErrors) {
    if conditions.len() > MAX_CONDITIONS {
        let detail = format!("must have at most {MAX_CONDITIONS} items");
        errors.push(FieldError {
            field: path.to_owned(),
            problem: meta::field::FieldProblem::TooMany,
            shown: Some(conditions.len().to_string()),
            detail,
        });
        return;
    }
    let mut names = HashSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let field = |name: &str| format!("{path}[{index}].{name}");
        if text(condition, &["expression"]).trim().is_empty() {
            errors.push(FieldError::required(field("expression"), ""));
        }
        let own = text(condition, &["name"]);
        if own.is_empty() {
            errors.push(FieldError::required(field("name"), ""));
            continue;
        }
        complain(errors, &field("name"), own, name::qualified(own));
        if !names.insert(own) {
            errors.push(FieldError::duplicate(field("name"), own));
        }
    }
}

fn shown(list: &[&str]) -> String {
    Value::from(list.to_vec()).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::testing::{expect_changed, expect_new};

    const PATH: &str = "admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

    fn hook() -> Value {
        json!({
            "name": "a.example.com",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://example.com/x"},
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
        })
    }

    #[track_caller]
    fn check(pointer: &str, value: Value, expected: &[&str]) {
        let mut hook = hook();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        hook.pointer_mut(parent).unwrap()[field] = value;
        expect_new(PATH, &json!({"webhooks": [hook]}), expected);
    }

    #[test]
    fn wrong_webhooks_are_refused_in_upstreams_words() {
        expect_new(PATH, &json!({"webhooks": [hook()]}), &[]);
        check(
            "/name",
            json!("a.b"),
            &[
                "Invalid webhooks[0].name: Invalid value: \"a.b\": should be a domain with at least three segments separated \
             by dots",
            ],
        );
        check(
            "/sideEffects",
            json!(null),
            &["Required webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun"],
        );
        check(
            "/sideEffects",
            json!("Some"),
            &[
                "NotSupported webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \
             \"NoneOnDryRun\"",
            ],
        );
        check(
            "/timeoutSeconds",
            json!(31),
            &[
                "Invalid webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
            ],
        );
        check(
            "/admissionReviewVersions",
            json!(["v2"]),
            &[
                "Invalid webhooks[0].admissionReviewVersions: Invalid value: [\"v2\"]: must include at least one of v1, \
             v1beta1",
            ],
        );
        check(
            "/clientConfig/service",
            json!({}),
            &["Required webhooks[0].clientConfig: Required value: exactly one of url or service is required"],
        );
        check(
            "/clientConfig/url",
            json!("http://u@h/p?q=1"),
            &[
                "Invalid webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; \
             desired format: https://host[/path]",
                "Invalid webhooks[0].clientConfig.url: Invalid value: \"u\": user information is not permitted in the URL",
                "Invalid webhooks[0].clientConfig.url: Invalid value: \"q=1\": query parameters are not permitted in the URL",
            ],
        );
        check(
            "/rules/0/operations",
            json!(["CREATE", "*"]),
            &[
                "Invalid webhooks[0].rules[0].operations: Invalid value: [\"CREATE\",\"*\"]: if '*' is present, must not \
             specify other operations",
            ],
        );
        check(
            "/rules/0/resources",
            json!(["pods/*", "pods/status"]),
            &[
                "Invalid webhooks[0].rules[0].resources[1]: Invalid value: \"pods/status\": if 'pods/*' is present, must not \
             specify pods/status",
            ],
        );
    }

    #[test]
    fn names_are_used_once_and_old_mistakes_may_stay() {
        let twice = json!({"webhooks": [hook(), hook()]});
        let complaint = "Duplicate webhooks[1].name: Duplicate value: \"a.example.com\"";
        expect_new(PATH, &twice, &[complaint]);
        expect_changed(PATH, &twice, &json!({"webhooks": [hook()]}), &[complaint]);
        expect_changed(PATH, &twice, &twice, &[]);
    }
}
