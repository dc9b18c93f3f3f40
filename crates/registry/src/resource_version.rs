//! What a client's `resourceVersion` and `resourceVersionMatch` ask for.

use meta::{FieldError, Status};
use store::Revision;

/// How fresh, or how exactly old, an answer must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Not older than any write acknowledged before the request.
    Consistent,
    /// Whatever is at hand.
    Any,
    /// At least this revision.
    NotOlderThan(Revision),
    /// Exactly this revision.
    Exact(Revision),
}

/// Reads a `resourceVersion`. Empty is `None`.
pub fn parse(text: &str) -> Result<Option<Revision>, Status> {
    if text.is_empty() {
        return Ok(None);
    }
    let number: u64 = text.parse().map_err(|_| {
        let error = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
        Status::bad_request(format!("resourceVersion: Invalid value: {}: {error}", meta::field::quote(text)))
    })?;
    Ok(Some(Revision::new(number)))
}

/// What a GET asks for: a resource version there only says how stale the answer may be.
pub fn for_get(text: &str) -> Result<Wanted, Status> {
    Ok(match parse(text)? {
        None => Wanted::Consistent,
        Some(Revision::ZERO) => Wanted::Any,
        Some(revision) => Wanted::NotOlderThan(revision),
    })
}

/// What a LIST asks for.
pub fn for_list(text: &str, how: &str, limit: Option<u64>, is_continued: bool) -> Result<Wanted, Status> {
    let refuse = |error: FieldError| Status::bad_request(error.to_string());
    let revision = parse(text)?;
    if !how.is_empty() {
        if is_continued {
            let error = "resourceVersionMatch is forbidden when continue is provided";
            return Err(refuse(FieldError::forbidden("resourceVersionMatch", error)));
        }
        if text.is_empty() {
            let error = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            return Err(refuse(FieldError::forbidden("resourceVersionMatch", error)));
        }
    }
    match (how, revision) {
        ("Exact", Some(Revision::ZERO)) => {
            let error = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            Err(refuse(FieldError::forbidden("resourceVersionMatch", error)))
        }
        ("Exact", Some(revision)) => Ok(Wanted::Exact(revision)),
        ("" | "NotOlderThan", Some(Revision::ZERO)) => Ok(Wanted::Any),
        ("NotOlderThan", Some(revision)) => Ok(Wanted::NotOlderThan(revision)),
        // A page of an unnamed match is exact, so that all its pages show one state.
        ("", Some(revision)) if limit.is_some_and(|it| it > 0) => Ok(Wanted::Exact(revision)),
        ("", Some(revision)) => Ok(Wanted::NotOlderThan(revision)),
        ("", None) => Ok(Wanted::Consistent),
        (other, _) => {
            let error =
                FieldError::not_supported("resourceVersionMatch", other, &["Exact", "NotOlderThan", ""]);
            Err(refuse(error))
        }
    }
}

/// 504 in upstream's words for a revision this server has not reached.
pub fn too_large(wanted: Revision, current: Revision) -> Status {
    let mut status = Status::timeout(format!("Too large resource version: {wanted}, current: {current}"), 1);
    let cause = meta::Cause {
        reason: "ResourceVersionTooLarge".to_owned(),
        message: "Too large resource version".to_owned(),
        field: String::new(),
    };
    status.details.get_or_insert_default().causes.push(cause);
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_follow_the_table_of_resource_version_semantics() {
        let check = |rv: &str, how: &str, limit: u64, expect: Wanted| {
            assert_eq!(for_list(rv, how, Some(limit), false), Ok(expect), "{rv:?} {how:?} {limit}");
        };
        check("", "", 0, Wanted::Consistent);
        check("", "", 5, Wanted::Consistent);
        check("0", "", 0, Wanted::Any);
        check("0", "NotOlderThan", 0, Wanted::Any);
        check("7", "", 0, Wanted::NotOlderThan(Revision::new(7)));
        check("7", "", 5, Wanted::Exact(Revision::new(7)));
        check("7", "NotOlderThan", 5, Wanted::NotOlderThan(Revision::new(7)));
        check("7", "Exact", 0, Wanted::Exact(Revision::new(7)));
    }

    #[test]
    fn impossible_combinations_are_refused() {
        for (rv, how, continued) in [
            ("", "Exact", false),
            ("0", "Exact", false),
            ("7", "Exact", true),
            ("7", "x", false),
            ("x", "", false),
        ] {
            assert_eq!(for_list(rv, how, None, continued).unwrap_err().code, 400, "{rv:?} {how:?}");
        }
    }
}
