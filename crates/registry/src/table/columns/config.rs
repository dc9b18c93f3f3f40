//! The columns of configuration, access and the control plane's own kinds.

use meta::Value;
use serde_json::json;

use super::{
    AGE, Column, NAME, age, at, count, found, integer, items, number, or_else, quantity, shown, switch, text,
    wide,
};

// Clients show these; they are part of what upstream answers.
const ABOUT_DATA: &str = "Data contains the configuration data. Each key must consist of alphanumeric characters, '-', '_' or '.'. Values with non-UTF-8 byte sequences must use the BinaryData field. The keys stored in Data must not overlap with the keys in the BinaryData field, this is enforced during validation process.";
const ABOUT_HOLDER: &str = "holderIdentity contains the identity of the holder of a current lease. If Coordinated Leader Election is used, the holder identity must be equal to the elected LeaseCandidate.metadata.name field.";
const ABOUT_SECRET_TYPE: &str = "Used to facilitate programmatic handling of secret data. More info: https://kubernetes.io/docs/concepts/configuration/secret/#secret-types";
const ABOUT_SECRET_DATA: &str = "Data contains the secret data. Each key must consist of alphanumeric characters, '-', '_' or '.'. The serialized form of the secret data is a base64 encoded string, representing the arbitrary (possibly non-string) data value here. Described in https://tools.ietf.org/html/rfc4648#section-4";
const ABOUT_FIELD_PATH: &str = "If referring to a piece of an object instead of an entire object, this string should contain a valid JSON/Go field access statement, such as desiredState.manifest.containers[2]. For example, if the object reference is to a container within a pod, this would take on a value like: \"spec.containers{name}\" (where \"name\" refers to the name of the container that triggered the event) or if no container name is specified \"spec.containers[2]\" (container with index 2 in this pod). This syntax is chosen only to have some well-defined way of referencing a part of an object.";
const ABOUT_COMMON: &str = "commonEncodingVersion is set to an encoding storage version if all API server instances share that same version. If they don't share one storage version, this field is left empty. API servers should finish updating its storageVersionStatus entry before serving write operations, so that this field will be in sync with the reality.";

/// How many servers a storage version shows.
const MAX_SERVERS: usize = 3;

pub(super) const NAMESPACES: &[Column] =
    &[NAME, text("Status", "The status of the namespace", |it, _| at(it, &["status", "phase"])), AGE];
pub(super) const CONFIG_MAPS: &[Column] =
    &[NAME, text("Data", ABOUT_DATA, |it, _| json!(count(it, "data") + count(it, "binaryData"))), AGE];
pub(super) const SECRETS: &[Column] = &[
    NAME,
    text("Type", ABOUT_SECRET_TYPE, |it, _| at(it, &["type"])),
    text("Data", ABOUT_SECRET_DATA, |it, _| json!(count(it, "data"))),
    AGE,
];
pub(super) const LEASES: &[Column] =
    &[NAME, text("Holder", ABOUT_HOLDER, |it, _| at(it, &["spec", "holderIdentity"])), AGE];
pub(super) const ROLE_BINDINGS: &[Column] = &[
    NAME,
    text(
        "Role",
        "RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.",
        |it, _| role(it),
    ),
    AGE,
    wide("Users", "Users in the roleBinding", |it, _| subjects(it, "User")),
    wide("Groups", "Groups in the roleBinding", |it, _| subjects(it, "Group")),
    wide("ServiceAccounts", "ServiceAccounts in the roleBinding", |it, _| subjects(it, "ServiceAccount")),
];
pub(super) const CLUSTER_ROLE_BINDINGS: &[Column] = &[
    NAME,
    text(
        "Role",
        "RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.",
        |it, _| role(it),
    ),
    AGE,
    wide("Users", "Users in the clusterRoleBinding", |it, _| subjects(it, "User")),
    wide("Groups", "Groups in the clusterRoleBinding", |it, _| subjects(it, "Group")),
    wide("ServiceAccounts", "ServiceAccounts in the clusterRoleBinding", |it, _| {
        subjects(it, "ServiceAccount")
    }),
];
pub(super) const STORAGE_VERSIONS: &[Column] = &[
    NAME,
    text("CommonEncodingVersion", ABOUT_COMMON, |it, _| {
        found(it, &["status", "commonEncodingVersion"]).cloned().unwrap_or_else(|| json!("<unset>"))
    }),
    text(
        "StorageVersions",
        "storageVersions lists the reported versions per API server instance.",
        |it, _| reported(it),
    ),
    AGE,
];
pub(super) const PRIORITY_CLASSES: &[Column] = &[
    NAME,
    number(
        "Value",
        "value represents the integer value of this priority class. This is the actual priority that pods receive when they have the name of this class in their pod spec.",
        |it, _| json!(integer(it, &["value"])),
    ),
    switch(
        "Global-Default",
        "globalDefault specifies whether this PriorityClass should be considered as the default priority for pods that do not have any priority class. Only one PriorityClass can be marked as `globalDefault`. However, if more than one PriorityClasses exists with their `globalDefault` field set to true, the smallest value of such global default PriorityClasses will be used as the default priority.",
        |it, _| json!(found(it, &["globalDefault"]) == Some(&Value::Bool(true))),
    ),
    AGE,
    text(
        "PreemptionPolicy",
        "preemptionPolicy is the Policy for preempting pods with lower priority. One of Never, PreemptLowerPriority. Defaults to PreemptLowerPriority if unset.",
        |it, _| at(it, &["preemptionPolicy"]),
    ),
];
pub(super) const QUOTAS: &[Column] = &[
    NAME,
    text(
        "Request",
        "Request represents a minimum amount of cpu/memory that a container may consume.",
        |it, _| json!(usage(it, false)),
    ),
    text(
        "Limit",
        "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.",
        |it, _| json!(usage(it, true)),
    ),
    AGE,
];
pub(super) const RUNTIME_CLASSES: &[Column] = &[NAME, text("Handler", "", |it, _| at(it, &["handler"])), AGE];
pub(super) const EVENTS: &[Column] = &[
    text(
        "Last Seen",
        "The time at which the most recent occurrence of this event was recorded.",
        |it, now| json!(age(last_seen(it), now)),
    ),
    text("Type", "Type of this event (Normal, Warning), new types could be added in the future", |it, _| {
        at(it, &["type"])
    }),
    text(
        "Reason",
        "This should be a short, machine understandable string that gives the reason for the transition into the object's current status.",
        |it, _| at(it, &["reason"]),
    ),
    text("Object", "The object that this event is about.", |it, _| {
        let kind = shown(regarded(it), &["kind"]).to_lowercase();
        match shown(regarded(it), &["name"]) {
            "" => json!(kind),
            name => json!(format!("{kind}/{name}")),
        }
    }),
    wide("Subobject", ABOUT_FIELD_PATH, |it, _| at(regarded(it), &["fieldPath"])),
    wide(
        "Source",
        "The component reporting this event. Should be a short machine understandable string.",
        |it, _| json!(source(it)),
    ),
    text("Message", "A human-readable description of the status of this operation.", |it, _| {
        json!(either(it, "message", "note").trim())
    }),
    wide(
        "First Seen",
        "The time at which the event was first recorded. (Time of server receipt is in TypeMeta.)",
        |it, now| json!(age(first_seen(it), now)),
    ),
    wide("Count", "The number of times this event has occurred.", |it, _| json!(occurrences(it))),
    Column { priority: 1, ..NAME },
];

/// `pods: 1/10, …`: what is used of what is allowed, limits and everything else apart.
fn usage(quota: &Value, of_limits: bool) -> String {
    let hard = found(quota, &["status", "hard"]).and_then(Value::as_object);
    let mut names: Vec<&String> = hard.into_iter().flat_map(|it| it.keys()).collect();
    names.sort();
    let parts: Vec<String> = names
        .into_iter()
        .filter(|it| it.starts_with("limits.") == of_limits)
        .map(|it| {
            let amount = |of: &str| quantity(found(quota, &["status", of, it]));
            format!("{it}: {}/{}", amount("used"), amount("hard"))
        })
        .collect();
    parts.join(", ")
}

fn role(binding: &Value) -> Value {
    json!(format!("{}/{}", shown(binding, &["roleRef", "kind"]), shown(binding, &["roleRef", "name"])))
}

fn subjects(binding: &Value, kind: &str) -> Value {
    let names: Vec<String> = items(binding, &["subjects"])
        .iter()
        .filter(|it| shown(it, &["kind"]) == kind)
        .map(|it| match kind {
            "ServiceAccount" => format!("{}/{}", shown(it, &["namespace"]), shown(it, &["name"])),
            _ => shown(it, &["name"]).to_owned(),
        })
        .collect();
    Value::from(names.join(", "))
}

fn reported(storage_version: &Value) -> Value {
    let servers = items(storage_version, &["status", "storageVersions"]);
    let texts: Vec<String> = servers
        .iter()
        .take(MAX_SERVERS)
        .map(|it| format!("{}={}", shown(it, &["apiServerID"]), shown(it, &["encodingVersion"])))
        .collect();
    let mut text = texts.join(",");
    if servers.len() > MAX_SERVERS {
        text.push_str(&format!(" + {} more...", servers.len() - MAX_SERVERS));
    }
    Value::from(or_else(text, "<unset>"))
}

/// What an event is about, in either group.
fn regarded(event: &Value) -> &Value {
    event.get("involvedObject").or_else(|| event.get("regarding")).unwrap_or(&Value::Null)
}

fn either<'a>(event: &'a Value, field: &str, other: &str) -> &'a str {
    match shown(event, &[field]) {
        "" => shown(event, &[other]),
        text => text,
    }
}

fn first_seen(event: &Value) -> &str {
    match either(event, "firstTimestamp", "deprecatedFirstTimestamp") {
        "" => shown(event, &["eventTime"]),
        time => time,
    }
}

fn last_seen(event: &Value) -> &str {
    if event.get("series").is_some_and(Value::is_object) {
        return shown(event, &["series", "lastObservedTime"]);
    }
    match either(event, "lastTimestamp", "deprecatedLastTimestamp") {
        "" => first_seen(event),
        time => time,
    }
}

fn occurrences(event: &Value) -> i64 {
    if event.get("series").is_some_and(Value::is_object) {
        return integer(event, &["series", "count"]);
    }
    integer(event, &["count"]).max(integer(event, &["deprecatedCount"])).max(1)
}

fn source(event: &Value) -> String {
    let source = event.get("source").or_else(|| event.get("deprecatedSource")).unwrap_or(&Value::Null);
    let reporter = either(event, "reportingComponent", "reportingController");
    let component = or_else(shown(source, &["component"]).to_owned(), reporter);
    let instance = or_else(shown(source, &["host"]).to_owned(), shown(event, &["reportingInstance"]));
    if instance.is_empty() { component } else { format!("{component}, {instance}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::columns::testing::expect_cells;

    #[test]
    fn events_of_both_groups_look_the_same() {
        let old = json!({
            "metadata": {"name": "e"}, "type": "Normal", "reason": "R", "message": " m\n",
            "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "f"},
            "firstTimestamp": "1969-12-31T23:59:00Z", "count": 3, "source": {"component": "c", "host": "h"},
        });
        let expected = json!(["60s", "Normal", "R", "pod/p", "f", "c, h", "m", "60s", 3, "e"]);
        expect_cells(EVENTS, &old, &expected);
        let new = json!({
            "metadata": {"name": "e"}, "type": "Normal", "reason": "R", "note": "m",
            "regarding": {"kind": "Pod", "name": "p", "fieldPath": "f"}, "eventTime": "1969-12-31T23:59:00.000000Z",
            "series": {"count": 3, "lastObservedTime": "1969-12-31T23:59:00.000000Z"},
            "reportingController": "c", "reportingInstance": "h",
        });
        expect_cells(EVENTS, &new, &expected);
    }

    #[test]
    fn bindings_name_role_and_subjects() {
        let binding = json!({"metadata": {"name": "b"}, "roleRef": {"kind": "Role", "name": "r"}, "subjects": [
            {"kind": "User", "name": "u"}, {"kind": "User", "name": "v"},
            {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
        ]});
        expect_cells(ROLE_BINDINGS, &binding, &json!(["b", "Role/r", "<unknown>", "u, v", "", "n/s"]));
    }

    #[test]
    fn storage_versions_show_three_servers() {
        let servers: Vec<Value> =
            (0..5).map(|it| json!({"apiServerID": format!("s{it}"), "encodingVersion": "v1"})).collect();
        let object = json!({"status": {"storageVersions": servers}});
        assert_eq!(reported(&object), json!("s0=v1,s1=v1,s2=v1 + 2 more..."));
        assert_eq!(reported(&json!({})), json!("<unset>"));
    }

    #[test]
    fn quotas_show_what_is_used() {
        let status = json!({
            "hard": {"pods": "10", "limits.cpu": "4", "requests.cpu": "2"}, "used": {"pods": "1"},
        });
        let quota = json!({"metadata": {"name": "q"}, "status": status});
        let requests = "pods: 1/10, requests.cpu: 0/2";
        expect_cells(QUOTAS, &quota, &json!(["q", requests, "limits.cpu: 0/4", "<unknown>"]));
    }
}
