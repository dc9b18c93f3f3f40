//! Random objects of every kind: filling in changes nothing that is set, and nothing at all the second time.

use catalog::{Catalog, FeatureGates, RuntimeConfig};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use schema::model::{ListKind, Scalar, Type};

use super::*;

/// Words that defaults look at are among the values.
const WORDS: [&str; 12] = [
    "a",
    "b c",
    "nginx:latest",
    "Always",
    "RollingUpdate",
    "OnDelete",
    "ClientIP",
    "LoadBalancer",
    "Container",
    "User",
    "ExactCount",
    "",
];

fn value(schema: &Schema, ty: TypeId, bytes: &mut impl Iterator<Item = u8>, depth: usize) -> Value {
    let mut next = |n: u8| bytes.next().unwrap_or(0) % n;
    match schema.get(ty) {
        Type::Scalar(scalar) => single(*scalar, next(12)),
        Type::Any if schema.name(ty).contains("JSONSchemaPropsOr") => json!({"type": "string"}),
        Type::Any => json!({"any": next(3)}),
        Type::Map(map) => {
            let n = next(3);
            let pairs = (0..n).map(|it| (format!("k{it}"), value(schema, map.value, bytes, depth + 1)));
            Value::Object(pairs.collect())
        }
        Type::List(list) => {
            let n = if depth > 12 { 0 } else { next(3) };
            let mut items: Vec<Value> =
                (0..n).map(|_| value(schema, list.element, bytes, depth + 1)).collect();
            if matches!(list.kind, ListKind::Set | ListKind::Map(_)) {
                items.truncate(1);
            }
            Value::Array(items)
        }
        Type::Object(object) => {
            let mut map = Map::new();
            for field in object.fields.iter().filter(|it| it.is_known) {
                let chance = if depth > 10 { 0 } else { bytes.next().unwrap_or(0) % 4 };
                if chance == 1 || (chance > 0 && depth < 2) {
                    map.insert(field.name.to_string(), value(schema, field.ty, bytes, depth + 1));
                }
            }
            Value::Object(map)
        }
    }
}

fn single(scalar: Scalar, choice: u8) -> Value {
    let number = i64::from(choice % 4);
    match scalar {
        Scalar::String => json!(WORDS[usize::from(choice)]),
        Scalar::Bool => json!(choice > 5),
        Scalar::Int32 | Scalar::Int64 | Scalar::Uint32 | Scalar::Uint64 | Scalar::Double => json!(number),
        Scalar::Bytes => json!("YQ=="),
        Scalar::Time => json!("2026-01-02T03:04:05Z"),
        Scalar::MicroTime => json!("2026-01-02T03:04:05.123456Z"),
        Scalar::Duration => json!("1h0m0s"),
        Scalar::Quantity => json!(["0", "1", "500m", "1Gi"][usize::from(choice % 4)]),
        Scalar::IntOrString => [json!(80), json!("http")][usize::from(choice % 2)].clone(),
    }
}

/// Whether everything that was set is still set, but for what has two names, loses its meaning, or names a kind that is
/// known anyway.
fn is_kept(before: &Value, after: &Value) -> Result<(), String> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (field, value) in before {
                if matches!(
                    field.as_str(),
                    "serviceAccount" | "sessionAffinityConfig" | "apiVersion" | "kind"
                ) {
                    continue;
                }
                let Some(new) = after.get(field) else { return Err(format!("{field} is gone")) };
                is_kept(value, new).map_err(|it| format!("{field}.{it}"))?;
            }
            Ok(())
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            before.iter().zip(after).try_for_each(|(before, after)| is_kept(before, after))
        }
        _ if before == after => Ok(()),
        // Zeros of fields that are always written count as unset.
        _ if before == "" || *before == json!(0) || *before == json!([]) => Ok(()),
        _ => Err(format!("{before} became {after}")),
    }
}

#[test]
fn what_is_set_stays_and_what_is_filled_in_stays_the_same() {
    let mut runner = TestRunner::deterministic();
    let bytes = proptest::collection::vec(any::<u8>(), 60_000).new_tree(&mut runner).unwrap().current();
    let mut bytes = bytes.into_iter().cycle();
    for minor in [33, 36] {
        let release = Release::v1(minor);
        let schemas = Schemas::new(release);
        let all = RuntimeConfig::parse("api/all=true").unwrap();
        let catalog = Catalog::new(release, &all, &FeatureGates::defaults(release)).unwrap();
        for served in catalog.served() {
            let definition = &served.definition;
            let ty = schemas.kind(&definition.group, served.version.as_str(), &definition.kind).unwrap();
            for _ in 0..8 {
                let sent = value(schemas.schema(), ty, &mut bytes, 0);
                let mut pruned = sent.clone();
                prune::drop_empty(schemas.schema(), ty, &mut pruned);
                let once = settle(&schemas, release, ty, sent);
                is_kept(&pruned, &once).unwrap_or_else(|it| panic!("{served} in {release}: {it}"));
                assert_eq!(settle(&schemas, release, ty, once.clone()), once, "{served} in {release}");
            }
        }
    }
}
