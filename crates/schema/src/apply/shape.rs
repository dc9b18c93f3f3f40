//! How the schema looks to apply: every place is a map, a list or a scalar, or, where the schema ends, whichever its
//! value is.
//!
//! What nothing is said about is deduced as upstream does: maps are owned by their entries, lists as a whole.

use std::sync::Arc;

use crate::{
    Value,
    apply::path::PathElement,
    model::{ListKind, ObjectType, Scalar, Schema, Type, TypeId},
};

/// The type of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ty {
    Declared(TypeId),
    /// Nothing is said about it.
    Deduced,
    /// Nothing is said about it, and it is inside a list that is owned as a whole.
    Opaque,
}

/// What a value of a type may be. Exactly one, unless the type is deduced.
#[derive(Clone, Copy)]
pub(super) struct Shape<'a> {
    pub map: Option<MapShape<'a>>,
    pub scalar: Option<ScalarShape>,
    pub list: Option<ListShape<'a>>,
}

#[derive(Clone, Copy)]
pub(super) struct MapShape<'a> {
    object: Option<&'a ObjectType>,
    /// Of entries that are not named; none if there can be no such entry.
    element: Option<Ty>,
    pub is_atomic: bool,
}

#[derive(Clone, Copy)]
pub(super) struct ListShape<'a> {
    pub element: Ty,
    pub kind: ListShapeKind<'a>,
}

#[derive(Clone, Copy)]
pub(super) enum ListShapeKind<'a> {
    Atomic,
    Set,
    Map(&'a [Arc<str>]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScalarShape {
    Text,
    Number,
    Bool,
    Any,
}

/// What a value turned out to be.
#[derive(Clone, Copy)]
pub(super) enum Chosen<'a> {
    Map(MapShape<'a>),
    Scalar(ScalarShape),
    List(ListShape<'a>),
}

pub(super) fn shape(schema: &Schema, ty: Ty) -> Shape<'_> {
    let nothing = Shape { map: None, scalar: None, list: None };
    let id = match ty {
        Ty::Declared(id) => id,
        Ty::Deduced => return deduced(Ty::Deduced, false),
        Ty::Opaque => return deduced(Ty::Opaque, true),
    };
    match schema.get(id) {
        Type::Any => deduced(Ty::Deduced, false),
        Type::Scalar(scalar) => Shape { scalar: Some(scalar_shape(*scalar)), ..nothing },
        Type::Object(object) => {
            let element = object.keeps_unknown.then_some(Ty::Deduced);
            let map = MapShape { object: Some(object), element, is_atomic: object.is_atomic };
            Shape { map: Some(map), ..nothing }
        }
        Type::Map(map) => {
            let element = Some(Ty::Declared(map.value));
            let map = MapShape { object: None, element, is_atomic: map.is_atomic };
            Shape { map: Some(map), ..nothing }
        }
        Type::List(list) => {
            let kind = match &list.kind {
                ListKind::Atomic => ListShapeKind::Atomic,
                ListKind::Set => ListShapeKind::Set,
                ListKind::Map(keys) => ListShapeKind::Map(keys),
            };
            let list = ListShape { element: Ty::Declared(list.element), kind };
            Shape { list: Some(list), ..nothing }
        }
    }
}

fn deduced<'a>(element: Ty, is_atomic: bool) -> Shape<'a> {
    Shape {
        map: Some(MapShape { object: None, element: Some(element), is_atomic }),
        scalar: Some(ScalarShape::Any),
        list: Some(ListShape { element: Ty::Opaque, kind: ListShapeKind::Atomic }),
    }
}

fn scalar_shape(scalar: Scalar) -> ScalarShape {
    match scalar {
        Scalar::String | Scalar::Bytes | Scalar::Time | Scalar::MicroTime | Scalar::Duration => {
            ScalarShape::Text
        }
        Scalar::Bool => ScalarShape::Bool,
        Scalar::Int32 | Scalar::Int64 | Scalar::Uint32 | Scalar::Uint64 | Scalar::Double => {
            ScalarShape::Number
        }
        Scalar::Quantity | Scalar::IntOrString => ScalarShape::Any,
    }
}

impl<'a> Shape<'a> {
    /// What this value is; if it fits nothing, what the schema would rather have.
    pub(super) fn choose(&self, value: Option<&Value>) -> Option<Chosen<'a>> {
        let chosen = match value {
            None | Some(Value::Null) => None,
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) => self.scalar.map(Chosen::Scalar),
            Some(Value::Array(_)) => self.list.map(Chosen::List),
            Some(Value::Object(_)) => self.map.map(Chosen::Map),
        };
        chosen
            .or_else(|| self.map.map(Chosen::Map))
            .or_else(|| self.scalar.map(Chosen::Scalar))
            .or_else(|| self.list.map(Chosen::List))
    }
}

impl Chosen<'_> {
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        matches!(
            (self, other),
            (Self::Map(_), Self::Map(_))
                | (Self::Scalar(_), Self::Scalar(_))
                | (Self::List(_), Self::List(_))
        )
    }
}

impl MapShape<'_> {
    /// The type of a field with this name, if it is named by the schema.
    pub(super) fn named(&self, name: &str) -> Option<Ty> {
        self.object?.field(name).map(|it| Ty::Declared(it.ty))
    }

    /// The type of what a client may put under this name.
    pub(super) fn child(&self, name: &str) -> Option<Ty> {
        match self.object.and_then(|it| it.field(name)) {
            Some(field) if field.is_known => Some(Ty::Declared(field.ty)),
            Some(_) | None => self.element,
        }
    }

    /// The type of what is found under this name. Stored objects may have fields that this release does not know.
    pub(super) fn found(&self, name: &str) -> Ty {
        self.named(name).or(self.element).unwrap_or(Ty::Deduced)
    }

    /// Nothing is named: the map of something undescribed.
    pub(super) fn is_deduced(&self) -> bool {
        self.object.is_none() && self.element == Some(Ty::Deduced)
    }
}

impl ListShape<'_> {
    pub(super) fn is_atomic(&self) -> bool {
        matches!(self.kind, ListShapeKind::Atomic)
    }

    /// How an element of the list is called, or why it cannot be one.
    pub(super) fn step(&self, schema: &Schema, item: &Value) -> Result<PathElement, String> {
        match self.kind {
            ListShapeKind::Atomic => Err("invalid indexing of non-associative list".to_owned()),
            ListShapeKind::Set => match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".to_owned())
                }
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null".to_owned())
                }
                Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(PathElement::Value(item.clone())),
            },
            ListShapeKind::Map(keys) => self.keyed_step(schema, keys, item),
        }
    }

    fn keyed_step(&self, schema: &Schema, keys: &[Arc<str>], item: &Value) -> Result<PathElement, String> {
        let map = match item {
            Value::Object(map) => map,
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err("associative list with keys may not have non-map elements".to_owned());
            }
        };
        let mut values = Vec::with_capacity(keys.len());
        for key in keys {
            let value = match map.get(&**key) {
                Some(value) => value.clone(),
                None => self.default_of(schema, key).ok_or_else(|| {
                    format!(
                        "associative list with keys has an element that omits key field {key:?} (and doesn't have \
                         default value)"
                    )
                })?,
            };
            values.push((key.to_string(), value));
        }
        Ok(PathElement::key(values))
    }

    fn default_of(&self, schema: &Schema, key: &str) -> Option<Value> {
        let Ty::Declared(id) = self.element else { return None };
        schema.object(id)?.field(key)?.default.clone()
    }
}
