//! Which options of LIST and WATCH go together. All complaints come at once, as 422 in upstream's words.
//!
//! Deliberately not here: what a `resourceVersion` asks for (`resource_version`), and selectors.

use meta::{FieldError, FieldErrors, GroupKind, Status};

use crate::{ListOptions, WatchOptions};

const MATCH: &str = "resourceVersionMatch";

/// 422 if the options of a LIST, or of a DELETE of a collection, contradict each other.
pub(crate) fn check_list(options: &ListOptions) -> Result<(), Status> {
    let mut errors = FieldErrors::default();
    let how = options.resource_version_match.as_str();
    if !how.is_empty() {
        if options.resource_version.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            errors.push(FieldError::forbidden(MATCH, why));
        }
        if !options.continue_token.is_empty() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(FieldError::forbidden(MATCH, why));
        }
        if !matches!(how, "Exact" | "NotOlderThan") {
            errors.push(FieldError::not_supported(MATCH, how, &["Exact", "NotOlderThan", ""]));
        }
        if how == "Exact" && options.resource_version == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.push(FieldError::forbidden(MATCH, why));
        }
    }
    if options.send_initial_events.is_some() {
        let why = "sendInitialEvents is forbidden for list";
        errors.push(FieldError::forbidden("sendInitialEvents", why));
    }
    refuse(errors)
}

/// 422 if the options of a WATCH contradict each other.
pub(crate) fn check_watch(options: &WatchOptions) -> Result<(), Status> {
    let mut errors = FieldErrors::default();
    let how = options.resource_version_match.as_str();
    if options.send_initial_events.is_some() && how != "NotOlderThan" {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        errors.push(FieldError::forbidden(MATCH, why));
    }
    if !how.is_empty() {
        if options.send_initial_events.is_none() {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(FieldError::forbidden(MATCH, why));
        }
        if how != "NotOlderThan" {
            errors.push(FieldError::not_supported(MATCH, how, &["NotOlderThan"]));
        }
        if !options.continue_token.is_empty() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(FieldError::forbidden(MATCH, why));
        }
    }
    refuse(errors)
}

fn refuse(errors: FieldErrors) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(errors.into_status(&GroupKind::new("meta.k8s.io", "ListOptions"), ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(result: Result<(), Status>) -> usize {
        let Err(status) = result else { return 0 };
        assert_eq!(status.code, 422, "{}", status.message);
        status.details.map_or(0, |it| it.causes.len())
    }

    #[test]
    fn lists_hear_every_contradiction_at_once() {
        let check = |rv: &str, how: &str, token: &str, expect: usize| {
            let options = ListOptions {
                resource_version: rv.to_owned(),
                resource_version_match: how.to_owned(),
                continue_token: token.to_owned(),
                ..ListOptions::default()
            };
            assert_eq!(complaints(check_list(&options)), expect, "{rv:?} {how:?} {token:?}");
        };
        check("", "", "", 0);
        check("5", "Exact", "", 0);
        check("", "Exact", "", 1);
        check("0", "Exact", "", 1);
        check("5", "Exact", "x", 1);
        check("", "Other", "x", 3);
    }

    #[test]
    fn watches_name_a_match_only_with_initial_events() {
        let check = |how: &str, initial: Option<bool>, expect: usize| {
            let options = WatchOptions {
                resource_version_match: how.to_owned(),
                send_initial_events: initial,
                ..WatchOptions::default()
            };
            assert_eq!(complaints(check_watch(&options)), expect, "{how:?} {initial:?}");
        };
        check("", None, 0);
        check("NotOlderThan", Some(true), 0);
        check("", Some(false), 1);
        check("NotOlderThan", None, 1);
        check("Exact", None, 2);
        check("Exact", Some(true), 2);
    }
}
