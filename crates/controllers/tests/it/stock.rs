//! What the migrator needs of a stock cluster beside objects: the definition with its freeze, migrations, events. The
//! server checks nothing when `status.storedVersions` is narrowed, as kube-apiserver does; whether that was true is noted.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use controllers::migration::api::{Reach, Settings};
use controllers::{Selection, Setup};
use serde_json::{Map, Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::cluster::{Answer, Cluster, State, absent, failure};

pub const EXTERNAL: &str = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations";
pub const IN_TREE: &str = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";

type Act = Box<dyn FnOnce(&mut State) + Send>;

pub struct Stock {
    pub generation: i64,
    pub crd_revision: u64,
    pub annotations: Map<String, Value>,
    /// By path.
    pub migrations: BTreeMap<String, Value>,
    news: Vec<(u64, String, Value)>,
    pub events: Vec<Value>,
    /// Servers without the policy that refuses to move a frozen storage version.
    pub loose: Vec<&'static str>,
    /// Versions that left `status.storedVersions` while something was stored in them.
    pub untrue: Vec<String>,
    /// Happens when `status.storedVersions` is about to be narrowed.
    pub before_prune: Option<Act>,
    /// Happens before the patch of this number.
    pub before_patch: Option<(usize, Act)>,
    n_patches: usize,
}

impl Default for Stock {
    fn default() -> Self {
        Self {
            generation: 1,
            crd_revision: 7,
            annotations: Map::new(),
            migrations: BTreeMap::new(),
            news: Vec::new(),
            events: Vec::new(),
            loose: Vec::new(),
            untrue: Vec::new(),
            before_prune: None,
            before_patch: None,
            n_patches: 0,
        }
    }
}

impl Cluster {
    /// Runs these controllers against it, with every server's address known.
    pub fn run(&self, controllers: &str) -> JoinHandle<()> {
        self.run_with(controllers, Reach::EveryServer, |_| {})
    }

    pub fn run_with(
        &self,
        controllers: &str,
        reach: Reach,
        change: impl FnOnce(&mut Setup),
    ) -> JoinHandle<()> {
        let began = Instant::now();
        let now = move || {
            let first: jiff::Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
            first + began.elapsed()
        };
        let mut setup = Setup::new(Arc::new(now));
        setup.selection = Selection::parse(controllers).unwrap();
        setup.engine = Some(Arc::new(self.engine(reach, Settings::default())));
        change(&mut setup);
        let first = self.with(|it| *it.servers.keys().next().unwrap());
        tokio::spawn(controllers::run(self.client(first), setup, std::future::pending()))
    }

    /// Asks for a migration; returns its path.
    pub fn ask(&self, place: &str, name: &str, annotations: &Value) -> String {
        let path = format!("{place}/{name}");
        let group = place.trim_start_matches("/apis/").trim_end_matches("/storageversionmigrations");
        let object = json!({
            "apiVersion": group, "kind": "StorageVersionMigration",
            "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-11-16T12:00:00Z",
                "annotations": annotations},
            "spec": {"resource": {"group": "example.com", "resource": "widgets"}},
        });
        self.with(|it| it.store(&path, object));
        path
    }

    pub fn annotate(&self, path: &str, annotations: &Value) {
        self.with(|it| {
            let mut object = it.stock.migrations[path].clone();
            merge(&mut object, &json!({"metadata": {"annotations": annotations}}));
            it.store(path, object);
        });
    }

    /// Waits until a migration is as wanted, and returns its status; an hour is enough for anything.
    pub async fn until(&self, path: &str, what: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_secs(3600);
        loop {
            let status = self.with(|it| it.stock.migrations[path]["status"].clone());
            if is_wanted(&status) {
                return status;
            }
            if Instant::now() > deadline {
                panic!("never: {what}: {status:#}\n{:#?}", self.with(|it| it.stock.events.clone()));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub async fn ended(&self, path: &str) -> Value {
        self.until(path, "it ends", |it| {
            matches!(it["phase"].as_str(), Some("Succeeded" | "Failed" | "Aborted"))
        })
        .await
    }

    /// Reasons of events so far.
    pub fn told(&self) -> Vec<String> {
        self.with(|it| {
            it.stock.events.iter().map(|it| it["reason"].as_str().unwrap_or_default().to_owned()).collect()
        })
    }

    /// A watch that ends after its first events; clients take it up again.
    pub async fn news(&self, path: &str, query: &str) -> String {
        let since = query.split('&').find_map(|it| it.strip_prefix("resourceVersion="));
        let since: u64 = since.and_then(|it| it.parse().ok()).unwrap_or_default();
        loop {
            let news: String = self.with(|it| {
                let news = it.stock.news.iter().filter(|(at, of, _)| *at > since && of.starts_with(path));
                news.map(|(_, _, object)| format!("{}\n", json!({"type": "MODIFIED", "object": object})))
                    .collect()
            });
            if !news.is_empty() {
                return news;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl State {
    /// Moves the storage version, and writes an object in it before anything else happens.
    pub fn flip(&mut self, storage: &'static str) {
        let (now, stored) = self.definition.as_mut().unwrap();
        *now = storage;
        if !stored.contains(&storage) {
            stored.push(storage);
        }
        self.servers.values_mut().for_each(|it| *it = Some(storage));
        self.edit();
    }

    /// Any change of the definition's spec.
    pub fn edit(&mut self) {
        self.stock.generation += 1;
        self.touch_definition();
    }

    pub fn touch_definition(&mut self) {
        self.revision += 1;
        self.stock.crd_revision = self.revision;
    }

    pub fn store(&mut self, path: &str, mut object: Value) {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        self.stock.news.push((self.revision, path.to_owned(), object.clone()));
        self.stock.migrations.insert(path.to_owned(), object);
    }

    pub fn before_patch(&mut self) {
        self.stock.n_patches += 1;
        if self.stock.before_patch.as_ref().is_some_and(|(n, _)| *n <= self.stock.n_patches) {
            let (_, act) = self.stock.before_patch.take().unwrap();
            act(self);
        }
    }

    pub fn is_frozen(&self) -> bool {
        self.stock.annotations.get("ksvm.sigs.k8s.io/migrating") == Some(&json!("true"))
    }

    /// What this knows of; `None` for everything else.
    pub fn answer_stock(
        &mut self,
        server: &str,
        method: &str,
        path: &str,
        query: &str,
        body: &Value,
    ) -> Option<Answer> {
        let may_not = |what: &str| failure(403, &format!("User \"u\" cannot {what}"));
        match (method, path) {
            ("POST", _) if path.ends_with("/events") => {
                self.stock.events.push(body.clone());
                Some((201, None, body.clone()))
            }
            (_, EXTERNAL | IN_TREE) => {
                let of = self.stock.migrations.iter().filter(|(at, _)| at.starts_with(path));
                let items: Vec<&Value> = of.map(|(_, it)| it).collect();
                let metadata = json!({"resourceVersion": self.revision.to_string()});
                Some((200, None, json!({"kind": "List", "metadata": metadata, "items": items})))
            }
            (_, "/api/v1/namespaces") if query.contains("kube-system") => {
                let items = json!([{"metadata": {"name": "kube-system", "uid": "the-cluster"}}]);
                Some((200, None, json!({"kind": "List", "metadata": {}, "items": items})))
            }
            (_, "/api/v1/namespaces") => {
                let is_there = |it: &&String| !self.gone.contains(&it.as_str());
                let names: std::collections::BTreeSet<&String> =
                    self.objects.keys().map(|it| &it.0).filter(is_there).collect();
                let metadata =
                    |it: &&String| json!({"metadata": {"name": it, "uid": it, "resourceVersion": "1"}});
                let items: Vec<Value> = names.iter().map(metadata).collect();
                Some((200, None, json!({"kind": "List", "metadata": {}, "items": items})))
            }
            (_, CRDS) => {
                let (_, _, crd) = self.show_definition();
                let metadata = json!({"resourceVersion": self.revision.to_string()});
                Some((200, None, json!({"kind": "List", "metadata": metadata, "items": [crd]})))
            }
            ("PATCH", CRD) if self.forbidden.contains(&"crd-patch") => {
                Some(may_not("patch resource \"customresourcedefinitions\""))
            }
            ("PATCH", CRD) => Some(self.patch_definition(body)),
            ("PUT", CRD) if query.contains("dryRun") => Some(self.probe(server, body)),
            ("PUT", _) if path == format!("{CRD}/status") => Some(self.narrow(body)),
            _ if path.starts_with(EXTERNAL) || path.starts_with(IN_TREE) => {
                if path.ends_with("/status") && self.forbidden.contains(&"svm-status") {
                    return Some(may_not("update resource \"storageversionmigrations/status\""));
                }
                Some(self.migration(method, path, body))
            }
            _ => None,
        }
    }

    fn patch_definition(&mut self, body: &Value) -> Answer {
        if body["metadata"]["resourceVersion"] != *self.stock.crd_revision.to_string() {
            return failure(409, "the object has been modified");
        }
        let mut annotations = Value::Object(std::mem::take(&mut self.stock.annotations));
        merge(&mut annotations, &body["metadata"]["annotations"]);
        self.stock.annotations = annotations.as_object().unwrap().clone();
        self.touch_definition();
        self.show_definition()
    }

    fn probe(&mut self, server: &str, _body: &Value) -> Answer {
        if self.is_frozen() && !self.stock.loose.contains(&server) {
            return failure(
                422,
                "denied request: the storage version stays (ksvm.sigs.k8s.io/migrating=true)",
            );
        }
        self.show_definition()
    }

    fn narrow(&mut self, body: &Value) -> Answer {
        if let Some(act) = self.stock.before_prune.take() {
            act(self);
        }
        if body["metadata"]["resourceVersion"] != *self.stock.crd_revision.to_string() {
            return failure(409, "the object has been modified");
        }
        let listed = |it: &str| body["status"]["storedVersions"].as_array().unwrap().contains(&json!(it));
        for version in ["v1", "v2"] {
            if !listed(version) && self.stored_in(version) > 0 {
                self.stock.untrue.push(version.to_owned());
            }
        }
        let stored = ["v1", "v2"].into_iter().filter(|it| listed(it)).collect();
        self.definition.as_mut().unwrap().1 = stored;
        self.touch_definition();
        self.show_definition()
    }

    fn migration(&mut self, method: &str, path: &str, body: &Value) -> Answer {
        let at = path.trim_end_matches("/status").to_owned();
        let Some(found) = self.stock.migrations.get(&at).cloned() else {
            return absent(at.rsplit('/').next().unwrap());
        };
        if method == "GET" {
            return (200, None, found);
        }
        let sent = &body["metadata"]["resourceVersion"];
        if !sent.is_null() && *sent != found["metadata"]["resourceVersion"] {
            return failure(409, "the object has been modified");
        }
        let mut object = found;
        match method {
            "PATCH" => merge(&mut object, body),
            _ => object["status"] = body["status"].clone(),
        }
        self.store(&at, object);
        (200, None, self.stock.migrations[&at].clone())
    }
}

/// A merge patch.
fn merge(object: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            object.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut object[key.as_str()], value);
        }
    }
}
