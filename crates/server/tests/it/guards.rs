//! Every guard that kube-apiserver has by default, and what becomes of it here: one case for each row of
//! `admission::guards`. A row without a case fails.

use std::pin::Pin;

use admission::{
    Plugins,
    guards::{GUARDS, Here},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use catalog::{Catalog, FeatureGates, RuntimeConfig};
use meta::{Release, Value};
use serde_json::json;
use store::{Key, Store, Txn};
use testkit::webhook::{Identity, Reply, Webhook};

use crate::harness::{Answered, MAPS, TestServer, config_map};

const ADMIN: (&str, &str) = ("authorization", "Bearer admintoken");
const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const DEVICE_CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const CERTIFICATES: &str = "/apis/certificates.k8s.io/v1beta1";
const SIGNING: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

#[tokio::test]
async fn every_guard_does_what_its_row_says() {
    let server = start(Release::v1(36)).await;
    for guard in GUARDS {
        assert_eq!(case(&server, guard.name).await, guard.here, "{}", guard.name);
    }
}

/// Finds out what becomes of a guard.
fn case<'a>(server: &'a TestServer, guard: &str) -> Pin<Box<dyn Future<Output = Here> + 'a>> {
    match guard {
        "NamespaceLifecycle" => Box::pin(namespaces(server)),
        "LimitRanger" => Box::pin(limits(server)),
        "ServiceAccount" => Box::pin(accounts(server)),
        "TaintNodesByCondition" => Box::pin(taints(server)),
        "PodSecurity" => Box::pin(pod_security(server)),
        "Priority" => Box::pin(priority(server)),
        "DefaultTolerationSeconds" => Box::pin(tolerations(server)),
        "DefaultStorageClass" => Box::pin(storage_class(server)),
        "StorageObjectInUseProtection" => Box::pin(protection(server)),
        "PodGroupProtection" => Box::pin(pod_group(server, "protect pod groups")),
        "PersistentVolumeClaimResize" => Box::pin(resize(server)),
        "RuntimeClass" => Box::pin(runtime_class(server)),
        "CertificateApproval" => Box::pin(approval(server)),
        "CertificateSigning" => Box::pin(signing(server)),
        "ClusterTrustBundleAttest" => Box::pin(attest(server)),
        "CertificateSubjectRestriction" => Box::pin(subject(server)),
        "DefaultIngressClass" => Box::pin(ingress_class(server)),
        "PodTopologyLabels" => Box::pin(topology(server)),
        "PodGroupWorkloadExists" => Box::pin(pod_group(server, "check that their workload exists")),
        "NodeDeclaredFeatureValidator" => Box::pin(node_features(server)),
        "JobValidation" => Box::pin(async { jobs() }),
        "PodResizeValidator" => Box::pin(not_served(server, "PATCH", "resize")),
        "MutatingAdmissionPolicy" => Box::pin(policies(server, "mutatingadmissionpolicies")),
        "MutatingAdmissionWebhook" => Box::pin(webhook(server, "Mutating")),
        "ValidatingAdmissionPolicy" => Box::pin(policies(server, "validatingadmissionpolicies")),
        "ValidatingAdmissionWebhook" => Box::pin(webhook(server, "Validating")),
        "ResourceQuota" => Box::pin(quota(server)),
        "roles: `escalate`" => Box::pin(escalate(server)),
        "bindings: `bind`" => Box::pin(bind(server)),
        "policies: parameters" => Box::pin(policies(server, "validatingadmissionpolicybindings")),
        "signing requests: requester" => Box::pin(requester(server)),
        "pod certificates: `sign`" => Box::pin(pod_certificate(server)),
        "device claims: `adminAccess`" => Box::pin(admin_access(server)),
        "device claims: `binding`" => Box::pin(device_binding(server)),
        "device claims: `driver`" => Box::pin(device_driver(server)),
        "pods: `exec`, `attach`, `portforward`" => Box::pin(connections(server)),
        "create by update or apply" => Box::pin(creation(server)),
        "deletion of what cannot be read" => Box::pin(unsafe_deletion(server)),
        "impersonation" => Box::pin(impersonation(server)),
        "tokens: bound objects" => Box::pin(bound_tokens(server)),
        "endpoints: addresses" => Box::pin(endpoints(server)),
        "priority classes: `system-`" => Box::pin(system_classes(server)),
        other => panic!("no case shows what becomes of {other}"),
    }
}

/// Everything is served, and all plugins are on.
async fn start(release: Release) -> TestServer {
    let server = TestServer::start_as(release, |settings| {
        let gates = "APIServerIdentity=false,AllowUnsafeMalformedObjectDeletion=true";
        let gates = FeatureGates::parse(gates, release).unwrap();
        let all = RuntimeConfig::parse("api/all=true").unwrap();
        settings.catalog = Catalog::new(release, &all, &gates).unwrap();
        settings.admission_plugins = Plugins::default();
    })
    .await;
    server.post(ACCOUNTS, json!({"metadata": {"name": "default"}})).await.expect(201);
    server
}

/// Asks as somebody.
async fn ask_as(server: &TestServer, user: &str, method: &str, path: &str, body: Value) -> Answered {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let headers = [ADMIN, ("impersonate-user", user), ("content-type", kind)];
    server.send(method, path, &headers, body).await
}

/// A group, resources, verbs, and names of objects; of all if none is named.
type Rule<'a> = (&'a str, &'a [&'a str], &'a [&'a str], &'a [&'a str]);

/// Gives somebody rules everywhere, and waits until they are in force.
async fn grant(server: &TestServer, user: &str, rules: &[Rule<'_>]) {
    let rule = |(group, resources, verbs, names): &(&str, &[&str], &[&str], &[&str])| json!({"apiGroups": [group], "resources": resources, "verbs": verbs, "resourceNames": names});
    let mut rules: Vec<Value> = rules.iter().map(rule).collect();
    rules.push(json!({"apiGroups": ["probe"], "resources": ["probes"], "verbs": ["get"]}));
    server
        .post(&format!("{RBAC}/clusterroles"), json!({"metadata": {"name": user}, "rules": rules}))
        .await
        .expect(201);
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": {"name": user}, "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": user},
        "subjects": [{"kind": "User", "name": user, "apiGroup": group}],
    });
    server.post(&format!("{RBAC}/clusterrolebindings"), binding).await.expect(201);
    let review =
        json!({"spec": {"resourceAttributes": {"group": "probe", "resource": "probes", "verb": "get"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    while ask_as(server, user, "POST", path, review.clone()).await.json()["status"]["allowed"] != true {
        tokio::task::yield_now().await;
    }
}

/// It was refused with this code and these words.
#[track_caller]
fn refused(answered: &Answered, code: u16, words: &str) {
    assert_eq!(answered.code, code, "{}", answered.text);
    assert!(answered.message().contains(words), "{words:?} in {}", answered.message());
}

/// It was carried out, and a warning has these words.
#[track_caller]
fn warned(answered: &Answered, words: &str) -> Here {
    assert!(answered.code < 300, "{}", answered.text);
    let warnings = answered.headers.get_all("warning");
    let is_there = warnings.iter().any(|it| String::from_utf8_lossy(it.as_bytes()).contains(words));
    assert!(is_there, "{words:?} in {:?}", answered.headers);
    Here::Warned
}

fn pod(name: &str, spec: &Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    pod
}

async fn namespaces(server: &TestServer) -> Here {
    let nowhere = server.post("/api/v1/namespaces/nowhere/configmaps", config_map("a")).await;
    refused(&nowhere, 404, "namespaces \"nowhere\" not found");
    let stays = server.ask("DELETE", "/api/v1/namespaces/default", Value::Null).await;
    refused(&stays, 403, "this namespace may not be deleted");
    Here::Enforced
}

async fn limits(server: &TestServer) -> Here {
    let range =
        json!({"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}});
    warned(
        &server.post("/api/v1/namespaces/default/limitranges", range).await,
        "limit ranges are not enforced",
    )
}

async fn accounts(server: &TestServer) -> Here {
    let strange = pod("accounts", &json!({"serviceAccountName": "nobody"}));
    refused(&server.post(PODS, strange).await, 403, "serviceaccount \"nobody\" not found");
    Here::Enforced
}

async fn taints(server: &TestServer) -> Here {
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let tainted = json!({"metadata": {"name": "tainted"}, "spec": {"taints": [taint]}});
    assert!(!server.post("/api/v1/nodes", tainted).await.expect(201).headers.contains_key("warning"));
    let plain = server.post("/api/v1/nodes", json!({"metadata": {"name": "plain"}})).await;
    warned(&plain, "this server does not taint new nodes as not ready")
}

async fn pod_security(server: &TestServer) -> Here {
    let namespace = |name: &str, label: &str, level: &str| json!({"metadata": {"name": name, "labels": {format!("pod-security.kubernetes.io/{label}"): level}}});
    let open =
        server.post("/api/v1/namespaces", namespace("open", "enforce", "privileged")).await.expect(201);
    assert!(!open.headers.contains_key("warning"));
    for label in ["audit", "warn"] {
        let made = server.post("/api/v1/namespaces", namespace(label, label, "baseline")).await;
        warned(&made, &format!("the label pod-security.kubernetes.io/{label}=baseline is only stored"));
    }
    let closed = server.post("/api/v1/namespaces", namespace("closed", "enforce", "restricted")).await;
    warned(&closed, "the label pod-security.kubernetes.io/enforce=restricted is only stored")
}

async fn priority(server: &TestServer) -> Here {
    let class = json!({"metadata": {"name": "first"}, "value": 5, "globalDefault": true});
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    warned(&server.post(classes, class).await, "this server does not apply the default priority class");
    let high = server.post(PODS, pod("high", &json!({"priority": 2_000_000_000}))).await;
    warned(&high, "this server does not check the priority of a pod");
    let named = server.post(PODS, pod("named", &json!({"priorityClassName": "missing"}))).await;
    warned(&named, "this server does not check the priority of a pod")
}

async fn tolerations(server: &TestServer) -> Here {
    let made = server.post(PODS, pod("tolerant", &json!({}))).await.expect(201).json();
    assert_eq!(made["spec"].get("tolerations"), None);
    Here::NotApplicable
}

fn claim(name: &str, class: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
        "resources": {"requests": {"storage": "1Gi"}}}})
}

async fn storage_class(server: &TestServer) -> Here {
    let plain = server.post(CLAIMS, claim("classless", &Value::Null)).await.expect(201);
    assert!(!plain.headers.contains_key("warning"), "{:?}", plain.headers);
    let class = json!({"metadata": {"name": "default",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "p"});
    let made = server.post("/apis/storage.k8s.io/v1/storageclasses", class).await;
    warned(&made, "this server does not fill in the default storage class")
}

async fn protection(server: &TestServer) -> Here {
    let volume = json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/v"}}});
    let made = server.post("/api/v1/persistentvolumes", volume).await.expect(201);
    assert!(!made.headers.contains_key("warning"), "{:?}", made.headers);
    assert_eq!(made.json()["metadata"].get("finalizers"), None);
    Here::NotApplicable
}

async fn pod_group(server: &TestServer, words: &str) -> Here {
    let groups = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups";
    let group = json!({"metadata": {"generateName": "g-"}, "spec": {"schedulingPolicy": {"basic": {}}}});
    warned(&server.post(groups, group).await, words)
}

async fn resize(server: &TestServer) -> Here {
    for (name, grows) in [("grows", true), ("stays", false)] {
        let class = json!({"metadata": {"name": name}, "provisioner": "p", "allowVolumeExpansion": grows});
        server.post("/apis/storage.k8s.io/v1/storageclasses", class).await.expect(201);
        server.post(CLAIMS, claim(name, &json!(name))).await.expect(201);
    }
    let size = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    let grow = async |name: &str| server.patch(&format!("{CLAIMS}/{name}"), "merge", size("2Gi")).await;
    refused(&grow("grows").await, 422, "spec is immutable after creation except resources.requests");
    for name in ["grows", "stays"] {
        let bound = json!({"status": {"phase": "Bound"}});
        server.patch(&format!("{CLAIMS}/{name}/status"), "merge", bound).await.expect(200);
    }
    refused(&grow("stays").await, 403, "the storageclass that provisions the pvc must support resize");
    grow("grows").await.expect(200);
    Here::Enforced
}

async fn runtime_class(server: &TestServer) -> Here {
    let overhead = server.post(PODS, pod("over", &json!({"overhead": {"cpu": "1"}}))).await;
    warned(&overhead, "this server does not look up the runtime class of a pod, nor check its overhead");
    let named = server.post(PODS, pod("sandboxed", &json!({"runtimeClassName": "missing"}))).await;
    warned(&named, "this server does not look up the runtime class of a pod")
}

fn signing_request(name: &str, organization: &str) -> Value {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, organization);
    let pem = params.serialize_request(&rcgen::KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    json!({"metadata": {"name": name}, "spec": {"request": STANDARD.encode(pem), "usages": ["client auth"],
        "signerName": "kubernetes.io/kube-apiserver-client", "username": "root"}})
}

async fn approval(server: &TestServer) -> Here {
    server.post(SIGNING, signing_request("approved", "dev")).await.expect(201);
    let yes = json!({"status": {"conditions": [{"type": "Approved", "status": "True"}]}});
    server.patch(&format!("{SIGNING}/approved/approval"), "merge", yes).await.expect(501);
    Here::Refused
}

async fn signing(server: &TestServer) -> Here {
    server.post(SIGNING, signing_request("signed", "dev")).await.expect(201);
    let rules = ["certificatesigningrequests/status"];
    grant(server, "signer", &[("certificates.k8s.io", &rules, &["get", "patch"], &[])]).await;
    let signed = json!({"status": {"certificate": STANDARD.encode("x")}});
    let answered = ask_as(server, "signer", "PATCH", &format!("{SIGNING}/signed/status"), signed).await;
    refused(&answered, 403, "user not permitted to sign requests with signerName");
    Here::Enforced
}

async fn attest(server: &TestServer) -> Here {
    let bundles = format!("{CERTIFICATES}/clustertrustbundles");
    let bundle = |signer: &str, name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let authority = rcgen::CertificateParams::default().self_signed(&key).unwrap().pem();
        json!({"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": authority}})
    };
    let group = "certificates.k8s.io";
    grant(
        server,
        "attester",
        &[
            (group, &["clustertrustbundles"], &["create", "patch", "get"], &[]),
            (group, &["signers"], &["attest"], &["mine.example/*"]),
        ],
    )
    .await;
    let theirs = bundle("theirs.example/s", "theirs.example:s:a");
    let answered = ask_as(server, "attester", "POST", &bundles, theirs.clone()).await;
    refused(&answered, 403, "user not permitted to attest for signerName \"theirs.example/s\"");
    let mine = bundle("mine.example/s", "mine.example:s:a");
    ask_as(server, "attester", "POST", &bundles, mine).await.expect(201);
    // What others attested is not changed either, but for what the garbage collector changes.
    server.post(&bundles, theirs).await.expect(201);
    let path = format!("{bundles}/theirs.example:s:a");
    let other = json!({"spec": {"trustBundle": bundle("", "x")["spec"]["trustBundle"]}});
    let answered = ask_as(server, "attester", "PATCH", &path, other).await;
    refused(&answered, 403, "user not permitted to attest");
    let housekeeping = json!({"metadata": {"finalizers": ["a.example/b"]}});
    ask_as(server, "attester", "PATCH", &path, housekeeping).await.expect(200);
    Here::Enforced
}

async fn subject(server: &TestServer) -> Here {
    let answered = server.post(SIGNING, signing_request("masters", "system:masters")).await;
    refused(&answered, 403, "signer with system:masters group is not allowed");
    Here::Enforced
}

async fn ingress_class(server: &TestServer) -> Here {
    let ingress = json!({"metadata": {"name": "plain"},
        "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}});
    let ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    let plain = server.post(ingresses, ingress).await.expect(201);
    assert!(!plain.headers.contains_key("warning"), "{:?}", plain.headers);
    let class = json!({"metadata": {"name": "default",
        "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}}, "spec": {"controller": "example.com/c"}});
    let made = server.post("/apis/networking.k8s.io/v1/ingressclasses", class).await;
    warned(&made, "this server does not fill in the default ingress class")
}

async fn topology(server: &TestServer) -> Here {
    let labels = json!({"topology.kubernetes.io/zone": "z"});
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let node = json!({"metadata": {"name": "zoned", "labels": labels}, "spec": {"taints": [taint]}});
    server.post("/api/v1/nodes", node).await.expect(201);
    server.post(PODS, pod("bound", &json!({}))).await.expect(201);
    let binding = json!({"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "zoned"}});
    server.post(&format!("{PODS}/bound/binding"), binding).await.expect(201);
    let bound = server.get(&format!("{PODS}/bound")).await.expect(200).json();
    assert_eq!((&bound["spec"]["nodeName"], bound["metadata"].get("labels")), (&json!("zoned"), None));
    Here::NotApplicable
}

/// What a node would have to support is asked for by a resize alone.
async fn node_features(server: &TestServer) -> Here {
    not_served(server, "PATCH", "resize").await;
    Here::NotApplicable
}

fn jobs() -> Here {
    let gate = FeatureGates::parse("WorkloadWithJob=true", Release::v1(36));
    assert!(gate.is_err_and(|it| it.to_string().contains("unrecognized feature gate")));
    Here::NotApplicable
}

async fn not_served(server: &TestServer, method: &str, subresource: &str) -> Here {
    let name = format!("pod-{}", rand::random::<u32>());
    server.post(PODS, pod(&name, &json!({}))).await.expect(201);
    let headers = [ADMIN, ("content-type", "application/merge-patch+json")];
    let body = if method == "GET" { Value::Null } else { json!({}) };
    server.send(method, &format!("{PODS}/{name}/{subresource}"), &headers, body).await.expect(501);
    Here::Refused
}

async fn connections(server: &TestServer) -> Here {
    for subresource in ["exec", "attach", "portforward"] {
        not_served(server, "GET", subresource).await;
    }
    Here::Refused
}

async fn policies(server: &TestServer, resource: &str) -> Here {
    let policy = json!({"metadata": {"name": "p"}, "spec": {}});
    let answered = server.post(&format!("{HOOKS}/{resource}"), policy).await;
    refused(&answered, 403, "this server does not enforce");
    Here::Refused
}

async fn quota(server: &TestServer) -> Here {
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}});
    let answered = server.post("/api/v1/namespaces/default/resourcequotas", quota).await;
    refused(&answered, 403, "this server does not enforce resource quotas");
    Here::Refused
}

async fn webhook(server: &TestServer, kind: &str) -> Here {
    let hook = Webhook::start(Identity::Good, |asked| {
        Reply::Json(json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": asked["request"]["uid"], "allowed": false, "status": {"message": "never"}},
        }))
    })
    .await
    .unwrap();
    let rule =
        json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]});
    let webhook = json!({
        "name": "never.example.com", "rules": [rule], "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": hook.url("/x"), "caBundle": hook.ca_bundle()},
    });
    let path = format!("{HOOKS}/{}webhookconfigurations", kind.to_lowercase());
    let configuration = json!({"metadata": {"name": "never"}, "webhooks": [webhook]});
    server.post(&path, configuration).await.expect(201);
    server.server.webhooks_settled().await;
    let secret = server.post("/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "s"}})).await;
    server.ask("DELETE", &format!("{path}/never"), Value::Null).await.expect(200);
    server.server.webhooks_settled().await;
    assert!(secret.message().contains("\"never.example.com\" denied the request: never"), "{}", secret.text);
    Here::Enforced
}

async fn escalate(server: &TestServer) -> Here {
    let group = "rbac.authorization.k8s.io";
    grant(server, "writer", &[(group, &["clusterroles"], &["create"], &[])]).await;
    let rule = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]});
    let role = json!({"metadata": {"name": "more"}, "rules": [rule]});
    let answered = ask_as(server, "writer", "POST", &format!("{RBAC}/clusterroles"), role).await;
    refused(&answered, 403, "is attempting to grant RBAC permissions not currently held");
    Here::Enforced
}

async fn bind(server: &TestServer) -> Here {
    let group = "rbac.authorization.k8s.io";
    grant(server, "binder", &[(group, &["clusterrolebindings"], &["create"], &[])]).await;
    let binding = json!({
        "metadata": {"name": "more"}, "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "User", "name": "binder", "apiGroup": group}],
    });
    let answered = ask_as(server, "binder", "POST", &format!("{RBAC}/clusterrolebindings"), binding).await;
    refused(&answered, 403, "is attempting to grant RBAC permissions not currently held");
    Here::Enforced
}

async fn requester(server: &TestServer) -> Here {
    let group = "certificates.k8s.io";
    grant(server, "asker", &[(group, &["certificatesigningrequests"], &["create"], &[])]).await;
    let made = ask_as(server, "asker", "POST", SIGNING, signing_request("mine", "dev")).await.expect(201);
    assert_eq!(made.json()["spec"]["username"], "asker");
    Here::Enforced
}

async fn pod_certificate(server: &TestServer) -> Here {
    let requests = format!("{CERTIFICATES}/namespaces/default/podcertificaterequests");
    let spec = json!({"signerName": "example.com/s", "podName": "p", "podUID": "u", "serviceAccountName": "s",
        "serviceAccountUID": "u", "nodeName": "n", "nodeUID": "u", "maxExpirationSeconds": 3600,
        "pkixPublicKey": "AA==", "proofOfPossession": "AA=="});
    server.post(&requests, json!({"metadata": {"name": "r"}, "spec": spec})).await.expect(201);
    let resources = ["podcertificaterequests/status"];
    grant(server, "pod-signer", &[("certificates.k8s.io", &resources, &["patch"], &[])]).await;
    let failed = json!({"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "R",
        "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let path = format!("{requests}/r/status");
    let answered = ask_as(server, "pod-signer", "PATCH", &path, failed.clone()).await;
    let words = "spec.signerName: Forbidden: User \"pod-signer\" is not permitted to \"sign\" for signer \"example.com/s\"";
    refused(&answered, 422, words);
    server.patch(&path, "merge", failed).await.expect(200);
    Here::Enforced
}

fn device_claim(name: &str, admin: bool) -> Value {
    let exactly =
        json!({"deviceClassName": "gpu", "adminAccess": admin, "allocationMode": "ExactCount", "count": 1});
    json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}})
}

fn allocation(admin: bool) -> Value {
    let result =
        json!({"request": "r", "driver": "d.example", "pool": "p", "device": "d", "adminAccess": admin});
    json!({"status": {"allocation": {"devices": {"results": [result]}}}})
}

async fn admin_access(server: &TestServer) -> Here {
    let words = "adminAccess: Forbidden: admin access to devices requires the \
                 `resource.kubernetes.io/admin-access: true` label on the containing namespace";
    refused(&server.post(DEVICE_CLAIMS, device_claim("admin", true)).await, 422, words);
    server.post(DEVICE_CLAIMS, device_claim("plain", false)).await.expect(201);
    let path = format!("{DEVICE_CLAIMS}/plain/status");
    let answered = server.patch(&path, "merge", allocation(true)).await;
    refused(&answered, 422, &format!("status.allocation.devices.results[0].{words}"));
    server.patch(&path, "merge", allocation(false)).await.expect(200);
    Here::Enforced
}

async fn device_binding(server: &TestServer) -> Here {
    server.post(DEVICE_CLAIMS, device_claim("binding", false)).await.expect(201);
    let group = "resource.k8s.io";
    grant(server, "reporter", &[(group, &["resourceclaims/status"], &["patch"], &[])]).await;
    let path = format!("{DEVICE_CLAIMS}/binding/status");
    let answered = ask_as(server, "reporter", "PATCH", &path, allocation(false)).await;
    refused(
        &answered,
        422,
        "status.allocation: Forbidden: changing status.allocation or status.reservedFor requires \
         resource=\"resourceclaims/binding\", verb=\"patch\" permission: resourceclaims.resource.k8s.io is forbidden: \
         User \"reporter\" cannot patch resource \"resourceclaims/binding\" in API group \"resource.k8s.io\" at the \
         cluster scope",
    );
    let rules: &[Rule<'_>] = &[
        (group, &["resourceclaims/status"], &["patch"], &[]),
        (group, &["resourceclaims/binding"], &["patch"], &[]),
    ];
    grant(server, "scheduler", rules).await;
    ask_as(server, "scheduler", "PATCH", &path, allocation(false)).await.expect(200);
    Here::Enforced
}

async fn device_driver(server: &TestServer) -> Here {
    server.post(DEVICE_CLAIMS, device_claim("driver", false)).await.expect(201);
    let path = format!("{DEVICE_CLAIMS}/driver/status");
    server.patch(&path, "merge", allocation(false)).await.expect(200);
    let group = "resource.k8s.io";
    for (user, driver) in [("driver-d", "d.example"), ("driver-e", "e.example")] {
        let rules: &[Rule<'_>] = &[
            (group, &["resourceclaims/status"], &["patch"], &[]),
            (group, &["resourceclaims/driver"], &["arbitrary-node:patch"], &[driver]),
        ];
        grant(server, user, rules).await;
    }
    let report = json!({"status": {"devices": [{"driver": "d.example", "pool": "p", "device": "d"}]}});
    let answered = ask_as(server, "driver-e", "PATCH", &path, report.clone()).await;
    refused(
        &answered,
        422,
        "status.devices: Forbidden: changing status.devices requires resource=\"resourceclaims/driver\", \
         verb=\"[arbitrary-node:patch]\" permission: resourceclaims.resource.k8s.io \"d.example\" is forbidden: User \
         \"driver-e\" cannot arbitrary-node:patch resource \"resourceclaims/driver\"",
    );
    ask_as(server, "driver-d", "PATCH", &path, report).await.expect(200);
    Here::Enforced
}

async fn creation(server: &TestServer) -> Here {
    grant(server, "updater", &[("coordination.k8s.io", &["leases"], &["update"], &[])]).await;
    let lease = json!({"metadata": {"name": "new"}, "spec": {}});
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/new";
    let answered = ask_as(server, "updater", "PUT", path, lease).await;
    refused(&answered, 403, "User \"updater\" cannot create resource \"leases\"");
    Here::Enforced
}

async fn unsafe_deletion(server: &TestServer) -> Here {
    let planted =
        Txn::new().put(&Key::new("/registry/configmaps/default/bad"), Bytes::from_static(b"{\"half"));
    let revision = server.store.commit(planted).await.unwrap();
    server.server.registry().cache().wait_for(revision, std::time::Duration::from_secs(10)).await.unwrap();
    grant(server, "deleter", &[("", &["configmaps"], &["delete"], &[])]).await;
    let options = json!({"ignoreStoreReadErrorWithClusterBreakingPotential": true});
    let path = format!("{MAPS}/bad");
    let answered = ask_as(server, "deleter", "DELETE", &path, options.clone()).await;
    refused(&answered, 403, "not permitted to do \"unsafe-delete-ignore-read-errors\"");
    server.ask("DELETE", &path, options).await.expect(200);
    Here::Enforced
}

async fn impersonation(server: &TestServer) -> Here {
    let narrow = ["impersonate:user-info", "impersonate-on:user-info:list"];
    let user = [("authorization", "Bearer usertoken"), ("impersonate-user", "somebody")];
    let answered = server.send("GET", MAPS, &user, Value::Null).await;
    refused(&answered, 403, "cannot impersonate resource \"users\"");
    grant(
        server,
        "user",
        &[("authentication.k8s.io", &["users"], &narrow, &[]), ("", &["configmaps"], &narrow, &[])],
    )
    .await;
    let answered = server.send("GET", MAPS, &user, Value::Null).await;
    refused(&answered, 403, "cannot impersonate resource \"users\"");
    Here::Enforced
}

async fn bound_tokens(server: &TestServer) -> Here {
    for name in ["robot", "other"] {
        server.post(ACCOUNTS, json!({"metadata": {"name": name}})).await.expect(201);
    }
    server.post(PODS, pod("others", &json!({"serviceAccountName": "other"}))).await.expect(201);
    let bound = json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "others"}}});
    let answered = server.post(&format!("{ACCOUNTS}/robot/token"), bound).await;
    refused(&answered, 400, "cannot bind token for serviceaccount \"robot\" to pod running with different");
    Here::Enforced
}

async fn endpoints(server: &TestServer) -> Here {
    let subset = json!({"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": 80}]});
    let object = json!({"metadata": {"name": "e"}, "subsets": [subset]});
    let answered = server.post("/api/v1/namespaces/default/endpoints", object).await;
    refused(&answered, 422, "may not be in the loopback range");
    let endpoint = json!({"addresses": ["169.254.169.254"]});
    let slice = json!({"metadata": {"name": "e"}, "addressType": "IPv4", "endpoints": [endpoint]});
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    refused(&server.post(path, slice).await, 422, "may not be in the link-local range");
    Here::Enforced
}

async fn system_classes(server: &TestServer) -> Here {
    let class = json!({"metadata": {"name": "system-mine"}, "value": 1});
    let answered = server.post("/apis/scheduling.k8s.io/v1/priorityclasses", class).await;
    refused(&answered, 422, "prefix are reserved for system use only");
    Here::Enforced
}

/// Schedulers and drivers of earlier releases have no right but to the status.
#[tokio::test]
async fn before_the_release_that_asks_for_more_the_status_is_enough() {
    let server = start(Release::v1(35)).await;
    server.post(DEVICE_CLAIMS, device_claim("a", false)).await.expect(201);
    grant(&server, "scheduler", &[("resource.k8s.io", &["resourceclaims/status"], &["patch"], &[])]).await;
    let path = format!("{DEVICE_CLAIMS}/a/status");
    ask_as(&server, "scheduler", "PATCH", &path, allocation(false)).await.expect(200);
}
