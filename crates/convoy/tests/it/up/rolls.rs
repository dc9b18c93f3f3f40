//! What a rollout refuses, and what it says. Rollouts under load are in [`crate::robustness`].

use std::sync::Arc;

use serde_json::{Value, json};
use store::{Key, Store, Txn};
use testkit::etcd::{self, Etcd};

use super::{Up, client, get, rollout, said};
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
    let up = Up::start(&data, 28_743, &["--servers", "2", "--etcd-servers", &etcd.url()]);
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
    let up = Up::start(&data, 28_543, &["--servers", "2"]);
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
