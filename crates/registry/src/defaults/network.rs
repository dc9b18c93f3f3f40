//! Services, endpoints, Ingress classes and network policies.
//!
//! Addresses of Services are not defaults: they are given out when a Service is made.

use meta::Value;
use serde_json::json;

use super::{Structure, each, put, text};

/// How long a client stays with a Pod that it was sent to.
const AFFINITY_SECONDS: i64 = 10_800;

pub(super) fn fill_core(name: &str, it: &mut Structure<'_>) {
    match name {
        "v1.Service" => service_status(it),
        "v1.ServiceSpec" => service(it),
        "v1.ServicePort" => target_port(it),
        "v1.EndpointPort" => it.set("protocol", "TCP"),
        _ => {}
    }
}

pub(super) fn fill(name: &str, it: &mut Structure<'_>) {
    match name {
        "v1.EndpointPort" | "v1beta1.EndpointPort" => {
            it.set("name", "");
            it.set("protocol", "TCP");
        }
        "v1.IngressClassParametersReference" => it.set("scope", "Cluster"),
        "v1.NetworkPolicyPort" => it.set("protocol", "TCP"),
        "v1.NetworkPolicySpec" => {
            let has_egress = it.map.get("egress").and_then(Value::as_array).is_some_and(|it| !it.is_empty());
            it.set("policyTypes", if has_egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
        }
        _ => {}
    }
}

fn service(it: &mut Structure<'_>) {
    it.set("sessionAffinity", "None");
    match it.text("sessionAffinity") {
        "None" => {
            it.map.remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let config = it.map.get("sessionAffinityConfig").and_then(|it| it.get("clientIP"));
            let seconds = config.and_then(|it| it.get("timeoutSeconds")).filter(|it| !it.is_null());
            if seconds.is_none() {
                let config = json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}});
                it.map.insert("sessionAffinityConfig".to_owned(), config);
            }
        }
        _ => {}
    }
    it.set("type", "ClusterIP");
    let has_addresses = it.map.get("externalIPs").and_then(Value::as_array).is_some_and(|it| !it.is_empty());
    let (is_internal, is_external) = match it.text("type") {
        "ClusterIP" => (true, has_addresses),
        "NodePort" | "LoadBalancer" => (true, true),
        _ => (false, false),
    };
    if is_external {
        it.set("externalTrafficPolicy", "Cluster");
    }
    if is_internal {
        it.set("internalTrafficPolicy", "Cluster");
    }
    if it.text("type") == "LoadBalancer" {
        it.set("allocateLoadBalancerNodePorts", true);
    }
}

fn target_port(it: &mut Structure<'_>) {
    let port = it.map.get("port").and_then(Value::as_i64).unwrap_or_default();
    it.set("targetPort", port);
}

fn service_status(it: &mut Structure<'_>) {
    let is_balanced = it.map.get("spec").and_then(|it| it.get("type")).is_some_and(|it| it == "LoadBalancer");
    let balancer =
        it.child("status").and_then(|it| it.get_mut("loadBalancer")).and_then(Value::as_object_mut);
    let Some(balancer) = balancer.filter(|_| is_balanced) else { return };
    for ingress in each(balancer, "ingress").filter(|it| !text(it, "ip").is_empty()) {
        put(ingress, "ipMode", "VIP");
    }
}
