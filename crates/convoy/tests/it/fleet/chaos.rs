//! Everything at once, at random: crashes, pauses, cuts, other releases, flips, all under load.
//!
//! Short in CI; `cargo xtask soak fleet-chaos` runs hundreds of rounds. The seed is printed and can be given.

use std::time::Duration;

use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::json;
use store::fault::Cut;
use testkit::tools;

use super::{
    custom::{LOAD as THINGS, definition, things},
    ground::{CLASSES_RECORD, Ground, Ship, eventually},
    load::{DEVICE_CLASSES, Load},
    on_both_stores,
};

on_both_stores!(whatever_happens_nothing_is_stored_that_was_not_agreed_on);

const NAMES: [&str; 3] = ["a", "b", "c"];
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";

async fn whatever_happens_nothing_is_stored_that_was_not_agreed_on(ground: Ground) {
    let (rounds, seed) = (tools::rounds(8), tools::seed());
    tools::report(&format!("fleet chaos: {rounds} rounds, seed {seed}"));
    let mut random = StdRng::seed_from_u64(seed);
    let history = ground.history().await;
    let mut ships: Vec<Option<Ship>> = Vec::new();
    for name in NAMES {
        ships.push(Some(ground.launch(name, 34).await));
    }
    definition(ships[0].as_ref().unwrap(), "v1").await;
    let classes = Load::start_amid_crashes(DEVICE_CLASSES, 3);
    let others = Load::start_amid_crashes(THINGS, 3);
    for round in 0..rounds {
        let live: Vec<&Ship> = ships.iter().flatten().collect();
        classes.only(&live);
        others.only(&live);
        let n = random.random_range(0..NAMES.len());
        disturb(&ground, &mut ships, n, round, &mut random).await;
    }
    for ship in ships.iter().flatten() {
        ship.faults.resume();
        ship.faults.heal();
    }
    // Stop the load where servers may be in the middle of joining again.
    let live: Vec<&Ship> = ships.iter().flatten().collect();
    classes.only(&live);
    others.only(&live);
    classes.wrote(5).await;
    others.wrote(5).await;
    let journals = [classes.end().await, others.end().await];
    let n_written = journals[0].n_written() + journals[1].n_written();
    let ship = ships.iter().flatten().next().unwrap();
    eventually("all agree in the end", async || {
        ship.common(CLASSES_RECORD).await.is_some() && ship.common("example.com.things").await.is_some()
    })
    .await;
    let judged = history.judge_with(&[("example.com", "things")], &journals).await;
    tools::report(&format!(
        "fleet chaos: {n_written} writes, {} judged, {} moves",
        judged.n_judged, judged.n_moves
    ));
    assert!(judged.n_judged > 50, "{judged:?}");
}

async fn disturb(ground: &Ground, ships: &mut [Option<Ship>], n: usize, round: usize, random: &mut StdRng) {
    let pause = Duration::from_millis(random.random_range(20..2500));
    match random.random_range(0..6) {
        // A crash, and another release or the same.
        0 | 1 => {
            ships[n].take().unwrap().server.crash();
            relaunch(ground, ships, n, random).await;
        }
        2 => {
            let ship = ships[n].take().unwrap();
            ship.server.stop().await;
            relaunch(ground, ships, n, random).await;
        }
        3 => {
            let ship = ships[n].as_ref().unwrap();
            if random.random_bool(0.5) {
                ship.faults.pause_at_next_commit()
            } else {
                ship.faults.pause()
            }
            tokio::time::sleep(pause).await;
            ship.faults.resume();
        }
        4 => {
            let ship = ships[n].as_ref().unwrap();
            ship.faults.cut(if random.random_bool(0.5) { Cut::AnswerLost } else { Cut::Unsent });
            tokio::time::sleep(pause).await;
            ship.faults.heal();
        }
        _ => {
            let storage = if round.is_multiple_of(2) { "v2" } else { "v1" };
            let patch = json!({"spec": {"versions": things(storage)["spec"]["versions"]}});
            let (code, answer) = ships[n].as_ref().unwrap().ask("PATCH", DEFINITION, patch).await;
            assert!(matches!(code, 200 | 409 | 503 | 504), "{code} {answer}");
        }
    }
}

/// 1.34 to 1.36 read each other's device classes, so that any of them may come back.
async fn relaunch(ground: &Ground, ships: &mut [Option<Ship>], n: usize, random: &mut StdRng) {
    let minor = random.random_range(34..=36);
    ships[n] = Some(ground.launch(NAMES[n], minor).await);
}
