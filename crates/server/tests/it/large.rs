//! Definitions of the size and nastiness that well-known projects ship: deep, 1.5 MB, with every extension there is.

use std::{collections::BTreeMap, sync::Arc};

use fleet::{Identity, Incarnation};
use meta::{GroupResource, GroupVersion, Release, Value};
use serde_json::json;
use store::{MemoryStore, SharedStore, SystemClock};

use crate::{custom::establish, harness::TestServer};

const MONSTERS: &str = "/apis/big.example/v1/namespaces/default/monsters";
const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/monsters.big.example";

/// Every extension and combinator that a structural schema can have, with a value that it must keep.
fn oddities() -> Vec<(&'static str, Value, Value)> {
    let text = json!({"type": "string"});
    let named = json!({"type": "object", "required": ["name", "port"], "properties": {
        "name": text, "port": {"type": "integer", "default": 80}, "value": text}});
    vec![
        (
            "any",
            json!({"x-kubernetes-preserve-unknown-fields": true}),
            json!({"free": [1, null, {"deep": [[]]}]}),
        ),
        (
            "open",
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": text}}),
            json!({"known": "a", "unknown": {"b": 1.5}}),
        ),
        (
            "embedded",
            json!({"type": "object", "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true}),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "inner"}, "spec": {"any": true}}),
        ),
        ("either", json!({"x-kubernetes-int-or-string": true}), json!("50%")),
        (
            "bounded",
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}],
                "pattern": "^[0-9]+%?$"}),
            json!(7),
        ),
        (
            "map",
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "port"],
                "items": named}),
            json!([{"name": "a", "port": 1, "value": "x"}, {"name": "a", "port": 2}]),
        ),
        ("set", json!({"type": "array", "x-kubernetes-list-type": "set", "items": text}), json!(["a", "b"])),
        (
            "atomic",
            json!({"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "number"}}),
            json!([1.5, 2, 3.25]),
        ),
        (
            "whole",
            json!({"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": text}),
            json!({"k/with~slash": "v"}),
        ),
        (
            "granular",
            json!({"type": "object", "x-kubernetes-map-type": "granular",
                "additionalProperties": {"type": "array", "items": {"type": "integer", "format": "int32"}}}),
            json!({"a": [1, 2], "b": []}),
        ),
        ("nothing", json!({"type": "string", "nullable": true}), Value::Null),
        ("chosen", json!({"type": "string", "enum": ["", "a", "b"]}), json!("")),
        ("when", json!({"type": "string", "format": "date-time"}), json!("2026-11-16T09:00:00Z")),
        ("bytes", json!({"type": "string", "format": "byte"}), json!("aGVsbG8=")),
        (
            "one",
            json!({"type": "object", "properties": {"a": text, "b": text},
                "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            json!({"b": "only"}),
        ),
        (
            "not",
            json!({"type": "integer", "not": {"minimum": 10, "maximum": 20}, "allOf": [{"multipleOf": 5}]}),
            json!(25),
        ),
        (
            "ruled",
            json!({"type": "object", "properties": {"n": {"type": "integer"}},
                "x-kubernetes-validations": [{"rule": "self.n >= 0", "message": "no"}]}),
            json!({"n": 1}),
        ),
    ]
}

/// A schema that nests `depth` times, alternately in objects, lists and maps, and an object that fills it.
fn nested(depth: usize) -> (Value, Value) {
    if depth == 0 {
        let (mut properties, mut object) = (json!({}), json!({}));
        for (name, schema, value) in oddities() {
            properties[name] = schema;
            object[name] = value;
        }
        return (json!({"type": "object", "properties": properties}), object);
    }
    let (schema, object) = nested(depth - 1);
    let described = "Where it goes on, described as generators describe it, at length and in every place.";
    match depth % 3 {
        0 => (
            json!({"type": "object", "description": described, "required": ["inner"],
                "properties": {"inner": schema, "mode": {"type": "string", "default": format!("at {depth}")}}}),
            json!({"inner": object, "mode": format!("at {depth}")}),
        ),
        1 => (
            json!({"type": "array", "description": described, "maxItems": 9, "items": schema}),
            json!([object]),
        ),
        _ => (
            json!({"type": "object", "description": described, "maxProperties": 9, "additionalProperties": schema}),
            json!({"some.key/x": object}),
        ),
    }
}

/// A definition of about this many bytes, and an object with all its fields.
fn monster(n_bytes: usize) -> (Value, Value) {
    let (deep, value) = nested(21);
    let (mut properties, mut spec) = (json!({"deep": deep}), json!({"deep": value}));
    let description = "What this field means, in which case it is set, and by whom. ".repeat(8);
    let mut size = properties.to_string().len();
    for number in 0.. {
        if size > n_bytes {
            break;
        }
        let name = format!("section{number}");
        let fields: meta::Map = (0..20)
            .map(|n| {
                (format!("field{n}"), json!({"type": "string", "description": description, "maxLength": 64}))
            })
            .collect();
        let section = json!({"type": "object", "description": description, "properties": fields});
        size += section.to_string().len() + name.len() + 4;
        properties[&name] = section;
        if number % 10 == 0 {
            spec[&name] = json!({"field3": "x", "field19": "y"});
        }
    }
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": properties},
        "status": {"type": "object", "default": {"observedGeneration": -1},
            "properties": {"observedGeneration": {"type": "integer", "format": "int64"}}}}});
    let version = json!({"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema}});
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "monsters.big.example"},
        "spec": {"group": "big.example", "scope": "Namespaced",
            "names": {"plural": "monsters", "kind": "Monster"}, "versions": [version]}});
    let object =
        json!({"apiVersion": "big.example/v1", "kind": "Monster", "metadata": {"name": "one"}, "spec": spec});
    (crd, object)
}

#[tokio::test]
async fn a_definition_of_a_megabyte_and_a_half_installs_and_its_objects_round_trip() {
    let (crd, object) = monster(1_450_000);
    let n_bytes = crd.to_string().len();
    assert!(n_bytes > 1_450_000 && n_bytes < 1_572_864, "{n_bytes}");
    let server = TestServer::start().await;
    let installed = establish(&server, crd.clone()).await;
    assert_eq!(installed["spec"]["versions"], crd["spec"]["versions"]);

    let path = format!("{MONSTERS}?fieldValidation=Strict");
    let made = server.post(&path, object.clone()).await.expect(201).json();
    assert_eq!(made["spec"], object["spec"]);
    assert_eq!(made["status"], json!({"observedGeneration": -1}));
    let one = format!("{MONSTERS}/one");
    let read = server.get(&one).await.expect(200).json();
    assert_eq!(read, made);
    let replaced = server.ask("PUT", &one, read.clone()).await.expect(200).json();
    assert_eq!(replaced, read, "nothing changed, so nothing is written");
    assert_eq!(server.get(MONSTERS).await.expect(200).json()["items"][0]["spec"], object["spec"]);

    let headers = [("authorization", "Bearer admintoken"), ("content-type", "application/apply-patch+yaml")];
    let applied = server.send("PATCH", &format!("{one}?fieldManager=me"), &headers, object.clone()).await;
    assert_eq!(applied.expect(200).json()["spec"], object["spec"]);

    // The definition itself is read, changed and applied as any other object.
    let relabelled =
        server.patch(CRD, "merge", json!({"metadata": {"labels": {"a": "b"}}})).await.expect(200);
    assert_eq!(relabelled.json()["spec"], installed["spec"]);
    let index = server.get("/openapi/v3").await.expect(200).json();
    let url = index["paths"]["apis/big.example/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let document = server.get(&url).await.expect(200).json();
    let shown = &document["components"]["schemas"]["example.big.v1.Monster"]["properties"]["spec"];
    assert_eq!(shown["properties"]["section7"]["properties"]["field3"]["maxLength"], 64);
}

#[tokio::test]
async fn what_is_wrong_deep_inside_is_told_with_its_path() {
    let (crd, mut object) = monster(20_000);
    let server = TestServer::start().await;
    establish(&server, crd).await;
    let mut place = &mut object["spec"]["deep"];
    let mut path = "spec.deep".to_owned();
    for depth in (1..=21).rev() {
        let (next, step) = match depth % 3 {
            0 => (&mut place["inner"], ".inner"),
            1 => (&mut place[0], "[0]"),
            _ => (&mut place["some.key/x"], ".some.key/x"),
        };
        place = next;
        path.push_str(step);
    }
    place["chosen"] = json!("c");
    let refused = server.post(MONSTERS, object).await.expect(422);
    let want = format!("{path}.chosen: Unsupported value: \"c\": supported values: \"\", \"a\", \"b\"");
    assert!(refused.message().contains(&want), "{want}\n{}", refused.message());
}

/// What is dropped from a new object and has a default is there when it is read, in every version.
#[tokio::test]
async fn a_status_by_default_is_shown_in_every_version() {
    let (mut crd, mut object) = monster(20_000);
    let mut other = crd["spec"]["versions"][0].clone();
    other["name"] = json!("v2");
    other["storage"] = json!(false);
    crd["spec"]["versions"].as_array_mut().unwrap().push(other);
    let server = TestServer::start().await;
    establish(&server, crd).await;
    for (name, version) in [("one", "v1"), ("two", "v2")] {
        object["metadata"]["name"] = json!(name);
        object["apiVersion"] = json!(format!("big.example/{version}"));
        let path = MONSTERS.replace("v1", version);
        let made = server.post(&path, object.clone()).await.expect(201).json();
        assert_eq!(made["status"], json!({"observedGeneration": -1}), "{version}");
        let replaced = server.ask("PUT", &format!("{path}/{name}"), made.clone()).await.expect(200).json();
        assert_eq!(replaced, made, "{version}");
        let shown = server.get(&format!("{MONSTERS}/{name}")).await.expect(200).json();
        assert_eq!(shown["status"], json!({"observedGeneration": -1}), "{version}");
    }
}

/// The definition moved on, and an object is stored in a version that this server has not heard of.
#[tokio::test]
async fn a_server_whose_definitions_lag_behind_brings_them_up_to_the_object() {
    let store = SharedStore::new(MemoryStore::new(SystemClock::shared()));
    let ahead = TestServer::start_on(store.clone(), Release::v1(36), |_| {}).await;
    let (crd, mut object) = monster(20_000);
    establish(&ahead, crd.clone()).await;
    let behind = registry_without_follower(store).await;
    let patch = json!([
        {"op": "replace", "path": "/spec/versions/0/storage", "value": false},
        {"op": "add", "path": "/spec/versions/-", "value": crd["spec"]["versions"][0]},
        {"op": "replace", "path": "/spec/versions/1/name", "value": "v2"},
    ]);
    ahead.patch(CRD, "json", patch).await.expect(200);
    object["apiVersion"] = json!("big.example/v2");
    // The definition is in force where the object can be written in its new version.
    let path = MONSTERS.replace("v1", "v2");
    while ahead.get(&path).await.code == 404 {
        tokio::task::yield_now().await;
    }
    ahead.post(&path, object.clone()).await.expect(201);

    let resource = GroupResource::new("big.example", "monsters");
    let kind = behind.kinds().get(&resource).unwrap();
    assert_eq!(kind.definition.versions.len(), 1, "nobody has told this one of v2");
    let target = registry::Target {
        kind,
        group_version: GroupVersion::new("big.example", "v1"),
        namespace: "default".to_owned(),
        name: "one".to_owned(),
        subresource: String::new(),
    };
    let text = behind.get(&target, "").await.unwrap();
    let shown: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!((&shown["apiVersion"], &shown["spec"]), (&json!("big.example/v1"), &object["spec"]));
    assert_eq!(behind.kinds().get(&resource).unwrap().definition.versions.len(), 2);
}

/// All verbs, but nobody follows definitions.
async fn registry_without_follower(store: SharedStore) -> Arc<registry::Registry> {
    let release = Release::v1(36);
    let gates = catalog::FeatureGates::defaults(release);
    let catalog = catalog::Catalog::new(release, &catalog::RuntimeConfig::default(), &gates).unwrap();
    let clock = SystemClock::shared();
    let specs = registry::Kinds::collections(&catalog);
    let cache = cache::Cache::start(store.clone(), clock.clone(), cache::CacheConfig::default(), specs);
    let cache = cache.await.unwrap();
    let kinds = registry::Kinds::new(&catalog, &cache);
    let config = station::Config {
        identity: Identity::of_host("behind"),
        incarnation: Incarnation::new("behind".to_owned()),
        fresh_cluster: fleet::ClusterId::new("behind"),
        release,
        emulated: release,
        min_compatible: release,
        peer_address: None,
        features: BTreeMap::new(),
        resources: Vec::new(),
        offer: Arc::default(),
        wanted: fleet::cluster::Wanted::default(),
        lease: std::time::Duration::from_secs(15),
        settle: std::time::Duration::from_secs(15),
        allowed: Vec::new(),
        is_exclusive: false,
        collects: false,
        mirrors: "/registry/internal.apiserver.k8s.io/storageversions/".to_owned(),
    };
    let station = station::Station::new(config, store.clone(), clock.clone());
    let config = registry::RegistryConfig {
        event_ttl: std::time::Duration::from_secs(3600),
        allow_unenforced_policies: false,
        namespace_lifecycle: true,
    };
    let registry = registry::Registry::new(kinds, store, cache, station, clock, config);
    let registry = Arc::new(registry);
    drop(registry.load_definitions().await.unwrap());
    registry
}
