//! The kinds that make Pods, and autoscalers.

use meta::{Map, Release, Value};
use serde_json::json;

use super::{Structure, put};

/// The release from which a StatefulSet says how many of its Pods may be missing during an update.
const MAX_UNAVAILABLE_OF_STATEFUL_SETS: Release = Release::v1(35);
/// Where `autoscaling/v1` keeps the metrics that it has no field for.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
/// How busy an autoscaler keeps processors if nobody says what it should look at.
const TARGET_UTILIZATION: i64 = 80;

pub(super) fn fill_core(name: &str, it: &mut Structure<'_>) {
    match name {
        "v1.ReplicationController" => replication_controller(it),
        "v1.ReplicationControllerSpec" => it.set("replicas", 1),
        _ => {}
    }
}

pub(super) fn fill_apps(name: &str, release: Release, it: &mut Structure<'_>) {
    match name {
        "v1.DeploymentSpec" => {
            it.set("replicas", 1);
            it.set("revisionHistoryLimit", 10);
            it.set("progressDeadlineSeconds", 600);
        }
        "v1.DeploymentStrategy" => {
            if let Some(rolling) = rolling_update(it) {
                put(rolling, "maxUnavailable", "25%");
                put(rolling, "maxSurge", "25%");
            }
        }
        "v1.ReplicaSetSpec" => it.set("replicas", 1),
        "v1.DaemonSetSpec" => it.set("revisionHistoryLimit", 10),
        "v1.DaemonSetUpdateStrategy" => {
            if let Some(rolling) = rolling_update(it) {
                put(rolling, "maxUnavailable", 1);
                put(rolling, "maxSurge", 0);
            }
        }
        "v1.StatefulSetSpec" => stateful_set(it),
        "v1.StatefulSetUpdateStrategy" => stateful_set_update(it, release),
        "v1.StatefulSetPersistentVolumeClaimRetentionPolicy" => {
            it.set("whenDeleted", "Retain");
            it.set("whenScaled", "Retain");
        }
        _ => {}
    }
}

pub(super) fn fill_batch(name: &str, it: &mut Structure<'_>) {
    match name {
        "v1.Job" => job(it),
        "v1.CronJobSpec" => {
            it.set("concurrencyPolicy", "Allow");
            it.set("suspend", false);
            it.set("successfulJobsHistoryLimit", 3);
            it.set("failedJobsHistoryLimit", 1);
        }
        "v1.PodFailurePolicyOnPodConditionsPattern" => it.set("status", "True"),
        _ => {}
    }
}

pub(super) fn fill_autoscaling(name: &str, it: &mut Structure<'_>) {
    match name {
        "v1.HorizontalPodAutoscaler" => {
            let annotations = it.map.get("metadata").and_then(|it| it.get("annotations"));
            let has_metrics = annotations.and_then(|it| it.get(METRICS)).is_some_and(|it| it != "");
            let Some(spec) = it.made("spec") else { return };
            put(spec, "minReplicas", 1);
            if !has_metrics {
                put(spec, "targetCPUUtilizationPercentage", TARGET_UTILIZATION);
            }
        }
        "v2.HorizontalPodAutoscalerSpec" => {
            it.set("minReplicas", 1);
            let target = json!({"type": "Utilization", "averageUtilization": TARGET_UTILIZATION});
            it.set("metrics", json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]));
        }
        "v2.HorizontalPodAutoscalerBehavior" => behavior(it),
        _ => {}
    }
}

/// A rolling update is what a strategy is if it says nothing, and then it has settings.
fn rolling_update<'a>(it: &'a mut Structure<'_>) -> Option<&'a mut Map> {
    it.set("type", "RollingUpdate");
    if it.text("type") == "RollingUpdate" { it.made("rollingUpdate") } else { None }
}

fn stateful_set(it: &mut Structure<'_>) {
    it.set("podManagementPolicy", "OrderedReady");
    it.set("replicas", 1);
    it.set("revisionHistoryLimit", 10);
    it.set_empty("persistentVolumeClaimRetentionPolicy");
    for claim in super::each(it.map, "volumeClaimTemplates") {
        // They are whole objects, and are always shown as such.
        claim.insert("apiVersion".to_owned(), Value::from("v1"));
        claim.insert("kind".to_owned(), Value::from("PersistentVolumeClaim"));
    }
}

fn stateful_set_update(it: &mut Structure<'_>, release: Release) {
    if it.is_unset("type") {
        it.set("type", "RollingUpdate");
        it.set_empty("rollingUpdate");
    }
    if it.text("type") == "RollingUpdate"
        && let Some(rolling) = it.child("rollingUpdate")
    {
        put(rolling, "partition", 0);
        if release >= MAX_UNAVAILABLE_OF_STATEFUL_SETS {
            put(rolling, "maxUnavailable", 1);
        }
    }
}

fn replication_controller(it: &mut Structure<'_>) {
    let Some(labels) = template_labels(it.map) else { return };
    if let Some(spec) = it.child("spec") {
        put_if_empty(spec, "selector", &labels);
    }
    if let Some(metadata) = it.made("metadata") {
        put_if_empty(metadata, "labels", &labels);
    }
}

/// Only of a Job itself: in the template of a CronJob these fields stay open.
fn job(it: &mut Structure<'_>) {
    if let Some(labels) = template_labels(it.map)
        && let Some(metadata) = it.made("metadata")
    {
        put_if_empty(metadata, "labels", &labels);
    }
    let Some(spec) = it.made("spec") else { return };
    if !has(spec, "completions") && !has(spec, "parallelism") {
        put(spec, "completions", 1);
    }
    put(spec, "parallelism", 1);
    let backoff = if has(spec, "backoffLimitPerIndex") { i64::from(i32::MAX) } else { 6 };
    put(spec, "backoffLimit", backoff);
    put(spec, "completionMode", "NonIndexed");
    put(spec, "suspend", false);
    let replacement = if has(spec, "podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    put(spec, "podReplacementPolicy", replacement);
    put(spec, "manualSelector", false);
}

/// Who says something about the pace of an autoscaler has everything about it spelt out.
fn behavior(it: &mut Structure<'_>) {
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    if let Some(up) = it.made("scaleUp") {
        put(up, "stabilizationWindowSeconds", 0);
        put(up, "selectPolicy", "Max");
        put(up, "policies", json!([{"type": "Pods", "value": 4, "periodSeconds": 15}, percent]));
    }
    if let Some(down) = it.made("scaleDown") {
        put(down, "selectPolicy", "Max");
        put(down, "policies", json!([percent]));
    }
}

fn template_labels(object: &Map) -> Option<Map> {
    let labels = object.get("spec")?.get("template")?.get("metadata")?.get("labels")?.as_object()?;
    (!labels.is_empty()).then(|| labels.clone())
}

fn put_if_empty(map: &mut Map, field: &str, value: &Map) {
    if map.get(field).is_none_or(|it| it.is_null() || it.as_object().is_some_and(Map::is_empty)) {
        map.insert(field.to_owned(), Value::Object(value.clone()));
    }
}

fn has(map: &Map, field: &str) -> bool {
    map.get(field).is_some_and(|it| !it.is_null())
}
