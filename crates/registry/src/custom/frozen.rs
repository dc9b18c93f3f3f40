//! The storage version of a definition does not move while its objects are migrated (KEP-2855).
//!
//! The definition that an update replaces decides, so there is no race with whoever freezes it.

use jiff::Timestamp;
use meta::{FieldError, FieldErrors, Status, Value, freeze};

use crate::Target;

/// 422 if a change would move the storage version of a frozen definition. Any other change passes.
pub(crate) fn check_frozen(target: &Target, new: &Value, old: &Value, now: Timestamp) -> Result<(), Status> {
    let (before, after) = (freeze::storage_version(old), freeze::storage_version(new));
    if before == after || !freeze::is_frozen(old, now) {
        return Ok(());
    }
    let (what, remedy) = match freeze::annotation(old, freeze::FROZEN_BY) {
        Some(by) => {
            let name = by.rsplit('/').next().unwrap_or(by);
            let remedy = format!("wait for it, or run `convoy migrate --cancel {name}`");
            (format!("while the StorageVersionMigration {by} runs"), remedy)
        }
        None => {
            ("while the definition is frozen".to_owned(), "remove the annotation to change it".to_owned())
        }
    };
    let versions = new.get("spec").and_then(|it| it.get("versions")).and_then(Value::as_array);
    let is_after = |it: &Value| it.get("name").and_then(Value::as_str) == after;
    let at = versions.and_then(|it| it.iter().position(is_after)).unwrap_or_default();
    let mut errors = FieldErrors::default();
    errors.push(FieldError::forbidden(
        format!("spec.versions[{at}].storage"),
        format!(
            "the storage version stays {} {what} ({}=true); {remedy}",
            before.unwrap_or_default(),
            freeze::FROZEN
        ),
    ));
    Err(errors.into_status(&target.kind.group_kind, &target.name))
}
