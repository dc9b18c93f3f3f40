//! Cases of `validate`.

use serde_json::json;

use super::*;
use crate::model::{Field, Scalar};

fn schema() -> (Schema, TypeId) {
    let mut schema = Schema::new();
    let text = schema.add(Type::Scalar(Scalar::String));
    let name = Field { is_required: true, ..Field::new("name", text) };
    let protocol = Field { default: Some(json!("TCP")), ..Field::new("protocol", text) };
    let item = schema.add(Type::Object(ObjectType::new("Item", vec![name, protocol])));
    let keys = ListKind::Map(["name".into(), "protocol".into()].into());
    let items = schema.add(Type::List(ListType { element: item, kind: keys, is_wrapped: false }));
    let set = schema.add(Type::List(ListType { element: text, kind: ListKind::Set, is_wrapped: false }));
    let object = ObjectType::new("Object", vec![Field::new("items", items), Field::new("set", set)]);
    let id = schema.add(Type::Object(object));
    (schema, id)
}

fn check(value: &Value, want: &[&str]) {
    let (schema, ty) = schema();
    let errors = validate(&schema, ty, value);
    let errors: Vec<_> = errors.iter().map(|it| format!("{}: {}", it.field, it.message())).collect();
    assert_eq!(errors, want);
}

#[test]
fn missing_fields_and_twins_are_named() {
    check(&json!({"items": [{"name": "a"}, {"name": "a", "protocol": "UDP"}], "set": ["x", "y"]}), &[]);
    check(&json!({"items": [{}]}), &["items[0].name: Required value"]);
    check(&json!({"set": ["x", "y", "x"]}), &["set[2]: Duplicate value: \"x\""]);
    check(
        &json!({"items": [{"name": "a"}, {"name": "a", "protocol": "TCP"}]}),
        &["items[1]: Duplicate value: {\"name\":\"a\",\"protocol\":\"TCP\"}"],
    );
}
