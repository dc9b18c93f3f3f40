//! Which form a client wants, and sends.
//!
//! Objects are served as JSON. Forms that this server does not make (tables, protobuf) are skipped in `Accept`, so that
//! a client that also names JSON gets JSON.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use meta::Status;

use crate::request::Query;

/// What the client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// With line breaks and indents, for people.
    pub is_pretty: bool,
}

/// The media types that objects can be asked for in.
const SERVED: [&str; 1] = ["application/json"];

/// The media types that objects can be sent in.
const READ: [&str; 1] = ["application/json"];

/// What the `Accept` header asks for, or 406.
pub fn response(headers: &HeaderMap, query: &Query) -> Result<Format, Status> {
    let format = Format { is_pretty: is_pretty(headers, query) };
    let Some(accept) = headers.get(header::ACCEPT) else { return Ok(format) };
    let accept = accept.to_str().unwrap_or_default();
    if accept.is_empty() || accept.split(',').any(is_json) {
        Ok(format)
    } else {
        Err(Status::not_acceptable(&SERVED))
    }
}

/// Checks the `Content-Type` of an object that is sent, or 415. None at all is read as JSON, as upstream does.
pub fn request(headers: &HeaderMap) -> Result<(), Status> {
    let content_type = content_type(headers);
    if content_type.is_empty() || READ.contains(&content_type) {
        Ok(())
    } else {
        Err(Status::unsupported_media_type(&READ))
    }
}

/// The `Content-Type` without its parameters.
pub fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// The header value of JSON answers.
pub const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// With line breaks, if that is asked for.
pub fn finish(text: Bytes, format: Format) -> Bytes {
    if !format.is_pretty {
        return text;
    }
    match serde_json::from_slice::<meta::Value>(&text) {
        Ok(tree) => Bytes::from(serde_json::to_vec_pretty(&tree).unwrap_or_else(|_| text.to_vec())),
        Err(_) => text,
    }
}

/// Whether one entry of an `Accept` header can be answered with plain JSON.
fn is_json(entry: &str) -> bool {
    let mut parts = entry.split(';').map(str::trim);
    let media = parts.next().unwrap_or_default();
    let is_named = matches!(media, "application/json" | "application/*" | "*/*");
    // `as=Table` and the like ask for another shape; `q=0` forbids.
    is_named && parts.all(|it| !it.starts_with("as=") && it != "q=0")
}

/// Asked for, or the client looks like a person: browsers and curl.
fn is_pretty(headers: &HeaderMap, query: &Query) -> bool {
    if query.has("pretty") {
        return query.is_true("pretty");
    }
    let agent = headers.get(header::USER_AGENT).and_then(|it| it.to_str().ok()).unwrap_or_default();
    agent.starts_with("curl") || agent.starts_with("Wget") || agent.starts_with("Mozilla/5.0")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(value: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, value.parse().unwrap());
        response(&headers, &Query::default()).is_ok()
    }

    #[test]
    fn json_is_found_among_other_wishes() {
        assert!(accept("application/json"));
        assert!(accept("*/*"));
        assert!(accept("application/json;as=Table;v=v1;g=meta.k8s.io,application/json"));
        assert!(accept("application/vnd.kubernetes.protobuf, application/json;q=0.9"));
        assert!(!accept("application/vnd.kubernetes.protobuf"));
        assert!(!accept("application/json;as=Table;v=v1;g=meta.k8s.io"));
        assert!(!accept("text/html"));
    }
}
