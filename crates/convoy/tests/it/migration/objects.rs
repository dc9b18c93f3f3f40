//! Objects that somebody stands in the way of: a webhook, a rule that came later, their own end.

use serde_json::{Value, json};
use store::{Key, Store, Txn};
use testkit::webhook::{Identity, Reply, Webhook};

use super::{
    history::History,
    widgets::{
        DEFINITION, MIGRATIONS, PREFIX, WIDGETS, ask_for, definition, ended, fill_with, is_frozen, stored,
        stored_versions, succeeded, triggered, versions, widget,
    },
};
use crate::fleet::{
    ground::{Ground, Ship, eventually},
    on_both_stores, through_api_too,
};

on_both_stores!(
    /// T2, T6, LAB 1. In the store nobody is asked, so nobody stands in the way.
    one_denied_one_invalid_and_one_terminating_among_a_thousand,
    /// T6, T20, A11, A13: in the store only what cannot be read stays as it is.
    three_that_cannot_be_read_among_a_thousand_are_named,
);

through_api_too!(
    /// T2, T6, LAB 1, A11, A13.
    one_denied_one_invalid_and_one_terminating_among_a_thousand,
);

const N: usize = 1000;
const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// The versions; a widget has to have a size, which those that are there have not.
fn strict(storage: &str) -> Value {
    let mut versions = versions(storage);
    for version in versions.as_array_mut().unwrap() {
        version["schema"]["openAPIV3Schema"]["properties"] = json!({"spec": {"type": "object",
            "x-kubernetes-preserve-unknown-fields": true, "required": ["size"],
            "properties": {"size": {"type": "integer"}}}});
    }
    versions
}

/// Stores an object with a label that no server would accept.
async fn put_invalid(ship: &Ship, ground: &Ground) {
    let key = Key::new(format!("{PREFIX}default/invalid"));
    let entry = ground.store.get(&key).await.unwrap().unwrap();
    let mut object: Value = serde_json::from_slice(&entry.value).unwrap();
    object["metadata"]["labels"] = json!({"no label": "at all"});
    let txn = Txn::new().require_at(&key, entry.modified).put(&key, object.to_string().into());
    ground.store.commit(txn).await.unwrap();
    // A dry run may be about what the server knew a moment ago.
    eventually("no server would accept it", async || {
        ship.ask("PATCH", &format!("{WIDGETS}/invalid?dryRun=All"), json!({"a": "b"})).await.0 == 422
    })
    .await;
}

/// Has changes of objects looked at by the webhook.
async fn obstruct(ship: &Ship, hook: &Webhook) {
    let rule = json!({"operations": ["UPDATE"], "apiGroups": ["example.com"], "apiVersions": ["*"],
        "resources": ["widgets"]});
    let webhook = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "guard"}, "webhooks": [{"name": "guard.example.com", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "rules": [rule],
            "clientConfig": {"url": hook.url("/guard"), "caBundle": hook.ca_bundle()}}]});
    ship.expect(201, "POST", HOOKS, webhook).await;
    ship.server.webhooks_settled().await;
    for name in ["denied", "terminating"] {
        let path = format!("{WIDGETS}/{name}?dryRun=All");
        eventually("it is refused", async || {
            ship.ask("PATCH", &path, json!({"metadata": {"labels": {"a": "b"}}})).await.0 >= 400
        })
        .await;
    }
}

fn repaired() -> Value {
    json!({"metadata": {"labels": {"no label": null}}})
}

async fn clear_the_way(ship: &Ship) {
    ship.expect(200, "DELETE", &format!("{HOOKS}/guard"), Value::Null).await;
    for name in ["denied", "terminating", "invalid"] {
        let path = format!("{WIDGETS}/{name}");
        eventually("it is not refused any more", async || {
            ship.ask("PATCH", &format!("{path}?dryRun=All"), repaired()).await.0 == 200
        })
        .await;
    }
    ship.expect(200, "PATCH", &format!("{WIDGETS}/invalid"), repaired()).await;
}

async fn one_denied_one_invalid_and_one_terminating_among_a_thousand(ground: Ground) {
    let history = History::of(&ground).await;
    let hook = Webhook::start(Identity::Good, |review| {
        let request = &review["request"];
        // Many webhooks let nobody touch what is being deleted.
        let is_ending = request["oldObject"]["metadata"]["deletionTimestamp"].is_string();
        let is_denied = request["name"] == "denied" || is_ending;
        Reply::Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {
            "uid": review["request"]["uid"], "allowed": !is_denied, "status": {"message": "not this one"}}}))
    })
    .await
    .unwrap();
    let ship = ground.launch_migrating("a", 36, &[]).await;
    let mut terminating = widget("terminating");
    terminating["metadata"]["finalizers"] = json!(["example.com/held"]);
    let odd = [widget("denied"), widget("invalid"), terminating];
    let even = (0..N - odd.len()).map(|n| widget(&format!("w{n:03}")));
    fill_with(&ship, definition("v1"), even.chain(odd)).await;
    ship.expect(200, "DELETE", &format!("{WIDGETS}/terminating"), Value::Null).await;
    put_invalid(&ship, &ground).await;
    obstruct(&ship, &hook).await;
    let n_asked = hook.calls().len();

    // The rules become stricter than what is there. That stands in nobody's way: what does not change is not judged.
    ship.expect(200, "PATCH", DEFINITION, json!({"spec": {"versions": strict("v2")}})).await;
    let path = triggered(&ship, "v2").await;
    let status = ended(&ship, &path).await["status"].take();
    if ground.is_through_api() {
        assert_three_are_named(&status);
        let crd = ship.get(DEFINITION).await;
        assert_eq!(crd["status"]["storedVersions"], json!(["v1", "v2"]));
        assert!(!is_frozen(&crd));
        let counts = [("example.com/v1".to_owned(), 3), ("example.com/v2".to_owned(), N - 3)];
        assert_eq!(stored(&ground).await, counts.into());
        // Whoever reads the status knows what to do; what is being deleted is an object like any other.
        clear_the_way(&ship).await;
        let again = succeeded(&ship, &ask_for(&ship, MIGRATIONS, "again", json!({})).await).await;
        let progress = &again["status"]["progress"];
        // The one that was repaired is new already.
        assert_eq!((&progress["migrated"], &progress["unchanged"]), (&json!(2), &json!(N - 2)));
    } else {
        assert_eq!(status["phase"], "Succeeded", "{status:#}");
        assert_eq!(status["evidence"]["objects"], N);
        assert_eq!(status["progress"]["failed"], 0);
        assert_eq!(hook.calls().len(), n_asked, "a rewrite is nobody's business");
    }
    assert_eq!(stored(&ground).await, [("example.com/v2".to_owned(), N)].into());
    assert_eq!(stored_versions(&ship).await, json!(["v2"]));
    let last = ship.get(&format!("{WIDGETS}/terminating")).await;
    assert!(last["metadata"]["deletionTimestamp"].is_string(), "{last}");
    history.judge().await;
}

/// 997 are migrated, and of the others it is said who refused them.
fn assert_three_are_named(status: &Value) {
    assert_eq!(
        (&status["phase"], &status["reason"]),
        (&json!("Failed"), &json!("ObjectsFailed")),
        "{status:#}"
    );
    assert_eq!((&status["progress"]["migrated"], &status["progress"]["failed"]), (&json!(N - 3), &json!(3)));
    let of = |class: &str| {
        let found = status["failures"].as_array().unwrap().iter().find(|it| it["class"] == class);
        found.unwrap_or_else(|| panic!("no {class}: {status:#}"))
    };
    assert_eq!(of("Denied")["objects"], json!(["default/denied", "default/terminating"]), "{status:#}");
    assert!(of("Denied")["message"].as_str().unwrap().contains("not this one"), "{status:#}");
    assert_eq!(of("Invalid")["objects"], json!(["default/invalid"]), "{status:#}");
    assert!(of("Invalid")["message"].as_str().unwrap().contains("metadata.labels"), "{status:#}");
}

async fn three_that_cannot_be_read_among_a_thousand_are_named(ground: Ground) {
    let ship = ground.launch_migrating("a", 36, &[]).await;
    fill_with(&ship, definition("v1"), (0..N - 3).map(|n| widget(&format!("w{n:03}")))).await;
    let strange =
        [json!({}), json!({"apiVersion": "example.com/v9"}), json!({"apiVersion": "example.com/v8"})];
    for (n, head) in strange.iter().enumerate() {
        let mut object = head.clone();
        object["kind"] = json!("Widget");
        object["metadata"] = json!({"name": format!("strange-{n}"), "namespace": "default"});
        let key = Key::new(format!("{PREFIX}default/strange-{n}"));
        ground.store.commit(Txn::new().put(&key, object.to_string().into())).await.unwrap();
    }
    super::widgets::flip(&ship, "v2").await;
    let status = ended(&ship, &triggered(&ship, "v2").await).await["status"].take();
    assert_eq!(status["phase"], "Failed", "{status:#}");
    assert_eq!((&status["progress"]["migrated"], &status["progress"]["failed"]), (&json!(N - 3), &json!(3)));
    let failures = status["failures"].as_array().unwrap();
    assert_eq!(failures.len(), 1, "{status:#}");
    let names: Vec<String> = (0..3).map(|n| format!("default/strange-{n}")).collect();
    assert_eq!(
        (&failures[0]["class"], &failures[0]["objects"]),
        (&json!("Undecodable"), &json!(names)),
        "{status:#}"
    );
    let crd = ship.get(DEFINITION).await;
    assert_eq!(crd["status"]["storedVersions"], json!(["v1", "v2"]));
    assert!(!is_frozen(&crd));
}
