//! Servers of two releases on one store: nothing is migrated until they agree, then everything is.

use controllers::migration::api::Reach;
use serde_json::{Value, json};

use super::widgets::{
    MIGRATIONS, STATES, annotate, ask_for_resource, ended, migrations_of, says, settled, stays, stored_below,
    succeeded,
};
use crate::fleet::{
    ground::{CLASSES, CLASSES_RECORD, Ground, NEW, OLD, Ship, class, eventually},
    hand::{Care, Hand},
    on_both_stores, through_api_too,
};

on_both_stores!(
    /// T7, T17, B1, B14, B20, B24, B27. The servers agree on what both can read; the controllers are in either.
    when_the_last_old_server_goes_everything_follows,
    /// T7, B16, B24, B25, B26, B27, B28.
    while_each_server_writes_its_own_nothing_is_migrated,
    /// T7, B26: skew in the middle.
    a_server_of_another_release_ends_a_migration_that_runs,
    /// T15, B23.
    a_rollback_half_way_is_migrated_back,
    /// T7, B24, B27: through the API, each server asked.
    servers_that_are_asked_one_by_one_have_to_agree,
);

through_api_too!(
    /// T7, B26: skew in the middle.
    a_server_of_another_release_ends_a_migration_that_runs,
);

const RESOURCE: &str = "deviceclasses.resource.k8s.io";
const STORED: &str = "/registry/deviceclasses/";
/// Each server writes what it likes best, as without agreement.
const REPORT: &[&str] = &["--storage-version-agreement=report"];

async fn make(ship: &Ship, prefix: &str, n: usize) {
    for n in 0..n {
        ship.expect(201, "POST", CLASSES, class(&format!("{prefix}-{n}"))).await;
    }
}

async fn ask_for_classes(ship: &Ship, name: &str, annotations: Value) -> String {
    ask_for_resource(ship, MIGRATIONS, name, ("resource.k8s.io", "deviceclasses"), annotations).await
}

async fn state(ship: &Ship) -> Value {
    ship.ask("GET", &format!("{STATES}/{RESOURCE}"), Value::Null).await.1["status"].take()
}

/// Whether this server migrates, or the other one.
async fn launch(ground: &Ground, name: &str, minor: u16, migrates: &str, flags: &[&str]) -> Ship {
    if name == migrates {
        ground.launch_migrating(name, minor, flags).await
    } else {
        ground.launch_with(name, minor, flags).await
    }
}

async fn when_the_last_old_server_goes_everything_follows(ground: Ground) {
    for (n, first) in ["a", "b"].into_iter().enumerate() {
        let ground = ground.another(n).await;
        let a = launch(&ground, "a", 34, "a", &[]).await;
        let b = ground.launch("b", 34).await;
        make(&a, "x", 8).await;
        settled(&a, RESOURCE, OLD).await;
        // One of them is new: what both can read is written, and nothing is to be migrated.
        let (a, b) = if first == "a" {
            a.server.stop().await;
            (launch(&ground, "a", 36, "a", &[]).await, b)
        } else {
            b.server.stop().await;
            (a, ground.launch("b", 36).await)
        };
        make(&b, "y", 2).await;
        let done = succeeded(&a, &ask_for_classes(&a, "asked", json!({})).await).await;
        assert_eq!(done["status"]["storageVersion"], OLD);
        assert_eq!(done["status"]["progress"]["migrated"], 0);
        assert_eq!(stored_below(&ground, STORED).await, [(OLD.to_owned(), 10)].into());
        assert_eq!(state(&a).await["persistedVersions"], json!([OLD]));

        let (a, _b) = if first == "a" {
            b.server.stop().await;
            (a, ground.launch("b", 36).await)
        } else {
            a.server.stop().await;
            (launch(&ground, "a", 36, "a", &[]).await, b)
        };
        settled(&a, RESOURCE, NEW).await;
        assert_eq!(stored_below(&ground, STORED).await, [(NEW.to_owned(), 10)].into());
        assert_everything_is_current(&a).await;
        // What people asked for is still there.
        assert!(migrations_of(&a, RESOURCE).await.iter().any(|it| it["metadata"]["name"] == "asked"));
    }
}

/// No state of any resource has an old version left.
async fn assert_everything_is_current(ship: &Ship) {
    eventually("every state is [current]", async || {
        let states = ship.get(STATES).await;
        let mut states = states["items"].as_array().unwrap().iter().map(|it| &it["status"]);
        states.all(|it| it["persistedVersions"] == json!([it["currentVersion"]]))
    })
    .await;
}

async fn while_each_server_writes_its_own_nothing_is_migrated(ground: Ground) {
    let a = ground.launch_migrating("a", 36, REPORT).await;
    make(&a, "new", 3).await;
    settled(&a, RESOURCE, NEW).await;
    let b = ground.launch_with("b", 34, REPORT).await;
    make(&b, "old", 3).await;
    let both = [(NEW.to_owned(), 3), (OLD.to_owned(), 3)];
    assert_eq!(stored_below(&ground, STORED).await, both.clone().into());
    // That is what the state says, too.
    eventually("nobody knows what is current", async || state(&a).await["currentVersion"] == "Unknown").await;
    eventually("both may be stored", async || {
        let state = state(&a).await;
        let persisted = state["persistedVersions"].as_array().unwrap();
        persisted.contains(&json!(NEW)) && persisted.contains(&json!(OLD))
    })
    .await;
    let asked = ask_for_classes(&a, "asked", json!({})).await;
    let waits = says(&a, &asked, "reason", "NotAgreed").await;
    assert_eq!(waits["status"]["phase"], "Pending", "{waits:#}");
    stays("nothing is migrated", async || {
        stored_below(&ground, STORED).await == both.clone().into()
            && migrations_of(&a, RESOURCE).await.len() == 1
    })
    .await;
    // The old one is replaced.
    b.server.stop().await;
    let _b = ground.launch_with("b", 36, REPORT).await;
    let done = succeeded(&a, &asked).await;
    assert_eq!(
        (&done["status"]["storageVersion"], &done["status"]["progress"]["migrated"]),
        (&json!(NEW), &json!(3))
    );
    settled(&a, RESOURCE, NEW).await;
    assert_eq!(stored_below(&ground, STORED).await, [(NEW.to_owned(), 6)].into());
    assert_everything_is_current(&a).await;
}

async fn a_server_of_another_release_ends_a_migration_that_runs(ground: Ground) {
    let old = ground.launch_with("old", 34, REPORT).await;
    make(&old, "x", 30).await;
    old.server.stop().await;
    // Only who is asked to migrates: no trigger.
    let a = ground.launch_working("a", 36, "storage-version-gc,storage-version-migrator", REPORT).await;
    eventually("it writes the new version", async || a.common(CLASSES_RECORD).await.as_deref() == Some(NEW))
        .await;
    let slow = ask_for_classes(&a, "slow", json!({"convoy.dev/rate": "5"})).await;
    eventually("it has begun", async || stored_below(&ground, STORED).await.len() == 2).await;
    let old = ground.launch_with("old", 34, REPORT).await;
    let done = ended(&a, &slow).await;
    let status = &done["status"];
    assert_eq!(
        (&status["phase"], &status["reason"]),
        (&json!("Aborted"), &json!("AgreementEnded")),
        "{status:#}"
    );
    assert_eq!(stored_below(&ground, STORED).await.len(), 2);
    // One that is asked for now waits, and takes up what is left.
    let next = ask_for_classes(&a, "next", json!({})).await;
    says(&a, &next, "reason", "NotAgreed").await;
    make(&old, "y", 2).await;
    old.server.stop().await;
    succeeded(&a, &next).await;
    assert_eq!(stored_below(&ground, STORED).await, [(NEW.to_owned(), 32)].into());
}

async fn a_rollback_half_way_is_migrated_back(ground: Ground) {
    let a = ground.launch_migrating("a", 34, REPORT).await;
    let b = ground.launch_with("b", 34, REPORT).await;
    make(&a, "x", 3).await;
    settled(&a, RESOURCE, OLD).await;
    b.server.stop().await;
    let b = ground.launch_with("b", 36, REPORT).await;
    make(&b, "new", 4).await;
    eventually("the state knows both", async || {
        let state = state(&a).await;
        state["currentVersion"] == "Unknown"
            && state["persistedVersions"].as_array().unwrap().contains(&json!(NEW))
    })
    .await;
    // The upgrade is taken back, as it may be: 1.34 reads both.
    b.server.stop().await;
    let b = ground.launch_with("b", 34, REPORT).await;
    settled(&a, RESOURCE, OLD).await;
    assert_eq!(stored_below(&ground, STORED).await, [(OLD.to_owned(), 7)].into());
    assert_everything_is_current(&a).await;
    annotate(&b, &format!("{CLASSES}/new-0"), json!({"still": "here"})).await;
}

/// As beside a cluster whose servers do not talk to each other.
async fn servers_that_are_asked_one_by_one_have_to_agree(ground: Ground) {
    const MIGRATOR: &str = "storage-version-migrator";
    let both = |a: &Ship, b: &Ship| [a.server.client(), b.server.client()];
    let a = ground.launch_with("a", 36, REPORT).await;
    make(&a, "new", 3).await;
    let b = ground.launch_with("b", 34, REPORT).await;
    make(&b, "old", 3).await;
    let hand = Hand::among(&both(&a, &b), Reach::EveryServer, MIGRATOR, Care::Everything);
    let asked = ask_for_classes(&a, "asked", json!({})).await;
    let waits = says(&a, &asked, "reason", "NotAgreed").await;
    assert_eq!(waits["status"]["phase"], "Pending", "{waits:#}");
    let mixed = [(NEW.to_owned(), 3), (OLD.to_owned(), 3)];
    stays("nothing is migrated", async || stored_below(&ground, STORED).await == mixed.clone().into()).await;
    assert!(hand.answers_about("deviceclasses").iter().all(|it| it.method != "PATCH"));
    drop(hand);
    b.server.stop().await;
    let b = ground.launch_with("b", 36, REPORT).await;
    let _hand = Hand::among(&both(&a, &b), Reach::EveryServer, MIGRATOR, Care::Everything);
    let done = succeeded(&a, &asked).await["status"].take();
    assert_eq!((&done["storageVersion"], &done["progress"]["migrated"]), (&json!(NEW), &json!(3)));
    // Every object was looked at through each of them.
    let evidence = &done["evidence"];
    assert_eq!(
        (&evidence["kind"], &evidence["objects"]),
        (&json!("SecondPassAllEndpoints"), &json!(12)),
        "{done:#}"
    );
    assert_eq!(stored_below(&ground, STORED).await, [(NEW.to_owned(), 6)].into());
}
