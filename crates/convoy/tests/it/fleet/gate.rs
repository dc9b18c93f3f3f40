//! Writes wait until their version is reported, resource by resource (SV-1 to SV-5).

use std::time::Duration;

use serde_json::{Value, json};
use store::{Key, Store, Txn};

use super::{
    custom::{THINGS, definition, thing},
    ground::{Ground, MAPS, VERSIONS, eventually, map},
    on_both_stores,
};

on_both_stores!(
    one_resource_that_cannot_be_reported_delays_no_other,
    leases_of_servers_pass_a_closed_gate_and_no_others,
    a_lost_entry_closes_the_gate_until_it_is_back
);

/// What cannot be reported in the first story.
const SPOILT: [&str; 4] = [
    "core.configmaps",
    "core.pods",
    "apiextensions.k8s.io.customresourcedefinitions",
    "apiregistration.k8s.io.apiservices",
];

/// A fence that was written by a later release cannot be changed by this one.
async fn spoil(ground: &Ground, name: &str) {
    let key = Key::new(format!("/convoy/fences/{name}"));
    ground.store.commit(Txn::new().put(&key, r#"{"format":99}"#.into())).await.unwrap();
}

/// Whatever was wrong with a fence is gone.
async fn mend(ground: &Ground, name: &str) {
    let key = Key::new(format!("/convoy/fences/{name}"));
    ground.store.commit(Txn::new().delete(&key)).await.unwrap();
}

/// SV-1 to SV-5; SV-3, that it is ready within 10 s as soon as all can be reported, comes last.
async fn one_resource_that_cannot_be_reported_delays_no_other(ground: Ground) {
    let before = ground.launch("a", 36).await;
    definition(&before, "v1").await;
    before.server.stop().await;
    for name in SPOILT {
        spoil(&ground, name).await;
    }
    // It is not ready, so it is asked while it starts.
    let keep = ground.store.clone();
    let (store, _faults) = store::fault::FaultStore::new(keep, store::SystemClock::shared());
    let starting = super::ground::Starting::launch(convoy::SharedStore::new(store), "a", 36, &[]).await;
    let ask = async |method: &str, path: &str, body: Value| starting.ask(method, path, body).await;
    eventually("the others are reported", async || {
        ask(
            "POST",
            "/api/v1/namespaces/default/secrets",
            json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"generateName": "s-"}}),
        )
        .await
        .0 == 201
    })
    .await;
    let (code, refused) = ask("POST", MAPS, map("m")).await;
    assert_eq!((code, &refused["reason"]), (503, &json!("ServiceUnavailable")), "{refused}");
    let message = refused["message"].as_str().unwrap();
    let text =
        "wait for storage version registration to complete for resource: configmaps, last seen error: ";
    assert!(message.starts_with(text) && message.contains("format 99"), "{message}");
    assert_eq!(refused["details"]["retryAfterSeconds"], 1);
    for (method, path) in [
        ("DELETE", format!("{MAPS}/m")),
        ("DELETE", MAPS.to_owned()),
        ("PATCH", format!("{MAPS}/m")),
        ("POST", "/api/v1/namespaces/default/pods/p/exec".to_owned()),
        ("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned()),
        ("POST", "/apis/apiregistration.k8s.io/v1/apiservices".to_owned()),
    ] {
        let (code, answer) = ask(method, &path, json!({})).await;
        assert_eq!(code, 503, "{method} {path}: {answer}");
        assert!(
            answer["message"].as_str().unwrap().starts_with("wait for storage version registration"),
            "{answer}"
        );
    }
    // What is not stored, not built in, reported, or only read, passes.
    let review =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "x"}});
    assert_eq!(ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review).await.0, 201);
    assert_eq!(ask("GET", MAPS, Value::Null).await.0, 200);
    assert_eq!(ask("GET", "/api/v1/namespaces", Value::Null).await.0, 200);
    eventually("custom objects can be written", async || {
        let (code, _) = ask("POST", THINGS, thing("t")).await;
        matches!(code, 201 | 409)
    })
    .await;
    let made = json!({"apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion",
        "metadata": {"generateName": "test.resource"}, "spec": {}});
    assert_eq!(ask("POST", VERSIONS, made).await.0, 201);
    // Not ready, and alive.
    let (code, _) = ask("GET", "/readyz", Value::Null).await;
    assert_eq!(code, 500);
    assert_eq!(ask("GET", "/livez", Value::Null).await.0, 200);
    let health = starting.health().await;
    assert!(health.contains("not reported yet: "), "{health}");

    for name in SPOILT {
        mend(&ground, name).await;
    }
    let mended = tokio::time::Instant::now();
    eventually("everything can be written", async || ask("GET", "/readyz", Value::Null).await.0 == 200).await;
    assert!(mended.elapsed() < Duration::from_secs(10), "{:?}", mended.elapsed());
    assert_eq!(ask("POST", MAPS, map("m")).await.0, 201);
}

/// SV-4: what identities and elections need passes in kube-system, and nowhere else. No exception lifts the fence, so what
/// passes is seen by a removal, which needs none.
async fn leases_of_servers_pass_a_closed_gate_and_no_others(ground: Ground) {
    let ship = ground.launch("a", 36).await;
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}});
    let leases = |namespace: &str| format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    for namespace in ["kube-system", "default"] {
        ship.expect(201, "POST", &leases(namespace), lease.clone()).await;
    }
    spoil(&ground, "coordination.k8s.io.leases").await;
    let gate = "wait for storage version registration to complete for resource: leases.coordination.k8s.io";
    eventually("the gate is closed", async || {
        let (code, answer) = ship.ask("POST", &leases("default"), lease.clone()).await;
        assert!(matches!(code, 409 | 503), "{code} {answer}");
        code == 503 && answer["message"].as_str().unwrap().starts_with(gate)
    })
    .await;
    let object = |namespace: &str| format!("{}/l", leases(namespace));
    ship.expect(503, "DELETE", &object("default"), Value::Null).await;
    ship.expect(503, "PATCH", &object("default"), json!({"metadata": {"labels": {"a": "b"}}})).await;
    ship.expect(503, "PATCH", &object("kube-system"), json!({"metadata": {"labels": {"a": "b"}}})).await;
    ship.expect(200, "DELETE", &object("kube-system"), Value::Null).await;
    mend(&ground, "coordination.k8s.io.leases").await;
    eventually("all can be written again", async || {
        ship.ask("DELETE", &object("default"), Value::Null).await.0 == 200
    })
    .await;
    ship.expect(201, "POST", &leases("kube-system"), lease).await;
}

async fn a_lost_entry_closes_the_gate_until_it_is_back(ground: Ground) {
    let history = ground.history().await;
    let ship = ground.launch("a", 36).await;
    ship.expect(201, "POST", MAPS, map("m0")).await;
    for round in 1..=5 {
        // Somebody's mistake: the record is gone, and what the server knows with it.
        mend(&ground, "core.configmaps").await;
        // The next write reports again and goes on, or finds the gate closed until that is done.
        eventually("it can be written again", async || {
            let (code, answer) = ship.ask("POST", MAPS, map(&format!("m{round}"))).await;
            assert!(matches!(code, 201 | 503), "{code} {answer}");
            code == 201
        })
        .await;
        assert_eq!(ship.common("core.configmaps").await.as_deref(), Some("v1"));
    }
    // A loss that it cannot repair by itself: the gate is closed for as long as that lasts, and the server is not ready.
    spoil(&ground, "core.configmaps").await;
    eventually("the gate is closed", async || ship.ask("POST", MAPS, map("m6")).await.0 == 503).await;
    for n in 7..10 {
        let refused = ship.expect(503, "POST", MAPS, map(&format!("m{n}"))).await;
        let text =
            "wait for storage version registration to complete for resource: configmaps, last seen error: ";
        assert!(refused["message"].as_str().unwrap().starts_with(text), "{refused}");
    }
    ship.expect(500, "GET", "/readyz", Value::Null).await;
    ship.expect(
        201,
        "POST",
        "/api/v1/namespaces/default/secrets",
        json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "s"}}),
    )
    .await;
    mend(&ground, "core.configmaps").await;
    eventually("the gate is open", async || ship.ask("POST", MAPS, map("m10")).await.0 == 201).await;
    ship.expect(200, "GET", "/readyz", Value::Null).await;
    history.judge(&[]).await;
}
