//! Kinds that rule a cluster: rights, webhooks and policies, priorities, limits, nodes.

use meta::{Map, Value};

use super::{Structure, complete};

const RBAC: &str = "rbac.authorization.k8s.io";

pub(super) fn fill_core(name: &str, it: &mut Structure<'_>) {
    match name {
        "v1.Secret" => it.set("type", "Opaque"),
        "v1.LimitRangeItem" if it.text("type") == "Container" => container_limits(it.map),
        "v1.NodeStatus" => {
            let capacity =
                it.map.get("capacity").filter(|it| it.as_object().is_some_and(|it| !it.is_empty()));
            if let Some(capacity) = capacity.cloned() {
                it.set("allocatable", capacity);
            }
        }
        _ => {}
    }
}

pub(super) fn fill(group: &str, name: &str, it: &mut Structure<'_>) {
    match group {
        "admissionregistration" => admission(name, it),
        "authentication" if name == "v1.TokenRequestSpec" => it.set("expirationSeconds", 3600),
        "certificates" if name.ends_with(".PodCertificateRequestSpec") => {
            it.set("maxExpirationSeconds", 86_400)
        }
        "flowcontrol" => flow_control(name, it),
        "rbac" => rights(name, it),
        "scheduling" if name == "v1.PriorityClass" => it.set("preemptionPolicy", "PreemptLowerPriority"),
        _ => {}
    }
}

fn admission(name: &str, it: &mut Structure<'_>) {
    let Some((version, name)) = name.split_once('.') else { return };
    match name {
        "ValidatingWebhook" | "MutatingWebhook" => {
            it.set("failurePolicy", "Fail");
            matching(it);
            it.set("timeoutSeconds", 10);
            it.set("reinvocationPolicy", "Never");
        }
        "ValidatingAdmissionPolicySpec" | "MutatingAdmissionPolicySpec" => it.set("failurePolicy", "Fail"),
        "MatchResources" => matching(it),
        "ParamRef" if version == "v1alpha1" => it.set("parameterNotFoundAction", "Deny"),
        "RuleWithOperations" | "NamedRuleWithOperations" => it.set("scope", "*"),
        "ServiceReference" => it.set("port", 443),
        _ => {}
    }
}

fn matching(it: &mut Structure<'_>) {
    it.set("matchPolicy", "Equivalent");
    it.set_empty("namespaceSelector");
    it.set_empty("objectSelector");
}

fn flow_control(name: &str, it: &mut Structure<'_>) {
    let Some((_, name)) = name.split_once('.') else { return };
    match name {
        "FlowSchemaSpec" => it.set("matchingPrecedence", 1000),
        "ExemptPriorityLevelConfiguration" => {
            it.set("nominalConcurrencyShares", 0);
            it.set("lendablePercent", 0);
        }
        "LimitedPriorityLevelConfiguration" => {
            it.set("nominalConcurrencyShares", 30);
            it.set("lendablePercent", 0);
        }
        "QueuingConfiguration" => {
            it.set("handSize", 8);
            it.set("queues", 64);
            it.set("queueLengthLimit", 50);
        }
        _ => {}
    }
}

fn rights(name: &str, it: &mut Structure<'_>) {
    match name {
        "v1.RoleRef" => it.set("apiGroup", RBAC),
        "v1.Subject" if matches!(it.text("kind"), "User" | "Group") => it.set("apiGroup", RBAC),
        _ => {}
    }
}

/// What a container gets is what it may have at most, and what it asks for is that, or at least the least.
fn container_limits(item: &mut Map) {
    let read =
        |item: &Map, field: &str| item.get(field).and_then(Value::as_object).cloned().unwrap_or_default();
    let mut limits = read(item, "default");
    complete(&mut limits, &read(item, "max"));
    let mut requests = read(item, "defaultRequest");
    complete(&mut requests, &limits);
    complete(&mut requests, &read(item, "min"));
    for (field, value) in [("default", limits), ("defaultRequest", requests)] {
        if !value.is_empty() {
            item.insert(field.to_owned(), Value::Object(value));
        }
    }
}
