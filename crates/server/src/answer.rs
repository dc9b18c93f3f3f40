//! Answers: objects, statuses, plain text. The one place where a [`Status`] becomes an HTTP response.

use std::io::Write;

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use futures_util::stream;
use http::{HeaderValue, Response, StatusCode, header};
use meta::Status;

use crate::{
    body::Body,
    chain::Envelope,
    memory::Reserved,
    negotiate::{self, Format, Media},
    pool::Ticket,
    warnings::Warnings,
};

/// Answers from this size on are compressed for clients that can read it, as upstream does.
pub(crate) const GZIP_FROM: usize = 128 * 1024;

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
    /// Memory that it takes until it was sent.
    pub(crate) reserved: Reserved,
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
            reserved: Reserved::default(),
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

    /// Keeps memory set aside until the last byte is handed over.
    pub(crate) fn holding(mut self, reserved: Reserved) -> Self {
        self.reserved = reserved;
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
pub fn json(exchange: &Envelope, code: u16, text: Bytes, format: Format) -> Answer {
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

/// JSON text in pieces, whose total length may be known. Pieces that have to be converted or compressed are made with a
/// ticket: each when it is asked for.
pub(crate) fn json_pieces(
    exchange: &Envelope,
    length: Option<usize>,
    pieces: impl Iterator<Item = Bytes> + Send + 'static,
    ticket: impl FnOnce() -> Ticket,
) -> Answer {
    let Some(length) = length else { return json_unmeasured(exchange, pieces, ticket) };
    if length >= GZIP_FROM && accepts_gzip(exchange) {
        return packed(pieces, ticket());
    }
    if length < GZIP_FROM {
        let mut text = Vec::with_capacity(length);
        pieces.for_each(|it| text.extend_from_slice(&it));
        return plain(200, negotiate::JSON, Body::full(text));
    }
    let stream = stream::iter(pieces.map(Ok));
    plain(200, negotiate::JSON, Body::stream(stream)).with_header("content-length", HeaderValue::from(length))
}

/// JSON text in pieces whose total length nobody knows before the last is made.
fn json_unmeasured(
    exchange: &Envelope,
    mut pieces: impl Iterator<Item = Bytes> + Send + 'static,
    ticket: impl FnOnce() -> Ticket,
) -> Answer {
    let (first, second) = (pieces.next().unwrap_or_default(), pieces.next());
    let Some(second) = second else { return plain(200, negotiate::JSON, Body::full(first)) };
    let pieces = [first, second].into_iter().chain(pieces);
    if accepts_gzip(exchange) {
        return packed(pieces, ticket());
    }
    plain(200, negotiate::JSON, Body::stream(ticket().stream(stream::iter(pieces.map(Ok)))))
}

/// JSON text, compressed piece by piece, so that a long list is never in memory as a whole.
fn packed(pieces: impl Iterator<Item = Bytes> + Send + 'static, ticket: Ticket) -> Answer {
    let stream = stream::unfold(Gzipped::new(pieces), |mut gzipped| async move {
        loop {
            match gzipped.step()? {
                Some(bytes) => return Some((Ok(bytes), gzipped)),
                // What compresses well takes in much before something comes out: it is others' turn meanwhile.
                None => tokio::task::yield_now().await,
            }
        }
    });
    plain(200, negotiate::JSON, Body::stream(ticket.stream(stream)))
        .with_header("content-encoding", HeaderValue::from_static("gzip"))
        .with_header("vary", HeaderValue::from_static("Accept-Encoding"))
}

/// Gives an answer another body, compressed where that pays.
pub(crate) fn fill(exchange: &Envelope, answer: &mut Answer, content_type: &'static str, bytes: Bytes) {
    let headers = answer.response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    let is_compressed = bytes.len() >= GZIP_FROM && accepts_gzip(exchange);
    if is_compressed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    *answer.response.body_mut() = Body::full(if is_compressed { gzip(&bytes).into() } else { bytes });
}

/// A document that is the same for everybody, with its tag: packed where the client reads that, and not at all where it
/// has it already.
pub(crate) fn document(
    exchange: &Envelope,
    content_type: &'static str,
    plain: &Bytes,
    packed: Option<Bytes>,
    etag: HeaderValue,
) -> Answer {
    let content_type = HeaderValue::from_static(content_type);
    if has(exchange, &etag) {
        return self::plain(304, content_type, Body::empty()).with_header("etag", etag);
    }
    let answer = match packed.filter(|_| accepts_gzip(exchange)) {
        Some(packed) => self::plain(200, content_type, Body::full(packed))
            .with_header("content-encoding", HeaderValue::from_static("gzip"))
            .with_header("vary", HeaderValue::from_static("Accept-Encoding")),
        None => self::plain(200, content_type, Body::full(plain.clone())),
    };
    answer.with_header("etag", etag)
}

/// Whether the client says that it has what this tag stands for.
fn has(exchange: &Envelope, etag: &HeaderValue) -> bool {
    let known = exchange.header("if-none-match").split(',').map(|it| it.trim().trim_start_matches("W/"));
    known.into_iter().any(|it| it == "*" || it.as_bytes() == etag.as_bytes())
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
pub fn status(exchange: &Envelope, status: Status) -> Answer {
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
        reserved: Reserved::default(),
    }
}

pub(crate) fn accepts_gzip(exchange: &Envelope) -> bool {
    exchange.header("accept-encoding").split(',').any(|it| {
        let mut parts = it.split(';').map(str::trim);
        parts.next() == Some("gzip") && parts.all(|it| it != "q=0")
    })
}

pub(crate) fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 4), Compression::fast());
    encoder.write_all(text).and_then(|()| encoder.finish()).expect("writing to memory must succeed")
}

/// Compresses some at a time.
struct Gzipped<I> {
    pieces: I,
    /// What is left of the last piece.
    left: Bytes,
    encoder: Option<GzEncoder<Vec<u8>>>,
}

/// The most that is compressed at a time.
const GZIP_STEP: usize = 128 << 10;

impl<I: Iterator<Item = Bytes>> Gzipped<I> {
    fn new(pieces: I) -> Self {
        let encoder = Some(GzEncoder::new(Vec::new(), Compression::fast()));
        Self { pieces, left: Bytes::new(), encoder }
    }

    /// Takes in one piece at most. Nothing when all is done; no bytes if nothing has come out yet.
    fn step(&mut self) -> Option<Option<Bytes>> {
        if self.left.is_empty() {
            self.left = self.pieces.next().unwrap_or_default();
        }
        let some = self.left.split_to(self.left.len().min(GZIP_STEP));
        if some.is_empty() {
            let encoder = self.encoder.take()?;
            return Some(Some(Bytes::from(encoder.finish().expect("writing to memory must succeed"))));
        }
        let encoder = self.encoder.as_mut()?;
        encoder.write_all(&some).expect("writing to memory must succeed");
        let out = std::mem::take(encoder.get_mut());
        Some((!out.is_empty()).then(|| Bytes::from(out)))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        pin::Pin,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        task::{Context, Poll, Waker},
    };

    use flate2::read::GzDecoder;
    use http_body::Body as _;

    use super::*;
    use crate::pool::Pool;

    /// What compresses well was taken in without end, tens of megabytes at a time, while others waited for the thread.
    #[test]
    fn compressing_takes_in_little_at_a_time() {
        let n_taken = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&n_taken);
        let pieces = (0..200).map(move |n| {
            // Among them is one object that is large itself.
            let piece = vec![b'x'; if n == 100 { 1 << 20 } else { 64 << 10 }];
            counter.fetch_add(1, Ordering::Relaxed);
            Bytes::from(piece)
        });
        let answer = packed(pieces, Pool::new().enter_anyway(&crate::payer::Payer::named("user")));
        let mut body = answer.response.into_body();
        let (mut out, mut n_polls) = (Vec::new(), 0);
        loop {
            let before = n_taken.load(Ordering::Relaxed);
            let polled = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
            n_polls += 1;
            assert!(n_taken.load(Ordering::Relaxed) - before <= 1, "more than one piece was taken in");
            match polled {
                Poll::Ready(Some(frame)) => {
                    out.extend_from_slice(&frame.expect("memory must not fail").into_data().expect("data"));
                }
                Poll::Ready(None) => break,
                Poll::Pending => {}
            }
        }
        assert!(n_polls > 200, "{n_polls}");
        let mut text = Vec::new();
        GzDecoder::new(&*out).read_to_end(&mut text).expect("it must be whole");
        assert_eq!(text.len(), 199 * (64 << 10) + (1 << 20));
    }
}
