//! Random objects of every kind go through the pipeline of the `schema` crate: what it accepts it leaves alone.

use catalog::{Catalog, FeatureGates, RuntimeConfig, Schemas};
use meta::Release;
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use schema::{
    Map, Value, check, default, keep,
    model::{ListKind, Scalar, Schema, Type, TypeId},
    prune,
};
use serde_json::json;

/// The types of all kinds.
fn kinds(schemas: &Schemas, release: Release) -> Vec<(String, TypeId)> {
    let all = RuntimeConfig::parse("api/all=true").unwrap();
    let catalog = Catalog::new(release, &all, &FeatureGates::defaults(release)).unwrap();
    let served = catalog.served().iter().map(|it| {
        let kind = schemas.kind(&it.definition.group, it.version.as_str(), &it.definition.kind).unwrap();
        (it.to_string(), kind)
    });
    served.collect()
}

/// A value of the type, made from a stream of random bytes. `all` lets fields of other releases appear.
fn value(
    schema: &Schema,
    ty: TypeId,
    bytes: &mut impl Iterator<Item = u8>,
    depth: usize,
    all: bool,
) -> Value {
    let mut next = |n: u8| bytes.next().unwrap_or(0) % n;
    match schema.get(ty) {
        Type::Scalar(scalar) => single(*scalar, next(4)),
        // A schema inside a custom resource definition, or what is really free.
        Type::Any if schema.name(ty).contains("JSONSchemaPropsOr") => json!({"type": "string"}),
        Type::Any => json!({"any": next(3)}),
        Type::Map(map) => {
            let n = next(3);
            let pairs = (0..n).map(|it| (format!("k{it}"), value(schema, map.value, bytes, depth + 1, all)));
            Value::Object(pairs.collect())
        }
        Type::List(list) => {
            let n = if depth > 12 { 0 } else { next(3) };
            let mut items: Vec<Value> =
                (0..n).map(|_| value(schema, list.element, bytes, depth + 1, all)).collect();
            if matches!(list.kind, ListKind::Set | ListKind::Map(_)) {
                items.truncate(1);
            }
            Value::Array(items)
        }
        Type::Object(object) => {
            let mut map = Map::new();
            for field in object.fields.iter().filter(|it| all || it.is_known) {
                let chance = if depth > 10 { 0 } else { bytes.next().unwrap_or(0) % 4 };
                if chance == 1 || (chance > 0 && depth == 0) {
                    map.insert(field.name.to_string(), value(schema, field.ty, bytes, depth + 1, all));
                }
            }
            Value::Object(map)
        }
    }
}

fn single(scalar: Scalar, choice: u8) -> Value {
    let number = i32::from(choice);
    match scalar {
        Scalar::String => json!(["", "a", "b c", "\u{fc}"][usize::from(choice)]),
        Scalar::Bool => json!(choice > 1),
        Scalar::Int32 | Scalar::Int64 | Scalar::Uint32 | Scalar::Uint64 | Scalar::Double => json!(number),
        Scalar::Bytes => json!(["", "YQ==", "YWI=", "YWJj"][usize::from(choice)]),
        Scalar::Time => json!("2026-01-02T03:04:05Z"),
        Scalar::MicroTime => json!("2026-01-02T03:04:05.123456Z"),
        Scalar::Duration => json!("1h0m0s"),
        Scalar::Quantity => json!(["0", "1", "500m", "1Gi"][usize::from(choice)]),
        Scalar::IntOrString => {
            [json!(0), json!(80), json!("http"), json!("25%")][usize::from(choice)].clone()
        }
    }
}

/// Always the same ones.
fn random() -> Vec<u8> {
    let mut runner = TestRunner::deterministic();
    proptest::collection::vec(any::<u8>(), 60_000).new_tree(&mut runner).unwrap().current()
}

#[test]
fn what_fits_its_type_is_left_alone() {
    for minor in 33..=36 {
        let release = Release::v1(minor);
        let schemas = Schemas::new(release);
        let schema = schemas.schema();
        let mut bytes = random().into_iter().cycle();
        for (name, ty) in kinds(&schemas, release) {
            for _ in 0..5 {
                let object = value(schema, ty, &mut bytes, 0, false);
                let checked = check::check(schema, ty, object.clone()).unwrap();
                assert_eq!(checked.value, object, "{name} in {release}");
                assert!(checked.unknown.is_empty());
                let text = serde_json::to_vec(&object).unwrap();
                assert!(check::strict_errors(schema, ty, &text).is_empty());
            }
        }
    }
}

#[test]
fn the_whole_pipeline_changes_nothing_when_it_runs_again() {
    let schemas = Schemas::new(Release::v1(36));
    let schema = schemas.schema();
    let mut bytes = random().into_iter().cycle();
    let run = |ty: TypeId, object: Value| {
        let mut object = check::check(schema, ty, object).unwrap().value;
        prune::drop_empty(schema, ty, &mut object);
        default::fill(schema, ty, &mut object);
        prune::fill_always(schema, ty, &mut object);
        object
    };
    for (name, ty) in kinds(&schemas, Release::v1(36)) {
        for _ in 0..5 {
            let once = run(ty, value(schema, ty, &mut bytes, 0, false));
            assert_eq!(run(ty, once.clone()), once, "{name}");
        }
    }
}

#[test]
fn a_client_of_an_older_release_that_puts_back_what_it_read_strips_nothing() {
    for minor in 33..=35 {
        let release = Release::v1(minor);
        let schemas = Schemas::new(release);
        let schema = schemas.schema();
        let mut bytes = random().into_iter().cycle();
        for (name, ty) in kinds(&schemas, release) {
            for _ in 0..5 {
                let stored = value(schema, ty, &mut bytes, 0, true);
                let mut put = check::check(schema, ty, stored.clone()).unwrap().value;
                keep::keep_unknown(schema, ty, &mut put, &stored);
                assert_eq!(put, stored, "{name} in {release}");
                let patched = check::check_patched(schema, ty, stored.clone(), &stored).unwrap();
                assert_eq!((patched.value, patched.unknown.len()), (stored, 0), "{name} in {release}");
            }
        }
    }
}

/// Puts something else into a random place.
fn spoil(value: &mut Value, bytes: &mut impl Iterator<Item = u8>) {
    let choice = usize::from(bytes.next().unwrap_or(0));
    match value {
        Value::Object(map) if !map.is_empty() && choice % 8 > 1 => {
            let at = choice % map.len();
            if let Some(inner) = map.values_mut().nth(at) {
                spoil(inner, bytes);
            }
        }
        Value::Array(items) if !items.is_empty() && choice % 8 > 1 => {
            let at = choice % items.len();
            spoil(&mut items[at], bytes);
        }
        Value::Object(map) if choice % 8 == 1 => {
            map.insert("nobody\u{2019}s \"field\"".to_owned(), json!([1, null]));
        }
        other => {
            *other =
                [json!(null), json!(-1), json!(1e99), json!("x"), json!([[]]), json!({"": {}}), json!(true)]
                    [choice % 7]
                    .clone()
        }
    }
}

#[test]
fn spoilt_objects_are_refused_or_read_and_the_complaints_agree() {
    let schemas = Schemas::new(Release::v1(34));
    let schema = schemas.schema();
    let mut bytes = random().into_iter().cycle();
    let (mut n_refused, mut n_read) = (0, 0);
    for (name, ty) in kinds(&schemas, Release::v1(34)) {
        for _ in 0..20 {
            let mut object = value(schema, ty, &mut bytes, 0, true);
            spoil(&mut object, &mut bytes);
            let text = serde_json::to_vec(&object).unwrap();
            let mut told = check::strict_errors(schema, ty, &text);
            let Ok(checked) = check::check(schema, ty, object) else {
                n_refused += 1;
                continue;
            };
            n_read += 1;
            let mut found: Vec<_> = checked.unknown.iter().map(|it| check::unknown_field(it)).collect();
            told.sort();
            found.sort();
            assert_eq!(found, told, "{name}");
        }
    }
    assert!(n_refused > 100 && n_read > 100, "{n_refused} refused, {n_read} read");
}
