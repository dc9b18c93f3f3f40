//! Patches: upstream's behaviour, the laws of both kinds, and bombs.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn json_patch(patch: &Value, original: &Value) -> Result<Value, PatchError> {
    apply(PatchKind::Json, &json::to_vec(patch), original)
}

fn merge_patch(patch: &Value, original: &Value) -> Value {
    apply(PatchKind::Merge, &json::to_vec(patch), original).unwrap()
}

fn object() -> Value {
    json!({"data": {"k": "v", "n": null}, "list": [1, 2, 3], "a/b": {"c~d": 1}})
}

#[test]
fn operations_change_what_they_name() {
    for (patch, path, expect) in [
        (
            json!([{"op": "add", "path": "/data/x", "value": "1"}]),
            "/data",
            json!({"k": "v", "n": null, "x": "1"}),
        ),
        (json!([{"op": "add", "path": "/list/1", "value": 9}]), "/list", json!([1, 9, 2, 3])),
        (json!([{"op": "add", "path": "/list/-", "value": 9}]), "/list", json!([1, 2, 3, 9])),
        (json!([{"op": "add", "path": "/list/3", "value": 9}]), "/list", json!([1, 2, 3, 9])),
        (json!([{"op": "remove", "path": "/list/0"}]), "/list", json!([2, 3])),
        (json!([{"op": "replace", "path": "/data/k", "value": {}}]), "/data/k", json!({})),
        (json!([{"op": "move", "from": "/list/0", "path": "/list/-"}]), "/list", json!([2, 3, 1])),
        (
            json!([{"op": "copy", "from": "/data", "path": "/list/0"}]),
            "/list/0",
            json!({"k": "v", "n": null}),
        ),
        (json!([{"op": "remove", "path": "/a~1b/c~0d"}]), "/a~1b", json!({})),
        (json!([{"op": "test", "path": "/list", "value": [1, 2, 3]}]), "/list", json!([1, 2, 3])),
        (json!([]), "/list", json!([1, 2, 3])),
        (json!(null), "/list", json!([1, 2, 3])),
    ] {
        let patched = json_patch(&patch, &object()).unwrap();
        assert_eq!(patched.pointer(path), Some(&expect), "{patch}");
    }
    let root = json!([{"op": "test", "path": "", "value": object()}, {"op": "replace", "path": "", "value": {"x": 1}}]);
    assert_eq!(json_patch(&root, &object()).unwrap(), json!({"x": 1}));
}

#[test]
fn oddities_of_upstreams_library_are_kept() {
    for (patch, path, expect) in [
        (json!([{"op": "add", "path": "/list/-1", "value": 9}]), "/list", json!([1, 2, 3, 9])),
        (json!([{"op": "remove", "path": "/list/-1"}]), "/list", json!([1, 2])),
        (json!([{"op": "replace", "path": "/list/-3", "value": 9}]), "/list", json!([9, 2, 3])),
        (json!([{"op": "test", "path": "/data/absent", "value": null}]), "/list/0", json!(1)),
        (json!([{"op": "test", "path": "/data/absent"}]), "/list/0", json!(1)),
        (json!([{"op": "replace", "path": "/data/new", "value": 1}]), "/data/new", json!(1)),
        (json!([{"op": "copy", "from": "/data/absent", "path": "/data/new"}]), "/data/new", json!(null)),
        (json!([{"op": "add", "path": "/data/new"}]), "/data/new", json!(null)),
        (json!([{"op": "add", "path": "ignored/new", "value": 1}]), "/new", json!(1)),
    ] {
        let patched = json_patch(&patch, &object()).unwrap();
        assert_eq!(patched.pointer(path), Some(&expect), "{patch}");
    }
}

#[test]
fn a_patch_that_does_not_fit_is_rejected_without_words() {
    for patch in [
        json!([{"op": "test", "path": "/data/k", "value": "2"}]),
        json!([{"op": "test", "path": "/data/k"}]),
        json!([{"op": "remove", "path": "/data/zz"}]),
        json!([{"op": "nope", "path": "/x"}]),
        json!([{"path": "/x"}]),
        json!([null]),
        json!([{"op": "add", "value": 1}]),
        json!([{"op": "add", "path": "", "value": {}}]),
        json!([{"op": "replace", "path": "", "value": 1}]),
        json!([{"op": "add", "path": "/none/x", "value": 1}]),
        json!([{"op": "add", "path": "/data/n/x", "value": 1}]),
        json!([{"op": "add", "path": "/data/k/x", "value": 1}]),
        json!([{"op": "add", "path": "/list/5", "value": 1}]),
        json!([{"op": "add", "path": "/list/-5", "value": 1}]),
        json!([{"op": "add", "path": "/list/x", "value": 1}]),
        json!([{"op": "remove", "path": "/list/-"}]),
        json!([{"op": "remove", "path": "/list/99999999999999999999"}]),
        json!([{"op": "remove", "path": "/list/-9223372036854775808"}]),
        json!([{"op": "move", "from": "/data", "path": "/data/x"}]),
        json!([{"op": "copy", "from": "/list/9", "path": "/x"}]),
        json!([{"op": "add", "path": "/x".repeat(1000), "value": 1}]),
    ] {
        let error = json_patch(&patch, &object()).unwrap_err();
        assert!(matches!(error, PatchError::Rejected(_)), "{patch}: {error:?}");
        let status = error.status();
        assert_eq!(status.message, "the server rejected our request due to an error in our request");
        assert_eq!((status.code, status.reason), (422, Reason::Invalid));
    }
}

#[test]
fn bodies_that_are_no_patches_are_bad_requests() {
    for (kind, body, expect) in [
        (
            PatchKind::Json,
            r#"{"op":"add"}"#,
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        (
            PatchKind::Json,
            "[5]",
            "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
        ),
        (
            PatchKind::Json,
            r#"[{"op":5}]"#,
            "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
        ),
        (PatchKind::Json, "[", "error decoding patch: unexpected end of JSON input"),
        (
            PatchKind::Merge,
            "[]",
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (PatchKind::Merge, "null", "Invalid JSON Patch"),
        (PatchKind::Merge, "{", "error decoding patch: unexpected end of JSON input"),
    ] {
        let status = apply(kind, body.as_bytes(), &object()).unwrap_err().status();
        assert_eq!((status.code, status.message.as_str()), (400, expect), "{body}");
    }
    assert_eq!(apply(PatchKind::Apply, b"{}", &object()).unwrap_err().status().code, 415);
}

#[test]
fn too_many_operations_are_too_large() {
    let patch = Value::Array(vec![json!({"op": "test", "path": "/x"}); MAX_OPERATIONS + 1]);
    let status = json_patch(&patch, &object()).unwrap_err().status();
    assert_eq!(status.code, 413);
    assert_eq!(
        status.message,
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    );
    let allowed = Value::Array(vec![json!({"op": "test", "path": "/x"}); MAX_OPERATIONS]);
    assert_eq!(json_patch(&allowed, &object()).unwrap(), object());
}

#[test]
fn copies_cannot_double_without_end() {
    let mut patch = vec![json!({"op": "add", "path": "/b", "value": ["x".repeat(1000)]})];
    for _ in 0..100 {
        patch.push(json!({"op": "copy", "from": "/b", "path": "/c"}));
        patch.push(json!({"op": "move", "from": "/c", "path": "/b/-"}));
    }
    let error = json_patch(&Value::Array(patch), &object()).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("Unable to complete the copy, the accumulated size increase of copy is "),
        "{error}"
    );
    let small = json!({"s": vec![json!({"": 0}); 60_000]});
    let patch = json!([
        {"op": "copy", "from": "/s", "path": "/1"}, {"op": "copy", "from": "/s", "path": "/2"},
        {"op": "copy", "from": "/s", "path": "/3"}
    ]);
    assert!(matches!(json_patch(&patch, &small), Err(PatchError::TooExpensive(_))));
}

#[test]
fn patches_cannot_nest_without_end() {
    // Each round makes the tree twice as deep.
    let mut patch = vec![json!({"op": "add", "path": "/d", "value": {"x": {"x": {}}}})];
    for n in 2..12 {
        let bottom = format!("/d{}", "/x".repeat(n));
        patch.push(json!({"op": "copy", "from": "/d", "path": bottom}));
    }
    let wide = json_patch(&Value::Array(patch), &object());
    assert!(wide.is_ok());
    let mut deep = vec![json!({"op": "add", "path": "/0", "value": {}})];
    for n in 1..200 {
        deep.push(json!({"op": "add", "path": format!("/{n}", ), "value": {}}));
        deep.push(json!({"op": "move", "from": format!("/{}", n - 1), "path": format!("/{n}/x")}));
    }
    assert!(matches!(json_patch(&Value::Array(deep), &object()), Err(PatchError::TooExpensive(_))));
}

#[test]
fn large_arrays_are_not_shuffled_without_end() {
    let large = json!({"l": vec![0; 500_000]});
    let patch = Value::Array(vec![json!({"op": "move", "from": "/l/0", "path": "/l/-"}); 1000]);
    assert!(matches!(json_patch(&patch, &large), Err(PatchError::TooExpensive(_))));
}

#[test]
fn merge_patches_follow_the_examples_of_the_rfc() {
    for (original, patch, expect) in [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": {"b": "c"}}), json!({"a": [1]}), json!({"a": [1]})),
        (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        // Not the RFC's, but upstream's.
        (json!({}), json!({"a": [{"b": null}, null]}), json!({"a": [{}, null]})),
        (json!({"a": {}}), json!({"a": [{"b": null}]}), json!({"a": [{"b": null}]})),
    ] {
        assert_eq!(merge_patch(&patch, &original), expect, "{original} {patch}");
    }
}

fn any_object() -> impl Strategy<Value = Value> {
    let value = json::any_value();
    prop::collection::btree_map("[a-d]{1,2}", value, 0..6)
        .prop_map(|it| Value::Object(it.into_iter().collect()))
}

/// The merge patch that leads from one object to another.
fn difference(from: &crate::Map, to: &crate::Map) -> Value {
    let mut patch = crate::Map::new();
    for key in from.keys().filter(|it| !to.contains_key(*it)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in to {
        match (from.get(key), value) {
            (Some(before), after) if before == after => {}
            (Some(Value::Object(before)), Value::Object(after)) => {
                patch.insert(key.clone(), difference(before, after));
            }
            _ => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(patch)
}

/// The value with zeros for nulls.
fn filled(value: Value) -> Value {
    match value {
        Value::Null => json!(0),
        Value::Array(items) => items.into_iter().map(filled).collect(),
        Value::Object(map) => map.into_iter().map(|(key, it)| (key, filled(it))).collect(),
        other => other,
    }
}

/// The value with zeros for nulls inside arrays: upstream treats those differently the second time.
fn arrays_filled(value: Value) -> Value {
    match value {
        Value::Array(_) => filled(value),
        Value::Object(map) => map.into_iter().map(|(key, it)| (key, arrays_filled(it))).collect(),
        other => other,
    }
}

proptest! {
    #[test]
    fn an_empty_merge_patch_changes_nothing(original in any_object()) {
        prop_assert_eq!(merge_patch(&json!({}), &original), original);
    }

    #[test]
    fn a_merge_patch_applied_twice_is_applied_once(original in any_object(), patch in any_object()) {
        let patch = arrays_filled(patch);
        let once = merge_patch(&patch, &original);
        prop_assert_eq!(merge_patch(&patch, &once), once);
    }

    #[test]
    fn a_difference_leads_to_its_end(from in any_object(), to in any_object()) {
        let to = filled(to);
        let (a, b) = (from.as_object().unwrap(), to.as_object().unwrap());
        prop_assert_eq!(merge_patch(&difference(a, b), &from), to);
    }

    #[test]
    fn what_is_added_can_be_removed(original in any_object(), key in "[e-h~/]{1,3}", value in json::any_value()) {
        let path = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
        let add = json!({"op": "add", "path": path, "value": value});
        let added = json_patch(&json!([add]), &original).unwrap();
        prop_assert_eq!(added.get(&key), Some(&value));
        let both = json!([add, {"op": "test", "path": path, "value": value}, {"op": "remove", "path": path}]);
        prop_assert_eq!(json_patch(&both, &original).unwrap(), original);
    }

    #[test]
    fn any_operations_apply_or_fail(original in any_object(), operations in prop::collection::vec(any_operation(), 0..12)) {
        if let Ok(patched) = json_patch(&Value::Array(operations), &original) {
            prop_assert_eq!(json::parse(&json::to_vec(&patched), json::Limits::STORED), Ok(patched));
        }
    }
}

fn any_operation() -> impl Strategy<Value = Value> {
    let op = prop::sample::select(vec!["add", "remove", "replace", "move", "copy", "test"]);
    let path = || {
        prop::collection::vec("[a-d0-2\\-]{1,2}", 0..4)
            .prop_map(|it| it.iter().map(|it| format!("/{it}")).collect::<String>())
    };
    (op, path(), path(), json::any_value())
        .prop_map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}))
}
