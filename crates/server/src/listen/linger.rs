//! An HTTP/1 connection that the server closes while its client still sends: closing at once would make the system reset
//! it, and the client would lose the answer that is on its way.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How long, and how much, a client may go on sending.
const LINGER: Duration = Duration::from_secs(1);
const MAX_BYTES: usize = 4 << 20;

/// A stream that is closed in two steps: nothing is sent any more, then what still comes is thrown away for a moment.
pub(super) struct Lingering<S> {
    stream: S,
    /// Whether the client may still be sending; otherwise it is closed at once.
    is_sending: Arc<AtomicBool>,
    closing: Option<Closing>,
}

struct Closing {
    until: Pin<Box<tokio::time::Sleep>>,
    n_bytes: usize,
}

impl<S> Lingering<S> {
    pub(super) fn new(stream: S, is_sending: &Arc<AtomicBool>) -> Self {
        Self { stream, is_sending: Arc::clone(is_sending), closing: None }
    }
}

impl<S: AsyncRead + Unpin> Lingering<S> {
    /// Ready when the client has closed, or has had its moment.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let new = || Closing { until: Box::pin(tokio::time::sleep(LINGER)), n_bytes: 0 };
        let closing = self.closing.get_or_insert_with(new);
        let mut buffer = [0; 4096];
        while closing.n_bytes < MAX_BYTES {
            let mut buffer = ReadBuf::new(&mut buffer);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Pending => return closing.until.as_mut().poll(cx),
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    closing.n_bytes += buffer.filled().len()
                }
                Poll::Ready(_) => break,
            }
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.closing.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        }
        if self.is_sending.load(Ordering::Relaxed) {
            ready!(self.poll_rest(cx));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
