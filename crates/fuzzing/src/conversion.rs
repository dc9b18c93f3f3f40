//! Objects of all kinds that have several versions, in all of them.

use std::sync::LazyLock;

use catalog::{Catalog, FeatureGates, RuntimeConfig, Schemas};
use meta::Release;
use registry::convert::Converter;
use schema::{Value, check, convert, json};

/// A constant, made once. The last release that reads v1alpha3, and so the one with the most pairs.
static KINDS: LazyLock<(Schemas, Vec<(String, Converter)>)> = LazyLock::new(|| {
    let release = Release::v1(33);
    let all = RuntimeConfig::parse("api/all=true").expect("the setting must be one");
    let catalog =
        Catalog::new(release, &all, &FeatureGates::defaults(release)).expect("the release must be known");
    let schemas = Schemas::new(release);
    let kinds = catalog.definitions().iter().map(|it| (it.kind.to_string(), Converter::new(&schemas, it)));
    let kinds = kinds.filter(|(_, it)| it.versions().len() > 1).collect();
    (schemas, kinds)
});

/// A manifest, there and back between all versions of its kind: what is lost is lost at once.
pub(crate) fn between_versions(data: &[u8]) {
    let Ok(value) = json::parse(data, json::Limits::REQUEST) else { return };
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let (schemas, kinds) = &*KINDS;
    for (_, converter) in kinds.iter().filter(|(kind, _)| kind == text("kind")) {
        let Some((from, ty)) = converter.versions().iter().find(|(it, _)| **it == *text("apiVersion")) else {
            continue;
        };
        // Whatever it is, it is survived.
        for (to, _) in converter.versions() {
            let _ = converter.convert(value.clone(), to);
        }
        let Ok(checked) = check::check(schemas.schema(), *ty, value.clone()) else { continue };
        let mut object = checked.value;
        convert::fit(schemas.schema(), *ty, &mut object);
        for (to, to_type) in converter.versions().iter().filter(|(it, _)| it != from) {
            let there = converter.convert(object.clone(), to);
            let checked = check::check(schemas.schema(), *to_type, there.clone())
                .expect("what was converted must be readable in its version");
            assert!(checked.unknown.is_empty(), "{:?}", checked.unknown);
            let back = converter.convert(there, from);
            let again = converter.convert(converter.convert(back.clone(), to), from);
            assert_eq!(again, back);
        }
    }
}
