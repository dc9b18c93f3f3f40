//! Nothing is denied that another server has, or that a definition has had for a moment: subresources and documents
//! through servers that are behind, that have just started, or that were asked by mistake.

use std::time::Duration;

use convoy::{Keep, Options, Release, Server};
use serde_json::{Value, json};

use super::{
    custom::{THINGS, definition, thing, things},
    ground::{Ground, Ship, ask, ask_with, eventually},
    on_both_stores,
};

const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
const PODS: &str = "/api/v1/namespaces/default/pods";
const RESIZE: &str = "/api/v1/namespaces/default/pods/p/resize";

/// How far a server is behind.
const BEHIND: Duration = Duration::from_millis(150);

on_both_stores!(
    a_new_subresource_is_there_through_a_server_that_is_behind,
    a_new_version_is_in_every_document_of_a_server_that_is_behind,
    a_subresource_of_a_new_server_is_there_through_one_that_is_behind,
    a_server_that_starts_denies_nothing,
    a_server_that_was_asked_by_mistake_denies_nothing,
);

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

/// A pod, and the account that it runs as: nobody else makes that here.
async fn make_pod(ship: &Ship) {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    ship.expect(201, "POST", "/api/v1/namespaces/default/serviceaccounts", account).await;
    ship.expect(201, "POST", PODS, pod()).await;
}

/// Every server can serve a definition that it knows, so nobody may say that there is no such subresource once the
/// definition with it was acknowledged.
async fn a_new_subresource_is_there_through_a_server_that_is_behind(ground: Ground) {
    let (a, b) = (ground.launch("a", 36).await, ground.launch("b", 36).await);
    definition(&a, "v1").await;
    let mut object = thing("t");
    object["spec"]["replicas"] = json!(3);
    a.expect(201, "POST", THINGS, object).await;
    b.faults.delay(BEHIND);
    for round in 0..3 {
        for (name, what) in [
            (
                "scale",
                json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}),
            ),
            ("status", json!({})),
        ] {
            let mut versions = things("v1")["spec"]["versions"].clone();
            for version in versions.as_array_mut().unwrap() {
                version["subresources"] = json!({ name: what });
            }
            a.expect(200, "PATCH", DEFINITION, json!({"spec": {"versions": versions}})).await;
            let (code, answer) = b.ask("GET", &format!("{THINGS}/t/{name}"), Value::Null).await;
            assert_eq!(code, 200, "round {round}: {name}: {answer}");
        }
    }
    // What is not there is denied, by a server that is behind as well.
    let (code, answer) = b.ask("GET", &format!("{THINGS}/t/scale"), Value::Null).await;
    assert_eq!(
        (code, answer["message"].as_str()),
        (404, Some("the server could not find the requested resource"))
    );
    let (code, _) = b.ask("POST", &format!("{THINGS}/t/status"), thing("t")).await;
    assert_eq!(code, 405);
}

/// The same for whoever asks what there is.
async fn a_new_version_is_in_every_document_of_a_server_that_is_behind(ground: Ground) {
    let (a, b) = (ground.launch("a", 36).await, ground.launch("b", 36).await);
    definition(&a, "v1").await;
    b.faults.delay(BEHIND);
    let mut versions = things("v1")["spec"]["versions"].clone();
    let aggregated = [("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")];
    for (n, (path, headers)) in [
        ("/apis/example.com/VERSION", &[][..]),
        ("/apis/example.com", &[]),
        ("/apis", &[]),
        ("/apis", &aggregated),
        ("/openapi/v3/apis/example.com/VERSION", &[]),
        ("/openapi/v3", &[]),
        ("/openapi/v2", &[]),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("v{}", n + 3);
        let mut version = versions[1].clone();
        version["name"] = json!(name);
        versions.as_array_mut().unwrap().push(version);
        a.expect(200, "PATCH", DEFINITION, json!({"spec": {"versions": versions}})).await;
        let path = path.replace("VERSION", &name);
        let (code, _, answer) = ask_with(&b.server.client(), "GET", &path, headers, Value::Null).await;
        assert_eq!(code, 200, "{path}: {answer}");
        assert!(answer.to_string().contains(&name), "{path} does not have {name}: {answer}");
    }
    for path in ["/apis/example.com/v99", "/openapi/v3/apis/example.com/v99", "/apis/nothing.example.com"] {
        assert_eq!(b.ask("GET", path, Value::Null).await.0, 404, "{path}");
    }
}

async fn a_subresource_of_a_new_server_is_there_through_one_that_is_behind(ground: Ground) {
    let old = ground.launch_reachable("old", 32, &[]).await;
    make_pod(&old).await;
    let (code, _) = old.ask("GET", RESIZE, Value::Null).await;
    assert_eq!(code, 404, "nobody has it yet");
    old.faults.delay(BEHIND);
    let new = ground.launch_reachable("new", 33, &[]).await;
    let (code, answer) = old.ask("GET", RESIZE, Value::Null).await;
    assert_eq!(code, 200, "{answer}");
    new.server.stop().await;
    eventually("nobody has it any more", async || old.ask("GET", RESIZE, Value::Null).await.0 == 404).await;
}

/// From its first answer to the last before it is ready.
async fn a_server_that_starts_denies_nothing(ground: Ground) {
    let new = ground.launch_reachable("new", 33, &[]).await;
    make_pod(&new).await;
    let (store, faults) = store::fault::FaultStore::new(ground.store.clone(), store::SystemClock::shared());
    faults.delay(Duration::from_millis(20));
    let options = Options {
        keep: Keep::Shared(convoy::SharedStore::new(store)),
        name: "old".to_owned(),
        release: Release::v1(32),
        controllers: "storage-version-gc".to_owned(),
        listen: Some(([127, 0, 0, 1], 0).into()),
        cert_dir: Some(ground.certs.path().to_owned()),
        flags: vec!["--member-lease-duration=1s".to_owned()],
    };
    let mut old = Server::launch(options).await.unwrap();
    let client = old.client();
    let ready = async {
        old.ready().await.unwrap();
    };
    let asked = async {
        let mut codes = Vec::new();
        while codes.iter().filter(|it| **it == 200).count() < 20 {
            let (code, answer) = ask(&client, "GET", RESIZE, Value::Null).await;
            assert!(matches!(code, 200 | 503), "{code} {answer} after {codes:?}");
            codes.push(code);
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(ready, asked);
}

/// A server that is where another one says to be: it has the resource, and not the subresource.
async fn a_server_that_was_asked_by_mistake_denies_nothing(ground: Ground) {
    let old = ground.launch_reachable("old", 32, &[]).await;
    let port = old.server.url().unwrap().rsplit(':').next().unwrap().to_owned();
    let lie = ["--peer-advertise-ip=127.0.0.1".to_owned(), format!("--peer-advertise-port={port}")];
    let _new = ground.launch_reachable("new", 33, &[&lie[0], &lie[1]]).await;
    let asks = ground.launch_reachable("asks", 32, &[]).await;
    make_pod(&asks).await;
    for (method, path) in [("GET", RESIZE), ("PATCH", RESIZE)] {
        let body = if method == "PATCH" { json!({}) } else { Value::Null };
        let (code, headers, answer) = ask_with(&asks.server.client(), method, path, &[], body).await;
        assert_eq!((code, headers.contains_key("retry-after")), (503, true), "{method}: {answer}");
    }
    // A path that fits nowhere is denied all the same.
    assert_eq!(asks.ask("GET", "/api/v1/pods/p", Value::Null).await.0, 404);
    assert_eq!(asks.ask("POST", &format!("{PODS}/p"), pod()).await.0, 405);
}
