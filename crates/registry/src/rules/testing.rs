//! How the rules are tested: an object goes in, lines `reason field: message` come out.

use meta::{FieldErrors, Value};

use super::{Subject, validate_changed, validate_new};

/// `"rbac.authorization.k8s.io/v1/roles"`, `"v1/namespaces/finalize"`.
fn subject(path: &str) -> Subject<'_> {
    let parts: Vec<&str> = path.split('/').collect();
    let is_core = parts[0].starts_with('v') && !parts[0].contains('.');
    let (group, rest) = if is_core { ("", &parts[..]) } else { (parts[0], &parts[1..]) };
    let subresource = rest.get(2).copied().unwrap_or("");
    Subject { group, version: rest[0], resource: rest[1], subresource }
}

fn lines(errors: &FieldErrors) -> Vec<String> {
    let reason = |it: &meta::FieldError| it.problem.reason().trim_start_matches("FieldValue").to_owned();
    errors.0.iter().map(|it| format!("{} {it}", reason(it))).collect()
}

/// A new object has these errors.
#[track_caller]
pub(super) fn expect_new(path: &str, object: &Value, expected: &[&str]) {
    assert_eq!(lines(&validate_new(subject(path), object)), expected, "{object}");
}

/// The change of an object has these errors.
#[track_caller]
pub(super) fn expect_changed(path: &str, new: &Value, old: &Value, expected: &[&str]) {
    assert_eq!(lines(&validate_changed(subject(path), new, old)), expected, "{old} -> {new}");
}
