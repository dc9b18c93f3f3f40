//! What an HTTP/2 connection writes at one go leaves at one go.
//!
//! h2 flushes after every answer, and each time that would be a record of TLS and a call to the system. Here small writes
//! wait until the connection has been polled; its driver then calls [`Gather::poll_leave`]. Nothing waits longer than
//! that, and never more than [`MAX_WAITING`].

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// As much as a record of TLS holds.
const MAX_WAITING: usize = 16 * 1024;

/// Larger writes are not worth copying.
const LARGE: usize = 4 * 1024;

/// A stream whose small writes wait. Clones are the same one: the connection has one, its driver another.
pub(super) struct Gather<S>(Arc<Mutex<Inner<S>>>);

impl<S> Clone for Gather<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Inner<S> {
    stream: S,
    /// Allocated only while something waits: there may be many idle connections.
    waiting: BytesMut,
    needs_flush: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Gather<S> {
    pub(super) fn new(stream: S) -> Self {
        Self(Arc::new(Mutex::new(Inner { stream, waiting: BytesMut::new(), needs_flush: false })))
    }

    /// Sends what waits.
    pub(super) fn poll_leave(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().poll_leave(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Inner<S> {
    fn poll_leave(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_waiting(cx))?;
        if self.needs_flush {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.needs_flush = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_waiting(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.waiting.has_remaining() {
            let n = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.waiting))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.needs_flush = true;
            self.waiting.advance(n);
        }
        self.waiting = BytesMut::new();
        Poll::Ready(Ok(()))
    }

    /// Lets `slices` wait, or writes them behind what waits already.
    fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let length = slices.iter().map(|it| it.len()).sum::<usize>();
        if length >= LARGE || self.waiting.len() + length > MAX_WAITING {
            ready!(self.poll_write_waiting(cx))?;
        }
        if length >= LARGE {
            self.needs_flush = true;
            return Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        }
        for slice in slices {
            self.waiting.extend_from_slice(slice);
        }
        Poll::Ready(Ok(length))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Gather<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.lock().stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Gather<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.lock().poll_write(cx, &[io::IoSlice::new(bytes)])
    }

    /// The driver sees to it.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.0.lock();
        ready!(inner.poll_leave(cx))?;
        Pin::new(&mut inner.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.lock().poll_write(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// Counts writes, and takes no more than it has room for.
    #[derive(Default)]
    struct Pipe {
        writes: Vec<Vec<u8>>,
        room: usize,
    }

    impl AsyncRead for Pipe {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Pipe {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let n = bytes.len().min(self.room);
            if n == 0 {
                return Poll::Pending;
            }
            self.room -= n;
            self.writes.push(bytes[..n].to_vec());
            Poll::Ready(Ok(n))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn write(gather: &mut Gather<Pipe>, bytes: &[u8]) -> Poll<usize> {
        let mut cx = Context::from_waker(Waker::noop());
        let written = Pin::new(&mut *gather).poll_write(&mut cx, bytes).map(Result::unwrap);
        assert!(Pin::new(gather).poll_flush(&mut cx).is_ready());
        written
    }

    fn leave(gather: &Gather<Pipe>) -> bool {
        gather.poll_leave(&mut Context::from_waker(Waker::noop())).map(Result::unwrap).is_ready()
    }

    fn writes(gather: &Gather<Pipe>) -> Vec<Vec<u8>> {
        std::mem::take(&mut gather.0.lock().stream.writes)
    }

    #[test]
    fn small_writes_leave_together_and_large_ones_keep_their_place() {
        let mut gather = Gather::new(Pipe { room: usize::MAX, ..Pipe::default() });
        assert_eq!(write(&mut gather, b"one"), Poll::Ready(3));
        assert_eq!(write(&mut gather, b"two"), Poll::Ready(3));
        assert!(writes(&gather).is_empty());
        assert!(leave(&gather));
        assert_eq!(writes(&gather), [b"onetwo"]);
        let large = vec![7; LARGE];
        assert_eq!(write(&mut gather, b"three"), Poll::Ready(5));
        assert_eq!(write(&mut gather, &large), Poll::Ready(LARGE));
        assert_eq!(writes(&gather), [b"three".to_vec(), large]);
        assert_eq!(gather.0.lock().waiting.capacity(), 0, "nothing is kept for idle connections");
    }

    #[test]
    fn no_more_waits_than_there_is_room_for() {
        let mut gather = Gather::new(Pipe::default());
        let piece = vec![1; LARGE - 1];
        let n_written = (0..100).take_while(|_| write(&mut gather, &piece).is_ready()).count();
        assert_eq!(n_written, MAX_WAITING / piece.len());
        assert!(!leave(&gather));
        gather.0.lock().stream.room = 10;
        assert!(!leave(&gather));
        gather.0.lock().stream.room = usize::MAX;
        assert!(leave(&gather));
        assert_eq!(writes(&gather).concat(), vec![1; n_written * piece.len()]);
    }
}
