//! One address before several servers: connections go to those that are ready, in turn.
//!
//! A connection is accepted here and handed to a server of this process, which speaks to the client itself: TLS, the
//! client's address and all time limits are the server's. Whoever starts and stops servers says who is ready. Should none
//! be, all that there are are tried: their answer says more than a closed connection. While there is none, as when the only
//! server is replaced, a connection waits for a few seconds.
//!
//! There are only so many connections, and fewer from one address, whichever servers they go to.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use server::listen::{self, Arrival, Door};
use tokio::net::{TcpListener, TcpStream};

/// How long to wait after a connection could not be taken: there may be too many open files.
pub(super) const AFTER_A_FAILURE: Duration = Duration::from_millis(50);

/// How long a connection waits for a server, and how often it is looked for.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

/// Files that are open for other things than connections.
const OTHER_FILES: u64 = 500;

/// The most connections, however many files may be open.
const MAX_CONNECTIONS: u64 = 20_000;

/// How often it is said that there are too many.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// What a server behind the address can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// Not there, or about to leave.
    Closed,
    /// It listens, but `/readyz` does not pass.
    Unready,
    /// It serves.
    Ready,
}

#[derive(Debug)]
struct Place {
    /// Of the server that is there, or was there last.
    door: Mutex<Option<Door>>,
    condition: AtomicU8,
}

/// The servers behind the address.
#[derive(Clone, Debug)]
pub(super) struct Balance {
    places: Arc<Vec<Place>>,
    turn: Arc<AtomicUsize>,
    clients: Arc<Clients>,
}

impl Balance {
    /// For so many servers, in a process that may have so many files open.
    pub(super) fn new(n_servers: usize, open_files: u64) -> Self {
        let place = |_| Place { door: Mutex::default(), condition: AtomicU8::new(Condition::Closed as u8) };
        let most = open_files.saturating_sub(OTHER_FILES).clamp(50, MAX_CONNECTIONS);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let clients = Arc::new(Clients { most, per_source: most.div_ceil(2), open: Mutex::default() });
        Self { places: Arc::new((0..n_servers).map(place).collect()), turn: Arc::default(), clients }
    }

    /// Another server is in a place.
    pub(super) fn install(&self, at: usize, door: Option<Door>) {
        *self.places[at].door.lock() = door;
    }

    /// Says what a server can do.
    pub(super) fn set(&self, at: usize, condition: Condition) {
        self.places[at].condition.store(condition as u8, Ordering::Relaxed);
    }

    /// The servers to try, the next one first, those that are ready before the others.
    fn order(&self) -> Vec<usize> {
        let n_places = self.places.len();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % n_places;
        let in_turn = || (0..n_places).map(|it| (turn + it) % n_places);
        let are = |condition: Condition| {
            in_turn().filter(move |it| self.places[*it].condition.load(Ordering::Relaxed) == condition as u8)
        };
        are(Condition::Ready).chain(are(Condition::Unready)).collect()
    }

    /// Passes connections on until it is dropped.
    pub(super) async fn run(self, listener: TcpListener) {
        loop {
            match listener.accept().await {
                // Closed at once if there are too many: whoever waits in a queue is not answered either.
                Ok((client, address)) => {
                    if let Some(entered) = self.clients.enter(address.ip()) {
                        drop(tokio::spawn(self.clone().pass(client, address, entered)));
                    }
                }
                Err(error) => {
                    tracing::warn!("a connection could not be taken: {error}");
                    tokio::time::sleep(AFTER_A_FAILURE).await;
                }
            }
        }
    }

    /// Hands a connection to the first one that takes it.
    async fn pass(self, client: TcpStream, address: SocketAddr, entered: Entered) {
        let handed = async {
            let mut arrival = Arrival::new(client, address, entered);
            loop {
                for at in self.order() {
                    let Some(door) = self.places[at].door.lock().clone() else { continue };
                    match door.hand_over(arrival) {
                        Ok(()) => return,
                        Err(back) => arrival = back,
                    }
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        // Closed after that: nobody was there to serve it.
        let _ = tokio::time::timeout(PATIENCE, handed).await;
    }
}

/// The connections that are open, by where they come from.
#[derive(Debug)]
struct Clients {
    most: usize,
    per_source: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    n_all: usize,
    by_source: HashMap<IpAddr, usize>,
    said: Option<tokio::time::Instant>,
}

/// One open connection.
#[derive(Debug)]
struct Entered {
    clients: Arc<Clients>,
    source: IpAddr,
}

impl Clients {
    /// A new connection, unless there are too many.
    fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Entered> {
        let source = listen::source(address); // as the servers count
        let mut open = self.open.lock();
        let n_own = open.by_source.get(&source).copied().unwrap_or(0);
        if open.n_all >= self.most || n_own >= self.per_source {
            let now = tokio::time::Instant::now();
            if open.said.is_none_or(|it| now.duration_since(it) >= SAID_EVERY) {
                open.said = Some(now);
                tracing::warn!(connections = open.n_all, %source, "too many connections; more are refused");
            }
            return None;
        }
        open.n_all += 1;
        open.by_source.insert(source, n_own + 1);
        Some(Entered { clients: Arc::clone(self), source })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut open = self.clients.open.lock();
        open.n_all -= 1;
        if let Some(n) = open.by_source.get_mut(&self.source) {
            *n -= 1;
            if *n == 0 {
                open.by_source.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
    use rustls_pki_types::{CertificateDer, pem::PemObject};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpSocket,
    };
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::embed::{Options, Server};

    /// As many files as all tests here need.
    const FILES: u64 = 10_000;

    #[test]
    fn there_are_only_so_many_connections_and_fewer_from_one_address() {
        let balance = Balance::new(1, 0);
        let ip = |last: u8| IpAddr::from([10, 0, 0, last]);
        let mut held: Vec<Entered> = (0..25).map(|_| balance.clients.enter(ip(1)).unwrap()).collect();
        assert!(balance.clients.enter(ip(1)).is_none());
        held.extend((0..25).map(|_| balance.clients.enter(ip(2)).unwrap()));
        assert!(balance.clients.enter(ip(3)).is_none());
        held.pop();
        assert!(balance.clients.enter(ip(3)).is_some());
    }

    /// Whoever has one address of IPv6 has billions.
    #[test]
    fn a_network_of_ipv6_is_one_source() {
        let balance = Balance::new(0, 0);
        let ip = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]);
        let held: Vec<Entered> = (0..25).map(|n| balance.clients.enter(ip(n)).unwrap()).collect();
        assert!(balance.clients.enter(ip(25)).is_none());
        assert!(balance.clients.enter(IpAddr::from([0x2001, 0xdb8, 0, 2, 0, 0, 0, 1])).is_some());
        drop(held);
    }

    #[test]
    fn servers_take_turns_and_closed_ones_are_left_out() {
        let balance = Balance::new(3, FILES);
        assert!(balance.order().is_empty());
        (0..3).for_each(|it| balance.set(it, Condition::Ready));
        let first: Vec<usize> = (0..4).map(|_| balance.order()[0]).collect();
        assert_eq!(first, [1, 2, 0, 1]);
        balance.set(2, Condition::Closed);
        assert!((0..6).all(|_| balance.order().iter().all(|it| *it != 2)));
    }

    #[test]
    fn servers_that_are_not_ready_come_last() {
        let balance = Balance::new(2, FILES);
        (0..2).for_each(|it| balance.set(it, Condition::Ready));
        balance.set(0, Condition::Unready);
        assert!((0..4).all(|_| balance.order() == [1, 0]));
        balance.set(1, Condition::Unready);
        assert_eq!(balance.order().len(), 2);
    }

    /// One server that records every request, in a place of a balancer.
    async fn audited(folder: &Path) -> Server {
        let policy = folder.join("policy.yaml");
        std::fs::write(&policy, "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}")
            .unwrap();
        let options = Options {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            cert_dir: Some(folder.join("pki")),
            controllers: String::new(),
            flags: vec![
                format!("--audit-policy-file={}", policy.display()),
                format!("--audit-log-path={}", folder.join("audit.log").display()),
            ],
            ..Options::default()
        };
        Server::start(options).await.unwrap()
    }

    /// Asks for something over TLS, from this address; says what came back.
    async fn ask(from: [u8; 4], to: SocketAddr, folder: &Path) -> String {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((from, 0))).unwrap();
        let tcp = socket.connect(to).await.unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(folder.join("pki/ca.crt")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
        // A header that anybody can send says nothing.
        let request = "GET /api/v1/nodes HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
                       x-forwarded-for: 192.0.2.1\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said).await;
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Bytes were passed on to the servers over connections of the balancer's own, so every event came from 127.0.0.1.
    #[tokio::test]
    async fn the_audit_log_shows_where_a_client_is() {
        let folder = tempfile::tempdir().unwrap();
        let server = audited(folder.path()).await;
        let balance = Balance::new(1, FILES);
        let front = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = front.local_addr().unwrap();
        let run = tokio::spawn(balance.clone().run(front));
        let path = folder.path();
        let asking = ask([127, 0, 0, 2], address, path);
        // It waits until there is a server.
        let installed = async {
            tokio::time::sleep(LOOK * 3).await;
            balance.install(0, server.door());
            balance.set(0, Condition::Ready);
        };
        let (said, ()) = tokio::join!(asking, installed);
        assert!(said.starts_with("HTTP/1.1 401") || said.starts_with("HTTP/1.1 403"), "{said}");
        while balance.clients.open.lock().n_all > 0 {
            tokio::time::sleep(LOOK).await;
        }
        run.abort();
        server.stop().await;
        let log = std::fs::read_to_string(folder.path().join("audit.log")).unwrap();
        let of_nodes: Vec<&str> = log.lines().filter(|it| it.contains("/api/v1/nodes")).collect();
        assert!(!of_nodes.is_empty(), "{log}");
        for line in of_nodes {
            assert!(line.contains("\"sourceIPs\":[\"127.0.0.2\"]"), "{line}");
        }
    }
}
