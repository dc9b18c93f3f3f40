//! Objects that a webhook converts: when it is down a migration waits, and says so.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde_json::{Value, json};
use testkit::{
    tools,
    webhook::{Identity, Reply, Webhook},
};

use super::{
    history::History,
    widgets::{
        ALL_WIDGETS, DEFINITION, definition, ended, fill_with, flip, is_frozen, stays_for, stored,
        stored_versions, succeeded, triggered, versions, widget,
    },
};
use crate::fleet::{
    ground::{Ground, eventually},
    on_both_stores, through_api_too,
};

on_both_stores!(
    /// T1 (with conversion), T4, T12, LAB 6.
    a_webhook_that_is_down_is_waited_for,
    /// T6, T12.
    an_object_that_the_webhook_refuses_is_named,
);

through_api_too!(
    /// T1 (with conversion), T4, T12, LAB 6.
    a_webhook_that_is_down_is_waited_for,
);

/// Seconds for which the webhook is dead, in CI and with `CONVOY_SOAK`.
const SHORT_OUTAGE: u64 = 3;
const LONG_OUTAGE: u64 = 90;

/// Notes in which version an object was converted; refuses those that are called so.
fn converted(review: &Value) -> Value {
    let wanted = review["request"]["desiredAPIVersion"].clone();
    let mut objects = review["request"]["objects"].as_array().cloned().unwrap_or_default();
    let is_refused = objects.iter().any(|it| it["metadata"]["name"] == "refused");
    for object in &mut objects {
        object["apiVersion"] = wanted.clone();
        object["spec"]["converted"] = json!(true);
    }
    let result = if is_refused {
        json!({"status": "Failed", "message": "not this one"})
    } else {
        json!({"status": "Success"})
    };
    json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": {
        "uid": review["request"]["uid"], "result": result, "convertedObjects": objects}})
}

fn with_webhook(hook: &Webhook) -> Value {
    let mut crd = definition("v1");
    crd["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
        "clientConfig": {"url": hook.url("/convert"), "caBundle": hook.ca_bundle()}}});
    crd
}

async fn a_webhook_that_is_down_is_waited_for(ground: Ground) {
    let history = History::of(&ground).await;
    let is_down = Arc::new(AtomicBool::new(false));
    let down = Arc::clone(&is_down);
    let hook = Webhook::start(Identity::Good, move |review| {
        if down.load(Ordering::Relaxed) { Reply::Close } else { Reply::Json(converted(review)) }
    })
    .await
    .unwrap();
    let ship = ground.launch_migrating("a", 36, &[]).await;
    fill_with(&ship, with_webhook(&hook), (0..12).map(|n| widget(&format!("w{n}")))).await;
    is_down.store(true, Ordering::Relaxed);
    flip(&ship, "v2").await;
    let path = triggered(&ship, "v2").await;
    eventually("the webhook is named", async || {
        let found = ship.get(&path).await;
        found["status"]["message"]
            .as_str()
            .unwrap_or_default()
            .contains("conversion webhook for example.com/v1")
    })
    .await;
    // However often it is tried, it is not given up, and says why all the while.
    let outage = if tools::is_soak() { LONG_OUTAGE } else { SHORT_OUTAGE };
    stays_for(outage, "it waits", async || {
        let found = ship.get(&path).await;
        let status = &found["status"];
        (&status["phase"], &status["reason"]) == (&json!("Running"), &json!("Waiting"))
            && status["message"].as_str().unwrap_or_default().contains("conversion webhook")
            && stored_versions(&ship).await == json!(["v1", "v2"])
    })
    .await;
    assert_eq!(stored(&ground).await, [("example.com/v1".to_owned(), 12)].into());
    is_down.store(false, Ordering::Relaxed);
    assert_eq!(succeeded(&ship, &path).await["status"]["progress"]["migrated"], 12);
    assert_eq!(stored_versions(&ship).await, json!(["v2"]));
    assert_eq!(stored(&ground).await, [("example.com/v2".to_owned(), 12)].into());

    // The old version and the webhook are not needed any more.
    let mut only = versions("v2").as_array().cloned().unwrap();
    only.retain(|it| it["name"] == "v2");
    let patch = json!({"spec": {"versions": only, "conversion": {"strategy": "None", "webhook": null}}});
    ship.expect(200, "PATCH", DEFINITION, patch).await;
    drop(hook);
    let list = ship.get(&ALL_WIDGETS.replace("v1", "v2")).await;
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 12);
    assert!(items.iter().all(|it| it["spec"]["converted"] == true), "{list}");
    history.judge().await;
}

async fn an_object_that_the_webhook_refuses_is_named(ground: Ground) {
    let hook = Webhook::start(Identity::Good, |review| Reply::Json(converted(review))).await.unwrap();
    let ship = ground.launch_migrating("a", 36, &[]).await;
    fill_with(&ship, with_webhook(&hook), ["a", "refused", "z"].map(widget).into_iter()).await;
    flip(&ship, "v2").await;
    let path = triggered(&ship, "v2").await;
    let status = ended(&ship, &path).await["status"].take();
    assert_eq!(status["phase"], "Failed", "{status:#}");
    assert_eq!(status["failures"][0]["class"], "Denied", "{status:#}");
    assert_eq!(status["failures"][0]["objects"], json!(["default/refused"]), "{status:#}");
    assert!(status["failures"][0]["message"].as_str().unwrap().contains("not this one"), "{status:#}");
    let counts = stored(&ground).await;
    assert_eq!(counts, [("example.com/v1".to_owned(), 1), ("example.com/v2".to_owned(), 2)].into());
    let crd = ship.get(DEFINITION).await;
    assert_eq!(crd["status"]["storedVersions"], json!(["v1", "v2"]));
    assert!(!is_frozen(&crd));
}
