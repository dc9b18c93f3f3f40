//! Good clients, slow clients, hostile clients, and the end of a server, over real sockets.

use std::{fs, task::Poll};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::{PrivateKeyDer, ServerName, pem::PemObject};
use store::{Clock, SharedClock, SystemClock};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{Notify, watch},
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::*;
use crate::{
    pki::{self, Pki, ServingNames},
    tls::TlsFiles,
};

const LONG: Duration = Duration::from_secs(20);

const BRIEF: &str = "/api/v1/things";

/// Answers by path: `/panic`, `/stream-panic`, `/wait`, `/watch`, `/echo`, `/who`, `/where`, anything else `ok`. Behind
/// [`BRIEF`], the same paths look like reads of one object.
struct Toy {
    lifecycle: Lifecycle,
    trust: Arc<Tls>,
    go: Notify,
    begun: watch::Sender<usize>,
}

impl Toy {
    fn begin(&self) {
        self.begun.send_modify(|it| *it += 1);
    }
}

impl Handler for Toy {
    async fn handle(&self, request: Request<RequestBody>, peer: Arc<Peer>) -> Response<Body> {
        let body = match request.uri().path().trim_start_matches(BRIEF) {
            "/panic" => panic!("on purpose"),
            "/stream-panic" => Body::stream(futures_util::stream::poll_fn(|_| panic!("on purpose"))),
            "/wait" => {
                self.begin();
                self.go.notified().await;
                Body::full("waited")
            }
            "/watch" => {
                self.begin();
                let mut draining = Box::pin(self.lifecycle.draining());
                let mut first = true;
                Body::stream(futures_util::stream::poll_fn(move |cx| {
                    if std::mem::take(&mut first) {
                        return Poll::Ready(Some(Ok(Bytes::from_static(b"event\n"))));
                    }
                    draining.as_mut().poll(cx).map(|()| None)
                }))
            }
            "/never" => {
                self.begin();
                std::future::pending().await
            }
            "/echo" => match request.into_body().collect().await {
                Ok(body) => Body::full(body.to_bytes()),
                Err(_) => Body::full("broken"),
            },
            "/where" => Body::full(peer.address.to_string()),
            "/stay" => {
                peer.stay();
                Body::full("stays")
            }
            "/who" => {
                let by = peer.verified(&self.trust.trust());
                Body::full(format!("{by:?} unknown={}", peer.certificates.is_some() && !by.any()))
            }
            _ => Body::chunks(vec![Bytes::from_static(b"o"), Bytes::from_static(b"k")]),
        };
        Response::new(body)
    }
}

struct Server {
    address: SocketAddr,
    door: Door,
    toy: Arc<Toy>,
    pki: Pki,
    metrics: Arc<Metrics>,
    serving: JoinHandle<()>,
    _folder: TempDir,
}

fn start(limits: Limits) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let clock: SharedClock = SystemClock::shared();
    let pki = pki::ensure(folder.path(), &ServingNames::standard(), SystemClock::new().now()).unwrap();
    let files = TlsFiles {
        certificate: pki.serving_certificate.clone(),
        private_key: pki.serving_key.clone(),
        client_ca: Some(pki.ca.clone()),
        front_proxy_ca: Some(pki.front_proxy_ca.clone()),
    };
    let tls = Arc::new(Tls::load(files, Arc::clone(&clock)).unwrap());
    let lifecycle = Lifecycle::new();
    let toy = Arc::new(Toy {
        lifecycle: lifecycle.clone(),
        trust: Arc::clone(&tls),
        go: Notify::new(),
        begun: watch::Sender::new(0),
    });
    let metrics = Arc::new(Metrics::new(&clock, "v1.36.0", meta::Release::v1(36)));
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let (entrance, door) = Entrance::with_door(listener);
    let serving = serve(entrance, tls, Arc::clone(&toy), lifecycle, limits, Arc::clone(&metrics));
    Server { address, door, toy, pki, metrics, serving: tokio::spawn(serving), _folder: folder }
}

fn impatient() -> Limits {
    Limits {
        handshake: Duration::from_millis(300),
        head: Duration::from_millis(300),
        idle: Duration::from_millis(600),
        finish: Duration::from_millis(500),
        ..Limits::default()
    }
}

impl Server {
    /// A TLS connection, with the certificate of this name if any.
    async fn connect(
        &self,
        alpn: &str,
        identity: Option<(&std::path::Path, &std::path::Path)>,
    ) -> TlsStream<TcpStream> {
        let tcp = TcpStream::connect(self.address).await.unwrap();
        self.secure(tcp, alpn, identity).await.unwrap()
    }

    /// TLS over a connection that there is already.
    async fn secure(
        &self,
        tcp: TcpStream,
        alpn: &str,
        identity: Option<(&std::path::Path, &std::path::Path)>,
    ) -> io::Result<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.pki.ca).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = CertificateDer::pem_slice_iter(&fs::read(certificate).unwrap())
                    .map(Result::unwrap)
                    .collect();
                builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap()).unwrap()
            }
        };
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, tcp).await
    }

    /// A connection that somebody else has accepted from this address, handed over.
    async fn handed(&self, address: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
        let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(elsewhere.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = elsewhere.accept().await.unwrap();
        self.door.hand_over(Arrival::new(accepted, address, ())).unwrap();
        self.secure(client, "http/1.1", None).await
    }

    async fn h1(&self) -> hyper::client::conn::http1::SendRequest<Full<Bytes>> {
        let io = TokioIo::new(self.connect("http/1.1", None).await);
        let (send, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        send
    }

    async fn h2(&self) -> hyper::client::conn::http2::SendRequest<Empty<Bytes>> {
        let io = TokioIo::new(self.connect("h2", None).await);
        let (send, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        send
    }

    /// Waits until so many requests that take their time are being worked on.
    async fn begun(&self, requests: usize) {
        self.toy.begun.subscribe().wait_for(|it| *it >= requests).await.unwrap();
    }
}

fn get<B: Default>(path: &str) -> Request<B> {
    Request::get(path).header("host", "localhost").body(B::default()).unwrap()
}

async fn text(response: Response<hyper::body::Incoming>) -> (u16, String) {
    let code = response.status().as_u16();
    (code, String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().into()).unwrap())
}

/// Everything that the server sends until it closes.
async fn to_the_end(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut all = Vec::new();
    // A connection that is cut without farewell has ended, too.
    let _ = tokio::time::timeout(LONG, stream.read_to_end(&mut all)).await.expect("the server must close");
    String::from_utf8_lossy(&all).into_owned()
}

#[tokio::test]
async fn both_protocols_are_served_and_bodies_go_both_ways() {
    let server = start(Limits::default());
    let mut h1 = server.h1().await;
    let response = h1.send_request(get("/")).await.unwrap();
    assert_eq!(response.headers()["content-length"], "2");
    assert_eq!(text(response).await, (200, "ok".to_owned()));
    let big = Bytes::from(vec![b'x'; 3 << 20]);
    let echo = Request::post("/echo").header("host", "localhost").body(Full::new(big.clone())).unwrap();
    let echoed = h1.send_request(echo).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(echoed, big);
    let mut h2 = server.h2().await;
    assert_eq!(text(h2.send_request(get("https://localhost/")).await.unwrap()).await, (200, "ok".to_owned()));
}

#[tokio::test]
async fn a_panic_is_a_500_and_the_connection_goes_on() {
    let server = start(Limits::default());
    let mut h1 = server.h1().await;
    let (code, said) = text(h1.send_request(get("/panic")).await.unwrap()).await;
    assert_eq!(
        (code, said.trim()),
        (500, "This request caused apiserver to panic. Look in the logs for details.")
    );
    assert_eq!(text(h1.send_request(get("/")).await.unwrap()).await, (200, "ok".to_owned()));
    let mut h2 = server.h2().await;
    assert_eq!(h2.send_request(get("https://localhost/panic")).await.unwrap().status(), 500);
    // The stream may be reset before or after its head is sent.
    if let Ok(response) = h2.send_request(get("https://localhost/stream-panic")).await {
        assert!(response.into_body().collect().await.is_err());
    }
    assert_eq!(text(h2.send_request(get("https://localhost/")).await.unwrap()).await, (200, "ok".to_owned()));
    assert_eq!(server.metrics.panics.get(), 3);
}

#[tokio::test]
async fn a_read_of_one_object_that_must_wait_holds_nobody_up() {
    let server = start(Limits::default());
    let of = |path: &str| get(&format!("https://localhost{BRIEF}{path}"));
    let mut h2 = server.h2().await;
    let waiting = tokio::spawn(h2.send_request(of("/wait")));
    server.toy.begun.subscribe().wait_for(|it| *it > 0).await.unwrap();
    assert_eq!(h2.send_request(of("/panic")).await.unwrap().status(), 500);
    assert_eq!(text(h2.send_request(of("/x")).await.unwrap()).await, (200, "ok".to_owned()));
    server.toy.go.notify_one();
    assert_eq!(text(waiting.await.unwrap().unwrap()).await, (200, "waited".to_owned()));
}

#[tokio::test]
async fn certificates_are_told_apart_and_strangers_get_through_the_handshake() {
    let server = start(Limits::default());
    let stranger = tempfile::tempdir().unwrap();
    let other = pki::ensure(stranger.path(), &ServingNames::standard(), SystemClock::new().now()).unwrap();
    let pki = &server.pki;
    let cases = [
        (
            Some((&pki.admin_certificate, &pki.admin_key)),
            "client_ca: true, front_proxy_ca: false } unknown=false",
        ),
        (
            Some((&pki.front_proxy_certificate, &pki.front_proxy_key)),
            "client_ca: false, front_proxy_ca: true } unknown=false",
        ),
        (
            Some((&other.admin_certificate, &other.admin_key)),
            "client_ca: false, front_proxy_ca: false } unknown=true",
        ),
        (None, "client_ca: false, front_proxy_ca: false } unknown=false"),
    ];
    for (identity, want) in cases {
        let identity = identity.map(|(certificate, key)| (certificate.as_path(), key.as_path()));
        let mut stream = server.connect("http/1.1", identity).await;
        stream.write_all(b"GET /who HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let said = to_the_end(&mut stream).await;
        assert!(said.ends_with(want), "{identity:?}: {said}");
    }
}

#[tokio::test]
async fn a_head_that_dribbles_in_is_cut_off() {
    let server = start(impatient());
    let mut stream = server.connect("http/1.1", None).await;
    stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    let dribble = async {
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if stream.write_all(b"x: y\r\n").await.is_err() || stream.flush().await.is_err() {
                return;
            }
        }
    };
    tokio::time::timeout(LONG, dribble).await.expect("the server must close");
}

#[tokio::test]
async fn silent_and_idle_connections_are_closed_but_busy_ones_are_not() {
    let server = start(impatient());
    let mut silent = server.connect("http/1.1", None).await;
    let mut idle = server.connect("http/1.1", None).await;
    idle.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut busy = server.h1().await;
    let busy = tokio::spawn(async move { text(busy.send_request(get("/wait")).await.unwrap()).await });
    let mut watch = server.h2().await;
    let mut watch = watch.send_request(get("https://localhost/watch")).await.unwrap();
    assert_eq!(to_the_end(&mut silent).await, "");
    assert!(to_the_end(&mut idle).await.ends_with("ok"));
    assert_eq!(watch.frame().await.unwrap().unwrap().into_data().unwrap(), "event\n");
    server.toy.go.notify_one();
    assert_eq!(busy.await.unwrap(), (200, "waited".to_owned()));
    assert!(
        tokio::time::timeout(Duration::from_millis(50), watch.frame()).await.is_err(),
        "the watch goes on"
    );
}

#[tokio::test]
async fn a_handshake_that_never_comes_is_not_waited_for() {
    let server = start(impatient());
    let mut tcp = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(to_the_end(&mut tcp).await, "");
    let mut tcp = TcpStream::connect(server.address).await.unwrap();
    tcp.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert!(to_the_end(&mut tcp).await.contains("Client sent an HTTP request to an HTTPS server."));
    assert_eq!(server.metrics.tls_handshake_errors.get(), 2);
}

#[tokio::test]
async fn heads_that_are_too_large_are_refused() {
    let server = start(Limits::default());
    let mut stream = server.connect("http/1.1", None).await;
    let bomb = format!("GET / HTTP/1.1\r\nhost: x\r\nbig: {}\r\n\r\n", "x".repeat(100 << 10));
    let _ = stream.write_all(bomb.as_bytes()).await;
    let said = to_the_end(&mut stream).await;
    assert!(said.starts_with("HTTP/1.1 431 "), "{said}");

    let mut stream = server.connect("http/1.1", None).await;
    let many: String = (0..500).map(|n| format!("h{n}: x\r\n")).collect();
    let _ = stream.write_all(format!("GET / HTTP/1.1\r\n{many}\r\n").as_bytes()).await;
    assert!(to_the_end(&mut stream).await.starts_with("HTTP/1.1 431 "));

    let mut h2 = server.h2().await;
    let bomb =
        Request::get("https://localhost/").header("big", "x".repeat(100 << 10)).body(Empty::new()).unwrap();
    match h2.send_request(bomb).await {
        Ok(response) => assert_eq!(response.status(), 431),
        Err(_reset) => {}
    }
}

#[tokio::test]
async fn too_many_connections_wait_for_their_turn() {
    let server = start(Limits { connections: 1, ..Limits::default() });
    let mut first = server.h1().await;
    assert_eq!(text(first.send_request(get("/")).await.unwrap()).await.0, 200);
    let second = server.h1();
    tokio::pin!(second);
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut second).await.is_err());
    drop(first);
    let mut second = tokio::time::timeout(LONG, second).await.unwrap();
    assert_eq!(text(second.send_request(get("/")).await.unwrap()).await.0, 200);
}

/// On HTTP/2 one health check kept one of the last places for as long as its client liked.
#[tokio::test]
async fn one_of_the_last_connections_ends_with_its_answer() {
    let server = start(Limits { connections: 20, ..Limits::default() });
    let mut others = Vec::new();
    for n in 0..19 {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 2 + n / 10], 0))).unwrap();
        others.push(socket.connect(server.address).await.unwrap());
    }
    let mut h1 = server.h1().await;
    let response = h1.send_request(get("/")).await.unwrap();
    assert_eq!(response.headers()["connection"], "close");
    drop((response, h1));
    let mut h2 = server.h2().await;
    assert_eq!(text(h2.send_request(get("/")).await.unwrap()).await.0, 200);
    // With the answer, and not when its time is over.
    tokio::time::timeout(sources::RESERVED_WITHIN - Duration::from_secs(1), async {
        while !h2.is_closed() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("the server must close");
    // That of an administrator goes on.
    let mut h2 = server.h2().await;
    for _ in 0..3 {
        assert_eq!(text(h2.send_request(get("/stay")).await.unwrap()).await, (200, "stays".to_owned()));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn draining_finishes_requests_ends_watches_and_closes_the_port() {
    let server = start(Limits::default());
    let mut idle = server.connect("http/1.1", None).await;
    let mut half_open = TcpStream::connect(server.address).await.unwrap();
    let mut watch = server.h2().await;
    let watch = watch.send_request(get("https://localhost/watch")).await.unwrap();
    let mut h1 = server.h1().await;
    let waiting = tokio::spawn(async move { text(h1.send_request(get("/wait")).await.unwrap()).await });
    server.begun(2).await;
    server.toy.lifecycle.drain();
    assert_eq!(text(watch).await, (200, "event\n".to_owned()), "a watch ends cleanly");
    assert_eq!(to_the_end(&mut idle).await, "");
    assert_eq!(to_the_end(&mut half_open).await, "");
    assert!(!server.serving.is_finished());
    server.toy.go.notify_one();
    assert_eq!(waiting.await.unwrap(), (200, "waited".to_owned()));
    tokio::time::timeout(LONG, server.serving).await.unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn what_does_not_finish_is_cut_off_at_the_deadline() {
    let server = start(impatient());
    let mut h1 = server.h1().await;
    let stuck = tokio::spawn(async move { h1.send_request(get("/never")).await });
    server.begun(1).await;
    server.toy.lifecycle.drain();
    tokio::time::timeout(LONG, server.serving).await.unwrap().unwrap();
    assert!(stuck.await.unwrap().is_err());
}

#[tokio::test]
async fn a_port_that_is_taken_is_an_error() {
    let taken = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let error = bind(taken.local_addr().unwrap()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}

#[tokio::test]
async fn a_request_that_is_on_its_way_when_the_server_drains_is_answered() {
    let server = start(Limits::default());
    let (mut used, mut new) =
        (server.connect("http/1.1", None).await, server.connect("http/1.1", None).await);
    let mut new_h2 = server.h2().await;
    let request = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    used.write_all(request).await.unwrap();
    let mut answer = vec![0; 512];
    let n = used.read(&mut answer).await.unwrap();
    assert!(!String::from_utf8_lossy(&answer[..n]).contains("connection: close"));
    server.toy.lifecycle.drain();
    tokio::time::sleep(Duration::from_millis(50)).await;
    for stream in [&mut used, &mut new] {
        stream.write_all(request).await.unwrap();
        let said = to_the_end(stream).await;
        assert!(said.starts_with("HTTP/1.1 200 ") && said.contains("connection: close"), "{said}");
    }
    assert_eq!(text(new_h2.send_request(get("https://localhost/")).await.unwrap()).await.0, 200);
    // Whoever sends nothing does not hold up the end.
    tokio::time::timeout(LONG, server.serving).await.unwrap().unwrap();
}

/// All clients of a balancer looked like the balancer: in the audit log, and to the limit of connections from one address,
/// which a few of them used up for all.
#[tokio::test]
async fn a_connection_that_is_handed_over_is_its_clients() {
    let server = start(Limits { connections: 6, ..Limits::default() });
    let address = |last: u8| SocketAddr::from(([10, 0, 0, last], 4711));
    let mut held = Vec::new();
    for last in [1, 1, 1, 2, 2] {
        let mut stream = server.handed(address(last)).await.unwrap();
        stream.write_all(b"GET /where HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let wanted = address(last).to_string();
        let mut said = String::new();
        while !said.ends_with(&wanted) {
            let mut piece = [0; 512];
            let n =
                tokio::time::timeout(LONG, stream.read(&mut piece)).await.expect("it must answer").unwrap();
            assert!(n > 0, "{said}");
            said += &String::from_utf8_lossy(&piece[..n]);
        }
        held.push(stream);
    }
    // Half of six are one address's.
    assert!(server.handed(address(1)).await.is_err());
    server.handed(address(3)).await.unwrap();
}

#[tokio::test]
async fn a_server_that_has_drained_takes_nothing_through_its_door() {
    let server = start(impatient());
    server.toy.lifecycle.drain();
    server.serving.await.unwrap();
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(elsewhere.local_addr().unwrap()).await.unwrap();
    let held = Arc::new(());
    let arrival = Arrival::new(stream, server.address, Arc::clone(&held));
    let back = server.door.hand_over(arrival).expect_err("nobody is there to take it");
    assert_eq!(Arc::strong_count(&held), 2);
    drop(back);
    assert_eq!(Arc::strong_count(&held), 1);
}
