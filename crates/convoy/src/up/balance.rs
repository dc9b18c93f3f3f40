//! One address before several servers: connections go to those that are ready, in turn.
//!
//! Bytes are passed on as they are; TLS ends in the servers. Whoever starts and stops servers says who is ready. Should
//! none be, all that listen are tried: their answer says more than a closed connection. While nobody listens, as when the
//! only server is replaced, a connection waits for a few seconds.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io,
    net::{TcpListener, TcpStream},
};

/// How long to wait after a connection could not be taken: there may be too many open files.
pub(super) const AFTER_A_FAILURE: Duration = Duration::from_millis(50);

/// How long a connection waits for a server, and how often it is looked for.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

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
    address: SocketAddr,
    condition: AtomicU8,
}

/// The servers behind the address.
#[derive(Clone, Debug)]
pub(super) struct Balance {
    places: Arc<Vec<Place>>,
    turn: Arc<AtomicUsize>,
}

impl Balance {
    pub(super) fn new(addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        let place = |address| Place { address, condition: AtomicU8::new(Condition::Closed as u8) };
        Self { places: Arc::new(addresses.into_iter().map(place).collect()), turn: Arc::default() }
    }

    /// Says what a server can do.
    pub(super) fn set(&self, at: usize, condition: Condition) {
        self.places[at].condition.store(condition as u8, Ordering::Relaxed);
    }

    /// The servers to try, the next one first, those that are ready before the others.
    fn order(&self) -> Vec<SocketAddr> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.places.len();
        let (before, after) = self.places.split_at(turn);
        let in_turn = || after.iter().chain(before);
        let are = |condition: Condition| {
            in_turn().filter(move |it| it.condition.load(Ordering::Relaxed) == condition as u8)
        };
        are(Condition::Ready).chain(are(Condition::Unready)).map(|it| it.address).collect()
    }

    /// Passes connections on until it is dropped.
    pub(super) async fn run(self, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((client, _)) => drop(tokio::spawn(self.clone().pass(client))),
                Err(error) => {
                    tracing::warn!("a connection could not be taken: {error}");
                    tokio::time::sleep(AFTER_A_FAILURE).await;
                }
            }
        }
    }

    async fn pass(self, mut client: TcpStream) {
        let Ok(mut server) = tokio::time::timeout(PATIENCE, self.reach()).await else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let _ = io::copy_bidirectional(&mut client, &mut server).await;
    }

    /// A connection to the first one that takes it.
    async fn reach(&self) -> TcpStream {
        loop {
            for address in self.order() {
                if let Ok(server) = TcpStream::connect(address).await {
                    return server;
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_take_turns_and_closed_ones_are_left_out() {
        let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let balance = Balance::new([address(1), address(2), address(3)]);
        assert!(balance.order().is_empty());
        (0..3).for_each(|it| balance.set(it, Condition::Ready));
        let first: Vec<u16> = (0..4).map(|_| balance.order()[0].port()).collect();
        assert_eq!(first, [2, 3, 1, 2]);
        balance.set(2, Condition::Closed);
        assert!((0..6).all(|_| balance.order().iter().all(|it| it.port() != 3)));
    }

    #[tokio::test]
    async fn a_connection_waits_while_nobody_listens() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let balance = Balance::new([server.local_addr().unwrap()]);
        let front = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = front.local_addr().unwrap();
        let run = tokio::spawn(balance.clone().run(front));
        let mut client = TcpStream::connect(address).await.unwrap();
        tokio::time::sleep(LOOK * 3).await;
        balance.set(0, Condition::Ready);
        let (mut passed, _) = server.accept().await.unwrap();
        io::AsyncWriteExt::write_all(&mut passed, b"yes").await.unwrap();
        let mut said = [0; 3];
        io::AsyncReadExt::read_exact(&mut client, &mut said).await.unwrap();
        assert_eq!(&said, b"yes");
        run.abort();
    }

    #[test]
    fn servers_that_are_not_ready_come_last() {
        let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let balance = Balance::new([address(1), address(2)]);
        (0..2).for_each(|it| balance.set(it, Condition::Ready));
        balance.set(0, Condition::Unready);
        assert!((0..4).all(|_| balance.order() == [address(2), address(1)]));
        balance.set(1, Condition::Unready);
        assert_eq!(balance.order().len(), 2);
    }
}
