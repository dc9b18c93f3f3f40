//! One release at a time, there and back, while clients write.

use std::{
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use kube::Client;
use serde_json::{Value, json};
use store::{Key, Store, Txn};
use testkit::{
    etcd::{self, Etcd},
    tools,
};

use super::{Up, client, get, rollout};
use crate::{
    fixture::BINARY,
    fleet::ground::{CLASSES, Ground, MAPS, class, map},
};

/// Where a round leads from 1.33, in the long form and in the short one.
const THERE_AND_BACK: [u16; 6] = [34, 35, 36, 35, 34, 33];
const A_STEP_AND_BACK: [u16; 2] = [34, 33];
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// Clients that write through the balancer until they are told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    n_done: Arc<AtomicU64>,
    n_later: Arc<AtomicU64>,
    writers: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    fn start(through: &Client) -> Self {
        let (stop, n_done, n_later) = <(Arc<AtomicBool>, Arc<AtomicU64>, Arc<AtomicU64>)>::default();
        let writers = (0..3).map(|writer| {
            let (stop, n_done, n_later) = (Arc::clone(&stop), Arc::clone(&n_done), Arc::clone(&n_later));
            let through = through.clone();
            tokio::spawn(async move {
                for n in 0_u64.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    match write(&through, writer, n).await {
                        200..=202 | 404 | 409 => n_done.fetch_add(1, Ordering::Relaxed),
                        503 => n_later.fetch_add(1, Ordering::Relaxed),
                        code => panic!("a client was told {code}"),
                    };
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
        });
        Self { writers: writers.collect(), stop, n_done, n_later }
    }

    async fn end(self) -> (u64, u64) {
        self.stop.store(true, Ordering::Relaxed);
        for writer in self.writers {
            writer.await.expect("every answer must be one that a client can go on after");
        }
        (self.n_done.load(Ordering::Relaxed), self.n_later.load(Ordering::Relaxed))
    }
}

/// Makes objects and deletes half of them: built-in ones, ones whose stored form differs, custom ones.
/// 404 is the answer of a release that does not have them.
async fn write(through: &Client, writer: u64, n: u64) -> u16 {
    let name = format!("w{writer}-{}", n / 2 % 50);
    let (path, object) = match n / 2 % 3 {
        0 => (MAPS, map(&name)),
        1 => (CLASSES, class(&name)),
        _ => (WIDGETS, widget(&name)),
    };
    let request = match n % 2 {
        0 => http::Request::post(path).header("content-type", "application/json"),
        _ => http::Request::delete(format!("{path}/{name}")),
    };
    let body = if n.is_multiple_of(2) { object.to_string().into_bytes() } else { Vec::new() };
    match through.request_text(request.body(body).unwrap()).await {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        // A connection that was cut is for the client to open again.
        Err(_) => 503,
    }
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}})
}

fn definition(storage: &str) -> Value {
    let version = |name: &str| {
        json!({"name": name, "served": true, "storage": name == storage,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"}, "versions": [version("v1"), version("v2")]}})
}

/// Every object is stored in the version that is written.
fn assert_nothing_old(data: &Path) {
    let said = Command::new(BINARY)
        .args(["census", "-o", "json", "--kubeconfig"])
        .arg(data.join("admin.kubeconfig"))
        .output()
        .unwrap();
    let census: Value = serde_json::from_slice(&said.stdout).unwrap();
    for resource in census["resources"].as_array().unwrap() {
        let versions: Vec<&String> = resource["versions"].as_object().unwrap().keys().collect();
        let old = versions.iter().filter(|it| Some(it.as_str()) != resource["written"].as_str());
        // What this release does not serve stays as it was left.
        assert!(resource["written"].is_null() || old.count() == 0, "{resource}");
    }
}

async fn roll(data: &Path, port: u16, flags: &[&str]) {
    let releases: &[u16] = if tools::is_soak() { &THERE_AND_BACK } else { &A_STEP_AND_BACK };
    let up = Up::start(data, port, &[&["--emulated-version", "1.33"], flags].concat());
    let through = client(data, "convoy").await;
    let request = http::Request::post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
        .header("content-type", "application/json");
    let made = request.body(definition("v1").to_string().into_bytes()).unwrap();
    through.request_text(made).await.unwrap();
    let load = Load::start(&through);
    for round in 0..tools::rounds(1) {
        for minor in releases {
            let said = rollout(data, &format!("1.{minor}"));
            let page = String::from_utf8_lossy(&said.stdout).into_owned();
            let why = String::from_utf8_lossy(&said.stderr);
            assert_eq!(said.status.code(), Some(0), "round {round}: {page} {why}");
            assert!(page.contains(" 0 errors"), "{page}");
            assert_eq!(get(&through, "/version").await["minor"], minor.to_string());
        }
        assert_nothing_old(data);
    }
    let (n_done, n_later) = load.end().await;
    assert!(n_done > 50, "{n_done}");
    tools::report(&format!(
        "{n_done} writes while rolling, {n_later} times 503 or a connection that was cut"
    ));
    up.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_on_the_embedded_store_go_there_and_back_under_load() {
    let folder = tempfile::tempdir().unwrap();
    roll(&folder.path().join("data"), 28_543, &[]).await;
}

/// Here every stored byte can be watched from outside.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_on_etcd_go_there_and_back_under_load() {
    if etcd::is_missing() {
        return;
    }
    let etcd = Arc::new(Etcd::start().await.unwrap());
    let ground = Ground::shared_etcd(&etcd).await;
    let history = ground.history().await;
    let folder = tempfile::tempdir().unwrap();
    roll(&folder.path().join("data"), 28_643, &["--etcd-servers", &etcd.url()]).await;
    let judged = history.judge(&[("example.com", "widgets")]).await;
    tools::report(&format!("{} puts judged, {} moves", judged.n_judged, judged.n_moves));
    assert!(judged.n_judged > 50, "{judged:?}");
}

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
    let said = rollout(&data, "1.35");
    let why = format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert_eq!(said.status.code(), Some(3), "{why}");
    assert!(why.contains("1 object of deployments.apps is stored as apps/v9"), "{why}");
    assert_eq!(get(&through, "/version").await["minor"], "36");
    drop(up);
}
