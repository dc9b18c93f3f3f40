//! HTTP/1.1 over TLS with as little as possible in between: requests are bytes made beforehand,
//! answers are counted, not kept.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::LoadError;

/// How to reach a server, and who asks.
#[derive(Clone)]
pub struct Target {
    connector: TlsConnector,
    address: String,
    /// Who the server says it is, if not the host of its address.
    server_name: Option<String>,
    /// What stands before every path, for servers behind a gateway.
    prefix: String,
    /// Header lines of every request, each with its end.
    headers: String,
}

/// One connection, one request at a time.
pub struct Connection {
    stream: TlsStream<TcpStream>,
    buffer: Vec<u8>,
    /// What of the buffer is used up.
    at: usize,
}

/// A finished answer.
#[derive(Debug, Clone, Copy)]
pub struct Reply {
    pub status: u16,
    pub bytes: usize,
}

impl Target {
    /// `base` is `https://HOST:PORT`, perhaps with a path; `headers` say who asks.
    ///
    /// # Errors
    /// If `base` is something else, or a header does not fit on a line.
    pub fn new(base: &str, tls: ClientConfig, headers: &[(String, String)]) -> Result<Self, LoadError> {
        let wrong = || LoadError::protocol(format!("{base} does not begin with https://"));
        let rest = base.strip_prefix("https://").ok_or_else(wrong)?;
        let (address, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let has_port = address.rsplit_once(':').is_some_and(|it| it.1.bytes().all(|it| it.is_ascii_digit()));
        let address = if has_port { address.to_owned() } else { format!("{address}:443") };
        let prefix = prefix.trim_end_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        let is_line = |it: &str| !it.contains(['\r', '\n']);
        if !headers.iter().all(|(name, value)| is_line(name) && is_line(value)) {
            return Err(LoadError::protocol("a header with a line break cannot be sent"));
        }
        let headers = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let connector = TlsConnector::from(Arc::new(tls));
        Ok(Self { connector, address, server_name: None, prefix, headers })
    }

    /// The same, with another name in the server's certificate than the host of its address.
    #[must_use]
    pub fn named(self, server_name: Option<String>) -> Self {
        Self { server_name, ..self }
    }

    /// Opens a connection.
    pub async fn connect(&self) -> Result<Connection, LoadError> {
        let tcp = TcpStream::connect(&self.address).await.map_err(LoadError::io("cannot connect"))?;
        tcp.set_nodelay(true).map_err(LoadError::io("cannot connect"))?;
        let host = self.address.rsplit_once(':').map_or(self.address.as_str(), |(host, _)| host);
        let name = self.server_name.as_deref().unwrap_or(host.trim_matches(['[', ']']));
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| LoadError::protocol(format!("{name} is no name of a host")))?;
        let stream = self.connector.connect(name, tcp).await.map_err(LoadError::io("no TLS"))?;
        Ok(Connection { stream, buffer: Vec::with_capacity(64 << 10), at: 0 })
    }

    /// A request as bytes.
    pub fn request(&self, method: &str, path: &str, body: &[u8]) -> Vec<u8> {
        self.request_as(method, path, body, "application/json", "application/json")
    }

    /// The same in other media types: what to accept, and what is sent.
    pub fn request_as(
        &self,
        method: &str,
        path: &str,
        body: &[u8],
        accept: &str,
        content_type: &str,
    ) -> Vec<u8> {
        let head = format!(
            "{method} {}{path} HTTP/1.1\r\nhost: {}\r\n{}accept: {accept}\r\n\
             content-type: {content_type}\r\ncontent-length: {}\r\n\r\n",
            self.prefix,
            self.address,
            self.headers,
            body.len()
        );
        [head.as_bytes(), body].concat()
    }
}

impl Connection {
    /// Sends a request and counts the answer.
    pub async fn exchange(&mut self, request: &[u8]) -> Result<Reply, LoadError> {
        self.send(request).await?;
        let head = self.head().await?;
        let bytes = match head.length {
            Length::Bytes(n_bytes) => {
                self.skip(n_bytes).await?;
                n_bytes
            }
            Length::Chunked => self.skip_chunks().await?,
        };
        Ok(Reply { status: head.status, bytes })
    }

    /// Sends a request and reads the start of an answer that goes on in chunks; see [`Connection::chunk`].
    pub async fn begin(&mut self, request: &[u8]) -> Result<u16, LoadError> {
        self.send(request).await?;
        Ok(self.head().await?.status)
    }

    /// The next chunk of an answer, appended to `out`; false at the end.
    pub async fn chunk(&mut self, out: &mut Vec<u8>) -> Result<bool, LoadError> {
        let n_bytes = self.chunk_size().await?;
        let mut left = n_bytes;
        while left > 0 {
            if self.at == self.buffer.len() {
                self.fill().await?;
            }
            let now = left.min(self.buffer.len() - self.at);
            out.extend_from_slice(&self.buffer[self.at..self.at + now]);
            self.at += now;
            left -= now;
        }
        self.line().await?;
        Ok(n_bytes > 0)
    }

    async fn send(&mut self, request: &[u8]) -> Result<(), LoadError> {
        self.stream.write_all(request).await.map_err(LoadError::io("cannot send"))?;
        self.stream.flush().await.map_err(LoadError::io("cannot send"))
    }

    async fn head(&mut self) -> Result<Head, LoadError> {
        let status = self.line().await?;
        let code = status.split(' ').nth(1).and_then(|it| it.parse().ok());
        let status = code.ok_or_else(|| LoadError::protocol(format!("no status line: {status:?}")))?;
        let mut length = Length::Bytes(0);
        loop {
            let line = self.line().await?.to_ascii_lowercase();
            if line.is_empty() {
                return Ok(Head { status, length });
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = Length::Bytes(
                    value.trim().parse().map_err(|_| LoadError::protocol(format!("no length: {line:?}")))?,
                );
            } else if line.starts_with("transfer-encoding:") {
                length = Length::Chunked;
            }
        }
    }

    async fn skip_chunks(&mut self) -> Result<usize, LoadError> {
        let mut total = 0;
        loop {
            let n_bytes = self.chunk_size().await?;
            self.skip(n_bytes).await?;
            self.line().await?;
            if n_bytes == 0 {
                return Ok(total);
            }
            total += n_bytes;
        }
    }

    async fn chunk_size(&mut self) -> Result<usize, LoadError> {
        let line = self.line().await?;
        usize::from_str_radix(line.trim(), 16)
            .map_err(|_| LoadError::protocol(format!("no chunk size: {line:?}")))
    }

    /// The next line, without its end.
    async fn line(&mut self) -> Result<String, LoadError> {
        let mut searched = self.at;
        loop {
            if let Some(end) = self.buffer[searched..].iter().position(|it| *it == b'\n') {
                let end = searched + end;
                let line = String::from_utf8_lossy(&self.buffer[self.at..end]).trim_end().to_owned();
                self.at = end + 1;
                return Ok(line);
            }
            let pending = self.buffer.len() - self.at;
            if pending > 64 << 10 {
                return Err(LoadError::protocol("a line without end"));
            }
            self.fill().await?;
            searched = self.at + pending;
        }
    }

    async fn skip(&mut self, mut n_bytes: usize) -> Result<(), LoadError> {
        loop {
            let now = n_bytes.min(self.buffer.len() - self.at);
            self.at += now;
            n_bytes -= now;
            if n_bytes == 0 {
                return Ok(());
            }
            self.fill().await?;
        }
    }

    /// Drops what is used up and reads more.
    async fn fill(&mut self) -> Result<(), LoadError> {
        self.buffer.drain(..self.at);
        self.at = 0;
        if self.stream.read_buf(&mut self.buffer).await.map_err(LoadError::io("cannot read"))? == 0 {
            return Err(LoadError::protocol("the connection was closed"));
        }
        Ok(())
    }
}

struct Head {
    status: u16,
    length: Length,
}

enum Length {
    Bytes(usize),
    Chunked,
}
