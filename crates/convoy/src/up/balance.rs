//! One address before several servers: connections go to those that are ready, in turn.
//!
//! Bytes are passed on as they are; TLS ends in the servers.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tokio::{
    io,
    net::{TcpListener, TcpStream},
};

/// A server behind the address.
#[derive(Debug)]
pub(super) struct Berth {
    pub(super) address: SocketAddr,
    is_open: AtomicBool,
}

/// The servers behind the address.
#[derive(Clone, Debug)]
pub(super) struct Balance {
    berths: Arc<Vec<Berth>>,
    turn: Arc<AtomicUsize>,
}

impl Balance {
    pub(super) fn new(addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        let closed = |address| Berth { address, is_open: AtomicBool::new(false) };
        Self { berths: Arc::new(addresses.into_iter().map(closed).collect()), turn: Arc::default() }
    }

    /// Whether new connections may go to a server.
    pub(super) fn open(&self, at: usize, is_open: bool) {
        self.berths[at].is_open.store(is_open, Ordering::Relaxed);
    }

    /// The servers to try, the next one first.
    fn order(&self) -> Vec<SocketAddr> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.berths.len();
        let (before, after) = self.berths.split_at(turn);
        let open = after.iter().chain(before).filter(|it| it.is_open.load(Ordering::Relaxed));
        open.map(|it| it.address).collect()
    }

    /// Passes connections on until it is dropped.
    pub(super) async fn run(self, listener: TcpListener) {
        loop {
            let Ok((client, _)) = listener.accept().await else { continue };
            tokio::spawn(self.clone().pass(client));
        }
    }

    async fn pass(self, mut client: TcpStream) {
        for address in self.order() {
            if let Ok(mut server) = TcpStream::connect(address).await {
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                let _ = io::copy_bidirectional(&mut client, &mut server).await;
                return;
            }
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
        (0..3).for_each(|it| balance.open(it, true));
        let first: Vec<u16> = (0..4).map(|_| balance.order()[0].port()).collect();
        assert_eq!(first, [2, 3, 1, 2]);
        balance.open(2, false);
        assert!((0..6).all(|_| balance.order().iter().all(|it| it.port() != 3)));
    }
}
