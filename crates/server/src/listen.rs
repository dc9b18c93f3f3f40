//! From a TCP connection to a request and back.
//!
//! Responsible for: accepting, the TLS handshake, HTTP/1.1 and HTTP/2, the bounds that protect all of it, panics,
//! and draining.
//! Deliberately not here: what a request means (`chain`), whom a certificate names (`access`).
//! Start reading at [`serve`], then `connection::run`.
//!
//! Time limits on the network are real time: they protect sockets, which do not care about a test's clock.

mod connection;
mod entrance;
mod gather;
mod linger;
mod rest;
mod sources;

use std::{
    future::Future,
    io,
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{Request, Response};
use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use self::entrance::{Arrival, Door, Entrance};
pub use self::sources::source;
use self::sources::{Entry, Place, Sources};
use crate::{
    body::{Body, RequestBody},
    connections::{Connections, Order, Patience},
    lifecycle::{Lifecycle, Phase},
    metrics::Metrics,
    tls::{Tls, Trust, VerifiedBy},
};

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    /// Answers one. A panic is answered with 500 and costs nobody else anything.
    fn handle(
        &self,
        request: Request<RequestBody>,
        peer: Arc<Peer>,
    ) -> impl Future<Output = Response<Body>> + Send;
}

/// Who is at the other end of a connection.
#[derive(Debug)]
pub struct Peer {
    /// Where it connects from.
    pub address: SocketAddr,
    /// The client's chain, its own certificate first, if it showed one. Ask [`Peer::verified`] which authorities vouch for
    /// it: some may come and go while the connection lives. Whoever shows one that none vouches for is not anonymous.
    pub certificates: Option<Arc<[CertificateDer<'static>]>>,
    /// Its connection is one of the last, which are kept for health checks and administrators.
    pub is_reserved: bool,
    /// It turned out to be an administrator's, and may go on.
    may_stay: Arc<AtomicBool>,
    verified: Mutex<Option<Verified>>,
    is_named_as_proxy: OnceLock<bool>,
}

/// What was found out about the chain, and when.
#[derive(Clone, Copy, Debug)]
struct Verified {
    by: VerifiedBy,
    generation: u64,
    at: Duration,
}

/// How long a verified chain is believed before it is looked at again: it may have expired.
const VERIFIED_FOR: Duration = Duration::from_secs(60);

impl Peer {
    /// A caller without a certificate, for instance in this process.
    pub fn without_certificate(address: SocketAddr) -> Self {
        Self {
            address,
            certificates: None,
            is_reserved: false,
            may_stay: Arc::default(),
            verified: Mutex::new(None),
            is_named_as_proxy: OnceLock::new(),
        }
    }

    /// A client that showed this chain.
    pub fn with_certificates(
        address: SocketAddr,
        chain: Vec<CertificateDer<'static>>,
        trust: &Trust,
    ) -> Self {
        let chain: Arc<[_]> = chain.into();
        let verified =
            Verified { by: trust.verified_by(&chain), generation: trust.generation(), at: trust.monotonic() };
        Self {
            address,
            certificates: Some(chain),
            is_reserved: false,
            may_stay: Arc::default(),
            verified: Mutex::new(Some(verified)),
            is_named_as_proxy: OnceLock::new(),
        }
    }

    /// One of the last connections is an administrator's: it is not closed after its first answer.
    pub(crate) fn stay(&self) {
        self.may_stay.store(true, Ordering::Relaxed);
    }

    /// Whether the connection ends with its first answer: somebody else may need its place.
    pub(crate) fn is_to_leave(&self) -> bool {
        self.is_reserved && !self.may_stay.load(Ordering::Relaxed)
    }

    /// Whether the client's certificate has a name that front proxies may have. Read once: neither the certificate nor
    /// the names change while the connection lives. Whoever asks knows that an authority vouches for it *now*.
    pub(crate) fn is_named_as_proxy(&self, names: &[String]) -> bool {
        *self.is_named_as_proxy.get_or_init(|| {
            let own = self.certificates.as_ref().and_then(|it| it.first());
            own.is_some_and(|it| access::certificate::check_allowed_name(it, names).is_ok())
        })
    }

    /// Which authorities vouch for the client's certificate now. Cheap: remembered for a minute, unless the
    /// authorities were reloaded.
    pub fn verified(&self, trust: &Trust) -> VerifiedBy {
        let Some(chain) = &self.certificates else { return VerifiedBy::default() };
        let now = trust.monotonic();
        if let Some(verified) = *self.verified.lock()
            && verified.generation == trust.generation()
            && now.saturating_sub(verified.at) < VERIFIED_FOR
        {
            return verified.by;
        }
        let by = trust.verified_by(chain);
        *self.verified.lock() = Some(Verified { by, generation: trust.generation(), at: now });
        by
    }
}

/// What protects the server from its clients.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open connections; more wait to be accepted. One address may have half of them, and a twentieth is kept for health
    /// checks and administrators.
    pub connections: usize,
    /// Time for the TLS handshake.
    pub handshake: Duration,
    /// Time for the head of a request, and for a new connection to send one.
    pub head: Duration,
    /// Time that a connection may be open without a request.
    pub idle: Duration,
    /// Time for requests to finish after draining began.
    pub finish: Duration,
    /// Bytes of a request's head.
    pub head_bytes: u32,
    /// Requests at a time on one HTTP/2 connection.
    pub streams: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 20_000,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(20),
            idle: Duration::from_secs(180),
            finish: Duration::from_secs(60),
            head_bytes: 64 * 1024,
            streams: 250,
        }
    }
}

/// Opens a port; 0 takes any that is free.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    TcpListener::from_std(socket.into())
}

/// How many connections are taken at the end: as many as the system lets wait, and a bound.
const WAITING: usize = 1024;

/// Everything that the connections of one listener share.
pub(crate) struct Shared<H> {
    handler: Arc<H>,
    tls: Arc<Tls>,
    metrics: Arc<Metrics>,
    limits: Limits,
    connections: Arc<Connections>,
    tasks: TaskTracker,
    /// Ends requests that outlive their connection, when nothing may be written any more.
    cut: CancellationToken,
    on_panic: crate::body::OnPanic,
}

/// Ends everything that is left, also if serving is aborted: nobody is answered by a server that is not there.
struct End<H>(Arc<Shared<H>>);

impl<H> Drop for End<H> {
    fn drop(&mut self) {
        self.0.connections.tell_all(Order::Close);
        self.0.cut.cancel();
    }
}

/// Serves until the server drains and all connections are closed, or [`Limits::finish`] later.
pub async fn serve<H: Handler>(
    entrance: impl Into<Entrance>,
    tls: Arc<Tls>,
    handler: Arc<H>,
    lifecycle: Lifecycle,
    limits: Limits,
    metrics: Arc<Metrics>,
) {
    let panics = Arc::clone(&metrics);
    let shared = Arc::new(Shared {
        handler,
        tls,
        metrics,
        limits,
        connections: Arc::default(),
        tasks: TaskTracker::new(),
        cut: CancellationToken::new(),
        on_panic: Arc::new(move || {
            panics.panics.inc();
        }),
    });
    let _end = End(Arc::clone(&shared));
    let counted = Arc::clone(&shared.connections);
    shared.metrics.before_render(move |it| {
        it.connections.set(i64::try_from(counted.len()).unwrap_or(i64::MAX));
    });
    let patience = Patience::new(limits.head, limits.idle);
    let (sweeper, swept) = (Arc::clone(&shared), lifecycle.clone());
    lifecycle.tasks().supervise("connection-sweep", async move {
        while swept.phase() < Phase::Stopped {
            tokio::time::sleep(patience.sweep).await;
            sweeper.connections.sweep(&patience);
        }
    });

    let mut entrance = entrance.into();
    tokio::select! {
        () = lifecycle.draining() => {}
        () = accept_all(&mut entrance, &shared) => {}
    }
    for arrival in entrance.close(WAITING) {
        start(&shared, arrival, None, false);
    }
    finish(&shared).await;
}

async fn accept_all<H: Handler>(entrance: &mut Entrance, shared: &Arc<Shared<H>>) {
    let most = shared.limits.connections;
    let sources = Sources::new(most, most.div_ceil(2), most / 20);
    loop {
        sources.room().await;
        let arrival = match entrance.next().await {
            Ok(arrival) => arrival,
            Err(error) => {
                // Mostly "too many open files": waiting is all that helps, and a busy loop would not.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        match sources.enter(arrival.address) {
            Entry::Served(place) => start(shared, arrival, Some(place), false),
            Entry::Reserved(place) => start(shared, arrival, Some(place), true),
            // Closed at once: whoever makes so many does not wait for a reason.
            Entry::Refused => {}
        }
    }
}

fn start<H: Handler>(shared: &Arc<Shared<H>>, arrival: Arrival, place: Option<Place>, is_reserved: bool) {
    let Arrival { stream, address, held } = arrival;
    prepare(&stream);
    let shared = Arc::clone(shared);
    let tasks = shared.tasks.clone();
    tasks.spawn(async move {
        connection::run(&shared, stream, address, is_reserved).await;
        drop((place, held));
    });
}

/// Small answers leave at once, and a peer that is gone, or does not read, is noticed.
pub fn prepare(stream: &TcpStream) {
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(15))
        .with_retries(4);
    let socket = SockRef::from(stream);
    // None of these can fail on a socket just accepted; if one does, the connection still works.
    let _ = stream.set_nodelay(true);
    let _ = socket.set_tcp_keepalive(&keepalive);
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(Duration::from_secs(120)));
}

async fn finish<H>(shared: &Shared<H>) {
    shared.connections.tell_all(Order::Finish);
    shared.tasks.close();
    if tokio::time::timeout(shared.limits.finish, shared.tasks.wait()).await.is_err() {
        tracing::warn!(
            connections = shared.connections.len(),
            "requests did not finish in time and are cut off"
        );
        shared.connections.tell_all(Order::Close);
        shared.cut.cancel();
        // Closing is only a matter of being scheduled.
        let _ = tokio::time::timeout(Duration::from_secs(1), shared.tasks.wait()).await;
    }
}

#[cfg(test)]
mod tests;
