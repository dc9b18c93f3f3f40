//! The storage version of a definition moves, and its objects follow by themselves.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    history::History,
    widgets::{
        ALL_WIDGETS, DEFINITION, IN_TREE, RESOURCE, WIDGETS, Watcher, ask_for, fill, flip, is_frozen,
        migrations_of, settled, stored, stored_versions, succeeded, widget,
    },
};
use crate::fleet::{
    ground::{Ground, eventually},
    on_both_stores,
};

on_both_stores!(
    /// T1, T5, A1, A8, A10, A11, A20, B1, B6, B17.
    a_flip_is_migrated_by_itself_and_proven,
    /// T3, LAB 2, A13, B7.
    stored_versions_are_true_at_every_revision_of_three_flips,
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
    let flipped = Instant::now();
    flip(&ship, "v2").await;
    // Nothing else happens on this cluster: a migration does not wait for that.
    eventually("a migration runs", async || !migrations_of(&ship, RESOURCE).await.is_empty()).await;
    let took = flipped.elapsed();
    assert!(took < Duration::from_secs(6), "it began after {took:?}");
    let path = format!("{}/{}", super::widgets::MIGRATIONS, name(&migrations_of(&ship, RESOURCE).await[0]));
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
        (&json!("StoreScan"), &json!(50))
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
    let judged = history.judge().await;
    let lists: Vec<_> = judged.stored_versions.iter().map(|it| it.join(",")).collect();
    assert_eq!(lists, ["v1", "v1,v2", "v2"]);
    assert_eq!((judged.n_freezes, judged.is_frozen), (2, false));
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
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
        eventually("only the new one is listed", async || stored_versions(&ship).await == json!([storage]))
            .await;
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
