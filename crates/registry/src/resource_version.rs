//! What a client's `resourceVersion` and `resourceVersionMatch` ask for.

use meta::{FieldError, Reason, RetryAfter, Status};
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
    read(text).map_err(|why| Status::bad_request(format!("invalid resource version: {why}")))
}

/// The same for GET and WATCH, where upstream answers a plain error, which is a 500.
pub fn parse_or_fail(text: &str) -> Result<Option<Revision>, Status> {
    read(text).map_err(|why| Status::failure(500, Reason::Unknown, why.to_string()))
}

/// The words of Go's parser for a `resourceVersion` in an object that is no number: 500, as upstream.
pub fn check_own(text: &str) -> Result<(), Status> {
    match text {
        "" => Ok(()),
        text => number(text).map(drop).map_err(|why| Status::failure(500, Reason::Unknown, why)),
    }
}

fn read(text: &str) -> Result<Option<Revision>, FieldError> {
    if text.is_empty() {
        return Ok(None);
    }
    match number(text) {
        Ok(number) => Ok(Some(Revision::new(number))),
        Err(why) => Err(FieldError::invalid("resourceVersion", text, why)),
    }
}

fn number(text: &str) -> Result<u64, String> {
    let is_number = text.bytes().all(|it| it.is_ascii_digit());
    text.parse().map_err(|_| {
        let why = if is_number && !text.is_empty() { "value out of range" } else { "invalid syntax" };
        format!("strconv.ParseUint: parsing {}: {why}", meta::field::quote(text))
    })
}

/// What a GET asks for: a resource version there only says how stale the answer may be.
pub fn for_get(text: &str) -> Result<Wanted, Status> {
    Ok(match parse_or_fail(text)? {
        None => Wanted::Consistent,
        Some(Revision::ZERO) => Wanted::Any,
        Some(revision) => Wanted::NotOlderThan(revision),
    })
}

/// What a LIST asks for, with options that go together.
pub fn for_list(text: &str, how: &str, limit: Option<u64>) -> Result<Wanted, Status> {
    Ok(match (how, parse(text)?) {
        (_, None) => Wanted::Consistent,
        ("Exact", Some(revision)) => Wanted::Exact(revision),
        (_, Some(Revision::ZERO)) => Wanted::Any,
        // A page of an unnamed match is exact, so that all its pages show one state.
        ("", Some(revision)) if limit.is_some_and(|it| it > 0) => Wanted::Exact(revision),
        (_, Some(revision)) => Wanted::NotOlderThan(revision),
    })
}

/// 504 in upstream's words for a revision this server has not reached.
pub fn too_large(wanted: Revision, current: Revision) -> Status {
    let message = format!("Too large resource version: {wanted}, current: {current}");
    let mut status = Status::timeout(message).retry_after(RetryAfter::only_read(1));
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
            assert_eq!(for_list(rv, how, Some(limit)), Ok(expect), "{rv:?} {how:?} {limit}");
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
    fn what_is_no_number_is_refused_in_the_words_of_go() {
        let status = for_list("abc", "", None).unwrap_err();
        let why =
            "resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax";
        assert_eq!((status.code, status.message), (400, format!("invalid resource version: {why}")));
        let status = for_get("abc").unwrap_err();
        assert_eq!((status.code, status.message.as_str()), (500, why));
        assert!(for_get("18446744073709551616").unwrap_err().message.ends_with("value out of range"));
        assert!(check_own("-1").is_err() && check_own("").is_ok() && check_own("17").is_ok());
    }
}
