//! The documents of OpenAPI: which one, in which form, and how long a client may keep it.
//!
//! Deliberately not here: what is in them (`catalog::openapi`, `documents`).

mod kept;

use fleet::route::Absence;
use http::HeaderValue;
use meta::Status;

pub(crate) use self::kept::Documents;
use self::kept::Wanted;
use crate::{
    answer::{self, Answer},
    body::Body,
    chain::Envelope,
    denial,
    dispatch::Dispatch,
    negotiate::{self, Media},
};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// The name that kubectl uses.
const OLD_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

impl Dispatch {
    /// `/openapi/v3`: where the documents are.
    pub(crate) async fn openapi_index(&self, exchange: &Envelope) -> Result<Answer, Status> {
        check_reads_json(exchange)?;
        let Some(index) = self.openapi.get(&Wanted::Index).await? else {
            return Ok(answer::page_not_found());
        };
        Ok(answer::document(exchange, JSON, &index.plain, index.packed.clone(), index.etag.clone()))
    }

    /// `/openapi/v3/…`: who asks with the right hash may keep it for ever.
    pub(crate) async fn openapi_document(
        &self,
        exchange: &Envelope,
        path: &[&str],
        absence: Option<&Absence>,
    ) -> Result<Answer, Status> {
        let (group, version) = match path {
            ["api", version] => ("", *version),
            ["apis", group, version] => (*group, *version),
            _ => return denial::page_not_found(absence),
        };
        // Only what is served is looked for, so that no document is made, or kept, for a name that a client made up.
        let wanted = match self.catalog.has_group_version(group, version) {
            true => Wanted::Builtin(path.join("/")),
            false if self.served.defines(group, version) => Wanted::Custom(path.join("/")),
            false => return denial::page_not_found(absence),
        };
        let Some(found) = self.openapi.get(&wanted).await? else {
            return denial::page_not_found(absence);
        };
        check_reads_json(exchange)?;
        let kept =
            if exchange.query.get("hash") == found.hash { "public, immutable" } else { "no-cache, private" };
        Ok(answer::document(exchange, JSON, &found.plain, found.packed.clone(), found.etag.clone())
            .with_header("cache-control", HeaderValue::from_static(kept)))
    }

    /// The one document of v2.
    pub(crate) async fn openapi_v2(&self, exchange: &Envelope) -> Result<Answer, Status> {
        let vary = ("vary", HeaderValue::from_static("Accept"));
        let Some(content_type) = wanted(exchange.header("accept")) else {
            let nothing = answer::plain(406, HeaderValue::from_static("text/plain"), Body::empty());
            return Ok(nothing.with_header(vary.0, vary.1));
        };
        let wanted = if content_type == PROTOBUF { Wanted::V2Protobuf } else { Wanted::V2 };
        let Some(found) = self.openapi.get(&wanted).await? else {
            return Ok(answer::page_not_found());
        };
        Ok(answer::document(exchange, content_type, &found.plain, found.packed.clone(), found.etag.clone())
            .with_header(vary.0, vary.1))
    }
}

/// These documents are JSON, without line breaks: every other form would have to be made for each who asks.
fn check_reads_json(exchange: &Envelope) -> Result<(), Status> {
    let wanted = negotiate::response(&exchange.headers, &exchange.query)?;
    match wanted.media {
        Media::Yaml if !negotiate::reads_json(&exchange.headers) => Err(Status::not_acceptable(&[JSON])),
        Media::Json | Media::Yaml | Media::Protobuf => Ok(()),
    }
}

/// The form of the document of v2 that a client reads, by its first wish that can be met.
fn wanted(accept: &str) -> Option<&'static str> {
    if accept.is_empty() {
        return Some(JSON);
    }
    accept.split(',').find_map(|it| match it.split(';').next().unwrap_or_default().trim() {
        JSON | "application/*" | "*/*" => Some(JSON),
        PROTOBUF | OLD_PROTOBUF => Some(PROTOBUF),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubectl_gets_protobuf_and_everybody_else_json() {
        assert_eq!(wanted(""), Some(JSON));
        assert_eq!(wanted("text/html, */*;q=0.8"), Some(JSON));
        assert_eq!(wanted(OLD_PROTOBUF), Some(PROTOBUF));
        assert_eq!(wanted("text/html"), None);
    }
}
