//! Small types of two versions, and what moves between them.

use serde_json::json;

use super::*;
use crate::model::{ListKind, ListType, Scalar};

/// `Old { name, size (always), parts: [Old] }` and `New { name, size, parts: [New] }`, and a twin of `Old`.
fn schema() -> (Schema, [TypeId; 3]) {
    let mut schema = Schema::new();
    let text = schema.add(Type::Scalar(Scalar::String));
    let number = schema.add(Type::Scalar(Scalar::Int32));
    let mut define = |name: &str, is_always: bool| {
        let id = schema.reserve(&name.into());
        let parts =
            schema.add(Type::List(ListType { element: id, kind: ListKind::Atomic, is_wrapped: false }));
        let mut size = Field::new("size", number);
        size.is_always = is_always;
        let fields = vec![Field::new("name", text), size, Field::new("parts", parts)];
        schema.define(&name.into(), Type::Object(ObjectType::new(name, fields)))
    };
    let types = [define("Old", true), define("New", false), define("Twin", true)];
    (schema, types)
}

#[test]
fn types_that_contain_themselves_are_compared() {
    let (schema, [old, new, twin]) = schema();
    assert!(is_same_shape(&schema, old, twin));
    assert!(is_same_shape(&schema, old, old));
    assert!(!is_same_shape(&schema, old, new));
}

#[test]
fn a_fitted_object_is_what_go_writes() {
    let (schema, [old, new, _]) = schema();
    let mut object = json!({"name": "", "size": 0, "other": 1, "parts": [{"size": 0}, {"other": {}}]});
    let mut same = object.clone();
    fit(&schema, old, &mut object);
    assert_eq!(object, json!({"size": 0, "parts": [{"size": 0}, {"size": 0}]}));
    fit(&schema, new, &mut same);
    assert_eq!(same, json!({"parts": [{}, {}]}));
}

#[test]
fn fields_move_in_and_out() {
    let mut object = json!({"name": "n", "a": 1, "b": 2});
    let map = object.as_object_mut().unwrap();
    move_in(map, "inner", |it| it != "name");
    assert_eq!(Value::Object(map.clone()), json!({"name": "n", "inner": {"a": 1, "b": 2}}));
    move_out(map, "inner");
    rename(map, &[("a", "c"), ("missing", "d")]);
    assert_eq!(object, json!({"name": "n", "c": 1, "b": 2}));
}

#[test]
fn only_objects_of_lists_are_visited() {
    let mut object = json!({"a": [{"b": [{"n": 1}, 5, {"n": 2}]}, null, {"b": "text"}]});
    let mut seen = Vec::new();
    each(&mut object, &["a", "b"], &mut |it| seen.push(it["n"].clone()));
    assert_eq!(seen, [json!(1), json!(2)]);
}
