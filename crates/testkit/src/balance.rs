//! A TCP round-robin in front of servers, as plain as they come: it forwards bytes and knows nothing of what they say.
//!
//! A connection goes to the next backend in turn, and to the one after it when that one refuses. The list can change at
//! any time; connections that exist stay where they are. It can be told to cut connections at random moments: after some
//! time, or in the middle of an answer. Deliberately not here: TLS, health checks, and any knowledge of requests.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// How long a backend may take to accept before the next one is tried.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// The longest life of a connection that is to be cut, and the most it may bring.
const LONGEST: u64 = 1_500;
const LARGEST: u64 = 200_000;

/// A running balancer; it ends, with all its connections, when dropped.
pub struct Balancer {
    address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

struct Shared {
    backends: Mutex<Vec<u16>>,
    turn: AtomicUsize,
    /// Decides what is cut; nothing is while there is none.
    scissors: Mutex<Option<StdRng>>,
    /// Changes when all connections are to end.
    severed: watch::Sender<()>,
    n_connections: AtomicU64,
    n_cut: AtomicU64,
    n_passed_over: AtomicU64,
}

/// When a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Never,
    After(Duration),
    /// After so many bytes from the backend.
    Within(u64),
}

impl Balancer {
    /// Listens on a port of its own, in front of these ports of this machine.
    pub async fn start(backends: Vec<u16>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            backends: Mutex::new(backends),
            turn: AtomicUsize::new(0),
            scissors: Mutex::new(None),
            severed: watch::Sender::new(()),
            n_connections: AtomicU64::new(0),
            n_cut: AtomicU64::new(0),
            n_passed_over: AtomicU64::new(0),
        });
        let mut tasks = JoinSet::new();
        let accepting = Arc::clone(&shared);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let shared = Arc::clone(&accepting);
                let mut severed = shared.severed.subscribe();
                // A connection that breaks is its client's to notice.
                connections.spawn(async move {
                    tokio::select! {
                        carried = shared.carry(client) => drop(carried),
                        ended = severed.changed() => drop(ended),
                    }
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, shared, _tasks: tasks })
    }

    /// `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Where connections go from now on.
    pub fn only(&self, backends: Vec<u16>) {
        *self.shared.backends.lock() = backends;
    }

    /// Ends every connection that there is.
    pub fn sever(&self) {
        self.shared.severed.send_replace(());
    }

    /// New connections are cut at moments that follow from this seed; without one no connection is cut any more.
    pub fn cut(&self, seed: Option<u64>) {
        *self.shared.scissors.lock() = seed.map(StdRng::seed_from_u64);
    }

    /// How many connections there were, how many were cut, and how often a backend that refused was passed over.
    pub fn counts(&self) -> (u64, u64, u64) {
        let read = |it: &AtomicU64| it.load(Ordering::Relaxed);
        (read(&self.shared.n_connections), read(&self.shared.n_cut), read(&self.shared.n_passed_over))
    }
}

impl Shared {
    async fn carry(&self, mut client: TcpStream) -> Result<()> {
        let Some(mut backend) = self.connect().await else { return Ok(()) };
        self.n_connections.fetch_add(1, Ordering::Relaxed);
        client.set_nodelay(true)?;
        backend.set_nodelay(true)?;
        let cut = self.scissors.lock().as_mut().map_or(Cut::Never, Cut::choose);
        match cut {
            Cut::Never => {
                copy_bidirectional(&mut client, &mut backend).await?;
                return Ok(());
            }
            Cut::After(time) => {
                tokio::select! {
                    ended = copy_bidirectional(&mut client, &mut backend) => {
                        ended?;
                        return Ok(());
                    }
                    () = self.cut_after(time) => {}
                }
            }
            Cut::Within(bytes) => {
                let ((mut from_client, mut to_client), (from_backend, mut to_backend)) =
                    (client.split(), backend.split());
                let mut limited = from_backend.take(bytes);
                tokio::select! {
                    done = copy(&mut from_client, &mut to_backend) => {
                        done?;
                        to_backend.shutdown().await?;
                        copy(&mut limited, &mut to_client).await?;
                    }
                    done = copy(&mut limited, &mut to_client) => drop(done?),
                }
                if !self.is_cutting() {
                    copy_bidirectional(&mut client, &mut backend).await?;
                    return Ok(());
                }
            }
        }
        self.n_cut.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Ends after a time, if connections are still being cut then.
    async fn cut_after(&self, time: Duration) {
        tokio::time::sleep(time).await;
        if !self.is_cutting() {
            std::future::pending::<()>().await;
        }
    }

    fn is_cutting(&self) -> bool {
        self.scissors.lock().is_some()
    }

    /// The next backend that accepts.
    async fn connect(&self) -> Option<TcpStream> {
        let backends = self.backends.lock().clone();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        for n in 0..backends.len() {
            let port = backends[(turn + n) % backends.len()];
            let connecting = TcpStream::connect(("127.0.0.1", port));
            if let Ok(Ok(stream)) = tokio::time::timeout(CONNECT_WITHIN, connecting).await {
                return Some(stream);
            }
            self.n_passed_over.fetch_add(1, Ordering::Relaxed);
        }
        None
    }
}

impl Cut {
    fn choose(random: &mut StdRng) -> Self {
        match random.random_range(0..3) {
            0 => Self::Never,
            1 => Self::After(Duration::from_millis(random.random_range(1..LONGEST))),
            _ => Self::Within(random.random_range(1..LARGEST)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A backend that greets with its name and then repeats what it hears.
    async fn backend(name: &'static str) -> (u16, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    stream.write_all(name.as_bytes()).await.unwrap();
                    let (mut from, mut to) = stream.split();
                    let _ = copy(&mut from, &mut to).await;
                });
            }
        });
        (port, tasks)
    }

    async fn greeted(balancer: &Balancer) -> (String, TcpStream) {
        let mut stream = TcpStream::connect(balancer.address).await.unwrap();
        let mut name = [0; 1];
        stream.read_exact(&mut name).await.unwrap();
        (String::from_utf8(name.to_vec()).unwrap(), stream)
    }

    #[tokio::test]
    async fn connections_go_round_and_past_those_who_refuse() {
        let ((a, _a), (b, b_task)) = (backend("a").await, backend("b").await);
        let balancer = Balancer::start(vec![a, b]).await.unwrap();
        let (first, mut stream) = greeted(&balancer).await;
        let (second, _) = greeted(&balancer).await;
        assert_eq!([first.as_str(), second.as_str()], ["a", "b"]);
        drop(b_task);
        while TcpStream::connect(("127.0.0.1", b)).await.is_ok() {
            tokio::task::yield_now().await;
        }
        for _ in 0..4 {
            assert_eq!(greeted(&balancer).await.0, "a");
        }
        assert_eq!(balancer.counts().2, 2);
        // What exists stays, whoever is in the list.
        balancer.only(vec![]);
        stream.write_all(b"hello").await.unwrap();
        let mut heard = [0; 5];
        stream.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"hello");
    }

    #[tokio::test]
    async fn severed_connections_end_and_new_ones_come_about() {
        let (a, _a) = backend("a").await;
        let balancer = Balancer::start(vec![a]).await.unwrap();
        let (_, mut stream) = greeted(&balancer).await;
        balancer.sever();
        let mut byte = [0; 1];
        assert!(matches!(stream.read(&mut byte).await, Ok(0) | Err(_)));
        assert_eq!(greeted(&balancer).await.0, "a");
    }

    #[tokio::test]
    async fn connections_are_cut_only_when_told() {
        let (a, _a) = backend("a").await;
        let balancer = Balancer::start(vec![a]).await.unwrap();
        balancer.cut(Some(7));
        let mut streams = Vec::new();
        for _ in 0..30 {
            streams.push(greeted(&balancer).await.1);
        }
        tokio::time::sleep(Duration::from_millis(LONGEST + 500)).await;
        let mut n_ended = 0;
        for stream in &mut streams {
            let mut byte = [0; 1];
            let read = stream.read(&mut byte);
            if let Ok(Ok(0) | Err(_)) = tokio::time::timeout(Duration::from_millis(20), read).await {
                n_ended += 1;
            }
        }
        assert!(n_ended > 0 && n_ended < 30, "{n_ended}");
        let (_, n_cut, _) = balancer.counts();
        assert_eq!(n_cut, n_ended);
        balancer.cut(None);
        let (_, mut stream) = greeted(&balancer).await;
        let mut byte = [0; 1];
        let read = stream.read(&mut byte);
        assert!(tokio::time::timeout(Duration::from_millis(LONGEST + 200), read).await.is_err());
    }
}
