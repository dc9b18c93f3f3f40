//! How servers agree: votes, reports, holds, the feature gate, modes that are recorded.

use serde_json::{Value, json};

use super::{
    ground::{CLASSES, CLASSES_RECORD, Ground, NEW, OLD, VERSIONS, class, eventually},
    load::{DEVICE_CLASSES, Load},
    on_both_stores,
};

on_both_stores!(
    reports_show_a_common_version_only_while_all_write_the_same,
    a_release_is_rolled_out_under_load_where_servers_report,
    the_feature_is_turned_on_server_by_server,
    the_feature_is_turned_off_server_by_server,
    a_held_resource_stays_where_it_is,
    nothing_is_held_where_servers_report,
    a_server_with_other_modes_stays_out_and_names_both,
    loose_servers_follow_the_selection,
);

async fn reports_show_a_common_version_only_while_all_write_the_same(ground: Ground) {
    let history = ground.history().await;
    let flags = ["--storage-version-agreement=report"];
    let (a, b) = (ground.launch_with("a", 34, &flags).await, ground.launch_with("b", 34, &flags).await);
    assert_eq!(a.common(CLASSES_RECORD).await.as_deref(), Some(OLD));
    b.server.stop().await;
    let b = ground.launch_with("b", 36, &flags).await;
    let seen = a.storage_version(CLASSES_RECORD).await;
    assert_eq!((seen.get("commonEncodingVersion"), seen.get("selectedVersion")), (None, None), "{seen}");
    assert_eq!(seen["conditions"][0]["reason"], "CommonEncodingVersionUnset");
    // Each writes its own.
    for (ship, name, version) in [(&a, "by-a", OLD), (&b, "by-b", NEW)] {
        ship.expect(201, "POST", CLASSES, class(name)).await;
        assert_eq!(
            ground.stored_version(&format!("/registry/deviceclasses/{name}")).await.as_deref(),
            Some(version)
        );
    }
    a.server.stop().await;
    let a = ground.launch_with("a", 36, &flags).await;
    assert_eq!(a.common(CLASSES_RECORD).await.as_deref(), Some(NEW));
    history.judge(&[]).await;
}

/// SV-15: with reports the common version goes from the old one to none with the first new server, and to the new one
/// exactly when the last old one has left; the judge compares it with every put.
async fn a_release_is_rolled_out_under_load_where_servers_report(ground: Ground) {
    let history = ground.history().await;
    let flags = ["--storage-version-agreement=report"];
    let mut ships = Vec::new();
    for name in ["a", "b", "c"] {
        ships.push(ground.launch_with(name, 34, &flags).await);
    }
    let load = Load::start(DEVICE_CLASSES, 3);
    load.only(&ships.iter().collect::<Vec<_>>());
    load.wrote(20).await;
    assert_eq!(ships[0].common(CLASSES_RECORD).await.as_deref(), Some(OLD));
    for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
        let old = ships.remove(0);
        load.turn_to(&ships.iter().collect::<Vec<_>>()).await;
        old.server.stop().await;
        if n == 2 {
            // The last old one has left, and nobody has come for it.
            eventually("all who are there write the new one", async || {
                ships[0].common(CLASSES_RECORD).await.as_deref() == Some(NEW)
            })
            .await;
        }
        ships.push(ground.launch_with(name, 36, &flags).await);
        load.only(&ships.iter().collect::<Vec<_>>());
        load.wrote(20).await;
        let expected = if n < 2 { None } else { Some(NEW) };
        assert_eq!(ships[0].common(CLASSES_RECORD).await.as_deref(), expected, "after {name}");
    }
    let journal = load.end().await;
    let judged = history.judge_with(&[], &[journal]).await;
    assert!(judged.n_judged > 20 && judged.n_free > 20, "{judged:?}");
}

async fn the_feature_is_turned_on_server_by_server(ground: Ground) {
    let history = ground.history().await;
    let off = ["--feature-gates=StorageVersionAPI=false"];
    let (a, b) = (ground.launch_with("a", 34, &off).await, ground.launch_with("b", 34, &off).await);
    a.expect(201, "POST", CLASSES, class("x")).await;
    a.server.stop().await;
    let a = ground.launch("a", 34).await;
    let seen = a.storage_version(CLASSES_RECORD).await;
    assert_eq!(seen.get("commonEncodingVersion"), None, "{seen}");
    let condition = &seen["conditions"][0];
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("MembersMissing")));
    assert!(condition["message"].as_str().unwrap().contains("StorageVersionAPI is off on "), "{condition}");
    b.expect(201, "POST", CLASSES, class("y")).await;
    b.server.stop().await;
    let b = ground.launch("b", 34).await;
    assert_eq!(b.common(CLASSES_RECORD).await.as_deref(), Some(OLD));
    history.judge(&[]).await;
}

/// The other way round, as docs/storage-versions.md has it: no common version while somebody has it off, everything can be
/// written all the time, and in the end objects with the entries of the present servers stay behind. They come back when
/// they are deleted.
async fn the_feature_is_turned_off_server_by_server(ground: Ground) {
    let history = ground.history().await;
    let off = ["--feature-gates=StorageVersionAPI=false"];
    let mut ships = vec![ground.launch("a", 36).await, ground.launch("b", 36).await];
    assert_eq!(ships[0].common(CLASSES_RECORD).await.as_deref(), Some(NEW));
    for name in ["a", "b"] {
        ships.remove(0).server.stop().await;
        ships.push(ground.launch_with(name, 36, &off).await);
        for (n, ship) in ships.iter().enumerate() {
            ship.expect(201, "POST", CLASSES, class(&format!("{name}-{n}"))).await;
            let seen = ship.storage_version(CLASSES_RECORD).await;
            assert_eq!(seen.get("commonEncodingVersion"), None, "{seen}");
            let condition = &seen["conditions"][0];
            assert_eq!(
                (&condition["status"], &condition["reason"]),
                (&json!("False"), &json!("MembersMissing"))
            );
            let message = condition["message"].as_str().unwrap();
            assert!(message.contains("feature gate StorageVersionAPI is off on apiserver-"), "{message}");
        }
    }
    let path = format!("{VERSIONS}/{CLASSES_RECORD}");
    let left = ships[0].get(&path).await;
    assert_eq!(left["status"]["storageVersions"].as_array().unwrap().len(), 2, "{left}");
    ships[0].expect(200, "DELETE", &path, Value::Null).await;
    eventually("it is put back", async || ships[0].ask("GET", &path, Value::Null).await.0 == 200).await;
    // On again, nothing stands in the way.
    for name in ["a", "b"] {
        ships.remove(0).server.stop().await;
        ships.push(ground.launch(name, 36).await);
    }
    eventually("all agree again", async || ships[0].common(CLASSES_RECORD).await.as_deref() == Some(NEW))
        .await;
    history.judge(&[]).await;
}

/// A hold is one more vote; where nobody votes it would have no effect.
async fn nothing_is_held_where_servers_report(ground: Ground) {
    let a = ground.launch_with("a", 36, &["--storage-version-agreement=report"]).await;
    let hold = json!({"resource": "deviceclasses.resource.k8s.io", "reason": "not today"});
    let refused = a.expect(400, "POST", "/convoy/hold", hold).await;
    assert!(refused["message"].as_str().unwrap().contains("the servers agree by reports"), "{refused}");
    let release = json!({"resource": "deviceclasses.resource.k8s.io", "release": true});
    a.expect(200, "POST", "/convoy/hold", release).await;
}

async fn a_held_resource_stays_where_it_is(ground: Ground) {
    let flags = ["--departure-settle-time=0s"];
    let a = ground.launch_with("a", 34, &flags).await;
    let hold = json!({"resource": "deviceclasses.resource.k8s.io", "reason": "not today"});
    a.expect(200, "POST", "/convoy/hold", hold).await;
    let unknown = json!({"resource": "nothings.example.com"});
    a.expect(404, "POST", "/convoy/hold", unknown).await;
    a.server.stop().await;
    let a = ground.launch_with("a", 36, &flags).await;
    // A fresh vote would move it at once.
    assert_eq!(a.common(CLASSES_RECORD).await.as_deref(), Some(OLD));
    let status = a.get("/convoy/status").await;
    let resources = status["resources"].as_array().unwrap();
    let held = resources.iter().find(|it| it["resource"] == "deviceclasses.resource.k8s.io").unwrap();
    assert!(held["hold"].as_str().unwrap().contains("not today"), "{held}");
    assert!(held["waiting"].as_str().unwrap().starts_with("held by "), "{held}");
    a.expect(
        200,
        "POST",
        "/convoy/hold",
        json!({"resource": "deviceclasses.resource.k8s.io", "release": true}),
    )
    .await;
    eventually("it moves when it is let go", async || a.common(CLASSES_RECORD).await.as_deref() == Some(NEW))
        .await;
}

async fn a_server_with_other_modes_stays_out_and_names_both(ground: Ground) {
    let _first = ground.launch("a", 36).await;
    let refused = ground.try_launch("b", 36, &["--storage-version-agreement=report"]).await.err().unwrap();
    assert!(refused.contains("--storage-version-agreement=report, the cluster uses vote"), "{refused}");
    let refused = ground.try_launch("b", 36, &["--storage-version-guarantee=loose"]).await.err().unwrap();
    assert!(refused.contains("--storage-version-guarantee=loose, the cluster uses strict"), "{refused}");
    ground.launch("b", 36).await;
}

async fn loose_servers_follow_the_selection(ground: Ground) {
    let flags = ["--storage-version-guarantee=loose"];
    let (a, b) = (ground.launch_with("a", 34, &flags).await, ground.launch_with("b", 34, &flags).await);
    a.expect(201, "POST", CLASSES, class("x")).await;
    for ship in [a, b] {
        ship.server.stop().await;
    }
    let (a, b) = (ground.launch_with("a", 36, &flags).await, ground.launch_with("b", 36, &flags).await);
    eventually("all vote for the new one", async || b.common(CLASSES_RECORD).await.as_deref() == Some(NEW))
        .await;
    // Within a minute; a watch takes far less.
    eventually("both write it", async || {
        for (ship, name) in [(&a, "by-a"), (&b, "by-b")] {
            ship.ask("DELETE", &format!("{CLASSES}/{name}"), Value::Null).await;
            ship.expect(201, "POST", CLASSES, class(name)).await;
            if ground.stored_version(&format!("/registry/deviceclasses/{name}")).await.as_deref() != Some(NEW)
            {
                return false;
            }
        }
        true
    })
    .await;
}
