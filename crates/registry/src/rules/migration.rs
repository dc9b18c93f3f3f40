//! Migrations of stored objects, in both groups, and the states that say in which versions objects may be stored.
//!
//! `storagemigration.k8s.io` has upstream's rules. The kinds of `migration.k8s.io` come from the storage version
//! migrator, which had none: here is what its documents ask for.

use std::collections::BTreeSet;

use meta::{FieldError, FieldErrors, GroupResource, Value, name, object, validate::IMMUTABLE};

use super::{
    conditions,
    value::{GoStruct, complain, items, text},
};

/// A migration or a state.
pub(super) fn validate(group: &str, resource: &str, object: &Value, errors: &mut FieldErrors) {
    check_resource(object, errors);
    if (group, resource) == ("migration.k8s.io", "storagestates") {
        check_name(object, errors);
    }
}

/// A migration or a state that was there before: what it is about stays.
pub(super) fn validate_changed(
    group: &str,
    resource: &str,
    new: &Value,
    old: &Value,
    errors: &mut FieldErrors,
) {
    validate(group, resource, new, errors);
    let subject = subject(new);
    if subject == self::subject(old) {
        return;
    }
    let (field, shown) = match group {
        // Upstream compares, and shows, the whole spec as Go knows it.
        "storagemigration.k8s.io" => ("spec", format!("{{\"Resource\":{subject}}}")),
        _ => ("spec.resource", subject),
    };
    errors.push(FieldError::invalid_shown(field, shown, IMMUTABLE));
}

/// A written status of a kind that the storage version migrator knows.
pub(super) fn validate_status(object: &Value, errors: &mut FieldErrors) {
    check_once(object, "conditions", "type", errors);
    check_once(object, "failures", "class", errors);
}

/// A written status of upstream's kind: it never goes back from its end.
pub(super) fn validate_final_status(new: &Value, old: &Value, errors: &mut FieldErrors) {
    const VERSION: &[&str] = &["status", "resourceVersion"];
    let (version, before) = (text(new, VERSION), text(old, VERSION));
    if !version.is_empty() && !is_well_formed(version) {
        let detail = format!("resource version is not well formed: {version}");
        errors.push(FieldError::invalid("status.resourceVersion", version, detail));
    }
    let conditions = items(new, &["status", "conditions"]);
    conditions::validate(conditions, "status.conditions", errors);
    if !before.is_empty() && before != version {
        errors.push(FieldError::invalid("status.resourceVersion", version, IMMUTABLE));
    }
    check_end(new, old, errors);
    check_once(new, "failures", "class", errors);
}

fn check_end(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let mut refuse = |detail: &str| {
        let shown = shown(items(new, &["status", "conditions"]));
        errors.push(FieldError::invalid_shown("status.conditions", shown, detail));
    };
    if is_true(new, "Succeeded") && is_true(new, "Failed") {
        refuse("Both success and failed conditions cannot be true at the same time");
    }
    if is_true(old, "Succeeded") && !is_true(new, "Succeeded") {
        refuse("Success condition cannot be set to false once it is true");
    }
    if is_true(old, "Failed") && !is_true(new, "Failed") {
        refuse("Failed condition cannot be set to false once it is true");
    }
}

/// A list in the status has each key once.
fn check_once(object: &Value, list: &str, key: &str, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (index, item) in items(object, &["status", list]).iter().enumerate() {
        let value = text(item, &[key]);
        if !seen.insert(value) {
            errors.push(FieldError::duplicate(format!("status.{list}[{index}].{key}"), value));
        }
    }
}

fn check_resource(object: &Value, errors: &mut FieldErrors) {
    let resource = text(object, &["spec", "resource", "resource"]);
    if resource.is_empty() {
        errors.push(FieldError::required("spec.resource.resource", "resource is required to be set"));
    } else {
        complain(errors, "spec.resource.resource", resource, name::dns_1035_label(resource));
    }
    let group = text(object, &["spec", "resource", "group"]);
    if !group.is_empty() {
        complain(errors, "spec.resource.group", group, name::dns_subdomain(group));
    }
}

/// A state is found by the name of its resource, so that it must have it.
fn check_name(object: &Value, errors: &mut FieldErrors) {
    let field = |field: &str| text(object, &["spec", "resource", field]);
    let expected = GroupResource::new(field("group"), field("resource")).to_string();
    let actual = object::name(object);
    if !field("resource").is_empty() && actual != expected {
        let detail = format!("must be the resource of the spec as <resource>.<group>: {expected:?}");
        errors.push(FieldError::invalid("metadata.name", actual, detail));
    }
}

/// What a migration or a state is about, as errors show it.
fn subject(object: &Value) -> String {
    let field = |field: &'static str| (field, text(object, &["spec", "resource", field]));
    match field("version") {
        (_, "") => GoStruct(&[field("group"), field("resource")]).to_string(),
        version => GoStruct(&[field("group"), version, field("resource")]).to_string(),
    }
}

fn is_true(object: &Value, kind: &str) -> bool {
    let mut conditions = items(object, &["status", "conditions"]).iter();
    let found = conditions.find(|it| text(it, &["type"]) == kind);
    found.is_some_and(|it| text(it, &["status"]) == "True")
}

/// Conditions as upstream's errors show them, but for generations, which migrations do not have.
fn shown(conditions: &[Value]) -> String {
    let condition = |condition: &Value| {
        let fields = ["type", "status", "lastTransitionTime", "reason", "message"];
        GoStruct(&fields.map(|it| (it, text(condition, &[it])))).to_string()
    };
    let conditions: Vec<String> = conditions.iter().map(condition).collect();
    format!("[{}]", conditions.join(","))
}

/// A positive number without a zero in front.
fn is_well_formed(version: &str) -> bool {
    !version.starts_with('0') && version.bytes().all(|it| it.is_ascii_digit())
}

#[cfg(test)]
mod tests;
