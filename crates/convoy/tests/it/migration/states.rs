//! StorageStates: what is known of every resource, and for how long (KEP-2343).

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    history::History,
    widgets::{DEFINITION, RESOURCE, STATES, annotate, fill, flip, migrated, migrations_of, settled, stays},
};
use crate::fleet::{
    ground::{Ground, Ship, eventually},
    on_both_stores, through_api_too,
};

on_both_stores!(
    /// B2, B3, B4, B10.
    a_state_is_called_like_its_resource,
    /// B4, B6, B7, B8, B9, B14, B16, B17. What is counted is never unknown.
    a_state_lists_what_may_be_stored,
    /// B9, B11, B12, B15.
    where_nothing_has_changed_only_the_heartbeat_advances,
    /// B18, B19. What is counted needs no heartbeat.
    a_state_that_nobody_looked_after_says_nothing,
);

through_api_too!(
    /// B4, B6, B7, B8, B9, B14, B16, B17.
    a_state_lists_what_may_be_stored,
    /// B9, B11, B12, B15.
    where_nothing_has_changed_only_the_heartbeat_advances,
    /// B18, B19.
    a_state_that_nobody_looked_after_says_nothing,
);

const STATE: &str = "/apis/migration.k8s.io/v1alpha1/storagestates/widgets.example.com";
const KEY: &str = "/registry/migration.k8s.io/storagestates/widgets.example.com";

fn state(name: &str, group: &str, resource: &str) -> Value {
    json!({"apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageState", "metadata": {"name": name},
        "spec": {"resource": {"group": group, "resource": resource}}})
}

async fn a_state_is_called_like_its_resource(ground: Ground) {
    let ship = ground.launch("a", 36).await;
    for (name, group, resource) in [
        ("widgets", "example.com", "widgets"),
        ("widgets.example.com", "example.org", "widgets"),
        ("x", "", "pods"),
    ] {
        let (code, why) = ship.ask("POST", STATES, state(name, group, resource)).await;
        assert_eq!(code, 422, "{why}");
        assert!(why["message"].as_str().unwrap().contains("metadata.name"), "{why}");
    }
    ship.expect(201, "POST", STATES, state("pods", "", "pods")).await;
    let mut made = state(RESOURCE, "example.com", "widgets");
    let status = json!({"persistedStorageVersionHashes": ["Unknown"], "currentStorageVersionHash": "abc"});
    made["status"] = status.clone();
    let made = ship.expect(201, "POST", STATES, made).await;
    assert_eq!(made["status"]["currentStorageVersionHash"], Value::Null, "{made}");
    // Nobody knows is something that can be said; and only in the status.
    let mut known = made.clone();
    known["status"] = status;
    let unchanged = ship.expect(200, "PUT", STATE, known.clone()).await;
    assert_eq!(unchanged["status"]["currentStorageVersionHash"], Value::Null, "{unchanged}");
    let known = ship.expect(200, "PUT", &format!("{STATE}/status"), known).await;
    assert_eq!(known["status"]["persistedStorageVersionHashes"], json!(["Unknown"]));
    let moved = json!({"spec": {"resource": {"resource": "gadgets"}}});
    let (code, why) = ship.ask("PATCH", STATE, moved).await;
    assert_eq!(code, 422, "{why}");
}

/// What discovery calls the version that is stored.
async fn announced(ship: &Ship) -> Value {
    let mut list = ship.get("/apis/example.com/v1").await;
    let found = list["resources"].as_array_mut().unwrap().iter_mut().find(|it| it["name"] == "widgets");
    found.unwrap()["storageVersionHash"].take()
}

async fn a_state_lists_what_may_be_stored(ground: Ground) {
    let history = History::of(&ground).await;
    let ship = ground.launch_migrating("a", 36, &[]).await;
    fill(&ship, 5).await;
    let first = settled(&ship, RESOURCE, "example.com/v1").await["status"].take();
    let hash = announced(&ship).await;
    assert_eq!(first["currentStorageVersionHash"], hash);
    assert_eq!(first["persistedStorageVersionHashes"], json!([hash]));
    assert!(first["lastHeartbeatTime"].is_string(), "{first:#}");
    flip(&ship, "v2").await;
    migrated(&ship, "v2").await;
    let second = settled(&ship, RESOURCE, "example.com/v2").await["status"].take();
    assert_eq!(second["persistedStorageVersionHashes"], json!([announced(&ship).await]));
    assert_ne!(second["currentStorageVersionHash"], hash);

    let said: Vec<Value> = history.values_of(KEY).iter_mut().map(|it| it["status"].take()).collect();
    let said: Vec<&Value> = said.iter().filter(|it| it["persistedVersions"].is_array()).collect();
    let lists =
        |status: &Value, version: &Value| status["persistedVersions"].as_array().unwrap().contains(version);
    for status in &said {
        // What is written now may be stored: both come in one update.
        let current = &status["currentVersion"];
        assert!(current == "Unknown" || lists(status, current), "{status:#}");
    }
    let is_unknown = said.iter().any(|it| lists(it, &json!("Unknown")));
    assert_eq!(is_unknown, ground.is_through_api(), "{said:#?}");
    if is_unknown {
        assert_eq!(said[0]["persistedVersions"], json!(["Unknown", "example.com/v1"]), "{said:#?}");
    }
    // The old one stands there until nothing is stored in it any more.
    let both = json!(["example.com/v1", "example.com/v2"]);
    assert!(said.iter().any(|it| it["persistedVersions"] == both), "{said:#?}");
    history.judge().await;
}

/// Says that the state was last looked after so long ago.
async fn age(ship: &Ship, minutes: i64) -> String {
    let then = Timestamp::from_second(Timestamp::now().as_second()).unwrap();
    let then = (then - SignedDuration::from_mins(minutes)).to_string();
    eventually("the state is older", async || {
        let mut state = ship.get(STATE).await;
        state["status"]["lastHeartbeatTime"] = json!(then);
        // Somebody else may have written it.
        let (code, answer) = ship.ask("PUT", &format!("{STATE}/status"), state).await;
        assert!(matches!(code, 200 | 409), "{answer}");
        code == 200
    })
    .await;
    then
}

async fn until_looked_after(ship: &Ship, since: &str) -> Value {
    eventually("somebody looks after it", async || {
        let state = ship.get(STATE).await;
        state["status"]["lastHeartbeatTime"].as_str().unwrap_or_default() > since
    })
    .await;
    ship.get(STATE).await["status"].take()
}

async fn where_nothing_has_changed_only_the_heartbeat_advances(ground: Ground) {
    let ship = ground.launch_migrating("a", 36, &[]).await;
    fill(&ship, 5).await;
    let mut before = settled(&ship, RESOURCE, "example.com/v1").await["status"].take();
    let made = migrations_of(&ship, RESOURCE).await.len();
    // It is due, and the resource is looked at: that need not wait for the next period.
    let then = age(&ship, 6).await;
    annotate(&ship, DEFINITION, json!({"looked": "at"})).await;
    let mut after = until_looked_after(&ship, &then).await;
    for status in [&mut before, &mut after] {
        status["lastHeartbeatTime"].take();
        // A count says when it was made.
        status["evidence"]["time"].take();
    }
    assert_eq!(before, after);
    assert_eq!(migrations_of(&ship, RESOURCE).await.len(), made);
    // One that is not due is left alone.
    let then = age(&ship, 2).await;
    annotate(&ship, DEFINITION, json!({"looked": "again"})).await;
    stays("it is not written for nothing", async || {
        ship.get(STATE).await["status"]["lastHeartbeatTime"] == then
    })
    .await;
}

async fn a_state_that_nobody_looked_after_says_nothing(ground: Ground) {
    let history = History::of(&ground).await;
    let ship = ground.launch_migrating("a", 36, &[]).await;
    fill(&ship, 5).await;
    settled(&ship, RESOURCE, "example.com/v1").await;
    let n_unknown = || {
        let all = history.values_of(KEY);
        let lists = |it: &&Value| {
            it["status"]["persistedVersions"].as_array().is_some_and(|it| it.contains(&json!("Unknown")))
        };
        all.iter().filter(lists).count()
    };
    let n_before = n_unknown();
    let mut ship = Some(ship);
    // Nine minutes are nothing, eleven are too much.
    for (minutes, is_too_long) in [(9, false), (11, true)] {
        let Ship { server, hand, .. } = ship.take().unwrap();
        server.stop().await;
        drop(hand);
        let other = ground.launch("b", 36).await;
        let then = age(&other, minutes).await;
        other.server.stop().await;
        let again = ground.launch_migrating("a", 36, &[]).await;
        until_looked_after(&again, &then).await;
        settled(&again, RESOURCE, "example.com/v1").await;
        let is_unknown = n_unknown() > n_before;
        assert_eq!(is_unknown, is_too_long && ground.is_through_api(), "after {minutes} minutes");
        ship = Some(again);
    }
    history.judge().await;
}
