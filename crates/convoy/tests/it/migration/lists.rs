//! What is told late, or not at all: lists that expire, versions that nobody serves, changes while nobody looks.

use serde_json::{Value, json};
use store::Store;

use super::{
    history::History,
    widgets::{
        DEFINITION, MIGRATIONS, RESOURCE, WIDGETS, annotate, ask_for, evidence, fill, flip, migrated, says,
        settled, slow, stored, succeeded, triggered, versions, widget,
    },
};
use crate::fleet::{
    ground::{Ground, Ship},
    on_both_stores, through_api_too,
};

on_both_stores!(
    /// T11. In the store there is no list that could expire.
    what_happened_long_ago_is_forgotten_in_the_middle,
    /// T14.
    a_storage_version_that_nobody_serves_is_migrated_to,
    /// T15, A18 (switched off and on again), B13, B21, B22.
    there_and_back_while_nobody_looks_is_noticed,
    /// T15, B13, B21, B22.
    there_and_back_at_once_is_noticed,
);

through_api_too!(
    /// T11.
    what_happened_long_ago_is_forgotten_in_the_middle,
    /// T14.
    a_storage_version_that_nobody_serves_is_migrated_to,
    /// T15, A18 (switched off and on again), B13, B21, B22.
    there_and_back_while_nobody_looks_is_noticed,
    /// T15, B13, B21, B22.
    there_and_back_at_once_is_noticed,
);

async fn what_happened_long_ago_is_forgotten_in_the_middle(ground: Ground) {
    let history = History::of(&ground).await;
    let ship = ground.launch_migrating("a", 36, &[]).await;
    fill(&ship, 60).await;
    let slow = slow(&ship, &ground).await;
    let now = ground.store.current().await.unwrap();
    // Not before it is recorded here.
    history.reach(now).await;
    ground.store.compact(now).await.unwrap();
    annotate(&ship, &slow, json!({"convoy.dev/rate": "0"})).await;
    let done = succeeded(&ship, &slow).await;
    assert_eq!(done["status"]["progress"]["migrated"], 60);
    assert_eq!(done["status"]["prunedVersions"], json!(["v1"]));
    if let Some(hand) = &ship.hand {
        let answers = hand.answers_about("widgets");
        assert!(answers.iter().any(|it| it.code == 410), "no list expired: {answers:?}");
    }
    // It went on where it was.
    let judged = history.judge().await;
    assert!(judged.puts.values().all(|it| *it == 2), "{:?}", judged.puts);
}

async fn a_storage_version_that_nobody_serves_is_migrated_to(ground: Ground) {
    let history = History::of(&ground).await;
    let ship = ground.launch_migrating("a", 36, &[]).await;
    fill(&ship, 10).await;
    settled(&ship, RESOURCE, "example.com/v1").await;
    let mut hidden = versions("v2");
    hidden[1]["served"] = json!(false);
    ship.expect(200, "PATCH", DEFINITION, json!({"spec": {"versions": hidden}})).await;
    let done = succeeded(&ship, &triggered(&ship, "v2").await).await;
    assert_eq!(done["status"]["storageVersion"], "example.com/v2");
    assert_eq!(done["status"]["evidence"]["kind"], evidence(&ground));
    assert_eq!(done["status"]["progress"]["migrated"], 10, "{done:#}");
    migrated(&ship, "v2").await;
    assert_eq!(stored(&ground).await, [("example.com/v2".to_owned(), 10)].into());
    assert_eq!(ship.ask("GET", &WIDGETS.replace("v1", "v2"), Value::Null).await.0, 404);
    history.judge().await;
}

/// Flips to v2, makes something there, and flips back.
async fn turn_there_and_back(ship: &Ship) {
    flip(ship, "v2").await;
    ship.expect(201, "POST", WIDGETS, widget("in-between")).await;
    flip(ship, "v1").await;
}

async fn there_and_back_while_nobody_looks_is_noticed(ground: Ground) {
    let history = History::of(&ground).await;
    let ship = ground.launch_migrating("a", 36, &[]).await;
    fill(&ship, 5).await;
    settled(&ship, RESOURCE, "example.com/v1").await;
    ship.server.stop().await;
    drop(ship.hand);
    let other = ground.launch("b", 36).await;
    turn_there_and_back(&other).await;
    let both = [("example.com/v1".to_owned(), 5), ("example.com/v2".to_owned(), 1)];
    assert_eq!(stored(&ground).await, both.into());
    other.server.stop().await;
    let ship = ground.launch_migrating("a", 36, &[]).await;
    migrated(&ship, "v1").await;
    assert_eq!(stored(&ground).await, [("example.com/v1".to_owned(), 6)].into());
    settled(&ship, RESOURCE, "example.com/v1").await;
    let judged = history.judge().await;
    let lists: Vec<_> = judged.stored_versions.iter().map(|it| it.join(",")).collect();
    assert_eq!(lists, ["v1", "v1,v2", "v1"]);
}

/// Whoever migrates is there all the while, and waits.
async fn there_and_back_at_once_is_noticed(ground: Ground) {
    let history = History::of(&ground).await;
    let ship = ground.launch_migrating("a", 36, &[]).await;
    fill(&ship, 5).await;
    settled(&ship, RESOURCE, "example.com/v1").await;
    // Were it frozen in between it could not turn back.
    let paused = ask_for(&ship, MIGRATIONS, "paused", json!({"convoy.dev/paused": "true"})).await;
    says(&ship, &paused, "reason", "Paused").await;
    turn_there_and_back(&ship).await;
    ship.expect(200, "DELETE", &paused, Value::Null).await;
    annotate(&ship, DEFINITION, json!({"looked": "at"})).await;
    migrated(&ship, "v1").await;
    assert_eq!(stored(&ground).await, [("example.com/v1".to_owned(), 6)].into());
    history.judge().await;
}
