//! Every pair of versions that a release can read: which have the same shape, and what becomes of objects in between.

mod random;

use std::collections::BTreeSet;

use catalog::{Catalog, FeatureGates, RuntimeConfig};
use meta::Release;
use schema::{check, keep};
use serde_json::json;

use super::*;
use random::Random;

/// The kinds of a release that have more than one version.
fn kinds(release: Release) -> (Schemas, Vec<(Arc<Definition>, Converter)>) {
    let all = RuntimeConfig::parse("api/all=true").unwrap();
    let catalog = Catalog::new(release, &all, &FeatureGates::defaults(release)).unwrap();
    let schemas = Schemas::new(release);
    let stored = catalog.definitions().iter().filter(|it| it.is_stored());
    let kinds = stored.map(|it| (it.clone(), Converter::new(&schemas, it)));
    (schemas.clone(), kinds.filter(|(_, it)| it.versions.len() > 1).collect())
}

/// A pair of versions of a kind, both ways.
fn pairs(converter: &Converter) -> Vec<[(Arc<str>, TypeId); 2]> {
    let versions = &converter.versions;
    let pairs =
        versions.iter().flat_map(|one| versions.iter().map(move |other| [one.clone(), other.clone()]));
    pairs.filter(|[one, other]| one.0 != other.0).collect()
}

fn made(
    schemas: &Schemas,
    definition: &Definition,
    version: &(Arc<str>, TypeId),
    random: &mut Random,
) -> Value {
    let mut object = random.value(schemas.schema(), version.1, 0);
    let map = object::as_map_mut(&mut object);
    map.insert("apiVersion".to_owned(), Value::from(&*version.0));
    map.insert("kind".to_owned(), Value::from(&*definition.kind));
    map.insert("metadata".to_owned(), json!({"name": "it", "annotations": {"a": "b"}}));
    convert::fit(schemas.schema(), version.1, &mut object);
    object
}

/// The object without anything that holds nothing: versions disagree about which of it is written.
fn bare(value: &Value) -> Value {
    let is_nothing = |it: &Value| match it {
        Value::Null => true,
        Value::Bool(it) => !it,
        Value::Number(it) => it.as_i64() == Some(0),
        Value::String(it) => it.is_empty() || it == "0",
        Value::Array(it) => it.is_empty(),
        Value::Object(it) => it.is_empty(),
    };
    match value {
        Value::Object(map) => {
            let fields = map.iter().map(|(key, it)| (key.clone(), bare(it)));
            Value::Object(fields.filter(|(_, it)| !is_nothing(it)).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(bare).collect()),
        other => other.clone(),
    }
}

#[test]
fn the_types_tell_which_versions_differ_by_more_than_their_name() {
    let mut found = BTreeSet::new();
    for minor in 33..=36 {
        let (_, kinds) = kinds(Release::v1(minor));
        for (definition, converter) in &kinds {
            for [(from, _), (to, _)] in pairs(converter) {
                if !converter.is_relabelled(&from, &to) && from < to {
                    found.insert(format!("{} {from} {to}", definition.kind));
                }
            }
        }
    }
    let found: Vec<&str> = found.iter().map(String::as_str).collect();
    assert_eq!(found, DIFFERENT);
}

/// All the others are relabelled.
const DIFFERENT: &[&str] = &[
    "DeviceClass resource.k8s.io/v1alpha3 resource.k8s.io/v1beta1",
    "DeviceClass resource.k8s.io/v1alpha3 resource.k8s.io/v1beta2",
    "DeviceTaintRule resource.k8s.io/v1alpha3 resource.k8s.io/v1beta2",
    "EndpointSlice discovery.k8s.io/v1 discovery.k8s.io/v1beta1",
    "Event events.k8s.io/v1 v1",
    "HorizontalPodAutoscaler autoscaling/v1 autoscaling/v2",
    "ResourceClaim resource.k8s.io/v1 resource.k8s.io/v1beta1",
    "ResourceClaim resource.k8s.io/v1 resource.k8s.io/v1beta2",
    "ResourceClaim resource.k8s.io/v1alpha3 resource.k8s.io/v1beta1",
    "ResourceClaim resource.k8s.io/v1alpha3 resource.k8s.io/v1beta2",
    "ResourceClaim resource.k8s.io/v1beta1 resource.k8s.io/v1beta2",
    "ResourceClaimTemplate resource.k8s.io/v1 resource.k8s.io/v1beta1",
    "ResourceClaimTemplate resource.k8s.io/v1 resource.k8s.io/v1beta2",
    "ResourceClaimTemplate resource.k8s.io/v1alpha3 resource.k8s.io/v1beta1",
    "ResourceClaimTemplate resource.k8s.io/v1alpha3 resource.k8s.io/v1beta2",
    "ResourceClaimTemplate resource.k8s.io/v1beta1 resource.k8s.io/v1beta2",
    "ResourceSlice resource.k8s.io/v1 resource.k8s.io/v1beta1",
    "ResourceSlice resource.k8s.io/v1 resource.k8s.io/v1beta2",
    "ResourceSlice resource.k8s.io/v1alpha3 resource.k8s.io/v1beta1",
    "ResourceSlice resource.k8s.io/v1alpha3 resource.k8s.io/v1beta2",
    "ResourceSlice resource.k8s.io/v1beta1 resource.k8s.io/v1beta2",
];

#[test]
fn what_went_through_another_version_comes_back() {
    for minor in 33..=36 {
        let (schemas, kinds) = kinds(Release::v1(minor));
        let mut random = Random::new(u64::from(minor), false);
        for (definition, converter) in &kinds {
            for [from, to] in pairs(converter) {
                for _ in 0..20 {
                    let object = made(&schemas, definition, &from, &mut random);
                    let there = converter.convert(object.clone(), &to.0);
                    assert_eq!(object::api_version(&there), &*to.0);
                    let checked = check::check(schemas.schema(), to.1, there.clone()).unwrap();
                    assert_eq!(
                        (checked.unknown, bare(&checked.value)),
                        (Vec::new(), bare(&there)),
                        "{object}"
                    );
                    let back = converter.convert(there.clone(), &from.0);
                    if &*definition.kind != "HorizontalPodAutoscaler" {
                        assert_eq!(bare(&back), bare(&object), "{} {} {}", definition.kind, from.0, to.0);
                    }
                    // What is lost is lost at once: a second trip changes nothing.
                    let again = converter.convert(back.clone(), &to.0);
                    assert_eq!(converter.convert(again, &from.0), back, "{} {}", from.0, to.0);
                }
            }
        }
    }
}

#[test]
fn an_older_client_of_another_version_strips_nothing() {
    for minor in 33..=36 {
        let (schemas, kinds) = kinds(Release::v1(minor));
        let schema = schemas.schema();
        let mut random = Random::new(u64::from(minor), true);
        for (definition, converter) in &kinds {
            if &*definition.kind == "HorizontalPodAutoscaler" {
                continue;
            }
            for [stored, client] in pairs(converter) {
                for _ in 0..20 {
                    let object = made(&schemas, definition, &stored, &mut random);
                    let seen = converter.convert(object.clone(), &client.0);
                    let mut put = check::check(schema, client.1, seen.clone()).unwrap().value;
                    convert::fit(schema, client.1, &mut put);
                    keep::keep_unknown(schema, client.1, &mut put, &seen);
                    let mut back = converter.convert(put, &stored.0);
                    keep::keep_unknown(schema, stored.1, &mut back, &object);
                    assert_eq!(
                        bare(&back),
                        bare(&object),
                        "{} {} {} in 1.{minor}",
                        definition.kind,
                        stored.0,
                        client.0
                    );
                }
            }
        }
    }
}

#[test]
fn conversions_survive_anything() {
    let (_, kinds) = kinds(Release::v1(36));
    let odd =
        [json!(null), json!([]), json!("text"), json!({"spec": []}), json!({"spec": {"metrics": {"a": 1}}})];
    for (_, converter) in &kinds {
        for [(from, _), (to, _)] in pairs(converter) {
            for object in &odd {
                let mut object = object.clone();
                object::as_map_mut(&mut object).insert("apiVersion".to_owned(), Value::from(&*from));
                let there = converter.convert(object, &to);
                assert_eq!(object::api_version(&there), &*to);
            }
        }
    }
}

fn converter(group: &str, kind: &str) -> Converter {
    let (_, kinds) = kinds(Release::v1(36));
    let is_it = |it: &Definition| &*it.group == group && &*it.kind == kind;
    kinds.into_iter().find(|(it, _)| is_it(it)).unwrap().1
}

/// One object in two versions, and no other way from the one to the other.
#[track_caller]
fn check_both(converter: &Converter, one: &Value, other: &Value) {
    assert_eq!(converter.convert(one.clone(), object::api_version(other)), *other);
    assert_eq!(converter.convert(other.clone(), object::api_version(one)), *one);
}

#[test]
fn an_event_has_two_sets_of_names() {
    let reference = json!({"kind": "Pod", "name": "p"});
    let core = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": reference, "reason": "Why",
        "message": "what", "source": {"component": "c"}, "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-02T00:00:00Z", "count": 3, "type": "Normal", "eventTime": "2026-01-01T00:00:00.000000Z",
        "series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}, "action": "Do",
        "related": reference, "reportingComponent": "r", "reportingInstance": "i",
    });
    let grouped = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "regarding": reference,
        "reason": "Why", "note": "what", "deprecatedSource": {"component": "c"},
        "deprecatedFirstTimestamp": "2026-01-01T00:00:00Z", "deprecatedLastTimestamp": "2026-01-02T00:00:00Z",
        "deprecatedCount": 3, "type": "Normal", "eventTime": "2026-01-01T00:00:00.000000Z",
        "series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}, "action": "Do",
        "related": reference, "reportingController": "r", "reportingInstance": "i",
    });
    for group in ["", "events.k8s.io"] {
        check_both(&converter(group, "Event"), &core, &grouped);
    }
}

#[test]
fn a_request_for_devices_says_exactly_what_it_wants() {
    let claim = |version: &str, requests: Value| {
        let spec = json!({"devices": {"requests": requests}});
        json!({"apiVersion": version, "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": spec, "status": {}})
    };
    let exactly = json!({"deviceClassName": "gpu", "count": 2, "allocationMode": "ExactCount"});
    let first = json!([{"name": "s", "deviceClassName": "big", "count": 1}]);
    let new = json!([{"name": "a", "exactly": exactly}, {"name": "b", "firstAvailable": first}]);
    let old = json!([
        {"name": "a", "deviceClassName": "gpu", "count": 2, "allocationMode": "ExactCount"},
        {"name": "b", "deviceClassName": "", "firstAvailable": first},
    ]);
    let converter = converter("resource.k8s.io", "ResourceClaim");
    for hub in ["resource.k8s.io/v1", "resource.k8s.io/v1beta2"] {
        check_both(&converter, &claim(hub, new.clone()), &claim("resource.k8s.io/v1beta1", old.clone()));
    }
}

#[test]
fn a_device_was_basic_once() {
    let slice = |version: &str, device: Value| {
        let spec = json!({"driver": "d", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [device]});
        json!({"apiVersion": version, "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec})
    };
    let facts =
        json!({"attributes": {"a": {"int": 1}}, "capacity": {"memory": {"value": "1Gi"}}, "allNodes": true});
    let mut new = facts.clone();
    new["name"] = json!("gpu");
    let old = json!({"name": "gpu", "basic": facts});
    let converter = converter("resource.k8s.io", "ResourceSlice");
    check_both(&converter, &slice("resource.k8s.io/v1", new), &slice("resource.k8s.io/v1beta1", old));
}

fn autoscaler(version: &str, spec: &Value, status: &Value, annotations: &Value) -> Value {
    let mut spec = spec.clone();
    spec["maxReplicas"] = json!(5);
    spec["scaleTargetRef"] = json!({"kind": "Deployment", "name": "d"});
    let mut metadata = json!({"name": "h"});
    if *annotations != json!({}) {
        metadata["annotations"] = annotations.clone();
    }
    let kind = "HorizontalPodAutoscaler";
    json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec, "status": status})
}

#[test]
fn an_autoscaler_of_v1_keeps_in_annotations_what_it_cannot_hold() {
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}});
    let metrics = json!([
        {"type": "Object", "object": {
            "describedObject": {"kind": "Ingress", "name": "i", "apiVersion": "networking.k8s.io/v1"},
            "metric": {"name": "hits", "selector": {"matchLabels": {"type": "x", "a": "<b>"}}},
            "target": {"type": "Value", "value": "10"}}},
        {"type": "Pods", "pods": {"metric": {"name": "load"}, "target": {"type": "AverageValue", "averageValue": "500m"}}},
        {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c",
            "target": {"type": "Utilization", "averageUtilization": 70}}},
        {"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "30"}}},
        cpu,
    ]);
    let behavior = json!({"scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max",
        "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]}});
    let current = json!([{"type": "Resource", "resource": {"name": "cpu",
        "current": {"averageUtilization": 40, "averageValue": "200m"}}}]);
    let conditions = json!([{"type": "AbleToScale", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z",
        "reason": "R", "message": "m"}]);
    let spec = json!({"metrics": metrics, "behavior": behavior, "minReplicas": 1});
    let status = json!({"currentReplicas": 2, "desiredReplicas": 3, "currentMetrics": current, "conditions": conditions});
    let v2 = autoscaler("autoscaling/v2", &spec, &status, &json!({}));
    let v1 = autoscaler(
        "autoscaling/v1",
        &json!({"minReplicas": 1, "targetCPUUtilizationPercentage": 50}),
        &json!({"currentReplicas": 2, "desiredReplicas": 3, "currentCPUUtilizationPercentage": 40}),
        &json!({
            METRICS: r#"[{"type":"Object","object":{"target":{"kind":"Ingress","name":"i","apiVersion":"networking.k8s.io/v1"},"metricName":"hits","targetValue":"10","selector":{"matchLabels":{"a":"\u003cb\u003e","type":"x"}}}},{"type":"Pods","pods":{"metricName":"load","targetAverageValue":"500m"}},{"type":"ContainerResource","containerResource":{"name":"cpu","targetAverageUtilization":70,"container":"c"}},{"type":"External","external":{"metricName":"queue","targetAverageValue":"30"}}]"#,
            BEHAVIOR: r#"{"ScaleUp":{"StabilizationWindowSeconds":0,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":15}],"Tolerance":null},"ScaleDown":null}"#,
            CURRENT_METRICS: r#"[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":40,"currentAverageValue":"200m"}}]"#,
            CONDITIONS: r#"[{"type":"AbleToScale","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"R","message":"m"}]"#,
        }),
    );
    check_both(&converter("autoscaling", "HorizontalPodAutoscaler"), &v2, &v1);
}

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";

#[test]
fn an_autoscaler_of_v1_without_metrics_watches_the_cpu() {
    let v1 = autoscaler(
        "autoscaling/v1",
        &json!({}),
        &json!({}),
        &json!({METRICS: "not json", BEHAVIOR: "[1]", "a": "b"}),
    );
    let v2 = converter("autoscaling", "HorizontalPodAutoscaler").convert(v1, "autoscaling/v2");
    let target = json!({"type": "Utilization", "averageUtilization": 80});
    assert_eq!(
        v2["spec"]["metrics"],
        json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}])
    );
    assert_eq!(v2["metadata"]["annotations"], json!({"a": "b"}));
    assert!(v2["spec"].get("behavior").is_none());
}
