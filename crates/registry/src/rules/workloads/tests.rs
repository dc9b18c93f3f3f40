//! Cases of the rules of workloads.

use meta::Value;
use serde_json::json;

use crate::rules::testing::{expect_changed, expect_new};

const DEPLOYMENTS: &str = "apps/v1/deployments";

fn template() -> Value {
    let container = json!({
        "name": "c", "image": "nginx", "imagePullPolicy": "Always", "terminationMessagePolicy": "File",
    });
    let spec = json!({"containers": [container], "restartPolicy": "Always", "dnsPolicy": "ClusterFirst"});
    json!({"metadata": {"labels": {"app": "d"}}, "spec": spec})
}

fn deployment() -> Value {
    json!({"spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "d"}},
        "template": template(),
        "strategy": {"type": "RollingUpdate"},
    }})
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').expect("a path must have a last part");
    object.pointer_mut(parent).expect("the parent must be there")[field] = value;
    object
}

#[test]
fn ordinary_workloads_pass() {
    expect_new(DEPLOYMENTS, &deployment(), &[]);
    expect_new("apps/v1/replicasets", &deployment(), &[]);
    expect_new("apps/v1/daemonsets", &deployment(), &[]);
    let stateful = with(deployment(), "/spec/podManagementPolicy", json!("Parallel"));
    expect_new("apps/v1/statefulsets", &stateful, &[]);
    let controller = with(deployment(), "/spec/selector", json!({"app": "d"}));
    expect_new("v1/replicationcontrollers", &controller, &[]);
    let job = with(deployment(), "/spec/template/spec/restartPolicy", json!("Never"));
    expect_new("batch/v1/jobs", &job, &[]);
    let cron = json!({"spec": {"schedule": "* * * * *", "concurrencyPolicy": "Allow", "jobTemplate": job}});
    expect_new("batch/v1/cronjobs", &cron, &[]);
    expect_new("v1/podtemplates", &json!({"template": template()}), &[]);
    expect_new("v1/pods", &template(), &[]);
    let expressions = json!([
        {"key": "app", "operator": "In", "values": ["c", "d"]},
        {"key": "tier", "operator": "DoesNotExist"},
        {"key": "app", "operator": "Exists"},
        {"key": "app", "operator": "NotIn", "values": ["e"]},
    ]);
    let expressed = with(deployment(), "/spec/selector", json!({"matchExpressions": expressions}));
    expect_new(DEPLOYMENTS, &expressed, &[]);
}

#[test]
fn a_selector_must_select_what_the_template_makes() {
    let mismatch = "Invalid spec.template.metadata.labels: Invalid value: {\"app\":\"d\"}: `selector` does not match \
                    template `labels`";
    let other = with(deployment(), "/spec/selector", json!({"matchLabels": {"app": "x"}}));
    expect_new(DEPLOYMENTS, &other, &[mismatch]);
    expect_new("apps/v1/daemonsets", &other, &[mismatch]);
    let missing = with(deployment(), "/spec/selector", Value::Null);
    expect_new(DEPLOYMENTS, &missing, &["Required spec.selector: Required value", mismatch]);
    let empty = with(deployment(), "/spec/selector", json!({}));
    expect_new(
        DEPLOYMENTS,
        &empty,
        &["Invalid spec.selector: Invalid value: {}: empty selector is invalid for deployment"],
    );
    let controller = with(deployment(), "/spec/selector", json!({"app": "x"}));
    expect_new("v1/replicationcontrollers", &controller, &[mismatch]);
}

#[test]
fn a_selector_stays_what_it_is() {
    let new = with(deployment(), "/spec/selector", json!({"matchLabels": {"app": "d", "x": "y"}}));
    expect_changed(
        DEPLOYMENTS,
        &new,
        &deployment(),
        &[
            "Invalid spec.template.metadata.labels: Invalid value: {\"app\":\"d\"}: `selector` does not match template \
             `labels`",
            "Invalid spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"d\",\"x\":\"y\"}}: field is immutable",
        ],
    );
    expect_changed(DEPLOYMENTS, &with(deployment(), "/spec/replicas", json!(3)), &deployment(), &[]);
}

#[test]
fn little_of_a_stateful_set_may_change() {
    let old = with(deployment(), "/spec/podManagementPolicy", json!("Parallel"));
    let scaled = with(old.clone(), "/spec/replicas", json!(3));
    expect_changed("apps/v1/statefulsets", &scaled, &old, &[]);
    let renamed = with(old.clone(), "/spec/serviceName", json!("other"));
    let fixed = "Forbidden spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', \
                 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                 'minReadySeconds' are forbidden";
    expect_changed("apps/v1/statefulsets", &renamed, &old, &[fixed]);
}

#[test]
fn containers_of_a_stateful_set_mount_its_claims() {
    let set = with(deployment(), "/spec/podManagementPolicy", json!("Parallel"));
    let mounts = json!([{"name": "data", "mountPath": "/data"}]);
    let set = with(set, "/spec/template/spec/containers/0/volumeMounts", mounts);
    let missing = "NotFound spec.template.spec.containers[0].volumeMounts[0].name: Not found: \"data\"";
    expect_new("apps/v1/statefulsets", &set, &[missing]);
    let set = with(set, "/spec/volumeClaimTemplates", json!([{"metadata": {"name": "data"}}]));
    expect_new("apps/v1/statefulsets", &set, &[]);
}

#[test]
fn templates_restart_as_their_kind_wants() {
    let never = with(deployment(), "/spec/template/spec/restartPolicy", json!("Never"));
    let only_always = "NotSupported spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \
                       \"Always\"";
    expect_new(DEPLOYMENTS, &never, &[only_always]);
    expect_new("apps/v1/daemonsets", &never, &[only_always]);
    expect_new(
        "batch/v1/jobs",
        &deployment(),
        &[
            "Required spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
        ],
    );
    let bounded = with(deployment(), "/spec/template/spec/activeDeadlineSeconds", json!(3));
    expect_new(
        DEPLOYMENTS,
        &bounded,
        &[
            "Forbidden spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not \
           Supported",
        ],
    );
}

#[test]
fn a_job_is_what_it_was_made_as() {
    let job = with(deployment(), "/spec/template/spec/restartPolicy", json!("Never"));
    let old = with(job, "/spec/completions", json!(1));
    let more = with(old.clone(), "/spec/completions", json!(2));
    let immutable = ["Invalid spec.completions: Invalid value: 2: field is immutable"];
    expect_changed("batch/v1/jobs", &more, &old, &immutable);
    let indexed = json!("Indexed");
    let old = with(old, "/spec/completionMode", indexed.clone());
    expect_changed("batch/v1/jobs", &with(more, "/spec/completionMode", indexed), &old, &[]);
    expect_changed("batch/v1/jobs", &with(old.clone(), "/spec/parallelism", json!(4)), &old, &[]);
}

#[test]
fn counts_are_not_negative() {
    expect_new(
        DEPLOYMENTS,
        &with(deployment(), "/spec/replicas", json!(-1)),
        &["Invalid spec.replicas: Invalid value: -1: must be greater than or equal to 0"],
    );
    let quick = with(deployment(), "/spec/progressDeadlineSeconds", json!(5));
    expect_new(
        DEPLOYMENTS,
        &with(quick, "/spec/minReadySeconds", json!(5)),
        &["Invalid spec.progressDeadlineSeconds: Invalid value: 5: must be greater than minReadySeconds"],
    );
}

#[test]
fn containers_have_names_of_their_own_and_images() {
    expect_new(
        "v1/pods",
        &with(template(), "/spec/containers", json!([])),
        &["Required spec.containers: Required value"],
    );
    let plain = json!({"imagePullPolicy": "Always", "terminationMessagePolicy": "File"});
    let named = |name: &str, image: &str| {
        let mut container = plain.clone();
        container["name"] = json!(name);
        container["image"] = json!(image);
        container
    };
    let containers = json!([named("a", "x"), named("a", "x"), named("", "x"), named("A_b", "")]);
    expect_new(
        "v1/pods",
        &with(template(), "/spec/containers", containers),
        &[
            "Duplicate spec.containers[1].name: Duplicate value: \"a\"",
            "Required spec.containers[2].name: Required value",
            "Invalid spec.containers[3].name: Invalid value: \"A_b\": a lowercase RFC 1123 label must consist of lower \
             case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. \
             'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
            "Required spec.containers[3].image: Required value",
        ],
    );
}

#[test]
fn ports_and_mounts_must_fit() {
    let ports = json!([
        {"containerPort": 80, "protocol": "TCP", "name": "web"},
        {"containerPort": 0, "protocol": "TCP", "name": "web"},
        {"containerPort": 70000, "protocol": "HTTP", "name": "Much-too--long-a-name"},
    ]);
    let mounts = json!([
        {"name": "data", "mountPath": "/data"}, {"name": "data", "mountPath": "/data"}, {"name": "nothing"},
    ]);
    let pod = with(template(), "/spec/containers/0/ports", ports);
    let pod = with(pod, "/spec/containers/0/volumeMounts", mounts);
    let pod = with(pod, "/spec/volumes", json!([{"name": "data", "emptyDir": {}}, {"name": "data"}]));
    let path = "spec.containers[0]";
    let long = "Invalid value: \"Much-too--long-a-name\":";
    expect_new(
        "v1/pods",
        &pod,
        &[
            "Duplicate spec.volumes[1].name: Duplicate value: \"data\"",
            &format!("Duplicate {path}.ports[1].name: Duplicate value: \"web\""),
            &format!("Required {path}.ports[1].containerPort: Required value"),
            &format!("Invalid {path}.ports[2].name: {long} must be no more than 15 characters"),
            &format!(
                "Invalid {path}.ports[2].name: {long} must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
            ),
            &format!("Invalid {path}.ports[2].name: {long} must not contain consecutive hyphens"),
            &format!(
                "Invalid {path}.ports[2].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive"
            ),
            &format!(
                "NotSupported {path}.ports[2].protocol: Unsupported value: \"HTTP\": supported values: \"SCTP\", \"TCP\", \"UDP\""
            ),
            &format!("Invalid {path}.volumeMounts[1].mountPath: Invalid value: \"/data\": must be unique"),
            &format!("NotFound {path}.volumeMounts[2].name: Not found: \"nothing\""),
            &format!("Required {path}.volumeMounts[2].mountPath: Required value"),
        ],
    );
}
