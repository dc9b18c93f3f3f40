//! One object in several versions, and one store under servers of several releases.

use catalog::{Catalog, Definition, FeatureGates, RuntimeConfig, Schemas};
use meta::{Release, Value};
use schema::model::{Scalar, Schema, Type, TypeId};
use serde_json::json;
use store::{Key, MemoryStore, SharedStore, Store, SystemClock, Txn};

use crate::harness::TestServer;

/// Settings with every version of a release switched on.
fn everything(release: Release) -> impl FnOnce(&mut server::server::Settings) {
    move |settings| settings.catalog = catalog_of(release)
}

fn catalog_of(release: Release) -> Catalog {
    let all = RuntimeConfig::parse("api/all=true").unwrap();
    Catalog::new(release, &all, &FeatureGates::defaults(release)).unwrap()
}

const V1: &str = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
const V2: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
const CORE: &str = "/api/v1/namespaces/default/events";
const GROUPED: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

fn autoscaler() -> Value {
    let memory = json!({"type": "Resource", "resource": {"name": "memory",
        "target": {"type": "AverageValue", "averageValue": "1Gi"}}});
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": 50}}});
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {"minReplicas": 1, "maxReplicas": 5, "scaleTargetRef": target, "metrics": [memory, cpu]}})
}

#[tokio::test]
async fn an_autoscaler_is_converted_on_every_way_out() {
    let it = TestServer::start().await;
    it.post(V2, autoscaler()).await.expect(201);
    let kept = "[{\"type\":\"Resource\",\"resource\":{\"name\":\"memory\",\"targetAverageValue\":\"1Gi\"}}]";
    let check = |object: &Value| {
        assert_eq!(object["spec"]["targetCPUUtilizationPercentage"], 50);
        assert!(object["spec"].get("metrics").is_none());
        assert_eq!(object["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/metrics"], kept);
    };
    let got = it.get(&format!("{V1}/h")).await.expect(200).json();
    assert_eq!(got["apiVersion"], "autoscaling/v1");
    check(&got);
    let list = it.get(V1).await.expect(200).json();
    check(&list["items"][0]);
    assert!(list["items"][0].get("kind").is_none());
    let watched = it.get(&format!("{V1}?watch=true&timeoutSeconds=1")).await.expect(200).text;
    let event: Value = serde_json::from_str(watched.lines().next().unwrap()).unwrap();
    check(&event["object"]);
}

#[tokio::test]
async fn a_patch_in_v1_keeps_what_v1_cannot_hold() {
    let it = TestServer::start().await;
    it.post(V2, autoscaler()).await.expect(201);
    let status = json!({"status": {"currentReplicas": 1, "desiredReplicas": 1,
        "conditions": [{"type": "AbleToScale", "status": "True"}]}});
    it.patch(&format!("{V2}/h/status"), "merge", status).await.expect(200);
    let patched =
        it.patch(&format!("{V1}/h"), "merge", json!({"spec": {"maxReplicas": 9}})).await.expect(200);
    assert_eq!(patched.json()["spec"]["targetCPUUtilizationPercentage"], 50);
    let seen = it.get(&format!("{V2}/h")).await.expect(200).json();
    assert_eq!(seen["spec"]["maxReplicas"], 9);
    assert_eq!(seen["spec"]["metrics"].as_array().unwrap().len(), 2);
    // Not even a client that drops the annotations touches the status.
    let mut put = it.get(&format!("{V1}/h")).await.expect(200).json();
    put["metadata"].as_object_mut().unwrap().remove("annotations");
    it.ask("PUT", &format!("{V1}/h"), put).await.expect(200);
    let seen = it.get(&format!("{V2}/h")).await.expect(200).json();
    assert_eq!(seen["spec"]["metrics"].as_array().unwrap().len(), 1);
    assert_eq!(seen["status"]["conditions"][0]["type"], "AbleToScale");
}

#[tokio::test]
async fn fields_stay_owned_across_versions() {
    let it = TestServer::start().await;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let config = |version: &str, max: u32| {
        json!({"apiVersion": version, "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
            "spec": {"maxReplicas": max, "scaleTargetRef": target}})
    };
    let apply = async |path: &str, manager: &str, config: Value| {
        let headers =
            [("authorization", "Bearer admintoken"), ("content-type", "application/apply-patch+yaml")];
        it.send("PATCH", &format!("{path}/h?fieldManager={manager}"), &headers, config).await
    };
    apply(V1, "one", config("autoscaling/v1", 5)).await.expect(201);
    let conflict = apply(V2, "two", config("autoscaling/v2", 6)).await.expect(409);
    assert!(conflict.message().contains(".spec.maxReplicas"), "{}", conflict.message());
    apply(V2, "one", config("autoscaling/v2", 7)).await.expect(200);
    let seen = it.get(&format!("{V1}/h")).await.expect(200).json();
    assert_eq!(seen["spec"]["maxReplicas"], 7);
}

#[tokio::test]
async fn an_event_has_the_names_of_the_group_it_is_asked_in() {
    let it = TestServer::start().await;
    let involved = json!({"kind": "Pod", "name": "p", "namespace": "default"});
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": involved,
        "reason": "Why", "message": "what", "type": "Normal", "count": 2, "source": {"component": "c"}});
    it.post(CORE, event).await.expect(201);
    let seen = it.get(&format!("{GROUPED}/e")).await.expect(200).json();
    assert_eq!((&seen["note"], &seen["regarding"]["name"]), (&json!("what"), &json!("p")));
    assert_eq!((&seen["deprecatedCount"], seen.get("message")), (&json!(2), None));
    it.patch(&format!("{GROUPED}/e"), "merge", json!({"metadata": {"labels": {"a": "b"}}})).await.expect(200);
    let seen = it.get(&format!("{CORE}/e")).await.expect(200).json();
    assert_eq!((&seen["message"], seen.get("note")), (&json!("what"), None));
    assert_eq!((&seen["metadata"]["labels"]["a"], &seen["count"]), (&json!("b"), &json!(2)));
}

#[tokio::test]
async fn a_version_that_the_release_cannot_read_is_named() {
    let store = SharedStore::new(MemoryStore::new(SystemClock::shared()));
    for (name, version) in [("new", "resource.k8s.io/v1"), ("old", "resource.k8s.io/v1beta2")] {
        let object =
            json!({"apiVersion": version, "kind": "DeviceClass", "metadata": {"name": name}, "spec": {}});
        let key = Key::new(format!("/registry/deviceclasses/{name}"));
        store.commit(Txn::new().put(&key, schema::json::encode_stored(&object))).await.unwrap();
    }
    let classes = |version: &str| format!("/apis/resource.k8s.io/{version}/deviceclasses");
    let newest = TestServer::start_on(store.clone(), Release::v1(36), |_| {}).await;
    let both = newest.get(&classes("v1")).await.expect(200).json();
    assert_eq!(both["items"].as_array().unwrap().len(), 2);
    let oldest = TestServer::start_on(store, Release::v1(33), everything(Release::v1(33))).await;
    let refused = oldest.get(&classes("v1beta1")).await.expect(500);
    assert!(refused.message().contains("/registry/deviceclasses/new"), "{}", refused.message());
    oldest.get(&format!("{}/old", classes("v1beta1"))).await.expect(200);
    let refused = oldest.get(&format!("{}/new", classes("v1beta1"))).await.expect(500);
    assert!(refused.message().contains("cannot read"), "{}", refused.message());
    // It could not become a member, so that it writes nothing.
    oldest.ask("DELETE", &format!("{}/new", classes("v1beta1")), Value::Null).await.expect(503);
}

/// What 1.36 stores of every kind, without anything in it: older releases show it in all their versions, or say that
/// they cannot read it, as the facts have it.
#[tokio::test]
async fn older_releases_read_what_the_newest_stores_exactly_where_the_facts_say_so() {
    let store = SharedStore::new(MemoryStore::new(SystemClock::shared()));
    let newest = catalog_of(Release::v1(36));
    // Of StorageVersions only those stay that a server stands behind.
    let is_ours = |it: &Definition| &*it.resource == "storageversions";
    let stored = newest.definitions().iter().filter(|it| it.is_stored() && it.record == it.group_resource());
    let stored = stored.filter(|it| !is_ours(it));
    for definition in stored.clone() {
        let (prefix, storage) =
            (definition.key_prefix.as_deref().unwrap(), definition.storage.as_ref().unwrap());
        let mut object = json!({"apiVersion": storage.to_string(), "kind": &*definition.kind,
            "metadata": {"name": "probe", "uid": "u", "annotations": {"a": "b"}}});
        let key = if definition.namespaced {
            object["metadata"]["namespace"] = json!("default");
            format!("{prefix}default/probe")
        } else {
            format!("{prefix}probe")
        };
        store.commit(Txn::new().put(&Key::new(key), schema::json::encode_stored(&object))).await.unwrap();
    }
    for minor in 33..=36 {
        let release = Release::v1(minor);
        let (catalog, mut n_read, mut n_refused) = (catalog_of(release), 0, 0);
        let it = TestServer::start_on(store.clone(), release, everything(release)).await;
        for definition in stored.clone() {
            let own =
                catalog.definitions().iter().find(|it| it.group_resource() == definition.group_resource());
            let Some(own) = own else { continue };
            let storage = definition.storage.as_ref().unwrap();
            for version in &own.versions {
                let group =
                    if own.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", own.group) };
                let scope = if own.namespaced { "/namespaces/default" } else { "" };
                let path = format!("{group}/{version}{scope}/{}", own.resource);
                let answer = it.get(&format!("{path}/probe")).await;
                let listed = it.get(&path).await;
                if !own.can_decode(storage) {
                    answer.expect(500);
                    assert!(listed.expect(500).message().contains("probe"), "{path} in {release}");
                    n_refused += 1;
                    continue;
                }
                let list = listed.expect(200).json();
                let names: Vec<&Value> = list["items"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|it| &it["metadata"]["name"])
                    .collect();
                let object = answer.expect(200).json();
                assert_eq!(object["apiVersion"], list["apiVersion"], "{path} in {release}");
                assert_eq!(object["metadata"]["annotations"]["a"], "b", "{path} in {release}");
                assert!(names.contains(&&json!("probe")), "{path} in {release}");
                n_read += 1;
            }
        }
        assert!(n_read > 60, "{n_read} in {release}");
        assert_eq!(n_refused == 0, minor == 36, "{n_refused} in {release}");
    }
}

/// The parts of a type that 1.36 has and a release does not know, and what is required beside them.
fn newer_parts([schema, newest]: [&Schema; 2], ty: TypeId, depth: u32) -> Option<Value> {
    let inner = |ty: TypeId| newer_parts([schema, newest], ty, depth + 1);
    match schema.get(ty) {
        _ if depth > 8 => None,
        Type::Scalar(_) | Type::Any => None,
        Type::Map(map) => inner(map.value).map(|it| json!({"k": it})),
        Type::List(list) => inner(list.element).map(|it| json!([it])),
        Type::Object(object) => {
            // The same table makes the types of all releases, with the same numbers.
            let newest = newest.object(ty).filter(|it| it.name == object.name)?;
            let mut map = meta::Map::new();
            for (field, newer) in object.fields.iter().zip(&newest.fields) {
                let value = match (field.is_known, newer.is_known) {
                    (true, _) => inner(field.ty),
                    (false, true) => sample(schema, field.ty),
                    (false, false) => None,
                };
                map.extend(value.map(|it| (field.name.to_string(), it)));
            }
            if map.is_empty() {
                return None;
            }
            for field in object.fields.iter().filter(|it| it.is_required && it.is_known) {
                if let (false, Some(value)) = (map.contains_key(&*field.name), sample(schema, field.ty)) {
                    map.insert(field.name.to_string(), value);
                }
            }
            Some(Value::Object(map))
        }
    }
}

/// Something that the type can hold.
fn sample(schema: &Schema, ty: TypeId) -> Option<Value> {
    match schema.get(ty) {
        Type::Scalar(Scalar::String) => Some(json!("x")),
        Type::Scalar(Scalar::Bool) => Some(json!(true)),
        Type::Scalar(Scalar::Int32 | Scalar::Int64) => Some(json!(1)),
        Type::Scalar(Scalar::Quantity) => Some(json!("1")),
        Type::Scalar(_) | Type::Any => None,
        Type::Map(map) => sample(schema, map.value).map(|it| json!({"k": it})),
        Type::List(list) => sample(schema, list.element).map(|it| json!([it])),
        Type::Object(object) => {
            let fields = object.fields.iter().take(4);
            let single = fields.filter(|it| matches!(schema.get(it.ty), Type::Scalar(_)));
            let fields = single.filter_map(|it| Some((it.name.to_string(), sample(schema, it.ty)?)));
            Some(Value::Object(fields.collect()))
        }
    }
}

/// Whether everything in the one is in the other too.
fn is_part(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => {
            part.iter().all(|(key, it)| whole.get(key).is_some_and(|whole| is_part(it, whole)))
        }
        (Value::Array(part), Value::Array(whole)) => {
            part.len() == whole.len() && part.iter().zip(whole).all(|(part, whole)| is_part(part, whole))
        }
        _ => part == whole,
    }
}

/// Fields of newer releases in every kind: a patch and an update through an older server, in every version it has,
/// leave them in the store. Objects with nothing but such fields are not valid in every kind; those are refused and stay.
#[tokio::test]
async fn writes_through_older_releases_lose_no_field_of_newer_ones() {
    let newest = Schemas::new(Release::v1(36));
    for minor in 33..=35 {
        let release = Release::v1(minor);
        let store = SharedStore::new(MemoryStore::new(SystemClock::shared()));
        let it = TestServer::start_on(store.clone(), release, everything(release)).await;
        let (schemas, mut n_written) = (Schemas::new(release), 0);
        let defaults = registry::Defaults::new(release, SystemClock::shared().now());
        for definition in catalog_of(release).definitions().iter().filter(|it| it.is_stored()) {
            let converter = registry::convert::Converter::new(&schemas, definition);
            let (scope, namespace) =
                if definition.namespaced { ("/namespaces/default", "default/") } else { ("", "") };
            for storage in &definition.decodable {
                let ty = schemas.kind(&storage.group, storage.version.as_str(), &definition.kind).unwrap();
                let Some(mut object) = newer_parts([schemas.schema(), newest.schema()], ty, 0) else {
                    continue;
                };
                defaults.fill(schemas.schema(), ty, &mut object);
                schema::convert::fit(schemas.schema(), ty, &mut object);
                object["apiVersion"] = json!(storage.to_string());
                object["kind"] = json!(&*definition.kind);
                for version in &definition.versions {
                    let name = format!("probe-{}-{version}", storage.version);
                    object["metadata"] = json!({"name": name, "uid": "u"});
                    let prefix = definition.key_prefix.as_deref().unwrap();
                    let key = Key::new(format!("{prefix}{namespace}{name}"));
                    if definition.namespaced {
                        object["metadata"]["namespace"] = json!("default");
                    }
                    let bytes = schema::json::encode_stored(&object);
                    store.commit(Txn::new().put(&key, bytes)).await.unwrap();
                    let group = if definition.group.is_empty() { "/api" } else { "/apis/" };
                    let path = format!(
                        "{group}{}/{version}{scope}/{}/{name}",
                        definition.group, definition.resource
                    );
                    let label = json!({"metadata": {"labels": {"a": "b"}}});
                    let patched = it.patch(&path, "merge", label).await;
                    if patched.code != 200 {
                        assert!(matches!(patched.code, 422 | 405), "{path}: {}", patched.text);
                        continue;
                    }
                    let mut put = patched.json();
                    put["metadata"]["labels"]["c"] = json!("d");
                    it.ask("PUT", &path, put).await.expect(200);
                    let text = store.get(&key).await.unwrap().unwrap().value;
                    let now: Value = serde_json::from_slice(&text).unwrap();
                    assert_eq!(now["metadata"]["labels"], json!({"a": "b", "c": "d"}), "{path}");
                    n_written += 1;
                    // This release may have rewritten it in the version that it stores.
                    let now = converter.convert(now, &storage.to_string());
                    let mut expected = object.clone();
                    expected.as_object_mut().unwrap().remove("metadata");
                    assert!(is_part(&expected, &now), "{path} in {release}\n{object}\n{now}");
                }
            }
        }
        assert!(n_written > 0, "nothing was compared in {release}");
    }
}
