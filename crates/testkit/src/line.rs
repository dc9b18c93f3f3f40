//! A TCP line to a server, as long as one likes: bytes take their time, answers can be held back, and the line can be cut.
//!
//! It forwards bytes in order and knows nothing of what they say. What is held back arrives later, all of it, unless the
//! line is cut meanwhile. Deliberately not here: several servers behind one address ([`crate::balance`]).

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Result;
use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};

/// Pieces of one direction that are under way at most; more wait at the sender.
const MOST_UNDER_WAY: usize = 1024;

/// A running line; it ends, with all its connections, when dropped.
pub struct Line {
    address: SocketAddr,
    state: Arc<watch::Sender<State>>,
    _tasks: JoinSet<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct State {
    /// One way.
    delay: Duration,
    holds_answers: bool,
    is_cut: bool,
    /// Connections that began before the last cut are gone.
    n_cuts: u64,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    There,
    Back,
}

impl Line {
    /// To this port of this machine, from one of its own.
    pub async fn to(port: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = Arc::new(watch::Sender::new(State::default()));
        let mut tasks = JoinSet::new();
        let accepting = Arc::clone(&state);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let state = accepting.subscribe();
                if state.borrow().is_cut {
                    continue;
                }
                // A connection that breaks is its client's to notice.
                connections.spawn(async move { drop(carry(client, port, state).await) });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, state, _tasks: tasks })
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A question and its answer take this much longer together.
    pub fn away(&self, round_trip: Duration) {
        self.state.send_modify(|it| it.delay = round_trip / 2);
    }

    /// Questions arrive, answers do not.
    pub fn hold_answers(&self) {
        self.state.send_modify(|it| it.holds_answers = true);
    }

    /// Whatever was held back arrives.
    pub fn release_answers(&self) {
        self.state.send_modify(|it| it.holds_answers = false);
    }

    /// Nothing gets through; what was under way is lost.
    pub fn cut(&self) {
        self.state.send_modify(|it| {
            it.is_cut = true;
            it.n_cuts += 1;
        });
    }

    /// New connections get through again.
    pub fn mend(&self) {
        self.state.send_modify(|it| it.is_cut = false);
    }
}

async fn carry(client: TcpStream, port: u16, mut state: watch::Receiver<State>) -> Result<()> {
    let n_cuts = state.borrow().n_cuts;
    let server = TcpStream::connect(("127.0.0.1", port)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let (there, back) = (state.clone(), state.clone());
    tokio::select! {
        // Whoever ends one direction may still wait for the other.
        done = async { tokio::join!(pass(from_client, to_server, Way::There, there), pass(from_server, to_client, Way::Back, back)) } => drop(done),
        cut = state.wait_for(|it| it.n_cuts != n_cuts) => drop(cut),
    }
    Ok(())
}

/// Passes bytes on, each piece when its time has come.
async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    way: Way,
    mut state: watch::Receiver<State>,
) -> Result<()> {
    let (sender, mut under_way) = mpsc::channel::<(Instant, Bytes)>(MOST_UNDER_WAY);
    let read_state = state.clone();
    let reading = async move {
        let mut buffer = BytesMut::with_capacity(1 << 16);
        while from.read_buf(&mut buffer).await? > 0 {
            let due = Instant::now() + read_state.borrow().delay;
            if sender.send((due, buffer.split().freeze())).await.is_err() {
                break;
            }
            buffer.reserve(1 << 14);
        }
        anyhow::Ok(())
    };
    let writing = async move {
        while let Some((due, piece)) = under_way.recv().await {
            tokio::time::sleep_until(due).await;
            state.wait_for(|it| way == Way::There || !it.holds_answers).await?;
            to.write_all(&piece).await?;
        }
        to.shutdown().await?;
        anyhow::Ok(())
    };
    let (read, written) = tokio::join!(reading, writing);
    read.and(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that repeats what it hears.
    async fn echo() -> (u16, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        (port, tasks)
    }

    async fn say(stream: &mut TcpStream, text: &[u8]) -> Result<Vec<u8>> {
        stream.write_all(text).await?;
        let mut heard = vec![0; text.len()];
        stream.read_exact(&mut heard).await?;
        Ok(heard)
    }

    #[tokio::test]
    async fn bytes_arrive_in_order_and_not_before_their_time() {
        let (port, _server) = echo().await;
        let line = Line::to(port).await.unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", line.port())).await.unwrap();
        assert_eq!(say(&mut stream, b"near").await.unwrap(), b"near");
        line.away(Duration::from_millis(200));
        let begun = Instant::now();
        let long: Vec<u8> = (0..100_000_u32).map(|it| u8::try_from(it % 251).unwrap()).collect();
        assert_eq!(say(&mut stream, &long).await.unwrap(), long);
        assert!(begun.elapsed() >= Duration::from_millis(200));
    }

    #[tokio::test]
    async fn answers_are_held_back_and_arrive_later() {
        let (port, _server) = echo().await;
        let line = Line::to(port).await.unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", line.port())).await.unwrap();
        line.hold_answers();
        let early = tokio::time::timeout(Duration::from_millis(100), say(&mut stream, b"one")).await;
        assert!(early.is_err());
        line.release_answers();
        let mut heard = [0; 3];
        stream.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"one");
    }

    #[tokio::test]
    async fn a_cut_line_loses_what_was_under_way_and_can_be_mended() {
        let (port, _server) = echo().await;
        let line = Line::to(port).await.unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", line.port())).await.unwrap();
        assert_eq!(say(&mut stream, b"one").await.unwrap(), b"one");
        line.cut();
        assert!(say(&mut stream, b"two").await.is_err());
        let mut refused = TcpStream::connect(("127.0.0.1", line.port())).await.unwrap();
        assert!(say(&mut refused, b"three").await.is_err());
        line.mend();
        let mut stream = TcpStream::connect(("127.0.0.1", line.port())).await.unwrap();
        assert_eq!(say(&mut stream, b"four").await.unwrap(), b"four");
    }
}
