//! What is counted of the fleet, by name and value.

use serde_json::json;
use store::{Key, Store, Txn};

use super::{
    custom::definition,
    ground::{CLASSES_RECORD, Ground, NEW, Ship, VERSIONS, eventually},
    on_both_stores,
};

on_both_stores!(what_servers_agree_on_is_counted);

/// The value of a series; nothing if it was never counted.
async fn measure(ship: &Ship, series: &str) -> Option<f64> {
    use http_body_util::BodyExt;
    let request = http::Request::get("/metrics").body(kube::client::Body::empty()).unwrap();
    let response = ship.server.client().send(request).await.unwrap();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    text.lines().find_map(|it| it.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

async fn writes(ship: &Ship, kind: &str) -> f64 {
    measure(ship, &format!("convoy_storage_version_writes_total{{kind=\"{kind}\"}}")).await.unwrap_or(0.0)
}

async fn what_servers_agree_on_is_counted(ground: Ground) {
    let a = ground.launch("a", 34).await;
    let n_resources = a.get(VERSIONS).await["items"].as_array().unwrap().len() as f64;
    assert!(n_resources > 50.0);
    let agreed = "convoy_storage_version_agreements{state=\"agreed\"}";
    let disagreed = "convoy_storage_version_agreements{state=\"disagreed\"}";
    for (series, value) in [
        ("convoy_fleet_members", 1.0),
        (agreed, n_resources),
        (disagreed, 0.0),
        ("convoy_storage_version_gates_open", n_resources),
        ("convoy_storage_version_gates_closed", 0.0),
        ("convoy_storage_version_gate_seconds_count", n_resources),
        ("convoy_storage_version_writes_total{kind=\"vote\"}", n_resources),
        ("convoy_fleet_events_lost_total", 0.0),
    ] {
        assert_eq!(measure(&a, series).await, Some(value), "{series}");
    }
    assert_eq!((writes(&a, "report").await, writes(&a, "collect").await), (0.0, 0.0));
    // The definition of a custom resource decides, so that servers report and do not vote.
    definition(&a, "v1").await;
    assert_eq!(writes(&a, "report").await, 1.0);
    // Somebody else's votes are theirs.
    let b = ground.launch("b", 36).await;
    assert!(writes(&b, "vote").await >= n_resources);
    assert_eq!((writes(&a, "vote").await, writes(&b, "collect").await), (n_resources, 0.0));
    eventually("both are counted", async || measure(&a, "convoy_fleet_members").await == Some(2.0)).await;
    // A mirror that is put back, by whoever comes first.
    let key = Key::new(format!("/registry/storageversions/{CLASSES_RECORD}"));
    ground.store.commit(Txn::new().delete(&key)).await.unwrap();
    eventually("it is mended once", async || writes(&a, "mend").await + writes(&b, "mend").await == 1.0)
        .await;
    // A hold, and what departed servers left.
    let hold = json!({"resource": "deviceclasses.resource.k8s.io"});
    b.expect(200, "POST", "/convoy/hold", hold).await;
    b.expect(
        200,
        "POST",
        "/convoy/hold",
        json!({"resource": "deviceclasses.resource.k8s.io", "release": true}),
    )
    .await;
    // What is shown does not change with a hold, so that nothing is written that anybody sees.
    assert_eq!(writes(&b, "hold").await, 0.0);
    a.server.stop().await;
    eventually("what it left is collected", async || writes(&b, "collect").await >= n_resources).await;
    eventually("it moves with the settled departure", async || {
        b.common(CLASSES_RECORD).await.as_deref() == Some(NEW)
    })
    .await;
    eventually("the time that it took is measured", async || {
        measure(&b, "convoy_storage_version_consensus_seconds_count").await.is_some_and(|it| it >= 1.0)
    })
    .await;
    // A gate that closes.
    let spoilt = Key::new("/convoy/fences/core.configmaps");
    ground.store.commit(Txn::new().put(&spoilt, r#"{"format":99}"#.into())).await.unwrap();
    eventually("one gate is closed", async || {
        measure(&b, "convoy_storage_version_gates_closed").await == Some(1.0)
    })
    .await;
    // A put that meets a changed agreement is tried again, and counted by its resource.
    let retries = "convoy_fence_retries_total{resource=\"secrets\"}";
    let before = measure(&b, retries).await.unwrap_or(0.0);
    let fence = Key::new("/convoy/fences/core.secrets");
    b.faults.delay(std::time::Duration::from_millis(50));
    ground.store.commit(Txn::new().delete(&fence)).await.unwrap();
    b.ask(
        "POST",
        "/api/v1/namespaces/default/secrets",
        json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "s"}}),
    )
    .await;
    b.faults.delay(std::time::Duration::ZERO);
    eventually("it was tried again", async || measure(&b, retries).await.unwrap_or(0.0) > before).await;
}
