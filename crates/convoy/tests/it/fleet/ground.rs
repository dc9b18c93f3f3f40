//! A store, servers on it, and short ways to ask them.

use std::{sync::Arc, time::Duration};

use catalog::{Catalog, FeatureGates, RuntimeConfig};
use convoy::{Keep, Options, Release, Server, SharedStore};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use store::{
    Store, SystemClock,
    fault::{FaultStore, Faults},
};
use store_embedded::EmbeddedStore;
use store_etcd::{EtcdConfig, EtcdStore};
use tempfile::TempDir;
use testkit::etcd::{self, Etcd};

use super::{
    hand::{self, Care, Hand},
    history::History,
};

/// The resource whose storage version differs between 1.34 (v1beta2) and 1.36 (v1).
pub const CLASSES: &str = "/apis/resource.k8s.io/v1/deviceclasses";
pub const CLASSES_RECORD: &str = "resource.k8s.io.deviceclasses";
pub const OLD: &str = "resource.k8s.io/v1beta2";
pub const NEW: &str = "resource.k8s.io/v1";
pub const VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The controllers of most servers here.
const ONLY_RECORDS: &str = "storage-version-gc";

/// The controllers of servers that migrate.
const MIGRATION: &str = "storage-version-gc,storage-version-migrator,storage-version-trigger";

/// Longer than anything here should take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A store that outlives the servers on it.
pub struct Ground {
    pub store: SharedStore,
    etcd: Option<Arc<Etcd>>,
    /// Keys and certificates of servers that listen.
    pub certs: TempDir,
    _folder: Option<TempDir>,
    /// Servers migrate nothing by themselves: it is done by requests, as beside a cluster that is not ours.
    is_through_api: bool,
}

/// One server, and the means to disturb its connection to the store.
pub struct Ship {
    pub server: Server,
    pub faults: Faults,
    /// What migrates through its API, if its own controllers do not.
    pub hand: Option<Hand>,
}

impl Ground {
    pub fn embedded() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = store_embedded::Options {
            compaction_interval: None,
            ..store_embedded::Options::new(SystemClock::shared())
        };
        let store = EmbeddedStore::open_or_make(folder.path(), options).unwrap();
        let store = SharedStore::new(store);
        Self { store, etcd: None, certs: certs(), _folder: Some(folder), is_through_api: false }
    }

    /// `None`, said loudly, where there is no etcd.
    pub async fn etcd() -> Option<Self> {
        if etcd::is_missing() {
            return None;
        }
        // Servers in one process compact nothing; thousands of starts would fill etcd and slow it down.
        let compaction = ["--auto-compaction-mode=revision", "--auto-compaction-retention=20000"];
        let etcd = Arc::new(Etcd::start_with(None, &compaction).await.unwrap());
        Some(Self::below(etcd, "/registry").await)
    }

    async fn below(etcd: Arc<Etcd>, prefix: &str) -> Self {
        let config = EtcdConfig {
            prefix: prefix.to_owned(),
            ..EtcdConfig::new(vec![etcd.url()], SystemClock::shared())
        };
        let store = EtcdStore::connect(config).await.unwrap();
        let store = SharedStore::new(store);
        Self { store, etcd: Some(etcd), certs: certs(), _folder: None, is_through_api: false }
    }

    /// Whatever is launched here does not migrate in its store: the controllers that would run outside of it, and have
    /// nothing but its API.
    pub fn through_api(self) -> Self {
        Self { is_through_api: true, ..self }
    }

    pub fn is_through_api(&self) -> bool {
        self.is_through_api
    }

    /// Where the etcd below is, if there is one.
    pub fn etcd_url(&self) -> Option<String> {
        self.etcd.as_ref().map(|it| it.url())
    }

    /// On an etcd that others use too.
    pub async fn shared_etcd(etcd: &Arc<Etcd>) -> Self {
        Self::below(Arc::clone(etcd), "/registry").await
    }

    /// Another cluster of the same kind.
    pub async fn another(&self, n: usize) -> Self {
        let another = match &self.etcd {
            Some(etcd) => Self::below(Arc::clone(etcd), &format!("/another-{n}")).await,
            None => Self::embedded(),
        };
        Self { is_through_api: self.is_through_api, ..another }
    }

    /// A server that is ready, or why it is not.
    pub async fn try_launch(&self, name: &str, minor: u16, flags: &[&str]) -> Result<Ship, String> {
        let options = Options { controllers: ONLY_RECORDS.to_owned(), ..Options::default() };
        self.try_launch_as(options, name, minor, flags).await
    }

    /// A server that the others can reach, with all that it needs for that.
    pub async fn launch_reachable(&self, name: &str, minor: u16, flags: &[&str]) -> Ship {
        self.launch_working(name, minor, ONLY_RECORDS, flags).await
    }

    /// The same with other controllers.
    pub async fn launch_working(&self, name: &str, minor: u16, controllers: &str, flags: &[&str]) -> Ship {
        let options = Options {
            controllers: controllers.to_owned(),
            listen: Some(([127, 0, 0, 1], 0).into()),
            cert_dir: Some(self.certs.path().to_owned()),
            ..Options::default()
        };
        let ship = self.try_launch_as(options, name, minor, flags).await;
        ship.unwrap_or_else(|it| panic!("{name}: {it}"))
    }

    /// A server whose controllers migrate, and do nothing else.
    pub async fn launch_migrating(&self, name: &str, minor: u16, flags: &[&str]) -> Ship {
        let options = Options { controllers: MIGRATION.to_owned(), ..Options::default() };
        let ship = self.try_launch_as(options, name, minor, flags).await;
        ship.unwrap_or_else(|it| panic!("{name}: {it}"))
    }

    async fn try_launch_as(
        &self,
        options: Options,
        name: &str,
        minor: u16,
        flags: &[&str],
    ) -> Result<Ship, String> {
        self.try_launch_over(self.store.clone(), options, name, minor, flags).await
    }

    /// A server that sees the store through something that a test has put between them.
    pub async fn launch_over(
        &self,
        store: SharedStore,
        name: &str,
        controllers: &str,
        flags: &[&str],
    ) -> Ship {
        let options = Options { controllers: controllers.to_owned(), ..Options::default() };
        let ship = self.try_launch_over(store, options, name, 36, flags).await;
        ship.unwrap_or_else(|it| panic!("{name}: {it}"))
    }

    async fn try_launch_over(
        &self,
        store: SharedStore,
        mut options: Options,
        name: &str,
        minor: u16,
        flags: &[&str],
    ) -> Result<Ship, String> {
        let mut outside = String::new();
        if self.is_through_api {
            (outside, options.controllers) = hand::split(&options.controllers);
        }
        let (store, faults) = FaultStore::new(store, SystemClock::shared());
        let mut all =
            vec!["--member-lease-duration=1s".to_owned(), "--departure-settle-time=300ms".to_owned()];
        all.extend(flags.iter().map(|it| (*it).to_owned()));
        // Of a flag that is there twice the last counts.
        all = all
            .iter()
            .enumerate()
            .filter(|(n, it)| {
                let name = it.split('=').next();
                !all[n + 1..].iter().any(|later| later.split('=').next() == name)
            })
            .map(|(_, it)| it.clone())
            .collect();
        let options = Options {
            keep: Keep::Shared(SharedStore::new(store)),
            name: name.to_owned(),
            release: Release::v1(minor),
            flags: all,
            ..options
        };
        let server = tokio::time::timeout(PATIENCE, Server::start(options)).await;
        let server = server.map_err(|_| format!("{name} did not start in time"))?;
        let server = server.map_err(|it| it.to_string())?;
        let hand = (!outside.is_empty()).then(|| Hand::beside(&server.client(), &outside, Care::Defined));
        Ok(Ship { server, faults, hand })
    }

    pub async fn launch(&self, name: &str, minor: u16) -> Ship {
        self.launch_with(name, minor, &[]).await
    }

    pub async fn launch_with(&self, name: &str, minor: u16, flags: &[&str]) -> Ship {
        self.try_launch(name, minor, flags).await.unwrap_or_else(|it| panic!("{name}: {it}"))
    }

    /// The version that an object is stored in, by its key.
    pub async fn stored_version(&self, key: &str) -> Option<String> {
        let entry = self.store.get(&store::Key::new(key)).await.unwrap()?;
        let object: Value = serde_json::from_slice(&entry.value).unwrap();
        object["apiVersion"].as_str().map(str::to_owned)
    }

    pub async fn history(&self) -> History {
        let from = self.store.current().await.unwrap();
        History::from(self.store.clone(), from)
    }
}

impl Ship {
    pub async fn ask(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        ask(&self.server.client(), method, path, body).await
    }

    pub async fn get(&self, path: &str) -> Value {
        self.expect(200, "GET", path, Value::Null).await
    }

    #[track_caller]
    pub fn expect(
        &self,
        code: u16,
        method: &'static str,
        path: &str,
        body: Value,
    ) -> impl Future<Output = Value> + use<> {
        let (client, path) = (self.server.client(), path.to_owned());
        let caller = std::panic::Location::caller();
        async move {
            let (found, answer) = ask(&client, method, &path, body).await;
            assert_eq!(found, code, "{caller}: {method} {path}: {answer}");
            answer
        }
    }

    /// The status of a StorageVersion object.
    pub async fn storage_version(&self, name: &str) -> Value {
        self.get(&format!("{VERSIONS}/{name}")).await["status"].take()
    }

    pub async fn common(&self, name: &str) -> Option<String> {
        let status = self.storage_version(name).await;
        status["commonEncodingVersion"].as_str().map(str::to_owned)
    }

    /// How many members it knows.
    pub fn n_members(&self) -> usize {
        self.server.status().members.len()
    }

    pub fn state(&self) -> String {
        self.server.status().server.unwrap().state
    }
}

pub async fn ask(client: &kube::Client, method: &str, path: &str, body: Value) -> (u16, Value) {
    let (code, _, body) = ask_with(client, method, path, &[], body).await;
    (code, body)
}

/// The same with headers, and with those of the answer.
pub async fn ask_with(
    client: &kube::Client,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Value,
) -> (u16, http::HeaderMap, Value) {
    let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let mut request = http::Request::builder().method(method).uri(path);
    if headers.iter().all(|it| it.0 != "content-type") {
        request = request.header("content-type", content);
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(kube::client::Body::from(bytes)).unwrap();
    let response = client.send(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (parts.status.as_u16(), parts.headers, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

fn certs() -> TempDir {
    tempfile::tempdir().unwrap()
}

pub fn class(name: &str) -> Value {
    json!({"apiVersion": NEW, "kind": "DeviceClass", "metadata": {"name": name}, "spec": {}})
}

pub fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

/// Waits until something holds; fails with what it was about.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut check: impl FnMut() -> F) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !check().await {
        assert!(tokio::time::Instant::now() < deadline, "{what}: it did not come to that");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Where built-in objects are, and which StorageVersion is about them.
pub fn built_in() -> Vec<(String, String)> {
    let release = catalog::LAST_RELEASE;
    let all = RuntimeConfig::parse("api/all=true").unwrap();
    let catalog = Catalog::new(release, &all, &FeatureGates::defaults(release)).unwrap();
    let stored = catalog.definitions().iter().filter(|it| it.key_prefix.is_some());
    let name = |it: &meta::GroupResource| match &*it.group {
        "" => format!("core.{}", it.resource),
        group => format!("{group}.{}", it.resource),
    };
    stored.map(|it| (it.key_prefix.as_deref().unwrap().to_owned(), name(&it.record))).collect()
}

/// A server that need not become ready.
pub struct Starting {
    client: kube::Client,
    pending: tokio::task::JoinHandle<()>,
}

impl Starting {
    /// Answers at once; becomes ready when it can.
    pub async fn launch(store: SharedStore, name: &str, minor: u16, flags: &[&str]) -> Self {
        let flags = ["--member-lease-duration=1s"].iter().chain(flags).map(|it| (*it).to_owned()).collect();
        let options = Options {
            keep: Keep::Shared(store),
            name: name.to_owned(),
            release: Release::v1(minor),
            controllers: ONLY_RECORDS.to_owned(),
            flags,
            ..Options::default()
        };
        Self::of(Server::launch(options).await.unwrap())
    }

    fn of(mut server: Server) -> Self {
        let client = server.client();
        let pending = tokio::spawn(async move {
            // A refusal does not end it: it goes on answering, and joins when it may.
            let _ = server.ready().await;
            std::future::pending::<()>().await;
        });
        Self { client, pending }
    }

    pub async fn ask(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        ask(&self.client, method, path, body).await
    }

    /// What the check of reported versions says.
    pub async fn health(&self) -> String {
        let path = "/readyz/poststarthook/built-in-resources-storage-version-updater";
        let request = http::Request::get(path).body(kube::client::Body::empty()).unwrap();
        let response = self.client.send(request).await.unwrap();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.pending.abort();
    }
}
