//! What stands in the line of a request: path, query, resource versions, continue tokens.

use meta::{FieldSelector, LabelSelector};
use registry::{continue_token::Continue, resource_version};
use server::request::{Query, RequestInfo};

/// A path, a question mark, a query.
pub(crate) fn query(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (path, raw) = text.split_once('?').unwrap_or((&text, ""));
    let query = Query::parse(raw);
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"] {
        let info = RequestInfo::resolve(&method.parse().expect("the method must be one"), path, &query);
        assert!(info.resource.is_none_or(|it| !it.resource.is_empty()));
    }
    let _ = LabelSelector::parse(query.get("labelSelector"));
    let _ = FieldSelector::parse(query.get("fieldSelector"));
    let version = query.get("resourceVersion");
    let _ = resource_version::for_get(version);
    let limit = query.get("limit").parse().ok();
    let _ = resource_version::for_list(version, query.get("resourceVersionMatch"), limit);
    token(query.get("continue"));
}

/// A continue token as it comes, and one with these bytes inside.
pub(crate) fn continue_token(data: &[u8]) {
    token(&String::from_utf8_lossy(data));
}

fn token(text: &str) {
    let Ok(place) = Continue::decode(text) else { return };
    assert!(!place.after.is_empty() && !place.after.starts_with('/'));
    assert!(!place.after.split('/').any(|it| it == ".."), "a token must not leave its collection");
    assert_eq!(Continue::decode(&place.encode()).as_ref(), Ok(&place));
}
