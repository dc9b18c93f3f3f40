//! The documents of OpenAPI: which one, in which form, and how long a client may keep it.
//!
//! Deliberately not here: what is in them (`catalog::openapi`, `documents`).

use std::sync::Arc;

use bytes::Bytes;
use catalog::openapi::{OpenApi, gnostic};
use http::HeaderValue;
use meta::Status;

use crate::{
    answer::{self, Answer},
    body::Body,
    chain::Exchange,
    dispatch::Dispatch,
};

const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// The name that kubectl uses.
const OLD_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

impl Dispatch {
    pub(crate) fn openapi(&self) -> OpenApi {
        OpenApi::new(Arc::clone(&self.catalog), self.schemas.clone())
    }

    /// A document of OpenAPI; who asks with the right hash may keep it for ever.
    pub(crate) fn openapi_document(&self, exchange: &Exchange, path: &str) -> Result<Answer, Status> {
        let found = self.openapi().document(path).or_else(|| self.served.openapi_document(path));
        let Some((document, hash)) = found else {
            return Ok(answer::page_not_found());
        };
        let answer = self.document(exchange, &document)?;
        let etag = HeaderValue::from_str(&format!("\"{hash}\"")).map_err(Status::internal)?;
        let kept = if exchange.query.get("hash") == hash { "public, immutable" } else { "no-cache, private" };
        Ok(answer.with_header("etag", etag).with_header("cache-control", HeaderValue::from_static(kept)))
    }

    /// The one document of v2. It is made when it is asked for, unless the client has it already.
    pub(crate) fn openapi_v2(&self, exchange: &Exchange) -> Result<Answer, Status> {
        let vary = ("vary", HeaderValue::from_static("Accept"));
        let Some(content_type) = wanted(exchange.header("accept")) else {
            let nothing = answer::plain(406, HeaderValue::from_static("text/plain"), Body::empty());
            return Ok(nothing.with_header(vary.0, vary.1));
        };
        let builtin = self.openapi();
        let hash = format!("\"{}\"", self.served.openapi_v2_hash(&builtin));
        let etag = HeaderValue::from_str(&hash).map_err(Status::internal)?;
        let mut answer = answer::plain(200, HeaderValue::from_static(content_type), Body::empty());
        if exchange.header("if-none-match") == hash {
            answer = answer::plain(304, HeaderValue::from_static(content_type), Body::empty());
        } else {
            let document = self.served.openapi_v2(&builtin);
            let bytes = match content_type {
                PROTOBUF => gnostic::encode(&document),
                _ => document.to_string().into_bytes(),
            };
            answer::fill(exchange, &mut answer, content_type, Bytes::from(bytes));
        }
        Ok(answer.with_header("etag", etag).with_header(vary.0, vary.1))
    }
}

/// The form of the document of v2 that a client reads, by its first wish that can be met.
fn wanted(accept: &str) -> Option<&'static str> {
    if accept.is_empty() {
        return Some("application/json");
    }
    accept.split(',').find_map(|it| match it.split(';').next().unwrap_or_default().trim() {
        "application/json" | "application/*" | "*/*" => Some("application/json"),
        PROTOBUF | OLD_PROTOBUF => Some(PROTOBUF),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubectl_gets_protobuf_and_everybody_else_json() {
        assert_eq!(wanted(""), Some("application/json"));
        assert_eq!(wanted("text/html, */*;q=0.8"), Some("application/json"));
        assert_eq!(wanted(OLD_PROTOBUF), Some(PROTOBUF));
        assert_eq!(wanted("text/html"), None);
    }
}
