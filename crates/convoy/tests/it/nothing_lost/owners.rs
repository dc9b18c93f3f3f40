//! Owners whose kinds move, end, and come back, and what becomes of their dependents.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    gate::Gated,
    scene::{DEFINITION, DEFINITIONS, Scene, THINGS, gone, object, uid},
};
use crate::fleet::{
    ground::{Ground, MAPS, Ship, eventually, map},
    on_both_stores,
};

on_both_stores!(
    dependents_of_living_owners_survive_when_two_kinds_swap_their_resources,
    all_dependents_go_with_the_definition_of_their_owners,
    dependents_of_an_owner_that_was_made_anew_survive,
);

const WORK: &str = "garbage-collector,storage-version-gc";
/// The collector asks for what is served a moment after a definition has changed.
const DISCOVERED: Duration = Duration::from_millis(1_500);
const MAPS_PREFIX: &str = "/registry/configmaps/default/";

async fn launch(scene: &Scene) -> (Ship, super::gate::Gate) {
    let (store, gate) = Gated::over(scene.ground.store.clone());
    (scene.ground.launch_over(store, "worker", WORK, &[]).await, gate)
}

fn dependent(name: &str, owner: &Value) -> Value {
    let mut map = map(name);
    map["metadata"]["ownerReferences"] = json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": owner["metadata"]["name"], "uid": uid(owner)}]);
    map
}

async fn undefine(scene: &Scene, ship: &Ship, plural: &str, defined: &Value) {
    let path = format!("{DEFINITIONS}/{plural}.example.com");
    scene.delete(ship, &path, defined).await;
    gone(ship, &path).await;
}

/// Alphas are found where betas were, and the other way round. An owner that is asked for where its kind was before is not
/// there, and that proves nothing.
async fn dependents_of_living_owners_survive_when_two_kinds_swap_their_resources(ground: Ground) {
    let scene = Scene::on(ground);
    let (ship, _) = launch(&scene).await;
    let mut kinds = ["Alpha", "Beta"];
    let mut alphas = scene.define_as(&[&ship], "alphas", kinds[0]).await;
    let mut betas = scene.define_as(&[&ship], "betas", kinds[1]).await;
    let mut kept = Vec::new();
    for round in 0..8 {
        // The collector has seen where they are now.
        let probe = scene
            .create(
                &ship,
                "/apis/example.com/v1/namespaces/default/alphas",
                object(kinds[0], &format!("probe-{round}")),
            )
            .await;
        let name = format!("probe-{round}");
        scene.create(&ship, MAPS, dependent(&name, &probe)).await;
        scene.delete(&ship, &format!("/apis/example.com/v1/namespaces/default/alphas/{name}"), &probe).await;
        gone(&ship, &format!("{MAPS}/{name}")).await;
        undefine(&scene, &ship, "alphas", &alphas).await;
        undefine(&scene, &ship, "betas", &betas).await;
        // Their owners went with the definitions. The collector may not have seen all of them, and cannot ask for them while
        // nobody serves their kind; this is not about that.
        for dependent in kept.drain(..) {
            scene.discard(&ship, MAPS, &dependent).await;
        }
        kinds.swap(0, 1);
        alphas = scene.define_as(&[&ship], "alphas", kinds[0]).await;
        betas = scene.define_as(&[&ship], "betas", kinds[1]).await;
        for n in 0..4 {
            for (plural, kind) in [("alphas", kinds[0]), ("betas", kinds[1])] {
                let name = format!("{plural}-{round}-{n}");
                let path = format!("/apis/example.com/v1/namespaces/default/{plural}");
                let owner = scene.create(&ship, &path, object(kind, &name)).await;
                kept.push(scene.create(&ship, MAPS, dependent(&name, &owner)).await);
            }
        }
        tokio::time::sleep(Duration::from_millis(400)).await;
        let stored = scene.stored(MAPS_PREFIX).await;
        let lost: Vec<String> = names(&kept).into_iter().filter(|it| !stored.contains(it)).collect();
        assert!(lost.is_empty(), "round {round}: dependents of living owners are lost: {lost:?}");
    }
    scene.stay(MAPS_PREFIX, &names(&kept)).await;
    scene.judge().await;
}

fn names(objects: &[Value]) -> Vec<String> {
    objects.iter().map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// The collector is held up with some of them, and comes to the rest when their owners' kind has been gone for a while.
async fn all_dependents_go_with_the_definition_of_their_owners(ground: Ground) {
    let scene = Scene::on(ground);
    let (ship, gate) = launch(&scene).await;
    let defined = scene.define(&[&ship]).await;
    for n in 0..60 {
        let owner = scene.create(&ship, THINGS, object("Thing", &format!("owner-{n}"))).await;
        scene.create(&ship, MAPS, dependent(&format!("dependent-{n}"), &owner)).await;
    }
    gate.hold_deletes("/registry/configmaps/default/dependent-");
    scene.delete(&ship, DEFINITION, &defined).await;
    gone(&ship, DEFINITION).await;
    gate.wait_until_held(1).await;
    tokio::time::sleep(DISCOVERED).await;
    gate.open();
    eventually("all dependents are collected", async || {
        scene.stored(MAPS_PREFIX).await.iter().all(|it| !it.starts_with("dependent-"))
    })
    .await;
    scene.judge().await;
}

/// The collector is held up with a dependent of the first owner in hand; that dependent is made anew for the second.
async fn dependents_of_an_owner_that_was_made_anew_survive(ground: Ground) {
    let scene = Scene::on(ground);
    let (ship, gate) = launch(&scene).await;
    scene.define(&[&ship]).await;
    let first = scene.create(&ship, THINGS, object("Thing", "owner")).await;
    let dependents: Vec<String> = (0..6).map(|it| format!("dependent-{it}")).collect();
    let mut made = Vec::new();
    for name in &dependents {
        made.push(scene.create(&ship, MAPS, dependent(name, &first)).await);
    }
    gate.hold_deletes("/registry/configmaps/default/dependent-");
    scene.delete(&ship, &format!("{THINGS}/owner"), &first).await;
    gate.wait_until_held(1).await;
    let second = scene.create(&ship, THINGS, object("Thing", "owner")).await;
    // The same objects, adopted by the owner that there is now.
    for name in &dependents {
        let owners = dependent(name, &second)["metadata"]["ownerReferences"].take();
        ship.expect(
            200,
            "PATCH",
            &format!("{MAPS}/{name}"),
            json!({"metadata": {"ownerReferences": owners}}),
        )
        .await;
    }
    gate.open();
    scene.stay(MAPS_PREFIX, &dependents).await;
    scene.judge().await;
}
