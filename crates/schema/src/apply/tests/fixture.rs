//! A kind with one of everything, in two versions, and a way to write to it.

use std::sync::Arc;

use serde_json::json;

use crate::{
    Value,
    apply::{
        ApplyError, FieldSet, ManagerId, Managers, Request, TypeRef, Versions, apply, blank, decode,
        keep_times, update,
    },
    model::{Field, ListKind, ListType, MapType, ObjectType, Scalar, Schema, Type, TypeId},
};

pub(super) struct Things {
    pub schema: Schema,
    pub v1: TypeId,
    v2: TypeId,
}

/// A write that a test makes.
pub(super) struct Writer<'a> {
    pub things: &'a Things,
    pub manager: &'a str,
    pub api_version: &'a str,
    pub subresource: &'a str,
    pub now: &'a str,
}

impl Things {
    pub(super) fn new() -> Self {
        let mut schema = Schema::new();
        let mut scalar = |it| schema.add(Type::Scalar(it));
        let (text, number) = (scalar(Scalar::String), scalar(Scalar::Int64));
        let texts = schema.add(Type::Map(MapType { value: text, is_atomic: false }));
        let set = list(&mut schema, text, ListKind::Set);
        let atomic = list(&mut schema, text, ListKind::Atomic);
        let any = schema.add(Type::Any);
        let anys = list(&mut schema, any, ListKind::Atomic);
        let metadata = object(
            &mut schema,
            "Meta",
            &[
                ("name", text),
                ("namespace", text),
                ("generateName", text),
                ("uid", text),
                ("resourceVersion", text),
                ("creationTimestamp", text),
                ("labels", texts),
                ("annotations", texts),
                ("finalizers", set),
                ("managedFields", anys),
            ],
        );
        let port = {
            let mut protocol = Field::new("protocol", text);
            protocol.default = Some(json!("TCP"));
            let fields = vec![Field::new("port", number), protocol, Field::new("host", number)];
            schema.add(Type::Object(ObjectType::new("Port", fields)))
        };
        let ports = list(&mut schema, port, ListKind::Map([Arc::from("port"), Arc::from("protocol")].into()));
        let container = object(
            &mut schema,
            "Container",
            &[("name", text), ("image", text), ("args", atomic), ("ports", ports), ("env", texts)],
        );
        let containers = list(&mut schema, container, ListKind::Map([Arc::from("name")].into()));
        let selector = {
            let mut selector = ObjectType::new("Selector", vec![Field::new("matchLabels", texts)]);
            selector.is_atomic = true;
            schema.add(Type::Object(selector))
        };
        let spec = object(
            &mut schema,
            "Spec",
            &[
                ("replicas", number),
                ("selector", selector),
                ("containers", containers),
                ("tags", set),
                ("raw", any),
            ],
        );
        let status = object(&mut schema, "Status", &[("phase", text)]);
        let mut kind = |data: &str| {
            let mut fields = vec![
                Field::new("apiVersion", text),
                Field::new("kind", text),
                Field::new("metadata", metadata),
                Field::new("spec", spec),
                Field::new("status", status),
                Field::new(data, texts),
            ];
            for field in &mut fields {
                field.is_always = matches!(&*field.name, "metadata" | "spec" | "status");
            }
            schema.add(Type::Object(ObjectType::new("Thing", fields)))
        };
        let (v1, v2) = (kind("data"), kind("values"));
        Self { schema, v1, v2 }
    }

    /// Writes as `manager` in v1.
    pub(super) fn by<'a>(&'a self, manager: &'a str) -> Writer<'a> {
        Writer { things: self, manager, api_version: "v1", subresource: "", now: "2026-01-01T00:00:00Z" }
    }
}

/// In v2, `data` is called `values`. v3 is known, but nothing can be converted to it.
impl Versions for Things {
    fn type_of(&self, api_version: &str) -> Option<TypeRef<'_>> {
        let ty = match api_version {
            "v1" | "v3" => self.v1,
            "v2" => self.v2,
            _ => return None,
        };
        Some(TypeRef { schema: &self.schema, ty })
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        let (from, to) = match api_version {
            "v1" => ("values", "data"),
            "v2" => ("data", "values"),
            other => return Err(format!("no way to {other}")),
        };
        let mut object = object.clone();
        let map = object.as_object_mut().unwrap();
        map.insert("apiVersion".to_owned(), Value::from(api_version));
        if let Some(data) = map.remove(from) {
            map.insert(to.to_owned(), data);
        }
        Ok(object)
    }
}

impl Writer<'_> {
    pub(super) fn at(self, now: &'static str) -> Self {
        Self { now, ..self }
    }

    pub(super) fn version(self, api_version: &'static str) -> Self {
        Self { api_version, ..self }
    }

    pub(super) fn status(self) -> Self {
        Self { subresource: "status", ..self }
    }

    pub(super) fn apply(&self, live: &Value, config: &Value, force: bool) -> Result<Value, ApplyError> {
        let mut config = config.clone();
        let map = config.as_object_mut().unwrap();
        map.entry("apiVersion").or_insert(Value::from(self.api_version));
        map.entry("kind").or_insert(Value::from("Thing"));
        let mut new = self.with_request(|request| apply(request, live, &config, force))?;
        keep_times(&mut new, live);
        Ok(new)
    }

    /// Applies to an object that must not have conflicts.
    pub(super) fn applied(&self, live: &Value, config: &Value) -> Value {
        self.apply(live, config, false).unwrap()
    }

    pub(super) fn forced(&self, live: &Value, config: &Value) -> Value {
        self.apply(live, config, true).unwrap()
    }

    pub(super) fn updated(&self, live: &Value, new: &Value) -> Value {
        let mut new = new.clone();
        self.with_request(|request| update(request, live, &mut new)).unwrap();
        keep_times(&mut new, live);
        new
    }

    /// An update that changes some of the live object.
    pub(super) fn patched(&self, live: &Value, patch: &Value) -> Value {
        let new =
            crate::patch::apply(crate::patch::PatchKind::Merge, &crate::json::to_vec(patch), live).unwrap();
        self.updated(live, &new)
    }

    pub(super) fn created(&self, new: &Value) -> Value {
        let mut live = self.updated(&self.nothing(), new);
        live["metadata"]["uid"] = json!("u");
        live
    }

    pub(super) fn nothing(&self) -> Value {
        let TypeRef { schema, ty } = self.things.type_of(self.api_version).unwrap();
        blank(schema, ty)
    }

    fn with_request<T>(&self, write: impl FnOnce(&Request<'_>) -> T) -> T {
        let ignored = if self.subresource == "status" { "spec" } else { "status" };
        let ignored = FieldSet::of_fields(&[&[ignored]]);
        write(&Request {
            versions: self.things,
            api_version: self.api_version,
            subresource: self.subresource,
            manager: self.manager,
            ignored: &ignored,
            now: self.now,
        })
    }
}

pub(super) fn managers(object: &Value) -> Managers {
    decode(object["metadata"].get("managedFields")).unwrap()
}

/// What a manager owns, as `FieldsV1`; null if nothing.
pub(super) fn owned(object: &Value, manager: &str) -> Value {
    let of = |id: &ManagerId| id.manager == manager;
    managers(object).iter().find(|(id, _)| of(id)).map_or(Value::Null, |(_, it)| it.set.to_fields_v1())
}

fn list(schema: &mut Schema, element: TypeId, kind: ListKind) -> TypeId {
    schema.add(Type::List(ListType { element, kind, is_wrapped: false }))
}

fn object(schema: &mut Schema, name: &str, fields: &[(&str, TypeId)]) -> TypeId {
    let fields = fields.iter().map(|(name, ty)| Field::new(*name, *ty)).collect();
    schema.add(Type::Object(ObjectType::new(name, fields)))
}
