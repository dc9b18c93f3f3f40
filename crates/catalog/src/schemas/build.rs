//! From the table of types to a schema: names become numbers, inlined messages become fields of their holders.

use std::{collections::HashMap, sync::Arc};

use meta::Release;
use schema::model::{
    Field, Inlined, ListKind, ListType, MapType, ObjectType, PatchStrategy, Scalar, Schema, Type, TypeId,
};

use super::read::{FieldRow, Shape, TypeRow};

/// Deeper than this nothing is inlined: there are two levels today.
const MAX_INLINED: usize = 4;

/// The schema, and the types of kinds by `group/version/kind`. `None` if the table names a type that it does not have.
pub(super) fn build(table: &[TypeRow<'_>], release: Release) -> Option<(Schema, HashMap<String, TypeId>)> {
    let mut builder = Builder {
        release,
        schema: Schema::new(),
        texts: HashMap::with_capacity(2048),
        shared: HashMap::with_capacity(512),
        rows: table.iter().map(|it| (full_name(it), it)).collect(),
        packages: table.iter().map(|it| (it.package.alias, it.package.name)).collect(),
    };
    let mut kinds = HashMap::with_capacity(512);
    for row in table {
        let id = builder.define(row)?;
        if matches!(row.shape, Shape::Object { is_kind: true, .. }) {
            kinds.insert(format!("{}/{}/{}", row.package.group, row.package.version, row.name), id);
        }
    }
    Some((builder.schema, kinds))
}

fn full_name(row: &TypeRow<'_>) -> String {
    [row.package.name, ".", row.name].concat()
}

/// What makes two types without a name the same.
#[derive(PartialEq, Eq, Hash)]
enum Shared<'a> {
    Scalar(Scalar),
    List { element: TypeId, keys: Option<&'a str>, is_set: bool },
    Map { value: TypeId, is_atomic: bool },
}

struct Builder<'a> {
    release: Release,
    schema: Schema,
    /// Every name once.
    texts: HashMap<&'a str, Arc<str>>,
    /// Scalars, lists and maps that were added already.
    shared: HashMap<Shared<'a>, TypeId>,
    rows: HashMap<String, &'a TypeRow<'a>>,
    packages: HashMap<&'a str, &'a str>,
}

impl<'a> Builder<'a> {
    fn define(&mut self, row: &'a TypeRow<'a>) -> Option<TypeId> {
        let name: Arc<str> = full_name(row).into();
        let ty = match &row.shape {
            Shape::Any => Type::Any,
            Shape::Wrapped(element) => {
                let element = self.named(row, element)?;
                Type::List(ListType { element, kind: ListKind::Atomic, is_wrapped: true })
            }
            Shape::Object { is_atomic, .. } => {
                let (mut fields, mut inlined) = (Vec::new(), Vec::new());
                self.fields(row, 0, 0, &mut fields, &mut inlined)?;
                fields.sort_by(|a, b| a.name.cmp(&b.name));
                Type::Object(ObjectType {
                    name: Arc::clone(&name),
                    fields: fields.into(),
                    inlined: inlined.into(),
                    is_atomic: *is_atomic,
                    keeps_unknown: false,
                })
            }
        };
        Some(self.schema.define(&name, ty))
    }

    /// Collects the fields of a type. Those of inlined messages are told apart by the number of the outermost of them.
    fn fields(
        &mut self,
        row: &'a TypeRow<'a>,
        within: u32,
        depth: usize,
        fields: &mut Vec<Field>,
        inlined: &mut Vec<Inlined>,
    ) -> Option<()> {
        let Shape::Object { fields: rows, .. } = &row.shape else { return None };
        for field in rows {
            if !field.is_inline {
                fields.push(self.field(row, field, within)?);
                continue;
            }
            if depth == MAX_INLINED {
                return None;
            }
            let name = self.resolve(row, field.ty);
            let inner = *self.rows.get(&name)?;
            if depth == 0 {
                inlined.push(Inlined { number: field.number, ty: self.schema.reserve(&name.into()) });
            }
            let within = if depth == 0 { field.number } else { within };
            self.fields(inner, within, depth + 1, fields, inlined)?;
        }
        Some(())
    }

    fn field(&mut self, row: &'a TypeRow<'a>, field: &'a FieldRow<'a>, within: u32) -> Option<Field> {
        let minor = self.release.minor;
        Some(Field {
            name: self.text(field.name),
            number: field.number,
            within,
            ty: self.field_type(row, field)?,
            is_known: field.since <= minor && minor <= field.until,
            is_required: field.is_required,
            is_always: field.is_always,
            go_type: field.go_type.map(|it| self.text(it)),
            is_pointer: field.is_pointer,
            default: match field.default {
                Some(json) => Some(serde_json::from_str(json).ok()?),
                None => None,
            },
            patch: PatchStrategy {
                is_merged: field.is_merged,
                merge_key: field.merge_key.map(|it| self.text(it)),
                retains_keys: field.retains_keys,
                is_replaced: field.is_replaced,
            },
        })
    }

    fn field_type(&mut self, row: &'a TypeRow<'a>, field: &'a FieldRow<'a>) -> Option<TypeId> {
        if let Some(element) = field.ty.strip_prefix("[]") {
            let element = self.named(row, element)?;
            let kind = match field.keys {
                Some(keys) => ListKind::Map(keys.split(',').map(|it| self.text(it)).collect()),
                None if field.is_set => ListKind::Set,
                None => ListKind::Atomic,
            };
            let key = Shared::List { element, keys: field.keys, is_set: field.is_set };
            return Some(self.share(key, Type::List(ListType { element, kind, is_wrapped: false })));
        }
        if let Some(value) = field.ty.strip_prefix("{}") {
            let value = self.named(row, value)?;
            let is_atomic = field.is_atomic;
            return Some(
                self.share(Shared::Map { value, is_atomic }, Type::Map(MapType { value, is_atomic })),
            );
        }
        self.named(row, field.ty)
    }

    /// The number of a scalar, or of a type with a name.
    fn named(&mut self, row: &TypeRow<'_>, ty: &str) -> Option<TypeId> {
        if let Some(scalar) = scalar(ty) {
            return Some(self.share(Shared::Scalar(scalar), Type::Scalar(scalar)));
        }
        let name = self.resolve(row, ty);
        match self.schema.find(&name) {
            Some(id) => Some(id),
            None => self.rows.contains_key(&name).then(|| self.schema.reserve(&name.into())),
        }
    }

    fn resolve(&self, row: &TypeRow<'_>, ty: &str) -> String {
        match ty.rsplit_once('.') {
            Some((alias, name)) => {
                [self.packages.get(alias).copied().unwrap_or_default(), ".", name].concat()
            }
            None => [row.package.name, ".", ty].concat(),
        }
    }

    fn share(&mut self, key: Shared<'a>, ty: Type) -> TypeId {
        if let Some(id) = self.shared.get(&key) {
            return *id;
        }
        let id = self.schema.add(ty);
        self.shared.insert(key, id);
        id
    }

    fn text(&mut self, text: &'a str) -> Arc<str> {
        Arc::clone(self.texts.entry(text).or_insert_with(|| text.into()))
    }
}

fn scalar(name: &str) -> Option<Scalar> {
    Some(match name {
        "string" => Scalar::String,
        "bool" => Scalar::Bool,
        "int32" => Scalar::Int32,
        "int64" => Scalar::Int64,
        "uint32" => Scalar::Uint32,
        "uint64" => Scalar::Uint64,
        "double" => Scalar::Double,
        "bytes" => Scalar::Bytes,
        "time" => Scalar::Time,
        "microtime" => Scalar::MicroTime,
        "duration" => Scalar::Duration,
        "quantity" => Scalar::Quantity,
        "intorstring" => Scalar::IntOrString,
        _ => return None,
    })
}
