//! The scale of a custom object: wherever its definition says that it is.

use meta::{FieldError, FieldErrors, Value, object};
use serde_json::json;

use super::{Custom, ScalePaths};
use crate::Target;

/// Where the parts of the target's scale are; `None` if it is no custom kind.
pub(crate) fn paths(target: &Target) -> Option<&ScalePaths> {
    let custom = target.kind.custom.as_deref()?;
    custom.version(target.group_version.version.as_str())?.scale.as_ref()
}

/// The value at a path of plain names, such as `.spec.replicas`.
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.trim_start_matches('.').split('.').try_fold(value, |value, name| value.get(name))
}

/// Puts a value at a path of plain names.
pub(crate) fn put(value: &mut Value, path: &str, number: i64) {
    let names: Vec<&str> = path.trim_start_matches('.').split('.').collect();
    let Some((last, parents)) = names.split_last() else { return };
    let mut map = object::as_map_mut(value);
    for name in parents {
        map = object::child_mut(map, name);
    }
    map.insert((*last).to_owned(), Value::from(number));
}

/// `spec`, `status` of the scale.
pub(crate) fn of(paths: &ScalePaths, object: &Value) -> (Value, Value) {
    let number = |path: &str| at(object, path).and_then(Value::as_i64);
    let mut status = json!({"replicas": number(&paths.status_replicas_path).unwrap_or(0)});
    let selector = at(object, &paths.label_selector_path).and_then(Value::as_str).unwrap_or_default();
    if !selector.is_empty() && !paths.label_selector_path.is_empty() {
        status["selector"] = json!(selector);
    }
    let mut spec = json!({});
    if let Some(replicas) = number(&paths.spec_replicas_path).filter(|it| *it != 0) {
        spec["replicas"] = json!(replicas);
    }
    (spec, status)
}

/// The numbers that a scale shows are numbers.
pub(super) fn validate(custom: &Custom, target: &Target, object: &Value, errors: &mut FieldErrors) {
    let version = custom.version(target.group_version.version.as_str());
    let Some(paths) = version.and_then(|it| it.scale.as_ref()) else { return };
    for path in [&paths.spec_replicas_path, &paths.status_replicas_path] {
        let Some(value) = at(object, path) else { continue };
        let place = path.trim_start_matches('.');
        match value.as_i64() {
            Some(number) if number < 0 => {
                let detail = "should be a non-negative integer";
                errors.push(FieldError::invalid_shown(place, number.to_string(), detail));
            }
            Some(number) if number > i64::from(i32::MAX) => {
                let detail = format!("should be less than or equal to {}", i32::MAX);
                errors.push(FieldError::invalid_shown(place, number.to_string(), detail));
            }
            _ => {}
        }
    }
}
