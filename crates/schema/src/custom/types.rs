//! A compiled schema as apply sees it: a [`Schema`] of its own, with the metadata that all objects have.

use std::sync::Arc;

use super::node::{Additional, Kind, Node};
use crate::model::{Field, ListKind, ListType, MapType, ObjectType, Scalar, Schema, Type, TypeId};

/// The types of a resource's objects; `metadata` is what objects of all kinds have, in another schema.
pub fn types_of(root: &Node, metadata: (&Schema, TypeId)) -> (Schema, TypeId) {
    let mut schema = Schema::new();
    let text = schema.add(Type::Scalar(Scalar::String));
    let metadata = schema.import(metadata.0, metadata.1);
    let mut builder = Builder { schema, text, metadata };
    let ty = builder.node(root);
    (builder.schema, ty)
}

struct Builder {
    schema: Schema,
    text: TypeId,
    metadata: TypeId,
}

impl Builder {
    fn node(&mut self, node: &Node) -> TypeId {
        let ty = match node.kind {
            _ if node.is_int_or_string => Type::Scalar(Scalar::IntOrString),
            Kind::Any => Type::Any,
            Kind::String => return self.text,
            Kind::Integer => Type::Scalar(Scalar::Int64),
            Kind::Number => Type::Scalar(Scalar::Double),
            Kind::Boolean => Type::Scalar(Scalar::Bool),
            Kind::Array => self.list(node),
            Kind::Object => self.object(node),
        };
        self.schema.add(ty)
    }

    fn list(&mut self, node: &Node) -> Type {
        let element = match &node.items {
            Some(items) => self.node(items),
            None => self.schema.add(Type::Any),
        };
        let kind = node.list.as_deref().cloned().unwrap_or(ListKind::Atomic);
        Type::List(ListType { element, kind, is_wrapped: false })
    }

    fn object(&mut self, node: &Node) -> Type {
        if node.properties.is_empty()
            && !node.is_embedded
            && let Some(additional) = &node.additional
        {
            let value = match additional {
                Additional::Of(inner) => self.node(inner),
                Additional::Anything | Additional::Nothing => self.schema.add(Type::Any),
            };
            return Type::Map(MapType { value, is_atomic: node.is_atomic });
        }
        let mut fields: Vec<Field> = Vec::with_capacity(node.properties.len() + 3);
        for (name, property) in &node.properties {
            if !node.has_own(name) {
                let mut field = Field::new(Arc::<str>::from(&**name), self.node(property));
                field.default = property.default.as_deref().cloned();
                fields.push(field);
            }
        }
        if node.is_embedded {
            fields.push(Field::new("apiVersion", self.text));
            fields.push(Field::new("kind", self.text));
            fields.push(Field::new("metadata", self.metadata));
        }
        let mut object = ObjectType::new("", fields);
        object.is_atomic = node.is_atomic;
        object.keeps_unknown = node.keeps_unknown;
        Type::Object(object)
    }
}
