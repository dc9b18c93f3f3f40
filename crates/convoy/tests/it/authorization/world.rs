//! A cluster with two namespaces, objects of many kinds in and outside of them, and a dozen tenants.
//!
//! Every object carries a mark that names it, so that it is known in whatever answer it turns up.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};
use store::{Key, Range, ReadAt, Store, Txn};

use super::oracle::{Offer, Policy};
use crate::fleet::ground::{Ground, Ship, ask, eventually};

const RBAC: &str = "rbac.authorization.k8s.io";

/// The tenants: a name, whether it holds the rules in `own` only, and the rules.
pub fn tenants() -> Vec<(&'static str, bool, Value)> {
    let rule = |groups: Value, resources: Value, verbs: Value| json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
    let read = json!(["get", "list", "watch"]);
    let named = |resource: &str, verbs: Value, name: &str| json!({"apiGroups": [""], "resources": [resource], "verbs": verbs, "resourceNames": [name]});
    vec![
        ("nobody", true, json!([])),
        ("owner", true, json!([rule(json!(["*"]), json!(["*"]), json!(["*"]))])),
        (
            "editor",
            true,
            json!([rule(
                json!(["", "apps", "batch", "coordination.k8s.io", "example.com"]),
                json!(["*"]),
                json!(["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"])
            )]),
        ),
        ("viewer", true, json!([rule(json!(["*"]), json!(["*"]), read.clone())])),
        (
            "one-secret",
            true,
            json!([named("secrets", json!(["get", "list", "watch", "delete", "deletecollection"]), "a")]),
        ),
        ("one-map", true, json!([named("configmaps", json!(["*"]), "a")])),
        ("sweeper", true, json!([rule(json!([""]), json!(["configmaps"]), json!(["deletecollection"]))])),
        (
            "scaler",
            true,
            json!([rule(
                json!(["apps"]),
                json!(["deployments/scale", "deployments/status"]),
                json!(["get", "patch", "update"])
            )]),
        ),
        ("watcher", true, json!([rule(json!(["*"]), json!(["*"]), json!(["watch"]))])),
        ("own-namespace", false, json!([named("namespaces", json!(["*"]), "own")])),
        ("cluster-viewer", false, json!([rule(json!(["*"]), json!(["*"]), read.clone())])),
        (
            "statuses",
            false,
            json!([rule(json!(["*"]), json!(["*/status", "*/finalize"]), json!(["get", "patch", "update"]))]),
        ),
        ("nodes", false, json!([rule(json!([""]), json!(["nodes"]), read)])),
        ("pages", false, json!([{"nonResourceURLs": ["/metrics", "/openapi/*"], "verbs": ["get"]}])),
    ]
}

/// An object of the cluster.
#[derive(Clone, Debug)]
pub struct Thing {
    /// `/api/v1`, `/apis/apps/v1`
    pub base: String,
    pub group: String,
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub object: Value,
}

impl Thing {
    pub fn mark(&self) -> String {
        format!("{}/{}:{}/{}", self.group, self.resource, self.namespace, self.name)
    }

    fn collection(&self) -> String {
        match self.namespace.as_str() {
            "" => format!("{}/{}", self.base, self.resource),
            namespace => format!("{}/namespaces/{namespace}/{}", self.base, self.resource),
        }
    }
}

/// An object with its mark.
pub fn thing(base: &str, resource: &str, kind: &str, namespace: &str, name: &str, rest: &Value) -> Thing {
    let (group, api_version) = match base.trim_start_matches("/apis/").split_once('/') {
        Some((group, version)) if base.starts_with("/apis/") => (group, format!("{group}/{version}")),
        _ => ("", "v1".to_owned()),
    };
    let mark = format!("@@{group}/{resource}:{namespace}/{name}@@");
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "annotations": {"mark": mark}}});
    for (key, value) in rest.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    Thing {
        base: base.to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        object,
    }
}

fn things() -> Vec<Thing> {
    let template =
        json!({"metadata": {"labels": {"x": "y"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment =
        json!({"spec": {"replicas": 0, "selector": {"matchLabels": {"x": "y"}}, "template": template}});
    let mut all = Vec::new();
    for name in ["own", "other"] {
        all.push(thing("/api/v1", "namespaces", "Namespace", "", name, &json!({})));
    }
    for namespace in ["own", "other"] {
        for name in ["a", "b"] {
            all.extend([
                thing("/api/v1", "configmaps", "ConfigMap", namespace, name, &json!({})),
                thing("/api/v1", "secrets", "Secret", namespace, name, &json!({"type": "Opaque"})),
                thing(
                    "/apis/coordination.k8s.io/v1",
                    "leases",
                    "Lease",
                    namespace,
                    name,
                    &json!({"spec": {}}),
                ),
                thing("/apis/apps/v1", "deployments", "Deployment", namespace, name, &deployment),
                thing("/apis/example.com/v1", "widgets", "Widget", namespace, name, &json!({})),
            ]);
        }
    }
    for name in ["a", "b"] {
        all.extend([
            thing("/api/v1", "nodes", "Node", "", name, &json!({})),
            thing(
                "/apis/rbac.authorization.k8s.io/v1",
                "clusterroles",
                "ClusterRole",
                "",
                name,
                &json!({"rules": []}),
            ),
            thing("/apis/example.com/v1", "gadgets", "Gadget", "", name, &json!({})),
        ]);
    }
    all
}

fn definition(kind: &str, scope: &str) -> Value {
    let (singular, plural) = (kind.to_lowercase(), format!("{}s", kind.to_lowercase()));
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {"group": "example.com", "scope": scope,
            "names": {"plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

/// The cluster, and what the oracle must know of it.
pub struct World {
    pub offer: Offer,
    pub policy: Policy,
    pub things: Vec<Thing>,
    before: BTreeMap<Key, Bytes>,
}

impl World {
    /// Makes everything through a server; `all` have seen it when this ends.
    pub async fn make(ground: &Ground, server: &Ship, all: &[&Ship]) -> Self {
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        for (kind, scope) in [("Widget", "Namespaced"), ("Gadget", "Cluster")] {
            server.expect(201, "POST", definitions, definition(kind, scope)).await;
        }
        for path in ["/apis/example.com/v1/widgets", "/apis/example.com/v1/gadgets"] {
            for it in all {
                eventually("the definition is served", async || {
                    it.ask("GET", path, Value::Null).await.0 == 200
                })
                .await;
            }
        }
        let things = things();
        for it in &things {
            server.expect(201, "POST", &it.collection(), it.object.clone()).await;
        }
        for (name, is_own, rules) in tenants() {
            bind(server, name, is_own, &rules).await;
            for it in all {
                let client = it.server.client_as(name, &[]);
                knows(&client, is_own, &rules).await;
            }
        }
        let before = dump(ground).await;
        Self { offer: offer(server).await, policy: policy(server).await, things, before }
    }

    /// What the oracle must know of a cluster that has only namespaces and secrets.
    pub fn small() -> Self {
        let verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
        let mut offer = Offer::default();
        offer.add(&json!({"groupVersion": "v1", "resources": [
            {"name": "namespaces", "namespaced": false, "verbs": verbs},
            {"name": "secrets", "namespaced": true, "verbs": verbs}]}));
        let mut policy = Policy::default();
        for (name, is_own, rules) in tenants() {
            let metadata = match is_own {
                true => json!({"name": name, "namespace": "own"}),
                false => json!({"name": name}),
            };
            let kind = if is_own { "Role" } else { "ClusterRole" };
            policy.add_role(&json!({"metadata": metadata, "rules": rules}));
            policy.add_binding(&json!({"metadata": metadata, "roleRef": {"kind": kind, "name": name},
                "subjects": [{"kind": "User", "name": name}]}));
        }
        let mut things = things();
        things.retain(|it| ["namespaces", "secrets"].contains(&it.resource.as_str()));
        Self { offer, policy, things, before: BTreeMap::new() }
    }

    /// What was changed since the last call, by mark. It is put back.
    pub async fn undo(&mut self, ground: &Ground) -> Vec<String> {
        let now = dump(ground).await;
        let mut changed = Vec::new();
        for (key, value) in &now {
            if self.before.get(key) != Some(value) {
                changed.extend(marks(&String::from_utf8_lossy(self.before.get(key).unwrap_or(value))));
            }
        }
        for (key, value) in self.before.iter().filter(|it| !now.contains_key(it.0)) {
            changed.extend(marks(&String::from_utf8_lossy(value)));
            ground.store.commit(Txn::new().put(key, value.clone())).await.unwrap();
        }
        for (key, value) in now {
            match self.before.get(&key) {
                Some(old) if *old == value => {}
                Some(old) => {
                    ground.store.commit(Txn::new().put(&key, old.clone())).await.unwrap();
                }
                None => {
                    ground.store.commit(Txn::new().delete(&key)).await.unwrap();
                }
            }
        }
        changed
    }
}

/// The marks of all objects that are in a text.
pub fn marks(text: &str) -> Vec<String> {
    text.split("@@").skip(1).step_by(2).map(str::to_owned).collect()
}

/// Everything stored that has a mark.
async fn dump(ground: &Ground) -> BTreeMap<Key, Bytes> {
    let page = ground.store.list(&Range::prefix("/"), ReadAt::Latest, usize::MAX).await.unwrap();
    let entries = page.entries.into_iter();
    entries.filter(|it| it.value.windows(2).any(|it| it == b"@@")).map(|it| (it.key, it.value)).collect()
}

async fn bind(server: &Ship, name: &str, is_own: bool, rules: &Value) {
    let (at, role, binding) = match is_own {
        true => ("namespaces/own/", "Role", "RoleBinding"),
        false => ("", "ClusterRole", "ClusterRoleBinding"),
    };
    let path = |kind: &str| format!("/apis/{RBAC}/v1/{at}{}s", kind.to_lowercase());
    let object = json!({"metadata": {"name": format!("of-{name}")}, "rules": rules});
    server.expect(201, "POST", &path(role), object).await;
    let object = json!({"metadata": {"name": format!("of-{name}")},
        "roleRef": {"apiGroup": RBAC, "kind": role, "name": format!("of-{name}")},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": name}]});
    server.expect(201, "POST", &path(binding), object).await;
}

/// Waits until a server grants what was bound, as it says itself.
async fn knows(client: &kube::Client, is_own: bool, rules: &Value) {
    let Some(rule) = rules.get(0).filter(|it| it["resources"].is_array()) else { return };
    let text = |field: &str| rule[field][0].as_str().unwrap().replace('*', "x");
    let resource = text("resources");
    let (resource, subresource) = resource.split_once('/').unwrap_or((&resource, ""));
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {
        "resourceAttributes": {"group": text("apiGroups"), "resource": resource, "subresource": subresource,
            "verb": text("verbs"), "name": rule["resourceNames"][0].as_str().unwrap_or_default(),
            "namespace": if is_own { "own" } else { "" }}}});
    eventually("the tenant has its rights", async || {
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        ask(client, "POST", path, review.clone()).await.1["status"]["allowed"] == true
    })
    .await;
}

async fn offer(server: &Ship) -> Offer {
    let mut offer = Offer::default();
    offer.add(&server.get("/api/v1").await);
    let groups = server.get("/apis").await;
    for group in groups["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            let path = format!("/apis/{}", version["groupVersion"].as_str().unwrap());
            offer.add(&server.get(&path).await);
        }
    }
    offer
}

async fn policy(server: &Ship) -> Policy {
    let mut policy = Policy::default();
    for resource in ["roles", "clusterroles"] {
        for role in server.get(&format!("/apis/{RBAC}/v1/{resource}")).await["items"].as_array().unwrap() {
            policy.add_role(role);
        }
    }
    for resource in ["rolebindings", "clusterrolebindings"] {
        for it in server.get(&format!("/apis/{RBAC}/v1/{resource}")).await["items"].as_array().unwrap() {
            policy.add_binding(it);
        }
    }
    policy
}
