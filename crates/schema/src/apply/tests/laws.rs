//! Laws that hold for any object and any configuration.

use proptest::prelude::*;
use serde_json::json;

use super::fixture::{Things, managers};
use crate::{
    Value,
    apply::{ApplyError, FieldSet, Operation, PathElement, shape::Ty, typed},
};

fn texts() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[a-c]", "[xy]", 0..3).prop_map(|it| json!(it))
}

fn containers() -> impl Strategy<Value = Value> {
    let container = (
        prop::option::of("[xy]"),
        prop::option::of(prop::collection::vec("[ab]", 0..2)),
        prop::option::of(prop::collection::btree_set(1..3u8, 0..2)),
    );
    prop::collection::btree_map("[a-c]", container, 0..3).prop_map(|it| {
        let containers = it.into_iter().map(|(name, (image, args, ports))| {
            let ports = ports.map(|it| it.into_iter().map(|port| json!({"port": port})).collect::<Vec<_>>());
            without_nulls(json!({"name": name, "image": image, "args": args, "ports": ports}))
        });
        containers.collect::<Vec<_>>().into()
    })
}

fn raw() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![any::<i8>().prop_map(Value::from), "[xy]".prop_map(Value::from)];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-c]", inner, 0..3).prop_map(|it| json!(it)),
        ]
    })
}

pub(super) fn any_thing() -> impl Strategy<Value = Value> {
    let spec = (
        prop::option::of(0..3u8),
        prop::option::of(texts()),
        prop::option::of(containers()),
        prop::option::of(prop::collection::btree_set("[a-c]", 0..3)),
        prop::option::of(raw()),
    );
    (prop::option::of(texts()), prop::option::of(texts()), prop::option::of(spec)).prop_map(
        |(data, labels, spec)| {
            let spec = spec.map(|(replicas, selector, containers, tags, raw)| {
                let selector = selector.map(|it| json!({"matchLabels": it}));
                without_nulls(json!({
                    "replicas": replicas, "selector": selector, "containers": containers, "tags": tags, "raw": raw
                }))
            });
            let metadata = without_nulls(json!({"name": "s", "uid": "u", "labels": labels}));
            without_nulls(json!({
                "apiVersion": "v1", "kind": "Thing", "metadata": metadata, "data": data, "spec": spec
            }))
        },
    )
}

fn without_nulls(mut value: Value) -> Value {
    if let Some(map) = value.as_object_mut() {
        map.retain(|_, it| !it.is_null());
    }
    value
}

/// What a configuration names, without what belongs to the server.
fn named(things: &Things, config: &Value) -> FieldSet {
    let system = FieldSet::of_fields(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "uid"],
    ]);
    let ignored = FieldSet::of_fields(&[&["status"]]);
    typed::field_set(&things.schema, Ty::Declared(things.v1), config)
        .recursive_difference(&ignored)
        .difference(&system)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn applying_twice_is_applying_once(before in any_thing(), config in any_thing()) {
        let things = Things::new();
        let live = things.by("u").created(&before);
        let once = things.by("one").forced(&live, &config);
        // Nobody names anything in an object that is not tracked: it is only tracked from the next apply on.
        prop_assume!(!managers(&once).is_empty());
        let twice = things.by("one").at("2026-02-02T00:00:00Z").apply(&once, &config, false);
        prop_assert_eq!(twice, Ok(once));
    }

    #[test]
    fn applying_less_twice_is_applying_it_once(before in any_thing(), first in any_thing(), config in any_thing()) {
        let things = Things::new();
        let live = things.by("u").created(&before);
        let live = things.by("one").forced(&live, &first);
        let once = things.by("one").forced(&live, &config);
        prop_assume!(!managers(&once).is_empty());
        let twice = things.by("one").at("2026-02-02T00:00:00Z").apply(&once, &config, false);
        prop_assert_eq!(twice, Ok(once));
    }

    #[test]
    fn who_applies_owns_exactly_what_it_names(before in any_thing(), first in any_thing(), config in any_thing()) {
        let things = Things::new();
        let live = things.by("u").created(&before);
        let live = things.by("one").forced(&live, &first);
        let live = things.by("one").forced(&live, &config);
        let mine = managers(&live).into_iter().find(|(id, _)| id.operation == Operation::Apply);
        let set = mine.map(|(_, it)| it.set).unwrap_or_default();
        prop_assert_eq!(set, named(&things, &config));
    }

    #[test]
    fn what_was_applied_is_in_the_object(before in any_thing(), config in any_thing()) {
        let things = Things::new();
        let live = things.by("u").created(&before);
        let live = things.by("one").forced(&live, &config);
        let all = typed::field_set(&things.schema, Ty::Declared(things.v1), &live);
        let missing = named(&things, &config).leaves().difference(&all.with_fields_named_by(&things.schema, things.v1));
        // What has only empty lists in it names nothing, though it is there.
        let missing: Vec<_> = missing.paths().into_iter().filter(|it| value_at(&live, it).is_none()).collect();
        prop_assert!(missing.is_empty(), "{:?}", missing);
        prop_assert_eq!(
            live.pointer("/spec/replicas").filter(|_| config.pointer("/spec/replicas").is_some()),
            config.pointer("/spec/replicas")
        );
    }

    #[test]
    fn a_configuration_that_nobody_else_names_leaves_no_trace(before in any_thing(), config in any_thing()) {
        let things = Things::new();
        let live = things.by("u").created(&before);
        let Ok(with) = things.by("one").apply(&live, &config, false) else { return Ok(()) };
        let nothing = json!({"metadata": {"name": "s"}});
        let without = things.by("one").applied(&with, &nothing);
        let leaves = |object: &Value| {
            typed::field_set(&things.schema, Ty::Declared(things.v1), object).leaves()
        };
        let left = leaves(&without).difference(&leaves(&live));
        let bare = FieldSet::of_fields(&[&["metadata", "managedFields"], &["spec"], &["data"], &["spec", "raw"],
            &["metadata", "labels"]]);
        let left = left.difference(&bare);
        // Only what `u` has had all along, and what became empty, can be left.
        let theirs = managers(&live).into_values().fold(FieldSet::new(), |all, it| all.union(&it.set));
        prop_assert!(left.difference(&theirs).is_empty(), "{:?}", left.difference(&theirs).paths());
    }

    #[test]
    fn updates_never_conflict_and_own_what_they_change(
        before in any_thing(), config in any_thing(), after in any_thing()
    ) {
        let things = Things::new();
        let live = things.by("u").created(&before);
        let live = things.by("one").forced(&live, &config);
        let new = things.by("two").updated(&live, &after);
        let owners = managers(&new);
        let two: FieldSet =
            owners.iter().find(|(id, _)| id.manager == "two").map(|(_, it)| it.set.clone()).unwrap_or_default();
        for (id, owned) in owners.iter().filter(|(id, _)| id.manager != "two") {
            prop_assert!(owned.set.intersection(&two).is_empty(), "{} shares with an update", id.manager);
        }
        // Nobody owns what is not there.
        let there = typed::field_set(&things.schema, Ty::Declared(things.v1), &new)
            .with_fields_named_by(&things.schema, things.v1);
        for owned in owners.values() {
            let missing = owned.set.leaves().difference(&there);
            let missing: Vec<_> = missing.paths().into_iter().filter(|it| it.len() > 2).collect();
            prop_assert!(missing.iter().all(|it| is_empty_at(&new, it)), "{:?}", missing);
        }
    }

    #[test]
    fn conflicts_are_exactly_what_force_takes(before in any_thing(), config in any_thing()) {
        let things = Things::new();
        let live = things.by("u").created(&before);
        let forced = things.by("one").forced(&live, &config);
        match things.by("one").apply(&live, &config, false) {
            Ok(applied) => prop_assert_eq!(applied, forced),
            Err(ApplyError::Conflicts(conflicts)) => {
                let of_u = |object: &Value| {
                    managers(object).into_iter().find(|(id, _)| id.manager == "u").map(|(_, it)| it.set)
                        .unwrap_or_default()
                };
                let lost = of_u(&live).difference(&of_u(&forced));
                let mut named = FieldSet::new();
                for conflict in &conflicts {
                    named.insert(&conflict.path);
                }
                prop_assert!(named.difference(&lost).is_empty());
                prop_assert!(!conflicts.is_empty());
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn hostile_objects_never_panic(live in crate::json::any_value(), config in crate::json::any_value()) {
        let things = Things::new();
        let wrap = |value: &Value| {
            json!({"apiVersion": "v1", "kind": "Thing", "metadata": value, "spec": value, "data": value})
        };
        let (live, config) = (wrap(&live), wrap(&config));
        let updated = things.by("u").updated(&things.by("u").nothing(), &live);
        let _ = things.by("one").apply(&updated, &config, true);
        let _ = things.by("one").apply(&live, &config, false);
    }
}

fn value_at<'a>(object: &'a Value, path: &[PathElement]) -> Option<&'a Value> {
    let mut value = Some(object);
    for step in path {
        value = match step {
            PathElement::Field(name) => value.and_then(|it| it.get(&**name)),
            PathElement::Key(keys) => value.and_then(Value::as_array).and_then(|it| {
                it.iter().find(|item| keys.iter().any(|(key, want)| item.get(key) == Some(want)))
            }),
            PathElement::Value(_) | PathElement::Index(_) => None,
        };
    }
    value
}

/// The value at the place has nothing in it, so no part of it can be named.
fn is_empty_at(object: &Value, path: &[PathElement]) -> bool {
    value_at(object, path).is_some_and(|it| match it {
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    })
}

/// Specs in which the names are right and little else.
fn misshapen() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        Just(json!([])),
        Just(json!({})),
        any::<i8>().prop_map(Value::from),
        "[ab]".prop_map(Value::from)
    ];
    leaf.prop_recursive(5, 24, 4, |inner| {
        let key = prop::sample::select(vec![
            "replicas",
            "selector",
            "matchLabels",
            "containers",
            "tags",
            "raw",
            "name",
            "image",
            "args",
            "ports",
            "port",
            "env",
            "a",
            "b",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..4).prop_map(|it| json!(it)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_can_be_applied_can_be_applied_again(live in misshapen(), first in misshapen(), config in misshapen()) {
        let things = Things::new();
        let wrap = |spec: &Value| json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"uid": "u", "name": "s"}, "spec": spec});
        let live = things.by("u").created(&wrap(&live));
        let live = things.by("one").apply(&live, &wrap(&first), true).unwrap_or(live);
        let Ok(once) = things.by("one").apply(&live, &wrap(&config), true) else { return Ok(()) };
        prop_assume!(!managers(&once).is_empty());
        let twice = things.by("one").at("2026-02-02T00:00:00Z").apply(&once, &wrap(&config), false);
        prop_assert_eq!(twice, Ok(once));
    }
}
