//! kube-rs against the server: typed, dynamic after discovery, watcher and reflector.

use std::fmt::Debug;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::WatchEvent;
use kube::discovery::{Discovery, Scope};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Client, Config, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::Convoy;
use tokio::sync::mpsc;

use crate::fixture;

/// Nothing here takes long; a hang is a failure.
const PATIENCE: Duration = Duration::from_secs(60);

async fn client(convoy: &Convoy) -> Client {
    // One provider for the whole process; several tests may be first.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(convoy.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

fn object(fact: &Value, name: &str, group: &str) -> Value {
    let mut object = fact["object"].clone();
    object["apiVersion"] = fact["apiVersion"].clone();
    object["kind"] = fact["kind"].clone();
    object["metadata"] = json!({"name": name, "labels": {"run": "kube", "group": group}});
    object
}

fn names<K: Resource>(objects: &[K]) -> Vec<String> {
    objects.iter().map(|it| it.meta().name.clone().unwrap_or_default()).collect()
}

fn code(error: &kube::Error) -> (u16, String) {
    match error {
        kube::Error::Api(status) => (status.code, status.reason.clone()),
        other => panic!("expected an answer from the server, got {other}"),
    }
}

/// Every verb on one kind, typed.
async fn exercise<K>(client: Client)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let kind = K::kind(&()).into_owned();
    let fact = fixture::kinds().into_iter().find(|it| it["kind"] == *kind).expect("the kind must be listed");
    let make = |name: &str, group: &str| serde_json::from_value::<K>(object(&fact, name, group)).unwrap();
    let api: Api<K> = Api::namespaced(client, "default");
    let post = PostParams::default();

    let created = api.create(&post, &make("kube-a", "red")).await.unwrap();
    assert!(created.meta().uid.is_some() && created.meta().creation_timestamp.is_some(), "{kind}");
    for name in ["kube-b", "kube-c"] {
        api.create(&post, &make(name, "blue")).await.unwrap();
    }
    let again = api.create(&post, &make("kube-a", "red")).await.unwrap_err();
    assert_eq!(code(&again), (409, "AlreadyExists".to_owned()), "{kind}");

    let ours = ListParams::default().labels("run=kube");
    let listed = api.list(&ours).await.unwrap();
    assert_eq!(names(&listed.items), ["kube-a", "kube-b", "kube-c"], "{kind}");
    let red = api.list(&ListParams::default().labels("run=kube,group=red")).await.unwrap();
    assert_eq!(names(&red.items), ["kube-a"], "{kind}");
    let page = api.list(&ours.clone().limit(2)).await.unwrap();
    assert_eq!(names(&page.items), ["kube-a", "kube-b"], "{kind}");
    let token = page.metadata.continue_.expect("a first page must say how to go on");
    let rest = api.list(&ours.clone().limit(2).continue_token(&token)).await.unwrap();
    assert_eq!(names(&rest.items), ["kube-c"], "{kind}");

    let from = listed.metadata.resource_version.expect("a list must have a resourceVersion");
    let events = api.watch(&WatchParams::default().labels("run=kube"), &from).await.unwrap();
    let merge = Patch::Merge(&fact["merge"]);
    let mut merged = api.patch("kube-a", &PatchParams::default(), &merge).await.unwrap();
    merged.annotations_mut().insert("replaced".to_owned(), "yes".to_owned());
    let replaced = api.replace("kube-a", &post, &merged).await.unwrap();
    assert_eq!(replaced.annotations().get("replaced").map(String::as_str), Some("yes"), "{kind}");
    let stale = api.replace("kube-a", &post, &created).await.unwrap_err();
    assert_eq!(code(&stale), (409, "Conflict".to_owned()), "{kind}");
    api.delete("kube-a", &DeleteParams::default()).await.unwrap();
    let gone = api.get("kube-a").await.unwrap_err();
    assert_eq!(code(&gone), (404, "NotFound".to_owned()), "{kind}");
    let seen: Vec<_> = tokio::time::timeout(PATIENCE, events.take(3).try_collect()).await.unwrap().unwrap();
    let is_expected =
        matches!(seen.as_slice(), [WatchEvent::Modified(_), WatchEvent::Modified(_), WatchEvent::Deleted(_)]);
    assert!(is_expected, "{kind}: {seen:?}");

    api.delete_collection(&DeleteParams::default(), &ours).await.unwrap();
    assert!(api.list(&ours).await.unwrap().items.is_empty(), "{kind}");
}

async fn typed(convoy: &Convoy) {
    let client = client(convoy).await;
    exercise::<ConfigMap>(client.clone()).await;
    exercise::<Secret>(client.clone()).await;
    exercise::<ServiceAccount>(client.clone()).await;
    exercise::<Pod>(client.clone()).await;
    exercise::<Service>(client.clone()).await;
    exercise::<Deployment>(client.clone()).await;
    exercise::<Role>(client.clone()).await;
    exercise::<RoleBinding>(client.clone()).await;
    exercise::<Ingress>(client.clone()).await;
    exercise::<Lease>(client.clone()).await;
}

#[tokio::test]
async fn typed_clients_work_on_the_embedded_store() {
    typed(&fixture::embedded().await).await;
}

#[tokio::test]
async fn typed_clients_work_on_etcd() {
    let Some((_etcd, convoy)) = fixture::on_etcd().await else { return };
    typed(&convoy).await;
}

/// Kinds known only from discovery, cluster-wide ones among them.
async fn dynamic(convoy: &Convoy) {
    let client = client(convoy).await;
    let discovery = Discovery::new(client.clone()).run().await.unwrap();
    let cluster_wide = [
        json!({"kind": "Namespace", "apiVersion": "v1", "object": {}}),
        json!({"kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1", "object": {"rules": []}}),
        json!({"kind": "StorageClass", "apiVersion": "storage.k8s.io/v1", "object": {"provisioner": "example.org/disk"}}),
        json!({"kind": "PriorityClass", "apiVersion": "scheduling.k8s.io/v1", "object": {"value": 7}}),
    ];
    for fact in fixture::kinds().iter().chain(&cluster_wide) {
        let kind = fact["kind"].as_str().unwrap();
        let group = fact["apiVersion"].as_str().unwrap().rsplit_once('/').map_or("", |(group, _)| group);
        let group =
            discovery.groups().find(|it| it.name() == group).unwrap_or_else(|| panic!("no group of {kind}"));
        let (resource, capabilities) = group.recommended_kind(kind).unwrap_or_else(|| panic!("no {kind}"));
        for verb in ["create", "get", "list", "watch", "update", "patch", "delete", "deletecollection"] {
            // Namespaces are the one resource that cannot be deleted as a collection.
            let missing = kind == "Namespace" && verb == "deletecollection";
            assert_eq!(capabilities.supports_operation(verb), !missing, "{verb} {kind}");
        }
        let api: Api<DynamicObject> = match capabilities.scope {
            Scope::Namespaced => Api::namespaced_with(client.clone(), "default", &resource),
            Scope::Cluster => Api::all_with(client.clone(), &resource),
        };
        let name = format!("dynamic-{}", kind.to_lowercase());
        let object: DynamicObject = serde_json::from_value(object(fact, &name, "red")).unwrap();
        let created = api.create(&PostParams::default(), &object).await.unwrap();
        let read = api.get(&name).await.unwrap();
        assert_eq!(read.uid(), created.uid());
        let patch = json!({"metadata": {"annotations": {"note": "dynamic"}}});
        let patched = api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        assert_eq!(patched.annotations()["note"], "dynamic");
        api.delete(&name, &DeleteParams::default()).await.unwrap();
    }
}

#[tokio::test]
async fn dynamic_clients_find_and_use_what_discovery_shows_on_the_embedded_store() {
    dynamic(&fixture::embedded().await).await;
}

#[tokio::test]
async fn dynamic_clients_find_and_use_what_discovery_shows_on_etcd() {
    let Some((_etcd, convoy)) = fixture::on_etcd().await else { return };
    dynamic(&convoy).await;
}

/// A watcher's events up to the deletion of the first object, in short.
async fn follow(client: Client, config: watcher::Config, ready: mpsc::Sender<()>) -> Vec<String> {
    let api: Api<ConfigMap> = Api::namespaced(client, "default");
    let mut seen = Vec::new();
    let mut stream = std::pin::pin!(watcher(api, config));
    loop {
        let event = tokio::time::timeout(PATIENCE, stream.next()).await.expect("the watcher must go on");
        let line = match event.expect("a watcher never ends").unwrap() {
            watcher::Event::Init => "init".to_owned(),
            watcher::Event::InitApply(object) => format!("init {}", object.name_any()),
            watcher::Event::InitDone => "ready".to_owned(),
            watcher::Event::Apply(object) => format!("apply {}", object.name_any()),
            watcher::Event::Delete(object) => format!("delete {}", object.name_any()),
        };
        seen.push(line.clone());
        match line.as_str() {
            "ready" => ready.send(()).await.unwrap(),
            "delete first" => return seen,
            _ => {}
        }
    }
}

async fn watchers(convoy: &Convoy) {
    let client = client(convoy).await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let make = |name: &str| {
        let object = fixture::config_map(name, "1", "watched");
        serde_json::from_value::<ConfigMap>(object).unwrap()
    };
    api.create(&PostParams::default(), &make("first")).await.unwrap();
    let listing = watcher::Config::default().labels("group=watched");
    let streaming = listing.clone().streaming_lists();
    let (reader, writer) = reflector::store::<ConfigMap>();
    let reflected = reflector(writer, watcher(api.clone(), listing.clone())).applied_objects();
    let reflecting = tokio::spawn(reflected.for_each(|_| std::future::ready(())));
    let (ready, mut readies) = mpsc::channel(2);
    let paged = tokio::spawn(follow(client.clone(), listing, ready.clone()));
    let streamed = tokio::spawn(follow(client, streaming, ready));
    tokio::time::timeout(PATIENCE, reader.wait_until_ready()).await.unwrap().unwrap();
    for _ in 0..2 {
        tokio::time::timeout(PATIENCE, readies.recv()).await.unwrap().unwrap();
    }

    api.create(&PostParams::default(), &make("second")).await.unwrap();
    api.delete("first", &DeleteParams::default()).await.unwrap();
    for seen in [paged.await.unwrap(), streamed.await.unwrap()] {
        assert_eq!(seen, ["init", "init first", "ready", "apply second", "delete first"]);
    }
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while names(&reader.state().iter().map(|it| (**it).clone()).collect::<Vec<_>>()) != ["second"] {
        assert!(tokio::time::Instant::now() < deadline, "the reflector must catch up");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    reflecting.abort();
}

#[tokio::test]
async fn watchers_and_reflectors_follow_changes_on_the_embedded_store() {
    watchers(&fixture::embedded().await).await;
}

#[tokio::test]
async fn watchers_and_reflectors_follow_changes_on_etcd() {
    let Some((_etcd, convoy)) = fixture::on_etcd().await else { return };
    watchers(&convoy).await;
}
