//! A member that is not Convoy but holds the cluster's certificates: what it is sent, and what becomes of its answers.

use std::{collections::BTreeMap, convert::Infallible, net::SocketAddr, path::Path, sync::Arc};

use bytes::Bytes;
use fleet::{
    Identity, Incarnation, MemberRecord, Offer,
    cluster::PROTOCOL,
    keys,
    offer::{GroupOffer, ResourceOffer, SubresourceOffer},
    record::{self, FORMAT, Unknown},
};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use meta::Release;
use parking_lot::Mutex;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use serde_json::{Value, json};
use store::Store;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{
    ground::{Ground, ask_with},
    on_both_stores,
};

on_both_stores!(
    a_subresource_that_only_a_peer_has_is_asked_for_there,
    paths_queries_and_bodies_arrive_as_they_were_sent,
    an_answer_that_breaks_off_is_not_passed_off_as_whole,
    a_connection_can_become_something_else,
    a_peer_that_offers_nothing_new_is_never_asked,
);

/// What it was asked: method, path and query, headers, body.
#[derive(Clone, Debug)]
struct Seen {
    method: String,
    uri: String,
    headers: http::HeaderMap,
    body: Bytes,
}

struct FakePeer {
    seen: Arc<Mutex<Vec<Seen>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for FakePeer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How it answers.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    Echo,
    /// It promises more than it sends.
    BreaksOff,
    /// It takes the connection and sends back whatever comes.
    Upgrades,
}

impl FakePeer {
    /// A member of the cluster on this ground, whose certificates must have been made.
    async fn join(ground: &Ground, offer: Offer, manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = acceptor(ground.certs.path());
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let noted = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, noted) = (acceptor.clone(), Arc::clone(&noted));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    if manner == Manner::BreaksOff {
                        break_off(stream).await;
                        return;
                    }
                    let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    let service = service_fn(move |request| answer(request, Arc::clone(&noted), manner));
                    let io = TokioIo::new(stream);
                    if is_h2 {
                        let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        let _ = http2.serve_connection(io, service).await;
                    } else {
                        let http1 = hyper::server::conn::http1::Builder::new();
                        let _ = http1.serve_connection(io, service).with_upgrades().await;
                    }
                });
            }
        });
        put_member(ground, offer, address).await;
        Self { seen, task }
    }

    fn last(&self) -> Seen {
        self.seen.lock().last().cloned().expect("it must have been asked")
    }
}

async fn answer(
    mut request: Request<Incoming>,
    noted: Arc<Mutex<Vec<Seen>>>,
    manner: Manner,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let upgrade = (manner == Manner::Upgrades).then(|| hyper::upgrade::on(&mut request));
    let (parts, body) = request.into_parts();
    let uri = parts.uri.path_and_query().unwrap().to_string();
    let seen = Seen {
        method: parts.method.to_string(),
        uri,
        headers: parts.headers,
        body: body.collect().await.map(|it| it.to_bytes()).unwrap_or_default(),
    };
    noted.lock().push(seen);
    let mut response = Response::new(Full::new(Bytes::from_static(b"{\"kind\":\"Echo\"}")));
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    if let Some(upgrade) = upgrade {
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgrade.await.unwrap());
            let mut buffer = [0; 1024];
            loop {
                let n = stream.read(&mut buffer).await.unwrap_or(0);
                if n == 0 || stream.write_all(&buffer[..n]).await.is_err() {
                    return;
                }
            }
        });
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *response.body_mut() = Full::default();
        response.headers_mut().insert("connection", "Upgrade".parse().unwrap());
        response.headers_mut().insert("upgrade", "echo/1".parse().unwrap());
    }
    Ok(response)
}

/// HTTP/2 by hand would be long; a server that accepts the connection and goes away in the middle is enough.
async fn break_off(mut stream: tokio_rustls::server::TlsStream<TcpStream>) {
    let mut buffer = [0; 512];
    let _ = stream.read(&mut buffer).await;
    // The beginning of a frame of settings, then nothing.
    let _ = stream.write_all(&[0, 0, 6, 4]).await;
}

fn acceptor(certs: &Path) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let (chain, key) = pair(certs, "apiserver");
    let mut config = config.with_no_client_auth().with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

fn pair(certs: &Path, name: &str) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let chain = CertificateDer::pem_file_iter(certs.join(format!("{name}.crt"))).unwrap();
    let key = PrivateKeyDer::from_pem_file(certs.join(format!("{name}.key"))).unwrap();
    (chain.map(Result::unwrap).collect(), key)
}

async fn put_member(ground: &Ground, offer: Offer, address: SocketAddr) {
    let record = MemberRecord {
        format: FORMAT,
        identity: Identity::new("apiserver-fake"),
        incarnation: Incarnation::new("1"),
        release: Release::v1(36),
        emulated: Release::v1(36),
        min_compatible: Release::v1(35),
        peer_address: Some(address.to_string()),
        protocol: PROTOCOL,
        cluster: None,
        features: BTreeMap::new(),
        persisted: BTreeMap::new(),
        offer: Arc::new(offer),
        since: "2026-01-01T00:00:00Z".parse().unwrap(),
        unknown: Unknown::new(),
    };
    let key = keys::member(&record.identity);
    let bytes = record::write(&key, &record).unwrap();
    ground.store.commit(store::Txn::new().put(&key, bytes)).await.unwrap();
}

/// One resource with some verbs, and a subresource with some.
fn offer(group: &str, resource: &str, verbs: &[&str], subresource: &str, sub_verbs: &[&str]) -> Offer {
    let texts = |it: &[&str]| it.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let sub = SubresourceOffer { kind: "Extra".to_owned(), group_version: None, verbs: texts(sub_verbs) };
    let offered = ResourceOffer {
        singular: resource.to_owned(),
        kind: "Thing".to_owned(),
        namespaced: true,
        verbs: texts(verbs),
        subresources: [(subresource.to_owned(), sub)].into(),
        ..ResourceOffer::default()
    };
    let versions = [("v1".to_owned(), [(resource.to_owned(), offered)].into())].into();
    Offer([(group.to_owned(), GroupOffer { priority: 1, versions })].into())
}

/// PP-16, W-P7.
async fn a_subresource_that_only_a_peer_has_is_asked_for_there(ground: Ground) {
    let b = ground.launch_reachable("b", 36, &[]).await;
    let extra = "/api/v1/namespaces/default/configmaps/one/extra";
    assert_eq!(b.ask("GET", extra, Value::Null).await.0, 404);
    let peer =
        FakePeer::join(&ground, offer("", "configmaps", &["get"], "extra", &["get"]), Manner::Echo).await;
    super::ground::eventually("it is known", async || b.ask("GET", extra, Value::Null).await.0 == 200).await;
    assert_eq!(peer.last().uri, extra);
    // What neither offers is refused here, and what both have is answered here.
    assert_eq!(b.ask("PUT", extra, json!({})).await.0, 404);
    let n_asked = peer.seen.lock().len();
    b.get("/api/v1/namespaces/default/configmaps").await;
    assert_eq!(peer.seen.lock().len(), n_asked);
}

/// W-P23; and the identity that goes with it.
async fn paths_queries_and_bodies_arrive_as_they_were_sent(ground: Ground) {
    let b = ground.launch_reachable("b", 36, &[]).await;
    let things = offer("example.com", "things", &["get", "list", "create"], "extra", &["get"]);
    let peer = FakePeer::join(&ground, things, Manner::Echo).await;
    let client = b.server.client();
    let path = "/apis/example.com/v1/namespaces/default/things/a%3Ab?z=%2f&a=1&a=+&&empty=";
    super::ground::eventually("it is known", async || {
        ask_with(&client, "GET", path, &[], Value::Null).await.0 == 200
    })
    .await;
    assert_eq!((peer.last().method.as_str(), peer.last().uri.as_str()), ("GET", path));
    let body = json!({"text": "x".repeat(1 << 20)});
    let headers =
        [("x-custom", "kept"), ("authorization", "Bearer secret"), ("connection", "x-hop"), ("x-hop", "1")];
    let things = "/apis/example.com/v1/namespaces/default/things";
    let (code, _, answer) = ask_with(&client, "POST", things, &headers, body.clone()).await;
    assert_eq!((code, answer["kind"].as_str()), (200, Some("Echo")));
    let seen = peer.last();
    assert_eq!(serde_json::from_slice::<Value>(&seen.body).unwrap(), body);
    let header = |name: &str| seen.headers.get(name).map(|it| it.to_str().unwrap().to_owned());
    assert_eq!(header("x-custom").as_deref(), Some("kept"));
    assert_eq!(header("x-kubernetes-peer-proxied").as_deref(), Some("true"));
    assert_eq!(header("x-remote-user").as_deref(), Some("system:apiserver"));
    assert_eq!(header("x-remote-group").as_deref(), Some("system:masters"));
    for gone in ["authorization", "x-hop", "connection"] {
        assert_eq!(header(gone), None, "{gone}");
    }
}

async fn an_answer_that_breaks_off_is_not_passed_off_as_whole(ground: Ground) {
    let b = ground.launch_reachable("b", 36, &[]).await;
    let things = offer("example.com", "things", &["get", "list", "create"], "extra", &["get"]);
    let _peer = FakePeer::join(&ground, things, Manner::BreaksOff).await;
    let (path, client) = ("/apis/example.com/v1/things", b.server.client());
    for (method, body) in [("GET", Value::Null), ("POST", json!({}))] {
        let path = if method == "GET" { path } else { "/apis/example.com/v1/namespaces/default/things" };
        let (code, headers, answer) = ask_with(&client, method, path, &[], body).await;
        assert_eq!((code, headers.contains_key("retry-after")), (503, true), "{answer}");
        assert!(!answer.to_string().contains("127.0.0.1"), "{answer}");
    }
}

/// PP-13.
async fn a_connection_can_become_something_else(ground: Ground) {
    let b = ground.launch_reachable("b", 36, &[]).await;
    let things = offer("example.com", "things", &["get"], "attach", &["get", "create"]);
    let peer = FakePeer::join(&ground, things, Manner::Upgrades).await;
    let address: SocketAddr = b.server.url().unwrap().trim_start_matches("https://").parse().unwrap();
    let certs = ground.certs.path();
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(certs.join("ca.crt")).unwrap() {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let (chain, key) = pair(certs, "admin");
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .unwrap();
    let tcp = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("kubernetes.default.svc").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
    let head = "GET /apis/example.com/v1/namespaces/default/things/x/attach?stdin=1 HTTP/1.1\r\nHost: x\r\n\
                Connection: Upgrade\r\nUpgrade: echo/1\r\nX-Remote-User: forged\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    assert!(answer.to_ascii_lowercase().contains("upgrade: echo/1"), "{answer}");
    for text in ["hello", "again"] {
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut back = vec![0; text.len()];
        stream.read_exact(&mut back).await.unwrap();
        assert_eq!(back, text.as_bytes());
    }
    let seen = peer.last();
    assert_eq!(seen.uri, "/apis/example.com/v1/namespaces/default/things/x/attach?stdin=1");
    let users: Vec<_> = seen.headers.get_all("x-remote-user").iter().map(|it| it.to_str().unwrap()).collect();
    assert_eq!(users.len(), 1);
    assert_ne!(users[0], "forged");
}

async fn a_peer_that_offers_nothing_new_is_never_asked(ground: Ground) {
    let b = ground.launch_reachable("b", 36, &[]).await;
    let peer =
        FakePeer::join(&ground, offer("", "configmaps", &["get"], "status", &["get"]), Manner::Echo).await;
    for _ in 0..10 {
        b.get("/api/v1/namespaces/default/configmaps").await;
    }
    assert_eq!(b.ask("GET", "/apis/nowhere.example.com/v1/things", Value::Null).await.0, 404);
    assert!(peer.seen.lock().is_empty());
}
