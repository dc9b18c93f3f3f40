//! Metadata checks against the answers recorded from the reference.

use serde_json::json;

use super::*;
use crate::GroupKind;

fn config_map(metadata: &Value) -> Value {
    let mut metadata = metadata.clone();
    metadata["namespace"] = json!("ns");
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
}

fn texts(errors: &FieldErrors) -> Vec<String> {
    errors.0.iter().map(ToString::to_string).collect()
}

fn create(metadata: &Value) -> Vec<String> {
    texts(&validate_object_meta(&config_map(metadata), true, NameRule::Subdomain))
}

fn update(new: &Value, old: &Value) -> Vec<String> {
    let errors = validate_object_meta_update(&config_map(new), &config_map(old));
    let mut texts = texts(&errors);
    texts.truncate(texts.len() / 2);
    texts
}

#[test]
fn ordinary_metadata_passes() {
    let metadata = json!({
        "name": "a.b", "labels": {"app": "web", "e": ""}, "annotations": {"Example.com/X": "anything"},
        "finalizers": ["example.com/x", "orphan"],
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "u", "controller": true}],
    });
    assert_eq!(create(&metadata), Vec::<String>::new());
    assert_eq!(update(&metadata, &metadata), Vec::<String>::new());
}

#[test]
fn a_name_is_needed() {
    assert_eq!(create(&json!({})), ["metadata.name: Required value: name or generateName is required"]);
}

#[test]
fn a_prefix_may_end_with_a_hyphen() {
    assert_eq!(create(&json!({"name": "a-x", "generateName": "a-"})), Vec::<String>::new());
    let errors = create(&json!({"name": "a-x", "generateName": "A_-"}));
    assert!(
        errors[0].starts_with("metadata.generateName: Invalid value: \"A_-\": a lowercase RFC 1123"),
        "{errors:?}"
    );
    for prefix in ["-", "\u{e9}-", "a--", "--"] {
        NameRule::Subdomain.check_prefix(prefix);
    }
}

#[test]
fn namespaces_are_required_or_forbidden() {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "system:x", "namespace": "ns"}});
    let rule = name_rule("rbac.authorization.k8s.io", "clusterroles");
    assert_eq!(
        texts(&validate_object_meta(&role, false, rule)),
        ["metadata.namespace: Forbidden: not allowed on this type"]
    );
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
    assert_eq!(
        texts(&validate_object_meta(&pod, true, name_rule("", "pods"))),
        ["metadata.namespace: Required value"]
    );
}

#[test]
fn a_namespace_has_no_dots() {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bad.ns"}});
    let errors = validate_object_meta(&namespace, false, name_rule("", "namespaces"));
    let status = errors.into_status(&GroupKind::new("", "Namespace"), "bad.ns");
    assert_eq!(
        status.message,
        "Namespace \"bad.ns\" is invalid: metadata.name: Invalid value: \"bad.ns\": must not contain dots"
    );
}

#[test]
fn storage_versions_are_named_after_their_resource() {
    let rule = name_rule("internal.apiserver.k8s.io", "storageversions");
    assert_eq!(rule.check("nodot"), ["name must be in the form of <group>.<resource>"]);
    assert!(rule.check("Bad.things")[0].starts_with("the group segment a lowercase RFC 1123 subdomain must"));
    assert!(rule.check("apps.deployments").is_empty());
}

#[test]
fn bad_labels_and_annotations_are_named() {
    let errors = create(&json!({"name": "a", "labels": {"bad key!": "v"}}));
    assert!(
        errors[0].starts_with("metadata.labels: Invalid value: \"bad key!\": name part must consist"),
        "{errors:?}"
    );
    let errors = create(&json!({"name": "a", "labels": {"k": "-bad"}}));
    assert!(
        errors[0].starts_with("metadata.labels: Invalid value: \"-bad\": a valid label must be"),
        "{errors:?}"
    );
    let errors = create(&json!({"name": "a", "annotations": {"": "v"}}));
    assert_eq!(errors[0], "metadata.annotations: Invalid value: \"\": name part must be non-empty");
    assert_eq!(errors.len(), 2);
}

#[test]
fn annotations_are_limited_together() {
    let errors = create(&json!({"name": "a", "annotations": {"k": "x".repeat(256 * 1024)}}));
    assert_eq!(errors, ["metadata.annotations: Too long: may not be more than 262144 bytes"]);
    assert!(create(&json!({"name": "a", "annotations": {"k": "x".repeat(256 * 1024 - 1)}})).is_empty());
}

#[test]
fn owners_are_complete_and_at_most_one_controls() {
    let errors = create(
        &json!({"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": ""}]}),
    );
    assert_eq!(errors, ["metadata.ownerReferences.uid: Invalid value: \"\": must not be empty"]);
    let owner =
        |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "u", "controller": true});
    let errors = create(&json!({"name": "a", "ownerReferences": [owner("p"), owner("q")]}));
    assert_eq!(
        errors,
        [
            "metadata.ownerReferences: Invalid value: [{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"p\",\"uid\":\"u\",\
          \"controller\":true},{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"q\",\"uid\":\"u\",\"controller\":true}]: \
          Only one reference can have Controller set to true. Found \"true\" in references for Pod/p and Pod/q"
        ]
    );
}

#[test]
fn finalizers_of_built_in_kinds_have_a_domain() {
    let errors = create(&json!({"name": "g", "finalizers": ["bad finalizer"]}));
    assert!(
        errors[0]
            .starts_with("metadata.finalizers: Invalid value: \"bad finalizer\": name part must consist")
    );
    assert_eq!(
        errors[1],
        "metadata.finalizers[0]: Invalid value: \"bad finalizer\": name is neither a standard finalizer name nor is \
         it fully qualified"
    );
    let custom = json!({"apiVersion": "diff.example/v1", "kind": "Gadget",
        "metadata": {"name": "g", "namespace": "ns", "finalizers": ["plain"]}});
    assert!(validate_object_meta(&custom, true, NameRule::Subdomain).is_empty());
    let both = create(&json!({"name": "g", "finalizers": ["orphan", "foregroundDeletion"]}));
    assert_eq!(
        both,
        ["metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and \
          foregroundDeletion cannot be both set"]
    );
}

#[test]
fn a_deleted_object_gets_no_new_finalizer() {
    let old = config_map(
        &json!({"name": "f", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/x"]}),
    );
    let mut new = old.clone();
    new["metadata"]["finalizers"] = json!(["example.com/x", "example.com/y"]);
    let status = validate_object_meta_update(&new, &old).into_status(&GroupKind::new("", "ConfigMap"), "f");
    assert_eq!(
        status.message,
        "ConfigMap \"f\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is \
         being deleted, found new finalizers []string{\"example.com/y\"}"
    );
    assert_eq!(status.details.unwrap().causes.len(), 2);
}

#[test]
fn what_the_server_decides_does_not_change() {
    let old = json!({"name": "a", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 3});
    let new = json!({"name": "b", "uid": "v", "deletionGracePeriodSeconds": 5, "generation": 2});
    assert_eq!(
        update(&new, &old),
        [
            "metadata.generation: Invalid value: 2: must not be decremented",
            "metadata.name: Invalid value: \"b\": field is immutable",
            "metadata.uid: Invalid value: \"v\": field is immutable",
            "metadata.creationTimestamp: Invalid value: null: field is immutable",
            "metadata.deletionGracePeriodSeconds: Invalid value: 5: field is immutable",
        ]
    );
    let deleting = json!({"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"});
    assert_eq!(
        update(&json!({"name": "a"}), &deleting),
        ["metadata.deletionTimestamp: Invalid value: \"null\": field is immutable"]
    );
}

#[test]
fn wrong_types_are_refused_in_the_decoders_words() {
    let check = |metadata: Value| {
        metadata_shape(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})).err()
    };
    for (metadata, expect) in [
        (json!(null), None),
        (json!({"name": null, "labels": null}), None),
        (
            json!("x"),
            Some(
                "json: cannot unmarshal string into Go struct field ConfigMap.metadata of type v1.ObjectMeta",
            ),
        ),
        (
            json!({"name": 5}),
            Some(
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string",
            ),
        ),
        (
            json!({"labels": {"a": 1}}),
            Some(
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
            ),
        ),
        (
            json!({"labels": []}),
            Some(
                "json: cannot unmarshal array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
            ),
        ),
        (
            json!({"generation": 1.5}),
            Some(
                "json: cannot unmarshal number 1.5 into Go struct field ObjectMeta.metadata.generation of type int64",
            ),
        ),
        (
            json!({"finalizers": [true]}),
            Some(
                "json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.finalizers of type string",
            ),
        ),
        (
            json!({"ownerReferences": [{"name": 1}]}),
            Some(
                "json: cannot unmarshal number into Go struct field OwnerReference.metadata.ownerReferences.name of type string",
            ),
        ),
        (json!({"creationTimestamp": 3}), Some("json: cannot unmarshal number into Go value of type string")),
    ] {
        assert_eq!(check(metadata.clone()), expect.map(str::to_owned), "{metadata}");
    }
}
