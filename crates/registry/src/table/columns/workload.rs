//! The columns of what runs pods, and of nodes.

use jiff::Timestamp;
use meta::{Value, object, time};
use serde_json::json;

use super::{
    AGE, Column, NAME, age, at, found, integer, items, labels, number, or_else, selector, short_duration,
    shown, text, wide,
};

const READY: Column = text("Ready", "Number of the pod with ready state", |it, _| {
    let ready = integer(it, &["status", "readyReplicas"]);
    json!(format!("{ready}/{}", integer(it, &["spec", "replicas"])))
});
const CONTAINERS: Column =
    wide("Containers", "Names of each container in the template.", |it, _| containers(it, "name"));
const IMAGES: Column =
    wide("Images", "Images referenced by each container in the template.", |it, _| containers(it, "image"));

const ABOUT_JOB_SELECTOR: &str = "A label query over pods that should match the pod count. Normally, the system sets this field for you. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors";

const fn selecting(description: &'static str) -> Column {
    wide("Selector", description, |it, _| json!(selector(found(it, &["spec", "selector"]))))
}

pub(super) const DEPLOYMENTS: &[Column] = &[
    NAME,
    READY,
    text(
        "Up-to-date",
        "Total number of non-terminating pods targeted by this deployment that have the desired template spec.",
        |it, _| json!(integer(it, &["status", "updatedReplicas"])),
    ),
    text(
        "Available",
        "Total number of available non-terminating pods (ready for at least minReadySeconds) targeted by this deployment.",
        |it, _| json!(integer(it, &["status", "availableReplicas"])),
    ),
    AGE,
    CONTAINERS,
    IMAGES,
    selecting(
        "Label selector for pods. Existing ReplicaSets whose pods are selected by this will be the ones affected by this deployment.",
    ),
];
const fn desired(description: &'static str) -> Column {
    number("Desired", description, |it, _| json!(integer(it, &["spec", "replicas"])))
}
const fn current(description: &'static str) -> Column {
    number("Current", description, |it, _| json!(integer(it, &["status", "replicas"])))
}
pub(super) const REPLICA_SETS: &[Column] = &[
    NAME,
    desired(
        "Replicas is the number of desired pods. This is a pointer to distinguish between explicit zero and unspecified. Defaults to 1. More info: https://kubernetes.io/docs/concepts/workloads/controllers/replicaset",
    ),
    current(
        "Replicas is the most recently observed number of non-terminating pods. More info: https://kubernetes.io/docs/concepts/workloads/controllers/replicaset",
    ),
    number(
        "Ready",
        "The number of non-terminating pods targeted by this ReplicaSet with a Ready Condition.",
        |it, _| json!(integer(it, &["status", "readyReplicas"])),
    ),
    AGE,
    CONTAINERS,
    IMAGES,
    selecting(
        "Selector is a label query over pods that should match the replica count. If the selector is empty, it is defaulted to the labels present on the pod template. Label keys and values that must match in order to be controlled by this replica set. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
    ),
];
pub(super) const REPLICATION_CONTROLLERS: &[Column] = &[
    NAME,
    desired(
        "Replicas is the number of desired replicas. This is a pointer to distinguish between explicit zero and unspecified. Defaults to 1. More info: https://kubernetes.io/docs/concepts/workloads/controllers/replicationcontroller#what-is-a-replicationcontroller",
    ),
    current(
        "Replicas is the most recently observed number of replicas. More info: https://kubernetes.io/docs/concepts/workloads/controllers/replicationcontroller#what-is-a-replicationcontroller",
    ),
    number("Ready", "The number of ready replicas for this replication controller.", |it, _| {
        json!(integer(it, &["status", "readyReplicas"]))
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    wide(
        "Selector",
        "Selector is a label query over pods that should match the Replicas count. If Selector is empty, it is defaulted to the labels present on the Pod template. Label keys and values that must match in order to be controlled by this replication controller, if empty defaulted to labels on Pod template. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
        |it, _| json!(labels(found(it, &["spec", "selector"]), "<none>")),
    ),
];
pub(super) const STATEFUL_SETS: &[Column] = &[NAME, READY, AGE, CONTAINERS, IMAGES];
pub(super) const DAEMON_SETS: &[Column] = &[
    NAME,
    number(
        "Desired",
        "The total number of nodes that should be running the daemon pod (including nodes correctly running the daemon pod). More info: https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/",
        |it, _| json!(integer(it, &["status", "desiredNumberScheduled"])),
    ),
    number(
        "Current",
        "The number of nodes that are running at least 1 daemon pod and are supposed to run the daemon pod. More info: https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/",
        |it, _| json!(integer(it, &["status", "currentNumberScheduled"])),
    ),
    number(
        "Ready",
        "The number of nodes that should be running the daemon pod and have one or more of the daemon pod running and ready.",
        |it, _| json!(integer(it, &["status", "numberReady"])),
    ),
    number("Up-to-date", "The total number of nodes that are running updated daemon pod", |it, _| {
        json!(integer(it, &["status", "updatedNumberScheduled"]))
    }),
    number(
        "Available",
        "The number of nodes that should be running the daemon pod and have one or more of the daemon pod running and available (ready for at least spec.minReadySeconds)",
        |it, _| json!(integer(it, &["status", "numberAvailable"])),
    ),
    text(
        "Node Selector",
        "NodeSelector is a selector which must be true for the pod to fit on a node. Selector which must match a node's labels for the pod to be scheduled on that node. More info: https://kubernetes.io/docs/concepts/configuration/assign-pod-node/",
        |it, _| json!(labels(found(it, &["spec", "template", "spec", "nodeSelector"]), "<none>")),
    ),
    AGE,
    CONTAINERS,
    IMAGES,
    selecting(
        "A label query over pods that are managed by the daemon set. Must match in order to be controlled. If empty, defaulted to labels on Pod template. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
    ),
];
pub(super) const JOBS: &[Column] = &[
    NAME,
    text("Status", "Status of the job.", |it, _| json!(job_status(it))),
    text(
        "Completions",
        "The number of pods which reached phase Succeeded. The value increases monotonically for a given spec. However, it may decrease in reaction to scale down of elastic indexed jobs.",
        |it, _| json!(completions(it)),
    ),
    text("Duration", "Time required to complete the job.", |it, now| json!(duration(it, now))),
    AGE,
    CONTAINERS,
    IMAGES,
    selecting(ABOUT_JOB_SELECTOR),
];
pub(super) const CRON_JOBS: &[Column] = &[
    NAME,
    text("Schedule", "The schedule in Cron format, see https://en.wikipedia.org/wiki/Cron.", |it, _| {
        at(it, &["spec", "schedule"])
    }),
    text(
        "Timezone",
        "The time zone name for the given schedule, see https://en.wikipedia.org/wiki/List_of_tz_database_time_zones. If not specified, this will default to the time zone of the kube-controller-manager process. The set of valid time zone names and the time zone offset is loaded from the system-wide time zone database by the API server during CronJob validation and the controller manager during execution. If no system-wide time zone database can be found a bundled version of the database is used instead. If the time zone name becomes invalid during the lifetime of a CronJob or due to a change in host configuration, the controller will stop creating new new Jobs and will create a system event with the reason UnknownTimeZone. More information can be found in https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#time-zones",
        |it, _| json!(or_else(shown(it, &["spec", "timeZone"]).to_owned(), "<none>")),
    ),
    Column {
        kind: "boolean",
        ..text(
            "Suspend",
            "This flag tells the controller to suspend subsequent executions, it does not apply to already started executions.  Defaults to false.",
            |it, _| match found(it, &["spec", "suspend"]).and_then(Value::as_bool) {
                Some(true) => json!("True"),
                Some(false) => json!("False"),
                None => json!("<unset>"),
            },
        )
    },
    number("Active", "A list of pointers to currently running jobs.", |it, _| {
        json!(items(it, &["status", "active"]).len())
    }),
    text(
        "Last Schedule",
        "Information when was the last time the job was successfully scheduled.",
        |it, now| match shown(it, &["status", "lastScheduleTime"]) {
            "" => json!("<none>"),
            time => json!(age(time, now)),
        },
    ),
    AGE,
    wide("Containers", "Names of each container in the template.", |it, _| job_containers(it, "name")),
    wide("Images", "Images referenced by each container in the template.", |it, _| {
        job_containers(it, "image")
    }),
    wide("Selector", ABOUT_JOB_SELECTOR, |it, _| {
        json!(selector(found(it, &["spec", "jobTemplate", "spec", "selector"])))
    }),
];
pub(super) const DISRUPTION_BUDGETS: &[Column] = &[
    NAME,
    text("Min Available", "The minimum number of pods that must be available.", |it, _| {
        plain(it, "minAvailable")
    }),
    text("Max Unavailable", "The maximum number of pods that may be unavailable.", |it, _| {
        plain(it, "maxUnavailable")
    }),
    number(
        "Allowed Disruptions",
        "Calculated number of pods that may be disrupted at this time.",
        |it, _| json!(integer(it, &["status", "disruptionsAllowed"])),
    ),
    AGE,
];
const ABOUT_ADDRESSES: &str = "List of addresses reachable to the node. Queried from cloud provider, if available. More info: https://kubernetes.io/docs/reference/node/node-status/#addresses Note: This field is declared as mergeable, but the merge key is not sufficiently unique, which can cause data corruption when it is merged. Callers should instead use a full-replacement patch. See https://pr.k8s.io/79391 for an example. Consumers should assume that addresses can change during the lifetime of a Node. However, there are some exceptions where this may not be possible, such as Pods that inherit a Node's address in its own status or consumers of the downward API (status.hostIP).";
pub(super) const NODES: &[Column] = &[
    NAME,
    text("Status", "The status of the node", |it, _| json!(node_status(it))),
    text("Roles", "The roles of the node", |it, _| json!(roles(it))),
    AGE,
    text("Version", "Kubelet Version reported by the node.", |it, _| node_fact(it, "kubeletVersion", "")),
    wide("Internal-IP", ABOUT_ADDRESSES, |it, _| node_address(it, "InternalIP")),
    wide("External-IP", ABOUT_ADDRESSES, |it, _| node_address(it, "ExternalIP")),
    wide(
        "OS-Image",
        "OS Image reported by the node from /etc/os-release (e.g. Debian GNU/Linux 7 (wheezy)).",
        |it, _| node_fact(it, "osImage", "<unknown>"),
    ),
    wide(
        "Kernel-Version",
        "Kernel Version reported by the node from 'uname -r' (e.g. 3.16.0-0.bpo.4-amd64).",
        |it, _| node_fact(it, "kernelVersion", "<unknown>"),
    ),
    wide(
        "Container-Runtime",
        "ContainerRuntime Version reported by the node through runtime remote API (e.g. containerd://1.4.2).",
        |it, _| node_fact(it, "containerRuntimeVersion", "<unknown>"),
    ),
];
pub(super) const POD_TEMPLATES: &[Column] = &[
    NAME,
    text("Containers", "Names of each container in the template.", |it, _| template_containers(it, "name")),
    text("Images", "Images referenced by each container in the template.", |it, _| {
        template_containers(it, "image")
    }),
    text("Pod Labels", "The labels for the pod template.", |it, _| {
        json!(labels(found(it, &["template", "metadata", "labels"]), "<none>"))
    }),
];
pub(super) const REVISIONS: &[Column] = &[
    NAME,
    text("Controller", "Controller of the object", |it, _| json!(controller(it))),
    text("Revision", "revision indicates the revision of the state represented by Data.", |it, _| {
        json!(integer(it, &["revision"]))
    }),
    AGE,
];

fn template_containers(object: &Value, field: &str) -> Value {
    joined(items(object, &["template", "spec", "containers"]), field)
}

/// `deployment.apps/web`
fn controller(object: &Value) -> String {
    let owners = items(object, &["metadata", "ownerReferences"]);
    let Some(owner) = owners.iter().find(|it| found(it, &["controller"]) == Some(&Value::Bool(true))) else {
        return "<none>".to_owned();
    };
    let kind = match shown(owner, &["apiVersion"]).split_once('/') {
        Some((group, _)) => format!("{}.{group}", shown(owner, &["kind"])),
        None => shown(owner, &["kind"]).to_owned(),
    };
    format!("{}/{}", kind.to_lowercase(), shown(owner, &["name"]))
}

fn containers(object: &Value, field: &str) -> Value {
    joined(items(object, &["spec", "template", "spec", "containers"]), field)
}

fn job_containers(object: &Value, field: &str) -> Value {
    joined(items(object, &["spec", "jobTemplate", "spec", "template", "spec", "containers"]), field)
}

fn joined(containers: &[Value], field: &str) -> Value {
    let texts: Vec<&str> = containers.iter().map(|it| shown(it, &[field])).collect();
    json!(texts.join(","))
}

/// A number or a percentage of the spec.
fn plain(object: &Value, field: &str) -> Value {
    match found(object, &["spec", field]) {
        Some(Value::String(text)) => json!(text),
        Some(Value::Number(number)) => json!(number.to_string()),
        _ => json!("N/A"),
    }
}

fn job_status(job: &Value) -> &'static str {
    let is_true = |kind: &str| {
        items(job, &["status", "conditions"])
            .iter()
            .any(|it| shown(it, &["type"]) == kind && shown(it, &["status"]) == "True")
    };
    if is_true("Complete") {
        "Complete"
    } else if is_true("Failed") {
        "Failed"
    } else if object::is_deleting(job) {
        "Terminating"
    } else if is_true("Suspended") {
        "Suspended"
    } else if is_true("FailureTarget") {
        "FailureTarget"
    } else if is_true("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

fn completions(job: &Value) -> String {
    let succeeded = integer(job, &["status", "succeeded"]);
    if let Some(wanted) = found(job, &["spec", "completions"]).and_then(Value::as_i64) {
        return format!("{succeeded}/{wanted}");
    }
    match integer(job, &["spec", "parallelism"]) {
        several @ 2.. => format!("{succeeded}/1 of {several}"),
        _ => format!("{succeeded}/1"),
    }
}

fn duration(job: &Value, now: Timestamp) -> String {
    let Some(start) = time::parse_time(shown(job, &["status", "startTime"])) else { return String::new() };
    let end = time::parse_time(shown(job, &["status", "completionTime"])).unwrap_or(now);
    short_duration(end.as_second() - start.as_second())
}

fn node_status(node: &Value) -> String {
    let ready = items(node, &["status", "conditions"]).iter().find(|it| shown(it, &["type"]) == "Ready");
    let mut status = match ready {
        Some(it) if shown(it, &["status"]) == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if found(node, &["spec", "unschedulable"]) == Some(&Value::Bool(true)) {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn roles(node: &Value) -> String {
    const PREFIX: &str = "node-role.kubernetes.io/";
    let labels = found(node, &["metadata", "labels"]).and_then(Value::as_object);
    let mut roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix(PREFIX) {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|it| !it.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    or_else(roles.join(","), "<none>")
}

fn node_fact(node: &Value, field: &str, unknown: &str) -> Value {
    json!(or_else(shown(node, &["status", "nodeInfo", field]).to_owned(), unknown))
}

fn node_address(node: &Value, kind: &str) -> Value {
    let address = items(node, &["status", "addresses"]).iter().find(|it| shown(it, &["type"]) == kind);
    json!(address.map_or("<none>", |it| shown(it, &["address"])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::columns::testing::expect_cells;

    #[test]
    fn deployments_show_replicas_and_templates() {
        let containers = json!([{"name": "a", "image": "i"}, {"name": "b", "image": "j"}]);
        let object = json!({
            "metadata": {"name": "d"},
            "spec": {"replicas": 3, "template": {"spec": {"containers": containers}}, "selector": {
                "matchLabels": {"z": "1"}, "matchExpressions": [{"key": "b", "operator": "In", "values": ["y", "x"]}]}},
            "status": {"readyReplicas": 1, "updatedReplicas": 2},
        });
        expect_cells(
            DEPLOYMENTS,
            &object,
            &json!(["d", "1/3", 2, 0, "<unknown>", "a,b", "i,j", "b in (x,y),z=1"]),
        );
    }

    #[test]
    fn jobs_show_how_far_they_are() {
        let job = json!({
            "metadata": {"name": "j"}, "spec": {"parallelism": 3},
            "status": {"succeeded": 1, "startTime": "1969-12-31T23:58:00Z"},
        });
        expect_cells(JOBS, &job, &json!(["j", "Running", "1/1 of 3", "2m", "<unknown>", "", "", "<none>"]));
    }

    #[test]
    fn nodes_show_state_and_roles() {
        let node = json!({
            "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/b": "", "kubernetes.io/role": "a"}},
            "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1"},
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
        });
        expect_cells(
            NODES,
            &node,
            &json!([
                "n",
                "Ready,SchedulingDisabled",
                "a,b",
                "<unknown>",
                "v1",
                "10.0.0.1",
                "<none>",
                "<unknown>",
                "<unknown>",
                "<unknown>"
            ]),
        );
    }

    #[test]
    fn revisions_and_templates_show_where_they_belong() {
        let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "controller": true});
        let revision = json!({"metadata": {"name": "r", "ownerReferences": [owner]}, "revision": 3});
        expect_cells(REVISIONS, &revision, &json!(["r", "statefulset.apps/db", 3, "<unknown>"]));
        let containers = json!([{"name": "a", "image": "i"}]);
        let template = json!({"metadata": {"labels": {"x": "y"}}, "spec": {"containers": containers}});
        let template = json!({"metadata": {"name": "t"}, "template": template});
        expect_cells(POD_TEMPLATES, &template, &json!(["t", "a", "i", "x=y"]));
    }
}
