//! Who is a member: identities, leases, departures (ID-1, ID-4, ID-5, SV-16, SV-17, GC-2, GC-11 on member records).

use std::time::Duration;

use serde_json::{Value, json};
use store::{Key, Store, Txn};

use super::{
    ground::{CLASSES_RECORD, Ground, NEW, OLD, VERSIONS, eventually},
    identity::identities,
    on_both_stores,
};

on_both_stores!(
    every_server_has_a_lease_that_says_who_it_is,
    a_server_that_stops_is_gone_at_once,
    a_crashed_server_is_gone_within_fifteen_seconds,
    a_server_that_lost_its_lease_joins_again_by_itself,
    an_unchanged_report_changes_nothing,
    a_mirror_that_was_deleted_or_damaged_is_put_back,
    what_nobody_stands_behind_is_collected,
);

async fn every_server_has_a_lease_that_says_who_it_is(ground: Ground) {
    let first = ground.launch("test-server-a", 36).await;
    eventually("the Lease is there", async || identities(&first).await.len() == 1).await;
    let lease = identities(&first).await.remove(0);
    // As upstream computes it.
    assert_eq!(lease["metadata"]["name"], "apiserver-tcwjsvs6hjq4qbwzx5rvp5fsqe");
    assert_eq!(lease["metadata"]["labels"]["kubernetes.io/hostname"], "test-server-a");
    let annotations = &lease["metadata"]["annotations"];
    assert_eq!(annotations["apiserver.kubernetes.io/emulation-version"], "1.36");
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 3600);
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap().to_owned();
    assert!(holder.starts_with("apiserver-tcwjsvs6hjq4qbwzx5rvp5fsqe_"), "{holder}");

    let second = ground.launch("test-server-b", 36).await;
    eventually("both have one", async || identities(&second).await.len() == 2).await;
    first.server.stop().await;
    let first = ground.launch("test-server-a", 36).await;
    eventually("the same name has another holder", async || {
        let leases = identities(&first).await;
        let own = leases.iter().find(|it| it["metadata"]["name"] == lease["metadata"]["name"]);
        leases.len() == 2 && own.is_some_and(|it| it["spec"]["holderIdentity"] != *holder)
    })
    .await;
}

async fn a_server_that_stops_is_gone_at_once(ground: Ground) {
    let (stays, leaves) = (ground.launch("stays", 36).await, ground.launch("leaves", 36).await);
    eventually("both are members", async || stays.n_members() == 2 && identities(&stays).await.len() == 2)
        .await;
    leaves.server.stop().await;
    let left = tokio::time::Instant::now();
    eventually("one is left", async || stays.n_members() == 1).await;
    eventually("its Lease is gone", async || identities(&stays).await.len() == 1).await;
    eventually("its entries are gone", async || {
        stays.storage_version(CLASSES_RECORD).await["storageVersions"].as_array().unwrap().len() == 1
    })
    .await;
    // With slack: it need not wait for any lease.
    assert!(left.elapsed() < Duration::from_secs(8), "{:?}", left.elapsed());
}

async fn a_crashed_server_is_gone_within_fifteen_seconds(ground: Ground) {
    let flags = ["--member-lease-duration=10s"];
    let stays = ground.launch_with("stays", 36, &flags).await;
    let dies = ground.launch_with("dies", 36, &flags).await;
    eventually("both are members", async || stays.n_members() == 2).await;
    dies.server.crash();
    let crashed = tokio::time::Instant::now();
    eventually("it is gone", async || {
        let versions = stays.storage_version(CLASSES_RECORD).await;
        stays.n_members() == 1 && versions["storageVersions"].as_array().unwrap().len() == 1
    })
    .await;
    assert!(crashed.elapsed() < Duration::from_secs(15), "{:?}", crashed.elapsed());
}

async fn a_server_that_lost_its_lease_joins_again_by_itself(ground: Ground) {
    let (one, two) = (ground.launch("one", 36).await, ground.launch("two", 36).await);
    eventually("both are members", async || one.n_members() == 2).await;
    two.faults.pause();
    eventually("it is counted out", async || one.n_members() == 1).await;
    two.faults.resume();
    eventually("it is back", async || one.n_members() == 2 && two.state() == "Member").await;
    eventually("it can be written through", async || {
        let (code, _) = two.ask("POST", super::ground::MAPS, super::ground::map("back")).await;
        matches!(code, 201 | 409)
    })
    .await;
    // A cut is noticed in the same way.
    two.faults.cut(store::fault::Cut::Unsent);
    eventually("it is counted out again", async || one.n_members() == 1).await;
    two.faults.heal();
    eventually("it is back again", async || one.n_members() == 2 && two.state() == "Member").await;
}

async fn an_unchanged_report_changes_nothing(ground: Ground) {
    let first = ground.launch("first", 36).await;
    let list = async |ship: &super::ground::Ship| {
        let list = ship.get(VERSIONS).await["items"].take();
        list.as_array().unwrap().clone()
    };
    let before = list(&first).await;
    assert!(before.len() > 50, "{}", before.len());
    // A process that follows the first one at once says the same as it did.
    first.server.crash();
    let again = ground.launch("first", 36).await;
    let after = list(&again).await;
    assert_eq!(after.len(), before.len());
    for (now, before) in after.into_iter().zip(before) {
        assert_eq!(now, before);
    }
}

async fn a_mirror_that_was_deleted_or_damaged_is_put_back(ground: Ground) {
    let ship = ground.launch("a", 36).await;
    let path = format!("{VERSIONS}/{CLASSES_RECORD}");
    let before = ship.get(&path).await;
    assert_eq!(before["status"]["commonEncodingVersion"], NEW);
    ship.expect(200, "DELETE", &path, Value::Null).await;
    eventually("it is put back", async || {
        let (code, object) = ship.ask("GET", &path, Value::Null).await;
        code == 200 && object["status"] == before["status"]
    })
    .await;
    // Through the API nobody can write the status, whatever their rights.
    let status = json!({"status": {"commonEncodingVersion": OLD}});
    let refused = ship.expect(403, "PATCH", &format!("{path}/status"), status.clone()).await;
    assert!(refused["message"].as_str().unwrap().contains("written by the servers"), "{refused}");
    ship.expect(403, "PUT", &format!("{path}/status"), before.clone()).await;
    // Annotations are people's own.
    let noted =
        ship.expect(200, "PATCH", &path, json!({"metadata": {"annotations": {"note": "mine"}}})).await;
    assert_eq!(noted["status"], before["status"]);
    // Somebody with access to the store damages it.
    let key = Key::new(format!("/registry/storageversions/{CLASSES_RECORD}"));
    let mut damaged = noted.clone();
    damaged["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    damaged["status"]["commonEncodingVersion"] = json!(OLD);
    ground.store.commit(Txn::new().put(&key, damaged.to_string().into())).await.unwrap();
    eventually("it is mended", async || {
        let object = ship.get(&path).await;
        object["status"] == before["status"] && object["metadata"]["annotations"]["note"] == "mine"
    })
    .await;
}

/// A StorageVersion that a person made goes after a minute; one that servers stand behind stays.
async fn what_nobody_stands_behind_is_collected(ground: Ground) {
    let ship = ground.launch("a", 36).await;
    let made = json!({"apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion",
        "metadata": {"name": "test.resources"}, "spec": {}});
    ship.expect(201, "POST", VERSIONS, made.clone()).await;
    // One that has been there for longer than a minute.
    let mut old = made;
    old["metadata"] =
        json!({"name": "old.resources", "uid": "u", "creationTimestamp": "2020-01-01T00:00:00Z"});
    let key = Key::new("/registry/storageversions/old.resources");
    ground.store.commit(Txn::new().put(&key, old.to_string().into())).await.unwrap();
    eventually("the old one is collected", async || ground.store.get(&key).await.unwrap().is_none()).await;
    ship.expect(200, "GET", &format!("{VERSIONS}/test.resources"), Value::Null).await;
    assert_eq!(ship.common(CLASSES_RECORD).await.as_deref(), Some(NEW));
}
