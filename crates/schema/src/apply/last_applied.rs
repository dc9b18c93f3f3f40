//! Taking over from client-side apply: `kubectl` may change what its own annotation says it applied before.

use super::{compare::compare, engine::Engine, set::FieldSet, typed};
use crate::{Map, Value, json};

/// Where client-side apply keeps what it applied.
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The only manager that takes over. Others opt out by another name.
pub(super) const MANAGER: &str = "kubectl";

/// All annotations of an object together.
const MAX_ANNOTATIONS: usize = 256 << 10;

/// What the annotation says was applied and still is in the object; nothing if there is no usable annotation.
pub(super) fn fields(engine: &Engine<'_>, live: &Value, version: &str) -> Option<FieldSet> {
    let text = annotations(live)?.get(ANNOTATION)?.as_str().filter(|it| !it.is_empty())?;
    let last = json::parse(text.as_bytes(), json::Limits::REQUEST).ok()?;
    if last.get("apiVersion").and_then(Value::as_str) != Some(version) {
        return None;
    }
    let (schema, ty) = engine.type_of(version).ok()?;
    if !typed::complaints(schema, ty, &last).is_empty() {
        return None;
    }
    let changes = compare(schema, ty, &last, live);
    let set = typed::field_set(schema, ty, &last);
    Some(set.difference(&changes.changed()).difference(&changes.removed))
}

/// Keeps the annotation up to date, if there is one: client-side apply still works afterwards.
pub(super) fn refresh(object: &mut Value, config: &Value) {
    let has_one = annotations(object)
        .and_then(|it| it.get(ANNOTATION))
        .and_then(Value::as_str)
        .is_some_and(|it| !it.is_empty());
    if !has_one {
        return;
    }
    let mut config = config.clone();
    if let Some(map) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        map.remove(ANNOTATION);
    }
    let text = go_encoded(&config);
    let Some(map) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else {
        return;
    };
    map.insert(ANNOTATION.to_owned(), Value::from(text));
    let size =
        |map: &Map| map.iter().map(|(key, it)| key.len() + it.as_str().map_or(0, str::len)).sum::<usize>();
    if size(map) > MAX_ANNOTATIONS {
        map.remove(ANNOTATION);
    }
}

/// As Go's encoder writes it: what could be taken for HTML is escaped, and a line end follows.
fn go_encoded(value: &Value) -> String {
    let text = String::from_utf8_lossy(&json::to_vec(value)).into_owned();
    let text = text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    format!("{text}\n")
}

fn annotations(object: &Value) -> Option<&Map> {
    object.get("metadata")?.get("annotations")?.as_object()
}
