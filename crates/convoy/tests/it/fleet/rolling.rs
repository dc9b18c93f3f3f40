//! Rolling upgrades and rollbacks under write load (SV-15, both scenarios of voting).

use std::time::Duration;

use serde_json::json;

use super::{
    ground::{CLASSES, CLASSES_RECORD, Ground, NEW, OLD, Ship, class, eventually},
    load::{DEVICE_CLASSES, Load},
    on_both_stores,
};

on_both_stores!(
    an_upgrade_moves_with_the_last_vote_and_fails_no_write,
    a_rollback_in_the_middle_changes_nothing,
    the_last_old_server_may_stop_and_come_back_unchanged,
    when_all_were_down_the_newest_waits_for_the_others,
);

/// How long after the last vote the common version may move, with slack.
pub const MOVED_WITHIN: Duration = Duration::from_secs(5);

/// What discovery says of the version that device classes are stored in.
async fn hash(ship: &Ship) -> String {
    let documents = ship.get("/apis/resource.k8s.io/v1").await;
    let classes = documents["resources"].as_array().unwrap().iter().find(|it| it["name"] == "deviceclasses");
    classes.unwrap()["storageVersionHash"].as_str().unwrap().to_owned()
}

/// As upstream computes it of group, version and kind.
const OLD_HASH: &str = "weQRMT6DeYM=";
const NEW_HASH: &str = "Yk2PTc1Ybxk=";

async fn an_upgrade_moves_with_the_last_vote_and_fails_no_write(ground: Ground) {
    let history = ground.history().await;
    let mut ships = Vec::new();
    for name in ["a", "b", "c"] {
        ships.push(ground.launch(name, 34).await);
    }
    let load = Load::start(DEVICE_CLASSES, 3);
    load.only(&ships.iter().collect::<Vec<_>>());
    load.wrote(20).await;
    assert_eq!(ships[0].common(CLASSES_RECORD).await.as_deref(), Some(OLD));
    let epoch = ships[0].storage_version(CLASSES_RECORD).await["epoch"].clone();
    for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
        let old = ships.remove(0);
        load.turn_to(&ships.iter().collect::<Vec<_>>()).await;
        old.server.stop().await;
        ships.push(ground.launch(name, 36).await);
        load.only(&ships.iter().collect::<Vec<_>>());
        load.wrote(20).await;
        let seen = ships[0].storage_version(CLASSES_RECORD).await;
        let expected = if n < 2 { OLD } else { NEW };
        assert_eq!(seen["commonEncodingVersion"], expected, "after {name}: {seen}");
        // From old to new without a moment in between, and not before.
        assert_eq!(seen["epoch"] == epoch, n < 2, "after {name}: {seen}");
        // Discovery follows what is written, on servers that have been there for longer, too.
        for ship in &ships {
            assert_eq!(hash(ship).await, if n < 2 { OLD_HASH } else { NEW_HASH }, "after {name}");
        }
    }
    load.wrote(20).await;
    let journal = load.end().await;
    // The last vote is the move; a second is what is promised, the rest is slack for a busy machine.
    let moved = history.time_to_move(CLASSES_RECORD, NEW, 3).expect("all three have voted and it has moved");
    assert!(moved < MOVED_WITHIN, "{moved:?}");
    let n_written = journal.n_written();
    let judged = history.judge_with(&[], &[journal]).await;
    assert!(judged.n_judged > 100 && n_written > 100, "{judged:?} {n_written}");
    // Also on one that would rather write another version.
    let old = ground.launch("d", 34).await;
    assert_eq!(hash(&old).await, NEW_HASH);
}

async fn a_rollback_in_the_middle_changes_nothing(ground: Ground) {
    let history = ground.history().await;
    let mut ships =
        vec![ground.launch("a", 34).await, ground.launch("b", 34).await, ground.launch("c", 34).await];
    ships[0].expect(201, "POST", CLASSES, class("x")).await;
    let epoch = ships[0].storage_version(CLASSES_RECORD).await["epoch"].clone();
    for (name, minor) in [("a", 36), ("b", 36), ("b", 34), ("a", 34)] {
        let place = if name == "a" { 0 } else { 1 };
        ships.remove(place).server.stop().await;
        ships.insert(place, ground.launch(name, minor).await);
        let seen = ships[place].storage_version(CLASSES_RECORD).await;
        assert_eq!((&seen["commonEncodingVersion"], &seen["epoch"]), (&json!(OLD), &epoch), "{name} {minor}");
        ships[place]
            .expect(
                200,
                "PATCH",
                &format!("{CLASSES}/x"),
                json!({"metadata": {"labels": {"n": minor.to_string()}}}),
            )
            .await;
        assert_eq!(ground.stored_version("/registry/deviceclasses/x").await.as_deref(), Some(OLD));
    }
    history.judge(&[]).await;
}

async fn the_last_old_server_may_stop_and_come_back_unchanged(ground: Ground) {
    let flags = ["--departure-settle-time=20s"];
    let new = ground.launch_with("new", 34, &flags).await;
    let old = ground.launch_with("old", 34, &flags).await;
    new.server.stop().await;
    let new = ground.launch_with("new", 36, &flags).await;
    old.server.stop().await;
    eventually("its entry is gone", async || {
        new.storage_version(CLASSES_RECORD).await["storageVersions"].as_array().unwrap().len() == 1
    })
    .await;
    // Nothing moves while it may come back.
    assert_eq!(new.common(CLASSES_RECORD).await.as_deref(), Some(OLD));
    let old = ground.launch_with("old", 34, &flags).await;
    assert_eq!(new.common(CLASSES_RECORD).await.as_deref(), Some(OLD));
    old.server.stop().await;
    // It comes back with the new vote: that moves at once.
    let old = ground.launch_with("old", 36, &flags).await;
    eventually("all vote for the new one", async || old.common(CLASSES_RECORD).await.as_deref() == Some(NEW))
        .await;
    drop(new);
}

async fn when_all_were_down_the_newest_waits_for_the_others(ground: Ground) {
    let flags = ["--departure-settle-time=3s"];
    let (a, b) = (ground.launch_with("a", 34, &flags).await, ground.launch_with("b", 34, &flags).await);
    a.server.stop().await;
    b.server.crash();
    let newest = ground.launch_with("a", 36, &flags).await;
    assert_eq!(newest.common(CLASSES_RECORD).await.as_deref(), Some(OLD));
    newest.expect(201, "POST", CLASSES, class("x")).await;
    assert_eq!(ground.stored_version("/registry/deviceclasses/x").await.as_deref(), Some(OLD));
    // After the settle time nobody waits any longer.
    eventually("it moves on", async || newest.common(CLASSES_RECORD).await.as_deref() == Some(NEW)).await;
}
