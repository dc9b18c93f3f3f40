//! Strategic merge patches: upstream's rules one by one, its complaints, its order, and hostile patches.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    json::any_value,
    model::{Field, ListKind, ListType, MapType, ObjectType, Scalar},
    patch::{PatchKind, apply_typed},
};

/// A small pod: containers by name, finalizers by value, args and labels plain.
fn pod() -> (Schema, TypeId) {
    let mut schema = Schema::new();
    let text = schema.add(Type::Scalar(Scalar::String));
    let number = schema.add(Type::Scalar(Scalar::Int64));
    let texts = schema.add(Type::List(ListType { element: text, kind: ListKind::Atomic, is_wrapped: false }));
    let labels = schema.add(Type::Map(MapType { value: text, is_atomic: false }));
    let ports = {
        let port = ObjectType::new("Port", vec![Field::new("port", number), Field::new("name", text)]);
        let port = schema.add(Type::Object(port));
        schema.add(Type::List(ListType { element: port, kind: ListKind::Atomic, is_wrapped: false }))
    };
    let mut merged_ports = Field::new("ports", ports);
    merged_ports.patch = merged(Some("port"));
    let container = ObjectType::new(
        "Container",
        vec![Field::new("name", text), Field::new("image", text), Field::new("args", texts), merged_ports],
    );
    let container = schema.add(Type::Object(container));
    let containers =
        schema.add(Type::List(ListType { element: container, kind: ListKind::Atomic, is_wrapped: false }));
    let mut merged_containers = Field::new("containers", containers);
    merged_containers.patch = merged(Some("name"));
    let mut finalizers = Field::new("finalizers", texts);
    finalizers.patch = merged(None);
    let strategy = ObjectType::new("Strategy", vec![Field::new("type", text), Field::new("rolling", labels)]);
    let strategy = schema.add(Type::Object(strategy));
    let mut strategy = Field::new("strategy", strategy);
    strategy.patch.retains_keys = true;
    let pod = ObjectType::new(
        "Pod",
        vec![merged_containers, finalizers, Field::new("labels", labels), strategy, Field::new("n", number)],
    );
    let pod = schema.add(Type::Object(pod));
    (schema, pod)
}

fn merged(key: Option<&str>) -> PatchStrategy {
    PatchStrategy { is_merged: true, merge_key: key.map(Arc::from), ..PatchStrategy::default() }
}

fn patched(patch: &Value, original: &Value) -> Result<Value, PatchError> {
    let (schema, ty) = pod();
    apply(&schema, ty, patch, original)
}

fn names(object: &Value) -> Vec<String> {
    let items = object["containers"].as_array().cloned().unwrap_or_default();
    items.iter().map(|it| it["name"].as_str().unwrap_or_default().to_owned()).collect()
}

fn containers(names: &[&str]) -> Value {
    json!({"containers": names.iter().map(|it| json!({"name": it, "image": "i", "args": ["a"]})).collect::<Vec<_>>()})
}

#[test]
fn lists_with_a_merge_key_are_merged_by_it() {
    let patch = json!({"containers": [{"name": "b", "image": "new"}, {"name": "c", "image": "x"}]});
    let result = patched(&patch, &containers(&["a", "b"])).unwrap();
    assert_eq!(
        result["containers"],
        json!([
            {"name": "a", "image": "i", "args": ["a"]},
            {"name": "b", "image": "new", "args": ["a"]},
            {"name": "c", "image": "x"}
        ])
    );
}

#[test]
fn lists_without_strategy_and_unknown_fields_are_replaced() {
    let patch =
        json!({"containers": [{"name": "a", "args": ["b", "c"]}], "unknown": {"list": [1], "map": {"b": 2}}});
    let original = json!({
        "containers": [{"name": "a", "args": ["a"]}], "unknown": {"list": [2, 3], "map": {"a": 1}, "kept": true}
    });
    let result = patched(&patch, &original).unwrap();
    assert_eq!(result["containers"][0]["args"], json!(["b", "c"]));
    assert_eq!(result["unknown"], json!({"list": [1], "map": {"a": 1, "b": 2}, "kept": true}));
}

#[test]
fn nested_lists_are_merged_by_their_own_key() {
    let original =
        json!({"containers": [{"name": "a", "ports": [{"port": 80, "name": "x"}, {"port": 443}]}]});
    let patch = json!({"containers": [{"name": "a", "ports": [{"port": 80, "name": "y"}]}]});
    let result = patched(&patch, &original).unwrap();
    assert_eq!(result["containers"][0]["ports"], json!([{"port": 80, "name": "y"}, {"port": 443}]));
}

#[test]
fn null_removes_and_is_never_kept() {
    let original = json!({"labels": {"a": "1", "b": "2"}, "n": 1});
    let patch =
        json!({"labels": {"a": null, "absent": null}, "n": null, "strategy": {"type": "x", "rolling": null}});
    let result = patched(&patch, &original).unwrap();
    assert_eq!(result, json!({"labels": {"b": "2"}, "strategy": {"type": "x"}}));
}

#[test]
fn directives_replace_and_delete_maps() {
    let original = json!({"labels": {"a": "1"}, "strategy": {"type": "x", "rolling": {"a": "1"}}});
    let replace = json!({"labels": {"$patch": "replace", "b": "2"}});
    assert_eq!(patched(&replace, &original).unwrap()["labels"], json!({"b": "2"}));
    let delete = json!({"strategy": {"$patch": "delete"}});
    assert_eq!(patched(&delete, &original).unwrap()["strategy"], json!({}));
    let whole = json!({"$patch": "replace", "n": 1});
    assert_eq!(patched(&whole, &original).unwrap(), json!({"n": 1}));
    let absent = json!({"gone": {"$patch": "delete", "x": 1}, "made": {"$retainKeys": ["x"], "x": 1}});
    assert_eq!(patched(&absent, &json!({})).unwrap(), json!({"made": {"x": 1}}));
}

#[test]
fn directives_delete_and_replace_elements() {
    let original = containers(&["a", "b", "c"]);
    let delete = json!({"containers": [{"name": "b", "$patch": "delete"}, {"name": "d"}]});
    assert_eq!(names(&patched(&delete, &original).unwrap()), ["d", "a", "c"]);
    let replace = json!({"containers": [{"$patch": "replace"}, {"name": "z"}]});
    assert_eq!(patched(&replace, &original).unwrap()["containers"], json!([{"name": "z"}]));
}

#[test]
fn primitive_lists_are_joined_and_deleted_from() {
    let original = json!({"finalizers": ["a", "b"]});
    let add = json!({"finalizers": ["b", "c"]});
    assert_eq!(patched(&add, &original).unwrap()["finalizers"], json!(["a", "b", "c"]));
    let delete = json!({"$deleteFromPrimitiveList/finalizers": ["a", "x"]});
    assert_eq!(patched(&delete, &original).unwrap()["finalizers"], json!(["b"]));
    assert_eq!(patched(&delete, &json!({})).unwrap(), json!({}));
}

#[test]
fn an_order_of_elements_is_obeyed() {
    let original = containers(&["a", "b", "c"]);
    let order = |names: &[&str]| names.iter().map(|it| json!({"name": it})).collect::<Vec<_>>();
    let patch = json!({
        "$setElementOrder/containers": order(&["c", "new", "a"]), "containers": [{"name": "new"}]
    });
    assert_eq!(names(&patched(&patch, &original).unwrap()), ["b", "c", "new", "a"]);
    let only_order = json!({"$setElementOrder/containers": order(&["c", "b", "a"])});
    assert_eq!(names(&patched(&only_order, &original).unwrap()), ["c", "b", "a"]);
    let primitives = json!({"$setElementOrder/finalizers": ["z", "b"], "finalizers": ["z"]});
    let result = patched(&primitives, &json!({"finalizers": ["a", "b"]})).unwrap();
    assert_eq!(result["finalizers"], json!(["z", "a", "b"]));
}

#[test]
fn retain_keys_clears_what_it_does_not_name() {
    let original = json!({"strategy": {"type": "Rolling", "rolling": {"a": "1"}}});
    let patch = json!({"strategy": {"$retainKeys": ["type"], "type": "Recreate"}});
    assert_eq!(patched(&patch, &original).unwrap()["strategy"], json!({"type": "Recreate"}));
    let bad = json!({"strategy": {"$retainKeys": ["rolling"], "type": "Recreate"}});
    let error = patched(&bad, &original).unwrap_err();
    assert_eq!(
        (error.status().code, error.to_string().as_str()),
        (400, "invalid patch format of retainKeys")
    );
}

#[test]
fn complaints_are_upstreams() {
    let original = containers(&["a"]);
    for (patch, code, message) in [
        (
            json!({"containers": [{"image": "x"}]}),
            500,
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (
            json!({"containers": [{"image": "x", "$patch": "delete"}]}),
            500,
            "map: map[$patch:delete image:x] does not contain declared merge key: name",
        ),
        (json!({"labels": {"$patch": "odd"}}), 500, "unknown patch type: odd in map: map[$patch:odd]"),
        (
            json!({"containers": [{"$patch": "merge"}]}),
            500,
            "merging lists cannot yet be specified in the patch",
        ),
        (
            json!({"$setElementOrder/containers": "x"}),
            500,
            "expected a []interface {}, but received a string",
        ),
        (json!({"$setElementOrder": []}), 400, "invalid patch format of setElementOrder list"),
        (json!({"$deleteFromPrimitiveList": ["x"]}), 400, "invalid patch format of primitive list"),
        (json!({"containers": [[1]]}), 422, "lists of lists are not supported"),
        (
            json!({"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "b"}]}),
            500,
            "The order in patch list:\n[map[name:b]]\n doesn't match $setElementOrder list:\n[map[name:a]]\n",
        ),
    ] {
        let original = json!({"containers": original["containers"], "labels": {"a": "1"}});
        let error = patched(&patch, &original).unwrap_err();
        assert_eq!((error.status().code, error.to_string().as_str()), (code, message), "{patch}");
    }
}

#[test]
fn the_body_must_be_an_object_and_the_type_known() {
    let (schema, ty) = pod();
    let apply = |body: &str, ty| apply_typed(PatchKind::Strategic, body.as_bytes(), &json!({}), ty);
    assert!(matches!(apply("[]", Some((&schema, ty))), Err(PatchError::Malformed(_))));
    assert!(matches!(apply("{", Some((&schema, ty))), Err(PatchError::Malformed(_))));
    assert!(matches!(apply("{}", None), Err(PatchError::Unsupported(_))));
    assert_eq!(apply("{\"n\":1}", Some((&schema, ty))).unwrap(), json!({"n": 1}));
}

#[test]
fn long_lists_take_time_in_proportion() {
    let long: Vec<Value> = (0..40_000).map(|it| json!({"name": format!("n{it}")})).collect();
    let reversed: Vec<Value> = long.iter().rev().cloned().collect();
    let patch = json!({"containers": reversed, "$setElementOrder/containers": reversed});
    let result = patched(&patch, &json!({"containers": long})).unwrap();
    assert_eq!(result["containers"], json!(reversed));
}

/// Values with the names that mean something to patches.
fn any_patch() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i8>().prop_map(Value::from),
        prop::sample::select(vec!["a", "b", "delete", "replace", "merge"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        let key = prop::sample::select(vec![
            "containers",
            "finalizers",
            "labels",
            "strategy",
            "name",
            "ports",
            "port",
            "args",
            "$patch",
            "$retainKeys",
            "$setElementOrder/containers",
            "$setElementOrder/finalizers",
            "$deleteFromPrimitiveList/finalizers",
            "n",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..5)
                .prop_map(|it| Value::Object(it.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hostile_patches_never_panic(patch in any_patch(), original in any_patch()) {
        let _ = patched(&patch, &original);
        if original.is_object() {
            prop_assert_eq!(patched(&json!({}), &original).unwrap(), original);
        }
    }

    #[test]
    fn any_tree_may_be_a_patch(patch in any_value(), original in any_value()) {
        let _ = patched(&patch, &original);
    }

    /// What a patch says is what the object then has, if there are no directives.
    #[test]
    fn a_plain_patch_applied_twice_changes_nothing_more(
        names in prop::collection::vec("[a-e]", 0..5), old in prop::collection::vec("[a-e]", 0..5), image in "[x-z]"
    ) {
        let unique = |names: &[String]| {
            let mut seen = std::collections::HashSet::new();
            names.iter().filter(|it| seen.insert((*it).clone())).cloned().collect::<Vec<_>>()
        };
        let (names, old) = (unique(&names), unique(&old));
        let patch = json!({"containers": names.iter().map(|it| json!({"name": it, "image": image})).collect::<Vec<_>>()});
        let original = json!({"containers": old.iter().map(|it| json!({"name": it, "args": ["a"]})).collect::<Vec<_>>()});
        let once = patched(&patch, &original).unwrap();
        prop_assert_eq!(&patched(&patch, &once).unwrap(), &once);
        let kept: Vec<_> = self::names(&once).into_iter().filter(|it| names.contains(it)).collect();
        prop_assert_eq!(kept, names);
    }
}
