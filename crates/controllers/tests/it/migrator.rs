//! The migrator against a stock cluster, whose server believes whatever it is told about `status.storedVersions`. T
//! numbers are those of the acceptance list.

use std::time::Duration;

use controllers::migration::api::Reach;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cluster::{Cluster, State};
use crate::stock::{EXTERNAL, IN_TREE};

const MIGRATOR: &str = "storage-version-migrator";

/// Twenty objects in v1, of a definition that stores v2.
fn filled() -> Cluster {
    Cluster::filled(&["a"], 20)
}

/// The version that is about to leave is written once more, and nothing that is listed tells of it.
fn there_and_back(state: &mut State) {
    state.stock.annotations.clear();
    state.flip("v1");
    state.put("a", "in-between", "v1");
    state.flip("v2");
}

/// Everything is stored in v2 and nowhere else, and that was true whenever it was said.
fn is_true(cluster: &Cluster) {
    cluster.with(|it| {
        assert_eq!(it.stock.untrue, Vec::<String>::new());
        assert_eq!(it.definition.as_ref().unwrap().1, ["v2"]);
        assert_eq!(it.stored_in("v1"), 0);
        assert!(!it.is_frozen());
    });
}

#[tokio::test(start_paused = true)]
async fn everything_is_rewritten_proven_and_pruned() {
    let cluster = filled();
    cluster.run(MIGRATOR);
    let status = cluster.ended(&cluster.ask(EXTERNAL, "m", &json!({}))).await;
    assert_eq!(status["phase"], "Succeeded", "{status:#}");
    assert_eq!((&status["progress"]["pass"], &status["prunedVersions"]), (&json!(1), &json!(["v1"])));
    is_true(&cluster);
    assert_eq!(cluster.told(), ["MigrationStarted", "MigrationSucceeded"]);
}

/// What discovery shows comes before what the server does: it says v2 and writes v1 for another minute.
#[tokio::test(start_paused = true)]
async fn a_server_that_has_not_followed_yet_is_waited_for() {
    let cluster = filled();
    cluster.with(|it| it.lagging.insert("a", "v1"));
    cluster.run(MIGRATOR);
    let path = cluster.ask(EXTERNAL, "m", &json!({}));
    let waiting = cluster.until(&path, "it waits", |it| it["reason"] == "Settling").await;
    assert_eq!(waiting["phase"], "Verifying", "{waiting:#}");
    tokio::time::sleep(Duration::from_secs(60)).await;
    cluster.with(|it| it.lagging.clear());
    let status = cluster.ended(&path).await;
    // The last look found them, so that another one had to follow.
    assert_eq!(
        (&status["phase"], &status["progress"]["pass"]),
        (&json!("Succeeded"), &json!(2)),
        "{status:#}"
    );
    is_true(&cluster);
}

/// Servers that refuse to write anything else need no time for that.
#[tokio::test(start_paused = true)]
async fn where_writes_are_fenced_nothing_is_waited_for() {
    let cluster = filled();
    let entry = json!({"apiServerID": "a", "encodingVersion": "example.com/v2"});
    let status = json!({"commonEncodingVersion": "example.com/v2", "epoch": 3, "storageVersions": [entry]});
    cluster.with(|it| it.storage = Some(status));
    cluster.run(MIGRATOR);
    let begin = Instant::now();
    let status = cluster.ended(&cluster.ask(EXTERNAL, "m", &json!({}))).await;
    assert_eq!(status["phase"], "Succeeded", "{status:#}");
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    is_true(&cluster);
}

/// Who migrates one resource leaves the migrations of others to others.
#[tokio::test(start_paused = true)]
async fn only_what_is_asked_for_is_taken_up() {
    let cluster = filled();
    cluster.run_with(MIGRATOR, Reach::EveryServer, |it| it.resources = vec!["gadgets.example.com".into()]);
    let path = cluster.ask(EXTERNAL, "m", &json!({}));
    tokio::time::sleep(Duration::from_secs(600)).await;
    cluster.with(|it| {
        assert_eq!(it.stock.migrations[&path]["status"], Value::Null);
        assert!(!it.is_frozen());
    });
}

/// Where nothing but conditions is kept, one says why it waits.
#[tokio::test(start_paused = true)]
async fn a_condition_says_why_it_waits() {
    let cluster = filled();
    cluster.with(|it| it.servers.insert("b", Some("v1")));
    cluster.run(MIGRATOR);
    let path = cluster.ask(IN_TREE, "m", &json!({}));
    let status = cluster.until(&path, "it waits", |it| it["reason"] == "NotAgreed").await;
    let condition = &status["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"]),
        (&json!("Running"), &json!("False")),
        "{status:#}"
    );
    assert_eq!((&condition["reason"], &condition["message"]), (&json!("NotAgreed"), &status["message"]));
}

/// T8, T15, acceptance 3: at the last moment.
#[tokio::test(start_paused = true)]
async fn a_flip_there_and_back_before_the_prune_is_noticed() {
    let cluster = filled();
    cluster.with(|it| it.stock.before_prune = Some(Box::new(there_and_back)));
    cluster.run(MIGRATOR);
    let status = cluster.ended(&cluster.ask(EXTERNAL, "m", &json!({}))).await;
    assert_eq!(status["phase"], "Succeeded", "{status:#}");
    assert_eq!(status["progress"]["total"], 21, "{status:#}");
    is_true(&cluster);
}

/// T8, T15: half of the objects have been looked at, among them the one that is written.
#[tokio::test(start_paused = true)]
async fn a_flip_there_and_back_during_the_last_look_is_noticed() {
    let cluster = filled();
    let act = |it: &mut State| {
        it.flip("v1");
        it.put("a", "w0000", "v1");
        it.flip("v2");
    };
    cluster.with(|it| it.stock.before_patch = Some((38, Box::new(act))));
    cluster.run(MIGRATOR);
    let status = cluster.ended(&cluster.ask(EXTERNAL, "m", &json!({"convoy.dev/rate": "20"}))).await;
    assert_eq!(status["phase"], "Succeeded", "{status:#}");
    is_true(&cluster);
}

/// T19: it costs another look.
#[tokio::test(start_paused = true)]
async fn an_edit_of_a_description_is_no_reason_to_give_up() {
    let cluster = filled();
    cluster.with(|it| it.stock.before_prune = Some(Box::new(State::edit)));
    cluster.run(MIGRATOR);
    let status = cluster.ended(&cluster.ask(EXTERNAL, "m", &json!({}))).await;
    assert_eq!((&status["phase"], &status["progress"]["pass"]), (&json!("Succeeded"), &json!(2)));
    is_true(&cluster);
    // What is not about the spec costs nothing.
    let cluster = filled();
    cluster.with(|it| it.stock.before_prune = Some(Box::new(State::touch_definition)));
    cluster.run(MIGRATOR);
    let status = cluster.ended(&cluster.ask(EXTERNAL, "m", &json!({}))).await;
    assert_eq!((&status["phase"], &status["progress"]["pass"]), (&json!("Succeeded"), &json!(1)));
}

/// Somebody took the freeze away and another migration got it: that one goes first.
#[tokio::test(start_paused = true)]
async fn a_freeze_that_another_migration_holds_is_waited_for() {
    let cluster = filled();
    let act = |it: &mut State| {
        it.stock.annotations.insert("convoy.dev/migration".to_owned(), json!("migration.k8s.io/other"));
        it.stock.annotations.insert("convoy.dev/migrating-until".to_owned(), json!("2026-11-16T13:00:00Z"));
        it.touch_definition();
    };
    cluster.with(|it| it.stock.before_patch = Some((3, Box::new(act))));
    cluster.run(MIGRATOR);
    let path = cluster.ask(EXTERNAL, "m", &json!({"convoy.dev/rate": "1"}));
    let status = cluster.until(&path, "it waits", |it| it["reason"] == "Queued").await;
    assert_eq!(status["phase"], "Checking", "{status:#}");
    cluster.with(|it| {
        it.stock.annotations.clear();
        it.touch_definition();
    });
    assert_eq!(cluster.ended(&path).await["phase"], "Succeeded");
    is_true(&cluster);
}

/// Acceptance 2: it hangs, but not without a reason; and goes on when it may.
#[tokio::test(start_paused = true)]
async fn a_right_that_is_missing_stands_in_the_status() {
    let cluster = filled();
    cluster.with(|it| it.forbidden = vec!["crd-patch"]);
    cluster.run(MIGRATOR);
    let path = cluster.ask(EXTERNAL, "m", &json!({}));
    let status = cluster.until(&path, "it says why", |it| it["reason"] == "Forbidden").await;
    assert_eq!(status["phase"], "Checking", "{status:#}");
    let why = "the migrator lacks a right: User \"u\" cannot patch resource \"customresourcedefinitions\"";
    assert_eq!(status["message"], why);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(cluster.told(), ["MigrationStarted", "MigrationHindered"], "it is told once");
    cluster.with(|it| it.forbidden.clear());
    assert_eq!(cluster.ended(&path).await["phase"], "Succeeded");
    is_true(&cluster);
}

/// The same at the end: what is frozen cannot be let go.
#[tokio::test(start_paused = true)]
async fn a_right_that_is_taken_away_stands_in_the_status() {
    let cluster = filled();
    // In the last look at all objects.
    cluster.with(|it| it.stock.before_patch = Some((30, Box::new(|it| it.forbidden = vec!["crd-patch"]))));
    cluster.run(MIGRATOR);
    let path = cluster.ask(EXTERNAL, "m", &json!({}));
    let status = cluster.until(&path, "it says why", |it| it["reason"] == "Forbidden").await;
    assert_eq!(status["phase"], "Pruning", "{status:#}");
    cluster.with(|it| it.forbidden.clear());
    let status = cluster.ended(&path).await;
    assert_eq!(status["phase"], "Succeeded", "{status:#}");
    is_true(&cluster);
}

/// Where not even the status can be written, an event says so.
#[tokio::test(start_paused = true)]
async fn who_may_not_write_the_status_says_so_in_an_event() {
    let cluster = filled();
    cluster.with(|it| it.forbidden = vec!["svm-status"]);
    cluster.run(MIGRATOR);
    let path = cluster.ask(EXTERNAL, "m", &json!({}));
    tokio::time::sleep(Duration::from_secs(120)).await;
    let n_told = cluster.told().iter().filter(|it| *it == "MigrationHindered").count();
    assert_eq!(n_told, 1, "{:?}", cluster.told());
    cluster.with(|it| it.forbidden.clear());
    assert_eq!(cluster.ended(&path).await["phase"], "Succeeded");
}

/// Acceptance 2: a server that hangs is told in the status before the pass is over.
#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_stands_in_the_status() {
    let cluster = filled();
    cluster.with(|it| it.is_hanging = true);
    cluster.run(MIGRATOR);
    let path = cluster.ask(EXTERNAL, "m", &json!({}));
    let begin = Instant::now();
    let status = cluster.until(&path, "it says why", |it| it["reason"] == "Waiting").await;
    assert_eq!(status["message"], "nothing became of any object of widgets.example.com for 90s");
    assert!(begin.elapsed() < Duration::from_secs(120), "{:?}", begin.elapsed());
    cluster.with(|it| it.is_hanging = false);
    assert_eq!(cluster.ended(&path).await["phase"], "Succeeded");
    is_true(&cluster);
}

/// A17: within a second, whatever is waited for.
#[tokio::test(start_paused = true)]
async fn a_cancel_does_not_wait_for_a_server_that_wants_to_be_left_alone() {
    let cluster = filled();
    cluster.with(|it| it.throttled = (1000, 60));
    cluster.run(MIGRATOR);
    let path = cluster.ask(EXTERNAL, "m", &json!({}));
    cluster.until(&path, "it runs", |it| it["phase"] == "Running").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let begin = Instant::now();
    cluster.annotate(&path, &json!({"convoy.dev/cancel": "true"}));
    let status = cluster.ended(&path).await;
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Aborted"), &json!("Cancelled")));
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    assert!(!cluster.with(|it| it.is_frozen()));
}

/// A freeze that a migrator left behind ends when another one starts, though the policy has no clock.
#[tokio::test(start_paused = true)]
async fn a_freeze_that_has_run_out_is_lifted() {
    let cluster = filled();
    let freeze = |until: &str| {
        let annotations = json!({"ksvm.sigs.k8s.io/migrating": "true",
            "convoy.dev/migration": "migration.k8s.io/gone", "convoy.dev/migrating-until": until});
        cluster.with(|it| it.stock.annotations = annotations.as_object().unwrap().clone());
    };
    freeze("2026-11-16T12:00:30Z");
    cluster.run(MIGRATOR);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(cluster.with(|it| it.is_frozen()), "it has not run out");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!cluster.with(|it| it.is_frozen()));
}

/// One server has not heard of the policy, or not any more.
#[tokio::test(start_paused = true)]
async fn every_server_is_asked_whether_it_refuses() {
    let cluster = filled();
    cluster.with(|it| {
        it.servers.insert("b", Some("v2"));
        it.stock.loose = vec!["b"];
    });
    cluster.run(MIGRATOR);
    let status = cluster.ended(&cluster.ask(EXTERNAL, "m", &json!({}))).await;
    assert_eq!(
        status["evidence"]["message"], "changes of the storage version were not refused",
        "{status:#}"
    );
    assert_eq!(cluster.with(|it| it.definition.clone().unwrap().1), ["v1", "v2"]);
}

/// The policy is removed on the way.
#[tokio::test(start_paused = true)]
async fn a_policy_that_goes_is_noticed() {
    let cluster = filled();
    cluster.with(|it| it.stock.before_patch = Some((25, Box::new(|it| it.stock.loose = vec!["a"]))));
    cluster.run(MIGRATOR);
    let status = cluster.ended(&cluster.ask(EXTERNAL, "m", &json!({"convoy.dev/rate": "1"}))).await;
    assert_eq!(status["phase"], "Succeeded");
    assert_eq!(
        status["evidence"]["message"], "changes of the storage version were not refused",
        "{status:#}"
    );
    assert_eq!(status["prunedVersions"], Value::Null);
}

/// The in-tree migrator takes the same migration up, after ours began.
#[tokio::test(start_paused = true)]
async fn the_in_tree_migrator_is_noticed_whenever_it_comes() {
    let cluster = filled();
    cluster.run(MIGRATOR);
    let path = cluster.ask(IN_TREE, "m", &json!({"convoy.dev/rate": "1"}));
    cluster.until(&path, "it runs", |it| it["phase"] == "Running").await;
    cluster.with(|it| {
        let mut object = it.stock.migrations[&path].clone();
        object["status"]["resourceVersion"] = json!("4711");
        object["metadata"]["managedFields"] =
            json!([{"manager": "kube-controller-manager", "operation": "Update", "subresource": "status"}]);
        it.store(&path, object);
    });
    assert_eq!(cluster.ended(&path).await["phase"], "Succeeded");
    let n_told = cluster.told().iter().filter(|it| *it == "AnotherMigrator").count();
    assert_eq!(n_told, 1, "{:?}", cluster.told());
}
