//! Server-side apply, its managedFields, strategic merge patches, and YAML.

use std::sync::Arc;

use schema::{
    Value,
    apply::{self, FieldSet, Request, TypeRef, Versions},
    json::{self, Limits},
    model::{Field, ListKind, ListType, MapType, ObjectType, PatchStrategy, Scalar, Schema, Type, TypeId},
    patch::{PatchKind, apply_typed},
    yaml,
};

/// `FieldsV1`: what is read can be written and read again.
pub(crate) fn managed_fields(data: &[u8]) {
    let Ok(value) = json::parse(data, Limits::REQUEST) else { return };
    if let Ok(set) = FieldSet::from_fields_v1(&value) {
        assert_eq!(FieldSet::from_fields_v1(&set.to_fields_v1()).as_ref(), Ok(&set));
        assert_eq!(set.difference(&set), FieldSet::new());
    }
    if let Ok(managers) = apply::decode(Some(&value)) {
        let entries = apply::encode(&managers);
        assert_eq!(apply::decode(entries.as_ref()).as_ref(), Ok(&managers));
    }
}

/// An object, a newline, a configuration: what was applied by force can be applied again, and changes nothing.
pub(crate) fn apply_config(data: &[u8]) {
    let Some((live, config)) = two(data) else { return };
    let thing = Thing::new();
    let ignored = FieldSet::of_fields(&[&["status"]]);
    let request = Request {
        versions: &thing,
        api_version: "v1",
        subresource: "",
        manager: "fuzzer",
        ignored: &ignored,
        now: "2026-01-01T00:00:00Z",
    };
    let mut updated = live.clone();
    apply::update(&request, &apply::blank(&thing.schema, thing.ty), &mut updated)
        .expect("an update must never be in the way of another");
    let Ok(once) = apply::apply(&request, &live, &config, true) else { return };
    // An object whose owners cannot be told is tracked from the next apply on.
    if once["metadata"].get("managedFields").is_some() {
        let mut twice = apply::apply(&request, &once, &config, false).expect("nobody else must own it now");
        apply::keep_times(&mut twice, &once);
        assert_eq!(twice, once);
    }
}

/// An object, a newline, a strategic merge patch.
pub(crate) fn strategic_patch(data: &[u8]) {
    let Some((original, patch)) = two(data) else { return };
    let thing = Thing::new();
    let ty = Some((&thing.schema, thing.ty));
    match apply_typed(PatchKind::Strategic, &json::to_vec(&patch), &original, ty) {
        Ok(patched) => {
            let again = json::parse(&json::to_vec(&patched), Limits::STORED);
            assert_eq!(again.as_ref(), Ok(&patched));
        }
        Err(error) => assert!((400..=500).contains(&error.status().code)),
    }
}

/// YAML becomes what the JSON reader would have made of it.
pub(crate) fn yaml_text(data: &[u8]) {
    let Ok(value) = yaml::parse(data, Limits::REQUEST) else { return };
    assert_eq!(json::parse(&json::to_vec(&value), Limits::STORED).as_ref(), Ok(&value));
    // What came as deep JSON is too deep for the reader of YAML.
    if let Ok(again) = yaml::parse(yaml::to_text(&value).as_bytes(), Limits::STORED) {
        assert_eq!(again, value);
    }
}

fn two(data: &[u8]) -> Option<(Value, Value)> {
    let at = data.iter().position(|it| *it == b'\n')?;
    let read = |text: &[u8]| json::parse(text, Limits::REQUEST).ok();
    Some((read(&data[..at])?, read(&data[at + 1..])?))
}

/// A kind with one of everything.
struct Thing {
    schema: Schema,
    ty: TypeId,
}

impl Thing {
    fn new() -> Self {
        let mut schema = Schema::new();
        let text = schema.add(Type::Scalar(Scalar::String));
        let number = schema.add(Type::Scalar(Scalar::Int64));
        let any = schema.add(Type::Any);
        let texts = schema.add(Type::Map(MapType { value: text, is_atomic: false }));
        let mut list = |element, kind| schema.add(Type::List(ListType { element, kind, is_wrapped: false }));
        let (set, atomic, entries) =
            (list(text, ListKind::Set), list(any, ListKind::Atomic), list(any, ListKind::Atomic));
        let mut finalizers = Field::new("finalizers", set);
        finalizers.patch = PatchStrategy { is_merged: true, ..PatchStrategy::default() };
        let fields = vec![
            Field::new("name", text),
            Field::new("uid", text),
            Field::new("labels", texts),
            Field::new("annotations", texts),
            finalizers,
            Field::new("managedFields", entries),
        ];
        let metadata = schema.add(Type::Object(ObjectType::new("Meta", fields)));
        let fields = vec![Field::new("name", text), Field::new("args", atomic), Field::new("env", texts)];
        let item = schema.add(Type::Object(ObjectType::new("Item", fields)));
        let kind = ListKind::Map([Arc::from("name")].into());
        let items = schema.add(Type::List(ListType { element: item, kind, is_wrapped: false }));
        let mut items = Field::new("items", items);
        items.patch =
            PatchStrategy { is_merged: true, merge_key: Some(Arc::from("name")), ..PatchStrategy::default() };
        let mut whole = ObjectType::new("Whole", vec![Field::new("labels", texts)]);
        whole.is_atomic = true;
        let whole = schema.add(Type::Object(whole));
        let fields = vec![items, Field::new("n", number), Field::new("whole", whole), Field::new("raw", any)];
        let spec = schema.add(Type::Object(ObjectType::new("Spec", fields)));
        let fields = vec![
            Field::new("apiVersion", text),
            Field::new("kind", text),
            Field::new("metadata", metadata),
            Field::new("spec", spec),
            Field::new("status", any),
        ];
        let ty = schema.add(Type::Object(ObjectType::new("Thing", fields)));
        Self { schema, ty }
    }
}

impl Versions for Thing {
    fn type_of(&self, api_version: &str) -> Option<TypeRef<'_>> {
        let is_known = matches!(api_version, "v1" | "v2");
        is_known.then_some(TypeRef { schema: &self.schema, ty: self.ty })
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        let mut object = object.clone();
        let map = object.as_object_mut().ok_or("no object")?;
        map.insert("apiVersion".to_owned(), Value::from(api_version));
        Ok(object)
    }
}
