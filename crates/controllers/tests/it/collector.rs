//! The garbage collector: single stories, then random graphs against a model.

use std::time::Duration;

use serde_json::{Value, json};

use crate::world::{CONFIG_MAPS, PLANETS, Resource, SECRETS, WIDGETS, World, api_version};

pub fn owner(resource: Resource, name: &str, uid: &str, is_blocking: bool) -> Value {
    json!({
        "apiVersion": api_version(resource), "kind": resource.2, "name": name, "uid": uid,
        "blockOwnerDeletion": is_blocking,
    })
}

/// In namespace `a`; the uid is the name.
fn put(world: &World, resource: Resource, name: &str, owners: &[Value]) {
    world.with(|it| it.put(resource, "a", name, &json!({"uid": name, "ownerReferences": owners})));
}

fn blocking(resource: Resource, name: &str) -> Value {
    owner(resource, name, name, true)
}

/// Long enough for everything that could happen to happen.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(120)).await;
}

#[tokio::test(start_paused = true)]
async fn dependents_of_a_deleted_owner_go_and_others_stay() {
    let world = World::new(1);
    put(&world, WIDGETS, "owner", &[]);
    put(&world, CONFIG_MAPS, "child", &[blocking(WIDGETS, "owner")]);
    put(&world, SECRETS, "grandchild", &[blocking(CONFIG_MAPS, "child")]);
    put(&world, SECRETS, "free", &[]);
    put(&world, PLANETS, "planet", &[]);
    put(&world, SECRETS, "of-planet", &[blocking(PLANETS, "planet")]);
    world.run();
    settle().await;
    assert_eq!(world.with(|it| it.objects.len()), 6);
    world.with(|it| it.delete(WIDGETS, "a", "owner", "Background"));
    world.until("only two are left", |it| it.objects.len() == 3).await;
    world.with(|it| assert!(it.has(SECRETS, "free") && it.has(SECRETS, "of-planet")));
    world.with(|it| it.delete(PLANETS, "", "planet", "Background"));
    world.until("only one is left", |it| it.objects.len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn one_owner_is_enough_and_lost_ones_are_forgotten() {
    let world = World::new(1);
    put(&world, WIDGETS, "one", &[]);
    put(&world, WIDGETS, "two", &[]);
    put(&world, CONFIG_MAPS, "child", &[blocking(WIDGETS, "one"), blocking(WIDGETS, "two")]);
    world.run();
    settle().await;
    world.with(|it| it.delete(WIDGETS, "a", "one", "Foreground"));
    world.until("the first is gone", |it| !it.has(WIDGETS, "one")).await;
    settle().await;
    let owners =
        world.with(|it| it.get(CONFIG_MAPS, "a", "child").unwrap()["metadata"]["ownerReferences"].clone());
    assert_eq!(owners, json!([blocking(WIDGETS, "two")]));
    world.with(|it| it.delete(WIDGETS, "a", "two", "Background"));
    world.until("all are gone", |it| it.objects.is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_the_owner_goes_last() {
    let world = World::new(1);
    put(&world, WIDGETS, "owner", &[]);
    put(&world, CONFIG_MAPS, "child", &[blocking(WIDGETS, "owner")]);
    put(&world, SECRETS, "grandchild", &[blocking(CONFIG_MAPS, "child")]);
    world.with(|it| {
        let owners = json!([owner(WIDGETS, "owner", "owner", true)]);
        it.put(
            SECRETS,
            "a",
            "held",
            &json!({"uid": "held", "ownerReferences": owners, "finalizers": ["x/y"]}),
        );
    });
    world.run();
    settle().await;
    world.with(|it| it.delete(WIDGETS, "a", "owner", "Foreground"));
    world.until("the children are gone", |it| !it.has(CONFIG_MAPS, "child")).await;
    settle().await;
    world.with(|it| {
        assert!(it.has(WIDGETS, "owner") && it.has(SECRETS, "held"));
        let mut held = it.get(SECRETS, "a", "held").unwrap()["metadata"].clone();
        assert!(held["deletionTimestamp"].is_string());
        held["finalizers"] = json!([]);
        it.put(SECRETS, "a", "held", &held);
    });
    world.until("all are gone", |it| it.objects.is_empty()).await;
    world.with(|it| {
        let order: Vec<&String> = it.log.iter().filter(|it| it.starts_with("PATCH")).collect();
        assert!(order.last().unwrap().ends_with("widgets/owner"), "{order:?}");
    });
}

/// Two circles: one that is deleted at one place, one at all places at once, where everybody waits for everybody.
#[tokio::test(start_paused = true)]
async fn circles_do_not_wait_for_themselves() {
    for deleted in [&["a"][..], &["a", "b", "c"], &["self"]] {
        let world = World::new(1);
        for (name, of) in [("a", "c"), ("b", "a"), ("c", "b"), ("self", "self")] {
            put(&world, WIDGETS, name, &[blocking(WIDGETS, of)]);
        }
        let running = world.run();
        settle().await;
        assert_eq!(world.with(|it| it.objects.len()), 4);
        world.with(|it| deleted.iter().for_each(|name| it.delete(WIDGETS, "a", name, "Foreground")));
        world.until("the circle is gone", |it| deleted.iter().all(|name| !it.has(WIDGETS, name))).await;
        let n_left = if deleted == ["self"] { 3 } else { 1 };
        world.until("so are its members", |it| it.objects.len() == n_left).await;
        running.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn orphans_forget_their_owner_and_stay() {
    let world = World::new(1);
    put(&world, WIDGETS, "owner", &[]);
    put(&world, CONFIG_MAPS, "child", &[blocking(WIDGETS, "owner")]);
    world.run();
    settle().await;
    // One that no watch has shown yet.
    world.with(|it| {
        let owners = json!([blocking(WIDGETS, "owner")]);
        it.put(SECRETS, "a", "late", &json!({"uid": "late", "ownerReferences": owners}));
        it.delete(WIDGETS, "a", "owner", "Orphan");
    });
    world.until("the owner is gone", |it| !it.has(WIDGETS, "owner")).await;
    settle().await;
    world.with(|it| {
        for (resource, name) in [(CONFIG_MAPS, "child"), (SECRETS, "late")] {
            let child = it.get(resource, "a", name).unwrap();
            assert_eq!(child["metadata"]["ownerReferences"], json!([]), "{name}");
        }
    });
}

#[tokio::test(start_paused = true)]
async fn an_owner_in_another_namespace_is_none_and_people_are_told() {
    let world = World::new(1);
    put(&world, WIDGETS, "owner", &[]);
    world.run();
    settle().await;
    world.with(|it| {
        let owners = json!([blocking(WIDGETS, "owner")]);
        it.put(SECRETS, "b", "abroad", &json!({"uid": "abroad", "ownerReferences": owners}));
    });
    world.until("the child is gone", |it| it.get(SECRETS, "b", "abroad").is_none()).await;
    world.until("an event is written", |it| !it.recorded.is_empty()).await;
    world.with(|it| {
        assert!(it.has(WIDGETS, "owner"));
        let event = &it.recorded[0];
        assert_eq!(event["reason"], "OwnerRefInvalidNamespace");
        let message = "ownerRef [example.org/v1/Widget, namespace: b, name: owner, uid: owner] does not exist in namespace \"b\"";
        assert_eq!(event["message"], message);
    });
}

/// Upstream neither deletes nor retries: such a reference means nothing.
#[tokio::test(start_paused = true)]
async fn an_object_outside_of_namespaces_is_not_owned_from_inside() {
    let world = World::new(1);
    put(&world, PLANETS, "planet", &[blocking(WIDGETS, "nobody")]);
    world.run();
    settle().await;
    world.with(|it| assert!(it.has(PLANETS, "planet")));
}

/// No answer but a 404 about the very object counts as "not there".
#[tokio::test(start_paused = true)]
async fn what_cannot_be_asked_for_is_not_absent() {
    for code in [403, 404, 429, 500, 503] {
        let world = World::new(1);
        put(&world, CONFIG_MAPS, "child", &[blocking(WIDGETS, "owner")]);
        world.with(|it| it.refusals.push(("GET /apis/example.org/v1/namespaces/a/widgets/owner", code)));
        let running = world.run();
        settle().await;
        world.with(|it| {
            assert!(it.has(CONFIG_MAPS, "child"), "{code}");
            it.refusals.clear();
        });
        world.until("the child is gone", |it| it.objects.is_empty()).await;
        running.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn without_complete_discovery_nothing_is_deleted() {
    let world = World::new(1);
    put(&world, CONFIG_MAPS, "child", &[blocking(SECRETS, "owner")]);
    put(&world, CONFIG_MAPS, "custom", &[blocking(WIDGETS, "owner")]);
    world.with(|it| it.stale = true);
    world.run();
    settle().await;
    assert_eq!(world.with(|it| it.objects.len()), 2);
    // A group that is not listed at all: its kinds prove nothing, others do.
    world.with(|it| (it.stale, it.hidden) = (false, true));
    world.until("the child is gone", |it| !it.has(CONFIG_MAPS, "child")).await;
    settle().await;
    world.with(|it| assert!(it.has(CONFIG_MAPS, "custom")));
    world.with(|it| it.hidden = false);
    world.until("all are gone", |it| it.objects.is_empty()).await;
}

/// A group with known objects does not vanish because discovery leaves it out for a moment.
#[tokio::test(start_paused = true)]
async fn orphaning_waits_for_a_group_that_is_left_out() {
    let world = World::new(1);
    put(&world, CONFIG_MAPS, "owner", &[]);
    put(&world, WIDGETS, "child", &[blocking(CONFIG_MAPS, "owner")]);
    world.run();
    settle().await;
    world.with(|it| it.hidden = true);
    tokio::time::sleep(Duration::from_secs(7)).await;
    world.with(|it| it.delete(CONFIG_MAPS, "a", "owner", "Orphan"));
    tokio::time::sleep(Duration::from_secs(7)).await;
    world.with(|it| {
        assert!(it.has(CONFIG_MAPS, "owner"));
        it.hidden = false;
    });
    world.until("the owner is gone", |it| !it.has(CONFIG_MAPS, "owner")).await;
    settle().await;
    world.with(|it| assert!(it.has(WIDGETS, "child")));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_says_an_owner_went_proves_nothing() {
    let world = World::new(1);
    put(&world, WIDGETS, "owner", &[]);
    put(&world, CONFIG_MAPS, "child", &[blocking(WIDGETS, "owner")]);
    world.run();
    settle().await;
    world.with(|it| it.lie(WIDGETS, "a", "owner"));
    settle().await;
    world.with(|it| assert!(it.has(CONFIG_MAPS, "child")));
    world.with(|it| it.delete(WIDGETS, "a", "owner", "Background"));
    world.until("all are gone", |it| it.objects.is_empty()).await;
}

/// A server that leaves takes several kinds along. They are waited for together, not one after the other.
#[tokio::test(start_paused = true)]
async fn kinds_that_vanish_together_are_doubted_together() {
    let world = World::new(1);
    put(&world, WIDGETS, "widget", &[]);
    put(&world, PLANETS, "planet", &[]);
    put(&world, CONFIG_MAPS, "child", &[blocking(WIDGETS, "widget")]);
    world.run();
    settle().await;
    world.with(|it| it.hidden = true);
    tokio::time::sleep(Duration::from_secs(10)).await;
    put(&world, CONFIG_MAPS, "lost", &[blocking(SECRETS, "nobody")]);
    tokio::time::sleep(Duration::from_secs(15)).await;
    world.with(|it| assert!(it.has(CONFIG_MAPS, "lost"), "nothing is collected while there is doubt"));
    tokio::time::sleep(Duration::from_secs(25)).await;
    world.with(|it| assert!(!it.has(CONFIG_MAPS, "lost")));
    world.with(|it| assert!(it.has(CONFIG_MAPS, "child")));
}

#[tokio::test(start_paused = true)]
async fn owners_are_asked_for_as_soon_as_somebody_serves_their_kind() {
    let world = World::new(1);
    put(&world, CONFIG_MAPS, "child", &[blocking(WIDGETS, "nobody")]);
    world.with(|it| it.hidden = true);
    world.run();
    settle().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.with(|it| assert!(it.has(CONFIG_MAPS, "child")));
    world.with(|it| it.hidden = false);
    tokio::time::sleep(Duration::from_secs(8)).await;
    world.with(|it| assert!(!it.has(CONFIG_MAPS, "child")));
}

/// Two that block one another go, and their watch has not told: they are looked at once, not without end.
#[tokio::test(start_paused = true)]
async fn a_late_watch_does_not_keep_the_collector_busy() {
    let world = World::new(1);
    put(&world, PLANETS, "owner", &[]);
    put(&world, WIDGETS, "a", &[blocking(WIDGETS, "b"), blocking(PLANETS, "owner")]);
    put(&world, WIDGETS, "b", &[blocking(WIDGETS, "a")]);
    world.run();
    settle().await;
    world.with(|it| {
        it.silent = Some(WIDGETS);
        it.delete(WIDGETS, "a", "a", "Foreground");
        it.delete(WIDGETS, "a", "b", "Foreground");
        it.log.clear();
        it.delete(PLANETS, "a", "owner", "Background");
    });
    // Whoever never rests does not let this clock go on.
    settle().await;
    world.with(|it| {
        let looks = it.log.iter().filter(|it| it.ends_with("/widgets/a") || it.ends_with("/widgets/b"));
        assert!((1..10).contains(&looks.count()), "{:?}", it.log);
        it.silent = None;
        // So that the watches wake up.
        it.put(WIDGETS, "a", "news", &json!({"uid": "news"}));
    });
    world.until("both are gone", |it| it.objects.len() == 1).await;
}
