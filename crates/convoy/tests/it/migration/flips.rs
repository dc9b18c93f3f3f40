//! The storage version of a definition moves, and its objects follow by themselves.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    history::History,
    widgets::{
        ALL_WIDGETS, DEFINITION, IN_TREE, RESOURCE, WIDGETS, Watcher, ask_for, evidence, fill, flip,
        is_frozen, migrated, migrations_of, settled, stored, succeeded, triggered, widget,
    },
};
use crate::fleet::{
    ground::{Ground, eventually},
    on_both_stores, through_api_too,
};

on_both_stores!(
    /// T1, A1, A8, A9, A10, A11, A20, B1, B6, B17, D5.
    a_flip_is_migrated_by_itself_and_proven,
    /// T3, LAB 2, A13, B7.
    stored_versions_are_true_at_every_revision_of_three_flips,
    /// T5, LAB 5.
    a_quiet_resource_is_migrated_at_once,
);

through_api_too!(
    /// T1, A1, A8, A9, A10, A11, A20, B1, B6, B17, D5.
    a_flip_is_migrated_by_itself_and_proven,
    /// T3, LAB 2, A13, B7.
    stored_versions_are_true_at_every_revision_of_three_flips,
    /// T5, LAB 5.
    a_quiet_resource_is_migrated_at_once,
);

/// What a client can tell an object by, but for its resourceVersion.
fn marks(object: &Value) -> (Value, Value, Value, Value) {
    let metadata = &object["metadata"];
    (
        metadata["name"].clone(),
        metadata["generation"].clone(),
        metadata["managedFields"].clone(),
        object["spec"].clone(),
    )
}

fn items(list: &Value) -> &Vec<Value> {
    list["items"].as_array().unwrap()
}

async fn a_flip_is_migrated_by_itself_and_proven(ground: Ground) {
    let history = History::of(&ground).await;
    let ship = ground.launch_migrating("a", 36, &[]).await;
    fill(&ship, 50).await;
    settled(&ship, RESOURCE, "example.com/v1").await;
    let before = ship.get(ALL_WIDGETS).await;
    let watcher = Watcher::start(&ship, ALL_WIDGETS).await;
    flip(&ship, "v2").await;
    let path = triggered(&ship, "v2").await;
    let done = succeeded(&ship, &path).await;
    let status = &done["status"];
    let progress = &status["progress"];
    assert_eq!(
        (&progress["migrated"], &progress["total"], &progress["failed"]),
        (&json!(50), &json!(50), &json!(0))
    );
    assert_eq!(status["prunedVersions"], json!(["v1"]));
    assert_eq!(
        (&status["evidence"]["kind"], &status["evidence"]["objects"]),
        (&json!(evidence(&ground)), &json!(50))
    );
    assert_eq!(stored(&ground).await, [("example.com/v2".to_owned(), 50)].into());
    let crd = ship.get(DEFINITION).await;
    assert_eq!(crd["status"]["storedVersions"], json!(["v2"]));
    assert!(!is_frozen(&crd), "{crd}");

    // Clients see the same objects at other revisions, each once.
    let after = ship.get(ALL_WIDGETS).await;
    for (old, new) in items(&before).iter().zip(items(&after)) {
        assert_eq!(marks(old), marks(new));
        assert_ne!(old["metadata"]["resourceVersion"], new["metadata"]["resourceVersion"]);
    }
    eventually("everything was watched", async || watcher.seen().len() >= 50).await;
    let mut seen = watcher.seen();
    seen.sort();
    let expected: Vec<_> = (0..50).map(|n| ("MODIFIED".to_owned(), format!("w{n:03}"))).collect();
    assert_eq!(seen, expected);

    // What is new already is left alone.
    let state = settled(&ship, RESOURCE, "example.com/v2").await;
    assert_eq!(state["status"]["persistedStorageVersionHashes"].as_array().unwrap().len(), 1);
    let again = succeeded(&ship, &ask_for(&ship, IN_TREE, "again", json!({})).await).await;
    let progress = &again["status"]["progress"];
    assert_eq!((&progress["migrated"], &progress["unchanged"]), (&json!(0), &json!(50)));
    assert_eq!(ship.get(ALL_WIDGETS).await["items"], after["items"]);
    assert_eq!(watcher.seen().len(), 50);
    // Whoever works through the API makes nothing, and is refused nothing.
    for answer in ship.hand.iter().flat_map(|it| it.answers_about("widgets")) {
        assert!(matches!(answer.method.as_str(), "GET" | "PATCH"), "{answer:?}");
        assert!(matches!(answer.code, 200 | 409), "{answer:?}");
    }
    let judged = history.judge().await;
    let lists: Vec<_> = judged.stored_versions.iter().map(|it| it.join(",")).collect();
    assert_eq!(lists, ["v1", "v1,v2", "v2"]);
    // Who cannot count has migrated what it did not know, before the flip.
    let n_freezes = if ground.is_through_api() { 3 } else { 2 };
    assert_eq!((judged.n_freezes, judged.is_frozen), (n_freezes, false));
}

async fn stored_versions_are_true_at_every_revision_of_three_flips(ground: Ground) {
    let history = History::of(&ground).await;
    let ship = ground.launch_migrating("a", 36, &[]).await;
    fill(&ship, 20).await;
    settled(&ship, RESOURCE, "example.com/v1").await;
    let mut before = "v1";
    for (n, storage) in ["v2", "v3", "v1"].into_iter().enumerate() {
        flip(&ship, storage).await;
        // While it is flipped and not yet migrated, what is made is new and what is there is old.
        ship.expect(201, "POST", WIDGETS, widget(&format!("new-{n}"))).await;
        migrated(&ship, storage).await;
        assert_eq!(stored(&ground).await, [(format!("example.com/{storage}"), 21 + n)].into());
        settled(&ship, RESOURCE, &format!("example.com/{storage}")).await;
        // The old version may be removed, and comes back for the next round.
        let crd = ship.get(DEFINITION).await;
        let kept: Vec<&Value> =
            crd["spec"]["versions"].as_array().unwrap().iter().filter(|it| it["name"] != before).collect();
        // v1 is the version in which this test speaks.
        if before != "v1" {
            ship.expect(200, "PATCH", DEFINITION, json!({"spec": {"versions": kept}})).await;
            assert_eq!(items(&ship.get(ALL_WIDGETS).await).len(), 21 + n);
            flip(&ship, storage).await;
        }
        before = storage;
    }
    let judged = history.judge().await;
    let lists: Vec<_> = judged.stored_versions.iter().map(|it| it.join(",")).collect();
    assert_eq!(lists, ["v1", "v1,v2", "v2", "v2,v3", "v3", "v3,v1", "v1"]);
    assert!(!judged.is_frozen);
}

/// Nothing else happens on this cluster, and no migration waits for that. Two seconds are promised, and shown by the best
/// of three: this machine may have other things to do.
async fn a_quiet_resource_is_migrated_at_once(ground: Ground) {
    let ship = ground.launch_migrating("a", 36, &[]).await;
    fill(&ship, 20).await;
    settled(&ship, RESOURCE, "example.com/v1").await;
    let mut took = Vec::new();
    for storage in ["v2", "v3", "v1"] {
        flip(&ship, storage).await;
        let flipped = Instant::now();
        let version = format!("example.com/{storage}");
        let is_under_way = |it: &Value| {
            let phase = it["status"]["phase"].as_str().unwrap_or_default();
            let has_begun = matches!(phase, "Running" | "Verifying" | "Pruning" | "Succeeded");
            has_begun && it["status"]["storageVersion"] == version
        };
        eventually("objects are rewritten", async || {
            migrations_of(&ship, RESOURCE).await.iter().any(is_under_way)
        })
        .await;
        took.push(flipped.elapsed());
        migrated(&ship, storage).await;
        settled(&ship, RESOURCE, &version).await;
    }
    took.sort();
    assert!(took[0] < Duration::from_secs(2) && took[2] < Duration::from_secs(20), "{took:?}");
}
