//! A definition ends while somebody is held up in the middle of removing its objects.

use serde_json::Value;

use super::{
    gate::{Gate, Gated},
    scene::{DEFINITION, Scene, THINGS, THINGS_PREFIX, gone, held, object, served},
};
use crate::fleet::{
    ground::{Ground, Ship},
    on_both_stores,
};

on_both_stores!(
    a_server_that_was_away_spares_the_objects_of_a_recreated_definition,
    a_definition_that_is_forced_to_go_leaves_its_objects,
    the_marks_of_an_ended_definition_spare_those_of_the_next,
);

const RECORDS: &str = "storage-version-gc";

async fn launch(scene: &Scene, name: &str) -> (Ship, Gate) {
    let (store, gate) = Gated::over(scene.ground.store.clone());
    (scene.ground.launch_over(store, name, RECORDS, &[]).await, gate)
}

/// Makes so many things, and returns where they are stored.
async fn fill(scene: &Scene, ship: &Ship, names: impl Iterator<Item = String>) -> Vec<String> {
    let mut stored = Vec::new();
    for name in names {
        scene.create(ship, THINGS, object("Thing", &name)).await;
        stored.push(format!("default/{name}"));
    }
    stored
}

fn names(word: &str, n: usize) -> impl Iterator<Item = String> {
    (0..n).map(move |it| format!("{word}-{it}"))
}

/// Two servers remove the objects of a definition. One is held up, the other one finishes, and everything is made anew:
/// what the first one still has in hand is about objects that are gone.
async fn a_server_that_was_away_spares_the_objects_of_a_recreated_definition(ground: Ground) {
    let scene = Scene::on(ground);
    let (away, away_gate) = launch(&scene, "away").await;
    let (there, there_gate) = launch(&scene, "there").await;
    let defined = scene.define(&[&there, &away]).await;
    fill(&scene, &there, names("thing", 6)).await;
    away_gate.hold_deletes(THINGS_PREFIX);
    there_gate.hold_deletes(THINGS_PREFIX);
    scene.delete(&there, DEFINITION, &defined).await;
    away_gate.wait_until_held(1).await;
    there_gate.wait_until_held(1).await;
    there_gate.open();
    gone(&there, DEFINITION).await;
    assert_eq!(scene.stored(THINGS_PREFIX).await, Vec::<String>::new());

    scene.define(&[&there]).await;
    let again = fill(&scene, &there, names("thing", 6)).await;
    away_gate.open();
    scene.stay(THINGS_PREFIX, &again).await;
    // It does not wait for them either: what it knew is over.
    let more = fill(&scene, &there, names("more", 6)).await;
    scene.stay(THINGS_PREFIX, &more).await;
    scene.judge().await;
}

/// Somebody takes the finalizers off a definition that is being deleted. What is left of its objects stays, as it does
/// with kube-apiserver, a definition of that name shows it again, and can be deleted like any other.
async fn a_definition_that_is_forced_to_go_leaves_its_objects(ground: Ground) {
    let scene = Scene::on(ground);
    let (ship, gate) = launch(&scene, "one").await;
    let defined = scene.define(&[&ship]).await;
    let mut left = fill(&scene, &ship, names("free", 6)).await;
    let mut held_ones = Vec::new();
    for name in names("held", 3) {
        held_ones.push(scene.create(&ship, THINGS, held("Thing", &name)).await);
        left.push(format!("default/{name}"));
    }
    gate.hold_deletes(THINGS_PREFIX);
    scene.delete(&ship, DEFINITION, &defined).await;
    gate.wait_until_held(1).await;
    scene.free(&ship, DEFINITION, &defined).await;
    gone(&ship, DEFINITION).await;
    gate.open();
    scene.stay(THINGS_PREFIX, &left).await;

    let again = scene.define(&[&ship]).await;
    let shown = ship.get(THINGS).await;
    assert_eq!(shown["items"].as_array().map(Vec::len), Some(left.len()), "{shown}");
    left.extend(fill(&scene, &ship, names("restored", 6)).await);
    scene.stay(THINGS_PREFIX, &left).await;

    // The next one ends like any other.
    for object in &held_ones {
        let path = format!("{THINGS}/{}", object["metadata"]["name"].as_str().unwrap());
        scene.free(&ship, &path, object).await;
    }
    scene.delete(&ship, DEFINITION, &again).await;
    gone(&ship, DEFINITION).await;
    assert_eq!(scene.stored(THINGS_PREFIX).await, Vec::<String>::new());
    scene.judge().await;
}

/// The same for marks: objects that finalizers hold are marked, and a mark that comes late hits nobody else.
async fn the_marks_of_an_ended_definition_spare_those_of_the_next(ground: Ground) {
    let scene = Scene::on(ground);
    let (ship, gate) = launch(&scene, "one").await;
    let defined = scene.define(&[&ship]).await;
    for name in names("held", 4) {
        scene.create(&ship, THINGS, held("Thing", &name)).await;
    }
    gate.hold_puts(THINGS_PREFIX);
    scene.delete(&ship, DEFINITION, &defined).await;
    gate.wait_until_held(1).await;
    scene.free(&ship, DEFINITION, &defined).await;
    gone(&ship, DEFINITION).await;
    gate.open();
    scene.define(&[&ship]).await;
    served(&ship, "things").await;
    scene.stay(THINGS_PREFIX, &names("held", 4).map(|it| format!("default/{it}")).collect::<Vec<_>>()).await;
    for name in names("held", 4) {
        let found = ship.get(&format!("{THINGS}/{name}")).await;
        assert_eq!(found["metadata"]["deletionTimestamp"], Value::Null, "{found}");
    }
    scene.judge().await;
}
