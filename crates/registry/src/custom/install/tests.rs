//! Installing definitions out of order.

use cache::CacheConfig;
use catalog::{Catalog, FeatureGates, RuntimeConfig};
use meta::Release;
use serde_json::json;
use store::{Key, MemoryStore, SharedStore, Store, SystemClock, Txn};

use super::*;

/// A definition that lets clients select by this field.
fn definition(field: &str) -> Vec<u8> {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com", "uid": "1"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "a": {"type": "string"}, "b": {"type": "string"},
                }}},
                "selectableFields": [{"jsonPath": format!(".{field}")}],
            }],
        },
    });
    serde_json::to_vec(&definition).unwrap()
}

/// Whoever read a definition before it was changed may come to install it after that.
#[tokio::test]
async fn an_older_definition_does_not_replace_a_newer_one() {
    let store = SharedStore::new(MemoryStore::new(SystemClock::shared()));
    let release = Release::v1(36);
    let gates = FeatureGates::parse("", release).unwrap();
    let catalog = Catalog::new(release, &RuntimeConfig::default(), &gates).unwrap();
    let specs = Kinds::collections(&catalog);
    let cache =
        Cache::start(store.clone(), SystemClock::shared(), CacheConfig::default(), specs).await.unwrap();
    let installer = Installer {
        kinds: Arc::new(Kinds::new(&catalog, &cache)),
        cache: cache.clone(),
        clock: SystemClock::shared(),
        awaited: Mutex::default(),
    };
    let key = Key::new("/registry/apiextensions.k8s.io/customresourcedefinitions/things.example.com");
    let mut items = Vec::new();
    for field in ["a", "b"] {
        store.commit(Txn::new().put(&key, definition(field).into())).await.unwrap();
        cache.catch_up().await.unwrap();
        items.push(installer.definitions().unwrap().get(key.as_str()).unwrap().unwrap());
    }
    let newer = installer.install(&items[1]).await.unwrap().unwrap();
    let found = installer.install(&items[0]).await.unwrap().unwrap();
    assert_eq!(found.custom.as_ref().unwrap().stored.revision(), items[1].revision());
    let prefix = newer.collection().unwrap().spec().prefix.clone();
    let live = cache.collection(&prefix).unwrap();
    assert!(Arc::ptr_eq(&live, newer.collection().unwrap()), "its collection is open");
}
