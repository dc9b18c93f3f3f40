//! The columns of pods; most of it is what the one word "status" stands for.

use jiff::Timestamp;
use meta::{Value, object};
use serde_json::json;

use super::{AGE, Column, NAME, age, found, integer, items, or_else, shown, text, wide};

pub(super) const PODS: &[Column] = &[
    NAME,
    text("Ready", "The aggregate readiness state of this pod for accepting traffic.", |it, _| {
        let summary = Summary::of(it);
        json!(format!("{}/{}", summary.ready, summary.total))
    }),
    text("Status", "The aggregate status of the containers in this pod.", |it, _| {
        json!(Summary::of(it).status)
    }),
    text(
        "Restarts",
        "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.",
        |it, now| json!(Summary::of(it).restarts(now)),
    ),
    AGE,
    wide(
        "IP",
        "podIP address allocated to the pod. Routable at least within the cluster. Empty if not yet allocated.",
        |it, _| json!(or_else(address(it).to_owned(), "<none>")),
    ),
    wide(
        "Node",
        "NodeName indicates in which node this pod is scheduled. If empty, this pod is a candidate for scheduling by the scheduler defined in schedulerName. Once this field is set, the kubelet for this node becomes responsible for the lifecycle of this pod. This field should not be used to express a desire for the pod to be scheduled on a specific node. https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodename",
        |it, _| json!(or_else(shown(it, &["spec", "nodeName"]).to_owned(), "<none>")),
    ),
    wide(
        "Nominated Node",
        "nominatedNodeName is set only when this pod preempts other pods on the node, but it cannot be scheduled right away as preemption victims receive their graceful termination periods. This field does not guarantee that the pod will be scheduled on this node. Scheduler may decide to place the pod elsewhere if other nodes become available sooner. Scheduler may also decide to give the resources on this node to a higher priority pod that is created after preemption. As a result, this field may be different than PodSpec.nodeName when the pod is scheduled.",
        |it, _| json!(or_else(shown(it, &["status", "nominatedNodeName"]).to_owned(), "<none>")),
    ),
    wide(
        "Readiness Gates",
        "If specified, all readiness gates will be evaluated for pod readiness. A pod is ready when all its containers are ready AND all conditions specified in the readiness gates have status equal to \"True\" More info: https://git.k8s.io/enhancements/keps/sig-network/580-pod-readiness-gates",
        |it, _| json!(gates(it)),
    ),
];

/// What the states of all containers come to.
#[derive(Default)]
struct Summary<'a> {
    status: String,
    ready: usize,
    total: usize,
    n_restarts: i64,
    /// When a container last ended before it was started again.
    last_end: &'a str,
}

impl<'a> Summary<'a> {
    fn of(pod: &'a Value) -> Self {
        let sidecars: Vec<&str> = items(pod, &["spec", "initContainers"])
            .iter()
            .filter(|it| shown(it, &["restartPolicy"]) == "Always")
            .map(|it| shown(it, &["name"]))
            .collect();
        let phase = shown(pod, &["status", "phase"]);
        let mut summary = Self {
            status: or_else(shown(pod, &["status", "reason"]).to_owned(), phase),
            total: items(pod, &["spec", "containers"]).len() + sidecars.len(),
            ..Self::default()
        };
        let is_gated = |it: &Value| {
            shown(it, &["type"]) == "PodScheduled" && shown(it, &["reason"]) == "SchedulingGated"
        };
        if items(pod, &["status", "conditions"]).iter().any(is_gated) {
            "SchedulingGated".clone_into(&mut summary.status);
        }
        let of_sidecars = summary.add_init(pod, &sidecars);
        let is_initializing = of_sidecars.is_none();
        if !is_initializing || is_true(pod, "Initialized") {
            let (n_restarts, last_end) = of_sidecars.unwrap_or_default();
            (summary.n_restarts, summary.last_end) = (n_restarts, last_end);
            summary.add_containers(pod);
        }
        if object::is_deleting(pod) {
            if shown(pod, &["status", "reason"]) == "NodeLost" {
                "Unknown".clone_into(&mut summary.status);
            } else if !matches!(phase, "Succeeded" | "Failed") {
                "Terminating".clone_into(&mut summary.status);
            }
        }
        summary
    }

    /// Looks at init containers up to the first that is not through. `None` if there is such a one, else the restarts
    /// of those that go on running.
    fn add_init(&mut self, pod: &'a Value, sidecars: &[&str]) -> Option<(i64, &'a str)> {
        let mut of_sidecars = (0, "");
        for (index, container) in items(pod, &["status", "initContainerStatuses"]).iter().enumerate() {
            let is_sidecar = sidecars.contains(&shown(container, &["name"]));
            self.add_restarts(container);
            if is_sidecar {
                of_sidecars.0 += integer(container, &["restartCount"]);
                of_sidecars.1 = of_sidecars.1.max(last_end(container));
            }
            let ended = found(container, &["state", "terminated"]);
            let waits_for = shown(container, &["state", "waiting", "reason"]);
            if ended.is_some_and(|it| integer(it, &["exitCode"]) == 0) {
                continue;
            }
            if is_sidecar && found(container, &["started"]) == Some(&Value::Bool(true)) {
                self.ready += usize::from(is_ready(container));
                continue;
            }
            self.status = if let Some(ended) = ended {
                format!("Init:{}", why_ended(ended))
            } else if !matches!(waits_for, "" | "PodInitializing") {
                format!("Init:{waits_for}")
            } else {
                format!("Init:{index}/{}", items(pod, &["spec", "initContainers"]).len())
            };
            return None;
        }
        Some(of_sidecars)
    }

    fn add_containers(&mut self, pod: &'a Value) {
        let mut is_running = false;
        for container in items(pod, &["status", "containerStatuses"]).iter().rev() {
            self.add_restarts(container);
            let waits_for = shown(container, &["state", "waiting", "reason"]);
            if !waits_for.is_empty() {
                waits_for.clone_into(&mut self.status);
            } else if let Some(ended) = found(container, &["state", "terminated"]) {
                self.status = why_ended(ended);
            } else if is_ready(container) && found(container, &["state", "running"]).is_some() {
                is_running = true;
                self.ready += 1;
            }
        }
        if self.status == "Completed" && is_running {
            let word = if is_true(pod, "Ready") { "Running" } else { "NotReady" };
            word.clone_into(&mut self.status);
        }
    }

    fn add_restarts(&mut self, container: &'a Value) {
        self.n_restarts += integer(container, &["restartCount"]);
        self.last_end = self.last_end.max(last_end(container));
    }

    fn restarts(&self, now: Timestamp) -> String {
        if self.n_restarts == 0 || self.last_end.is_empty() {
            return self.n_restarts.to_string();
        }
        format!("{} ({} ago)", self.n_restarts, age(self.last_end, now))
    }
}

/// Times of one form are in order as texts.
fn last_end(container: &Value) -> &str {
    shown(container, &["lastState", "terminated", "finishedAt"])
}

fn is_ready(container: &Value) -> bool {
    found(container, &["ready"]) == Some(&Value::Bool(true))
}

fn is_true(pod: &Value, condition: &str) -> bool {
    items(pod, &["status", "conditions"])
        .iter()
        .any(|it| shown(it, &["type"]) == condition && shown(it, &["status"]) == "True")
}

fn why_ended(ended: &Value) -> String {
    match (shown(ended, &["reason"]), integer(ended, &["signal"])) {
        ("", 0) => format!("ExitCode:{}", integer(ended, &["exitCode"])),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn address(pod: &Value) -> &str {
    items(pod, &["status", "podIPs"]).first().map_or("", |it| shown(it, &["ip"]))
}

fn gates(pod: &Value) -> String {
    let gates = items(pod, &["spec", "readinessGates"]);
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let n_open = gates.iter().filter(|it| is_true(pod, shown(it, &["conditionType"]))).count();
    format!("{n_open}/{}", gates.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(spec: &Value, status: &Value, expected: [&str; 3]) {
        let pod = json!({"metadata": {"name": "p"}, "spec": spec, "status": status});
        let cells: Vec<Value> = PODS[1..4].iter().map(|it| (it.cell)(&pod, Timestamp::UNIX_EPOCH)).collect();
        assert_eq!(cells, expected.map(Value::from), "{pod}");
    }

    #[test]
    fn one_word_stands_for_all_containers() {
        let two = json!({"containers": [{"name": "a"}, {"name": "b"}]});
        check(&two, &json!({"phase": "Pending"}), ["0/2", "Pending", "0"]);
        let running = json!({"name": "a", "ready": true, "state": {"running": {}}});
        let waiting = json!({"name": "b", "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"finishedAt": "1969-12-31T23:59:30Z"}}});
        check(
            &two,
            &json!({"phase": "Running", "containerStatuses": [running, waiting]}),
            ["1/2", "CrashLoopBackOff", "2 (30s ago)"],
        );
        let done = json!({"name": "b", "state": {"terminated": {"reason": "Completed", "exitCode": 0}}});
        check(
            &two,
            &json!({"phase": "Running", "containerStatuses": [running, done],
                "conditions": [{"type": "Ready", "status": "True"}]}),
            ["1/2", "Running", "0"],
        );
        let killed = json!({"name": "b", "state": {"terminated": {"signal": 9}}});
        check(&two, &json!({"phase": "Failed", "containerStatuses": [killed]}), ["0/2", "Signal:9", "0"]);
        check(
            &two,
            &json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}),
            ["0/2", "SchedulingGated", "0"],
        );
    }

    #[test]
    fn init_containers_come_first() {
        let spec = json!({"containers": [{"name": "a"}], "initContainers": [
            {"name": "i"}, {"name": "s", "restartPolicy": "Always"}]});
        let through = json!({"name": "i", "state": {"terminated": {"exitCode": 0}}});
        let failed = json!({"name": "i", "restartCount": 1, "state": {"terminated": {"exitCode": 3}}});
        let sidecar = json!({"name": "s", "ready": true, "started": true, "state": {"running": {}}});
        check(&spec, &json!({"initContainerStatuses": [failed]}), ["0/2", "Init:ExitCode:3", "1"]);
        let starting = json!({"name": "s", "state": {"waiting": {"reason": "PodInitializing"}}});
        check(&spec, &json!({"initContainerStatuses": [through, starting]}), ["0/2", "Init:1/2", "0"]);
        check(
            &spec,
            &json!({"phase": "Running", "initContainerStatuses": [through, sidecar],
                "containerStatuses": [{"name": "a", "ready": true, "state": {"running": {}}}]}),
            ["2/2", "Running", "0"],
        );
    }
}
