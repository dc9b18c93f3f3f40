//! A small API server in memory for the garbage collector: a few resources, owners, finalizers, conditional writes,
//! watches, and faults that come at random.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use controllers::{Selection, Setup};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Path of the group and version, resource, kind, and whether it is in namespaces.
pub type Resource = (&'static str, &'static str, &'static str, bool);

pub const CONFIG_MAPS: Resource = ("/api/v1", "configmaps", "ConfigMap", true);
pub const SECRETS: Resource = ("/api/v1", "secrets", "Secret", true);
pub const WIDGETS: Resource = ("/apis/example.org/v1", "widgets", "Widget", true);
pub const PLANETS: Resource = ("/apis/example.org/v1", "planets", "Planet", false);
const NAMESPACES: Resource = ("/api/v1", "namespaces", "Namespace", false);
const RESOURCES: [Resource; 5] = [NAMESPACES, CONFIG_MAPS, SECRETS, WIDGETS, PLANETS];

/// Numbers that look random and are the same for the same seed.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) >> 16).unwrap() % bound
    }

    pub fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }
}

pub fn api_version(resource: Resource) -> &'static str {
    resource.0.trim_start_matches("/apis/").trim_start_matches("/api/")
}

/// Shared by a test and the server's answers.
#[derive(Clone)]
pub struct World(Arc<Mutex<State>>, Arc<Notify>);

/// Resource, namespace and name.
type Key = (&'static str, String, String);

pub struct State {
    changed: Arc<Notify>,
    revision: u64,
    pub objects: BTreeMap<Key, Value>,
    /// By resource, in order.
    events: BTreeMap<&'static str, Vec<(u64, String)>>,
    random: Random,
    /// Percent of requests that go wrong.
    pub faults: usize,
    /// Requests that begin so get this code.
    pub refusals: Vec<(&'static str, u16)>,
    pub stale: bool,
    /// Watches of this resource tell nothing.
    pub silent: Option<Resource>,
    /// Discovery says nothing of the group, as if it were not there.
    pub hidden: bool,
    pub log: Vec<String>,
    /// Events that were written.
    pub recorded: Vec<Value>,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let changed = Arc::new(Notify::new());
        let state = State {
            changed: Arc::clone(&changed),
            revision: 1,
            objects: BTreeMap::new(),
            events: RESOURCES.iter().map(|it| (it.1, Vec::new())).collect(),
            random: Random(seed),
            faults: 0,
            refusals: Vec::new(),
            stale: false,
            silent: None,
            hidden: false,
            log: Vec::new(),
            recorded: Vec::new(),
        };
        Self(Arc::new(Mutex::new(state)), changed)
    }

    pub fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    /// Runs the garbage collector against it.
    pub fn run(&self) -> JoinHandle<()> {
        let world = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| world.clone().serve(request));
        let client = kube::Client::new(service, "default");
        let mut setup = Setup::new(Arc::new(|| "2026-11-15T12:00:01Z".parse().unwrap()));
        setup.selection = Selection::parse("garbage-collector").unwrap();
        tokio::spawn(controllers::run(client, setup, std::future::pending()))
    }

    /// Waits until the state is as wanted.
    pub async fn until(&self, what: &str, is_wanted: impl Fn(&State) -> bool) {
        for _ in 0..6_000 {
            if self.with(|it| is_wanted(it)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        self.with(|it| {
            let tail = it.log.len().saturating_sub(20);
            panic!("never: {what}\n{:#?}", &it.log[tail..]);
        });
    }

    async fn serve(self, request: Request<Body>) -> Result<Response<Full<Bytes>>, std::io::Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(|it| it.to_bytes()).unwrap_or_default();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (method, path) = (parts.method.as_str(), parts.uri.path());
        let query = parts.uri.query().unwrap_or_default();
        let line = format!("{method} {path}");
        let refusal =
            self.with(|it| it.refusals.iter().find(|(begin, _)| line.starts_with(begin)).map(|it| it.1));
        if let Some(code) = refusal {
            self.with(|it| it.log.push(line));
            return Ok(answer(code, &failure(code, "")));
        }
        let fault = self.with(|it| it.random.percent(it.faults).then(|| it.random.below(6)));
        match fault {
            Some(0) => return Err(std::io::Error::other("nobody there")),
            Some(1) => return Ok(answer(503, &failure(503, ""))),
            // What a server says to a path that it does not know.
            Some(2) => return Ok(answer(404, &failure(404, ""))),
            Some(3) => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                return Ok(answer(504, &failure(504, "")));
            }
            _ => {}
        }
        if query.contains("watch=true") {
            return Ok(self.watch(path, query, fault.is_some()).await);
        }
        let (code, text) = self.with(|it| {
            it.log.push(line);
            it.answer(method, path, &body, fault.is_some())
        });
        if fault == Some(4) {
            return Err(std::io::Error::other("it happened, and nobody was told"));
        }
        Ok(answer(code, &text))
    }

    /// A watch that ends after its first events; clients take it up again.
    async fn watch(&self, path: &str, query: &str, is_expired: bool) -> Response<Full<Bytes>> {
        let since = query.split('&').find_map(|it| it.strip_prefix("resourceVersion="));
        let since: u64 = since.unwrap().parse().unwrap();
        let (resource, _, _) = place(path).unwrap();
        if is_expired {
            let event = json!({"type": "ERROR", "object": failure(410, "")});
            return Response::new(Full::new(Bytes::from(format!("{event}\n"))));
        }
        // Clients would end it after a while, too.
        let end = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            let changed = self.1.notified();
            let news: String = self.with(|it| {
                let events = &it.events[resource.1];
                let first = events.partition_point(|(revision, _)| *revision <= since);
                events[first..].iter().map(|(_, event)| event.as_str()).collect()
            });
            if !news.is_empty() && self.with(|it| it.silent != Some(resource)) {
                return Response::new(Full::new(Bytes::from(news)));
            }
            if tokio::time::timeout_at(end, changed).await.is_err() {
                return Response::new(Full::new(Bytes::new()));
            }
        }
    }
}

impl State {
    pub fn put(&mut self, resource: Resource, namespace: &str, name: &str, metadata: &Value) {
        let mut object =
            json!({"apiVersion": api_version(resource), "kind": resource.2, "metadata": metadata});
        object["metadata"]["name"] = json!(name);
        if resource.3 {
            object["metadata"]["namespace"] = json!(namespace);
        }
        self.store(resource, namespace, name, object);
    }

    pub fn get(&self, resource: Resource, namespace: &str, name: &str) -> Option<&Value> {
        self.objects.get(&key(resource, namespace, name))
    }

    pub fn has(&self, resource: Resource, name: &str) -> bool {
        self.get(resource, "a", name).is_some()
    }

    pub fn uids(&self) -> Vec<String> {
        self.objects.values().map(|it| it["metadata"]["uid"].as_str().unwrap().to_owned()).collect()
    }

    /// As a user would.
    pub fn delete(&mut self, resource: Resource, namespace: &str, name: &str, policy: &str) {
        let path = path(resource, namespace, name);
        self.answer("DELETE", &path, &json!({"propagationPolicy": policy}), false);
    }

    /// Watches say that an object went, and it is there: as from a server that cannot read what another one wrote.
    pub fn lie(&mut self, resource: Resource, namespace: &str, name: &str) {
        let mut object = self.objects[&key(resource, namespace, name)].clone();
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let event = format!("{}\n", json!({"type": "DELETED", "object": object}));
        self.events.get_mut(resource.1).unwrap().push((self.revision, event));
        self.changed.notify_waiters();
    }

    fn store(&mut self, resource: Resource, namespace: &str, name: &str, mut object: Value) {
        let key = key(resource, namespace, name);
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let is_new = !self.objects.contains_key(&key);
        let is_last = object["metadata"]["deletionTimestamp"].is_string()
            && object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty);
        let what = match (is_new, is_last) {
            (_, true) => "DELETED",
            (true, false) => "ADDED",
            (false, false) => "MODIFIED",
        };
        let event = format!("{}\n", json!({"type": what, "object": object}));
        self.events.get_mut(resource.1).unwrap().push((self.revision, event));
        self.changed.notify_waiters();
        if is_last {
            self.objects.remove(&key);
        } else {
            self.objects.insert(key, object);
        }
    }

    fn answer(&mut self, method: &str, path: &str, body: &Value, is_partial: bool) -> (u16, Value) {
        match path {
            "/api" | "/apis" => return (200, self.discovery(path, is_partial)),
            _ if path.ends_with("/events") => {
                self.recorded.push(body.clone());
                return (201, body.clone());
            }
            _ => {}
        }
        let Some((resource, namespace, name)) = place(path) else { return (404, failure(404, "")) };
        if name.is_empty() {
            let is_in = |it: &&Key| it.0 == resource.1 && (namespace.is_empty() || it.1 == namespace);
            let items: Vec<&Value> = self.objects.keys().filter(is_in).map(|it| &self.objects[it]).collect();
            let metadata = json!({"resourceVersion": self.revision.to_string()});
            return (200, json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}));
        }
        let Some(object) = self.get(resource, &namespace, &name).cloned() else {
            return (404, failure(404, &name));
        };
        match method {
            "GET" => (200, object),
            "PATCH" => self.patch(resource, &namespace, &name, object, body),
            _ => self.remove(resource, &namespace, &name, object, body),
        }
    }

    fn patch(
        &mut self,
        resource: Resource,
        namespace: &str,
        name: &str,
        mut object: Value,
        body: &Value,
    ) -> (u16, Value) {
        for field in ["uid", "resourceVersion"] {
            if body["metadata"][field] != object["metadata"][field] {
                return (409, failure(409, name));
            }
        }
        for field in ["finalizers", "ownerReferences"] {
            if body["metadata"][field].is_array() {
                object["metadata"][field] = body["metadata"][field].clone();
            }
        }
        self.store(resource, namespace, name, object.clone());
        (200, object)
    }

    fn remove(
        &mut self,
        resource: Resource,
        namespace: &str,
        name: &str,
        mut object: Value,
        body: &Value,
    ) -> (u16, Value) {
        for field in ["uid", "resourceVersion"] {
            let wanted = &body["preconditions"][field];
            if wanted.is_string() && *wanted != object["metadata"][field] {
                return (409, failure(409, name));
            }
        }
        let finalizer = match body["propagationPolicy"].as_str() {
            Some("Foreground") => Some("foregroundDeletion"),
            Some("Orphan") => Some("orphan"),
            _ => None,
        };
        let others = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let others = others.into_iter().filter(|it| it != "foregroundDeletion" && it != "orphan");
        let finalizers: Vec<Value> = others.chain(finalizer.map(Value::from)).collect();
        object["metadata"]["finalizers"] = json!(finalizers);
        object["metadata"]["deletionTimestamp"] = json!("2026-11-15T12:00:00Z");
        self.store(resource, namespace, name, object);
        (200, json!({"kind": "Status", "status": "Success"}))
    }

    fn discovery(&mut self, path: &str, is_partial: bool) -> Value {
        let is_hidden = self.hidden || (is_partial && self.random.percent(50));
        let freshness = if self.stale || is_partial { "Stale" } else { "Current" };
        let verbs = ["delete", "get", "list", "watch"];
        let resource = |it: &Resource| {
            let scope = if it.3 { "Namespaced" } else { "Cluster" };
            json!({"resource": it.1, "responseKind": {"kind": it.2}, "scope": scope, "verbs": verbs})
        };
        let of = |root: &str| RESOURCES.iter().filter(|it| it.0 == root).map(resource).collect::<Vec<_>>();
        let group = |name: &str, root: &str, freshness: &str| {
            let version = json!({"version": "v1", "freshness": freshness, "resources": of(root)});
            json!({"metadata": {"name": name}, "versions": [version]})
        };
        let items = match path {
            "/api" => vec![group("", "/api/v1", "Current")],
            _ if is_hidden => Vec::new(),
            _ => vec![group("example.org", "/apis/example.org/v1", freshness)],
        };
        json!({"kind": "APIGroupDiscoveryList", "items": items})
    }
}

fn key(resource: Resource, namespace: &str, name: &str) -> Key {
    let namespace = if resource.3 { namespace } else { "" };
    (resource.1, namespace.to_owned(), name.to_owned())
}

fn path(resource: Resource, namespace: &str, name: &str) -> String {
    let namespace = if resource.3 { format!("/namespaces/{namespace}") } else { String::new() };
    format!("{}{namespace}/{}/{name}", resource.0, resource.1)
}

/// Resource, namespace and name of a path; the last two may be empty.
fn place(path: &str) -> Option<(Resource, String, String)> {
    let root = RESOURCES.iter().map(|it| it.0).find(|it| path.starts_with(&format!("{it}/")))?;
    let parts: Vec<&str> = path[root.len() + 1..].split('/').collect();
    let (namespace, rest) = match parts.as_slice() {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        rest => ("", rest),
    };
    let (resource, name) = match rest {
        [resource] => (*resource, ""),
        [resource, name] => (*resource, *name),
        _ => return None,
    };
    let resource = RESOURCES.iter().find(|it| it.0 == root && it.1 == resource)?;
    Some((*resource, namespace.to_owned(), name.to_owned()))
}

fn answer(code: u16, body: &Value) -> Response<Full<Bytes>> {
    Response::builder().status(code).body(Full::new(Bytes::from(body.to_string()))).unwrap()
}

fn failure(code: u16, name: &str) -> Value {
    let reason = if code == 404 { "NotFound" } else { "OnPurpose" };
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason,
        "message": format!("on purpose: {code}"), "details": {"name": name},
    })
}
