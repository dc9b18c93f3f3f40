//! Definitions as people get them wrong.

use serde_json::json;

use super::*;

fn crd() -> Value {
    json!({
        "metadata": {"name": "gadgets.a.example"},
        "spec": {
            "group": "a.example", "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}],
            "conversion": {"strategy": "None"},
        },
        "status": {"storedVersions": ["v1"]},
    })
}

#[track_caller]
fn check(change: impl FnOnce(&mut Value), expected: &[&str]) {
    let mut object = crd();
    change(&mut object);
    let mut errors = FieldErrors::default();
    validate(&object, &mut errors);
    let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_plain_definition_is_right() {
    check(|_| {}, &[]);
}

/// Of any release, whether this server has it or not, and our own.
#[test]
fn what_is_built_in_cannot_be_defined() {
    for (plural, group) in [
        ("deviceclasses", "resource.k8s.io"),
        ("storageversions", "internal.apiserver.k8s.io"),
        ("storagestates", "migration.k8s.io"),
    ] {
        let name = format!("{plural}.{group}");
        let expect = format!(
            "spec.names.plural: Forbidden: {name} is a built-in resource of Kubernetes and cannot be defined"
        );
        check(
            |it| {
                it["metadata"] = json!({"name": name, "annotations": {APPROVAL: "https://github.com/x"}});
                it["spec"]["group"] = json!(group);
                it["spec"]["names"]["plural"] = json!(plural);
            },
            &[&expect],
        );
    }
    // The same name in another group, and another name in the same group, are anybody's.
    check(
        |it| {
            it["metadata"] = json!({"name": "deviceclasses.a.example"});
            it["spec"]["names"]["plural"] = json!("deviceclasses");
        },
        &[],
    );
}

#[test]
fn names_and_groups_are_checked() {
    check(
        |it| it["metadata"]["name"] = json!("x.a.example"),
        &["metadata.name: Invalid value: \"x.a.example\": must be spec.names.plural+\".\"+spec.group"],
    );
    check(
        |it| {
            it["spec"]["group"] = json!("apps");
            it["metadata"]["name"] = json!("gadgets.apps");
        },
        &["spec.group: Invalid value: \"apps\": should be a domain with at least one dot"],
    );
    check(
        |it| it["spec"]["scope"] = json!("Global"),
        &["spec.scope: Unsupported value: \"Global\": supported values: \"Cluster\", \"Namespaced\""],
    );
    check(
        |it| it["spec"]["names"]["listKind"] = json!("Gadget"),
        &["spec.names.listKind: Invalid value: \"Gadget\": kind and listKind may not be the same"],
    );
    check(
        |it| {
            it["spec"]["group"] = json!("x.k8s.io");
            it["metadata"]["name"] = json!("gadgets.x.k8s.io");
        },
        &[
            "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111",
        ],
    );
}

#[test]
fn schemas_are_told_where_upstream_looks_for_them() {
    check(
        |it| it["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] = json!({"spec": {}}),
        &[
            "spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields",
        ],
    );
    check(
        |it| {
            let second = json!({"name": "v2", "served": true, "storage": false,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {}}}}});
            it["spec"]["versions"].as_array_mut().unwrap().push(second);
        },
        &[
            "spec.versions[1].schema.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields",
        ],
    );
    check(
        |it| it["spec"]["versions"][0]["schema"] = Value::Null,
        &["spec.versions[0].schema.openAPIV3Schema: Required value: schemas are required"],
    );
}

#[test]
fn one_version_is_stored_and_listed() {
    check(
        |it| it["spec"]["versions"][0]["storage"] = json!(false),
        &[
            "spec.versions: Invalid value: [{\"Name\":\"v1\",\"Served\":true,\"Storage\":false,\"Deprecated\":false,\"DeprecationWarning\":null,\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}]: must have exactly one version marked as storage version",
        ],
    );
    check(
        |it| it["status"]["storedVersions"] = json!(["v0", "v1"]),
        &[
            "status.storedVersions[0]: Invalid value: \"v0\": missing from spec.versions; v0 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v0 and removes v0 from status.storedVersions",
        ],
    );
}

#[test]
fn conversion_columns_and_subresources_are_checked() {
    check(
        |it| it["spec"]["conversion"] = json!({"strategy": "Webhook"}),
        &[
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
            "spec.conversion.conversionReviewVersions: Required value",
        ],
    );
    check(
        |it| {
            it["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v9"],
                "clientConfig": {"url": "http://x"}}});
        },
        &[
            "spec.conversion.webhookClientConfig.url: Invalid value: \"http://x\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
            "spec.conversion.conversionReviewVersions: Invalid value: [\"v9\"]: must include at least one of v1, v1beta1",
        ],
    );
    check(
        |it| {
            it["spec"]["versions"][0]["additionalPrinterColumns"] =
                json!([{"name": "", "type": "x", "jsonPath": "spec"}]);
        },
        &[
            "spec.additionalPrinterColumns[0].name: Required value",
            "spec.additionalPrinterColumns[0].type: Invalid value: \"x\": must be one of boolean,date,integer,number,string",
            "spec.additionalPrinterColumns[0].JSONPath: Invalid value: \"spec\": must be a simple json path starting with .",
        ],
    );
    check(
        |it| {
            it["spec"]["versions"][0]["subresources"] =
                json!({"scale": {"specReplicasPath": ".x", "statusReplicasPath": ""}});
        },
        &[
            "spec.subresources.scale.specReplicasPath: Invalid value: \".x\": should be a json path under .spec",
            "spec.subresources.scale.statusReplicasPath: Required value",
        ],
    );
    check(
        |it| it["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.nope"}]),
        &[
            "spec.selectableFields[0].jsonPath: Invalid value: \".spec.nope\": is an invalid path: does not refer to a valid field",
        ],
    );
    check(
        |it| it["spec"]["versions"][0]["deprecationWarning"] = json!("old"),
        &[
            "spec.versions[0].deprecationWarning: Invalid value: \"old\": can only be set for deprecated versions",
        ],
    );
}

#[test]
fn what_is_in_use_does_not_change() {
    let mut old = crd();
    old["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
    let mut new = old.clone();
    new["spec"]["scope"] = json!("Cluster");
    new["spec"]["names"]["kind"] = json!("Other");
    let mut errors = FieldErrors::default();
    validate_changed(&new, &old, &mut errors);
    let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "spec.scope: Invalid value: \"Cluster\": field is immutable",
            "spec.names.kind: Invalid value: \"Other\": field is immutable",
        ]
    );
}
