//! What the server decides about a definition when it is written or deleted: defaults, stored versions, its finalizer.

use meta::{Value, object};

use super::names;

/// Holds a deleted definition until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Fills in what a definition does not say.
pub(crate) fn fill_in(crd: &mut Value) {
    let spec = object::child_mut(object::as_map_mut(crd), "spec");
    let names = object::child_mut(spec, "names");
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_said = |it: Option<&Value>| it.and_then(Value::as_str).is_some_and(|it| !it.is_empty());
    if !kind.is_empty() {
        if !is_said(names.get("singular")) {
            names.insert("singular".to_owned(), Value::from(kind.to_lowercase()));
        }
        if !is_said(names.get("listKind")) {
            names.insert("listKind".to_owned(), Value::from(format!("{kind}List")));
        }
    }
    let conversion = object::child_mut(spec, "conversion");
    if !is_said(conversion.get("strategy")) {
        conversion.insert("strategy".to_owned(), Value::from("None"));
    }
    let service = conversion
        .get_mut("webhook")
        .and_then(|it| it.get_mut("clientConfig"))
        .and_then(|it| it.get_mut("service"))
        .and_then(Value::as_object_mut);
    if let Some(service) = service {
        service.entry("port").or_insert_with(|| Value::from(443));
    }
}

/// Notes that objects may be stored in the version that is stored from now on.
pub(crate) fn note_storage(crd: &mut Value) {
    let Some(version) = storage_version(crd).map(str::to_owned) else { return };
    let status = object::child_mut(object::as_map_mut(crd), "status");
    let stored = status.entry("storedVersions").or_insert_with(|| Value::Array(Vec::new()));
    if stored.is_null() {
        *stored = Value::Array(Vec::new());
    }
    if let Value::Array(stored) = stored
        && !stored.iter().any(|it| *it == version)
    {
        stored.push(Value::from(version));
    }
}

/// The version that a definition says is stored.
pub(crate) fn storage_version(crd: &Value) -> Option<&str> {
    let versions = crd.get("spec")?.get("versions")?.as_array()?;
    versions.iter().find(|it| it.get("storage") == Some(&Value::Bool(true)))?.get("name")?.as_str()
}

/// `status.storedVersions`
pub(crate) fn stored_versions(crd: &Value) -> Vec<&str> {
    let stored = crd.get("status").and_then(|it| it.get("storedVersions")).and_then(Value::as_array);
    stored.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// A deleted definition waits for its objects, and says so.
pub(crate) fn mark_deleted(crd: &mut Value, now: &str) {
    let metadata = object::metadata_mut(crd);
    metadata.remove("deletionGracePeriodSeconds");
    let finalizers = metadata.entry("finalizers").or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(finalizers) = finalizers
        && !finalizers.iter().any(|it| it == CLEANUP)
    {
        finalizers.push(Value::from(CLEANUP));
    }
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set_condition(crd, &names::condition("Terminating", true, "InstanceDeletionPending", message), now);
}

/// Puts a condition into a definition. One that changed gets the time.
pub(crate) fn set_condition(crd: &mut Value, new: &super::definition::Condition, now: &str) {
    let status = object::child_mut(object::as_map_mut(crd), "status");
    let conditions = status.entry("conditions").or_insert_with(|| Value::Array(Vec::new()));
    if !conditions.is_array() {
        *conditions = Value::Array(Vec::new());
    }
    let Value::Array(conditions) = conditions else { return };
    let old = conditions.iter_mut().find(|it| it["type"] == new.kind);
    let since = old
        .as_ref()
        .filter(|it| it["status"] == new.status)
        .and_then(|it| it.get("lastTransitionTime").cloned())
        .unwrap_or_else(|| Value::from(now));
    let value = serde_json::json!({
        "type": new.kind,
        "status": new.status,
        "lastTransitionTime": since,
        "reason": new.reason,
        "message": new.message,
    });
    match old {
        Some(old) => *old = value,
        None => conditions.push(value),
    }
}
