//! Where the connections of a server come from: its port, and a door through which somebody in this process hands over
//! connections that were accepted elsewhere.
//!
//! Who stands before several servers of one process passes no bytes on: the server speaks to the client itself, and so
//! knows its address. There is nothing on the wire that says who a client is, so nobody can pretend: only who has a [`Door`]
//! can use it, and that is never outside this process.

use std::{any::Any, fmt, io, net::SocketAddr};

use futures_util::FutureExt;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::unconstrained,
};

/// How many connections wait to be taken through a door; more are for another server.
const WAITING: usize = 256;

/// A connection that is to be served.
pub struct Arrival {
    pub(super) stream: TcpStream,
    pub(super) address: SocketAddr,
    /// Dropped when the connection ends.
    pub(super) held: Option<Box<dyn Any + Send>>,
}

impl Arrival {
    /// A connection from this address. What is `held` is dropped when it ends.
    pub fn new(stream: TcpStream, address: SocketAddr, held: impl Any + Send) -> Self {
        Self { stream, address, held: Some(Box::new(held)) }
    }
}

impl fmt::Debug for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arrival").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Hands connections to a server of this process.
#[derive(Clone, Debug)]
pub struct Door(mpsc::Sender<Arrival>);

impl Door {
    /// Hands one over, or gives it back if the server takes none now, or none any more.
    pub fn hand_over(&self, arrival: Arrival) -> Result<(), Arrival> {
        self.0.try_send(arrival).map_err(|it| match it {
            mpsc::error::TrySendError::Full(arrival) | mpsc::error::TrySendError::Closed(arrival) => arrival,
        })
    }
}

/// Where connections come from.
#[derive(Debug)]
pub struct Entrance {
    listener: TcpListener,
    handed: mpsc::Receiver<Arrival>,
}

impl From<TcpListener> for Entrance {
    /// A port alone.
    fn from(listener: TcpListener) -> Self {
        Self::with_door(listener).0
    }
}

impl Entrance {
    /// A port and a door.
    pub fn with_door(listener: TcpListener) -> (Self, Door) {
        let (door, handed) = mpsc::channel(WAITING);
        (Self { listener, handed }, Door(door))
    }

    /// The next connection.
    pub(super) async fn next(&mut self) -> io::Result<Arrival> {
        tokio::select! {
            // What is handed over has been accepted: it needs no new file, and does not wait for one.
            biased;
            Some(arrival) = self.handed.recv() => Ok(arrival),
            accepted = self.listener.accept() => {
                let (stream, address) = accepted?;
                Ok(Arrival { stream, address, held: None })
            }
        }
    }

    /// The connections that were made before this is closed, up to so many: their clients have sent something already.
    pub(super) fn close(mut self, most: usize) -> Vec<Arrival> {
        self.handed.close();
        let mut waiting = Vec::new();
        // All of these: whoever handed them over has given them away.
        while let Ok(arrival) = self.handed.try_recv() {
            waiting.push(arrival);
        }
        for _ in waiting.len()..most {
            match unconstrained(self.listener.accept()).now_or_never() {
                Some(Ok((stream, address))) => waiting.push(Arrival { stream, address, held: None }),
                // That one has gone.
                Some(Err(_)) => {}
                None => break,
            }
        }
        waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever handed them over cannot offer them to another server any more.
    #[tokio::test]
    async fn all_that_were_handed_over_are_taken_at_the_end() {
        let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (entrance, door) = Entrance::with_door(TcpListener::bind("127.0.0.1:0").await.unwrap());
        let mut clients = Vec::new();
        for _ in 0..WAITING {
            clients.push(TcpStream::connect(elsewhere.local_addr().unwrap()).await.unwrap());
            let (stream, address) = elsewhere.accept().await.unwrap();
            door.hand_over(Arrival::new(stream, address, ())).unwrap();
        }
        assert_eq!(entrance.close(WAITING + 1).len(), WAITING);
    }
}
