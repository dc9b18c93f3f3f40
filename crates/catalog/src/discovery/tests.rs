//! Discovery documents against recorded and published answers of kube-apiserver.

use meta::Release;

use super::*;
use crate::{FeatureGates, LAST_RELEASE, RuntimeConfig};

fn catalog(release: Release, runtime_config: &str, gates: &str) -> Catalog {
    let gates = FeatureGates::parse(gates, release).unwrap();
    Catalog::new(release, &RuntimeConfig::parse(runtime_config).unwrap(), &gates).unwrap()
}

fn text(bytes: &Bytes) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn gadgets() -> GroupDiscovery {
    let stored = GroupVersion::new("diff.example", "v1");
    let sub = |name: &str, kind: &str, group_version| SubresourceDiscovery {
        name: name.into(),
        kind: kind.into(),
        group_version,
        response: Some(stored.clone()),
        verbs: vec![Verb::Get, Verb::Patch, Verb::Update],
    };
    let gadgets = ResourceDiscovery {
        name: "gadgets".into(),
        singular: "gadget".into(),
        kind: "Gadget".into(),
        response: Some(stored.clone()),
        namespaced: true,
        verbs: vec![
            Verb::Delete,
            Verb::DeleteCollection,
            Verb::Get,
            Verb::List,
            Verb::Patch,
            Verb::Create,
            Verb::Update,
            Verb::Watch,
        ],
        short_names: Vec::new(),
        categories: Vec::new(),
        storage_version_hash: Some(storage_version_hash(&stored, "Gadget")),
        subresources: vec![sub("status", "Gadget", None)],
    };
    let versions = vec![VersionDiscovery { version: stored.version.clone(), resources: vec![gadgets] }];
    GroupDiscovery { name: stored.group.clone(), priority: Group::CUSTOM_PRIORITY, versions }
}

/// Recorded from kube-apiserver.
#[test]
fn a_custom_version_is_described_as_upstream_does() {
    let documents = Documents::build([gadgets()], "127.0.0.1:6443");
    assert_eq!(
        text(&documents.group_versions["diff.example/v1"]),
        r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"diff.example/v1","resources":[{"name":"gadgets","singularName":"gadget","namespaced":true,"kind":"Gadget","verbs":["delete","deletecollection","get","list","patch","create","update","watch"],"storageVersionHash":"vRwk7PEhC6k="},{"name":"gadgets/status","singularName":"","namespaced":true,"kind":"Gadget","verbs":["get","patch","update"]}]}"#
    );
}

/// Recorded from kube-apiserver.
#[test]
fn the_core_versions_are_described_as_upstream_does() {
    let documents = documents(&catalog(LAST_RELEASE, "", ""), "127.0.0.1:6443");
    assert_eq!(
        text(&documents.api),
        r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"127.0.0.1:6443"}]}"#
    );
}

#[test]
fn a_group_is_described_with_its_preferred_version() {
    let documents = documents(&catalog(LAST_RELEASE, "", ""), "");
    assert_eq!(
        text(&documents.groups["autoscaling"]),
        r#"{"kind":"APIGroup","apiVersion":"v1","name":"autoscaling","versions":[{"groupVersion":"autoscaling/v2","version":"v2"},{"groupVersion":"autoscaling/v1","version":"v1"}],"preferredVersion":{"groupVersion":"autoscaling/v2","version":"v2"}}"#
    );
    assert!(text(&documents.apis).starts_with(
        r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apiregistration.k8s.io","versions":[{"groupVersion":"apiregistration.k8s.io/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apiregistration.k8s.io/v1","version":"v1"}},{"name":"apps","#
    ));
    assert!(!documents.groups.contains_key(""));
}

#[test]
fn groups_come_in_upstreams_order_and_custom_ones_after_them() {
    let mut other = gadgets();
    other.name = "a.example".into();
    let groups = builtin(&catalog(Release::v1(36), "api/all=true", ""), |it| it.storage.clone());
    let documents = Documents::build(groups.into_iter().chain([gadgets(), other]), "");
    let apis: serde_json::Value = serde_json::from_slice(&documents.apis).unwrap();
    let aggregated: serde_json::Value = serde_json::from_slice(&documents.aggregated_apis_v2.body).unwrap();
    let names: Vec<_> =
        apis["groups"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "apiregistration.k8s.io",
            "apps",
            "events.k8s.io",
            "authentication.k8s.io",
            "authorization.k8s.io",
            "autoscaling",
            "batch",
            "certificates.k8s.io",
            "networking.k8s.io",
            "policy",
            "rbac.authorization.k8s.io",
            "storage.k8s.io",
            "admissionregistration.k8s.io",
            "apiextensions.k8s.io",
            "scheduling.k8s.io",
            "coordination.k8s.io",
            "node.k8s.io",
            "discovery.k8s.io",
            "flowcontrol.apiserver.k8s.io",
            "internal.apiserver.k8s.io",
            "resource.k8s.io",
            "storagemigration.k8s.io",
            "migration.k8s.io",
            "a.example",
            "diff.example",
        ]
    );
    let items = aggregated["items"].as_array().unwrap();
    let aggregated: Vec<_> = items.iter().map(|it| it["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(aggregated, names);
}

/// The hashes are what upstream publishes for these resources.
#[test]
fn hashes_name_the_stored_version() {
    let documents = documents(&catalog(LAST_RELEASE, "", ""), "");
    for (list, resource, hash) in [
        ("v1", "pods", "xPOwRZ+Yhw8="),
        ("v1", "configmaps", "qFsyl6wFWjQ="),
        ("v1", "persistentvolumes", "HN/zwEC+JgM="),
        ("v1", "services", "0/CO1lhkEBI="),
        ("v1", "events", "r2yiGXH7wu8="),
        ("events.k8s.io/v1", "events", "r2yiGXH7wu8="),
    ] {
        let list: serde_json::Value = serde_json::from_slice(&documents.group_versions[list]).unwrap();
        let resources = list["resources"].as_array().unwrap();
        let found = resources.iter().find(|it| it["name"] == resource).unwrap();
        assert_eq!(found["storageVersionHash"], hash, "{resource}");
    }
    assert!(!text(&documents.group_versions["authorization.k8s.io/v1"]).contains("storageVersionHash"));
}

#[test]
fn hashes_follow_what_is_being_written_and_can_be_switched_off() {
    let groups =
        builtin(&catalog(LAST_RELEASE, "", ""), |_| Some(GroupVersion::new("resource.k8s.io", "v1beta2")));
    let documents = Documents::build(groups, "");
    let hash = storage_version_hash(&GroupVersion::new("resource.k8s.io", "v1beta2"), "DeviceClass");
    assert!(text(&documents.group_versions["resource.k8s.io/v1"]).contains(&hash));

    let documents = super::documents(&catalog(LAST_RELEASE, "", "StorageVersionHash=false"), "");
    assert!(documents.group_versions.values().all(|it| !text(it).contains("storageVersionHash")));
}

#[test]
fn subresources_of_another_group_say_so() {
    let documents = documents(&catalog(LAST_RELEASE, "", ""), "");
    let apps = text(&documents.group_versions["apps/v1"]);
    assert!(apps.contains(
        r#"{"name":"deployments/scale","singularName":"","namespaced":true,"group":"autoscaling","version":"v1","kind":"Scale","verbs":["get","patch","update"]}"#
    ));
    let core = text(&documents.group_versions["v1"]);
    assert!(core.starts_with(r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"bindings","singularName":"binding","namespaced":true,"kind":"Binding","verbs":["create"]},{"name":"componentstatuses","singularName":"componentstatus","namespaced":false,"kind":"ComponentStatus","verbs":["get","list"],"shortNames":["cs"]},"#));
    assert!(core.contains(
        r#"{"name":"pods/eviction","singularName":"","namespaced":true,"group":"policy","version":"v1","kind":"Eviction","verbs":["create"]}"#
    ));
}

#[test]
fn the_aggregated_document_has_upstreams_form() {
    let documents = Documents::build(builtin(&catalog(LAST_RELEASE, "", ""), |_| None), "");
    assert!(text(&documents.aggregated_apis_v2.body).starts_with(
        r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{"name":"apiregistration.k8s.io"},"versions":[{"version":"v1","resources":[{"resource":"apiservices","responseKind":{"group":"","version":"","kind":"APIService"},"scope":"Cluster","singularResource":"apiservice","verbs":["create","delete","deletecollection","get","list","patch","update","watch"],"categories":["api-extensions"],"subresources":[{"subresource":"status","responseKind":{"group":"","version":"","kind":"APIService"},"verbs":["get","patch","update"]}]}],"freshness":"Current"}]},{"metadata":{"name":"apps"},"#
    ));
    assert!(text(&documents.aggregated_api_v2beta1.body).starts_with(
        r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2beta1","metadata":{},"items":[{"metadata":{},"versions":[{"version":"v1","resources":[{"resource":"bindings","#
    ));
    assert!(text(&documents.aggregated_apis_v2.body).contains(
        r#"{"subresource":"scale","responseKind":{"group":"autoscaling","version":"v1","kind":"Scale"},"verbs":["get","patch","update"]}"#
    ));
    let custom = Documents::build([gadgets()], "");
    assert!(
        text(&custom.aggregated_apis_v2.body)
            .contains(r#""responseKind":{"group":"diff.example","version":"v1","kind":"Gadget"}"#)
    );
}

#[test]
fn the_tag_changes_with_the_document_and_only_with_it() {
    let first = documents(&catalog(LAST_RELEASE, "", ""), "");
    let second = documents(&catalog(LAST_RELEASE, "", ""), "elsewhere:1");
    let other = documents(&catalog(LAST_RELEASE, "apps/v1=false", ""), "");
    assert_eq!(first.aggregated_apis_v2, second.aggregated_apis_v2);
    assert_ne!(first.aggregated_apis_v2.etag, other.aggregated_apis_v2.etag);
    assert_eq!(first.aggregated_api_v2, other.aggregated_api_v2);
    let etag = first.aggregated_api_v2.etag.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap();
    assert_eq!(etag.len(), 128);
    assert!(etag.bytes().all(|it| it.is_ascii_digit() || (b'A'..=b'F').contains(&it)));
}

#[test]
fn a_group_that_comes_twice_is_merged() {
    let mut newer = gadgets();
    newer.priority = 17000;
    newer.versions[0].version = ApiVersion::new("v2");
    let documents = Documents::build([gadgets(), newer, gadgets()], "");
    assert_eq!(
        text(&documents.groups["diff.example"]),
        r#"{"kind":"APIGroup","apiVersion":"v1","name":"diff.example","versions":[{"groupVersion":"diff.example/v2","version":"v2"},{"groupVersion":"diff.example/v1","version":"v1"}],"preferredVersion":{"groupVersion":"diff.example/v2","version":"v2"}}"#
    );
    assert_eq!(text(&documents.group_versions["diff.example/v1"]).matches("\"gadgets\"").count(), 1);
}
