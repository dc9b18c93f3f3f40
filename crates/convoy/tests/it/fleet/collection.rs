//! What is removed of servers that are gone, and what is not (GC-1, GC-3 to GC-10), on member records.
//!
//! In these stories servers report what they write, as upstream's do; the one that collects stores no device classes.

use std::time::Duration;

use fleet::{
    FenceRecord, MemberRecord, Members,
    agree::Facts,
    cluster::Agreement,
    collect::{self, Collect, Owner},
    keys, record, write,
};
use meta::GroupResource;
use serde_json::{Value, json};
use store::{CommitError, Key, Range, ReadAt, Store, Txn};

use super::{
    custom::{THINGS, definition, thing},
    ground::{CLASSES_RECORD, Ground, NEW, OLD, Ship, VERSIONS, eventually},
    on_both_stores,
};

const REPORT: &str = "--storage-version-agreement=report";

on_both_stores!(
    an_entry_goes_with_its_server_and_the_object_with_the_last,
    the_object_of_an_unknown_server_goes,
    nothing_is_removed_while_the_members_are_not_known,
    a_collection_that_was_decided_before_a_report_fails,
    the_record_of_a_deleted_definition_stays_while_objects_do,
);

/// One that collects and stores no device classes: they are a beta of 1.33, which is off.
async fn collector(ground: &Ground) -> Ship {
    ground.launch_with("collector", 33, &[REPORT]).await
}

async fn entries(ship: &Ship) -> Option<Value> {
    let (code, mut object) = ship.ask("GET", &format!("{VERSIONS}/{CLASSES_RECORD}"), Value::Null).await;
    (code == 200).then(|| object["status"].take())
}

fn encodings(status: &Value) -> Vec<&str> {
    let entries = status["storageVersions"].as_array().into_iter().flatten();
    entries.map(|it| it["encodingVersion"].as_str().unwrap()).collect()
}

/// Waits until the entries name these versions; says what the object shows then.
async fn until(ship: &Ship, expected: &[&str]) -> Value {
    eventually("the entries are collected", async || {
        entries(ship).await.is_some_and(|it| encodings(&it) == expected)
    })
    .await;
    entries(ship).await.unwrap()
}

/// GC-7, GC-5, GC-3, GC-4 and GC-8, one after the other.
async fn an_entry_goes_with_its_server_and_the_object_with_the_last(ground: Ground) {
    let it = collector(&ground).await;
    let launch = async |name: &str, minor: u16| ground.launch_with(name, minor, &[REPORT]).await;
    let (a, b, c) = (launch("a", 34).await, launch("b", 36).await, launch("c", 36).await);
    let d = launch("d", 34).await;
    until(&it, &[OLD, NEW, NEW, OLD]).await;
    // GC-7: one of four has gone: that entry only, and still no agreement.
    d.server.crash();
    let seen = until(&it, &[OLD, NEW, NEW]).await;
    assert_eq!(
        (seen.get("commonEncodingVersion"), &seen["conditions"][0]["status"]),
        (None, &json!("False"))
    );
    // GC-5: the one that wrote the old version goes: the others agree, and one condition says so.
    a.server.crash();
    let seen = until(&it, &[NEW, NEW]).await;
    assert_eq!(
        (&seen["commonEncodingVersion"], &seen["conditions"][0]["status"]),
        (&json!(NEW), &json!("True"))
    );
    assert_eq!(seen["conditions"].as_array().unwrap().len(), 1);
    // GC-3: of two that differ the older goes.
    b.server.stop().await;
    let a = launch("a", 34).await;
    let seen = until(&it, &[NEW, OLD]).await;
    assert_eq!(seen.get("commonEncodingVersion"), None);
    a.server.crash();
    let seen = until(&it, &[NEW]).await;
    assert_eq!(seen["commonEncodingVersion"], NEW);
    // GC-4: the last one goes, and the object with it.
    c.server.crash();
    eventually("the object is gone", async || entries(&it).await.is_none()).await;
    // GC-8: the same for one that was alone and stops; with slack.
    let alone = launch("alone", 36).await;
    until(&it, &[NEW]).await;
    alone.server.stop().await;
    let stopped = tokio::time::Instant::now();
    eventually("the object is gone again", async || entries(&it).await.is_none()).await;
    assert!(stopped.elapsed() < Duration::from_secs(5), "{:?}", stopped.elapsed());
}

/// GC-1: a record whose only entry is of a server that nobody knows. What stands beside it stays as it is (GC-2).
async fn the_object_of_an_unknown_server_goes(ground: Ground) {
    let ship = ground.launch_with("a", 36, &[REPORT]).await;
    let path = format!("{VERSIONS}/{CLASSES_RECORD}");
    let (before, mut object) = (ship.get(&path).await, ship.get(&path).await);
    let entry =
        ground.store.get(&Key::new(format!("/convoy/fences/{CLASSES_RECORD}"))).await.unwrap().unwrap();
    let text = String::from_utf8(entry.value.to_vec()).unwrap();
    let identity = before["status"]["storageVersions"][0]["apiServerID"].as_str().unwrap().to_owned();
    let other = |text: String| {
        text.replace("deviceclasses", "gizmos").replace(&identity, "apiserver-aaaaaaaaaaaaaaaaaaaaaaaaaa")
    };
    object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let fence = Key::new("/convoy/fences/resource.k8s.io.gizmos");
    let mirror = Key::new("/registry/storageversions/resource.k8s.io.gizmos");
    let txn = Txn::new().put(&fence, other(text).into()).put(&mirror, other(object.to_string()).into());
    ground.store.commit(txn).await.unwrap();
    eventually("the object goes", async || ground.store.get(&mirror).await.unwrap().is_none()).await;
    let left = ground.store.get(&fence).await.unwrap();
    if let Some(left) = left {
        let record: FenceRecord = record::read(&fence, &left.value).unwrap();
        assert!(record.entries.is_empty(), "{record:?}");
    }
    assert_eq!(ship.get(&path).await, before);
}

/// GC-9: as long as one record of a member cannot be read, nobody is known to be gone.
async fn nothing_is_removed_while_the_members_are_not_known(ground: Ground) {
    let (stays, leaves) =
        (ground.launch_with("stays", 36, &[REPORT]).await, ground.launch_with("leaves", 36, &[REPORT]).await);
    until(&stays, &[NEW, NEW]).await;
    let strange = Key::new("/convoy/members/apiserver-strange");
    ground.store.commit(Txn::new().put(&strange, r#"{"format":99}"#.into())).await.unwrap();
    leaves.server.stop().await;
    eventually("it has left", async || stays.n_members() == 1).await;
    // Otherwise its entries would go a moment later.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let seen = entries(&stays).await.unwrap();
    assert_eq!(encodings(&seen), [NEW, NEW]);
    ground.store.commit(Txn::new().delete(&strange)).await.unwrap();
    until(&stays, &[NEW]).await;
}

/// GC-10: the entry is reported again between what the collector read and what it writes.
async fn a_collection_that_was_decided_before_a_report_fails(ground: Ground) {
    let (stays, back) =
        (ground.launch_with("stays", 36, &[REPORT]).await, ground.launch_with("back", 36, &[REPORT]).await);
    until(&stays, &[NEW, NEW]).await;
    let resource = GroupResource::new("resource.k8s.io", "deviceclasses");
    let key = keys::fence(&resource);
    let fence = ground.store.get(&key).await.unwrap().unwrap();
    let read: FenceRecord = record::read(&key, &fence.value).unwrap();
    let joined = ground.store.get(&keys::joined()).await.unwrap().map(|it| it.modified);
    // Somebody sees only one of the two, and decides.
    let page =
        ground.store.list(&Range::prefix(keys::members().start.as_str()), ReadAt::Latest, 10).await.unwrap();
    let members = page.entries.iter().map(|it| record::read::<MemberRecord>(&it.key, &it.value).unwrap());
    let gone = back.server.status().server.unwrap().identity;
    let members = Members::of(members.filter(|it| it.identity.as_str() != gone));
    let facts = Facts {
        resource: &resource,
        fence: Some(&read),
        members: &members,
        agreement: Agreement::Report,
        settle: Duration::ZERO,
        now: "2026-01-01T00:00:00Z".parse().unwrap(),
        revision: fence.modified,
    };
    let Ok(Collect::Write(plan)) = collect::collect(&facts, &read, Owner::BuiltIn, true) else { panic!() };
    assert_eq!(plan.record.entries.len(), 1);
    let basis = write::Basis { fence: Some(fence.modified), joined, ..write::Basis::default() };
    let txn = write::fence(&plan, &basis).unwrap();
    back.server.crash();
    let back = ground.launch_with("back", 36, &[REPORT]).await;
    assert!(matches!(ground.store.commit(txn).await, Err(CommitError::Unmet { .. })));
    let seen = until(&stays, &[NEW, NEW]).await;
    assert_eq!(seen["commonEncodingVersion"], NEW);
    drop(back);
}

/// A definition that went without its objects: what they may be written in stays known until the last of them is gone.
async fn the_record_of_a_deleted_definition_stays_while_objects_do(ground: Ground) {
    let ship = ground.launch_with("a", 36, &[REPORT]).await;
    definition(&ship, "v1").await;
    ship.expect(201, "POST", THINGS, thing("t")).await;
    let crd = registry::custom::definition_key(&GroupResource::new("example.com", "things"));
    let fence = Key::new("/convoy/fences/example.com.things");
    let read = async || ground.store.get(&fence).await.unwrap();
    ground.store.commit(Txn::new().delete(&crd)).await.unwrap();
    eventually("the StorageVersion goes", async || {
        ship.ask("GET", &format!("{VERSIONS}/example.com.things"), Value::Null).await.0 == 404
    })
    .await;
    // Collected again and again, it stays.
    for n in 0..3 {
        let other = ground.launch_with(&format!("b{n}"), 36, &[REPORT]).await;
        other.server.stop().await;
    }
    let record: FenceRecord = record::read(&fence, &read().await.expect("it stays").value).unwrap();
    assert!(record.entries.is_empty() && record.definition.is_some(), "{record:?}");
    let key = Key::new("/registry/example.com/things/default/t");
    ground.store.commit(Txn::new().delete(&key)).await.unwrap();
    // Nothing tells the servers of it: they look when somebody comes or goes, and every now and then.
    let other = ground.launch_with("b", 36, &[REPORT]).await;
    eventually("the record goes with the last object", async || read().await.is_none()).await;
    drop(other);
}
