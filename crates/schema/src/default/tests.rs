//! Cases of `default`.

use serde_json::json;

use super::*;
use crate::model::{Field, ListKind, ListType, Scalar};

fn schema() -> (Schema, TypeId) {
    let mut schema = Schema::new();
    let text = schema.add(Type::Scalar(Scalar::String));
    let protocol = Field { default: Some(json!("TCP")), ..Field::new("protocol", text) };
    let later = Field { default: Some(json!("x")), is_known: false, ..Field::new("later", text) };
    let port = schema.add(Type::Object(ObjectType::new("Port", vec![protocol, later])));
    let ports = schema.add(Type::List(ListType { element: port, kind: ListKind::Atomic, is_wrapped: false }));
    let service = ObjectType::new("Service", vec![Field::new("ports", ports), Field::new("main", port)]);
    let id = schema.add(Type::Object(service));
    (schema, id)
}

#[test]
fn defaults_are_filled_in_where_the_parent_is() {
    let (schema, ty) = schema();
    let mut value = json!({"ports": [{}, {"protocol": "UDP"}, {"protocol": null}]});
    fill(&schema, ty, &mut value);
    assert_eq!(value, json!({"ports": [{"protocol": "TCP"}, {"protocol": "UDP"}, {"protocol": "TCP"}]}));
}

#[test]
fn code_sees_every_structure_and_what_it_adds_is_filled_in() {
    let (schema, ty) = schema();
    let mut value = json!({"ports": [{}]});
    let mut seen = Vec::new();
    fill_with(&schema, ty, &mut value, &mut |ty, map| {
        seen.push(ty.name.to_string());
        if &*ty.name == "Service" {
            map.insert("main".to_owned(), json!({}));
        }
    });
    assert_eq!(seen, ["Service", "Port", "Port"]);
    assert_eq!(value["main"], json!({"protocol": "TCP"}));
}
