//! One HTTP/2 connection to another server: requests go out, answers come back, and silence is noticed.
//!
//! It stands on `h2` itself: a client of hyper's runs a task more for every connection and another one for every
//! request, and their waking each other costs more than the request (decision 0029).
//! Deliberately not here: which connection is taken, and how many there are ([`super::pool`]).

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, stream};
use h2::{
    PingPong, Reason, RecvStream, SendStream,
    client::{self, SendRequest},
};
use http::{HeaderValue, Request, Response, header};
use http_body::Body as _;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::MissedTickBehavior,
};

use crate::{
    body::{BoxError, RequestBody},
    lifecycle::Tasks,
    observed::Observed,
};

/// What a stream may send before somebody reads it, and all streams of a connection together: so much that one client
/// that does not read never holds up the others on the same connection.
const STREAM_WINDOW: u32 = 128 * 1024;
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * 100;

/// Requests before the other server has said how many it takes; it takes more.
const STREAMS_AT_FIRST: usize = 100;

/// The longest head of an answer.
const MAX_HEAD: u32 = 16 * 1024;

/// How often it is looked whether the other server says something.
const TICK: Duration = Duration::from_millis(500);

/// After so many silent looks while it is asked something it is pinged, and after so many more taken for dead.
const PING_AFTER: u32 = 4;
const PING_TIMEOUT: u32 = 4;

/// The body of an answer that is still on its way.
pub(crate) type Incoming = RecvStream;

/// A connection. Clones are the same one.
#[derive(Clone)]
pub(super) struct Link {
    sender: SendRequest<Bytes>,
    state: Arc<State>,
}

/// What the two ends of this server know of a connection: those who send, and the task that drives it.
#[derive(Default)]
struct State {
    is_closed: AtomicBool,
    /// Requests whose answers are not read to their end.
    n_requests: AtomicUsize,
    /// Reads that brought something.
    n_reads: AtomicU64,
    /// Whether a request was handed over since the task looked.
    has_news: AtomicBool,
}

/// One request on a connection, until its answer is read.
pub(super) struct Held(Arc<State>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.n_requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why there is no answer.
pub(super) enum SendError {
    /// Not a byte was sent: here is the body again.
    Unsent(BoxError, RequestBody),
    /// Something was, and the other server says that it did nothing with it.
    Refused(BoxError),
    /// Something may have been.
    Sent(BoxError),
}

impl Link {
    /// Speaks HTTP/2 on a connection that was just made.
    pub(super) async fn open<S>(stream: S, tasks: &Tasks) -> Result<Self, BoxError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let state = Arc::<State>::default();
        let counted = Arc::clone(&state);
        let heard = Observed::new(stream, move || {
            counted.n_reads.fetch_add(1, Ordering::Relaxed);
        });
        let (sender, connection) = client::Builder::new()
            .enable_push(false)
            .initial_max_send_streams(STREAMS_AT_FIRST)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(MAX_HEAD)
            .handshake(heard)
            .await?;
        let closing = Closing(Arc::clone(&state));
        tasks.spawn("connection to another server", async move {
            if let Err(error) = drive(connection, &closing.0).await {
                tracing::debug!(%error, "a connection to another server broke");
            }
        });
        Ok(Self { sender, state })
    }

    /// Whether nothing more can be sent, if only because the other server wants to end it.
    pub(super) fn is_closed(&mut self) -> bool {
        let mut nobody = Context::from_waker(Waker::noop());
        self.state.is_closed.load(Ordering::Acquire)
            || matches!(self.sender.poll_ready(&mut nobody), Poll::Ready(Err(_)))
    }

    /// How many requests are under way on it.
    pub(super) fn n_requests(&self) -> usize {
        self.state.n_requests.load(Ordering::Relaxed)
    }

    /// Takes a place on it.
    pub(super) fn hold(&self) -> Held {
        self.state.n_requests.fetch_add(1, Ordering::Relaxed);
        Held(Arc::clone(&self.state))
    }

    /// Sends a request and waits for the head of the answer.
    pub(super) async fn send(
        &mut self,
        request: Request<RequestBody>,
        tasks: &Tasks,
    ) -> Result<Response<Incoming>, SendError> {
        let (parts, body) = request.into_parts();
        let mut head = Request::from_parts(parts, ());
        let is_whole = body.is_end_stream();
        if let Some(length) = body.size_hint().exact().filter(|it| *it > 0) {
            head.headers_mut().entry(header::CONTENT_LENGTH).or_insert(HeaderValue::from(length));
        }
        if let Err(error) = poll_fn(|cx| self.sender.poll_ready(cx)).await {
            return Err(SendError::Unsent(error.into(), body));
        }
        self.state.has_news.store(true, Ordering::Release);
        let (response, stream) = match self.sender.send_request(head, is_whole) {
            Ok(sent) => sent,
            Err(error) => return Err(SendError::Unsent(error.into(), body)),
        };
        let sent = |error: h2::Error| {
            // Only this: a connection that ends in good order leaves it open which requests were begun.
            let is_refused = error.is_remote() && error.reason() == Some(Reason::REFUSED_STREAM);
            if is_refused { SendError::Refused(error.into()) } else { SendError::Sent(error.into()) }
        };
        if is_whole {
            return response.await.map_err(sent);
        }
        let (mut response, mut upload) = (pin!(response), Box::pin(upload(body, stream)));
        tokio::select! {
            biased;
            answer = &mut response => {
                // It may answer before it has read everything.
                tasks.spawn("body of a request to another server", async move {
                    let _ = upload.await;
                });
                answer.map_err(sent)
            }
            uploaded = &mut upload => match (uploaded, response.await) {
                (_, Ok(answer)) => Ok(answer),
                (Err(error), Err(_)) => Err(SendError::Sent(error)),
                (Ok(()), Err(error)) => Err(sent(error)),
            },
        }
    }
}

/// A small answer as a whole. Most come in one piece.
pub(crate) async fn whole(mut incoming: Incoming) -> Result<Bytes, BoxError> {
    let Some(first) = poll_fn(|cx| poll_piece(&mut incoming, cx)).await.transpose()? else {
        return Ok(Bytes::new());
    };
    if incoming.is_end_stream() {
        return Ok(first);
    }
    let mut all = BytesMut::from(first);
    while let Some(piece) = poll_fn(|cx| poll_piece(&mut incoming, cx)).await {
        all.extend_from_slice(&piece?);
    }
    Ok(all.freeze())
}

/// A body as it comes. What follows behind it is left out: nobody here sends trailers.
pub(crate) fn pieces(mut incoming: Incoming) -> impl Stream<Item = Result<Bytes, BoxError>> + Send {
    stream::poll_fn(move |cx| poll_piece(&mut incoming, cx))
}

fn poll_piece(incoming: &mut Incoming, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
    let piece = ready!(incoming.poll_data(cx));
    if let Some(Ok(bytes)) = &piece {
        // Whoever is handed a piece has read it: the other server may send as much again. It fails only for a stream
        // that has ended, which has no need of it.
        let _ = incoming.flow_control().release_capacity(bytes.len());
    }
    Poll::Ready(piece.map(|it| it.map_err(Into::into)))
}

/// Sends a body as fast as the other server takes it.
async fn upload(mut body: RequestBody, mut stream: SendStream<Bytes>) -> Result<(), BoxError> {
    while let Some(frame) = poll_fn(|cx| poll_frame(&mut body, &mut stream, cx)).await {
        let frame = frame.inspect_err(|_| {
            // What was not sent to its end must not look as if it was.
            stream.send_reset(Reason::CANCEL);
        })?;
        let Ok(mut bytes) = frame.into_data() else { continue };
        let is_last = body.is_end_stream();
        while !bytes.is_empty() {
            stream.reserve_capacity(bytes.len());
            let room =
                poll_fn(|cx| stream.poll_capacity(cx)).await.ok_or("the other server reads no more")??;
            let piece = bytes.split_to(room.min(bytes.len()));
            stream.send_data(piece, is_last && bytes.is_empty())?;
        }
        if is_last {
            return Ok(());
        }
    }
    stream.send_data(Bytes::new(), true)?;
    Ok(())
}

/// The next part of a body, or the news that nobody wants it.
fn poll_frame(
    body: &mut RequestBody,
    stream: &mut SendStream<Bytes>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
    if let Poll::Ready(reset) = stream.poll_reset(cx) {
        let error =
            reset.map_or_else(Into::into, |it| format!("the other server reads no more: {it}").into());
        return Poll::Ready(Some(Err(error)));
    }
    Pin::new(body).poll_frame(cx)
}

/// Says that a connection has ended, however its task did.
struct Closing(Arc<State>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.is_closed.store(true, Ordering::Release);
    }
}

/// Moves bytes until the connection ends, or the other server is silent for too long.
async fn drive<S: AsyncRead + AsyncWrite + Unpin>(
    mut connection: client::Connection<S, Bytes>,
    state: &State,
) -> Result<(), BoxError> {
    let mut pings = connection.ping_pong();
    let (mut silence, mut has_waited) = (Silence::default(), false);
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    poll_fn(|cx| {
        // Also how a connection that nobody uses any more notices it: h2 does not wake it for that.
        while ticks.poll_tick(cx).is_ready() {
            let is_asked = state.n_requests.load(Ordering::Relaxed) > 0;
            match silence.tick(state.n_reads.load(Ordering::Relaxed), is_asked) {
                Then::Wait => {}
                Then::Ping => ping(pings.as_mut(), cx),
                Then::GiveUp => return Poll::Ready(Err("the other server is silent".into())),
            }
        }
        // Where several requests are under way, others may be about to be sent: they leave together. One turn is waited
        // for, not more, or those that keep coming would hold up those that are there.
        let has_news = state.has_news.swap(false, Ordering::Acquire);
        if has_news && !has_waited && state.n_requests.load(Ordering::Relaxed) > 1 {
            has_waited = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        has_waited = false;
        Pin::new(&mut connection).poll(cx).map_err(BoxError::from)
    })
    .await
}

fn ping(pings: Option<&mut PingPong>, cx: &mut Context<'_>) {
    let Some(pings) = pings else { return };
    // The last answer is taken, or the next ping would not be sent.
    let _ = pings.poll_pong(cx);
    let _ = pings.send_ping(h2::Ping::opaque());
}

/// For how long nothing was heard. Whatever arrives counts, not only the answer to a ping: that may stand behind
/// much else.
#[derive(Debug, Default)]
struct Silence {
    n_reads: u64,
    n_ticks: u32,
    pinged_at: Option<u32>,
}

#[derive(Debug, PartialEq, Eq)]
enum Then {
    Wait,
    Ping,
    GiveUp,
}

impl Silence {
    fn tick(&mut self, n_reads: u64, is_asked: bool) -> Then {
        if n_reads != self.n_reads {
            *self = Self { n_reads, ..Self::default() };
            return Then::Wait;
        }
        self.n_ticks = self.n_ticks.saturating_add(1);
        match self.pinged_at {
            None if is_asked && self.n_ticks >= PING_AFTER => {
                self.pinged_at = Some(self.n_ticks);
                Then::Ping
            }
            Some(at) if is_asked && self.n_ticks - at >= PING_TIMEOUT => Then::GiveUp,
            None | Some(_) => Then::Wait,
        }
    }
}

#[cfg(test)]
mod tests;
