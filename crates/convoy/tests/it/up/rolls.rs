//! What a rollout refuses, and what it says. Rollouts under load are in [`crate::robustness`].

use std::sync::Arc;

use serde_json::{Value, json};
use store::{Key, Store, Txn};
use testkit::etcd::{self, Etcd};

use super::{Up, client, get, port, rollout, said};
use crate::fleet::ground::{CLASSES, Ground, class};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_cannot_read_what_is_stored_is_refused() {
    if etcd::is_missing() {
        return;
    }
    let etcd = Arc::new(Etcd::start().await.unwrap());
    let ground = Ground::shared_etcd(&etcd).await;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let up = Up::start(&data, port(), &["--servers", "2", "--etcd-servers", &etcd.url()]);
    let far = json!({"apiVersion": "apps/v9", "kind": "Deployment", "metadata": {"name": "far", "namespace": "default"}});
    let key = Key::new("/registry/deployments/default/far");
    ground.store.commit(Txn::new().put(&key, far.to_string().into())).await.unwrap();
    let through = client(&data, "convoy").await;
    crate::fleet::ground::eventually("the census counts it", async || {
        get(&through, "/convoy/census").await.to_string().contains("apps/v9")
    })
    .await;
    let (code, why) = said(&rollout(&data, "1.35"));
    assert_eq!(code, Some(3), "{why}");
    assert!(why.contains("1 object of deployments.apps is stored as apps/v9"), "{why}");
    assert_eq!(get(&through, "/version").await["minor"], "36");
    drop(up);
}

/// G6: what a release does not serve does not hold it back, and is named. No release from 1.33 on serves something that
/// a newer one stores in a way it cannot read; hence the invented version above.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_older_release_does_not_serve_is_named_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let up = Up::start(&data, port(), &["--servers", "2"]);
    let through = client(&data, "convoy").await;
    let request = http::Request::post(CLASSES).header("content-type", "application/json");
    let made = request.body(class("gpu").to_string().into_bytes()).unwrap();
    through.request::<Value>(made).await.unwrap();
    let (code, page) = said(&rollout(&data, "1.33"));
    assert_eq!(code, Some(0), "{page}");
    let named =
        "1 objects of deviceclasses.resource.k8s.io stay stored, but release 1.33 does not serve them";
    assert!(page.contains(named), "{page}");
    let asked = http::Request::get(CLASSES).body(Vec::new()).unwrap();
    assert!(matches!(through.request_text(asked).await, Err(kube::Error::Api(it)) if it.code == 404));
    let (code, page) = said(&rollout(&data, "1.36"));
    assert_eq!(code, Some(0), "{page}");
    assert_eq!(get(&through, &format!("{CLASSES}/gpu")).await["metadata"]["name"], "gpu");
    up.stop();
}

/// The only server is away for a moment: whoever comes then waits.
#[test]
fn a_single_server_is_rolled_without_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let up = Up::start(&data, 0, &["--servers=1"]);
    for to in ["1.35", "1.36"] {
        let (code, page) = said(&rollout(&data, to));
        assert_eq!(code, Some(0), "{page}");
    }
    up.stop();
}

/// A definition whose conversion webhook is down cannot be listed in all versions, before the rollout and after it.
#[tokio::test]
async fn what_failed_before_does_not_fail_a_rollout() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let up = Up::start(&data, 0, &["--servers=2"]);
    let through = client(&data, "convoy").await;
    let version = |name: &str, storage: bool| {
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        json!({"name": name, "served": true, "storage": storage, "schema": schema})
    };
    let webhook =
        json!({"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/"}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "ships.example.com"},
        "spec": {"group": "example.com", "scope": "Cluster", "names": {"plural": "ships", "kind": "Ship"},
            "versions": [version("v1", true), version("v2", false)],
            "conversion": {"strategy": "Webhook", "webhook": webhook}}});
    let post = async |path: &str, body: &Value| {
        let request = http::Request::post(path).header("content-type", "application/json");
        through.request::<Value>(request.body(body.to_string().into_bytes()).unwrap()).await
    };
    post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.unwrap();
    let ship = json!({"apiVersion": "example.com/v1", "kind": "Ship", "metadata": {"name": "a"}});
    crate::fleet::ground::eventually("it is served", async || {
        post("/apis/example.com/v1/ships", &ship).await.is_ok()
    })
    .await;
    let (code, page) = said(&rollout(&data, "1.35"));
    assert_eq!(code, Some(0), "{page}");
    assert!(page.contains("  fails already: /apis/example.com/v2/ships?limit=1: 500 "), "{page}");
    let last = page.lines().last().unwrap();
    assert!(last.contains(" failures as before, 0 errors"), "{page}");
    up.stop();
}
