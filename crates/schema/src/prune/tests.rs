//! Cases of `prune`.

use serde_json::json;

use super::*;
use crate::model::{ListKind, ListType};

fn schema() -> (Schema, TypeId) {
    let mut schema = Schema::new();
    let text = schema.add(Type::Scalar(Scalar::String));
    let number = schema.add(Type::Scalar(Scalar::Int32));
    let list = schema.add(Type::List(ListType { element: text, kind: ListKind::Atomic, is_wrapped: false }));
    let inner = ObjectType::new("Inner", vec![Field { is_always: true, ..Field::new("name", text) }]);
    let inner = schema.add(Type::Object(inner));
    let object = ObjectType::new(
        "Outer",
        vec![
            Field::new("text", text),
            Field { is_pointer: true, ..Field::new("pointer", number) },
            Field::new("list", list),
            Field { is_always: true, ..Field::new("rules", list) },
            Field::new("inner", inner),
            Field { is_always: true, ..Field::new("status", inner) },
            Field { is_known: false, ..Field::new("later", text) },
        ],
    );
    let id = schema.add(Type::Object(object));
    (schema, id)
}

#[test]
fn what_holds_nothing_is_left_out() {
    let (schema, ty) = schema();
    let mut value = json!({
        "text": "", "pointer": 0, "list": [], "rules": [], "inner": {}, "later": "", "nobody": null
    });
    drop_empty(&schema, ty, &mut value);
    assert_eq!(value, json!({"pointer": 0, "rules": [], "inner": {}, "later": "", "nobody": null}));
}

#[test]
fn null_is_left_out() {
    let (schema, ty) = schema();
    let mut value = json!({"text": null, "pointer": null, "list": null, "rules": null, "inner": null});
    drop_empty(&schema, ty, &mut value);
    assert_eq!(value, json!({"rules": null}));
}

#[test]
fn what_is_always_written_is_added_where_its_parent_is() {
    let (schema, ty) = schema();
    let mut value = json!({"text": "a"});
    fill_always(&schema, ty, &mut value);
    assert_eq!(value, json!({"text": "a", "rules": null, "status": {"name": ""}}));
    let again = value.clone();
    fill_always(&schema, ty, &mut value);
    drop_empty(&schema, ty, &mut value);
    assert_eq!(value, again);
}
