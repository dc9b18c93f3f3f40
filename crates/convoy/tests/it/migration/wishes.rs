//! What people want of a migration: when, how fast, of what, or only to know what it would do.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    history::History,
    widgets::{
        DEFINITION, IN_TREE, MIGRATIONS, PREFIX, WIDGETS, annotate, ask_for, ended, fill, flip, is_frozen,
        migrated, says, slow, stays, stored, stored_below, stored_versions, succeeded, widget,
    },
};
use crate::fleet::{
    ground::{Ground, ask},
    on_both_stores, through_api_too,
};

on_both_stores!(
    /// T16.
    others_may_write_all_the_time,
    /// Spec 9.9, 9.10, 9.12.
    a_migration_pauses_and_keeps_its_rate,
    /// Spec 9.11, A13.
    some_objects_alone_prove_nothing_about_the_others,
    /// T1 (many at once), D3, C9.
    migrations_of_one_resource_go_one_after_the_other,
);

through_api_too!(
    /// T16.
    others_may_write_all_the_time,
    /// Spec 9.9, 9.10, 9.12.
    a_migration_pauses_and_keeps_its_rate,
    /// Spec 9.11, A13.
    some_objects_alone_prove_nothing_about_the_others,
    /// T1 (many at once), D3, C9.
    migrations_of_one_resource_go_one_after_the_other,
);

/// The trigger would be faster than people.
const ASKED: &str = "storage-version-gc,storage-version-migrator";

async fn others_may_write_all_the_time(ground: Ground) {
    let history = History::of(&ground).await;
    // Nobody else is there: on a busy machine it should not lose its lease, and with it the right to write.
    let ship = ground.launch_migrating("a", 36, &["--member-lease-duration=10s"]).await;
    fill(&ship, 40).await;
    let stop = Arc::new(AtomicBool::new(false));
    let writers = (0..4).map(|writer| {
        let (client, stop) = (ship.server.client(), Arc::clone(&stop));
        tokio::spawn(async move {
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                n += 1;
                let path = format!("{WIDGETS}/w{:03}", (n * 7 + writer * 10) % 40);
                let patch = json!({"spec": {"n": n, "by": writer}});
                let (code, answer) = ask(&client, "PATCH", &path, patch).await;
                assert_eq!(code, 200, "{answer}");
                let name = format!("chaos-{writer}");
                let (code, answer) = match n % 2 {
                    0 => ask(&client, "DELETE", &format!("{WIDGETS}/{name}"), Value::Null).await,
                    _ => ask(&client, "POST", WIDGETS, widget(&name)).await,
                };
                assert!(matches!(code, 200 | 201), "{answer}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            n
        })
    });
    let writers: Vec<_> = writers.collect();
    for storage in ["v2", "v3"] {
        flip(&ship, storage).await;
        migrated(&ship, storage).await;
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        assert!(writer.await.unwrap() > 2);
    }
    let counts = stored(&ground).await;
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["example.com/v3"]);
    // One migration for each flip; and who cannot count has looked at everything once before.
    let n_freezes = if ground.is_through_api() { 3 } else { 2 };
    assert_eq!(history.judge().await.n_freezes, n_freezes);
}

async fn a_migration_pauses_and_keeps_its_rate(ground: Ground) {
    let ship = ground.launch_migrating("a", 36, &[]).await;
    fill(&ship, 60).await;
    let slow = slow(&ship, &ground).await;
    let since = Instant::now();
    // Whoever looks at it or touches it does not make it faster.
    for n in 0..8 {
        annotate(&ship, &slow, json!({"touched": n.to_string()})).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let written = stored(&ground).await["example.com/v2"];
    // Five a second, in steps of ten, and two steps of slack.
    let allowed = 30 + usize::try_from(since.elapsed().as_millis()).unwrap() * 5 / 1000;
    assert!(written <= allowed, "{written} of {allowed}");

    annotate(&ship, &slow, json!({"convoy.dev/paused": "true"})).await;
    let paused = says(&ship, &slow, "reason", "Paused").await;
    assert_eq!(paused["status"]["phase"], "Running");
    let before = stored(&ground).await;
    assert_eq!(before.len(), 2, "{before:?}");
    assert!(is_frozen(&ship.get(DEFINITION).await));
    annotate(&ship, &slow, json!({"convoy.dev/rate": "0"})).await;
    stays("it is paused", async || stored(&ground).await == before).await;
    annotate(&ship, &slow, json!({"convoy.dev/paused": null})).await;
    let done = succeeded(&ship, &slow).await;
    assert_eq!(done["status"]["progress"]["migrated"], 60);
    assert_eq!(stored_versions(&ship).await, json!(["v2"]));
}

async fn some_objects_alone_prove_nothing_about_the_others(ground: Ground) {
    let ship = ground.launch_working("a", 36, ASKED, &[]).await;
    fill(&ship, 6).await;
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}});
    ship.expect(201, "POST", "/api/v1/namespaces", space).await;
    for n in 0..4 {
        let mut object = widget(&format!("o{n}"));
        object["metadata"]["labels"] = json!({"colour": if n < 2 { "red" } else { "blue" }});
        ship.expect(201, "POST", &WIDGETS.replace("default", "other"), object).await;
    }
    flip(&ship, "v2").await;
    let counts = |prefix: &str| {
        let (ground, prefix) = (&ground, format!("{PREFIX}{prefix}"));
        async move {
            let counts = stored_below(ground, &prefix).await;
            ["v1", "v2"].map(|it| counts.get(&format!("example.com/{it}")).copied().unwrap_or_default())
        }
    };
    let revision = store::Store::current(&ground.store).await.unwrap();
    let dry = ask_for(&ship, MIGRATIONS, "dry", json!({"convoy.dev/dry-run": "true"})).await;
    let dry = succeeded(&ship, &dry).await["status"].take();
    assert_eq!((&dry["reason"], &dry["progress"]["migrated"]), (&json!("DryRun"), &json!(10)));
    let range = store::Range::prefix("/registry/example.com/");
    let page = store::Store::list(&ground.store, &range, store::ReadAt::Latest, 100).await.unwrap();
    assert!(page.entries.iter().all(|it| it.modified <= revision), "something was written");
    assert_eq!(stored_versions(&ship).await, json!(["v1", "v2"]));

    let red = json!({"convoy.dev/namespaces": "other", "convoy.dev/selector": "colour=red"});
    succeeded(&ship, &ask_for(&ship, IN_TREE, "red", red).await).await;
    assert_eq!((counts("default/").await, counts("other/").await), ([6, 0], [2, 2]));
    let other = json!({"convoy.dev/namespaces": "other"});
    let done = succeeded(&ship, &ask_for(&ship, MIGRATIONS, "other", other).await).await;
    assert_eq!((counts("default/").await, counts("other/").await), ([6, 0], [0, 4]));
    assert!(done["status"]["message"].as_str().unwrap().contains("only some objects"), "{done:#}");
    // Even if nothing is left, only whoever has looked at everything prunes.
    succeeded(
        &ship,
        &ask_for(&ship, MIGRATIONS, "default", json!({"convoy.dev/namespaces": "default"})).await,
    )
    .await;
    assert_eq!(counts("").await, [0, 10]);
    assert_eq!(stored_versions(&ship).await, json!(["v1", "v2"]));
    let bad = ask_for(&ship, MIGRATIONS, "bad", json!({"convoy.dev/selector": "colour in ("})).await;
    assert_eq!(ended(&ship, &bad).await["status"]["reason"], "NotSupported");
    succeeded(&ship, &ask_for(&ship, MIGRATIONS, "whole", json!({})).await).await;
    assert_eq!(stored_versions(&ship).await, json!(["v2"]));
}

async fn migrations_of_one_resource_go_one_after_the_other(ground: Ground) {
    let history = History::of(&ground).await;
    let ship = ground.launch_migrating("a", 36, &[]).await;
    fill(&ship, 30).await;
    let first = slow(&ship, &ground).await;
    let mut others = Vec::new();
    for n in 0..10 {
        let path = if n % 2 == 0 { IN_TREE } else { MIGRATIONS };
        others.push(ask_for(&ship, path, &format!("other-{n}"), json!({})).await);
    }
    for path in &others {
        let waits = says(&ship, path, "reason", "Queued").await;
        assert!(waits["status"]["message"].as_str().unwrap().starts_with("slow, "), "{waits:#}");
    }
    annotate(&ship, &first, json!({"convoy.dev/rate": "0"})).await;
    assert_eq!(succeeded(&ship, &first).await["status"]["progress"]["migrated"], 30);
    for path in &others {
        let done = succeeded(&ship, path).await;
        assert_eq!(done["status"]["progress"]["migrated"], 0, "{done:#}");
        // As `kubectl wait --for=condition=Succeeded` reads it.
        let conditions = done["status"]["conditions"].as_array().unwrap();
        let has = |kind: &str, status: &str| {
            conditions.iter().filter(|it| it["type"] == kind && it["status"] == status).count() == 1
        };
        assert!(has("Succeeded", "True") && has("Running", "False"), "{done:#}");
    }
    assert!(!history.judge().await.is_frozen);
}
