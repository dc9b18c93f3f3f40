//! Cases of the defaults: what was sent, and what is stored.

mod random;

use catalog::Schemas;
use schema::{check, prune};
use serde_json::json;

use super::*;

/// An object on its way through the steps of a write that look at its schema.
fn settled(release: Release, object: &Value) -> Value {
    let schemas = Schemas::new(release);
    let api_version = object["apiVersion"].as_str().expect("cases must name their version");
    let (group, version) = match api_version.split_once('/') {
        Some((group, version)) => (group, version),
        None => ("", api_version),
    };
    let kind = object["kind"].as_str().expect("cases must name their kind");
    let ty = schemas.kind(group, version, kind).expect("cases must be of known kinds");
    settle(&schemas, release, ty, object.clone())
}

fn settle(schemas: &Schemas, release: Release, ty: TypeId, object: Value) -> Value {
    let schema = schemas.schema();
    let mut object = check::check(schema, ty, object).expect("cases must fit their schema").value;
    prune::drop_empty(schema, ty, &mut object);
    Defaults::new(release, Timestamp::UNIX_EPOCH).fill(schema, ty, &mut object);
    prune::fill_always(schema, ty, &mut object);
    object
}

/// What stands in the object at a path, when all is filled in.
#[track_caller]
fn expect(object: &Value, path: &str, expected: &Value) {
    expect_in(Release::v1(36), object, path, expected);
}

#[track_caller]
fn expect_in(release: Release, object: &Value, path: &str, expected: &Value) {
    let settled = settled(release, object);
    let found = settled.pointer(path).unwrap_or(&Value::Null);
    assert_eq!(found, expected, "{path} of {settled}");
}

fn object(api_version: &str, kind: &str, spec: Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}});
    object["spec"] = spec;
    object
}

fn pod(spec: Value) -> Value {
    object("v1", "Pod", spec)
}

#[test]
fn an_ordinary_deployment_is_spelt_out() {
    let container = json!({"name": "c", "image": "nginx", "ports": [{"containerPort": 80}]});
    let template = json!({"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [container]}});
    let selector = json!({"matchLabels": {"app": "d"}});
    let deployment = object("apps/v1", "Deployment", json!({"selector": selector, "template": template}));
    let container = json!({
        "name": "c", "image": "nginx", "imagePullPolicy": "Always", "resources": {},
        "ports": [{"containerPort": 80, "protocol": "TCP"}],
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    });
    let spec = json!({
        "containers": [container], "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst", "securityContext": {}, "schedulerName": "default-scheduler",
    });
    let expected = json!({
        "replicas": 1, "selector": selector, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": spec},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
    });
    expect(&deployment, "/spec", &expected);
}

#[test]
fn the_newest_image_is_pulled_every_time() {
    let digest = format!("sha256:{}", "a1".repeat(32));
    for (image, expected) in [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("example.org:5000/team/web", "Always"),
        ("localhost/web", "Always"),
        ("[::1]:5000/web", "Always"),
        ("a__b/c-d.e", "Always"),
        (&format!("nginx:latest@{digest}"), "Always"),
        ("nginx:1.27", "IfNotPresent"),
        ("example.org:5000/web:v1", "IfNotPresent"),
        (&format!("nginx@{digest}"), "IfNotPresent"),
        ("nginx@sha256:abc", "IfNotPresent"),
        ("NGINX", "IfNotPresent"),
        ("", "IfNotPresent"),
        (" nginx", "IfNotPresent"),
        ("a..b", "IfNotPresent"),
        ("nginx:", "IfNotPresent"),
        (&"a1".repeat(32), "IfNotPresent"),
        (&"a".repeat(300), "IfNotPresent"),
    ] {
        assert_eq!(image::pull_policy(image), expected, "{image}");
    }
}

#[test]
fn only_a_pod_itself_gets_requests_and_ports_of_the_host() {
    let container = json!({
        "name": "c", "ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 82}],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
    });
    let spec = json!({"hostNetwork": true, "containers": [container]});
    let requests = json!({"cpu": "500m", "memory": "1Gi"});
    expect(&pod(spec.clone()), "/spec/containers/0/resources/requests", &requests);
    expect(&pod(spec.clone()), "/spec/containers/0/ports/0/hostPort", &json!(80));
    expect(&pod(spec.clone()), "/spec/containers/0/ports/1/hostPort", &json!(82));
    expect(&pod(spec.clone()), "/spec/enableServiceLinks", &json!(true));
    let set = object("apps/v1", "ReplicaSet", json!({"template": {"spec": spec}}));
    expect(&set, "/spec/template/spec/containers/0/resources/requests", &json!({"cpu": "500m"}));
    expect(&set, "/spec/template/spec/containers/0/ports/0/hostPort", &Value::Null);
    expect(&set, "/spec/template/spec/enableServiceLinks", &Value::Null);
}

#[test]
fn a_pod_as_a_whole_asks_for_what_its_containers_ask_for() {
    let asks = |cpu: &str, memory: &str| json!({"requests": {"cpu": cpu, "memory": memory}});
    let spec = json!({
        "resources": {"limits": {"cpu": "4", "memory": "4Gi", "hugepages-2Mi": "4Mi"}},
        "containers": [
            {"name": "a", "resources": asks("500m", "512Mi")}, {"name": "b", "resources": asks("1500m", "512Mi")},
        ],
        "initContainers": [
            {"name": "s", "restartPolicy": "Always", "resources": asks("100m", "1Gi")},
            {"name": "i", "resources": asks("3", "128Mi")},
        ],
    });
    let expected = json!({"cpu": "3100m", "memory": "2Gi", "hugepages-2Mi": "4Mi"});
    expect(&pod(spec.clone()), "/spec/resources/requests", &expected);
    // The release did not know it yet.
    expect_in(Release::v1(31), &pod(spec), "/spec/resources", &Value::Null);
}

#[test]
fn probes_and_hooks_are_spelt_out() {
    let container = json!({
        "name": "c",
        "livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": 5, "failureThreshold": 0},
        "readinessProbe": {"grpc": {"port": 81}},
        "lifecycle": {"preStop": {"httpGet": {"port": "http", "path": "/stop"}}},
        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
    });
    let pod = pod(json!({"containers": [container]}));
    let liveness = json!({
        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
        "periodSeconds": 5, "failureThreshold": 3, "timeoutSeconds": 1, "successThreshold": 1,
    });
    expect(&pod, "/spec/containers/0/livenessProbe", &liveness);
    expect(&pod, "/spec/containers/0/readinessProbe/grpc", &json!({"port": 81, "service": ""}));
    let stop = json!({"port": "http", "path": "/stop", "scheme": "HTTP"});
    expect(&pod, "/spec/containers/0/lifecycle/preStop/httpGet", &stop);
    let field = json!({"apiVersion": "v1", "fieldPath": "spec.nodeName"});
    expect(&pod, "/spec/containers/0/env/0/valueFrom/fieldRef", &field);
}

#[test]
fn volumes_are_spelt_out() {
    let token = json!({"serviceAccountToken": {"path": "token"}});
    let claim = json!({"spec": {"resources": {"requests": {"storage": "1Gi"}}}});
    let volumes = json!([
        {"name": "a"}, {"name": "b", "secret": {"secretName": "s"}}, {"name": "c", "configMap": {"name": "c"}},
        {"name": "d", "hostPath": {"path": "/d"}}, {"name": "e", "projected": {"sources": [token]}},
        {"name": "f", "ephemeral": {"volumeClaimTemplate": claim}}, {"name": "g", "emptyDir": {"medium": "Memory"}},
        {"name": "h", "iscsi": {"targetPortal": "p", "iqn": "i", "lun": 0}}, {"name": "i", "image": {"reference": "x:1"}},
    ]);
    let pod = pod(json!({"containers": [], "volumes": volumes}));
    let at = |path: &str, expected: Value| expect(&pod, &format!("/spec/volumes/{path}"), &expected);
    at("0", json!({"name": "a", "emptyDir": {}}));
    at("1/secret", json!({"secretName": "s", "defaultMode": 420}));
    at("2/configMap/defaultMode", json!(420));
    at("3/hostPath", json!({"path": "/d", "type": ""}));
    at("4/projected/defaultMode", json!(420));
    at("4/projected/sources/0/serviceAccountToken/expirationSeconds", json!(3600));
    at("5/ephemeral/volumeClaimTemplate/spec/volumeMode", json!("Filesystem"));
    at("6", json!({"name": "g", "emptyDir": {"medium": "Memory"}}));
    at("7/iscsi/iscsiInterface", json!("default"));
    at("8/image/pullPolicy", json!("IfNotPresent"));
}

#[test]
fn the_two_names_of_a_service_account_agree() {
    for (sent, account) in [
        (json!({"serviceAccountName": "a"}), "a"),
        (json!({"serviceAccount": "b"}), "b"),
        (json!({"serviceAccountName": "a", "serviceAccount": "b"}), "a"),
    ] {
        expect(&pod(sent.clone()), "/spec/serviceAccountName", &json!(account));
        expect(&pod(sent), "/spec/serviceAccount", &json!(account));
    }
}

#[test]
fn a_stateful_set_is_spelt_out_as_its_release_does() {
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}});
    let set = object("apps/v1", "StatefulSet", json!({"volumeClaimTemplates": [claim]}));
    let update = |settings: Value| json!({"type": "RollingUpdate", "rollingUpdate": settings});
    expect(&set, "/spec/updateStrategy", &update(json!({"partition": 0, "maxUnavailable": 1})));
    expect_in(Release::v1(34), &set, "/spec/updateStrategy", &update(json!({"partition": 0})));
    expect(&set, "/spec/podManagementPolicy", &json!("OrderedReady"));
    let retention = json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
    expect(&set, "/spec/persistentVolumeClaimRetentionPolicy", &retention);
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {}, "volumeMode": "Filesystem"},
        "status": {"phase": "Pending"},
    });
    expect(&set, "/spec/volumeClaimTemplates/0", &claim);
    let by_hand = object("apps/v1", "StatefulSet", json!({"updateStrategy": {"type": "OnDelete"}}));
    expect(&by_hand, "/spec/updateStrategy", &json!({"type": "OnDelete"}));
}

#[test]
fn strategies_without_settings_get_none() {
    let recreate = object("apps/v1", "Deployment", json!({"strategy": {"type": "Recreate"}}));
    expect(&recreate, "/spec/strategy", &json!({"type": "Recreate"}));
    let daemons = object("apps/v1", "DaemonSet", json!({}));
    let update = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}});
    expect(&daemons, "/spec/updateStrategy", &update);
}

#[test]
fn a_replication_controller_takes_labels_and_selector_from_its_template() {
    let template = json!({"metadata": {"labels": {"app": "a"}}});
    let controller = object("v1", "ReplicationController", json!({"template": template}));
    expect(&controller, "/spec/selector", &json!({"app": "a"}));
    expect(&controller, "/metadata/labels", &json!({"app": "a"}));
    expect(&controller, "/spec/replicas", &json!(1));
}

#[test]
fn a_job_is_spelt_out_and_one_in_a_cron_job_is_not() {
    let job = object("batch/v1", "Job", json!({"template": {"metadata": {"labels": {"a": "b"}}}}));
    for (field, expected) in [
        ("completions", json!(1)),
        ("parallelism", json!(1)),
        ("backoffLimit", json!(6)),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
        ("podReplacementPolicy", json!("TerminatingOrFailed")),
        ("manualSelector", json!(false)),
    ] {
        expect(&job, &format!("/spec/{field}"), &expected);
    }
    expect(&job, "/metadata/labels", &json!({"a": "b"}));
    let queue = object("batch/v1", "Job", json!({"parallelism": 3, "backoffLimitPerIndex": 1}));
    expect(&queue, "/spec/completions", &Value::Null);
    expect(&queue, "/spec/backoffLimit", &json!(i32::MAX));
    let cron = object("batch/v1", "CronJob", json!({"schedule": "@daily", "jobTemplate": {"spec": {}}}));
    expect(&cron, "/spec/jobTemplate/spec/backoffLimit", &Value::Null);
    expect(&cron, "/spec/jobTemplate/spec/template/spec/restartPolicy", &json!("Always"));
    expect(&cron, "/spec/concurrencyPolicy", &json!("Allow"));
    expect(&cron, "/spec/successfulJobsHistoryLimit", &json!(3));
}

#[test]
fn services_are_spelt_out_by_their_type() {
    let ports = json!([{"port": 80}, {"port": 81, "targetPort": "web", "protocol": "UDP"}]);
    let plain = object("v1", "Service", json!({"ports": ports}));
    let expected = json!({
        "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
        "ports": [
            {"port": 80, "targetPort": 80, "protocol": "TCP"}, {"port": 81, "targetPort": "web", "protocol": "UDP"},
        ],
    });
    expect(&plain, "/spec", &expected);
    let balancer = object("v1", "Service", json!({"type": "LoadBalancer", "sessionAffinity": "ClientIP"}));
    let expected = json!({
        "type": "LoadBalancer", "sessionAffinity": "ClientIP", "internalTrafficPolicy": "Cluster",
        "externalTrafficPolicy": "Cluster", "allocateLoadBalancerNodePorts": true,
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
    });
    expect(&balancer, "/spec", &expected);
    let outside = object("v1", "Service", json!({"externalIPs": ["192.0.2.1"]}));
    expect(&outside, "/spec/externalTrafficPolicy", &json!("Cluster"));
    let name = object("v1", "Service", json!({"type": "ExternalName", "externalName": "example.org"}));
    expect(&name, "/spec/internalTrafficPolicy", &Value::Null);
}

#[test]
fn autoscalers_look_at_processors_unless_told_otherwise() {
    let cpu = json!([{"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80},
    }}]);
    let two = object("autoscaling/v2", "HorizontalPodAutoscaler", json!({"maxReplicas": 3, "behavior": {}}));
    expect(&two, "/spec/metrics", &cpu);
    expect(&two, "/spec/minReplicas", &json!(1));
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let up = json!({
        "stabilizationWindowSeconds": 0, "selectPolicy": "Max",
        "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, percent],
    });
    let down = json!({"selectPolicy": "Max", "policies": [percent]});
    expect(&two, "/spec/behavior", &json!({"scaleUp": up, "scaleDown": down}));
    let mut one = object("autoscaling/v1", "HorizontalPodAutoscaler", json!({"maxReplicas": 3}));
    expect(&one, "/spec/targetCPUUtilizationPercentage", &json!(80));
    one["metadata"]["annotations"] = json!({"autoscaling.alpha.kubernetes.io/metrics": "[]"});
    expect(&one, "/spec/targetCPUUtilizationPercentage", &Value::Null);
}

#[test]
fn network_kinds_are_spelt_out() {
    let policy = |spec: Value| object("networking.k8s.io/v1", "NetworkPolicy", spec);
    expect(&policy(json!({})), "/spec/policyTypes", &json!(["Ingress"]));
    let out = policy(json!({"egress": [{"ports": [{"port": 53}]}]}));
    expect(&out, "/spec/policyTypes", &json!(["Ingress", "Egress"]));
    expect(&out, "/spec/egress/0/ports/0/protocol", &json!("TCP"));
    let parameters = json!({"kind": "P", "name": "p"});
    let class = object("networking.k8s.io/v1", "IngressClass", json!({"parameters": parameters}));
    expect(&class, "/spec/parameters/scope", &json!("Cluster"));
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": [],
        "ports": [{"port": 80}],
    });
    expect(&slice, "/ports/0", &json!({"name": "", "port": 80, "protocol": "TCP"}));
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "subsets": [{"ports": [{"port": 80}]}]});
    expect(&endpoints, "/subsets/0/ports/0/protocol", &json!("TCP"));
}

#[test]
fn storage_kinds_are_spelt_out() {
    let volume = object("v1", "PersistentVolume", json!({"hostPath": {"path": "/a"}}));
    expect(&volume, "/spec/persistentVolumeReclaimPolicy", &json!("Retain"));
    expect(&volume, "/spec/volumeMode", &json!("Filesystem"));
    expect(&volume, "/spec/hostPath/type", &json!(""));
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "p"});
    expect(&class, "/reclaimPolicy", &json!("Delete"));
    expect(&class, "/volumeBindingMode", &json!("Immediate"));
    let driver = object("storage.k8s.io/v1", "CSIDriver", json!({"attachRequired": false}));
    expect(&driver, "/spec/attachRequired", &json!(false));
    expect(&driver, "/spec/volumeLifecycleModes", &json!(["Persistent"]));
    expect(&driver, "/spec/requiresRepublish", &json!(false));
}

#[test]
fn kinds_that_rule_a_cluster_are_spelt_out() {
    let rbac = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}],
    });
    expect(&binding, "/roleRef/apiGroup", &json!(rbac));
    expect(&binding, "/subjects/0/apiGroup", &json!(rbac));
    expect(&binding, "/subjects/1/apiGroup", &Value::Null);
    let webhook = json!({
        "name": "w", "clientConfig": {"service": {"namespace": "n", "name": "s"}},
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
    });
    let hooks = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "webhooks": [webhook],
    });
    for (field, expected) in [
        ("failurePolicy", json!("Fail")),
        ("matchPolicy", json!("Equivalent")),
        ("namespaceSelector", json!({})),
        ("objectSelector", json!({})),
        ("timeoutSeconds", json!(10)),
        ("reinvocationPolicy", json!("Never")),
        ("clientConfig/service/port", json!(443)),
        ("rules/0/scope", json!("*")),
    ] {
        expect(&hooks, &format!("/webhooks/0/{field}"), &expected);
    }
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1});
    expect(&class, "/preemptionPolicy", &json!("PreemptLowerPriority"));
    let flow = object("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", json!({}));
    expect(&flow, "/spec/matchingPrecedence", &json!(1000));
    let level = json!({"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}});
    let level = object("flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration", level);
    expect(&level, "/spec/limited/nominalConcurrencyShares", &json!(30));
    let queuing = json!({"handSize": 8, "queues": 64, "queueLengthLimit": 50});
    expect(&level, "/spec/limited/limitResponse/queuing", &queuing);
    let limits = json!([{"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1", "memory": "1Gi"}}]);
    let range = object("v1", "LimitRange", json!({"limits": limits}));
    expect(&range, "/spec/limits/0/default", &json!({"cpu": "2"}));
    expect(&range, "/spec/limits/0/defaultRequest", &json!({"cpu": "2", "memory": "1Gi"}));
    expect(&json!({"apiVersion": "v1", "kind": "Secret"}), "/type", &json!("Opaque"));
}

#[test]
fn claims_of_devices_are_spelt_out_in_every_version() {
    let exact = json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}});
    let expected = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1});
    let claim = object("resource.k8s.io/v1", "ResourceClaim", exact);
    expect(&claim, "/spec/devices/requests/0/exactly", &expected);
    let older = json!({"devices": {"requests": [{"name": "r", "deviceClassName": "gpu"}]}});
    let claim = object("resource.k8s.io/v1beta1", "ResourceClaim", older);
    expect(&claim, "/spec/devices/requests/0/count", &json!(1));
    let all =
        json!({"devices": {"requests": [{"name": "r", "deviceClassName": "gpu", "allocationMode": "All"}]}});
    let claim = object("resource.k8s.io/v1beta1", "ResourceClaim", all);
    expect(&claim, "/spec/devices/requests/0/count", &Value::Null);
}
