//! How far a migration is, and when it will be over: what is said comes true.
//!
//! Deliberately not here: how fast it can be, and how much memory that takes; `cargo xtask bench` measures that with many
//! more objects (docs/evidence.md).

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use testkit::tools;
use tokio::time::Instant;

use super::{
    history::History,
    widgets::{
        MIGRATIONS, annotate, ask_for, definition, fill_with, flip, migrated, says, stored, succeeded, widget,
    },
};
use crate::fleet::{
    ground::{Ground, PATIENCE},
    on_both_stores, through_api_too,
};

on_both_stores!(
    /// T10 in small, C6.
    an_estimate_comes_true,
);

through_api_too!(
    /// T10 in small, C6.
    an_estimate_comes_true,
);

/// So few a second that a busy machine keeps up.
const N: u32 = 400;
const RATE: &str = "40";

async fn an_estimate_comes_true(ground: Ground) {
    let history = History::of(&ground).await;
    let ship = ground.launch_migrating("a", 36, &["--member-lease-duration=10s"]).await;
    fill_with(&ship, definition("v1"), (0..N).map(|n| widget(&format!("w{n:04}")))).await;
    let wishes = json!({"convoy.dev/paused": "true", "convoy.dev/rate": RATE});
    let path = ask_for(&ship, MIGRATIONS, "steady", wishes).await;
    says(&ship, &path, "reason", "Paused").await;
    flip(&ship, "v2").await;
    annotate(&ship, &path, json!({"convoy.dev/paused": null})).await;

    let mut seen: Vec<Value> = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    let over = loop {
        let status = ship.get(&path).await["status"].take();
        match status["phase"].as_str() {
            Some("Verifying" | "Pruning" | "Succeeded") => break Timestamp::now(),
            Some("Running") if seen.last() != Some(&status["progress"]) => {
                seen.push(status["progress"].clone())
            }
            _ => {}
        }
        assert!(Instant::now() < deadline, "it is not over: {status:#}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    annotate(&ship, &path, json!({"convoy.dev/rate": "0"})).await;
    let done = succeeded(&ship, &path).await;
    let began: Timestamp = done["status"]["startTime"].as_str().unwrap().parse().unwrap();
    let first = seen.iter().find(|it| it["percent"].as_u64() >= Some(5)).expect("it was too fast to be seen");
    assert_eq!(first["total"], N, "{first:#}");
    let estimate: Timestamp = first["estimatedCompletionTime"].as_str().unwrap().parse().unwrap();
    let took = over.duration_since(began).as_secs_f64();
    // It goes on as it did until then: what a busy machine does later, nobody can know.
    let speed = first["objectsPerSecond"].as_f64().unwrap();
    let expected = estimate.duration_since(began).as_secs_f64();
    assert!((expected - f64::from(N) / speed).abs() <= expected / 5.0 + 1.0, "{expected} s: {first:#}");
    let is_steady = (0.9..=1.1).contains(&(f64::from(N) / took / speed));
    if !is_steady {
        tools::report(&format!("the machine did not keep its pace of {speed}/s: the estimate is not judged"));
    }
    // A fifth of all of it; and timestamps have seconds.
    let error = over.duration_since(estimate).as_secs_f64().abs();
    assert!(!is_steady || error <= took / 5.0 + 1.0, "{error} s off in {took} s: {seen:#?}");
    // It only goes on.
    let known = seen.iter().filter(|it| it["total"] != 0);
    let remaining: Vec<u64> = known.filter_map(|it| it["remaining"].as_u64()).collect();
    assert!(remaining.is_sorted_by(|a, b| a >= b), "{remaining:?}");
    migrated(&ship, "v2").await;
    assert_eq!(stored(&ground).await.keys().collect::<Vec<_>>(), ["example.com/v2"]);
    history.judge().await;
}
