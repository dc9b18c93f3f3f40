//! Storage versions: what servers say they encode and decode. Only their status has rules; a create wipes it.

use std::collections::{BTreeMap, BTreeSet};

use meta::{FieldError, FieldErrors, Value, name};

use super::value::{at, complain, items, text, texts};

/// A written status.
pub(super) fn validate_status(object: &Value, errors: &mut FieldErrors) {
    let servers = items(object, &["status", "storageVersions"]);
    let mut seen = BTreeSet::new();
    for (index, server) in servers.iter().enumerate() {
        let path = format!("status.storageVersions[{index}]");
        let id = text(server, &["apiServerID"]);
        if !seen.insert(id) {
            errors.push(FieldError::duplicate(format!("{path}.apiServerID"), id));
        }
        check_server(server, &path, errors);
    }
    check_common(object, servers, errors);
    check_conditions(items(object, &["status", "conditions"]), errors);
}

fn check_server(server: &Value, path: &str, errors: &mut FieldErrors) {
    let id = text(server, &["apiServerID"]);
    complain(errors, &format!("{path}.apiServerID"), id, name::dns_subdomain(id));
    let encoding = text(server, &["encodingVersion"]);
    check_api_version(encoding, format!("{path}.encodingVersion"), errors);
    let decodable = texts(server, &["decodableVersions"]);
    for (index, version) in decodable.iter().enumerate() {
        check_api_version(version, format!("{path}.decodableVersions[{index}]"), errors);
    }
    if !decodable.contains(&encoding) {
        let shown =
            if decodable.is_empty() { "null".to_owned() } else { Value::from(decodable.clone()).to_string() };
        let detail = format!("decodableVersions must include encodingVersion {encoding}");
        errors.push(FieldError::invalid_shown(format!("{path}.decodableVersions"), shown, detail));
    }
    for (index, served) in texts(server, &["servedVersions"]).into_iter().enumerate() {
        let field = format!("{path}.servedVersions[{index}]");
        check_api_version(served, field.clone(), errors);
        if !decodable.contains(&served) {
            let detail = format!(
                "individual served version : {served} must be included in decodableVersions : [{}]",
                decodable.join(" ")
            );
            errors.push(FieldError::invalid(field, served, detail));
        }
    }
}

/// The common version is exactly what the servers imply.
fn check_common(object: &Value, servers: &[Value], errors: &mut FieldErrors) {
    const FIELD: &str = "status.commonEncodingVersion";
    let mut encodings = servers.iter().map(|it| text(it, &["encodingVersion"]));
    let first = encodings.next();
    let actual = first.filter(|first| encodings.all(|it| it == *first));
    let claimed = at(object, &["status", "commonEncodingVersion"]).and_then(Value::as_str);
    let error = match (actual, claimed) {
        (None, None) => return,
        (Some(actual), Some(claimed)) if actual == claimed => return,
        (None, Some(claimed)) => FieldError::invalid(
            FIELD,
            claimed,
            "should be nil if servers do not agree on the same encoding version, or if there is no server reporting \
             the supported versions yet",
        ),
        (Some(actual), None) => {
            FieldError::invalid(FIELD, "null", format!("the common encoding version is {actual}"))
        }
        (Some(actual), Some(claimed)) => {
            FieldError::invalid(FIELD, claimed, format!("the actual common encoding version is {actual}"))
        }
    };
    errors.push(error);
}

fn check_conditions(conditions: &[Value], errors: &mut FieldErrors) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, condition) in conditions.iter().enumerate() {
        // Upstream leaves `conditions` out of these paths.
        let field = |field: &str| format!("status[{index}].{field}");
        let (kind, status) = (text(condition, &["type"]), text(condition, &["status"]));
        if let Some(other) = seen.insert(kind, index) {
            let detail =
                format!("the type of the condition is not unique, it also appears in conditions[{other}]");
            errors.push(FieldError::invalid(field("type"), kind, detail));
        }
        complain(errors, &field("type"), kind, name::qualified(kind));
        // Here it shows the type in place of the status.
        complain(errors, &field("status"), kind, name::qualified(status));
        for required in ["reason", "message"] {
            if text(condition, &[required]).is_empty() {
                errors.push(FieldError::required(field(required), format!("{required} cannot be empty")));
            }
        }
    }
}

/// `v1` or `apps/v1`. Everything wrong with it is one error.
fn check_api_version(text: &str, field: String, errors: &mut FieldErrors) {
    let prefixed = |prefix: &str, complaints: Vec<String>| -> Vec<String> {
        complaints.into_iter().map(|it| format!("{prefix}{it}")).collect()
    };
    let part = |prefix: &str, part: &str, check: fn(&str) -> Vec<String>| {
        if part.is_empty() {
            vec![format!("{prefix}must be non-empty")]
        } else {
            prefixed(prefix, check(part))
        }
    };
    let complaints = match text.split('/').collect::<Vec<_>>().as_slice() {
        [version] => part("version part: ", version, name::dns_1035_label),
        [group, version] => {
            let mut complaints = part("group part: ", group, name::dns_subdomain);
            complaints.extend(part("version part: ", version, name::dns_1035_label));
            complaints
        }
        _ => vec![
            "an apiVersion is a DNS-1035 label, which must consist of lower case alphanumeric characters or '-', start \
             with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', \
             regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?') with an optional DNS subdomain prefix and \
             '/' (e.g. 'example.com/MyVersion')"
                .to_owned(),
        ],
    };
    if !complaints.is_empty() {
        errors.push(FieldError::invalid(field, text, complaints.join(",")));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::rules::testing::{expect_changed, expect_new};

    const STATUS: &str = "internal.apiserver.k8s.io/v1alpha1/storageversions/status";

    #[track_caller]
    fn check(status: &serde_json::Value, expected: &[&str]) {
        expect_changed(STATUS, &json!({"status": status}), &json!({}), expected);
    }

    #[test]
    fn only_the_status_has_rules() {
        let bad = json!({"status": {"commonEncodingVersion": "v1"}});
        expect_new("internal.apiserver.k8s.io/v1alpha1/storageversions", &bad, &[]);
        expect_changed("internal.apiserver.k8s.io/v1alpha1/storageversions", &bad, &json!({}), &[]);
        check(&json!({}), &[]);
        check(
            &json!({"storageVersions": [{"apiServerID": "a", "encodingVersion": "apps/v1",
                "decodableVersions": ["apps/v1", "apps/v1beta1"], "servedVersions": ["apps/v1"]}],
                "commonEncodingVersion": "apps/v1",
                "conditions": [{"type": "AllEncodingVersionsEqual", "status": "True", "reason": "r", "message": "m"}]}),
            &[],
        );
    }

    #[test]
    fn versions_must_look_like_versions_and_belong_together() {
        let label = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
                     character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
                     validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
        let servers = json!([
            {"apiServerID": "a", "encodingVersion": "", "decodableVersions": ["V1", "/v1"]},
            {"apiServerID": "a", "encodingVersion": "v1", "decodableVersions": ["v1"], "servedVersions": ["v2"]},
        ]);
        check(
            &json!({"storageVersions": servers}),
            &[
                "Invalid status.storageVersions[0].encodingVersion: Invalid value: \"\": version part: must be non-empty",
                &format!(
                    "Invalid status.storageVersions[0].decodableVersions[0]: Invalid value: \"V1\": version part: {label}"
                ),
                "Invalid status.storageVersions[0].decodableVersions[1]: Invalid value: \"/v1\": group part: must be non-empty",
                "Invalid status.storageVersions[0].decodableVersions: Invalid value: [\"V1\",\"/v1\"]: decodableVersions must \
                 include encodingVersion ",
                "Duplicate status.storageVersions[1].apiServerID: Duplicate value: \"a\"",
                "Invalid status.storageVersions[1].servedVersions[0]: Invalid value: \"v2\": individual served version : v2 \
                 must be included in decodableVersions : [v1]",
            ],
        );
        check(
            &json!({"storageVersions": [{"apiServerID": "b", "encodingVersion": "a/b/c", "decodableVersions": ["a/b/c"]}],
                "commonEncodingVersion": "a/b/c"}),
            &["encodingVersion", "decodableVersions[0]"]
                .map(|field| {
                    format!(
                        "Invalid status.storageVersions[0].{field}: Invalid value: \"a/b/c\": an apiVersion is a DNS-1035 \
                         label, which must consist of lower case alphanumeric characters or '-', start with an \
                         alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', \
                         regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?') with an optional DNS subdomain \
                         prefix and '/' (e.g. 'example.com/MyVersion')"
                    )
                })
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>(),
        );
    }

    /// SV-13: each malformed version, wherever a version can stand, and a server that cannot be one.
    #[test]
    fn malformed_versions_and_servers_are_named_with_what_is_wrong() {
        let subdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
                         and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
                         validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
        let label = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
                     character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
                     validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
        for (version, wrong) in [
            ("/v3", "group part: must be non-empty".to_owned()),
            ("mygroup.com/", "version part: must be non-empty".to_owned()),
            ("mygroup_com/v2", format!("group part: {subdomain}")),
            ("mygroup.com/v2_", format!("version part: {label}")),
        ] {
            let server = json!({"apiServerID": "a", "encodingVersion": version, "decodableVersions": [version],
                "servedVersions": [version]});
            let fields = ["encodingVersion", "decodableVersions[0]", "servedVersions[0]"];
            let expected: Vec<String> = fields
                .map(|it| {
                    format!("Invalid status.storageVersions[0].{it}: Invalid value: \"{version}\": {wrong}")
                })
                .into();
            let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
            check(&json!({"storageVersions": [server], "commonEncodingVersion": version}), &expected);
        }
        let server = json!({"apiServerID": "-fea", "encodingVersion": "v1", "decodableVersions": ["v1"]});
        check(
            &json!({"storageVersions": [server], "commonEncodingVersion": "v1"}),
            &[&format!(
                "Invalid status.storageVersions[0].apiServerID: Invalid value: \"-fea\": {subdomain}"
            )],
        );
    }

    #[test]
    fn the_common_version_is_what_the_servers_imply() {
        let server = |id: &str, version: &str| json!({"apiServerID": id, "encodingVersion": version, "decodableVersions": [version]});
        let field = "status.commonEncodingVersion";
        let differ = "should be nil if servers do not agree on the same encoding version, or if there is no server \
                      reporting the supported versions yet";
        let disagree = format!("Invalid {field}: Invalid value: \"v1\": {differ}");
        check(&json!({"commonEncodingVersion": "v1"}), &[&disagree]);
        let two = json!([server("a", "v1"), server("b", "v2")]);
        check(&json!({"storageVersions": two}), &[]);
        check(&json!({"storageVersions": two, "commonEncodingVersion": "v1"}), &[&disagree]);
        let unset = format!("Invalid {field}: Invalid value: \"null\": the common encoding version is v1");
        check(&json!({"storageVersions": [server("a", "v1")]}), &[&unset]);
        let other =
            format!("Invalid {field}: Invalid value: \"v2\": the actual common encoding version is v1");
        check(&json!({"storageVersions": [server("a", "v1")], "commonEncodingVersion": "v2"}), &[&other]);
    }

    #[test]
    fn conditions_are_complete_and_there_once() {
        let fine = json!({"type": "A", "status": "True", "reason": "r", "message": "m"});
        check(
            &json!({"conditions": [fine, {"type": "A", "status": "True"}]}),
            &[
                "Invalid status[1].type: Invalid value: \"A\": the type of the condition is not unique, it also appears in \
                 conditions[0]",
                "Required status[1].reason: Required value: reason cannot be empty",
                "Required status[1].message: Required value: message cannot be empty",
            ],
        );
    }
}
