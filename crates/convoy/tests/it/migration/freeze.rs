//! While a migration runs, the storage version of the definition stays what it is, and nothing else does.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    history::History,
    widgets::{
        DEFINITION, DEFINITIONS, MIGRATIONS, RESOURCE, STATES, annotate, definition, ended, fill, flip,
        is_frozen, migrations_of, slow, stays, stored, stored_versions, succeeded, versions,
    },
};
use crate::fleet::{
    ground::{Ground, Ship, ask, eventually},
    on_both_stores, through_api_too,
};

on_both_stores!(
    /// A2, A6, A7, A8, A10, A11, T8, T19.
    a_frozen_definition_can_be_changed_but_not_flipped,
    /// A2, A12 (who may), T8 (a flip that was forced).
    only_who_may_freeze_sets_and_removes_it,
    /// A11, A13, A17.
    a_cancelled_migration_lets_go_at_once,
    /// A12, LAB 7, T4.
    a_deleted_migration_lets_go_at_once,
);

through_api_too!(
    /// A2, A6, A7, A8, A10, A11, T8, T19.
    a_frozen_definition_can_be_changed_but_not_flipped,
    /// A2, A12 (who may), T8 (a flip that was forced).
    only_who_may_freeze_sets_and_removes_it,
    /// A11, A13, A17.
    a_cancelled_migration_lets_go_at_once,
    /// A12, LAB 7, T4.
    a_deleted_migration_lets_go_at_once,
);

const MIGRATING: &str = "ksvm.sigs.k8s.io/migrating";

/// What is promised is a second; the machine may be busy.
const AT_ONCE: Duration = Duration::from_secs(3);

/// Tries to flip and returns why that is refused.
async fn refusal(ship: &Ship, storage: &str) -> String {
    let flipped = json!({"spec": {"versions": versions(storage)}});
    let refused = ship.expect(422, "PATCH", DEFINITION, flipped).await;
    refused["message"].as_str().unwrap().to_owned()
}

async fn a_frozen_definition_can_be_changed_but_not_flipped(ground: Ground) {
    let history = History::of(&ground).await;
    let ship = ground.launch_migrating("a", 36, &[]).await;
    fill(&ship, 30).await;
    let slow = slow(&ship, &ground).await;
    assert!(is_frozen(&ship.get(DEFINITION).await));
    for storage in ["v1", "v3"] {
        let why = refusal(&ship, storage).await;
        assert!(why.contains("StorageVersionMigration migration.k8s.io/slow"), "{why}");
        assert!(why.contains("convoy migrate --cancel slow"), "{why}");
        assert!(why.contains("the storage version stays v2"), "{why}");
    }

    // Whoever replaces it need not know about migrations.
    let mut put = ship.get(DEFINITION).await;
    put["metadata"].as_object_mut().unwrap().remove("annotations");
    put["spec"]["names"]["shortNames"] = json!(["wd"]);
    let put = ship.expect(200, "PUT", DEFINITION, put).await;
    assert!(is_frozen(&put), "{put}");
    eventually("a flip is refused in this way, too", async || {
        let mut flipped = ship.get(DEFINITION).await;
        flipped["metadata"].as_object_mut().unwrap().remove("annotations");
        flipped["spec"]["versions"] = versions("v3");
        // Others may have been faster: the new name is accepted in the status.
        let (code, answer) = ship.ask("PUT", DEFINITION, flipped).await;
        assert!(matches!(code, 409 | 422), "{answer}");
        code == 422
    })
    .await;

    // Descriptions change, and that costs nothing.
    let mut described = versions("v2");
    described[1]["schema"]["openAPIV3Schema"]["description"] = json!("what widgets are");
    let edited = ship.expect(200, "PATCH", DEFINITION, json!({"spec": {"versions": described}})).await;
    assert_eq!(stored(&ground).await.len(), 2, "it was not edited in the middle");
    assert_eq!(edited["status"]["storedVersions"], json!(["v1", "v2"]));

    annotate(&ship, &slow, json!({"convoy.dev/rate": "0"})).await;
    let done = succeeded(&ship, &slow).await;
    assert_eq!(done["status"]["prunedVersions"], json!(["v1"]), "{:#}", done["status"]);
    let crd = ship.get(DEFINITION).await;
    assert_eq!(crd["status"]["storedVersions"], json!(["v2"]));
    assert!(!is_frozen(&crd));
    flip(&ship, "v3").await;
    history.judge().await;
}

/// A client that may do all of this with definitions.
async fn client_with(ship: &Ship, user: &str, verbs: &[&str]) -> kube::Client {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": user},
        "rules": [{"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": verbs}]});
    ship.expect(201, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": user}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
    ship.expect(201, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    let client = ship.server.client_as(user, &[]);
    let label = json!({"metadata": {"labels": {"changed-by": user}}});
    eventually("the role is known", async || ask(&client, "PATCH", DEFINITION, label.clone()).await.0 == 200)
        .await;
    client
}

async fn only_who_may_freeze_sets_and_removes_it(ground: Ground) {
    let history = History::of(&ground).await;
    let ship = ground.launch_migrating("a", 36, &[]).await;
    fill(&ship, 30).await;
    let slow = slow(&ship, &ground).await;
    let removed = json!({"metadata": {"annotations": {MIGRATING: null}}});
    let editor = client_with(&ship, "editor", &["get", "create", "update", "patch"]).await;
    for change in [
        removed.clone(),
        json!({"metadata": {"annotations": {MIGRATING: "false"}}}),
        json!({"metadata": {"annotations": {"convoy.dev/migrating-until": "2020-01-01T00:00:00Z"}}}),
        json!({"metadata": {"annotations": {"convoy.dev/migration": "x/y"}}}),
    ] {
        let (code, why) = ask(&editor, "PATCH", DEFINITION, change).await;
        assert_eq!(code, 403, "{why}");
        assert!(why["message"].as_str().unwrap().contains("cannot freeze resource"), "{why}");
    }
    let mut other = definition("v1");
    other["metadata"] = json!({"name": "gadgets.example.com", "annotations": {MIGRATING: "true"}});
    other["spec"]["names"] = json!({"plural": "gadgets", "kind": "Gadget"});
    assert_eq!(ask(&editor, "POST", DEFINITIONS, other.clone()).await.0, 403);
    assert!(is_frozen(&ship.get(DEFINITION).await));

    // Who may can force a flip. The migration notices, and goes on to the new version.
    let boss = client_with(&ship, "boss", &["get", "create", "update", "patch", "freeze"]).await;
    assert_eq!(ask(&boss, "POST", DEFINITIONS, other).await.0, 201);
    let (code, answer) = ask(&boss, "PATCH", DEFINITION, removed).await;
    assert_eq!(code, 200, "{answer}");
    flip(&ship, "v3").await;
    annotate(&ship, &slow, json!({"convoy.dev/rate": "0"})).await;
    let done = succeeded(&ship, &slow).await;
    assert_eq!(done["status"]["storageVersion"], "example.com/v3");
    eventually("only v3 is listed", async || {
        let crd = ship.get(DEFINITION).await;
        crd["status"]["storedVersions"] == json!(["v3"]) && !is_frozen(&crd)
    })
    .await;
    assert_eq!(stored(&ground).await, [("example.com/v3".to_owned(), 30)].into());
    assert!(!history.judge().await.is_frozen);
}

/// Waits until the definition is let go, and says how long that took.
async fn until_let_go(ship: &Ship) -> Duration {
    let since = Instant::now();
    eventually("the definition is let go", async || !is_frozen(&ship.get(DEFINITION).await)).await;
    since.elapsed()
}

async fn a_cancelled_migration_lets_go_at_once(ground: Ground) {
    let history = History::of(&ground).await;
    let ship = ground.launch_migrating("a", 36, &[]).await;
    fill(&ship, 30).await;
    let slow = slow(&ship, &ground).await;
    eventually("the trigger has seen the flip", async || {
        let (_, state) = ship.ask("GET", &format!("{STATES}/{RESOURCE}"), Value::Null).await;
        state["status"]["currentVersion"] == "example.com/v2"
    })
    .await;
    annotate(&ship, &slow, json!({"convoy.dev/cancel": "true"})).await;
    let took = until_let_go(&ship).await;
    assert!(took < AT_ONCE, "{took:?}");
    let done = ended(&ship, &slow).await;
    let status = &done["status"];
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Aborted"), &json!("Cancelled")));
    assert_eq!(stored_versions(&ship).await, json!(["v1", "v2"]));
    assert_eq!(stored(&ground).await.len(), 2);
    // Nobody takes it up again behind the back of who cancelled it.
    stays("it is cancelled", async || {
        let all = migrations_of(&ship, RESOURCE).await;
        let is_over = |it: &Value| it["status"]["completionTime"].is_string();
        all.iter().all(is_over) && !is_frozen(&ship.get(DEFINITION).await)
    })
    .await;
    flip(&ship, "v1").await;
    eventually("all is as it was", async || {
        let crd = ship.get(DEFINITION).await;
        crd["status"]["storedVersions"] == json!(["v1"]) && !is_frozen(&crd)
    })
    .await;
    assert_eq!(stored(&ground).await, [("example.com/v1".to_owned(), 30)].into());
    assert!(!history.judge().await.is_frozen);
}

async fn a_deleted_migration_lets_go_at_once(ground: Ground) {
    let history = History::of(&ground).await;
    // The trigger would make another one.
    let ship = ground.launch_working("a", 36, "storage-version-gc,storage-version-migrator", &[]).await;
    fill(&ship, 30).await;
    let slow = slow(&ship, &ground).await;
    ship.expect(200, "DELETE", &slow, Value::Null).await;
    let took = until_let_go(&ship).await;
    assert!(took < AT_ONCE, "{took:?}");
    eventually("it is gone", async || ship.ask("GET", &slow, Value::Null).await.0 == 404).await;
    assert_eq!(stored(&ground).await.len(), 2);
    assert_eq!(stored_versions(&ship).await, json!(["v1", "v2"]));
    // One that was paused before it began holds nothing, and goes at once as well.
    let paused = json!({"convoy.dev/paused": "true"});
    let path = super::widgets::ask_for(&ship, MIGRATIONS, "paused", paused).await;
    super::widgets::says(&ship, &path, "reason", "Paused").await;
    ship.expect(200, "DELETE", &path, Value::Null).await;
    eventually("it is gone", async || ship.ask("GET", &path, Value::Null).await.0 == 404).await;
    assert!(!history.judge().await.is_frozen);
}
