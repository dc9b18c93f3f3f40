//! The bodies of requests and answers.
//!
//! Responsible for: a response body that sends shared buffers without copying them, and streams (watches, long
//! lists) whose panics end the stream instead of the process.
//! Deliberately not here: encoding, compression, limits on what is read.
//! Start reading at [`Body`].

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};

use crate::{
    audit::Record,
    connections::InFlight,
    inflight::InFlightGuard,
    memory::Reserved,
    patience::{Limit, Patience},
};

/// Why a body could not be read or written to its end.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request, from the network or from a caller in this process.
pub type RequestBody = UnsyncBoxBody<Bytes, BoxError>;

/// A request without a body. Does not allocate.
pub fn no_body() -> RequestBody {
    http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A request body that is all there, for callers in this process.
pub fn full_body(bytes: impl Into<Bytes>) -> RequestBody {
    http_body_util::Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// The body of an answer.
pub struct Body {
    content: Content,
    // Keeps the connection from counting as idle until the last byte is handed over.
    in_flight: Option<InFlight>,
    // Records the end of a watch.
    record: Option<Record>,
    // The request counts until the last byte is handed over.
    slot: Option<InFlightGuard>,
    // Memory that is set aside for it.
    reserved: Reserved,
    // How long the client may take to read it.
    patience: Option<Patience>,
    // Told of every piece, if each has a time of its own.
    limit: Option<(Arc<Limit>, Duration)>,
    // It lasts by its nature.
    is_long: bool,
    // The most that is handed over at a time.
    piece: usize,
}

enum Content {
    Empty,
    Full(Bytes),
    Chunks { rest: std::vec::IntoIter<Bytes>, bytes_left: u64 },
    Stream { stream: Option<ByteStream>, on_panic: Option<OnPanic>, left: Bytes },
}

type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes, BoxError>> + Send>>;

/// Told once when a stream panics.
pub type OnPanic = Arc<dyn Fn() + Send + Sync>;

impl Body {
    /// Nothing.
    pub fn empty() -> Self {
        Self::new(Content::Empty)
    }

    /// One buffer.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self::new(Content::Full(bytes.into()))
    }

    /// Several shared buffers, one after the other. The length is known, so the answer has a Content-Length.
    pub fn chunks(chunks: Vec<Bytes>) -> Self {
        let bytes_left = chunks.iter().map(|it| as_u64(it.len())).sum();
        Self::new(Content::Chunks { rest: chunks.into_iter(), bytes_left })
    }

    /// Whatever the stream yields, as it yields it. An error, or a panic, cuts the answer off.
    pub fn stream(stream: impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static) -> Self {
        Self::new(Content::Stream { stream: Some(Box::pin(stream)), on_panic: None, left: Bytes::new() })
    }

    /// Whether the length is unknown until the end.
    pub fn is_stream(&self) -> bool {
        matches!(self.content, Content::Stream { .. })
    }

    /// The length, where it is known.
    pub fn len(&self) -> Option<u64> {
        match &self.content {
            Content::Empty => Some(0),
            Content::Full(bytes) => Some(as_u64(bytes.len())),
            Content::Chunks { bytes_left, .. } => Some(*bytes_left),
            Content::Stream { .. } => None,
        }
    }

    /// Takes the buffer out of a body that is one.
    pub(crate) fn take_full(&mut self) -> Option<Bytes> {
        match &mut self.content {
            Content::Full(bytes) => Some(std::mem::take(bytes)),
            Content::Empty | Content::Chunks { .. } | Content::Stream { .. } => None,
        }
    }

    /// Whether it is known that there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Who hears of a panic of the stream. Bodies that cannot panic ignore it.
    pub fn set_on_panic(&mut self, told: &OnPanic) {
        if let Content::Stream { on_panic, .. } = &mut self.content {
            *on_panic = Some(Arc::clone(told));
        }
    }

    pub(crate) fn set_in_flight(&mut self, in_flight: InFlight) {
        self.in_flight = Some(in_flight);
    }

    /// Keeps the audit record open until the last byte is handed over.
    pub(crate) fn set_record(&mut self, record: Record) {
        self.record = Some(record);
    }

    /// The answer takes as long as its client goes on reading.
    #[must_use]
    pub fn long(mut self) -> Self {
        self.is_long = true;
        self
    }

    /// Lets the request count until the last byte is handed over.
    pub(crate) fn set_slot(&mut self, slot: InFlightGuard) {
        self.slot = Some(slot);
    }

    /// Keeps memory set aside until the last byte is handed over.
    pub(crate) fn set_reserved(&mut self, reserved: Reserved) {
        self.reserved = reserved;
    }

    /// Gives the client this long to read the answer, or, if that lasts by its nature, each piece of it.
    pub(crate) fn set_time(&mut self, time: Duration) {
        self.patience = Some(if self.is_long { Patience::Piece(time) } else { Patience::Whole(time) });
    }

    /// Begins to count the client's time. The limit is over when the client took too long.
    pub(crate) fn begin(&mut self, limit: &Arc<Limit>) {
        limit.begin(self.patience);
        if let Some(Patience::Piece(time)) = self.patience {
            self.limit = Some((Arc::clone(limit), time));
            // The smaller they are, the sooner it is seen that the client goes on.
            self.in_pieces();
        }
    }

    /// Hands it over in pieces. HTTP/2 takes whatever it is handed into its own memory, however little the client is willing
    /// to read.
    pub(crate) fn in_pieces(&mut self) {
        self.piece = PIECE;
    }

    fn new(content: Content) -> Self {
        Self {
            content,
            in_flight: None,
            record: None,
            slot: None,
            reserved: Reserved::default(),
            patience: None,
            limit: None,
            is_long: false,
            piece: usize::MAX,
        }
    }

    fn poll_content(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let most = self.piece;
        match &mut self.content {
            Content::Empty => Poll::Ready(None),
            Content::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Content::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(piece(bytes, most))))),
            Content::Chunks { rest, bytes_left } => {
                let next = rest.find(|it| !it.is_empty());
                *bytes_left -= next.as_ref().map_or(0, |it| as_u64(it.len()));
                Poll::Ready(next.map(|it| Ok(Frame::data(it))))
            }
            Content::Stream { left, .. } if !left.is_empty() => {
                Poll::Ready(Some(Ok(Frame::data(piece(left, most)))))
            }
            Content::Stream { stream, on_panic, left } => {
                let mut polled = poll_stream(stream, on_panic.as_ref(), cx);
                if let Poll::Ready(Some(Ok(bytes))) = &mut polled {
                    *left = std::mem::take(bytes);
                    *bytes = piece(left, most);
                }
                polled.map_ok(Frame::data)
            }
        }
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::empty()
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::full(bytes)
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::full(text)
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self::full(bytes)
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = self.poll_content(cx);
        if let Some((limit, time)) = &self.limit {
            match &polled {
                Poll::Pending => limit.clear(),
                Poll::Ready(_) => limit.within(*time),
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Stream { stream, left, .. } => stream.is_none() && left.is_empty(),
            Content::Empty | Content::Full(_) | Content::Chunks { .. } => self.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.len().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

fn poll_stream(
    slot: &mut Option<ByteStream>,
    on_panic: Option<&OnPanic>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Bytes, BoxError>>> {
    let Some(stream) = slot else { return Poll::Ready(None) };
    let polled = catch_unwind(AssertUnwindSafe(|| stream.as_mut().poll_next(cx)));
    let item = match polled {
        Ok(Poll::Pending) => return Poll::Pending,
        Ok(Poll::Ready(item)) => item,
        Err(_panic) => {
            if let Some(told) = on_panic {
                told();
            }
            Some(Err("the stream of this answer panicked".into()))
        }
    };
    if !matches!(item, Some(Ok(_))) {
        *slot = None;
    }
    Poll::Ready(item)
}

/// The most that HTTP/2 is handed at a time: what fits into one of its frames.
const PIECE: usize = 16 * 1024;

/// The next piece of a buffer, without copying.
fn piece(bytes: &mut Bytes, most: usize) -> Bytes {
    if bytes.len() <= most { std::mem::take(bytes) } else { bytes.split_to(most) }
}

fn as_u64(length: usize) -> u64 {
    u64::try_from(length).expect("a length must fit into 64 bits")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body::Body as _;

    use super::*;

    #[tokio::test]
    async fn chunks_are_sent_in_order_with_a_known_length() {
        let chunks = ["a", "", "bc", ""].map(Bytes::from).to_vec();
        let body = Body::chunks(chunks);
        assert_eq!(body.size_hint().exact(), Some(3));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abc");
        assert!(Body::chunks(vec![Bytes::new()]).is_end_stream());
        assert!(Body::full("").is_end_stream());
        assert_eq!(Body::full("xy").collect().await.unwrap().to_bytes(), "xy");
    }

    #[tokio::test]
    async fn large_buffers_are_handed_over_in_pieces() {
        for (mut body, length) in [
            (Body::full(vec![1; 40_000]), 40_000),
            (
                Body::stream(futures_util::stream::iter([Ok(vec![1; 20_000].into()), Ok(vec![2; 5].into())])),
                20_005,
            ),
        ] {
            body.in_pieces();
            let mut n_bytes = 0;
            while let Some(frame) = body.frame().await {
                let piece = frame.unwrap().into_data().unwrap();
                assert!(piece.len() <= PIECE);
                n_bytes += piece.len();
            }
            assert!(body.is_end_stream());
            assert_eq!(n_bytes, length);
        }
    }

    #[tokio::test]
    async fn a_panicking_stream_ends_in_an_error_and_is_told_once() {
        let count = Arc::new(AtomicUsize::new(0));
        let told = Arc::clone(&count);
        let mut first = true;
        let mut body = Body::stream(futures_util::stream::poll_fn(move |_| {
            assert!(first, "boom");
            first = false;
            Poll::Ready(Some(Ok(Bytes::from_static(b"ok"))))
        }));
        let on_panic: OnPanic = Arc::new(move || {
            told.fetch_add(1, Ordering::Relaxed);
        });
        body.set_on_panic(&on_panic);
        assert!(body.frame().await.unwrap().is_ok());
        assert!(body.frame().await.unwrap().is_err());
        assert!(body.frame().await.is_none());
        assert!(body.is_end_stream());
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
