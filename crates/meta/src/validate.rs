//! Checks of the metadata that every object has, with upstream's paths, texts and order.
//!
//! Start at [`validate_object_meta`] (create) and [`validate_object_meta_update`] (update, on top of it for what
//! changed). [`metadata_shape`] comes before both: it tells whether the JSON has the right types at all.
//! Deliberately not here: the content of particular kinds, and filling in what the server decides.

mod parts;
mod rule;
mod shape;
#[cfg(test)]
mod tests;

pub use rule::{NameRule, name_rule};
pub use shape::metadata_shape;

use crate::{FieldError, FieldErrors, Value, object};

/// The words for a field that may not change.
pub const IMMUTABLE: &str = "field is immutable";

/// All keys and values of the annotations of one object together have at most this many bytes.
pub const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

/// What is wrong with the metadata of an object that is to be created.
/// A name made from `generateName` must be in place.
pub fn validate_object_meta(object: &Value, namespaced: bool, name_rule: NameRule) -> FieldErrors {
    let mut errors = FieldErrors::default();
    names(object, name_rule, &mut errors);
    namespace(object, namespaced, &mut errors);
    let generation = object::meta_number(object, "generation");
    if generation < 0 {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid_shown("metadata.generation", generation.to_string(), detail));
    }
    parts::contents(object, &mut errors);
    parts::kube_finalizers(object, &mut errors);
    errors
}

/// What is wrong with the metadata of an object that is to replace `old`.
///
/// As upstream, everything but the last check is reported twice (once for all kinds and once by the kind); the
/// message of the `Status` says it once, its causes twice. That a `resourceVersion` is there is not checked: whether
/// it may be missing depends on the kind, and stored objects have none.
pub fn validate_object_meta_update(new: &Value, old: &Value) -> FieldErrors {
    let mut once = FieldErrors::default();
    if object::is_deleting(old) {
        parts::no_new_finalizers(new, old, &mut once);
    }
    let generation = object::meta_number(new, "generation");
    if generation < object::meta_number(old, "generation") {
        let detail = "must not be decremented";
        once.push(FieldError::invalid_shown("metadata.generation", generation.to_string(), detail));
    }
    parts::immutable(new, old, &mut once);
    parts::contents(new, &mut once);
    let mut errors = once.clone();
    errors.0.extend(once.0);
    parts::kube_finalizers(new, &mut errors);
    errors
}

fn names(object: &Value, name_rule: NameRule, errors: &mut FieldErrors) {
    let generate = object::meta_text(object, "generateName");
    if !generate.is_empty() {
        for detail in name_rule.check_prefix(generate) {
            errors.push(FieldError::invalid("metadata.generateName", generate, detail));
        }
    }
    let name = object::name(object);
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
        return;
    }
    for detail in name_rule.check(name) {
        errors.push(FieldError::invalid("metadata.name", name, detail));
    }
}

fn namespace(object: &Value, namespaced: bool, errors: &mut FieldErrors) {
    let namespace = object::namespace(object);
    match (namespaced, namespace.is_empty()) {
        (true, true) => errors.push(FieldError::required("metadata.namespace", "")),
        (true, false) => {
            for detail in NameRule::Label.check(namespace) {
                errors.push(FieldError::invalid("metadata.namespace", namespace, detail));
            }
        }
        (false, true) => {}
        (false, false) => {
            errors.push(FieldError::forbidden("metadata.namespace", "not allowed on this type"));
        }
    }
}
