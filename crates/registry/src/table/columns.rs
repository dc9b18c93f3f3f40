//! The columns of the kinds that have more than a name and an age, as upstream's printers have them.
//!
//! Here is what columns are made of and which kind has which; the columns themselves are in `columns/`, by family.

mod autoscaling;
mod config;
mod control;
mod devices;
mod migration;
mod network;
mod pod;
mod storage;
#[cfg(test)]
mod testing;
mod workload;

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

/// The column that every table begins with, as clients see it.
pub(crate) fn name_column() -> Value {
    NAME.definition()
}

/// The column that tells how old an object is, as clients see it.
pub(crate) fn created_column(name: &'static str) -> Value {
    Column { name, ..CREATED }.definition()
}

const fn text(name: &'static str, description: &'static str, cell: fn(&Value, Timestamp) -> Value) -> Column {
    Column { name, kind: "string", format: "", description, priority: 0, cell }
}

const fn number(
    name: &'static str,
    description: &'static str,
    cell: fn(&Value, Timestamp) -> Value,
) -> Column {
    Column { kind: "integer", ..text(name, description, cell) }
}

const fn switch(
    name: &'static str,
    description: &'static str,
    cell: fn(&Value, Timestamp) -> Value,
) -> Column {
    Column { kind: "boolean", ..text(name, description, cell) }
}

const fn wide(name: &'static str, description: &'static str, cell: fn(&Value, Timestamp) -> Value) -> Column {
    Column { priority: 1, ..text(name, description, cell) }
}

fn empty(_: &Value, _: Timestamp) -> Value {
    Value::Null
}

pub(super) use autoscaling::SCALES;

const PLAIN: &[Column] = &[NAME, AGE];
const CREATED_AT: &[Column] = &[NAME, CREATED];
/// The columns of a kind. Where upstream has no printer for a kind, it shows when an object was made.
pub fn columns(group: &str, resource: &str) -> &'static [Column] {
    match group {
        "" => core(resource),
        "apps" | "batch" | "policy" | "autoscaling" => workloads(resource),
        "networking.k8s.io" | "discovery.k8s.io" => networking(resource),
        "storage.k8s.io" | "resource.k8s.io" => storage(resource),
        _ => cluster(group, resource),
    }
}

fn core(resource: &str) -> &'static [Column] {
    match resource {
        "namespaces" => config::NAMESPACES,
        "configmaps" => config::CONFIG_MAPS,
        "secrets" => config::SECRETS,
        "serviceaccounts" => PLAIN,
        "events" => config::EVENTS,
        "resourcequotas" => config::QUOTAS,
        "componentstatuses" => control::COMPONENT_STATUSES,
        "pods" => pod::PODS,
        "podtemplates" => workload::POD_TEMPLATES,
        "replicationcontrollers" => workload::REPLICATION_CONTROLLERS,
        "nodes" => workload::NODES,
        "services" => network::SERVICES,
        "endpoints" => network::ENDPOINTS,
        "persistentvolumes" => storage::VOLUMES,
        "persistentvolumeclaims" => storage::CLAIMS,
        _ => CREATED_AT,
    }
}

fn workloads(resource: &str) -> &'static [Column] {
    match resource {
        "deployments" => workload::DEPLOYMENTS,
        "replicasets" => workload::REPLICA_SETS,
        "statefulsets" => workload::STATEFUL_SETS,
        "daemonsets" => workload::DAEMON_SETS,
        "controllerrevisions" => workload::REVISIONS,
        "jobs" => workload::JOBS,
        "cronjobs" => workload::CRON_JOBS,
        "poddisruptionbudgets" => workload::DISRUPTION_BUDGETS,
        "horizontalpodautoscalers" => autoscaling::AUTOSCALERS,
        _ => CREATED_AT,
    }
}

fn networking(resource: &str) -> &'static [Column] {
    match resource {
        "endpointslices" => network::ENDPOINT_SLICES,
        "ingresses" => network::INGRESSES,
        "ingressclasses" => network::INGRESS_CLASSES,
        "networkpolicies" => network::NETWORK_POLICIES,
        "servicecidrs" => network::SERVICE_CIDRS,
        "ipaddresses" => network::IP_ADDRESSES,
        _ => CREATED_AT,
    }
}

fn storage(resource: &str) -> &'static [Column] {
    match resource {
        "storageclasses" => storage::CLASSES,
        "volumeattributesclasses" => storage::ATTRIBUTES_CLASSES,
        "volumeattachments" => storage::ATTACHMENTS,
        "csinodes" => storage::CSI_NODES,
        "csidrivers" => storage::CSI_DRIVERS,
        "resourceclaims" => devices::CLAIMS,
        "resourceslices" => devices::SLICES,
        "devicetaintrules" => devices::TAINT_RULES,
        "deviceclasses" | "resourceclaimtemplates" => PLAIN,
        _ => CREATED_AT,
    }
}

fn cluster(group: &str, resource: &str) -> &'static [Column] {
    match (group, resource) {
        ("events.k8s.io", "events") => config::EVENTS,
        ("coordination.k8s.io", "leases") => config::LEASES,
        ("coordination.k8s.io", "leasecandidates") => control::LEASE_CANDIDATES,
        ("rbac.authorization.k8s.io", "rolebindings") => config::ROLE_BINDINGS,
        ("rbac.authorization.k8s.io", "clusterrolebindings") => config::CLUSTER_ROLE_BINDINGS,
        ("internal.apiserver.k8s.io", "storageversions") => config::STORAGE_VERSIONS,
        ("migration.k8s.io" | "storagemigration.k8s.io", "storageversionmigrations") => migration::MIGRATIONS,
        ("migration.k8s.io", "storagestates") => migration::STATES,
        ("scheduling.k8s.io", "priorityclasses") => config::PRIORITY_CLASSES,
        ("node.k8s.io", "runtimeclasses") => config::RUNTIME_CLASSES,
        ("certificates.k8s.io", "certificatesigningrequests") => control::SIGNING_REQUESTS,
        ("certificates.k8s.io", "clustertrustbundles") => control::TRUST_BUNDLES,
        ("certificates.k8s.io", "podcertificaterequests") => control::POD_CERTIFICATE_REQUESTS,
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => control::FLOW_SCHEMAS,
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations") => control::PRIORITY_LEVELS,
        ("apiregistration.k8s.io", "apiservices") => control::API_SERVICES,
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations",
        ) => control::WEBHOOKS,
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => control::VALIDATING_POLICIES,
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies") => control::MUTATING_POLICIES,
        (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings",
        ) => control::POLICY_BINDINGS,
        _ => CREATED_AT,
    }
}

fn at(object: &Value, path: &[&str]) -> Value {
    Value::from(shown(object, path))
}

fn shown<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    found(object, path).and_then(Value::as_str).unwrap_or("")
}

fn found<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |it, field| it.get(field))
}

fn integer(object: &Value, path: &[&str]) -> i64 {
    found(object, path).and_then(Value::as_i64).unwrap_or(0)
}

fn items<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    found(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn count(object: &Value, field: &str) -> usize {
    match object.get(field) {
        Some(Value::Object(map)) => map.len(),
        Some(Value::Array(list)) => list.len(),
        _ => 0,
    }
}

/// `a=b,c=d`; what stands for nothing if the map is empty.
fn labels(map: Option<&Value>, nothing: &str) -> String {
    let mut pairs: Vec<String> = map
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")))
        .collect();
    pairs.sort();
    or_else(pairs.join(","), nothing)
}

/// A selector in the words of a query.
fn selector(selector: Option<&Value>) -> String {
    let Some(selector) = selector.filter(|it| it.is_object()) else { return "<none>".to_owned() };
    let mut parts: Vec<(String, String)> = Vec::new();
    for (key, value) in found(selector, &["matchLabels"]).and_then(Value::as_object).into_iter().flatten() {
        parts.push((key.clone(), format!("{key}={}", value.as_str().unwrap_or(""))));
    }
    for it in items(selector, &["matchExpressions"]) {
        let key = shown(it, &["key"]);
        let mut values: Vec<&str> = items(it, &["values"]).iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let part = match shown(it, &["operator"]) {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return "<error>".to_owned(),
        };
        parts.push((key.to_owned(), part));
    }
    parts.sort();
    let parts: Vec<String> = parts.into_iter().map(|(_, part)| part).collect();
    or_else(parts.join(","), "<none>")
}

fn or_else(text: String, nothing: &str) -> String {
    if text.is_empty() { nothing.to_owned() } else { text }
}

/// An amount; none is zero.
fn quantity(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => "0".to_owned(),
    }
}

/// How long ago, as kubectl writes it.
pub(crate) fn age(timestamp: &str, now: Timestamp) -> String {
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
