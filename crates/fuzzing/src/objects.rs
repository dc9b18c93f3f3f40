//! Objects of the built-in kinds on their way to the store, as a release sees them that does not know all of their fields.

use std::sync::LazyLock;

use catalog::Schemas;
use meta::Release;
use schema::{Value, check, default, json, keep, model::TypeId, prune};

/// A constant, made once: reading the table for every input would take all the time there is.
static SCHEMAS: LazyLock<Schemas> = LazyLock::new(|| Schemas::new(Release::v1(33)));

/// A manifest: what is accepted stays as it is when it is sent again, and fields of other releases survive.
pub(crate) fn manifest(data: &[u8]) {
    let Ok(report) = json::parse_report(data, json::Limits::REQUEST) else { return };
    let text = |name: &str| report.value.get(name).and_then(Value::as_str).unwrap_or_default();
    let Some(ty) = find(text("apiVersion"), text("kind")) else { return };
    let schema = SCHEMAS.schema();
    let errors = check::strict_errors(schema, ty, data);
    assert!(errors.len() <= check::MAX_REPORTED);
    let Ok(checked) = check::check(schema, ty, report.value.clone()) else { return };
    // A text that is not quite UTF-8 is read, but not walked to its end.
    if std::str::from_utf8(data).is_ok() && checked.unknown.len() < check::MAX_REPORTED {
        for path in &checked.unknown {
            let error = check::unknown_field(path);
            assert!(errors.len() == check::MAX_REPORTED || errors.contains(&error), "{error}");
        }
    }
    let once = settle(ty, checked.value);
    let again = check::check(schema, ty, once.clone()).expect("what was accepted must be acceptable");
    assert!(again.unknown.is_empty());
    assert_eq!(settle(ty, again.value), once);

    let mut kept = once.clone();
    keep::keep_unknown(schema, ty, &mut kept, &report.value);
    let back = check::check(schema, ty, kept.clone()).expect("what was kept must be acceptable");
    assert_eq!(settle(ty, back.value), once);
    let patched = check::check_patched(schema, ty, kept.clone(), &kept).expect("the same must be acceptable");
    let _ = patched.unknown;
}

fn settle(ty: TypeId, mut value: Value) -> Value {
    let schema = SCHEMAS.schema();
    prune::drop_empty(schema, ty, &mut value);
    default::fill(schema, ty, &mut value);
    prune::fill_always(schema, ty, &mut value);
    value
}

fn find(api_version: &str, kind: &str) -> Option<TypeId> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    SCHEMAS.kind(group, version, kind)
}
