//! What is wrong with a CustomResourceDefinition, in upstream's words, paths and order.
//!
//! Upstream moves what all versions have in common to the top of the definition before it looks: a definition with one
//! version is told about `spec.validation`, not `spec.versions[0].schema`. So it is here.
//! Deliberately not here: schemas themselves (`schema::custom`), and metadata.

mod conversion;
mod shown;
#[cfg(test)]
mod tests;

use meta::{FieldError, FieldErrors, Value, name, object};
use schema::custom::{check_selectable, structural_errors};

/// The annotation with which groups of the Kubernetes community are approved.
pub(crate) const APPROVAL: &str = "api-approved.kubernetes.io";

const APPROVAL_PAGE: &str = "https://github.com/kubernetes/enhancements/pull/1111";

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

/// What is wrong with a new definition.
pub(crate) fn validate(crd: &Value, errors: &mut FieldErrors) {
    let wanted = format!("{}.{}", text(crd, "/spec/names/plural"), text(crd, "/spec/group"));
    if object::name(crd) != wanted && !object::name(crd).is_empty() {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", object::name(crd), detail));
    }
    reserved(crd, errors);
    spec(crd, None, errors);
    names(crd.pointer("/status/acceptedNames"), "status.acceptedNames", errors);
    stored_versions(crd, errors);
    approval(crd, None, errors);
    unknown_fields(crd, None, errors);
}

/// A definition has the fence and the StorageVersion of its resource: with the name of a resource that a server of some
/// release has built in, two kinds of objects would share them.
fn reserved(crd: &Value, errors: &mut FieldErrors) {
    let (group, plural) = (text(crd, "/spec/group"), text(crd, "/spec/names/plural"));
    if catalog::is_reserved(group, plural) {
        let detail = format!("{plural}.{group} is a built-in resource of Kubernetes and cannot be defined");
        errors.push(FieldError::forbidden("spec.names.plural", detail));
    }
}

/// What is wrong with a definition that replaces another.
pub(crate) fn validate_changed(new: &Value, old: &Value, errors: &mut FieldErrors) {
    spec(new, Some(old), errors);
    let is_established = has_condition(old, "Established");
    for (path, field) in [
        ("/spec/scope", "spec.scope"),
        ("/spec/names/kind", "spec.names.kind"),
        ("/spec/group", "spec.group"),
        ("/spec/names/plural", "spec.names.plural"),
    ] {
        let can_change = matches!(path, "/spec/scope" | "/spec/names/kind") && !is_established;
        if !can_change && text(new, path) != text(old, path) {
            errors.push(FieldError::invalid(field, text(new, path), "field is immutable"));
        }
    }
    names(new.pointer("/status/acceptedNames"), "status.acceptedNames", errors);
    stored_versions(new, errors);
    approval(new, Some(old), errors);
    unknown_fields(new, Some(old), errors);
}

/// What is wrong with the status of a definition.
pub(crate) fn validate_status(new: &Value, errors: &mut FieldErrors) {
    names(new.pointer("/status/acceptedNames"), "status.acceptedNames", errors);
}

/// Whether a definition has rules in CEL, which nothing enforces.
pub(crate) fn has_cel(crd: &Value) -> bool {
    fn has(value: &Value) -> bool {
        match value {
            Value::Object(map) => {
                map.get("x-kubernetes-validations").and_then(Value::as_array).is_some_and(|it| !it.is_empty())
                    || map.values().any(has)
            }
            Value::Array(items) => items.iter().any(has),
            _ => false,
        }
    }
    crd.pointer("/spec/versions").is_some_and(has)
}

/// Groups that belong to the Kubernetes community.
pub(crate) fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|it| group == *it || group.strip_suffix(it).is_some_and(|it| it.ends_with('.')))
}

fn text<'a>(crd: &'a Value, path: &str) -> &'a str {
    crd.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn versions(crd: &Value) -> &[Value] {
    crd.pointer("/spec/versions").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// What all versions have in common, if they do.
fn common<'a>(crd: &'a Value, field: &str) -> Option<&'a Value> {
    let versions = versions(crd);
    let first = versions.first()?.get(field);
    versions.iter().all(|it| it.get(field) == first).then_some(first)?
}

fn has_condition(crd: &Value, kind: &str) -> bool {
    let conditions = crd.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|it| it["type"] == kind && it["status"] == "True")
}

fn spec(crd: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let group = text(crd, "/spec/group");
    let complaints = name::dns_subdomain(group);
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !complaints.is_empty() {
        errors.push(FieldError::invalid("spec.group", group, complaints.join(",")));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid("spec.group", group, "should be a domain with at least one dot"));
    }
    choice("spec.scope", text(crd, "/spec/scope"), &["Cluster", "Namespaced"], errors);
    let all = versions(crd);
    if common(crd, "schema").is_none_or(|it| it.get("openAPIV3Schema").is_none()) {
        for (at, version) in all.iter().enumerate() {
            if version.pointer("/schema/openAPIV3Schema").is_none_or(Value::is_null) {
                let place = format!("spec.versions[{at}].schema.openAPIV3Schema");
                errors.push(FieldError::required(place, "schemas are required"));
            }
        }
    }
    for (at, version) in all.iter().enumerate() {
        one_version(crd, version, &format!("spec.versions[{at}]"), old, errors);
    }
    storage(crd, all, errors);
    for field in ["plural", "singular", "kind", "listKind"] {
        if text(crd, &format!("/spec/names/{field}")).is_empty() {
            errors.push(FieldError::required(format!("spec.names.{field}"), ""));
        }
    }
    names(crd.pointer("/spec/names"), "spec.names", errors);
    if let Some(shared) = common(crd, "schema") {
        let has_status = all.iter().any(has_status);
        schema(shared, "spec.validation", has_status, old, errors);
    }
    subresources(common(crd, "subresources"), "spec.subresources", errors);
    columns(common(crd, "additionalPrinterColumns"), "spec.additionalPrinterColumns", errors);
    if let Some(fields) = common(crd, "selectableFields").and_then(Value::as_array) {
        let shared = common(crd, "schema").and_then(|it| it.get("openAPIV3Schema"));
        selectable(
            shared.or_else(|| all.first()?.pointer("/schema/openAPIV3Schema")),
            fields,
            "spec.selectableFields",
            errors,
        );
    }
    conversion::check(crd, old, errors);
}

fn has_status(version: &Value) -> bool {
    version.pointer("/subresources/status").is_some_and(|it| !it.is_null())
}

fn storage(crd: &Value, all: &[Value], errors: &mut FieldErrors) {
    let mut seen: Vec<&str> = Vec::new();
    let mut is_unique = true;
    for version in all {
        let name = version.get("name").and_then(Value::as_str).unwrap_or_default();
        is_unique &= !seen.contains(&name);
        seen.push(name);
    }
    if !is_unique {
        let detail = "must contain unique version names";
        errors.push(FieldError::invalid_shown("spec.versions", shown::versions(crd), detail));
    }
    if all.iter().filter(|it| it.get("storage") == Some(&Value::Bool(true))).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid_shown("spec.versions", shown::versions(crd), detail));
    }
}

fn one_version(crd: &Value, version: &Value, path: &str, old: Option<&Value>, errors: &mut FieldErrors) {
    let own = version.get("name").and_then(Value::as_str).unwrap_or_default();
    let complaints = name::dns_1035_label(own);
    if !complaints.is_empty() {
        errors.push(FieldError::invalid(format!("{path}.name"), own, complaints.join(",")));
    }
    deprecation(version, &format!("{path}.deprecationWarning"), errors);
    let own_field = |field: &str| version.get(field).filter(|_| common(crd, field).is_none());
    if let Some(own) = own_field("schema") {
        schema(own, &format!("{path}.schema"), has_status(version), old, errors);
    }
    subresources(own_field("subresources"), &format!("{path}.subresources"), errors);
    columns(own_field("additionalPrinterColumns"), &format!("{path}.additionalPrinterColumns"), errors);
    if let Some(fields) = own_field("selectableFields").and_then(Value::as_array) {
        let schema = version.pointer("/schema/openAPIV3Schema");
        selectable(schema, fields, &format!("{path}.selectableFields"), errors);
    }
}

/// A schema that was stored before is not judged by rules of today.
fn schema(schema: &Value, path: &str, has_status: bool, old: Option<&Value>, errors: &mut FieldErrors) {
    let Some(root) = schema.get("openAPIV3Schema").filter(|it| !it.is_null()) else { return };
    let is_stored = |it: &&Value| {
        it.pointer("/schema/openAPIV3Schema") == Some(root) && self::has_status(it) == has_status
    };
    if old.is_some_and(|it| versions(it).iter().any(|it| is_stored(&it))) {
        return;
    }
    let found = structural_errors(root, &format!("{path}.openAPIV3Schema"), has_status);
    found.0.into_iter().for_each(|it| errors.push(it));
}

fn selectable(schema: Option<&Value>, fields: &[Value], path: &str, errors: &mut FieldErrors) {
    match schema {
        None => {
            let detail =
                "selectableFields may only be set when version.schema.openAPIV3Schema is not included";
            errors.push(FieldError::invalid(path, "", detail));
        }
        Some(schema) => check_selectable(schema, fields, path, errors),
    }
}

fn deprecation(version: &Value, path: &str, errors: &mut FieldErrors) {
    let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) else { return };
    if version.get("deprecated") != Some(&Value::Bool(true)) {
        errors.push(FieldError::invalid(path, warning, "can only be set for deprecated versions"));
        return;
    }
    if warning.len() > 256 {
        errors.push(FieldError::invalid(path, warning, "must be <= 256 characters long"));
    }
    if warning.is_empty() {
        errors.push(FieldError::invalid(path, warning, "must not be an empty string"));
    }
    if let Some((at, _)) = warning.char_indices().find(|(_, c)| c.is_control()) {
        let detail = format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        );
        errors.push(FieldError::invalid(path, warning, detail));
    }
}

fn names(names: Option<&Value>, path: &str, errors: &mut FieldErrors) {
    let Some(names) = names else { return };
    let own = |field: &str| names.get(field).and_then(Value::as_str).unwrap_or_default();
    for field in ["plural", "singular"] {
        let complaints = name::dns_1035_label(own(field));
        if !own(field).is_empty() && !complaints.is_empty() {
            errors.push(FieldError::invalid(format!("{path}.{field}"), own(field), complaints.join(",")));
        }
    }
    for field in ["kind", "listKind"] {
        let complaints = name::dns_1035_label(&own(field).to_lowercase());
        if !own(field).is_empty() && !complaints.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", complaints.join(","));
            errors.push(FieldError::invalid(format!("{path}.{field}"), own(field), detail));
        }
    }
    labels(names.get("shortNames"), &format!("{path}.shortNames"), errors);
    if !own("kind").is_empty() && own("kind") == own("listKind") {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(format!("{path}.listKind"), own("listKind"), detail));
    }
    labels(names.get("categories"), &format!("{path}.categories"), errors);
}

fn labels(list: Option<&Value>, path: &str, errors: &mut FieldErrors) {
    let list = list.and_then(Value::as_array);
    for (at, label) in list.into_iter().flatten().filter_map(Value::as_str).enumerate() {
        let complaints = name::dns_1035_label(label);
        if !complaints.is_empty() {
            errors.push(FieldError::invalid(format!("{path}[{at}]"), label, complaints.join(",")));
        }
    }
}

fn subresources(subresources: Option<&Value>, path: &str, errors: &mut FieldErrors) {
    let Some(scale) = subresources.and_then(|it| it.get("scale")).filter(|it| !it.is_null()) else { return };
    let own = |field: &str| scale.get(field).and_then(Value::as_str).unwrap_or_default();
    for (field, prefix) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        let place = format!("{path}.scale.{field}");
        if own(field).is_empty() {
            errors.push(FieldError::required(place, ""));
        } else if simple_path(own(field), &place, errors) && !own(field).starts_with(prefix) {
            let detail = format!("should be a json path under {}", prefix.trim_end_matches('.'));
            errors.push(FieldError::invalid(place, own(field), detail));
        }
    }
    let (selector, place) = (own("labelSelectorPath"), format!("{path}.scale.labelSelectorPath"));
    if !selector.is_empty()
        && simple_path(selector, &place, errors)
        && !selector.starts_with(".spec.")
        && !selector.starts_with(".status.")
    {
        let detail = "should be a json path under either .spec or .status";
        errors.push(FieldError::invalid(place, selector, detail));
    }
}

fn simple_path(path: &str, place: &str, errors: &mut FieldErrors) -> bool {
    if !path.starts_with('.') {
        errors.push(FieldError::invalid(place, path, "must be a simple json path starting with ."));
    }
    path.starts_with('.')
}

fn columns(columns: Option<&Value>, path: &str, errors: &mut FieldErrors) {
    for (at, column) in columns.and_then(Value::as_array).into_iter().flatten().enumerate() {
        let own = |field: &str| column.get(field).and_then(Value::as_str).unwrap_or_default();
        let place = |field: &str| format!("{path}[{at}].{field}");
        if own("name").is_empty() {
            errors.push(FieldError::required(place("name"), ""));
        }
        let detail = format!("must be one of {}", COLUMN_TYPES.join(","));
        if own("type").is_empty() {
            errors.push(FieldError::required(place("type"), detail));
        } else if !COLUMN_TYPES.contains(&own("type")) {
            errors.push(FieldError::invalid(place("type"), own("type"), detail));
        }
        if !own("format").is_empty() && !COLUMN_FORMATS.contains(&own("format")) {
            let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
            errors.push(FieldError::invalid(place("format"), own("format"), detail));
        }
        if own("jsonPath").is_empty() {
            errors.push(FieldError::required(place("JSONPath"), ""));
        } else {
            simple_path(own("jsonPath"), &place("JSONPath"), errors);
        }
    }
}

fn choice(path: &str, value: &str, accepted: &[&str], errors: &mut FieldErrors) {
    if value.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !accepted.contains(&value) {
        errors.push(FieldError::not_supported(path, value, accepted));
    }
}

fn stored_versions(crd: &Value, errors: &mut FieldErrors) {
    const PLACE: &str = "status.storedVersions";
    let stored = super::prepare::stored_versions(crd);
    let shown = || Value::from(stored.clone()).to_string();
    if stored.is_empty() {
        errors.push(FieldError::invalid_shown(PLACE, shown(), "must have at least one stored version"));
        return;
    }
    let all: Vec<&str> = versions(crd).iter().filter_map(|it| it.get("name")?.as_str()).collect();
    if let Some(storage) = super::prepare::storage_version(crd).filter(|it| !stored.contains(it)) {
        let detail = format!("must have the storage version {storage}");
        errors.push(FieldError::invalid_shown(PLACE, shown(), detail));
    }
    for (at, version) in stored.iter().enumerate().filter(|(_, it)| !all.contains(it)) {
        let detail = format!(
            "missing from spec.versions; {version} was previously a storage version, and must remain in spec.versions \
             until a storage migration ensures no data remains persisted in {version} and removes {version} from \
             status.storedVersions"
        );
        errors.push(FieldError::invalid(format!("{PLACE}[{at}]"), version, detail));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Approval {
    Missing,
    Invalid,
    Given,
}

fn approval_of(crd: &Value) -> (Approval, &str) {
    let annotations = crd.get("metadata").and_then(|it| it.get("annotations"));
    let Some(text) = annotations.and_then(|it| it.get(APPROVAL)).and_then(Value::as_str) else {
        return (Approval::Missing, "");
    };
    let is_page = text.split_once("://").is_some_and(|(scheme, rest)| {
        !scheme.is_empty() && !rest.is_empty() && !rest.starts_with('/') && !text.contains(' ')
    });
    let state = match text {
        "" => Approval::Missing,
        text if text.starts_with("unapproved") || is_page => Approval::Given,
        _ => Approval::Invalid,
    };
    (state, text)
}

fn approval(crd: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    if !is_protected(text(crd, "/spec/group")) || old.is_some_and(|it| approval_of(it).0 != Approval::Given) {
        return;
    }
    let place = format!("metadata.annotations[{APPROVAL}]");
    let needed = format!("protected groups must have approval annotation \"{APPROVAL}\"");
    match approval_of(crd) {
        (Approval::Given, _) => {}
        (Approval::Missing, _) => {
            errors.push(FieldError::required(place, format!("{needed}, see {APPROVAL_PAGE}")));
        }
        (Approval::Invalid, text) => {
            let detail = format!(
                "{needed} with either a URL or a reason starting with \"unapproved\", see {APPROVAL_PAGE}"
            );
            errors.push(FieldError::invalid(place, text, detail));
        }
    }
}

fn unknown_fields(crd: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let keeps = |it: &Value| it.pointer("/spec/preserveUnknownFields") == Some(&Value::Bool(true));
    if keeps(crd) && !old.is_some_and(keeps) {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema \
                      instead";
        errors.push(FieldError::invalid_shown("spec.preserveUnknownFields", "true".to_owned(), detail));
    }
}
