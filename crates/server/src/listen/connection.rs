//! One connection: handshake, then requests until it is idle, broken, or told to go.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::{io::AsyncWriteExt, net::TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_util::task::TaskTracker;

use super::{
    Handler, Peer, Shared,
    gather::Gather,
    linger::Lingering,
    rest::{Rest, Sending},
    sources::RESERVED_WITHIN,
};
use crate::{
    body::{Body, RequestBody, no_body},
    connections::{Connection, Order},
    observed::Observed,
    patience::Limit,
};

/// Small enough that thousands of slow watchers do not fill the memory.
const SEND_BUFFER: usize = 64 * 1024;
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
const PING_AFTER: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a draining server waits for a request that may be on its way: the first one of a new connection, or the next
/// one of a client that speaks HTTP/1 and cannot be told in any other way than with an answer.
const LINGER: Duration = Duration::from_millis(500);

/// Serves one connection to its end.
pub(super) async fn run<H: Handler>(
    shared: &Arc<Shared<H>>,
    stream: TcpStream,
    address: SocketAddr,
    is_reserved: bool,
) {
    let registered = shared.connections.register();
    let connection = Arc::clone(&registered.connection);
    let may_stay = Arc::new(AtomicBool::new(false));
    if is_reserved {
        shared.tasks.spawn(free_soon(Arc::clone(&connection), Arc::clone(&may_stay)));
    }
    let Some(stream) = unless_told(pin!(handshake(shared, stream)), &connection).await else { return };
    let peer = Arc::new(Peer { is_reserved, may_stay, ..peer_of(shared, &stream, address) });
    let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let observed = Arc::clone(&connection);
    let io = Observed::new(stream, move || observed.has_read());
    let is_sending = Arc::new(AtomicBool::new(false));
    let one = Arc::new(One {
        shared: Arc::clone(shared),
        peer,
        connection: Arc::clone(&connection),
        is_h2,
        is_sending: Arc::clone(&is_sending),
    });
    let ended = if is_h2 {
        connection.set_framed();
        let (tasks, waiting) = (shared.tasks.clone(), Arc::default());
        let mut brief = Brief { new: Arc::clone(&waiting), streams: FuturesUnordered::new() };
        let executor = Executor { tasks, is_brief: Arc::default(), limit: Arc::default(), waiting };
        let (next_is_brief, next_limit) = (Arc::clone(&executor.is_brief), Arc::clone(&executor.limit));
        // Boxed here, where it is made: a stream is moved several times before it runs.
        let service = service_fn(move |request| {
            next_is_brief.store(is_brief(&request), Ordering::Relaxed);
            let limit = Arc::new(Limit::default());
            *next_limit.lock() = Some(Arc::clone(&limit));
            Box::pin(answer(Arc::clone(&one), request, limit))
        });
        let io = Gather::new(io);
        let served = h2(shared, executor).serve_connection(TokioIo::new(io.clone()), service);
        // Whoever has sent a request learns by GOAWAY that no other is taken, and which ones were.
        let may_finish = |it: &Connection| it.has_begun();
        let finish = http2::Connection::graceful_shutdown;
        until_told(pin!(served), &connection, may_finish, finish, |mut served, cx| {
            brief.go_on(cx);
            let polled = served.as_mut().poll(cx);
            brief.go_on(cx);
            match io.poll_leave(cx) {
                // Nobody is there to read more.
                Poll::Ready(Err(_)) => Poll::Ready(Ok(())),
                Poll::Ready(Ok(())) | Poll::Pending => polled,
            }
        })
        .await
    } else {
        let limit = Arc::new(Limit::default());
        let of_answer = Arc::clone(&limit);
        let service = service_fn(move |request| answer(Arc::clone(&one), request, Arc::clone(&of_answer)));
        let io = TokioIo::new(Lingering::new(io, &is_sending));
        let served = h1(shared).serve_connection(io, service).with_upgrades();
        let may_finish = |it: &Connection| it.is_busy();
        let finish = http1::UpgradeableConnection::graceful_shutdown;
        let mut timer = Timer::default();
        until_told(pin!(served), &connection, may_finish, finish, |mut served, cx| {
            match served.as_mut().poll(cx) {
                // There is one answer at a time: with it the connection goes.
                Poll::Pending if connection.is_busy() && timer.is_over(&limit, cx) => Poll::Ready(Ok(())),
                polled => polled,
            }
        })
        .await
    };
    if let Err(error) = ended {
        tracing::trace!(%address, %error, "a connection broke");
    }
}

/// Frees the place of one of the last connections, unless it is an administrator's: at once if nothing was asked for, and
/// a while later whatever its client does.
async fn free_soon(connection: Arc<Connection>, may_stay: Arc<AtomicBool>) {
    for last in [Order::Finish, Order::Close] {
        tokio::time::sleep(RESERVED_WITHIN).await;
        if may_stay.load(Ordering::Relaxed) {
            return;
        }
        connection.tell(if connection.has_begun() { last } else { Order::Close });
    }
}

/// What the requests of one connection share: one pointer to clone for each of them.
struct One<H> {
    shared: Arc<Shared<H>>,
    peer: Arc<Peer>,
    connection: Arc<Connection>,
    is_h2: bool,
    /// A request was answered, and its client may still be sending it.
    is_sending: Arc<AtomicBool>,
}

async fn answer<H: Handler>(
    one: Arc<One<H>>,
    request: Request<Incoming>,
    limit: Arc<Limit>,
) -> Result<Response<Body>, Infallible> {
    let in_flight = one.connection.begin();
    limit.clear();
    let rest = Rest::default();
    let request = request.map(|it| to_request_body(it, &rest));
    let only_reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let (shared, peer) = (Arc::clone(&one.shared), Arc::clone(&one.peer));
    let handled = async move { shared.handler.handle(request, peer).await };
    let handled = AssertUnwindSafe(handled).catch_unwind();
    let outcome = if only_reads { handled.await } else { to_its_end(&one.shared, handled).await };
    let mut response = match outcome {
        Ok(response) => response,
        Err(_panic) => {
            (one.shared.on_panic)();
            tracing::error!(address = %one.peer.address, "a request panicked");
            panicked()
        }
    };
    response.body_mut().set_on_panic(&one.shared.on_panic);
    let is_read = rest.take_in().await;
    if !is_read {
        one.is_sending.store(true, Ordering::Relaxed);
    }
    response.body_mut().begin(&limit);
    if one.is_h2 {
        response.body_mut().in_pieces();
    }
    response.body_mut().set_in_flight(in_flight);
    let is_to_leave = one.peer.is_to_leave();
    if one.is_h2 && is_to_leave {
        // By GOAWAY: what was asked meanwhile is answered, and nothing else.
        one.connection.tell(Order::Finish);
    }
    let is_last = one.connection.is_leaving() || !is_read || is_to_leave;
    if !one.is_h2 && is_last && !response.headers().contains_key(header::CONNECTION) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

/// Runs a request that may change something as a task of its own: it is carried out, recorded and counted to its end even
/// if the client hangs up meanwhile. Draining waits for it.
async fn to_its_end<H, T: Send + 'static>(
    shared: &Shared<H>,
    request: impl Future<Output = std::thread::Result<T>> + Send + 'static,
) -> std::thread::Result<T> {
    let cut = shared.cut.clone();
    let task = shared.tasks.spawn(async move {
        tokio::select! {
            biased;
            () = cut.cancelled() => None,
            outcome = request => Some(outcome),
        }
    });
    match task.await {
        Ok(Some(outcome)) => outcome,
        // The server ends before the request did, and its connections with it.
        Ok(None) | Err(_) => std::future::pending().await,
    }
}

fn to_request_body(incoming: Incoming, rest: &Rest) -> RequestBody {
    if incoming.is_end_stream() {
        return no_body();
    }
    Sending { body: Some(incoming), rest: rest.clone() }.map_err(Into::into).boxed_unsync()
}

fn panicked() -> Response<Body> {
    let text = "This request caused apiserver to panic. Look in the logs for details.\n";
    let mut response = Response::new(Body::full(text));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

async fn handshake<H>(shared: &Shared<H>, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
    let accepting = shared.tls.acceptor().accept(stream).into_fallible();
    match tokio::time::timeout(shared.limits.handshake, accepting).await {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err((error, stream))) if spoke_plain_http(&error) => {
            tracing::debug!(%error, "a client spoke HTTP to the TLS port");
            say_https_only(stream).await;
        }
        Ok(Err((error, _))) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_elapsed) => tracing::debug!("a TLS handshake took too long"),
    }
    shared.metrics.tls_handshake_errors.inc();
    None
}

fn spoke_plain_http(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|it| it.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)))
}

async fn say_https_only(mut stream: TcpStream) {
    let answer = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
    let _ = tokio::time::timeout(Duration::from_secs(1), async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    })
    .await;
}

fn peer_of<H>(shared: &Shared<H>, stream: &TlsStream<TcpStream>, address: SocketAddr) -> Peer {
    match stream.get_ref().1.peer_certificates() {
        Some(chain) if !chain.is_empty() => {
            Peer::with_certificates(address, chain.to_vec(), &shared.tls.trust())
        }
        _ => Peer::without_certificate(address),
    }
}

fn h1<H>(shared: &Shared<H>) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        // The sweep of all connections does this without a timer per request, and tells idle from slow.
        .header_read_timeout(None)
        .max_header_size(usize::try_from(shared.limits.head_bytes).unwrap_or(usize::MAX))
        .max_buf_size(SEND_BUFFER.max(8 * 1024));
    builder
}

fn h2<H>(shared: &Shared<H>, executor: Executor) -> http2::Builder<Executor> {
    let mut builder = http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_AFTER)
        .keep_alive_timeout(PING_TIMEOUT)
        .max_concurrent_streams(shared.limits.streams)
        .max_header_list_size(shared.limits.head_bytes)
        .max_send_buf_size(SEND_BUFFER)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    builder
}

/// Runs the streams of an HTTP/2 connection as tasks that draining waits for.
///
/// Brief ones run in the task of the connection instead: nobody is woken for them, and what several of them answer
/// leaves together.
#[derive(Clone)]
struct Executor {
    tasks: TaskTracker,
    /// Whether the stream that comes next is a brief one.
    is_brief: Arc<AtomicBool>,
    /// How long the answer on that stream may take to be read.
    limit: Arc<Mutex<Option<Arc<Limit>>>>,
    /// Brief ones that could not be answered at once.
    waiting: Arc<Mutex<Vec<BriefStream>>>,
}

type BriefStream = Pin<Box<dyn Future<Output = ()> + Send>>;

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Executor {
    fn execute(&self, stream: F) {
        let limit = self.limit.lock().take().unwrap_or_default();
        let stream = Timed { stream: Box::pin(stream), limit, timer: Timer::default() };
        if !self.is_brief.swap(false, Ordering::Relaxed) {
            self.tasks.spawn(stream);
            return;
        }
        let mut stream = Box::pin(stream);
        // Nobody is woken on behalf of this try: `Brief` tries again before the connection's turn is over.
        if stream.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            self.waiting.lock().push(stream);
        }
    }
}

/// Waits for a limit. Costs nothing for answers that are taken at once: nobody asks then.
#[derive(Default)]
struct Timer(Option<(tokio::time::Instant, Pin<Box<tokio::time::Sleep>>)>);

impl Timer {
    fn is_over(&mut self, limit: &Limit, cx: &mut Context<'_>) -> bool {
        let Some(at) = limit.at() else { return false };
        let sleep = match &mut self.0 {
            Some((known, sleep)) if *known == at => sleep,
            other => &mut other.insert((at, Box::pin(tokio::time::sleep_until(at)))).1,
        };
        sleep.as_mut().poll(cx).is_ready()
    }
}

/// A stream of HTTP/2 that is reset if its answer is not taken in time. The others on the connection go on.
struct Timed<F> {
    stream: Pin<Box<F>>,
    limit: Arc<Limit>,
    timer: Timer,
}

impl<F: Future<Output = ()>> Future for Timed<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.stream.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let Self { limit, timer, .. } = &mut *self;
        if timer.is_over(limit, cx) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// The brief streams of a connection that wait for something, mostly for the store to say how new the cache must be.
struct Brief {
    new: Arc<Mutex<Vec<BriefStream>>>,
    streams: FuturesUnordered<BriefStream>,
}

impl Brief {
    /// Lets those go on that can.
    fn go_on(&mut self, cx: &mut Context<'_>) {
        self.streams.extend(self.new.lock().drain(..));
        while let Poll::Ready(Some(())) = self.streams.poll_next_unpin(cx) {}
    }
}

/// Whether a request reads one object: that takes so little that the other streams of a connection can wait for it.
/// Behind group and version the path then has a resource and a name, and maybe a namespace before them.
fn is_brief<B>(request: &Request<B>) -> bool {
    let mut segments = request.uri().path().split('/').skip(1);
    let n_before = match segments.next() {
        Some("api") => 1,
        Some("apis") => 2,
        _ => return false,
    };
    request.method() == Method::GET
        && request.uri().query().is_none()
        && matches!(segments.count().checked_sub(n_before), Some(2 | 4))
}

/// Waits for the handshake; once the connection is told to go, only a moment longer.
async fn unless_told<T>(
    mut handshake: Pin<&mut impl Future<Output = Option<T>>>,
    connection: &Connection,
) -> Option<T> {
    let mut linger = Linger::default();
    poll_fn(|cx| match connection.order(cx) {
        Order::Serve => handshake.as_mut().poll(cx),
        Order::Finish if !linger.is_over(cx) => handshake.as_mut().poll(cx),
        Order::Finish | Order::Close => Poll::Ready(None),
    })
    .await
}

/// Drives a connection, turn by turn, until it ends or is told to. It finishes when it may, and a moment later in any
/// case.
async fn until_told<C: Future<Output = hyper::Result<()>>>(
    mut served: Pin<&mut C>,
    connection: &Connection,
    may_finish: impl Fn(&Connection) -> bool,
    finish: impl Fn(Pin<&mut C>),
    mut turn: impl FnMut(Pin<&mut C>, &mut Context<'_>) -> Poll<hyper::Result<()>>,
) -> hyper::Result<()> {
    let (mut is_finishing, mut linger) = (false, Linger::default());
    poll_fn(|cx| {
        match connection.order(cx) {
            Order::Serve => {}
            Order::Finish if is_finishing => {}
            Order::Finish => {
                if may_finish(connection) || linger.is_over(cx) {
                    is_finishing = true;
                    finish(served.as_mut());
                }
            }
            Order::Close => return Poll::Ready(Ok(())),
        }
        turn(served.as_mut(), cx)
    })
    .await
}

/// A moment that begins when it is first asked for.
#[derive(Default)]
struct Linger(Option<Pin<Box<tokio::time::Sleep>>>);

impl Linger {
    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        let sleep = self.0.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        sleep.as_mut().poll(cx).is_ready()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reads_of_one_object_are_brief() {
        let is =
            |method: &str, uri: &str| is_brief(&Request::builder().method(method).uri(uri).body(()).unwrap());
        for uri in [
            "/api/v1/nodes/n",
            "/api/v1/namespaces/ns/pods/p",
            "/apis/apps/v1/namespaces/ns/deployments/d",
            "/apis/batch/v1/things/t",
        ] {
            assert!(is("GET", uri), "{uri}");
            assert!(!is("DELETE", uri), "{uri}");
        }
        for uri in [
            "/",
            "/api",
            "/apis/apps",
            "/api/v1/pods",
            "/api/v1/namespaces/ns/pods",
            "/api/v1/namespaces/ns/pods/p/log",
            "/api/v1/namespaces/ns/pods/p?watch=1",
            "/apis/apps/v1/deployments",
            "/apis/apps/v1/namespaces/ns/deployments",
            "/openapi/v3/api/v1",
        ] {
            assert!(!is("GET", uri), "{uri}");
        }
    }
}
