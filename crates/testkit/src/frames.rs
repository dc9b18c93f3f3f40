//! HTTP/2 by hand: a client that sends the frames a test wants, when it wants, and reads nothing it does not want to.
//!
//! Libraries keep the rules of flow control; hostile clients do not.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::client::tls_config;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// One connection.
pub struct Frames {
    stream: TlsStream<TcpStream>,
    read: BytesMut,
    next: u32,
    always: Vec<(String, String)>,
}

/// What the server sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// The head of an answer, packed; only whether it ends the stream is read.
    Headers {
        stream: u32,
        ends: bool,
    },
    Data {
        stream: u32,
        bytes: usize,
        ends: bool,
    },
    Reset {
        stream: u32,
        code: u32,
    },
    GoAway {
        code: u32,
    },
    /// Settings, pings and the like.
    Other,
}

impl Frames {
    /// Connects, and says how many bytes of each answer it is willing to read before it says more.
    pub async fn connect(port: u16, ca: &[u8], window: u32) -> Result<Frames> {
        let tcp = TcpStream::connect(("127.0.0.1", port)).await.context("cannot connect")?;
        let mut config = tls_config(ca)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        let connector = TlsConnector::from(Arc::new(config));
        let name = ServerName::try_from("127.0.0.1").context("an address must be a name")?;
        let stream = connector.connect(name, tcp).await.context("no TLS")?;
        let mut frames = Frames { stream, read: BytesMut::new(), next: 1, always: Vec::new() };
        let mut settings = BytesMut::new();
        settings.put_u16(4); // SETTINGS_INITIAL_WINDOW_SIZE
        settings.put_u32(window);
        frames.stream.write_all(PREFACE).await?;
        frames.frame(SETTINGS, 0, 0, &settings).await?;
        Ok(frames)
    }

    /// Sends this header with every request from now on.
    pub fn always(&mut self, name: &str, value: &str) {
        self.always.push((name.to_owned(), value.to_owned()));
    }

    /// Sends a request and returns the number of its stream.
    pub async fn request(
        &mut self,
        method: &str,
        path: &str,
        token: &str,
        content_type: &str,
        body: &[u8],
    ) -> Result<u32> {
        let stream = self.head(method, path, token, content_type, body.is_empty()).await?;
        if !body.is_empty() {
            self.frame(DATA, END_STREAM, stream, body).await?;
        }
        Ok(stream)
    }

    /// Sends the head of a request alone.
    pub async fn head(
        &mut self,
        method: &str,
        path: &str,
        token: &str,
        content_type: &str,
        ends: bool,
    ) -> Result<u32> {
        let stream = self.next;
        self.next += 2;
        let mut head = BytesMut::new();
        let bearer = format!("Bearer {token}");
        for (name, value) in [
            (":method", method),
            (":scheme", "https"),
            (":path", path),
            (":authority", "127.0.0.1"),
            ("authorization", bearer.as_str()),
            ("content-type", content_type),
        ] {
            if !value.is_empty() && value != "Bearer " {
                literal(&mut head, name, value);
            }
        }
        for (name, value) in &self.always {
            literal(&mut head, name, value);
        }
        let flags = END_HEADERS | if ends { END_STREAM } else { 0 };
        self.frame(HEADERS, flags, stream, &head).await?;
        Ok(stream)
    }

    /// Sends a piece of a request's body.
    pub async fn data(&mut self, stream: u32, bytes: &[u8], ends: bool) -> Result<()> {
        self.frame(DATA, if ends { END_STREAM } else { 0 }, stream, bytes).await
    }

    /// Takes a request back.
    pub async fn reset(&mut self, stream: u32) -> Result<()> {
        self.frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()).await
    }

    /// Is willing to read so many bytes more, of one stream or (0) of all together.
    pub async fn widen(&mut self, stream: u32, by: u32) -> Result<()> {
        self.frame(WINDOW_UPDATE, 0, stream, &by.to_be_bytes()).await
    }

    /// The next frame; `None` if the server closed, or sent nothing in the time given.
    pub async fn next(&mut self, patience: Duration) -> Option<Frame> {
        tokio::time::timeout(patience, self.read_frame()).await.ok()?.ok()
    }

    /// Whether the server closes the connection in this time, whatever it sends before.
    pub async fn is_closed_within(&mut self, patience: Duration) -> bool {
        let closed = async { while self.read_frame().await.is_ok() {} };
        tokio::time::timeout(patience, closed).await.is_ok()
    }

    async fn read_frame(&mut self) -> Result<Frame> {
        while self.read.len() < 9 {
            self.fill().await?;
        }
        let length = usize::try_from(u32::from_be_bytes([0, self.read[0], self.read[1], self.read[2]]))?;
        while self.read.len() < 9 + length {
            self.fill().await?;
        }
        let mut frame = self.read.split_to(9 + length).freeze();
        let (kind, flags) = (frame[3], frame[4]);
        frame.advance(5);
        let stream = frame.get_u32();
        let ends = flags & END_STREAM != 0;
        Ok(match kind {
            HEADERS => Frame::Headers { stream, ends },
            DATA => Frame::Data { stream, bytes: length, ends },
            RST_STREAM => Frame::Reset { stream, code: code(&mut frame) },
            GOAWAY => {
                frame.advance(4.min(frame.len()));
                Frame::GoAway { code: code(&mut frame) }
            }
            SETTINGS if flags & ACK == 0 => {
                self.frame(SETTINGS, ACK, 0, &[]).await?;
                Frame::Other
            }
            6 if flags & ACK == 0 => {
                self.frame(6, ACK, 0, &frame).await?;
                Frame::Other
            }
            _ => Frame::Other,
        })
    }

    async fn fill(&mut self) -> Result<()> {
        if self.stream.read_buf(&mut self.read).await? == 0 {
            bail!("the server closed the connection");
        }
        Ok(())
    }

    async fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<()> {
        let mut frame = BytesMut::with_capacity(9 + payload.len());
        let length = u32::try_from(payload.len())?.to_be_bytes();
        frame.put_slice(&length[1..]);
        frame.put_u8(kind);
        frame.put_u8(flags);
        frame.put_u32(stream);
        frame.put_slice(payload);
        self.stream.write_all(&frame).await?;
        self.stream.flush().await?;
        Ok(())
    }
}

fn code(payload: &mut Bytes) -> u32 {
    if payload.len() >= 4 { payload.get_u32() } else { 0 }
}

/// A header that is neither packed nor remembered.
fn literal(head: &mut BytesMut, name: &str, value: &str) {
    head.put_u8(0);
    for text in [name, value] {
        length(head, text.len());
        head.put_slice(text.as_bytes());
    }
}

/// An integer with a prefix of seven bits.
fn length(head: &mut BytesMut, length: usize) {
    let Some(mut rest) = length.checked_sub(127) else {
        head.put_u8(u8::try_from(length).unwrap_or(126));
        return;
    };
    head.put_u8(127);
    while rest >= 128 {
        head.put_u8(u8::try_from(rest % 128).unwrap_or(0) | 128);
        rest /= 128;
    }
    head.put_u8(u8::try_from(rest).unwrap_or(0));
}
