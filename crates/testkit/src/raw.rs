//! A TLS connection that sends whatever bytes a test wants, well formed or not.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::Convoy;
use crate::client::tls_config;

/// More than any refusal needs.
const LARGEST_ANSWER: usize = 1 << 20;

/// One connection.
pub struct Raw {
    stream: TlsStream<TcpStream>,
}

/// How the server reacted to bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reaction {
    /// It answered; this is the start of what it said.
    Answered { status: u16, text: String },
    /// It closed the connection without an answer.
    Closed,
    /// Neither, in the time given.
    Silent,
}

impl Raw {
    /// Connects to a running server, as HTTP/1.1.
    pub async fn connect(convoy: &Convoy) -> Result<Raw> {
        let tcp = TcpStream::connect(("127.0.0.1", convoy.port())).await.context("cannot connect")?;
        let connector = TlsConnector::from(Arc::new(tls_config(convoy.ca())?));
        let name = ServerName::try_from("127.0.0.1").context("an address must be a name")?;
        Ok(Raw { stream: connector.connect(name, tcp).await.context("no TLS")? })
    }

    /// Sends bytes; a server that closed meanwhile is no error here.
    pub async fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok() && self.stream.flush().await.is_ok()
    }

    /// Waits for the status line and what comes with it.
    pub async fn reaction(&mut self, patience: Duration) -> Reaction {
        tokio::time::timeout(patience, self.read_answer()).await.unwrap_or(Reaction::Silent)
    }

    /// Reads until the server closes, or for this long: how many bytes came, and whether it closed.
    pub async fn drain(&mut self, patience: Duration) -> (usize, bool) {
        let mut n_read = 0;
        let mut buffer = vec![0; 64 << 10];
        let closed = async {
            while let Ok(read @ 1..) = self.stream.read(&mut buffer).await {
                n_read += read;
            }
        };
        let is_closed = tokio::time::timeout(patience, closed).await.is_ok();
        (n_read, is_closed)
    }

    async fn read_answer(&mut self) -> Reaction {
        let mut answer = Vec::new();
        loop {
            let read = self.stream.read_buf(&mut answer).await.unwrap_or(0);
            let text = String::from_utf8_lossy(&answer);
            let status = text.split(' ').nth(1).and_then(|it| it.parse().ok());
            match status {
                Some(status) if is_complete(&text) || read == 0 => {
                    return Reaction::Answered { status, text: text.into_owned() };
                }
                _ if read == 0 || answer.len() > LARGEST_ANSWER => return Reaction::Closed,
                _ => {}
            }
        }
    }
}

/// Whether an answer is there with its body, as far as it says how long that is.
fn is_complete(answer: &str) -> bool {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { return false };
    let lengths = head.lines().filter_map(|it| it.split_once(": "));
    let length =
        lengths.filter(|it| it.0.eq_ignore_ascii_case("content-length")).find_map(|it| it.1.parse().ok());
    body.len() >= length.unwrap_or(0)
}
