//! A custom resource with three versions, objects of it, and short ways to ask about migrations.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::StreamExt;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use store::{Range, ReadAt, Store};

use crate::fleet::ground::{Ground, PATIENCE, Ship, eventually};

pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";
pub const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
pub const ALL_WIDGETS: &str = "/apis/example.com/v1/widgets";
pub const PREFIX: &str = "/registry/example.com/widgets/";
pub const RESOURCE: &str = "widgets.example.com";
pub const MIGRATIONS: &str = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations";
pub const IN_TREE: &str = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
pub const STATES: &str = "/apis/migration.k8s.io/v1alpha1/storagestates";

/// The versions of the definition, one of which is stored.
pub fn versions(storage: &str) -> Value {
    let version = |name: &str| {
        json!({"name": name, "served": true, "storage": name == storage,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    json!([version("v1"), version("v2"), version("v3")])
}

pub fn definition(storage: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": versions(storage)}})
}

pub fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"n": 1}})
}

/// Makes a definition and waits until it can be used.
pub async fn establish(ship: &Ship, definition: Value) {
    ship.expect(201, "POST", DEFINITIONS, definition).await;
    eventually("it is Established", async || {
        let found = ship.get(DEFINITION).await;
        let mut conditions = found["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|it| it["type"] == "Established" && it["status"] == "True")
    })
    .await;
}

/// The definition with v1 as its storage version, and so many objects.
pub async fn fill(ship: &Ship, n: usize) {
    fill_with(ship, definition("v1"), (0..n).map(|n| widget(&format!("w{n:03}")))).await;
}

/// The same with others.
pub async fn fill_with(ship: &Ship, definition: Value, objects: impl Iterator<Item = Value>) {
    establish(ship, definition).await;
    let makes = objects.map(|it| ship.expect(201, "POST", WIDGETS, it));
    futures_util::stream::iter(makes).buffer_unordered(16).collect::<Vec<_>>().await;
    // Who cannot count what is stored migrates whatever it has not seen before (B14).
    if ship.hand.as_ref().is_some_and(|it| it.has_trigger) {
        settled(ship, RESOURCE, "example.com/v1").await;
    }
}

pub async fn flip(ship: &Ship, storage: &str) {
    ship.expect(200, "PATCH", DEFINITION, json!({"spec": {"versions": versions(storage)}})).await;
}

pub async fn stored_versions(ship: &Ship) -> Value {
    ship.get(DEFINITION).await["status"]["storedVersions"].take()
}

/// Waits until a definition lists only this version, and its migration is over.
pub async fn migrated(ship: &Ship, storage: &str) {
    eventually("only the new version is listed, and nothing is frozen", async || {
        let crd = ship.get(DEFINITION).await;
        // It is let go after it was narrowed.
        crd["status"]["storedVersions"] == json!([storage]) && !is_frozen(&crd)
    })
    .await;
}

/// How many objects are stored in which version, straight from the store.
pub async fn stored(ground: &Ground) -> BTreeMap<String, usize> {
    stored_below(ground, PREFIX).await
}

pub async fn stored_below(ground: &Ground, prefix: &str) -> BTreeMap<String, usize> {
    let page = ground.store.list(&Range::prefix(prefix), ReadAt::Latest, 10_000).await.unwrap();
    let mut counts = BTreeMap::new();
    for entry in page.entries {
        let object: Value = serde_json::from_slice(&entry.value).unwrap();
        *counts.entry(object["apiVersion"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    counts
}

/// Asks for a migration of the widgets.
pub async fn ask_for(ship: &Ship, path: &str, name: &str, annotations: Value) -> String {
    ask_for_resource(ship, path, name, ("example.com", "widgets"), annotations).await
}

/// Returns the path of the migration.
pub async fn ask_for_resource(
    ship: &Ship,
    path: &str,
    name: &str,
    (group, resource): (&str, &str),
    annotations: Value,
) -> String {
    let version =
        if path == IN_TREE { "storagemigration.k8s.io/v1beta1" } else { "migration.k8s.io/v1alpha1" };
    let migration = json!({"apiVersion": version, "kind": "StorageVersionMigration",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"resource": {"group": group, "resource": resource}}});
    ship.expect(201, "POST", path, migration).await;
    format!("{path}/{name}")
}

pub async fn annotate(ship: &Ship, path: &str, annotations: Value) {
    ship.expect(200, "PATCH", path, json!({"metadata": {"annotations": annotations}})).await;
}

/// Asks for an object until it is as wanted, and returns it; fails with what it was at last.
async fn until(ship: &Ship, path: &str, what: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let (_, found) = ship.ask("GET", path, Value::Null).await;
        if is_wanted(&found) {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "{path}: {what}: at last it is {found:#}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits for the end of a migration, and returns it.
pub async fn ended(ship: &Ship, path: &str) -> Value {
    until(ship, path, "it ends", |it| {
        matches!(it["status"]["phase"].as_str(), Some("Succeeded" | "Failed" | "Aborted"))
    })
    .await
}

pub async fn succeeded(ship: &Ship, path: &str) -> Value {
    let found = ended(ship, path).await;
    assert_eq!(found["status"]["phase"], "Succeeded", "{:#}", found["status"]);
    found
}

/// Waits until a migration says this, and returns it.
pub async fn says(ship: &Ship, path: &str, field: &str, value: &str) -> Value {
    until(ship, path, value, |it| it["status"][field] == value).await
}

/// The best evidence that can be had.
pub fn evidence(ground: &Ground) -> &'static str {
    if ground.is_through_api() { "SecondPassAllEndpoints" } else { "StoreScan" }
}

/// Waits until some objects were written, and the migration has not ended.
pub async fn is_under_way(ship: &Ship, ground: &Ground, path: &str) {
    eventually("some objects are written, but not all", async || stored(ground).await.len() == 2).await;
    let found = ship.get(path).await;
    assert_eq!(found["status"]["phase"], "Running", "{:#}", found["status"]);
}

/// The migrations of a resource, those of people and those of the trigger.
pub async fn migrations_of(ship: &Ship, resource: &str) -> Vec<Value> {
    let mut found = Vec::new();
    for path in [MIGRATIONS, IN_TREE] {
        let mut list = ship.get(path).await;
        let of = |it: &Value| {
            let (group, plural) = (&it["spec"]["resource"]["group"], &it["spec"]["resource"]["resource"]);
            format!("{}.{}", plural.as_str().unwrap_or_default(), group.as_str().unwrap_or_default())
        };
        let items = list["items"].as_array_mut().unwrap().drain(..);
        found.extend(items.filter(|it| of(it).trim_end_matches('.') == resource));
    }
    found
}

/// The path of the migration to a version that the trigger makes.
pub async fn triggered(ship: &Ship, version: &str) -> String {
    let is_wanted = |it: &Value| {
        let (spec, status) = (&it["spec"]["resource"]["version"], &it["status"]["storageVersion"]);
        let is_own = it["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "storage-version-trigger";
        is_own && (spec == version || status == &format!("example.com/{version}"))
    };
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let all = migrations_of(ship, RESOURCE).await;
        if let Some(found) = all.iter().find(|it| is_wanted(it)) {
            return format!("{MIGRATIONS}/{}", found["metadata"]["name"].as_str().unwrap());
        }
        assert!(tokio::time::Instant::now() < deadline, "none is made to {version}, only {all:#?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until the trigger knows that everything is stored in this version and nowhere else.
pub async fn settled(ship: &Ship, resource: &str, version: &str) -> Value {
    until(ship, &format!("{STATES}/{resource}"), "only this version", |it| {
        it["status"]["persistedVersions"] == json!([version]) && it["status"]["currentVersion"] == version
    })
    .await
}

pub fn annotations(object: &Value) -> &Value {
    &object["metadata"]["annotations"]
}

pub fn is_frozen(crd: &Value) -> bool {
    annotations(crd)["ksvm.sigs.k8s.io/migrating"] == "true"
}

/// What a client that watches is told.
pub struct Watcher {
    events: Arc<Mutex<Vec<Value>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Watcher {
    /// From what there is now on.
    pub async fn start(ship: &Ship, path: &str) -> Self {
        let list = ship.get(path).await;
        let from = list["metadata"]["resourceVersion"].as_str().unwrap();
        let uri = format!("{path}?watch=1&resourceVersion={from}&timeoutSeconds=600");
        let request = http::Request::get(uri).body(kube::client::Body::empty()).unwrap();
        let response = ship.server.client().send(request).await.unwrap();
        assert_eq!(response.status(), 200);
        let events: Arc<Mutex<Vec<Value>>> = Arc::default();
        let seen = Arc::clone(&events);
        let task = tokio::spawn(async move {
            let (mut body, mut rest) = (response.into_body().into_data_stream(), Vec::new());
            while let Some(Ok(bytes)) = body.next().await {
                rest.extend_from_slice(&bytes);
                while let Some(end) = rest.iter().position(|it| *it == b'\n') {
                    let line: Vec<u8> = rest.drain(..=end).collect();
                    seen.lock().push(serde_json::from_slice(&line).unwrap());
                }
            }
        });
        Self { events, task }
    }

    /// Type and name of every event so far.
    pub fn seen(&self) -> Vec<(String, String)> {
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        let events = self.events.lock();
        events.iter().map(|it| (text(&it["type"]), text(&it["object"]["metadata"]["name"]))).collect()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What must not happen has a moment to happen.
pub async fn stays<F: Future<Output = bool>>(what: &str, check: impl FnMut() -> F) {
    stays_for(1, what, check).await;
}

/// The same with more seconds.
pub async fn stays_for<F: Future<Output = bool>>(seconds: u64, what: &str, mut check: impl FnMut() -> F) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(seconds);
    while tokio::time::Instant::now() < deadline {
        assert!(check().await, "{what}: it did not stay so");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Moves the storage version from v1 to v2, and returns a migration that has begun and takes its time.
pub async fn slow(ship: &Ship, ground: &Ground) -> String {
    // It is there before the flip, so that the trigger leaves it to it.
    let wishes = json!({"convoy.dev/paused": "true", "convoy.dev/rate": "5"});
    let path = ask_for(ship, MIGRATIONS, "slow", wishes).await;
    says(ship, &path, "reason", "Paused").await;
    flip(ship, "v2").await;
    annotate(ship, &path, json!({"convoy.dev/paused": null})).await;
    is_under_way(ship, ground, &path).await;
    path
}
