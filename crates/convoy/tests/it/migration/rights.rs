//! What `convoy controllers --print-manifests` gives a cluster that is not ours: rights, and a policy that freezes.

use std::process::Command;

use serde_json::{Value, json};

use super::{
    history::History,
    widgets::{
        DEFINITION, RESOURCE, STATES, WIDGETS, fill, flip, migrated, settled, stored, succeeded, triggered,
    },
};
use crate::{
    fixture::BINARY,
    fleet::{
        ground::{Ground, Ship, ask, eventually},
        hand::{Care, Hand},
        on_both_stores,
    },
};

on_both_stores!(
    /// T18: through the API, as the ServiceAccount of the manifests; of the objects it may list and patch the chosen ones.
    the_rights_in_the_manifests_are_enough_and_no_more,
);

const ACCOUNT: &str = "system:serviceaccount:kube-system:convoy-controllers";
const POLICY: &str = "crd.kube-storage-version-migrator.io";

/// Everything that is printed.
fn manifests() -> Vec<Value> {
    let output = Command::new(BINARY).args(["controllers", "--print-manifests"]).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    text.split("\n---\n").map(|it| serde_saphyr::from_str(it).unwrap()).collect()
}

fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap()
}

/// Where objects of this kind are made.
fn place(object: &Value) -> String {
    let version = object["apiVersion"].as_str().unwrap();
    let root = if version.contains('/') { "apis" } else { "api" };
    let plural = format!("{}s", kind(object).to_lowercase());
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("/{root}/{version}/namespaces/{namespace}/{plural}"),
        None => format!("/{root}/{version}/{plural}"),
    }
}

async fn apply(ship: &Ship, object: Value) {
    let place = place(&object);
    ship.expect(201, "POST", &place, object).await;
}

/// A3, A14, A15, A16, A19, A21: a policy needs no certificate, no pod and no circle with whoever makes certificates. No
/// kind is new but the two of kube-storage-version-migrator, and nothing is there that only one installer would know.
#[test]
fn the_manifests_hold_no_webhook_and_no_certificate() {
    let all = manifests();
    let mut kinds: Vec<&str> = all.iter().map(kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let expected = [
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "Deployment",
        "FlowSchema",
        "Role",
        "RoleBinding",
        "ServiceAccount",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ];
    assert_eq!(kinds, expected);
    let mut defined: Vec<&str> = all
        .iter()
        .filter(|it| kind(it) == "CustomResourceDefinition")
        .map(|it| it["metadata"]["name"].as_str().unwrap())
        .collect();
    defined.sort_unstable();
    assert_eq!(defined, ["storagestates.migration.k8s.io", "storageversionmigrations.migration.k8s.io"]);
}

/// A3, A4, A5, A6, A7: what the policy is asked about, what it says, and what happens when it cannot be asked. Convoy's
/// servers refuse by themselves (`freeze.rs`), and evaluate no policies; so this one is read here, and not tried.
#[test]
fn the_policy_is_about_the_storage_version_of_frozen_definitions_and_fails_closed() {
    let all = manifests();
    let policy = all.iter().find(|it| kind(it) == "ValidatingAdmissionPolicy").unwrap();
    assert_eq!(policy["metadata"]["name"], POLICY);
    assert_eq!(policy["spec"]["failurePolicy"], "Fail");
    let rules = json!([{"apiGroups": ["apiextensions.k8s.io"], "apiVersions": ["v1"], "operations": ["UPDATE"],
        "resources": ["customresourcedefinitions"]}]);
    assert_eq!(policy["spec"]["matchConstraints"]["resourceRules"], rules);
    let variable = |name: &str| {
        let all = policy["spec"]["variables"].as_array().unwrap();
        all.iter().find(|it| it["name"] == name).unwrap()["expression"].as_str().unwrap()
    };
    // The definition that is replaced decides, as in `registry::custom::frozen`.
    assert!(variable("annotations").contains("oldObject.metadata.annotations"));
    assert!(variable("isFrozen").ends_with("variables.annotations['ksvm.sigs.k8s.io/migrating'] == 'true'"));
    assert_eq!(variable("before"), "oldObject.spec.versions.filter(v, v.storage).map(v, v.name)");
    assert_eq!(variable("after"), "object.spec.versions.filter(v, v.storage).map(v, v.name)");
    let validations = policy["spec"]["validations"].as_array().unwrap();
    assert_eq!(validations.len(), 1);
    assert_eq!(validations[0]["expression"], "!variables.isFrozen || variables.before == variables.after");
    assert!(variable("migration").contains("variables.annotations['convoy.dev/migration']"));
    let words = validations[0]["messageExpression"].as_str().unwrap();
    assert!(words.contains("variables.migration") && words.contains("convoy migrate --cancel"), "{words}");
    // By these words the migrator knows that it was the freeze that refused.
    assert!(
        validations[0]["messageExpression"].as_str().unwrap().contains("ksvm.sigs.k8s.io/migrating=true")
    );
    let binding = all.iter().find(|it| kind(it) == "ValidatingAdmissionPolicyBinding").unwrap();
    assert_eq!(
        (&binding["spec"]["policyName"], &binding["spec"]["validationActions"]),
        (&json!(POLICY), &json!(["Deny"]))
    );
}

async fn the_rights_in_the_manifests_are_enough_and_no_more(ground: Ground) {
    let history = History::of(&ground).await;
    let ship = ground.launch("a", 36).await;
    for mut object in manifests() {
        match kind(&object) {
            // Built in here; nobody would run the second, nor evaluate the others.
            "CustomResourceDefinition"
            | "Deployment"
            | "ValidatingAdmissionPolicy"
            | "ValidatingAdmissionPolicyBinding" => continue,
            "ClusterRole" => {
                assert_eq!(
                    object["rules"][0]["verbs"],
                    json!(["list", "patch"]),
                    "nothing is read through objects"
                );
                object["rules"][0] = json!({"apiGroups": ["example.com"], "resources": ["widgets"],
                    "verbs": ["list", "patch"]});
            }
            _ => {}
        }
        apply(&ship, object).await;
    }
    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
    let client = ship.server.client_as(ACCOUNT, &groups);
    eventually("the rights are known", async || ask(&client, "GET", STATES, Value::Null).await.0 == 200)
        .await;
    fill(&ship, 20).await;
    let hand = Hand::beside(&client, "storage-version-migrator,storage-version-trigger", Care::Everything);
    settled(&ship, RESOURCE, "example.com/v1").await;
    flip(&ship, "v2").await;
    let done = succeeded(&ship, &triggered(&ship, "v2").await).await;
    assert_eq!(done["status"]["engine"], "API");
    assert_eq!(done["status"]["evidence"]["kind"], "SecondPassAllEndpoints");
    assert_eq!(done["status"]["prunedVersions"], json!(["v1"]));
    migrated(&ship, "v2").await;
    assert_eq!(stored(&ground).await, [("example.com/v2".to_owned(), 20)].into());
    // The trigger looks at what is none of its business here, and is told so; that holds up nobody.
    let needed = ["example.com", "apiextensions.k8s.io", "migration.k8s.io", "storagemigration.k8s.io"];
    let is_needed = |path: &str| path.split('/').any(|it| needed.contains(&it));
    let refused: Vec<_> = hand.answers().into_iter().filter(|it| it.code == 403).collect();
    assert!(refused.iter().all(|it| !is_needed(&it.path)), "{refused:?}");
    for (method, path) in [
        ("GET", "/api/v1/secrets"),
        ("GET", "/api/v1/namespaces/default/configmaps"),
        ("DELETE", WIDGETS),
        ("DELETE", DEFINITION),
    ] {
        assert_eq!(ask(&client, method, path, Value::Null).await.0, 403, "{method} {path}");
    }
    history.judge().await;
}
