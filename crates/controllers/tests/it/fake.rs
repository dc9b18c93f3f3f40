//! An API server with one namespace `a`, a few resources, and switches for everything that can go wrong.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use controllers::{Selection, Setup};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// Shared by a test and the server's answers.
#[derive(Clone)]
pub struct Fake(Arc<Mutex<State>>);

pub struct State {
    revision: u64,
    /// `None` once it is gone.
    pub namespace: Option<Value>,
    /// By path of the collection.
    pub content: BTreeMap<String, Vec<Value>>,
    /// Requests that begin so get this code: `("GET /api", 503)`. Code 0 means no answer at all, 1 means a panic.
    pub faults: Vec<(&'static str, u16)>,
    pub has_aggregated_discovery: bool,
    pub freshness: &'static str,
    /// There is content that nobody serves.
    pub has_unserved_content: bool,
    /// Everything asked, watches and lists of namespaces apart.
    pub log: Vec<String>,
    events: VecDeque<(u64, Value)>,
}

pub const PODS: &str = "/api/v1/namespaces/a/pods";
pub const CONFIG_MAPS: &str = "/api/v1/namespaces/a/configmaps";
pub const WIDGETS: &str = "/apis/example.org/v2/namespaces/a/widgets";

impl Fake {
    /// The namespace is being deleted and holds nothing.
    pub fn new() -> Self {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "a", "resourceVersion": "1", "deletionTimestamp": "2026-11-15T12:00:00Z"},
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        });
        let content = [PODS, CONFIG_MAPS, WIDGETS].map(|it| (it.to_owned(), Vec::new()));
        Self(Arc::new(Mutex::new(State {
            revision: 1,
            namespace: Some(namespace),
            content: content.into(),
            faults: Vec::new(),
            has_aggregated_discovery: true,
            freshness: "Current",
            has_unserved_content: false,
            log: Vec::new(),
            events: VecDeque::new(),
        })))
    }

    /// Reads or changes the state.
    pub fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    pub fn add(&self, collection: &str, name: &str, finalizers: &[&str]) {
        let object = json!({"metadata": {"name": name, "finalizers": finalizers}});
        self.with(|it| it.content.get_mut(collection).unwrap().push(object));
    }

    /// Runs these controllers against it until the handle is dropped or aborted.
    pub fn run(&self, controllers: &str) -> JoinHandle<()> {
        let fake = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| fake.clone().serve(request));
        let client = kube::Client::new(service, "default");
        let now = Arc::new(|| "2026-11-15T12:00:01Z".parse().unwrap());
        let mut setup = Setup::new(now);
        setup.selection = Selection::parse(controllers).unwrap();
        tokio::spawn(controllers::run(client, setup, std::future::pending()))
    }

    /// Waits until the state is as wanted; ten minutes are enough for anything.
    pub async fn until(&self, is_wanted: impl Fn(&State) -> bool) {
        for _ in 0..60_000 {
            if self.with(|it| is_wanted(it)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.with(|it| panic!("never: {:#?}\n{:#?}", it.log, it.namespace));
    }

    async fn serve(self, request: Request<Body>) -> Result<Response<Full<Bytes>>, std::io::Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(|it| it.to_bytes()).unwrap_or_default();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let query = parts.uri.query().unwrap_or_default();
        let line = format!("{} {}", parts.method, parts.uri.path());
        let fault =
            self.with(|it| it.faults.iter().find(|(begin, _)| line.starts_with(begin)).map(|it| it.1));
        match fault {
            Some(0) => return Err(std::io::Error::other("nobody there")),
            Some(1) => panic!("on purpose"),
            _ => {}
        }
        if query.contains("watch=true") {
            return Ok(self.watch(query).await);
        }
        let accept = parts.headers.get("accept").and_then(|it| it.to_str().ok()).unwrap_or_default();
        let is_aggregated = accept.contains("APIGroupDiscoveryList");
        let (code, answer) = self.with(|state| {
            if line != "GET /api/v1/namespaces" {
                state.log.push(line.clone());
            }
            match fault {
                Some(code) => (code, status(code)),
                None => state.answer(&line, is_aggregated, &body),
            }
        });
        let answer = Full::new(Bytes::from(answer.to_string()));
        Ok(Response::builder().status(code).body(answer).unwrap())
    }

    /// A watch that ends after its first events; clients take it up again.
    async fn watch(&self, query: &str) -> Response<Full<Bytes>> {
        let since = query.split('&').find_map(|it| it.strip_prefix("resourceVersion="));
        let since: u64 = since.unwrap().parse().unwrap();
        loop {
            let news = self.with(|state| {
                let news = state.events.iter().filter(|(revision, _)| *revision > since);
                news.map(|(_, event)| format!("{event}\n")).collect::<String>()
            });
            if !news.is_empty() {
                return Response::new(Full::new(Bytes::from(news)));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl State {
    pub fn is_gone(&self) -> bool {
        self.namespace.is_none()
    }

    /// How often something was asked.
    pub fn count(&self, line: &str) -> usize {
        self.log.iter().filter(|it| it.starts_with(line)).count()
    }

    /// The message of the condition, if it says `True`.
    pub fn trouble(&self, kind: &str) -> Option<&str> {
        let conditions = self.namespace.as_ref()?["status"]["conditions"].as_array()?;
        conditions.iter().find(|it| it["type"] == kind && it["status"] == "True")?["message"].as_str()
    }

    fn answer(&mut self, line: &str, is_aggregated: bool, body: &Value) -> (u16, Value) {
        let is_aggregated = is_aggregated && self.has_aggregated_discovery;
        if let Some(answer) = discovery(line, is_aggregated, self.freshness) {
            return (200, answer);
        }
        let (method, path) = line.split_once(' ').unwrap();
        match (method, path, &mut self.namespace) {
            ("GET", "/api/v1/namespaces", namespace) => (200, list(namespace.iter(), self.revision)),
            ("GET", "/api/v1/namespaces/a", Some(namespace)) => (200, namespace.clone()),
            ("PUT", "/api/v1/namespaces/a/status" | "/api/v1/namespaces/a/finalize", Some(_)) => {
                self.put(path, body)
            }
            (_, _, None) => (404, status(404)),
            ("GET", path, _) if self.content.contains_key(path) => {
                (200, list(self.content[path].iter(), self.revision))
            }
            ("DELETE", path, _) => self.delete(path),
            _ => (404, status(404)),
        }
    }

    fn put(&mut self, path: &str, body: &Value) -> (u16, Value) {
        if path.ends_with("finalize") && self.has_unserved_content {
            let mut refused = status(409);
            refused["message"] = json!("keys that no server serves: 2 under /registry/relics/");
            refused["details"] = json!({"causes": [{"reason": "UnservedContent", "message": "2"}]});
            return (409, refused);
        }
        let mut namespace = self.namespace.clone().unwrap();
        if body["metadata"]["resourceVersion"] != namespace["metadata"]["resourceVersion"] {
            return (409, status(409));
        }
        self.revision += 1;
        namespace["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let part = if path.ends_with("status") { "status" } else { "spec" };
        namespace[part] = body[part].clone();
        let is_last = namespace["spec"]["finalizers"] == json!([]);
        let kind = if is_last { "DELETED" } else { "MODIFIED" };
        self.events.push_back((self.revision, json!({"type": kind, "object": namespace})));
        self.namespace = (!is_last).then(|| namespace.clone());
        (200, namespace)
    }

    /// A collection or one object; what has finalizers stays.
    fn delete(&mut self, path: &str) -> (u16, Value) {
        let (collection, name) = match self.content.contains_key(path) {
            true => (path, None),
            false => path.rsplit_once('/').map(|(collection, name)| (collection, Some(name))).unwrap(),
        };
        let Some(objects) = self.content.get_mut(collection) else { return (404, status(404)) };
        let is_meant = |it: &Value| name.is_none_or(|name| it["metadata"]["name"] == name);
        objects.retain(|it| !is_meant(it) || it["metadata"]["finalizers"] != json!([]));
        for object in objects.iter_mut().filter(|it| is_meant(it)) {
            object["metadata"]["deletionTimestamp"] = json!("2026-11-15T12:00:01Z");
        }
        (200, json!({"kind": "Status", "status": "Success"}))
    }
}

fn list<'a>(items: impl Iterator<Item = &'a Value>, revision: u64) -> Value {
    let items: Vec<&Value> = items.collect();
    json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": revision.to_string()}, "items": items})
}

fn status(code: u16) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": code, "reason": "OnPurpose", "message": format!("on purpose: {code}"),
    })
}

fn discovery(line: &str, is_aggregated: bool, freshness: &str) -> Option<Value> {
    let verbs = ["delete", "deletecollection", "get", "list"];
    let resource = |name: &str, scope: &str| json!({"resource": name, "scope": scope, "verbs": verbs});
    let legacy = |name: &str, namespaced: bool| json!({"name": name, "singularName": "", "namespaced": namespaced, "kind": "Any", "verbs": verbs});
    let group = |name: &str, version: &str, resources: Value| {
        let version = json!({"version": version, "freshness": freshness, "resources": resources});
        json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": name}, "versions": [version]}]})
    };
    let answer = match (line, is_aggregated) {
        ("GET /api", true) => {
            let names = [("configmaps", "Namespaced"), ("namespaces", "Cluster"), ("pods", "Namespaced")];
            group("", "v1", names.iter().map(|(name, scope)| resource(name, scope)).collect())
        }
        ("GET /apis", true) => group("example.org", "v2", json!([resource("widgets", "Namespaced")])),
        ("GET /api", false) => {
            json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
        }
        ("GET /apis", false) => {
            let version = json!({"groupVersion": "example.org/v2", "version": "v2"});
            let group = json!({"name": "example.org", "versions": [version], "preferredVersion": version});
            json!({"kind": "APIGroupList", "groups": [group]})
        }
        ("GET /api/v1", _) => json!({
            "kind": "APIResourceList", "groupVersion": "v1",
            "resources": [legacy("configmaps", true), legacy("namespaces", false), legacy("namespaces/status", false),
                          legacy("pods", true), legacy("pods/status", true)],
        }),
        ("GET /apis/example.org/v2", _) => json!({
            "kind": "APIResourceList", "groupVersion": "example.org/v2", "resources": [legacy("widgets", true)],
        }),
        _ => return None,
    };
    Some(answer)
}
