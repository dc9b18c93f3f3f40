//! Warnings by kind: an object goes in, the texts come out.

use serde_json::json;

use super::*;

fn subject<'a>(group: &'a str, resource: &'a str) -> Subject<'a> {
    Subject { group, version: "v1", resource, subresource: "" }
}

#[track_caller]
fn expect(group: &str, resource: &str, object: &Value, expected: &[&str]) {
    assert_eq!(advise_new(subject(group, resource), object), expected, "{object}");
}

#[test]
fn names_of_pods_should_be_labels() {
    let named = json!({"metadata": {"name": "a.b"}});
    let advice = "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS \
                  label is recommended: [must not contain dots]";
    for (group, resource) in
        [("apps", "deployments"), ("apps", "replicasets"), ("batch", "jobs"), ("batch", "cronjobs")]
    {
        expect(group, resource, &named, &[advice]);
    }
    expect("apps", "statefulsets", &named, &[]);
    expect("", "configmaps", &named, &[]);
    expect("", "pods", &named, &[&advice.replace("in Pod names and hostnames", "in the Pod's hostname")]);
}

#[test]
fn templates_are_looked_through() {
    let spec = json!({
        "nodeSelector": {"beta.kubernetes.io/os": "linux", "kubernetes.io/os": "linux"},
        "terminationGracePeriodSeconds": -1,
        "imagePullSecrets": [{"name": "a"}, {"name": "a"}, {}],
        "topologySpreadConstraints": [{"topologyKey": "failure-domain.beta.kubernetes.io/zone", "labelSelector": {}}],
        "volumes": [
            {"name": "v", "configMap": {"name": "m", "items": [{"path": "a"}, {"path": "a/b"}]}},
            {"name": "w", "rbd": {}},
        ],
        "containers": [
            {
                "name": "c", "resources": {"limits": {"memory": "1500m"}},
                "env": [{"name": "X", "value": "1"}, {"name": "X", "value": "$(X)2"}, {"name": "X", "value": "3"}],
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
            },
            {"name": "d", "ports": [
                {"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "TCP", "hostPort": 8080},
            ]},
        ],
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z"}]}},
    });
    let annotations = json!({"container.apparmor.security.beta.kubernetes.io/c": "unconfined"});
    let template = json!({"metadata": {"annotations": annotations}, "spec": spec});
    let object = json!({"metadata": {"name": "d", "generation": 2}, "spec": {"template": template}});
    let expected = [
        "spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "spec.template.spec.topologySpreadConstraints[0].topologyKey: failure-domain.beta.kubernetes.io/zone is deprecated \
         since v1.17; use \"topology.kubernetes.io/zone\" instead",
        "spec.template.spec.volumes[1].rbd: deprecated in v1.28, non-functional in v1.31+",
        "volume \"v\" (ConfigMap \"m\"): overlapping paths: \"a/b\" with \"a\"",
        "spec.template.spec.imagePullSecrets[1].name: duplicate name \"a\"",
        "spec.template.spec.imagePullSecrets[2].name: invalid empty name \"\"",
        "spec.template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; \
         use the \"appArmorProfile\" field instead",
        "spec.template.spec.containers[0].resources.limits[memory]: fractional byte value \"1500m\" is invalid, must be \
         an integer",
        "spec.template.spec.containers[0].env[2]: hides previous definition of \"X\", which may be dropped when using \
         apply",
        "spec.template.spec.containers[1].ports[0]: duplicate port definition with \
         spec.template.spec.containers[0].ports[0]",
        "spec.template.spec.containers[1].ports[1]: overlapping port definition with \
         spec.template.spec.containers[0].ports[0]",
        "spec.template.spec.containers[1].ports[1]: overlapping port definition with \
         spec.template.spec.containers[1].ports[0]",
        "spec.template.spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated \
         as 1",
        "spec.template.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null \
         labelSelector results in matching no pod",
    ];
    expect("apps", "deployments", &object, &expected);
    let mut before = object.clone();
    assert_eq!(advise_changed(subject("apps", "deployments"), &object, &before), [""; 0]);
    before["metadata"]["generation"] = json!(1);
    assert_eq!(advise_changed(subject("apps", "deployments"), &object, &before), expected);
}

#[test]
fn secrets_with_a_key_hold_something_that_looks_like_one() {
    let secret = |certificate: &str, key: &str| {
        let data = json!({"tls.crt": STANDARD.encode(certificate), "tls.key": STANDARD.encode(key)});
        json!({"type": "kubernetes.io/tls", "data": data})
    };
    let block = |title: &str| format!("-----BEGIN {title}-----\nYQ==\n-----END {title}-----\n");
    let none = "tls: failed to find any PEM data in certificate input";
    expect("", "secrets", &secret("a", "b"), &[none]);
    let none = "tls: failed to find any PEM data in key input";
    expect("", "secrets", &secret(&block("CERTIFICATE"), "b"), &[none]);
    let switched = "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM \
                    inputs may have been switched";
    expect("", "secrets", &secret(&block("PRIVATE KEY"), &block("CERTIFICATE")), &[switched]);
    expect("", "secrets", &secret(&block("CERTIFICATE"), &block("PRIVATE KEY")), &[]);
}

#[test]
fn services_volumes_and_accounts_are_told_what_is_ignored() {
    let spec = json!({"type": "ClusterIP", "clusterIP": "None", "externalIPs": ["1.2.3.4"], "sessionAffinity": "ClientIP"});
    expect(
        "",
        "services",
        &json!({ "spec": spec }),
        &[
            "spec.externalIPs is ignored for headless services",
            "spec.SessionAffinity is ignored for headless services",
        ],
    );
    let claim = json!({"spec": {"resources": {"requests": {"storage": "1500m"}}}});
    let fraction =
        "spec.resources.requests[storage]: fractional byte value \"1500m\" is invalid, must be an integer";
    expect("", "persistentvolumeclaims", &claim, &[fraction]);
    let account = json!({"metadata": {"annotations": {ENFORCE: "true"}}});
    let told = "metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer separate \
                namespaces to isolate access to mounted secrets";
    expect("", "serviceaccounts", &account, &[told]);
    assert_eq!(advise_changed(subject("", "serviceaccounts"), &account, &account), [""; 0]);
    let ingress = json!({"metadata": {"annotations": {"kubernetes.io/ingress.class": "x"}}});
    let told = "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead";
    expect("networking.k8s.io", "ingresses", &ingress, &[told]);
}
