//! Objects of every built-in kind in protobuf: the bytes of a Go client, and random objects there and back.

use std::collections::BTreeMap;

use catalog::{Catalog, FeatureGates, RuntimeConfig, Schemas};
use meta::Release;
use schema::{
    model::{Field, ListType, ObjectType, Scalar, Schema, Type, TypeId},
    protobuf,
};
use serde_json::{Map, Value, json};

const GOLDEN: &str = include_str!("golden/kubectl-protobuf.txt");

fn find(schemas: &Schemas, api_version: &str, kind: &str) -> Option<TypeId> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    schemas.kind(group, version, kind)
}

fn decode(schemas: &Schemas, bytes: &[u8]) -> Value {
    protobuf::decode_object(bytes, &|version, kind| find(schemas, version, kind), schemas.schema()).unwrap()
}

/// Go writes `null` where nothing is set; protobuf cannot say that.
fn without_nulls(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.retain(|_, it| !it.is_null());
        fields.values_mut().for_each(without_nulls);
    }
    if let Value::Array(elements) = value {
        elements.iter_mut().for_each(without_nulls);
    }
}

/// What kubectl sends, and its JSON.
fn golden() -> impl Iterator<Item = (Vec<u8>, &'static str)> {
    let mut lines = GOLDEN.lines().filter(|it| !it.starts_with('#'));
    std::iter::from_fn(move || {
        let (hex, text) = (lines.next()?, lines.next()?);
        let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        Some(((0..hex.len()).step_by(2).map(digit).collect(), text))
    })
}

#[test]
fn the_bytes_of_kubectl_are_its_json() {
    let schemas = Schemas::new(Release::v1(33));
    let mut n_compared = 0;
    for (bytes, text) in golden() {
        let mut expected: Value = serde_json::from_str(text).unwrap();
        without_nulls(&mut expected);
        assert_eq!(decode(&schemas, &bytes), expected, "{text}");
        let ty = find(&schemas, expected["apiVersion"].as_str().unwrap(), expected["kind"].as_str().unwrap());
        let encoded = protobuf::encode_object(&expected, schemas.schema(), ty.unwrap());
        assert!(encoded.len() <= bytes.len(), "nothing is written that kubectl does not write");
        assert_eq!(decode(&schemas, &encoded), expected);
        n_compared += 1;
    }
    assert_eq!(n_compared, 13);
}

/// Found with upstream's own test data: in a map, a time that is none has an empty message, not none.
#[test]
fn a_time_that_is_none_keeps_its_place_in_a_map() {
    let schemas = Schemas::new(Release::v1(36));
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "status": {"disruptedPods": {"p": null}},
    });
    let ty = find(&schemas, "policy/v1", "PodDisruptionBudget").unwrap();
    let bytes = protobuf::encode_object(&budget, schemas.schema(), ty);
    let entry = b"\x12\x05\x0a\x01p\x12\x00";
    assert!(bytes.windows(entry.len()).any(|it| it == entry), "{bytes:x?}");
    assert_eq!(decode(&schemas, &bytes)["status"]["disruptedPods"], json!({"p": null}));
}

#[test]
fn random_objects_of_every_kind_survive_both_forms() {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for minor in [30, 33, 36] {
        let release = Release::v1(minor);
        let schemas = Schemas::new(release);
        let all = RuntimeConfig::parse("api/all=true").unwrap();
        let catalog = Catalog::new(release, &all, &FeatureGates::defaults(release)).unwrap();
        for served in catalog.served() {
            let group_version = match &*served.definition.group {
                "" => served.version.as_str().to_owned(),
                group => format!("{group}/{}", served.version.as_str()),
            };
            for kind in [&served.definition.kind, &served.definition.list_kind] {
                let Some(ty) = find(&schemas, &group_version, kind) else { continue };
                for seed in 0..12 {
                    let mut random = Random(seed * 7919 + 1);
                    let mut object = random.object(schemas.schema(), schemas.schema().object(ty).unwrap(), 0);
                    object.insert("apiVersion".to_owned(), group_version.as_str().into());
                    object.insert("kind".to_owned(), (&**kind).into());
                    let object = Value::Object(object);
                    let bytes = protobuf::encode_object(&object, schemas.schema(), ty);
                    assert_eq!(decode(&schemas, &bytes), object, "seed {seed}");
                    *seen.entry(format!("{group_version} {kind}")).or_default() += 1;
                }
            }
        }
    }
    assert!(seen.len() > 150, "only {} kinds were tried", seen.len());
}

#[test]
fn schemas_of_custom_resources_keep_their_odd_parts() {
    let schemas = Schemas::new(Release::v1(36));
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": {
                "items": {"type": "string"}, "additionalProperties": {"type": "integer"}, "maximum": 1.5, "minimum": 0,
                "default": {"a": [1, null]}, "enum": ["x", 1, false], "x-kubernetes-list-type": "map", "$ref": "#/a",
                "x-kubernetes-preserve-unknown-fields": false,
            },
            "status": {
                "items": [{"type": "string"}, {"type": "integer"}], "additionalProperties": false,
                "dependencies": {"a": ["b"], "b": {"type": "null"}},
            },
        },
    });
    let object = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "spec": {"versions": [{"name": "v1", "served": false, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
    });
    let ty = find(&schemas, "apiextensions.k8s.io/v1", "CustomResourceDefinition").unwrap();
    let bytes = protobuf::encode_object(&object, schemas.schema(), ty);
    assert_eq!(decode(&schemas, &bytes), object);
}

/// Values that are the same after Go had them: no zeros where Go drops them, times in its form.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % bound
    }

    fn object(&mut self, schema: &Schema, object: &ObjectType, depth: usize) -> Map<String, Value> {
        let mut map = Map::new();
        for field in &object.fields {
            // Deep objects get thin, or recursive types would never end.
            let likely = [9, 7, 4, 2, 1].get(depth).copied().unwrap_or(0);
            if field.number != 0 && field.is_known && self.below(10) < likely {
                let value = self.field(schema, field, depth);
                map.insert(field.name.to_string(), value);
            }
        }
        map
    }

    fn field(&mut self, schema: &Schema, field: &Field, depth: usize) -> Value {
        match schema.get(field.ty) {
            Type::Scalar(scalar) => self.scalar(*scalar, field.is_pointer || field.is_always),
            Type::List(list) => self.list(schema, list, 1, depth),
            Type::Map(map) => {
                let n_entries = 1 + self.below(2);
                let entry = |it| (format!("key-{it}"), self.element(schema, map.value, depth + 1));
                Value::Object((0..n_entries).map(entry).collect())
            }
            Type::Object(_) | Type::Any => self.element(schema, field.ty, depth + 1),
        }
    }

    fn list(&mut self, schema: &Schema, list: &ListType, least: u64, depth: usize) -> Value {
        let n_elements = least + self.below(2);
        (0..n_elements).map(|_| self.element(schema, list.element, depth + 1)).collect()
    }

    fn element(&mut self, schema: &Schema, ty: TypeId, depth: usize) -> Value {
        match schema.get(ty) {
            Type::Scalar(scalar) => self.scalar(*scalar, true),
            Type::Object(object) => Value::Object(self.object(schema, object, depth)),
            Type::List(list) => self.list(schema, list, 0, depth),
            Type::Map(_) => unreachable!("no kind has maps in maps"),
            Type::Any => self.any(schema, ty, depth),
        }
    }

    fn any(&mut self, schema: &Schema, ty: TypeId, depth: usize) -> Value {
        let (package, name) = schema.name(ty).rsplit_once('.').unwrap();
        let props = schema.find(&format!("{package}.JSONSchemaProps")).map(|it| schema.object(it).unwrap());
        match (name, self.below(2)) {
            ("JSONSchemaPropsOrBool", 0) => (self.below(2) == 0).into(),
            ("JSONSchemaPropsOrStringArray", 0) => json!(["a", "b"]),
            ("JSONSchemaPropsOrArray", 0) => json!([self.object(schema, props.unwrap(), depth + 1)]),
            (name, 1) if name.starts_with("JSONSchemaPropsOr") => {
                Value::Object(self.object(schema, props.unwrap(), depth + 1))
            }
            _ => {
                json!({"f:metadata": {"f:labels": {".": {}}}, "number": 1, "text": "<ä>", "list": [null, true, 0.5]})
            }
        }
    }

    fn scalar(&mut self, scalar: Scalar, may_be_zero: bool) -> Value {
        let whole = self.below(1000) + u64::from(!may_be_zero);
        let whole = if may_be_zero && self.below(3) == 0 { 0 } else { whole };
        let sign = if self.below(4) == 0 { -1 } else { 1 };
        let signed = i64::try_from(whole).unwrap() * sign;
        match scalar {
            Scalar::String if may_be_zero && whole == 0 => "".into(),
            Scalar::String => format!("text-{whole}-\u{1f6a2}").into(),
            Scalar::Bool => (!may_be_zero || whole % 2 == 0).into(),
            Scalar::Int32 => signed.into(),
            Scalar::Int64 => (signed * 1_000_000_007).into(),
            Scalar::Uint32 | Scalar::Uint64 => whole.into(),
            Scalar::Double if whole % 2 == 0 => signed.into(),
            Scalar::Double => json!(f64::from(i32::try_from(signed).unwrap()) + 0.25),
            Scalar::Bytes => ["AA==", "aGVsbG8=", "//79"][usize::try_from(whole % 3).unwrap()].into(),
            Scalar::Time => format!("20{:02}-01-02T03:04:05Z", whole % 100).into(),
            Scalar::MicroTime => format!("20{:02}-01-02T03:04:05.{whole:06}Z", whole % 100).into(),
            Scalar::Duration => format!("{}m0s", whole % 59 + 1).into(),
            Scalar::Quantity => format!("{whole}Mi").into(),
            Scalar::IntOrString if whole % 2 == 0 => signed.into(),
            Scalar::IntOrString => format!("{whole}%").into(),
        }
    }
}

/// What a fuzzer does, for as long as a test may take.
#[test]
fn damaged_bytes_are_refused_or_mean_something() {
    let schemas = Schemas::new(Release::v1(36));
    let lookup = |version: &str, kind: &str| find(&schemas, version, kind);
    let seeds: Vec<Vec<u8>> = golden().map(|it| it.0).collect();
    let mut random = Random(42);
    let mut n_read = 0;
    for at in 0..20_000 {
        let mut bytes = seeds[at % seeds.len()].clone();
        for _ in 0..=random.below(2) {
            let place = usize::try_from(random.below(u64::try_from(bytes.len()).unwrap())).unwrap();
            let byte = u8::try_from(random.below(256)).unwrap();
            match random.below(30) {
                0 => bytes.truncate(place.max(1)),
                1 => bytes.insert(place, byte),
                2 => drop(bytes.remove(place)),
                _ => bytes[place] = byte,
            }
            if bytes.is_empty() {
                bytes.push(byte);
            }
        }
        let Ok(value) = protobuf::decode_object(&bytes, &lookup, schemas.schema()) else { continue };
        let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
        let Some(ty) = lookup(text("apiVersion"), text("kind")) else { continue };
        assert_eq!(decode(&schemas, &protobuf::encode_object(&value, schemas.schema(), ty)), value);
        n_read += 1;
    }
    assert!(n_read > 1000, "only {n_read} of them were still objects");
}
