//! Answers: objects, statuses, plain text. The one place where a [`Status`] becomes an HTTP response.

use std::io::Write;

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderValue, Response, StatusCode, header};
use meta::Status;

use crate::{
    body::Body,
    chain::Exchange,
    negotiate::{self, Format, Media},
    warnings::Warnings,
};

/// Answers from this size on are compressed for clients that can read it, as upstream does.
const GZIP_FROM: usize = 128 * 1024;

/// A response, and whether the resource it is about exists, so that metrics can name it.
#[derive(Debug)]
pub struct Answer {
    /// What goes to the client.
    pub response: Response<Body>,
    /// The path named a resource of this server.
    pub is_known_resource: bool,
    /// The failure that the answer tells.
    pub failure: Option<Box<Status>>,
    /// The form that was asked for. The body is JSON until `transcode` had it.
    pub media: Media,
    /// What the client is warned of.
    pub warnings: Warnings,
}

impl Answer {
    /// What another server answered; it goes to the client as it is.
    pub(crate) fn forwarded(response: Response<Body>) -> Self {
        Self {
            response,
            is_known_resource: true,
            failure: None,
            media: Media::Json,
            warnings: Warnings::default(),
        }
    }

    /// The path named a resource of this server.
    #[must_use]
    pub fn about_resource(mut self) -> Self {
        self.is_known_resource = true;
        self
    }

    /// Adds a `Warning` header, within the bounds of `warnings`.
    #[must_use]
    pub fn warn(mut self, text: &str) -> Self {
        self.warnings.add(text, self.response.headers_mut());
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: HeaderValue) -> Self {
        self.response.headers_mut().insert(name, value);
        self
    }
}

/// JSON text.
pub fn json(exchange: &Exchange, code: u16, text: Bytes, format: Format) -> Answer {
    if format.media != Media::Json {
        return Answer { media: format.media, ..plain(code, negotiate::JSON, Body::full(text)) };
    }
    let text = negotiate::finish(text, format);
    if text.len() >= GZIP_FROM && accepts_gzip(exchange) {
        return plain(code, negotiate::JSON, Body::full(gzip(&text)))
            .with_header("content-encoding", HeaderValue::from_static("gzip"))
            .with_header("vary", HeaderValue::from_static("Accept-Encoding"));
    }
    plain(code, negotiate::JSON, Body::full(text))
}

/// JSON text in pieces, whose total length may be known.
pub fn json_pieces(
    exchange: &Exchange,
    length: Option<usize>,
    mut pieces: impl Iterator<Item = Bytes> + Send + 'static,
) -> Answer {
    let Some(length) = length else { return json_unmeasured(exchange, pieces) };
    if length >= GZIP_FROM && accepts_gzip(exchange) {
        let stream = futures_util::stream::iter(Gzipped::new(pieces).map(Ok));
        return plain(200, negotiate::JSON, Body::stream(stream))
            .with_header("content-encoding", HeaderValue::from_static("gzip"))
            .with_header("vary", HeaderValue::from_static("Accept-Encoding"));
    }
    if length < GZIP_FROM {
        let mut text = Vec::with_capacity(length);
        pieces.for_each(|it| text.extend_from_slice(&it));
        return plain(200, negotiate::JSON, Body::full(text));
    }
    let first = pieces.next();
    let stream = futures_util::stream::iter(first.into_iter().chain(pieces).map(Ok));
    plain(200, negotiate::JSON, Body::stream(stream)).with_header("content-length", HeaderValue::from(length))
}

/// JSON text in pieces whose total length nobody knows before the last is made.
fn json_unmeasured(exchange: &Exchange, mut pieces: impl Iterator<Item = Bytes> + Send + 'static) -> Answer {
    let (first, second) = (pieces.next().unwrap_or_default(), pieces.next());
    let Some(second) = second else { return plain(200, negotiate::JSON, Body::full(first)) };
    let pieces = [first, second].into_iter().chain(pieces);
    if accepts_gzip(exchange) {
        let stream = futures_util::stream::iter(Gzipped::new(pieces).map(Ok));
        return plain(200, negotiate::JSON, Body::stream(stream))
            .with_header("content-encoding", HeaderValue::from_static("gzip"))
            .with_header("vary", HeaderValue::from_static("Accept-Encoding"));
    }
    plain(200, negotiate::JSON, Body::stream(futures_util::stream::iter(pieces.map(Ok))))
}

/// Gives an answer another body, compressed where that pays.
pub(crate) fn fill(exchange: &Exchange, answer: &mut Answer, content_type: &'static str, bytes: Bytes) {
    let headers = answer.response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    let is_compressed = bytes.len() >= GZIP_FROM && accepts_gzip(exchange);
    if is_compressed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    *answer.response.body_mut() = Body::full(if is_compressed { gzip(&bytes).into() } else { bytes });
}

/// Plain text.
pub fn text(code: u16, text: impl Into<Bytes>) -> Answer {
    plain(code, HeaderValue::from_static("text/plain; charset=utf-8"), Body::full(text))
        .with_header("x-content-type-options", HeaderValue::from_static("nosniff"))
}

/// What upstream answers for paths that nobody has heard of.
pub fn page_not_found() -> Answer {
    text(404, "404 page not found\n")
}

/// A failure.
pub fn status(exchange: &Exchange, status: Status) -> Answer {
    // A client whose wish cannot be met must still be able to read why.
    let format = negotiate::response(&exchange.headers, &exchange.query).unwrap_or_default();
    let retry_after = status.retry_after_seconds();
    let code = if status.code == 0 { 200 } else { status.code };
    let mut answer = json(exchange, code, Bytes::from(status.to_json()), format);
    if let Some(seconds) = retry_after {
        answer = answer.with_header("retry-after", HeaderValue::from(seconds));
    }
    answer.failure = Some(Box::new(status));
    answer
}

/// A response with a body.
pub fn plain(code: u16, content_type: HeaderValue, body: Body) -> Answer {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    Answer {
        response,
        is_known_resource: false,
        failure: None,
        media: Media::Json,
        warnings: Warnings::default(),
    }
}

fn accepts_gzip(exchange: &Exchange) -> bool {
    exchange.header("accept-encoding").split(',').any(|it| {
        let mut parts = it.split(';').map(str::trim);
        parts.next() == Some("gzip") && parts.all(|it| it != "q=0")
    })
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 4), Compression::fast());
    encoder.write_all(text).and_then(|()| encoder.finish()).expect("writing to memory must succeed")
}

/// Compresses piece by piece, so that a long list is never in memory as a whole.
struct Gzipped<I> {
    pieces: I,
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl<I: Iterator<Item = Bytes>> Gzipped<I> {
    fn new(pieces: I) -> Self {
        Self { pieces, encoder: Some(GzEncoder::new(Vec::new(), Compression::fast())) }
    }
}

impl<I: Iterator<Item = Bytes>> Iterator for Gzipped<I> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        while let Some(encoder) = &mut self.encoder {
            match self.pieces.next() {
                Some(piece) => {
                    encoder.write_all(&piece).expect("writing to memory must succeed");
                    if !encoder.get_ref().is_empty() {
                        return Some(Bytes::from(std::mem::take(encoder.get_mut())));
                    }
                }
                None => {
                    let encoder = self.encoder.take()?;
                    return Some(Bytes::from(encoder.finish().expect("writing to memory must succeed")));
                }
            }
        }
        None
    }
}
