//! Which form a client wants, and sends.
//!
//! Objects are made, and stored, as JSON; how they become something else is in `transcode`. Shapes that this
//! server does not make are skipped in `Accept`, so that a client that also names a plain object gets that.

pub(crate) mod discovery;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use meta::Status;

use crate::request::Query;

/// What the client reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// With line breaks and indents, for people.
    pub is_pretty: bool,
    /// The form of objects.
    pub media: Media,
}

/// A form of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Media {
    /// The form in which objects are made and stored.
    #[default]
    Json,
    /// For people.
    Yaml,
    /// For typed clients.
    Protobuf,
}

impl Media {
    /// In the order in which upstream prefers them.
    const ALL: [Self; 3] = [Self::Json, Self::Yaml, Self::Protobuf];

    /// `application/json`
    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// The value of a `Content-Type`, without parameters.
    fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// The media types that objects can be asked for and sent in.
const OBJECTS: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// Those of kinds without a table of field numbers.
pub(crate) const UNTYPED: [&str; 2] = ["application/json", "application/yaml"];

/// The media types that watches can be asked for in.
const STREAMS: [&str; 2] =
    ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];

/// What the `Accept` header asks for, or 406.
pub fn response(headers: &HeaderMap, query: &Query) -> Result<Format, Status> {
    let media = choose(accept(headers), &Media::ALL).ok_or_else(|| Status::not_acceptable(&OBJECTS))?;
    Ok(Format { is_pretty: is_pretty(headers, query), media })
}

/// What the `Accept` header of a watch asks for, or 406.
pub fn stream(headers: &HeaderMap) -> Result<Media, Status> {
    choose(accept(headers), &[Media::Json, Media::Protobuf]).ok_or_else(|| Status::not_acceptable(&STREAMS))
}

/// Whether a client that asked for something else can read JSON too.
pub fn reads_json(headers: &HeaderMap) -> bool {
    choose(accept(headers), &[Media::Json]).is_some()
}

/// The form of an object that is sent, or 415. None at all is read as JSON, as upstream does.
pub fn request(headers: &HeaderMap) -> Result<Media, Status> {
    match content_type(headers) {
        "" => Ok(Media::Json),
        other => Media::parse(other).ok_or_else(|| Status::unsupported_media_type(&OBJECTS)),
    }
}

/// 415 for forms that need a table of field numbers, for kinds that have none.
pub fn untyped(media: Media) -> Result<(), Status> {
    match media {
        Media::Json | Media::Yaml => Ok(()),
        Media::Protobuf => Err(Status::unsupported_media_type(&UNTYPED)),
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

fn accept(headers: &HeaderMap) -> &str {
    headers.get(header::ACCEPT).and_then(|it| it.to_str().ok()).unwrap_or_default()
}

/// The best of what is offered: by weight, names before wildcards, then in the client's order.
fn choose(accept: &str, offered: &[Media]) -> Option<Media> {
    if accept.is_empty() {
        return offered.first().copied();
    }
    let mut best: Option<(f32, bool, Media)> = None;
    for entry in accept.split(',') {
        let mut parts = entry.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let mut weight = 1.0f32;
        let mut is_plain = true;
        for part in parts {
            if let Some(text) = part.strip_prefix("q=") {
                weight = text.parse().unwrap_or(0.0);
            }
            // `as=Table` and the like ask for another shape.
            is_plain &= !part.starts_with("as=");
        }
        let is_wild = name.ends_with("/*");
        let media = match name {
            "*/*" | "application/*" => offered.first().copied(),
            name => offered.iter().copied().find(|it| it.name() == name),
        };
        let Some(media) = media.filter(|_| is_plain && weight > 0.0) else { continue };
        if best.is_none_or(|(other, was_wild, _)| (other, !was_wild) < (weight, !is_wild)) {
            best = Some((weight, is_wild, media));
        }
    }
    best.map(|it| it.2)
}

/// Asked for, or the client looks like a person: browsers and curl.
fn is_pretty(headers: &HeaderMap, query: &Query) -> bool {
    let pretty = query.get("pretty");
    if !pretty.is_empty() {
        // Go's own reading of a boolean, unlike that of other parameters.
        return matches!(pretty, "1" | "t" | "T" | "true" | "TRUE" | "True");
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
        assert!(!accept("application/json;as=Table;v=v1;g=meta.k8s.io"));
        assert!(!accept("text/html"));
        assert!(!accept("application/json;q=0"));
    }

    #[test]
    fn the_clients_first_wish_counts() {
        let all = |accept| choose(accept, &Media::ALL);
        assert_eq!(all(""), Some(Media::Json));
        assert_eq!(all("application/vnd.kubernetes.protobuf"), Some(Media::Protobuf));
        assert_eq!(all("application/vnd.kubernetes.protobuf,application/json"), Some(Media::Protobuf));
        assert_eq!(all("application/json, application/vnd.kubernetes.protobuf"), Some(Media::Json));
        assert_eq!(all("*/*, application/yaml"), Some(Media::Yaml));
        assert_eq!(all("application/json;q=0.5, application/yaml;q=0.7"), Some(Media::Yaml));
        assert_eq!(choose("application/yaml", &[Media::Json]), None);
        assert_eq!(all("application/vnd.kubernetes.protobuf;stream=watch"), Some(Media::Protobuf));
    }
}
