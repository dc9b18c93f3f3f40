//! Whoever migrates falls asleep shortly before it prunes, and wakes when what it found out is not true any more: the
//! freeze has ended, and the storage version was turned back and forth meanwhile.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use testkit::webhook::{Identity, Reply, Webhook};
use tokio::sync::Semaphore;

use super::{
    history::{History, Judged},
    widgets::{
        DEFINITION, MIGRATIONS, RESOURCE, WIDGETS, annotate, ask_for, fill, flip, migrated, says, settled,
        stored, stored_versions, succeeded, widget,
    },
};
use crate::fleet::{
    ground::{Ground, Ship, eventually},
    on_both_stores, through_api_too,
};

on_both_stores!(
    /// T8, T15, A10, A17: everything was decided, only the last write is late.
    a_prune_that_comes_too_late_prunes_nothing_that_is_there,
    /// T8, T15, A10, A17, LAB 2: its connection to the store stands still.
    a_migrator_that_sleeps_until_its_freeze_has_ended_prunes_nothing_that_is_there,
);

through_api_too!(
    /// T8, T15, A10, A17.
    a_prune_that_comes_too_late_prunes_nothing_that_is_there,
);

/// A migration to v2 that has not begun, with its wishes.
async fn prepared(ship: &Ship, rate: &str) -> String {
    fill(ship, 20).await;
    settled(ship, RESOURCE, "example.com/v1").await;
    let wishes = json!({"convoy.dev/paused": "true", "convoy.dev/rate": rate});
    let path = ask_for(ship, MIGRATIONS, "sleeps", wishes).await;
    says(ship, &path, "reason", "Paused").await;
    flip(ship, "v2").await;
    path
}

/// The freeze runs out, and the version that is about to be pruned is written once more.
async fn turn_back_and_forth(ship: &Ship) {
    annotate(ship, DEFINITION, json!({"convoy.dev/migrating-until": "2020-01-01T00:00:00Z"})).await;
    flip(ship, "v1").await;
    ship.expect(201, "POST", WIDGETS, widget("in-between")).await;
    flip(ship, "v2").await;
}

/// In the end everything is as it should be, and it was said truly all the while.
async fn all_is_true(ship: &Ship, ground: &Ground, path: &str, history: History) -> Judged {
    let done = succeeded(ship, path).await;
    assert_eq!(done["status"]["storageVersion"], "example.com/v2", "{done:#}");
    migrated(ship, "v2").await;
    assert_eq!(stored(ground).await, [("example.com/v2".to_owned(), 21)].into());
    let judged = history.judge().await;
    assert!(!judged.is_frozen);
    judged
}

async fn a_prune_that_comes_too_late_prunes_nothing_that_is_there(ground: Ground) {
    let history = History::of(&ground).await;
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let hook = Webhook::start(Identity::Good, move |review| {
        let allowed = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": review["request"]["uid"], "allowed": true}});
        let listed = &review["request"]["object"]["status"]["storedVersions"];
        if *listed == json!(["v2"]) {
            Reply::After(Arc::clone(&held), Box::new(Reply::Json(allowed)))
        } else {
            Reply::Json(allowed)
        }
    })
    .await
    .unwrap();
    let ship = ground.launch_migrating("a", 36, &[]).await;
    let path = prepared(&ship, "0").await;
    let webhook = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "late"}, "webhooks": [{"name": "late.example.com", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "timeoutSeconds": 30,
            "rules": [{"operations": ["UPDATE"], "apiGroups": ["apiextensions.k8s.io"], "apiVersions": ["v1"],
                "resources": ["customresourcedefinitions/status"]}],
            "clientConfig": {"url": hook.url("/late"), "caBundle": hook.ca_bundle()}}]});
    let place = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    ship.expect(201, "POST", place, webhook).await;
    ship.server.webhooks_settled().await;
    annotate(&ship, &path, json!({"convoy.dev/paused": null})).await;
    let is_prune = |it: &Value| it["request"]["object"]["status"]["storedVersions"] == json!(["v2"]);
    eventually("it is about to prune", async || hook.calls().iter().any(is_prune)).await;
    assert_eq!(ship.get(&path).await["status"]["phase"], "Pruning");
    turn_back_and_forth(&ship).await;
    assert_eq!(stored_versions(&ship).await, json!(["v1", "v2"]));
    gate.add_permits(Semaphore::MAX_PERMITS / 2);
    all_is_true(&ship, &ground, &path, history).await;
}

async fn a_migrator_that_sleeps_until_its_freeze_has_ended_prunes_nothing_that_is_there(ground: Ground) {
    let history = History::of(&ground).await;
    let sleeper = ground.launch_migrating("sleeper", 36, &[]).await;
    let awake = ground.launch("awake", 36).await;
    // Slow enough to be seen while it verifies.
    let path = prepared(&sleeper, "20").await;
    annotate(&sleeper, &path, json!({"convoy.dev/paused": null})).await;
    eventually("it looks at everything again", async || {
        let phase = awake.get(&path).await["status"]["phase"].take();
        assert!(phase != "Succeeded", "it was too fast");
        phase == "Verifying"
    })
    .await;
    sleeper.faults.pause_at_next_commit();
    let asleep = sleeper.server.status().server.unwrap().identity;
    sleeper.faults.wait_until_paused().await;
    let phase = awake.get(&path).await["status"]["phase"].take();
    assert!(phase == "Verifying" || phase == "Pruning", "it fell asleep too late: {phase}");
    eventually("the others go on without it", async || {
        awake.server.status().members.iter().all(|it| it.identity != asleep)
    })
    .await;
    turn_back_and_forth(&awake).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    sleeper.faults.resume();
    all_is_true(&awake, &ground, &path, history).await;
}
