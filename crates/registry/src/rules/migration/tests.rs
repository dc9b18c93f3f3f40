//! Cases of `migration`.

use serde_json::{Value, json};

use crate::rules::testing::{expect_changed, expect_new};

const BOTH: [&str; 2] = [
    "migration.k8s.io/v1alpha1/storageversionmigrations",
    "storagemigration.k8s.io/v1beta1/storageversionmigrations",
];
const UPSTREAMS: &str = "storagemigration.k8s.io/v1beta1/storageversionmigrations/status";
const MIGRATORS: &str = "migration.k8s.io/v1alpha1/storageversionmigrations/status";
const STATES: &str = "migration.k8s.io/v1alpha1/storagestates";

fn about(group: &str, resource: &str) -> Value {
    json!({"spec": {"resource": {"group": group, "resource": resource}}})
}

fn named(name: &str, group: &str, resource: &str) -> Value {
    let mut object = about(group, resource);
    object["metadata"] = json!({"name": name});
    object
}

fn condition(kind: &str, status: &str) -> Value {
    json!({"type": kind, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "R", "message": ""})
}

fn status(conditions: &[Value], version: &str) -> Value {
    json!({"status": {"conditions": conditions, "resourceVersion": version}})
}

#[test]
fn a_migration_names_a_resource() {
    let label = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
                 character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
                 validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
    let subdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                     must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation \
                     is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    for path in BOTH {
        expect_new(path, &about("example.com", "widgets"), &[]);
        expect_new(path, &about("", "pods"), &[]);
        let missing = "Required spec.resource.resource: Required value: resource is required to be set";
        expect_new(path, &about("example.com", ""), &[missing]);
        expect_new(path, &json!({}), &[missing]);
        expect_new(
            path,
            &about("-", "."),
            &[
                &format!("Invalid spec.resource.resource: Invalid value: \".\": {label}"),
                &format!("Invalid spec.resource.group: Invalid value: \"-\": {subdomain}"),
            ],
        );
    }
}

#[test]
fn what_is_migrated_stays() {
    for path in BOTH {
        expect_changed(path, &about("example.com", "widgets"), &about("example.com", "widgets"), &[]);
        // What is not there is empty.
        expect_changed(path, &about("", "pods"), &json!({"spec": {"resource": {"resource": "pods"}}}), &[]);
    }
    let (new, old) = (about("example.com", "gadgets"), about("example.com", "widgets"));
    let shown = r#"{"group":"example.com","resource":"gadgets"}"#;
    let error = format!("Invalid spec.resource: Invalid value: {shown}: field is immutable");
    expect_changed(BOTH[0], &new, &old, &[&error]);
    let error = format!("Invalid spec: Invalid value: {{\"Resource\":{shown}}}: field is immutable");
    expect_changed(BOTH[1], &new, &old, &[&error]);

    let versioned = |version: &str| {
        let mut object = about("example.com", "widgets");
        object["spec"]["resource"]["version"] = json!(version);
        object
    };
    let shown = r#"{"group":"example.com","version":"v2","resource":"widgets"}"#;
    let error = format!("Invalid spec.resource: Invalid value: {shown}: field is immutable");
    expect_changed(BOTH[0], &versioned("v2"), &versioned("v1"), &[&error]);
    let mut further = versioned("v1");
    further["spec"]["continueToken"] = json!("next");
    expect_changed(BOTH[0], &further, &versioned("v1"), &[]);
}

#[test]
fn an_end_is_final_in_upstreams_kind() {
    let (done, failed) = (condition("Succeeded", "True"), condition("Failed", "True"));
    let running = condition("Running", "True");
    let fine = [
        (status(&[], ""), status(&[], "")),
        (status(std::slice::from_ref(&running), "12"), status(&[], "")),
        (status(&[running.clone(), done.clone()], "12"), status(&[running], "12")),
        (status(std::slice::from_ref(&failed), ""), status(std::slice::from_ref(&failed), "")),
    ];
    for (new, old) in &fine {
        expect_changed(UPSTREAMS, new, old, &[]);
    }
    let shown = |kind: &str, status: &str| {
        format!(
            r#"{{"type":"{kind}","status":"{status}","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"R","message":""}}"#
        )
    };
    let at = "Invalid status.conditions: Invalid value:";
    expect_changed(
        UPSTREAMS,
        &status(&[done.clone(), failed.clone()], ""),
        &status(&[], ""),
        &[&format!(
            "{at} [{},{}]: Both success and failed conditions cannot be true at the same time",
            shown("Succeeded", "True"),
            shown("Failed", "True")
        )],
    );
    expect_changed(
        UPSTREAMS,
        &status(&[condition("Succeeded", "False")], ""),
        &status(&[done], ""),
        &[&format!(
            "{at} [{}]: Success condition cannot be set to false once it is true",
            shown("Succeeded", "False")
        )],
    );
    expect_changed(
        UPSTREAMS,
        &status(&[], ""),
        &status(&[failed], ""),
        &[&format!("{at} []: Failed condition cannot be set to false once it is true")],
    );
}

#[test]
fn the_version_from_which_on_objects_are_new_is_set_once() {
    let field = "Invalid status.resourceVersion: Invalid value:";
    for odd in ["abc", "0", "-1", "1.5", "01"] {
        let malformed = format!("{field} {odd:?}: resource version is not well formed: {odd}");
        expect_changed(UPSTREAMS, &status(&[], odd), &status(&[], ""), &[&malformed]);
    }
    let error = format!("{field} \"456\": field is immutable");
    expect_changed(UPSTREAMS, &status(&[], "456"), &status(&[], "123"), &[&error]);
    let error = format!("{field} \"\": field is immutable");
    expect_changed(UPSTREAMS, &json!({}), &status(&[], "123"), &[&error]);
}

#[test]
fn conditions_and_failures_are_there_once() {
    let failures = json!({"status": {"failures": [{"class": "denied"}, {"class": "denied"}]}});
    for path in [MIGRATORS, UPSTREAMS] {
        let error = "Duplicate status.failures[1].class: Duplicate value: \"denied\"";
        expect_changed(path, &failures, &json!({}), &[error]);
    }
    let bare = json!({"type": "Running", "status": "True"});
    expect_changed(MIGRATORS, &status(std::slice::from_ref(&bare), ""), &json!({}), &[]);
    let error = "Duplicate status.conditions[1].type: Duplicate value: \"Running\"";
    expect_changed(MIGRATORS, &status(&[bare.clone(), bare.clone()], ""), &json!({}), &[error]);
    // Upstream's conditions are complete.
    expect_changed(
        UPSTREAMS,
        &status(&[bare], ""),
        &json!({}),
        &[
            "Required status.conditions[0].lastTransitionTime: Required value: must be set",
            "Required status.conditions[0].reason: Required value: must be set",
        ],
    );
}

#[test]
fn a_state_has_the_name_of_its_resource() {
    expect_new(STATES, &named("widgets.example.com", "example.com", "widgets"), &[]);
    expect_new(STATES, &named("pods", "", "pods"), &[]);
    expect_new(
        STATES,
        &named("gadgets.example.com", "example.com", "widgets"),
        &[
            "Invalid metadata.name: Invalid value: \"gadgets.example.com\": must be the resource of the spec as \
           <resource>.<group>: \"widgets.example.com\"",
        ],
    );
    let missing = "Required spec.resource.resource: Required value: resource is required to be set";
    expect_new(STATES, &named("pods", "", ""), &[missing]);
    // Both at once: the spec is another, and the name is no longer its own.
    expect_changed(
        STATES,
        &named("pods", "", "nodes"),
        &named("pods", "", "pods"),
        &[
            "Invalid metadata.name: Invalid value: \"pods\": must be the resource of the spec as <resource>.<group>: \
             \"nodes\"",
            r#"Invalid spec.resource: Invalid value: {"group":"","resource":"nodes"}: field is immutable"#,
        ],
    );
}
