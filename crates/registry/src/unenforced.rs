//! Controls that this build stores but does not enforce never pass silently: the answer carries a warning, and
//! what people rely on for safety is refused unless the operator said otherwise.

use meta::{Status, Value};

use crate::{Registry, Target};

/// How a kind that restricts something is treated while nothing enforces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Treatment {
    Warn(&'static str),
    Refuse(&'static str),
}

fn treatment(group: &str, resource: &str) -> Option<Treatment> {
    use Treatment::{Refuse, Warn};
    Some(match (group, resource) {
        (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicies" | "validatingadmissionpolicybindings",
        ) => Refuse("validating admission policies"),
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies" | "mutatingadmissionpolicybindings") => {
            Refuse("mutating admission policies")
        }
        ("", "resourcequotas") => Refuse("resource quotas"),
        ("", "limitranges") => Warn("limit ranges are not enforced"),
        ("networking.k8s.io", "networkpolicies") => Warn("network policies are not enforced"),
        ("policy", "poddisruptionbudgets") => Warn("pod disruption budgets are not enforced"),
        ("flowcontrol.apiserver.k8s.io", _) => Warn("API priority and fairness is not enforced"),
        ("apiregistration.k8s.io", "apiservices") => {
            Warn("requests are not forwarded to aggregated API servers")
        }
        ("certificates.k8s.io", "certificatesigningrequests") => Warn("certificates are not signed"),
        _ => return None,
    })
}

/// The labels by which a namespace restricts its pods, or wants to know which of them it would restrict.
const POD_SECURITY: [&str; 3] = [
    "pod-security.kubernetes.io/enforce",
    "pod-security.kubernetes.io/audit",
    "pod-security.kubernetes.io/warn",
];

const STORAGE_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const INGRESS_CLASS: &str = "ingressclass.kubernetes.io/is-default-class";

/// What nothing enforces of that which an object relies on: warnings for whoever writes it.
pub(crate) fn relied_on(target: &Target, object: &Value, is_new: bool) -> Vec<String> {
    let definition = &target.kind.definition;
    if !target.subresource.is_empty() {
        return Vec::new();
    }
    let about = match (&*definition.group, &*definition.resource) {
        ("", "namespaces") => return pod_security(object),
        ("scheduling.k8s.io", "priorityclasses") => default_priority(object),
        // Said once, of the class, instead of every object without one.
        ("storage.k8s.io", "storageclasses") if is_default(object, STORAGE_CLASS) => {
            vec!["fill in the default storage class"]
        }
        ("networking.k8s.io", "ingressclasses") if is_default(object, INGRESS_CLASS) => {
            vec!["fill in the default ingress class"]
        }
        // The rest is done upstream to objects that are made.
        _ if !is_new => Vec::new(),
        ("", "pods") => pod(object),
        ("", "nodes") if !is_tainted(object) => {
            vec!["taint new nodes as not ready"]
        }
        ("scheduling.k8s.io", "podgroups") => {
            vec![
                "protect pod groups from deletion while they are in use, nor check that their workload exists",
            ]
        }
        _ => Vec::new(),
    };
    about.into_iter().map(|it| format!("this server does not {it}")).collect()
}

fn pod_security(namespace: &Value) -> Vec<String> {
    let labels = namespace.get("metadata").and_then(|it| it.get("labels"));
    let warning = |label: &&str| {
        // Everything passes at this level on kube-apiserver, too.
        let level = labels?.get(*label).and_then(Value::as_str).filter(|it| *it != "privileged")?;
        Some(format!("pod security is not enforced by this server; the label {label}={level} is only stored"))
    };
    POD_SECURITY.iter().filter_map(warning).collect()
}

fn pod(pod: &Value) -> Vec<&'static str> {
    let has = |field: &str| pod.get("spec").and_then(|it| it.get(field)).is_some_and(is_said);
    let mut about = Vec::new();
    if has("priorityClassName") || has("priority") || has("preemptionPolicy") {
        about.push("check the priority of a pod against its priority class");
    }
    if has("runtimeClassName") || has("overhead") {
        about.push("look up the runtime class of a pod, nor check its overhead");
    }
    about
}

fn default_priority(class: &Value) -> Vec<&'static str> {
    if class.get("globalDefault") == Some(&Value::Bool(true)) {
        return vec!["apply the default priority class to pods, nor see to it that there is only one"];
    }
    Vec::new()
}

fn is_tainted(node: &Value) -> bool {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    let is_it = |it: &Value| {
        it.get("key").and_then(Value::as_str) == Some("node.kubernetes.io/not-ready")
            && it.get("effect").and_then(Value::as_str) == Some("NoSchedule")
    };
    taints.is_some_and(|it| it.iter().any(is_it))
}

/// Whether a class is to be given to what names none.
fn is_default(class: &Value, annotation: &str) -> bool {
    let annotations = class.get("metadata").and_then(|it| it.get("annotations"));
    annotations.and_then(|it| it.get(annotation)).is_some_and(|it| it == "true")
}

fn is_said(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(it) => !it.is_empty(),
        Value::Object(it) => !it.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => true,
    }
}

impl Registry {
    /// The warning that a create or update of this kind carries, or the refusal.
    pub(crate) fn unenforced(&self, target: &Target) -> Result<Option<String>, Status> {
        let definition = &target.kind.definition;
        match treatment(&definition.group, &definition.resource) {
            None => Ok(None),
            Some(Treatment::Warn(what)) => {
                Ok(Some(format!("{what} by this server; the object is only stored")))
            }
            Some(Treatment::Refuse(what)) if self.config.allow_unenforced_policies => {
                Ok(Some(format!("{what} are not enforced by this server; the object is only stored")))
            }
            Some(Treatment::Refuse(what)) => {
                let why = format!(
                    "this server does not enforce {what}; start it with --allow-unenforced-policies to store them all the same"
                );
                Err(Status::forbidden(&target.kind.resource, &target.name, &why))
            }
        }
    }
}
