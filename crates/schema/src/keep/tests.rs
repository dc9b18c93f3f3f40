//! Cases of `keep`.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::model::{MapType, ObjectType, Scalar};

/// A type with a known and an unknown field, itself in a map, in a list with keys and in a list without.
fn schema() -> (Schema, TypeId) {
    let mut schema = Schema::new();
    let text = schema.add(Type::Scalar(Scalar::String));
    let item: Arc<str> = "Item".into();
    let id = schema.reserve(&item);
    let unknown = |name: &str| Field { is_known: false, ..Field::new(name, text) };
    let map = schema.add(Type::Map(MapType { value: id, is_atomic: false }));
    let keyed = ListKind::Map(["name".into()].into());
    let keyed = schema.add(Type::List(ListType { element: id, kind: keyed, is_wrapped: false }));
    let atomic = schema.add(Type::List(ListType { element: id, kind: ListKind::Atomic, is_wrapped: false }));
    let fields = vec![
        Field::new("name", text),
        Field::new("value", text),
        unknown("later"),
        Field::new("child", id),
        Field::new("map", map),
        Field::new("keyed", keyed),
        Field::new("atomic", atomic),
    ];
    schema.define(&item, Type::Object(ObjectType::new("Item", fields)));
    (schema, id)
}

fn check(new: &Value, old: &Value, want: &Value) {
    let (schema, ty) = schema();
    let mut kept = new.clone();
    keep_unknown(&schema, ty, &mut kept, old);
    assert_eq!(kept, *want, "{new} over {old}");
}

#[test]
fn a_field_of_another_release_comes_back_if_its_parent_is_there() {
    check(&json!({"value": "b"}), &json!({"value": "a", "later": "x"}), &json!({"value": "b", "later": "x"}));
    check(&json!({"child": {}}), &json!({"child": {"later": "x"}}), &json!({"child": {"later": "x"}}));
    check(&json!({}), &json!({"child": {"later": "x"}}), &json!({}));
    check(
        &json!({"map": {"a": {}, "c": {}}}),
        &json!({"map": {"a": {"later": "x"}, "b": {"later": "y"}}}),
        &json!({"map": {"a": {"later": "x"}, "c": {}}}),
    );
}

#[test]
fn elements_are_found_by_their_keys() {
    check(
        &json!({"keyed": [{"name": "new"}, {"name": "b", "value": "changed"}]}),
        &json!({"keyed": [{"name": "a", "later": "x"}, {"name": "b", "later": "y"}]}),
        &json!({"keyed": [{"name": "new"}, {"name": "b", "value": "changed", "later": "y"}]}),
    );
}

#[test]
fn a_list_without_keys_must_be_equal_otherwise() {
    let old = json!({"atomic": [{"name": "a", "later": "x"}, {"name": "b"}]});
    check(&json!({"atomic": [{"name": "a"}, {"name": "b"}]}), &old, &old);
    for changed in [json!({"atomic": [{"name": "b"}, {"name": "a"}]}), json!({"atomic": [{"name": "a"}]})] {
        check(&changed, &old, &changed);
    }
}

fn any_item(depth: u32) -> BoxedStrategy<Value> {
    let leaf = (0..3_u8, any::<bool>(), any::<bool>()).prop_map(|(name, has_value, is_later)| {
        let mut map = Map::new();
        map.insert("name".to_owned(), Value::from(format!("n{name}")));
        if has_value {
            map.insert("value".to_owned(), Value::from("v"));
        }
        if is_later {
            map.insert("later".to_owned(), Value::from("x"));
        }
        map
    });
    if depth == 0 {
        return leaf.prop_map(Value::Object).boxed();
    }
    let children = proptest::collection::vec(any_item(depth - 1), 0..4);
    (leaf, children, 0..4_u8)
        .prop_map(|(mut map, children, place)| {
            let pairs = children.iter().enumerate().map(|(at, it)| (format!("k{at}"), it.clone()));
            match place {
                0 => map.insert("map".to_owned(), Value::Object(pairs.collect())),
                1 => map.insert("keyed".to_owned(), Value::Array(children)),
                2 => map.insert("atomic".to_owned(), Value::Array(children)),
                _ => children.into_iter().next().and_then(|it| map.insert("child".to_owned(), it)),
            };
            Value::Object(map)
        })
        .boxed()
}

/// As a client of this release sees and sends it.
fn strip(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let known = map.iter().filter(|(key, _)| *key != "later");
            Value::Object(known.map(|(key, value)| (key.clone(), strip(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(strip).collect()),
        other => other.clone(),
    }
}

/// Elements with the same keys cannot be told apart, so nothing is promised for them.
fn has_twins(value: &Value) -> bool {
    match value {
        Value::Object(map) => {
            let keyed = map.get("keyed").and_then(Value::as_array);
            let twins = keyed.is_some_and(|items| {
                let names: std::collections::HashSet<_> =
                    items.iter().map(|it| it["name"].as_str()).collect();
                names.len() != items.len()
            });
            twins || map.values().any(has_twins)
        }
        Value::Array(items) => items.iter().any(has_twins),
        _ => false,
    }
}

proptest! {
    #[test]
    fn putting_back_what_was_read_changes_nothing(old in any_item(3)) {
        prop_assume!(!has_twins(&old));
        let (schema, ty) = schema();
        let mut new = strip(&old);
        keep_unknown(&schema, ty, &mut new, &old);
        prop_assert_eq!(new, old);
    }

    #[test]
    fn what_the_client_said_stays(old in any_item(3), new in any_item(3)) {
        let (schema, ty) = schema();
        let sent = strip(&new);
        let mut kept = sent.clone();
        keep_unknown(&schema, ty, &mut kept, &old);
        prop_assert_eq!(strip(&kept), sent);
    }

    #[test]
    fn keeping_twice_is_keeping_once(old in any_item(3), new in any_item(3)) {
        let (schema, ty) = schema();
        let mut once = strip(&new);
        keep_unknown(&schema, ty, &mut once, &old);
        let mut twice = once.clone();
        keep_unknown(&schema, ty, &mut twice, &old);
        prop_assert_eq!(twice, once);
    }
}
