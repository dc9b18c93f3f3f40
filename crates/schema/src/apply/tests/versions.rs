//! Owners that wrote in other versions, versions that are gone, and schemas that changed.

use serde_json::{Value, json};

use super::fixture::{Things, managers, owned};
use crate::apply::Versions;

fn v1(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "s", "uid": "u"}, "data": data})
}

#[test]
fn ownership_follows_the_object_through_versions() {
    let things = Things::new();
    let live = things.by("one").created(&v1(&json!({"a": "1", "b": "1"})));
    let live = things.convert(&live, "v2").unwrap();
    let two = things.by("two").version("v2");
    let config = json!({"metadata": {"name": "s"}, "values": {"a": "2"}});
    let error = two.apply(&live, &config, false).unwrap_err().to_string();
    assert_eq!(error, "Apply failed with 1 conflict: conflict with \"one\" using v1: .data.a");
    let live = two.forced(&live, &config);
    assert_eq!(owned(&live, "one"), json!({"f:data": {".": {}, "f:b": {}}}));
    assert_eq!(owned(&live, "two"), json!({"f:values": {"f:a": {}}}));
    // The same manager applies in the other version: what it applied before is still its own.
    let live = things.convert(&live, "v1").unwrap();
    let live = things.by("two").applied(&live, &json!({"metadata": {"name": "s"}, "data": {"c": "3"}}));
    assert_eq!(live["data"], json!({"b": "1", "c": "3"}));
    assert_eq!(owned(&live, "two"), json!({"f:data": {"f:c": {}}}));
    assert_eq!(managers(&live).len(), 2);
}

#[test]
fn an_update_in_another_version_has_an_entry_of_its_own() {
    let things = Things::new();
    let live = things.by("one").created(&v1(&json!({"a": "1", "b": "1"})));
    let live = things.convert(&live, "v2").unwrap();
    let live = things.by("one").version("v2").patched(&live, &json!({"values": {"a": "2"}}));
    let entries = managers(&live);
    let sets: Vec<_> = entries.values().map(|it| (it.api_version.as_str(), it.set.to_fields_v1())).collect();
    assert_eq!(
        sets,
        [("v1", json!({"f:data": {".": {}, "f:b": {}}})), ("v2", json!({"f:values": {"f:a": {}}}))]
    );
}

#[test]
fn entries_in_versions_that_are_gone_are_dropped() {
    let things = Things::new();
    let mut live = things.by("one").created(&v1(&json!({"a": "1"})));
    let entry = |version: &str| {
        json!({
            "manager": "old", "operation": "Update", "apiVersion": version, "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:a": {}}}
        })
    };
    live["metadata"]["managedFields"].as_array_mut().unwrap().push(entry("v0"));
    let new = things.by("two").applied(&live, &json!({"data": {"b": "1"}}));
    assert_eq!(owned(&new, "old"), Value::Null);
    assert_eq!(managers(&new).len(), 2);
    // One that exists, but that the object cannot be converted to, is an error: nothing is lost.
    live["metadata"]["managedFields"].as_array_mut().unwrap().push(entry("v3"));
    let error = things.by("two").apply(&live, &json!({"data": {"b": "1"}}), false).unwrap_err().status();
    assert_eq!(error.code, 500);
}

#[test]
fn who_owned_parts_owns_the_whole_once_it_is_atomic() {
    let things = Things::new();
    let mut live = things.by("one").created(&json!({
        "apiVersion": "v1", "kind": "Thing", "metadata": {"uid": "u"},
        "spec": {"selector": {"matchLabels": {"a": "1"}}, "containers": [{"name": "c", "args": ["x"]}]}
    }));
    live["metadata"]["managedFields"][0]["fieldsV1"] = json!({"f:spec": {
        "f:selector": {"f:matchLabels": {"f:a": {}}},
        "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:args": {"v:\"x\"": {}}}}
    }});
    let new = things.by("two").patched(&live, &json!({"data": {"x": "1"}}));
    assert_eq!(
        owned(&new, "one"),
        json!({"f:spec": {
            "f:selector": {},
            "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:args": {}}}
        }})
    );
}
