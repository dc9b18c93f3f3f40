//! Objects that cannot be read, definitions that vanish, resources that nobody has: a migration ends and says why.

use serde_json::{Value, json};
use store::{Key, Store, Txn};

use super::{
    history::History,
    widgets::{
        DEFINITION, MIGRATIONS, PREFIX, RESOURCE, STATES, WIDGETS, ask_for, ask_for_resource, definition,
        ended, establish, evidence, fill, flip, is_frozen, migrated, says, slow, stored, stored_versions,
        succeeded, triggered, widget,
    },
};
use crate::fleet::{
    ground::{Ground, eventually},
    on_both_stores, through_api_too,
};

on_both_stores!(
    /// T2, T20, LAB 1, A11, A13.
    an_object_that_cannot_be_read_is_named_and_holds_up_nobody,
    /// T4, LAB 3.
    a_definition_that_is_deleted_on_the_way_ends_its_migration,
    /// T4, LAB 3, LAB 4.
    what_is_not_there_is_waited_for_a_minute,
    /// T4, LAB 4.
    events_are_migrated_like_everything_else,
);

through_api_too!(
    /// T20.
    an_object_that_cannot_be_read_is_named_and_holds_up_nobody,
    /// T4, LAB 3.
    a_definition_that_is_deleted_on_the_way_ends_its_migration,
    /// T4, LAB 3, LAB 4.
    what_is_not_there_is_waited_for_a_minute,
    /// T4, LAB 4.
    events_are_migrated_like_everything_else,
);

async fn an_object_that_cannot_be_read_is_named_and_holds_up_nobody(ground: Ground) {
    let ship = ground.launch_migrating("a", 36, &[]).await;
    fill(&ship, 10).await;
    if ground.is_through_api() {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}});
        ship.expect(201, "POST", "/api/v1/namespaces", namespace).await;
        ship.expect(201, "POST", WIDGETS, widget("first")).await;
        ship.expect(201, "POST", &WIDGETS.replace("default", "other"), widget("other")).await;
    }
    let strange = Key::new(format!("{PREFIX}default/strange"));
    let mut object = widget("strange");
    object["apiVersion"] = json!("example.com/v9");
    object["metadata"]["namespace"] = json!("default");
    object["metadata"]["uid"] = json!("5e7a0a58-6a3c-4a43-9c8f-5a0c3f0f7a11");
    ground.store.commit(Txn::new().put(&strange, object.to_string().into())).await.unwrap();
    flip(&ship, "v2").await;
    let path = triggered(&ship, "v2").await;
    if ground.is_through_api() {
        // This server lists the metadata of what it cannot read. Where one refuses the list, it is walked around the
        // object (`controllers::it::migration`).
        let done = ended(&ship, &path).await;
        let status = &done["status"];
        assert_eq!(status["reason"], "ObjectsFailed", "{status:#}");
        assert_eq!(status["failures"][0]["class"], "Undecodable", "{status:#}");
        assert_eq!(status["failures"][0]["objects"], json!(["default/strange"]), "{status:#}");
        let why = status["message"].as_str().unwrap();
        assert!(why.contains("example.com/v9"), "{why}");
        let counts = stored(&ground).await;
        assert_eq!(counts, [("example.com/v2".to_owned(), 12), ("example.com/v9".to_owned(), 1)].into());
        assert_eq!(stored_versions(&ship).await, json!(["v1", "v2"]));
        assert!(!is_frozen(&ship.get(DEFINITION).await));
        ground.store.commit(Txn::new().delete(&strange)).await.unwrap();
        let again = succeeded(&ship, &ask_for(&ship, MIGRATIONS, "again", json!({})).await).await;
        assert_eq!(again["status"]["progress"]["unchanged"], 12);
        assert_eq!(stored_versions(&ship).await, json!(["v2"]));
        return;
    }
    let done = ended(&ship, &path).await;
    let status = &done["status"];
    assert_eq!(
        (&status["phase"], &status["reason"]),
        (&json!("Failed"), &json!("ObjectsFailed")),
        "{status:#}"
    );
    let failures = status["failures"].as_array().unwrap();
    assert_eq!(failures.len(), 1, "{status:#}");
    assert_eq!(failures[0]["class"], "Undecodable");
    assert_eq!((&failures[0]["count"], &failures[0]["objects"]), (&json!(1), &json!(["default/strange"])));
    assert!(status["message"].as_str().unwrap().contains("default/strange"), "{status:#}");
    let progress = &status["progress"];
    assert_eq!((&progress["migrated"], &progress["unchanged"]), (&json!(10), &json!(0)), "{status:#}");
    let counts = stored(&ground).await;
    assert_eq!(counts, [("example.com/v2".to_owned(), 10), ("example.com/v9".to_owned(), 1)].into());
    let crd = ship.get(DEFINITION).await;
    assert_eq!(crd["status"]["storedVersions"], json!(["v1", "v2"]));
    assert!(!is_frozen(&crd));
    let (_, state) = ship.ask("GET", &format!("{STATES}/{RESOURCE}"), Value::Null).await;
    assert_ne!(state["status"]["persistedVersions"], json!(["example.com/v2"]), "{state:#}");

    // Without it everything is proven.
    ground.store.commit(Txn::new().delete(&strange)).await.unwrap();
    let again = succeeded(&ship, &ask_for(&ship, MIGRATIONS, "again", json!({})).await).await;
    assert_eq!(again["status"]["progress"]["unchanged"], 10);
    assert_eq!(stored_versions(&ship).await, json!(["v2"]));
}

async fn a_definition_that_is_deleted_on_the_way_ends_its_migration(ground: Ground) {
    let history = History::of(&ground).await;
    let ship = ground.launch_migrating("a", 36, &[]).await;
    fill(&ship, 30).await;
    let path = slow(&ship, &ground).await;
    ship.expect(200, "DELETE", DEFINITION, Value::Null).await;
    let done = ended(&ship, &path).await;
    let status = &done["status"];
    assert_eq!(
        (&status["phase"], &status["reason"]),
        (&json!("Failed"), &json!("ResourceGone")),
        "{status:#}"
    );
    eventually("the objects went with it", async || stored(&ground).await.is_empty()).await;
    eventually("so did the state", async || {
        ship.ask("GET", &format!("{STATES}/{RESOURCE}"), Value::Null).await.0 == 404
    })
    .await;
    // It can be deleted, and another definition of the same name begins from nothing.
    ship.expect(200, "DELETE", &path, Value::Null).await;
    eventually("it is gone", async || ship.ask("GET", &path, Value::Null).await.0 == 404).await;
    eventually("the definition is gone", async || ship.ask("GET", DEFINITION, Value::Null).await.0 == 404)
        .await;
    fill(&ship, 3).await;
    flip(&ship, "v3").await;
    migrated(&ship, "v3").await;
    assert_eq!(stored(&ground).await, [("example.com/v3".to_owned(), 3)].into());
    history.judge().await;
}

async fn what_is_not_there_is_waited_for_a_minute(ground: Ground) {
    let ship = ground.launch_migrating("a", 36, &[]).await;
    let early = ask_for(&ship, MIGRATIONS, "early", json!({})).await;
    let waits = says(&ship, &early, "reason", "ResourceNotFound").await;
    assert_eq!(waits["status"]["phase"], "Pending");

    // Made long ago, as far as anybody can tell.
    let never = ask_for_resource(
        &ship,
        MIGRATIONS,
        "never",
        ("example.com", "nothings"),
        json!({"convoy.dev/paused": "true"}),
    )
    .await;
    says(&ship, &never, "reason", "Paused").await;
    let key = Key::new("/registry/migration.k8s.io/storageversionmigrations/never");
    eventually("it is old", async || {
        let entry = ground.store.get(&key).await.unwrap().expect("it must be stored here");
        let mut object: Value = serde_json::from_slice(&entry.value).unwrap();
        object["metadata"]["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
        object["metadata"].as_object_mut().unwrap().remove("annotations");
        let txn = Txn::new().require_at(&key, entry.modified).put(&key, object.to_string().into());
        ground.store.commit(txn).await.is_ok()
    })
    .await;
    let status = ended(&ship, &never).await["status"].take();
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("ResourceNotFound")));
    assert_eq!(status["message"], "resource does not exist in discovery");

    // The other one comes in time.
    establish(&ship, definition("v1")).await;
    assert_eq!(succeeded(&ship, &early).await["status"]["storageVersion"], "example.com/v1");
}

async fn events_are_migrated_like_everything_else(ground: Ground) {
    let ship = ground.launch_migrating("a", 36, &[]).await;
    for n in 0..5 {
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("e{n}")}, "reason": "Test",
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}});
        ship.expect(201, "POST", "/api/v1/namespaces/default/events", event).await;
    }
    let path = ask_for_resource(&ship, MIGRATIONS, "events", ("", "events"), json!({})).await;
    let status = succeeded(&ship, &path).await["status"].take();
    assert_eq!(status["evidence"]["kind"], evidence(&ground));
    // Others, about this migration, are among them.
    assert!(status["evidence"]["objects"].as_u64().unwrap() >= 5, "{status:#}");
    assert_eq!(status["progress"]["failed"], 0);
}
