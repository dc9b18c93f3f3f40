//! Sets of fields: laws, and their text.

use proptest::prelude::*;
use serde_json::json;

use crate::{
    Value,
    apply::{FieldSet, PathElement, display},
};

fn any_step() -> impl Strategy<Value = PathElement> {
    prop_oneof![
        "[a-d]".prop_map(PathElement::field),
        ("[a-c]", any::<i8>()).prop_map(|(name, it)| PathElement::key(vec![
            ("name".to_owned(), Value::from(name)),
            ("n".to_owned(), Value::from(it))
        ])),
        "[a-c]".prop_map(|it| PathElement::Value(Value::from(it))),
        (0..3i64).prop_map(PathElement::Index),
    ]
}

fn any_set() -> impl Strategy<Value = FieldSet> {
    prop::collection::vec(prop::collection::vec(any_step(), 1..4), 0..12).prop_map(|paths| {
        let mut set = FieldSet::new();
        for path in &paths {
            set.insert(path);
        }
        set
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sets_obey_the_laws_of_sets(a in any_set(), b in any_set(), c in any_set()) {
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.union(&b).union(&c), a.union(&b.union(&c)));
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.difference(&a), FieldSet::new());
        prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
        prop_assert_eq!(a.intersection(&b.union(&c)), a.intersection(&b).union(&a.intersection(&c)));
        prop_assert_eq!(a.difference(&b).intersection(&b), FieldSet::new());
        prop_assert_eq!(a.union(&b).len() + a.intersection(&b).len(), a.len() + b.len());
        prop_assert_eq!(a.leaves().difference(&a), FieldSet::new());
        prop_assert_eq!(a.leaves().leaves(), a.leaves());
        prop_assert_eq!(a.is_subset_of(&b), a.difference(&b).is_empty());
        prop_assert!(a.intersection(&b).is_subset_of(&b));
        prop_assert_eq!(a.recursive_difference(&b).difference(&a.difference(&b)), FieldSet::new());
    }

    #[test]
    fn paths_are_what_was_inserted(a in any_set()) {
        let mut again = FieldSet::new();
        for path in a.paths() {
            prop_assert!(a.contains(&path));
            again.insert(&path);
        }
        prop_assert_eq!(again, a);
    }

    #[test]
    fn what_was_written_is_read(a in any_set()) {
        let text = a.to_fields_v1();
        prop_assert_eq!(FieldSet::from_fields_v1(&text).unwrap(), a.clone());
        let again = crate::json::parse(&crate::json::to_vec(&text), crate::json::Limits::REQUEST).unwrap();
        prop_assert_eq!(FieldSet::from_fields_v1(&again).unwrap(), a);
    }

    #[test]
    fn hostile_fields_never_panic(value in crate::json::any_value()) {
        if let Ok(set) = FieldSet::from_fields_v1(&value) {
            prop_assert_eq!(FieldSet::from_fields_v1(&set.to_fields_v1()).unwrap(), set);
        }
        let _ = crate::apply::decode(Some(&value));
    }

    #[test]
    fn hostile_steps_never_panic(text in "[fkvi.]?:?.{0,20}") {
        if let Ok(step) = PathElement::decode(&text) {
            prop_assert_eq!(PathElement::decode(&step.encode()).unwrap(), step);
        }
    }
}

#[test]
fn the_text_is_upstreams() {
    let text = json!({
        "f:data": {".": {}, "f:k": {}},
        "f:list": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:x": {}}, "v:\"a\"": {}, "i:3": {}},
    });
    let set = FieldSet::from_fields_v1(&text).unwrap();
    assert_eq!(set.to_fields_v1(), text);
    let paths: Vec<String> = set.paths().iter().map(|it| display(it)).collect();
    assert_eq!(
        paths,
        [
            ".data",
            ".data.k",
            ".list[containerPort=80,protocol=\"TCP\"]",
            ".list[=\"a\"]",
            ".list[3]",
            ".list[containerPort=80,protocol=\"TCP\"].x"
        ]
    );
}

#[test]
fn unknown_steps_are_dropped_and_broken_ones_refused() {
    let set = FieldSet::from_fields_v1(&json!({"f:a": {}, "z:future": {}})).unwrap();
    assert_eq!(set.to_fields_v1(), json!({"f:a": {}}));
    for broken in [
        json!({"a": {}}),
        json!({"": {}}),
        json!({"k:[]": {}}),
        json!({"i:x": {}}),
        json!([]),
        json!("x"),
        json!({"f:a": 1}),
        json!({"k:{": {}}),
        json!({"ä": {}}),
    ] {
        assert!(FieldSet::from_fields_v1(&broken).is_err(), "{broken}");
    }
}

#[test]
fn numbers_and_texts_in_keys_are_told_apart() {
    let key = |value: Value| PathElement::key(vec![("port".to_owned(), value)]);
    let mut set = FieldSet::new();
    set.insert(&[key(json!(80))]);
    set.insert(&[key(json!("80"))]);
    set.insert(&[key(json!(80.5))]);
    set.insert(&[key(json!(443))]);
    assert_eq!(set.len(), 4);
    assert!(key(json!(80)) < key(json!(443)));
    assert!(key(json!(80)) < key(json!(80.5)));
}
