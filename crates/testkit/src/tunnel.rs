//! An HTTP CONNECT proxy that counts: what `--egress-selector-config-file` can name, on a port or on a socket file.
//!
//! Deliberately not here: authentication, TLS to the proxy itself, and any method other than CONNECT.

use std::{
    path::Path,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context, Result, ensure};
use futures_util::{Stream, StreamExt, stream::unfold};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream, UnixListener},
    task::JoinSet,
};

const LONGEST_HEAD: usize = 8 * 1024;

/// A running proxy; it ends, with all its connections, when dropped.
pub struct Tunnel {
    n_opened: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl Tunnel {
    /// On a port of this machine, which is returned, too.
    pub async fn tcp() -> Result<(Self, u16)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let accepted = unfold(listener, async |it: TcpListener| Some((it.accept().await.ok()?.0, it)));
        Ok((Self::over(accepted), port))
    }

    /// On a socket file, which must not exist yet.
    pub fn unix(path: &Path) -> Result<Self> {
        let listener = UnixListener::bind(path)?;
        let accepted = unfold(listener, async |it: UnixListener| Some((it.accept().await.ok()?.0, it)));
        Ok(Self::over(accepted))
    }

    fn over<S>(accepted: impl Stream<Item = S> + Send + 'static) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let n_opened: Arc<AtomicU64> = Arc::default();
        let (counted, mut tasks) = (Arc::clone(&n_opened), JoinSet::new());
        tasks.spawn(async move {
            let (mut accepted, mut connections) = (pin!(accepted), JoinSet::new());
            while let Some(stream) = accepted.next().await {
                let counted = Arc::clone(&counted);
                // A connection that breaks is its client's to notice.
                connections.spawn(async move { drop(carry(stream, counted).await) });
            }
        });
        Self { n_opened, _tasks: tasks }
    }

    /// How many connections went through.
    pub fn n_opened(&self) -> u64 {
        self.n_opened.load(Ordering::Relaxed)
    }
}

async fn carry(mut client: impl AsyncRead + AsyncWrite + Unpin, n_opened: Arc<AtomicU64>) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < LONGEST_HEAD, "a head that does not end");
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8(head)?;
    let mut words = head.split_whitespace();
    ensure!(words.next() == Some("CONNECT"), "only CONNECT is known here");
    let mut target = TcpStream::connect(words.next().context("no address")?).await?;
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    n_opened.fetch_add(1, Ordering::Relaxed);
    copy_bidirectional(&mut client, &mut target).await?;
    Ok(())
}
