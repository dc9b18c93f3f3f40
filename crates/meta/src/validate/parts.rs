//! The single parts of metadata: labels, annotations, owners, finalizers, and what may not change.

use std::collections::BTreeSet;

use super::{IMMUTABLE, MAX_ANNOTATION_BYTES};
use crate::{FieldError, FieldErrors, Map, Value, field::quote, name, object};

/// Groups whose kinds also want finalizers to be well known or to have a domain.
const STRICT_FINALIZER_GROUPS: [&str; 13] = [
    "",
    "apps",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

const KNOWN_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// What create and update check alike, in upstream's order.
pub(super) fn contents(object: &Value, errors: &mut FieldErrors) {
    labels(object, errors);
    annotations(object, errors);
    owner_references(object, errors);
    finalizers(object, errors);
}

fn labels(object: &Value, errors: &mut FieldErrors) {
    for (key, value) in texts(object, "labels") {
        for detail in name::qualified(key) {
            errors.push(FieldError::invalid("metadata.labels", key, detail));
        }
        for detail in name::label_value(value) {
            errors.push(FieldError::invalid("metadata.labels", value, detail));
        }
    }
}

fn annotations(object: &Value, errors: &mut FieldErrors) {
    let mut size: usize = 0;
    for (key, value) in texts(object, "annotations") {
        for detail in name::qualified(&key.to_lowercase()) {
            errors.push(FieldError::invalid("metadata.annotations", key, detail));
        }
        size = size.saturating_add(key.len()).saturating_add(value.len());
    }
    if size > MAX_ANNOTATION_BYTES {
        errors.push(FieldError::too_long("metadata.annotations", MAX_ANNOTATION_BYTES));
    }
}

fn owner_references(object: &Value, errors: &mut FieldErrors) {
    const PATH: &str = "metadata.ownerReferences";
    let references = items(object, "ownerReferences");
    let mut first_controller: Option<String> = None;
    for reference in references {
        let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or("");
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        // What has two slashes has no version for upstream.
        if api_version.split_once('/').map_or(api_version, |(_, it)| it).is_empty()
            || api_version.matches('/').count() > 1
        {
            let field = format!("{PATH}.apiVersion");
            errors.push(FieldError::invalid(field, api_version, "version must not be empty"));
        }
        for field in ["kind", "name", "uid"] {
            if text(field).is_empty() {
                errors.push(FieldError::invalid(format!("{PATH}.{field}"), "", "must not be empty"));
            }
        }
        if (api_version, kind) == ("v1", "Event") {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid_shown(PATH, shown_owner(reference), detail));
        }
        if reference.get("controller").and_then(Value::as_bool) != Some(true) {
            continue;
        }
        let this = format!("{kind}/{}", text("name"));
        if let Some(first) = &first_controller {
            let all: Vec<String> = references.iter().map(shown_owner).collect();
            let detail = format!(
                "Only one reference can have Controller set to true. Found \"true\" in references for {first} and \
                 {this}"
            );
            errors.push(FieldError::invalid_shown(PATH, format!("[{}]", all.join(",")), detail));
        } else {
            first_controller = Some(this);
        }
    }
}

/// An owner reference as upstream's encoder writes it.
fn shown_owner(reference: &Value) -> String {
    let text = |field: &str| {
        let value = reference.get(field).and_then(Value::as_str).unwrap_or("");
        format!("\"{field}\":{}", Value::from(value))
    };
    let mut parts = vec![text("apiVersion"), text("kind"), text("name"), text("uid")];
    for field in ["controller", "blockOwnerDeletion"] {
        if let Some(value) = reference.get(field).and_then(Value::as_bool) {
            parts.push(format!("\"{field}\":{value}"));
        }
    }
    format!("{{{}}}", parts.join(","))
}

fn finalizers(object: &Value, errors: &mut FieldErrors) {
    let finalizers = object::finalizers(object);
    for finalizer in &finalizers {
        for detail in name::qualified(finalizer) {
            errors.push(FieldError::invalid("metadata.finalizers", finalizer, detail));
        }
    }
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        let shown = Value::from(finalizers).to_string();
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid_shown("metadata.finalizers", shown, detail));
    }
}

/// Built-in kinds want a domain in the names of finalizers that upstream does not know.
pub(super) fn kube_finalizers(object: &Value, errors: &mut FieldErrors) {
    let group = object::api_version(object).split_once('/').map_or("", |(group, _)| group);
    if !STRICT_FINALIZER_GROUPS.contains(&group) {
        return;
    }
    for (index, finalizer) in object::finalizers(object).into_iter().enumerate() {
        if !finalizer.contains('/') && !KNOWN_FINALIZERS.contains(&finalizer) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(format!("metadata.finalizers[{index}]"), finalizer, detail));
        }
    }
}

/// An object that is being deleted gets no new finalizers: they would keep it for ever.
pub(super) fn no_new_finalizers(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let before = object::finalizers(old);
    let extra: BTreeSet<&str> =
        object::finalizers(new).into_iter().filter(|it| !before.contains(it)).collect();
    if !extra.is_empty() {
        let extra: Vec<String> = extra.into_iter().map(quote).collect();
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            extra.join(", ")
        );
        errors.push(FieldError::forbidden("metadata.finalizers", detail));
    }
}

/// What only the server decides, and only once.
pub(super) fn immutable(new: &Value, old: &Value, errors: &mut FieldErrors) {
    for field in ["name", "namespace", "uid"] {
        let now = object::meta_text(new, field);
        if now != object::meta_text(old, field) {
            errors.push(FieldError::invalid(format!("metadata.{field}"), now, IMMUTABLE));
        }
    }
    // Upstream prints a missing time as null, and a missing pointer as the text "null".
    for (field, missing) in [
        ("creationTimestamp", "null"),
        ("deletionTimestamp", "\"null\""),
        ("deletionGracePeriodSeconds", "\"null\""),
    ] {
        let (now, before) = (part(new, field), part(old, field));
        if now != before {
            let shown = now.map_or_else(|| missing.to_owned(), ToString::to_string);
            errors.push(FieldError::invalid_shown(format!("metadata.{field}"), shown, IMMUTABLE));
        }
    }
}

fn part<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get("metadata")?.get(field).filter(|it| !it.is_null())
}

fn items<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    part(object, field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn texts<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let map = part(object, field).and_then(Value::as_object);
    map.into_iter().flat_map(Map::iter).map(|(key, value)| (key.as_str(), value.as_str().unwrap_or("")))
}
