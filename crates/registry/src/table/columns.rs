//! The columns of the kinds that have more than a name and an age.

use jiff::Timestamp;
use meta::{Value, object, time};
use serde_json::json;

/// One column.
pub struct Column {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    description: &'static str,
    /// Above zero it is only shown with `-o wide`.
    priority: u8,
    /// What stands in it.
    pub cell: fn(&Value, Timestamp) -> Value,
}

impl Column {
    /// As clients see it.
    pub fn definition(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.kind,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }
}

// Clients show these; they are part of what upstream answers.
const ABOUT_NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
const ABOUT_AGE: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const ABOUT_DATA: &str = "Data contains the configuration data. Each key must consist of alphanumeric characters, '-', '_' or '.'. Values with non-UTF-8 byte sequences must use the BinaryData field. The keys stored in Data must not overlap with the keys in the BinaryData field, this is enforced during validation process.";
const ABOUT_HOLDER: &str = "holderIdentity contains the identity of the holder of a current lease. If Coordinated Leader Election is used, the holder identity must be equal to the elected LeaseCandidate.metadata.name field.";

const NAME: Column = Column {
    name: "Name",
    kind: "string",
    format: "name",
    description: ABOUT_NAME,
    priority: 0,
    cell: |object, _| Value::from(object::name(object)),
};
const AGE: Column = text("Age", ABOUT_AGE, |object, now| {
    Value::from(age(object::meta_text(object, "creationTimestamp"), now))
});
const CREATED: Column = Column {
    name: "Created At",
    kind: "date",
    cell: |object, _| Value::from(object::meta_text(object, "creationTimestamp")),
    ..text("", ABOUT_AGE, empty)
};

const fn text(name: &'static str, description: &'static str, cell: fn(&Value, Timestamp) -> Value) -> Column {
    Column { name, kind: "string", format: "", description, priority: 0, cell }
}

const fn wide(name: &'static str, description: &'static str, cell: fn(&Value, Timestamp) -> Value) -> Column {
    Column { priority: 1, ..text(name, description, cell) }
}

fn empty(_: &Value, _: Timestamp) -> Value {
    Value::Null
}

const PLAIN: &[Column] = &[NAME, AGE];
const CREATED_AT: &[Column] = &[NAME, CREATED];
const NAMESPACES: &[Column] =
    &[NAME, text("Status", "The status of the namespace", |it, _| at(it, &["status", "phase"])), AGE];
const CONFIG_MAPS: &[Column] =
    &[NAME, text("Data", ABOUT_DATA, |it, _| json!(count(it, "data") + count(it, "binaryData"))), AGE];
const SECRETS: &[Column] = &[
    NAME,
    text("Type", "Used to facilitate programmatic handling of secret data.", |it, _| at(it, &["type"])),
    text("Data", "The number of values", |it, _| json!(count(it, "data"))),
    AGE,
];
const ACCOUNTS: &[Column] =
    &[NAME, text("Secrets", "The number of secrets", |it, _| json!(count(it, "secrets"))), AGE];
const LEASES: &[Column] =
    &[NAME, text("Holder", ABOUT_HOLDER, |it, _| at(it, &["spec", "holderIdentity"])), AGE];
const BINDINGS: &[Column] = &[
    NAME,
    text("Role", "RoleRef can only reference a ClusterRole or a Role", |it, _| {
        json!(format!("{}/{}", shown(it, &["roleRef", "kind"]), shown(it, &["roleRef", "name"])))
    }),
    AGE,
    wide("Users", "Users in the roleBinding", |it, _| subjects(it, "User")),
    wide("Groups", "Groups in the roleBinding", |it, _| subjects(it, "Group")),
    wide("ServiceAccounts", "ServiceAccounts in the roleBinding", |it, _| subjects(it, "ServiceAccount")),
];
const STORAGE_VERSIONS: &[Column] = &[
    NAME,
    text("CommonEncodingVersion", "the common encoding version", |it, _| {
        match shown(it, &["status", "commonEncodingVersion"]) {
            "" => json!("<unset>"),
            version => json!(version),
        }
    }),
    text("StorageVersions", "the reported versions of storage servers", |it, _| reported(it)),
    AGE,
];
const EVENTS: &[Column] = &[
    text("Last Seen", "When it last happened", |it, now| json!(age(last_seen(it), now))),
    text("Type", "Normal or Warning", |it, _| at(it, &["type"])),
    text("Reason", "Why it happened, for programs", |it, _| at(it, &["reason"])),
    text("Object", "What it is about", |it, _| {
        let kind = shown(it, &["involvedObject", "kind"]).to_lowercase();
        json!(format!("{kind}/{}", shown(it, &["involvedObject", "name"])))
    }),
    wide("Subobject", "Which part it is about", |it, _| at(it, &["involvedObject", "fieldPath"])),
    wide("Source", "Who reports it", |it, _| at(it, &["source", "component"])),
    text("Message", "What happened, for people", |it, _| json!(shown(it, &["message"]).trim())),
    wide("First Seen", "When it first happened", |it, now| json!(age(shown(it, &["firstTimestamp"]), now))),
    wide("Count", "How often it happened", |it, _| it.get("count").cloned().unwrap_or_else(|| json!(1))),
    Column { priority: 1, ..NAME },
];

/// The columns of a kind.
pub fn columns(group: &str, resource: &str) -> &'static [Column] {
    match (group, resource) {
        ("", "namespaces") => NAMESPACES,
        ("", "configmaps") => CONFIG_MAPS,
        ("", "secrets") => SECRETS,
        ("", "serviceaccounts") => ACCOUNTS,
        ("" | "events.k8s.io", "events") => EVENTS,
        ("coordination.k8s.io", "leases") => LEASES,
        ("rbac.authorization.k8s.io", "roles" | "clusterroles")
        | ("apiextensions.k8s.io", "customresourcedefinitions") => CREATED_AT,
        ("rbac.authorization.k8s.io", _) => BINDINGS,
        ("internal.apiserver.k8s.io", "storageversions") => STORAGE_VERSIONS,
        _ => PLAIN,
    }
}

fn at(object: &Value, path: &[&str]) -> Value {
    Value::from(shown(object, path))
}

fn shown<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    path.iter().try_fold(object, |it, field| it.get(field)).and_then(Value::as_str).unwrap_or("")
}

fn count(object: &Value, field: &str) -> usize {
    match object.get(field) {
        Some(Value::Object(map)) => map.len(),
        Some(Value::Array(list)) => list.len(),
        _ => 0,
    }
}

fn subjects(binding: &Value, kind: &str) -> Value {
    let all = binding.get("subjects").and_then(Value::as_array).into_iter().flatten();
    let names: Vec<String> = all
        .filter(|it| shown(it, &["kind"]) == kind)
        .map(|it| match shown(it, &["namespace"]) {
            "" => shown(it, &["name"]).to_owned(),
            namespace => format!("{namespace}/{}", shown(it, &["name"])),
        })
        .collect();
    Value::from(names.join(", "))
}

fn reported(storage_version: &Value) -> Value {
    let entries =
        storage_version.get("status").and_then(|it| it.get("storageVersions")).and_then(Value::as_array);
    let texts: Vec<String> = entries
        .into_iter()
        .flatten()
        .map(|it| format!("{}={}", shown(it, &["apiServerID"]), shown(it, &["encodingVersion"])))
        .collect();
    if texts.is_empty() { Value::from("<unset>") } else { Value::from(texts.join(",")) }
}

fn last_seen(event: &Value) -> &str {
    let candidates: [&[&str]; 3] = [&["series", "lastObservedTime"], &["lastTimestamp"], &["eventTime"]];
    candidates.into_iter().map(|it| shown(event, it)).find(|it| !it.is_empty()).unwrap_or("")
}

/// How long ago, as kubectl writes it.
fn age(timestamp: &str, now: Timestamp) -> String {
    match time::parse_time(timestamp) {
        None => "<unknown>".to_owned(),
        Some(then) => short_duration(now.as_second() - then.as_second()),
    }
}

fn short_duration(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let with_rest = |whole: i64, unit: &str, rest: i64, rest_unit: &str| {
        if rest == 0 { format!("{whole}{unit}") } else { format!("{whole}{unit}{rest}{rest_unit}") }
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => with_rest(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => with_rest(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => with_rest(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => with_rest(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_written_as_kubectl_writes_them() {
        let expected = [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_800, "3h"),
            (10_860, "3h1m"),
            (28_800, "8h"),
            (172_800, "2d"),
            (176_400, "2d1h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (252_288_000, "8y"),
        ];
        for (seconds, text) in expected {
            assert_eq!(short_duration(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn cells_show_what_the_columns_say() {
        let object =
            json!({"metadata": {"name": "a"}, "data": {"x": "1", "y": "2"}, "binaryData": {"z": ""}});
        let cells: Vec<Value> =
            columns("", "configmaps").iter().map(|it| (it.cell)(&object, Timestamp::UNIX_EPOCH)).collect();
        assert_eq!(cells, [json!("a"), json!(3), json!("<unknown>")]);
    }
}
