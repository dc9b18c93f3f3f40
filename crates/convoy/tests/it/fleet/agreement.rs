//! How servers agree: votes, reports, holds, the feature gate, modes that are recorded.

use serde_json::{Value, json};

use super::{
    ground::{CLASSES, CLASSES_RECORD, Ground, NEW, OLD, class, eventually},
    on_both_stores,
};

on_both_stores!(
    reports_show_a_common_version_only_while_all_write_the_same,
    the_feature_is_turned_on_server_by_server,
    a_held_resource_stays_where_it_is,
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
