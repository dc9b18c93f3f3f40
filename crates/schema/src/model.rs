//! What objects of a kind look like: the compiled structural schema that every step of the object pipeline reads.
//!
//! Built-in kinds are compiled from the catalog's tables, custom ones from the schema a user stored; from here on there
//! is no difference. Types refer to each other by number, so that recursive types cost nothing and lookups are cheap.
//! Deliberately not here: where schemas come from, and what is done with them.

use std::{collections::HashMap, sync::Arc};

use crate::Value;

/// A set of types. Cheap to share; never changes once built.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    types: Vec<Type>,
    names: HashMap<Arc<str>, TypeId>,
    /// The name of each type; empty for those without one.
    name_of: Vec<Arc<str>>,
}

/// Names a type within its [`Schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(u32);

/// One type.
#[derive(Clone, Debug)]
pub enum Type {
    /// Text, a number, a truth value.
    Scalar(Scalar),
    /// An object with known fields.
    Object(ObjectType),
    /// An object with keys of the user's choice and values of one type.
    Map(MapType),
    /// An array.
    List(ListType),
    /// Anything: a `RawExtension`, an embedded object, a part of which nothing is said.
    Any,
}

/// Single values, as they are written in JSON; protobuf has other forms for some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Scalar {
    String,
    Bool,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Double,
    /// Base64 in JSON.
    Bytes,
    /// RFC 3339 with whole seconds.
    Time,
    /// RFC 3339 with microseconds.
    MicroTime,
    /// `1h30m`
    Duration,
    /// `100m`, `1Gi`
    Quantity,
    /// `80` or `"http"`
    IntOrString,
}

/// An object with known fields.
#[derive(Clone, Debug)]
pub struct ObjectType {
    /// The full name, such as `io.k8s.api.core.v1.Container`; empty for types without one.
    pub name: Arc<str>,
    /// The fields as they stand in JSON, sorted by name: those of inlined messages are among them.
    pub fields: Box<[Field]>,
    /// Messages of their own in protobuf whose fields JSON shows as if they were this object's. Mostly empty.
    pub inlined: Box<[Inlined]>,
    /// Owned as a whole by one manager.
    pub is_atomic: bool,
    /// Fields that are not listed stay (`x-kubernetes-preserve-unknown-fields`).
    pub keeps_unknown: bool,
}

/// A part of an object that is a message of its own in protobuf, but not in JSON: `volumeSource` of a `Volume`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inlined {
    /// The number in protobuf of the field that holds the message.
    pub number: u32,
    /// The type of the message: an object whose fields the outer object has too, with [`Field::within`] set.
    pub ty: TypeId,
}

/// One field of an object.
#[derive(Clone, Debug)]
pub struct Field {
    /// The name in JSON.
    pub name: Arc<str>,
    /// The number in protobuf, in the message that holds the field; zero where there is none.
    pub number: u32,
    /// The number of the [`Inlined`] message that holds the field in protobuf; zero where it is the object itself.
    pub within: u32,
    /// Its type.
    pub ty: TypeId,
    /// Whether this server's release has the field. Fields of other releases are kept in stored objects (decision on
    /// unknown fields), but a client of this release cannot add them.
    pub is_known: bool,
    /// OpenAPI calls it required.
    pub is_required: bool,
    /// Go writes it even when it holds nothing: `{}`, `null`, `0`, `""`.
    pub is_always: bool,
    /// What Go's decoder calls its type, where that does not follow from the type: `v1.Protocol`.
    pub go_type: Option<Arc<str>>,
    /// A single value that keeps an explicit zero (`replicas: 0`) apart from none at all; others drop it, unless required.
    pub is_pointer: bool,
    /// Filled in where the field is absent.
    pub default: Option<Value>,
    /// How a strategic merge patch treats it.
    pub patch: PatchStrategy,
}

/// How a strategic merge patch treats a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// Merge instead of replace.
    pub is_merged: bool,
    /// The key that tells elements of a merged list of objects apart.
    pub merge_key: Option<Arc<str>>,
    /// `retainKeys`
    pub retains_keys: bool,
    /// `replace`, said of a field that would be merged otherwise: an object.
    pub is_replaced: bool,
}

/// An object with keys of the user's choice.
#[derive(Clone, Debug)]
pub struct MapType {
    /// The type of all values.
    pub value: TypeId,
    /// Owned as a whole by one manager.
    pub is_atomic: bool,
}

/// An array.
#[derive(Clone, Debug)]
pub struct ListType {
    /// The type of all elements.
    pub element: TypeId,
    /// What tells elements apart.
    pub kind: ListKind,
    /// In protobuf the list is a message whose first field repeats (`Verbs`, `ExtraValue`).
    pub is_wrapped: bool,
}

/// What tells the elements of a list apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// Nothing: the list is owned as a whole.
    Atomic,
    /// Their value.
    Set,
    /// These fields of theirs.
    Map(Box<[Arc<str>]>),
}

impl Schema {
    /// No types.
    pub fn new() -> Self {
        Self::default()
    }

    /// The type of this number.
    pub fn get(&self, id: TypeId) -> &Type {
        // The number came from this schema: `TypeId` cannot be made elsewhere.
        &self.types[id.0 as usize]
    }

    /// The type of this full name.
    pub fn find(&self, name: &str) -> Option<TypeId> {
        self.names.get(name).copied()
    }

    /// Adds a type.
    pub fn add(&mut self, ty: Type) -> TypeId {
        let id = TypeId(u32::try_from(self.types.len()).expect("a schema must have fewer than 2^32 types"));
        self.types.push(ty);
        self.name_of.push(Arc::default());
        id
    }

    /// The full name under which a type was defined; empty for types without one.
    pub fn name(&self, id: TypeId) -> &str {
        &self.name_of[id.0 as usize]
    }

    /// Adds a type under a name, or gives one that was reserved its content.
    pub fn define(&mut self, name: &Arc<str>, ty: Type) -> TypeId {
        let id = self.reserve(name);
        self.types[id.0 as usize] = ty;
        id
    }

    /// The number of a named type that may be defined later, so that types can refer to each other in any order.
    pub fn reserve(&mut self, name: &Arc<str>) -> TypeId {
        if let Some(id) = self.find(name) {
            return id;
        }
        let id = self.add(Type::Any);
        self.names.insert(Arc::clone(name), id);
        self.name_of[id.0 as usize] = Arc::clone(name);
        id
    }

    /// Adds a type of another schema and all that it refers to.
    pub fn import(&mut self, other: &Self, id: TypeId) -> TypeId {
        self.import_seen(other, id, &mut HashMap::new())
    }

    fn import_seen(&mut self, other: &Self, id: TypeId, seen: &mut HashMap<TypeId, TypeId>) -> TypeId {
        if let Some(known) = seen.get(&id) {
            return *known;
        }
        // Reserved first: types may refer to themselves.
        let own = self.add(Type::Any);
        seen.insert(id, own);
        let mut ty = other.get(id).clone();
        match &mut ty {
            Type::Scalar(_) | Type::Any => {}
            Type::Map(map) => map.value = self.import_seen(other, map.value, seen),
            Type::List(list) => list.element = self.import_seen(other, list.element, seen),
            Type::Object(object) => {
                for field in &mut object.fields {
                    field.ty = self.import_seen(other, field.ty, seen);
                }
                for inlined in &mut object.inlined {
                    inlined.ty = self.import_seen(other, inlined.ty, seen);
                }
            }
        }
        self.types[own.0 as usize] = ty;
        own
    }

    /// How many types there are.
    pub fn len(&self) -> usize {
        self.types.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// The fields of a type, if it is an object with known fields.
    pub fn object(&self, id: TypeId) -> Option<&ObjectType> {
        match self.get(id) {
            Type::Object(object) => Some(object),
            Type::Scalar(_) | Type::Map(_) | Type::List(_) | Type::Any => None,
        }
    }
}

impl Field {
    /// A field that this release has, and nothing more is said of it.
    pub fn new(name: impl Into<Arc<str>>, ty: TypeId) -> Self {
        Self {
            name: name.into(),
            number: 0,
            within: 0,
            ty,
            is_known: true,
            is_required: false,
            is_always: false,
            go_type: None,
            is_pointer: false,
            default: None,
            patch: PatchStrategy::default(),
        }
    }
}

impl ObjectType {
    /// An object with these fields, in any order, and nothing more is said of it.
    pub fn new(name: impl Into<Arc<str>>, mut fields: Vec<Field>) -> Self {
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        Self {
            name: name.into(),
            fields: fields.into(),
            inlined: Box::default(),
            is_atomic: false,
            keeps_unknown: false,
        }
    }

    /// The field of this name, whether this release has it or not.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.binary_search_by(|it| (*it.name).cmp(name)).ok().map(|at| &self.fields[at])
    }

    /// The last part of the name: `Container`.
    pub fn short_name(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or_default()
    }
}
