//! Pods and what they are made of: containers, probes, volumes.
//!
//! Most of it holds for the templates of workloads too. What only a Pod gets (requests from limits, ports on the host)
//! is in [`pod`]: upstream keeps it out of templates, so that templates do not change when a release adds a default.

use meta::{Map, Value};

use super::{Structure, complete, each, image, put, resources};

/// The permissions of files made from Secrets and the like.
const FILE_MODE: i64 = 0o644;

pub(super) fn fill(name: &str, it: &mut Structure<'_>) {
    match name {
        "v1.Pod" => pod(it),
        "v1.PodSpec" => spec(it),
        "v1.Container" | "v1.EphemeralContainer" => {
            let policy = image::pull_policy(it.text("image"));
            it.set("imagePullPolicy", policy);
            it.set("terminationMessagePath", "/dev/termination-log");
            it.set("terminationMessagePolicy", "File");
        }
        "v1.Probe" => {
            it.set("timeoutSeconds", 1);
            it.set("periodSeconds", 10);
            it.set("successThreshold", 1);
            it.set("failureThreshold", 3);
        }
        "v1.HTTPGetAction" => {
            it.set("path", "/");
            it.set("scheme", "HTTP");
        }
        "v1.GRPCAction" => it.set("service", ""),
        "v1.ObjectFieldSelector" => it.set("apiVersion", "v1"),
        "v1.FileKeySelector" => it.set("optional", false),
        "v1.Volume" => volume(it),
        "v1.SecretVolumeSource"
        | "v1.ConfigMapVolumeSource"
        | "v1.DownwardAPIVolumeSource"
        | "v1.ProjectedVolumeSource" => it.set("defaultMode", FILE_MODE),
        "v1.ServiceAccountTokenProjection" => it.set("expirationSeconds", 3600),
        "v1.HostPathVolumeSource" => it.set("type", ""),
        "v1.ImageVolumeSource" => {
            let policy = image::pull_policy(it.text("reference"));
            it.set("pullPolicy", policy);
        }
        _ => {}
    }
}

fn spec(it: &mut Structure<'_>) {
    it.set("dnsPolicy", "ClusterFirst");
    it.set("restartPolicy", "Always");
    it.set_empty("securityContext");
    it.set("terminationGracePeriodSeconds", 30);
    it.set("schedulerName", "default-scheduler");
    // One thing with two names: the older one follows, and counts only where it stands alone.
    let account = match (it.text("serviceAccountName"), it.text("serviceAccount")) {
        ("", "") => return,
        ("", old) => old.to_owned(),
        (new, _) => new.to_owned(),
    };
    it.map.insert("serviceAccountName".to_owned(), Value::from(account.clone()));
    it.map.insert("serviceAccount".to_owned(), Value::from(account));
}

fn volume(it: &mut Structure<'_>) {
    // Whatever is there besides the name says where the volume comes from, in any release.
    let has_source = it.map.iter().any(|(field, value)| field != "name" && !value.is_null());
    if !has_source {
        it.set_empty("emptyDir");
    }
}

fn pod(it: &mut Structure<'_>) {
    let Some(spec) = it.made("spec") else { return };
    put(spec, "enableServiceLinks", true);
    for list in ["containers", "initContainers"] {
        each(spec, list).for_each(request_limits);
    }
    resources::fill_pod_level(spec);
    if spec.get("hostNetwork").and_then(Value::as_bool) == Some(true) {
        for list in ["containers", "initContainers"] {
            each(spec, list).for_each(open_host_ports);
        }
    }
}

/// Who limits a resource and does not say how much of it is needed needs all of it.
fn request_limits(container: &mut Map) {
    let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) else { return };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    put(resources, "requests", Map::new());
    if let Some(requests) = resources.get_mut("requests").and_then(Value::as_object_mut) {
        complete(requests, &limits);
    }
}

/// In the host's network a container's port is a port of the host.
fn open_host_ports(container: &mut Map) {
    for port in each(container, "ports") {
        let number = port.get("containerPort").and_then(Value::as_i64).unwrap_or_default();
        if number != 0 && port.get("hostPort").and_then(Value::as_i64).unwrap_or_default() == 0 {
            port.insert("hostPort".to_owned(), Value::from(number));
        }
    }
}
