//! What `convoy controllers --print-manifests` gives a cluster that is not ours: rights, and a policy that freezes.

use std::process::Command;

use serde_json::{Value, json};

use super::{
    history::History,
    widgets::{
        DEFINITION, RESOURCE, WIDGETS, annotate, fill, flip, migrated, settled, stored, succeeded,
        triggered, versions,
    },
};
use crate::{
    fixture::BINARY,
    fleet::{
        ground::{Ground, Ship, ask, eventually},
        hand::Hand,
        on_both_stores,
    },
};

on_both_stores!(
    /// T18: through the API, as the ServiceAccount of the manifests; of the objects it may list and patch the chosen ones.
    the_rights_in_the_manifests_are_enough_and_no_more,
    /// A3, A4, A5, A6, A7, A17, A18: a policy in place of the proposal's webhook.
    the_policy_in_the_manifests_freezes,
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
    let plural = match kind(object) {
        "ValidatingAdmissionPolicy" => "validatingadmissionpolicies".to_owned(),
        other => format!("{}s", other.to_lowercase()),
    };
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

/// A4, A5: what the policy is asked about, and what happens when it cannot be.
#[test]
fn the_policy_is_about_updates_of_definitions_and_fails_closed() {
    let all = manifests();
    let policy = all.iter().find(|it| kind(it) == "ValidatingAdmissionPolicy").unwrap();
    assert_eq!(policy["metadata"]["name"], POLICY);
    assert_eq!(policy["spec"]["failurePolicy"], "Fail");
    let rules = json!([{"apiGroups": ["apiextensions.k8s.io"], "apiVersions": ["v1"], "operations": ["UPDATE"],
        "resources": ["customresourcedefinitions"]}]);
    assert_eq!(policy["spec"]["matchConstraints"]["resourceRules"], rules);
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
            // Built in here; and nobody would run the other one.
            "CustomResourceDefinition" | "Deployment" => continue,
            "ClusterRole" => {
                object["rules"][0] = json!({"apiGroups": ["example.com"], "resources": ["widgets"],
                    "verbs": ["list", "patch"]});
            }
            _ => {}
        }
        apply(&ship, object).await;
    }
    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
    let client = ship.server.client_as(ACCOUNT, &groups);
    eventually("the rights are known", async || {
        ask(&client, "GET", super::widgets::STATES, Value::Null).await.0 == 200
    })
    .await;
    fill(&ship, 20).await;
    let hand = Hand::beside(&client, "storage-version-migrator,storage-version-trigger");
    settled(&ship, RESOURCE, "example.com/v1").await;
    flip(&ship, "v2").await;
    let done = succeeded(&ship, &triggered(&ship, "v2").await).await;
    assert_eq!(done["status"]["engine"], "API");
    assert_eq!(done["status"]["evidence"]["kind"], "SecondPassAllEndpoints");
    assert_eq!(done["status"]["prunedVersions"], json!(["v1"]));
    migrated(&ship, "v2").await;
    assert_eq!(stored(&ground).await, [("example.com/v2".to_owned(), 20)].into());
    let refused: Vec<_> = hand.answers().into_iter().filter(|it| it.code == 403).collect();
    assert!(refused.is_empty(), "{refused:?}");
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

/// A freeze that has run out is none for this server, but a policy has no clock: so it is the policy that refuses here.
async fn the_policy_in_the_manifests_freezes(ground: Ground) {
    let ship = ground.launch("a", 36).await;
    fill(&ship, 3).await;
    let frozen = json!({"ksvm.sigs.k8s.io/migrating": "true", "convoy.dev/migrating-until": "2020-01-01T00:00:00Z"});
    annotate(&ship, DEFINITION, frozen).await;
    let parts: Vec<Value> =
        manifests().into_iter().filter(|it| kind(it).starts_with("ValidatingAdmissionPolicy")).collect();
    assert_eq!(parts.len(), 2);
    let flipped = json!({"spec": {"versions": versions("v2")}});
    let dry = format!("{DEFINITION}?dryRun=All");
    // On, off and on again.
    for round in 0..2 {
        ship.expect(200, "PATCH", &dry, flipped.clone()).await;
        for part in &parts {
            apply(&ship, part.clone()).await;
        }
        eventually("a flip is refused", async || ship.ask("PATCH", &dry, flipped.clone()).await.0 == 422).await;
        let why = ship.expect(422, "PATCH", &dry, flipped.clone()).await;
        let why = why["message"].as_str().unwrap();
        assert!(why.contains(&format!("ValidatingAdmissionPolicy '{POLICY}'")), "{why}");
        assert!(why.contains("the storage version stays v1"), "{why}");
        assert!(why.contains("convoy migrate --cancel widgets.example.com"), "{why}");
        // Anything else may change.
        let mut described = versions("v1");
        described[0]["schema"]["openAPIV3Schema"]["description"] = json!(format!("round {round}"));
        ship.expect(200, "PATCH", DEFINITION, json!({"spec": {"versions": described}})).await;
        for part in &parts {
            let path = format!("{}/{POLICY}", place(part));
            ship.expect(200, "DELETE", &path, Value::Null).await;
        }
        eventually("nothing is refused", async || ship.ask("PATCH", &dry, flipped.clone()).await.0 == 200).await;
    }
    // Where the annotation was left behind, removing it is the remedy.
    for part in parts {
        apply(&ship, part).await;
    }
    eventually("a flip is refused", async || ship.ask("PATCH", &dry, flipped.clone()).await.0 == 422).await;
    annotate(&ship, DEFINITION, json!({"ksvm.sigs.k8s.io/migrating": null})).await;
    flip(&ship, "v2").await;
}
