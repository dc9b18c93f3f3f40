//! The server that migrates crashes, again and again: whoever takes over comes to the same end.
//!
//! Short in CI; `cargo xtask soak migration-crash` runs hundreds of rounds. The seed is printed and can be given.

use std::time::Duration;

use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use testkit::tools;

use super::{
    history::History,
    widgets::{DEFINITION, IN_TREE, ask_for, ended, fill, flip, is_frozen, settled, stored, stored_versions},
};
use crate::fleet::{
    ground::{Ground, Ship, ask, eventually},
    on_both_stores, through_api_too,
};

on_both_stores!(
    /// T9, D6.
    whoever_takes_over_comes_to_the_same_end,
);

through_api_too!(
    /// T9, D6.
    whoever_takes_over_comes_to_the_same_end,
);

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/convoy-controllers";
const N_WIDGETS: usize = 120;

/// Another server, which need not wait until the Lease of the one that crashed has expired.
async fn take_over(ground: &Ground, name: &str) -> Ship {
    let ship = ground.launch_migrating(name, 36, &[]).await;
    ask(&ship.server.client(), "DELETE", LEASE, Value::Null).await;
    ship
}

async fn whoever_takes_over_comes_to_the_same_end(ground: Ground) {
    let (rounds, seed) = (tools::rounds(3), tools::seed());
    tools::report(&format!("migration crash: {rounds} rounds, seed {seed}"));
    let mut random = StdRng::seed_from_u64(seed);
    let history = History::of(&ground).await;
    let mut ship = ground.launch_migrating("s", 36, &[]).await;
    fill(&ship, N_WIDGETS).await;
    settled(&ship, "widgets.example.com", "example.com/v1").await;
    let mut n_cut = 0;
    for round in 0..rounds {
        let storage = ["v2", "v3", "v1"][round % 3];
        flip(&ship, storage).await;
        // Slow enough to be cut off anywhere: before it begins, on the way, at its end.
        let rate = json!({"convoy.dev/rate": "150"});
        let asked = ask_for(&ship, IN_TREE, &format!("asked-{round}"), rate).await;
        for _ in 0..random.random_range(1..=2) {
            tokio::time::sleep(Duration::from_millis(random.random_range(0..1500))).await;
            n_cut += usize::from(ship.get(&asked).await["status"]["completionTime"].is_null());
            ship.server.crash();
            ship = take_over(&ground, "s").await;
        }
        let done = ended(&ship, &asked).await;
        assert_eq!(done["status"]["phase"], "Succeeded", "seed {seed}, round {round}: {done:#}");
        eventually("only the new version is listed", async || {
            stored_versions(&ship).await == json!([storage])
        })
        .await;
        let expected = [(format!("example.com/{storage}"), N_WIDGETS)];
        assert_eq!(stored(&ground).await, expected.into(), "seed {seed}, round {round}");
        settled(&ship, "widgets.example.com", &format!("example.com/{storage}")).await;
        eventually("nothing is frozen", async || !is_frozen(&ship.get(DEFINITION).await)).await;
        ship.expect(200, "DELETE", &asked, Value::Null).await;
        eventually("it can be deleted", async || ship.ask("GET", &asked, Value::Null).await.0 == 404).await;
    }
    let judged = history.judge().await;
    assert!(!judged.is_frozen);
    // Nobody rewrote what was rewritten already.
    let most = judged.puts.values().max().copied().unwrap_or_default();
    assert_eq!(most, rounds + 1, "seed {seed}");
    tools::report(&format!("migration crash: {n_cut} of the crashes were in the middle"));
}
