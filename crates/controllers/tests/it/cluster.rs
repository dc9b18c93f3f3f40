//! A cluster of API servers in memory over one store, for migrations: a custom resource `widgets.example.com` in two
//! versions, objects that remember in which one they are stored, and switches for what can go wrong.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use controllers::migration::api::{ApiEngine, Endpoint, Reach, Settings};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::stock::Stock;

/// Shared by a test and the servers' answers.
#[derive(Clone)]
pub struct Cluster(Arc<Mutex<State>>);

pub struct State {
    pub revision: u64,
    /// Definitions, migrations and events.
    pub stock: Stock,
    /// Namespaces that are gone, though something is left in them.
    pub gone: Vec<&'static str>,
    /// By namespace and name.
    pub objects: BTreeMap<(String, String), Widget>,
    /// What each server writes; `None` if it does not answer.
    pub servers: BTreeMap<&'static str, Option<&'static str>>,
    /// Servers that write another version than they say.
    pub lagging: BTreeMap<&'static str, &'static str>,
    /// Patches of objects are not answered.
    pub is_hanging: bool,
    /// The status of the StorageVersion, if there is one.
    pub storage: Option<Value>,
    /// The definition: its storage version, and what may be stored. Without it there is no resource.
    pub definition: Option<(&'static str, Vec<&'static str>)>,
    pub description: &'static str,
    /// Versions that are served.
    pub served: Vec<&'static str>,
    pub verbs: Vec<&'static str>,
    pub has_status: bool,
    pub is_webhook_down: bool,
    /// The rights that are missing: `patch`, `status`, `list`, `crd`. With `status-for-now`, the status answers 503.
    pub forbidden: Vec<&'static str>,
    /// So many continued lists have expired, with or without a way to go on.
    pub expired: Vec<Expiry>,
    /// So many patches are refused with 429 and a `Retry-After` of so many seconds.
    pub throttled: (usize, u64),
    /// Somebody else writes an object just before so many of the patches arrive.
    pub others: usize,
    /// Everything asked, and by when it was answered.
    pub log: Vec<(Instant, String)>,
    active: usize,
    pub most_active: usize,
}

#[derive(Clone, Copy, Debug)]
pub enum Expiry {
    WithToken,
    WithoutToken,
}

#[derive(Clone, Debug)]
pub struct Widget {
    pub uid: String,
    pub revision: u64,
    /// In which version it is stored.
    pub stored: &'static str,
    pub label: &'static str,
    /// Whoever patches it gets this code and message; through the status it may work.
    pub refusal: Option<(u16, &'static str)>,
    /// Whoever lists it is refused.
    pub is_undecodable: bool,
}

pub const POLICY: &str =
    "widgets \"w\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";

impl Cluster {
    /// One server that writes v2; nothing is stored.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            revision: 1,
            stock: Stock::default(),
            gone: Vec::new(),
            objects: BTreeMap::new(),
            servers: [("a", Some("v2"))].into(),
            lagging: BTreeMap::new(),
            is_hanging: false,
            storage: None,
            definition: Some(("v2", vec!["v1", "v2"])),
            description: "",
            served: vec!["v2", "v1"],
            verbs: vec!["get", "list", "patch", "update"],
            has_status: false,
            is_webhook_down: false,
            forbidden: Vec::new(),
            expired: Vec::new(),
            throttled: (0, 0),
            others: 0,
            log: Vec::new(),
            active: 0,
            most_active: 0,
        })))
    }

    pub fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    /// With so many objects in v1 in each of these namespaces.
    pub fn filled(namespaces: &[&str], n_objects: usize) -> Self {
        let cluster = Self::new();
        cluster.with(|it| {
            for namespace in namespaces {
                (0..n_objects).for_each(|number| it.put(namespace, &format!("w{number:04}"), "v1"));
            }
        });
        cluster
    }

    /// An engine that asks every server.
    pub fn engine(&self, reach: Reach, settings: Settings) -> ApiEngine {
        let names: Vec<&'static str> = self.with(|it| it.servers.keys().copied().collect());
        let endpoint = |name: &'static str| Endpoint { name: name.to_owned(), client: self.client(name) };
        ApiEngine::new(names.into_iter().map(endpoint).collect(), reach, settings)
    }

    /// A client of one server.
    pub fn client(&self, server: &'static str) -> kube::Client {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| cluster.clone().serve(server, request));
        kube::Client::new(service, "default")
    }

    async fn serve(
        self,
        server: &'static str,
        request: Request<Body>,
    ) -> Result<Response<Full<Bytes>>, std::io::Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(|it| it.to_bytes()).unwrap_or_default();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        if parts.uri.query().is_some_and(|it| it.contains("watch=true")) {
            let news = self.news(parts.uri.path(), parts.uri.query().unwrap_or_default()).await;
            return Ok(Response::new(Full::new(Bytes::from(news))));
        }
        self.with(|it| {
            it.active += 1;
            it.most_active = it.most_active.max(it.active);
        });
        tokio::time::sleep(Duration::from_millis(5)).await;
        if parts.method == "PATCH"
            && parts.uri.path().starts_with("/apis/example.com")
            && self.with(|it| it.is_hanging)
        {
            std::future::pending::<()>().await;
        }
        let (code, retry_after, answer) = self.with(|state| {
            state.active -= 1;
            state.log.push((Instant::now(), format!("{} {} {}", server, parts.method, parts.uri)));
            match state.servers[server] {
                None => (0, None, Value::Null),
                Some(writes) => {
                    let query = parts.uri.query().unwrap_or_default();
                    let really = state.lagging.get(server).copied().unwrap_or(writes);
                    let writes = if parts.method == "PATCH" { really } else { writes };
                    let (method, path) = (parts.method.as_str(), parts.uri.path());
                    match state.answer_stock(server, method, path, query, &body) {
                        Some(answer) => answer,
                        None => state.answer(writes, method, path, query, &body),
                    }
                }
            }
        });
        if code == 0 {
            return Err(std::io::Error::other("connection refused"));
        }
        let mut response = Response::builder().status(code);
        if let Some(seconds) = retry_after {
            response = response.header("Retry-After", seconds);
        }
        Ok(response.body(Full::new(Bytes::from(answer.to_string()))).unwrap())
    }
}

pub type Answer = (u16, Option<u64>, Value);

impl State {
    pub fn put(&mut self, namespace: &str, name: &str, stored: &'static str) {
        self.revision += 1;
        let (uid, revision) = (format!("u{}", self.revision), self.revision);
        let widget = Widget { uid, revision, stored, label: "", refusal: None, is_undecodable: false };
        self.objects.insert((namespace.to_owned(), name.to_owned()), widget);
    }

    pub fn get(&mut self, namespace: &str, name: &str) -> &mut Widget {
        self.objects.get_mut(&(namespace.to_owned(), name.to_owned())).unwrap()
    }

    /// How many objects are stored in this version.
    pub fn stored_in(&self, version: &str) -> usize {
        self.objects.values().filter(|it| it.stored == version).count()
    }

    /// How many requests contain this.
    pub fn count(&self, part: &str) -> usize {
        self.log.iter().filter(|(_, it)| it.contains(part)).count()
    }

    fn answer(
        &mut self,
        writes: &'static str,
        method: &str,
        path: &str,
        query: &str,
        body: &Value,
    ) -> Answer {
        let ok = |value| (200, None, value);
        match path {
            "/api" => ok(json!({"versions": ["v1"], "serverAddressByClientCIDRs": []})),
            "/apis" => ok(self.groups()),
            "/apis/example.com/v1" | "/apis/example.com/v2" => ok(self.resources(writes)),
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com" => {
                self.show_definition()
            }
            "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/example.com.widgets" => {
                match &self.storage {
                    Some(status) => {
                        ok(json!({"metadata": {"uid": "s", "resourceVersion": "1"}, "status": status}))
                    }
                    None => absent("example.com.widgets"),
                }
            }
            _ => match place(path) {
                None => failure(404, "the server could not find the requested resource"),
                Some((namespace, None, _)) => self.list(&namespace, query),
                Some((namespace, Some(name), is_status)) => {
                    let key = (namespace, name);
                    if !self.objects.contains_key(&key) {
                        return absent(&key.1);
                    }
                    match method {
                        "GET" => ok(self.metadata(&key)),
                        _ => self.patch(writes, &key, is_status, body),
                    }
                }
            },
        }
    }

    fn groups(&self) -> Value {
        let version = |it: &str| json!({"groupVersion": format!("example.com/{it}"), "version": it});
        let versions: Vec<Value> = self.served.iter().map(|it| version(it)).collect();
        let group =
            json!({"name": "example.com", "versions": versions, "preferredVersion": versions.first()});
        let groups = if self.definition.is_some() { vec![group] } else { Vec::new() };
        json!({"kind": "APIGroupList", "groups": groups})
    }

    fn resources(&self, writes: &str) -> Value {
        let hash = match writes {
            _ if !self.served.contains(&writes) => "",
            "v1" => "gIwvi5rymmg=",
            _ => "zRcoV5EeA3s=",
        };
        let mut resources = vec![json!({
            "name": "widgets", "singularName": "widget", "namespaced": true, "kind": "Widget",
            "verbs": self.verbs, "storageVersionHash": hash,
        })];
        if self.has_status {
            resources.push(json!({"name": "widgets/status", "singularName": "", "namespaced": true,
                                  "kind": "Widget", "verbs": ["get", "patch", "update"]}));
        }
        json!({"kind": "APIResourceList", "groupVersion": "example.com/v1", "resources": resources})
    }

    pub fn show_definition(&self) -> Answer {
        if self.forbidden.contains(&"crd") {
            return failure(403, "User \"u\" cannot get resource \"customresourcedefinitions\"");
        }
        let Some((storage, stored)) = &self.definition else { return absent("widgets.example.com") };
        let versions = ["v1", "v2"].map(|it| json!({"name": it, "served": true, "storage": it == *storage}));
        let Stock { generation, crd_revision, annotations, .. } = &self.stock;
        let metadata = json!({"name": "widgets.example.com", "uid": "crd-1", "generation": generation,
            "resourceVersion": crd_revision.to_string(), "annotations": annotations});
        let spec = json!({"versions": versions, "description": self.description});
        (200, None, json!({"metadata": metadata, "spec": spec, "status": {"storedVersions": stored}}))
    }

    fn list(&mut self, namespace: &str, query: &str) -> Answer {
        let find =
            |name: &str| query.split('&').find_map(|it| it.strip_prefix(name)).unwrap_or_default().to_owned();
        if self.forbidden.contains(&"list") {
            return failure(403, "User \"u\" cannot list resource \"widgets\"");
        }
        if self.is_webhook_down {
            return failure(
                500,
                "conversion webhook for example.com/v1, Kind=Widget failed: connection refused",
            );
        }
        let (limit, token, label) = (find("limit="), find("continue="), find("labelSelector="));
        let after = token.trim_start_matches("later-").replace("%2F", "/");
        if !token.is_empty() && !token.starts_with("later-") {
            match self.expired.pop() {
                Some(Expiry::WithToken) => {
                    let (code, seconds, mut answer) =
                        failure(410, "The provided continue parameter is too old");
                    answer["metadata"] = json!({"continue": format!("later-{after}")});
                    return (code, seconds, answer);
                }
                Some(Expiry::WithoutToken) => {
                    return failure(410, "The provided continue parameter is too old");
                }
                None => {}
            }
        }
        let label = label.replace("%3D", "=").replace("kind=", "");
        let wanted = find("fieldSelector=").replace("%3D", "=").replace("metadata.name=", "");
        let keys = self.objects.iter().filter(|((at, name), it)| {
            (namespace.is_empty() || at == namespace)
                && (label.is_empty() || it.label == label)
                && (wanted.is_empty() || *name == wanted)
        });
        let behind: Vec<_> =
            keys.map(|(it, _)| it.clone()).filter(|it| format!("{}/{}", it.0, it.1) > after).collect();
        let limit = limit.parse().unwrap_or(behind.len()).min(behind.len());
        let (page, rest) = behind.split_at(limit);
        if page.iter().any(|it| self.objects[it].is_undecodable) {
            return failure(500, "request to convert CR from an invalid group/version: example.com/v9");
        }
        let items: Vec<Value> = page.iter().map(|it| self.metadata(it)).collect();
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if let (Some((namespace, name)), false) = (page.last(), rest.is_empty()) {
            metadata["continue"] = json!(format!("{namespace}/{name}"));
            metadata["remainingItemCount"] = json!(rest.len());
        }
        (200, None, json!({"kind": "PartialObjectMetadataList", "metadata": metadata, "items": items}))
    }

    /// As kube-apiserver: compares, admits, and writes if what is stored would be different.
    fn patch(
        &mut self,
        writes: &'static str,
        key: &(String, String),
        is_status: bool,
        body: &Value,
    ) -> Answer {
        self.before_patch();
        if self.throttled.0 > 0 {
            self.throttled.0 -= 1;
            return (429, Some(self.throttled.1), json!("Too many requests, please try again later."));
        }
        if self.others > 0 {
            self.others -= 1;
            self.revision += 1;
            self.objects.get_mut(key).unwrap().revision = self.revision;
        }
        if is_status && !self.has_status {
            return failure(404, "the server could not find the requested resource");
        }
        if is_status && self.forbidden.contains(&"status") {
            return failure(
                403,
                "widgets \"w\" is forbidden: User \"u\" cannot patch resource \"widgets/status\"",
            );
        }
        if is_status && self.forbidden.contains(&"status-for-now") {
            return failure(503, "not now");
        }
        if self.forbidden.contains(&"patch") {
            return failure(403, "widgets \"w\" is forbidden: User \"u\" cannot patch resource \"widgets\"");
        }
        if self.is_webhook_down {
            return failure(
                500,
                "conversion webhook for example.com/v1, Kind=Widget failed: connection refused",
            );
        }
        let next = self.revision + 1;
        let widget = self.objects.get_mut(key).unwrap();
        let sent = &body["metadata"];
        if sent["uid"] != widget.uid || sent["resourceVersion"] != *widget.revision.to_string() {
            return failure(409, "Operation cannot be fulfilled on widgets: the object has been modified");
        }
        match widget.refusal {
            Some((code, message)) if !is_status => return failure(code, message),
            _ => {}
        }
        if widget.stored != writes {
            (widget.stored, widget.revision, self.revision) = (writes, next, next);
        }
        (200, None, self.metadata(key))
    }

    fn metadata(&self, key: &(String, String)) -> Value {
        let Widget { uid, revision, .. } = &self.objects[key];
        let (namespace, name) = key;
        json!({"metadata": {"namespace": namespace, "name": name, "uid": uid, "resourceVersion": revision.to_string()}})
    }
}

/// Namespace, name and whether it is about the status.
fn place(path: &str) -> Option<(String, Option<String>, bool)> {
    let parts: Vec<&str> = path.strip_prefix("/apis/example.com/v")?.split('/').collect();
    match parts[1..] {
        ["widgets"] => Some((String::new(), None, false)),
        ["namespaces", namespace, "widgets"] => Some((namespace.to_owned(), None, false)),
        ["namespaces", namespace, "widgets", name] => {
            Some((namespace.to_owned(), Some(name.to_owned()), false))
        }
        ["namespaces", namespace, "widgets", name, "status"] => {
            Some((namespace.to_owned(), Some(name.to_owned()), true))
        }
        _ => None,
    }
}

pub fn failure(code: u16, message: &str) -> Answer {
    let answer = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "reason": "OnPurpose", "message": message,
    });
    (code, None, answer)
}

pub fn absent(name: &str) -> Answer {
    let (code, _, mut answer) = failure(404, "not found");
    answer["reason"] = json!("NotFound");
    answer["details"] = json!({"name": name});
    (code, None, answer)
}
