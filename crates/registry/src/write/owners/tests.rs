//! Who owns what of built-in objects, as kube-apiserver 1.36 says it of the same objects.

use catalog::{LAST_RELEASE, Schemas};
use schema::apply::{self, FieldSet, Request, TypeRef, Versions};
use serde_json::{Value, json};

struct OneVersion {
    schemas: Schemas,
    api_version: &'static str,
    kind: &'static str,
}

impl Versions for OneVersion {
    fn type_of(&self, api_version: &str) -> Option<TypeRef<'_>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let ty = self.schemas.kind(group, version, self.kind)?;
        Some(TypeRef { schema: self.schemas.schema(), ty })
    }

    fn convert(&self, object: &Value, _: &str) -> Result<Value, String> {
        Ok(object.clone())
    }
}

impl OneVersion {
    fn new(api_version: &'static str, kind: &'static str) -> Self {
        Self { schemas: Schemas::new(LAST_RELEASE), api_version, kind }
    }

    fn with<T>(&self, write: impl FnOnce(&Request<'_>) -> T) -> T {
        write(&Request {
            versions: self,
            api_version: self.api_version,
            subresource: "",
            manager: "m",
            ignored: &FieldSet::of_fields(&[&["status"]]),
            now: "2026-01-01T00:00:00Z",
        })
    }

    /// What the maker of an object owns.
    fn made(&self, mut object: Value) -> Value {
        let TypeRef { schema, ty } = self.type_of(self.api_version).unwrap();
        let nothing = apply::blank(schema, ty);
        self.with(|request| apply::update(request, &nothing, &mut object)).unwrap();
        object["metadata"]["managedFields"][0]["fieldsV1"].clone()
    }
}

#[test]
fn the_maker_of_a_deployment_owns_what_was_set_and_defaulted() {
    let container = json!({
        "name": "c", "image": "nginx", "ports": [{"containerPort": 80, "protocol": "TCP"}], "resources": {},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always"
    });
    let pod = json!({
        "containers": [container], "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst", "securityContext": {}, "schedulerName": "default-scheduler"
    });
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "n", "uid": "u", "generation": 1, "labels": {"app": "d"}},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "d"}},
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": pod},
            "strategy": {
                "type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}
            },
            "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600
        },
        "status": {}
    });
    let labels = json!({"f:labels": {".": {}, "f:app": {}}});
    let port = json!({".": {}, "f:containerPort": {}, "f:protocol": {}});
    let container = json!({
        ".": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {},
        "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": port},
        "f:resources": {}, "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {}
    });
    let pod = json!({
        "f:containers": {"k:{\"name\":\"c\"}": container},
        "f:dnsPolicy": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {},
        "f:terminationGracePeriodSeconds": {}
    });
    assert_eq!(
        OneVersion::new("apps/v1", "Deployment").made(object),
        json!({
            "f:metadata": labels,
            "f:spec": {
                "f:progressDeadlineSeconds": {}, "f:replicas": {}, "f:revisionHistoryLimit": {}, "f:selector": {},
                "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}, "f:maxUnavailable": {}}, "f:type": {}},
                "f:template": {"f:metadata": labels, "f:spec": pod}
            }
        })
    );
}

#[test]
fn the_maker_of_an_autoscaler_owns_its_metrics_as_a_whole() {
    let target = json!({"type": "Utilization", "averageUtilization": 50});
    let object = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
            "minReplicas": 1, "maxReplicas": 5,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
        },
        "status": {"desiredReplicas": 0, "currentMetrics": null}
    });
    assert_eq!(
        OneVersion::new("autoscaling/v2", "HorizontalPodAutoscaler").made(object),
        json!({"f:spec": {
            "f:maxReplicas": {}, "f:metrics": {}, "f:minReplicas": {},
            "f:scaleTargetRef": {"f:apiVersion": {}, "f:kind": {}, "f:name": {}}
        }})
    );
}

#[test]
fn the_maker_of_a_custom_kind_owns_its_versions_as_a_whole() {
    let names = json!({"plural": "flips", "singular": "flip", "kind": "Flip", "listKind": "FlipList"});
    let object = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "flips.diff.example"},
        "spec": {
            "group": "diff.example", "names": names, "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true}], "conversion": {"strategy": "None"}
        }
    });
    assert_eq!(
        OneVersion::new("apiextensions.k8s.io/v1", "CustomResourceDefinition").made(object),
        json!({"f:spec": {
            "f:conversion": {".": {}, "f:strategy": {}}, "f:group": {},
            "f:names": {"f:kind": {}, "f:listKind": {}, "f:plural": {}, "f:singular": {}},
            "f:scope": {}, "f:versions": {}
        }})
    );
}

#[test]
fn every_builtin_kind_can_be_blank_and_applied_to_itself() {
    for (api_version, kind) in [
        ("v1", "Pod"),
        ("v1", "Service"),
        ("v1", "ConfigMap"),
        ("v1", "Secret"),
        ("v1", "Node"),
        ("v1", "Event"),
        ("apps/v1", "StatefulSet"),
        ("batch/v1", "CronJob"),
        ("networking.k8s.io/v1", "Ingress"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ] {
        let versions = OneVersion::new(api_version, kind);
        let TypeRef { schema, ty } = versions.type_of(api_version).unwrap();
        let mut nothing = apply::blank(schema, ty);
        nothing["apiVersion"] = json!(api_version);
        nothing["kind"] = json!(kind);
        let applied = versions.with(|request| apply::apply(request, &nothing, &nothing, false)).unwrap();
        let again = versions.with(|request| apply::apply(request, &applied, &nothing, false)).unwrap();
        assert_eq!(again, applied, "{kind}");
    }
}

/// Printed, not asserted: `cargo test -p registry --release -- --nocapture cost_of`.
#[test]
fn the_cost_of_an_apply_is_printed() {
    let env: Vec<Value> =
        (0..30).map(|it| json!({"name": format!("VARIABLE_{it}"), "value": "x".repeat(20)})).collect();
    let pod =
        json!({"containers": [{"name": "c", "image": "nginx", "env": env}, {"name": "d", "image": "nginx"}]});
    let config = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "d"}},
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": pod}
        }
    });
    let versions = OneVersion::new("apps/v1", "Deployment");
    let nothing = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}});
    let live = versions.with(|request| apply::apply(request, &nothing, &config, false)).unwrap();
    let size = live.to_string().len();
    let clock = store::SystemClock::new();
    let start = store::Clock::monotonic(&clock);
    let n_runs = 50;
    for _ in 0..n_runs {
        versions.with(|request| apply::apply(request, &live, &config, false)).unwrap();
    }
    let taken = (store::Clock::monotonic(&clock) - start).as_micros() / n_runs;
    println!("apply of an object of {size} bytes with its managedFields: {taken} µs");
}
