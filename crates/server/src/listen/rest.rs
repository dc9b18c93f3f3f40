//! What a client still sends when its request has been answered already, be it 401 or 404.
//!
//! If nobody took it in, the connection or the stream would be reset, and many clients would not see the answer for it.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;

/// How much is taken in: a little more than the largest body that is ever read.
const MAX_REST: usize = 4 << 20;

/// For how long.
const REST_WITHIN: Duration = Duration::from_secs(2);

/// The body of a request, once whoever was to read it has let go of it.
#[derive(Clone, Default)]
pub(super) struct Rest(Arc<Mutex<Option<Incoming>>>);

impl Rest {
    /// Takes in what is still sent, within bounds. Says whether that was all.
    pub(super) async fn take_in(&self) -> bool {
        let Some(mut body) = self.0.lock().take() else { return true };
        let all = async {
            let mut n_bytes = 0;
            while let Some(Ok(frame)) = body.frame().await {
                n_bytes += frame.data_ref().map_or(0, Bytes::len);
                if n_bytes > MAX_REST {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(REST_WITHIN, all).await.unwrap_or(false)
    }
}

/// The body of a request while it is read.
pub(super) struct Sending {
    pub(super) body: Option<Incoming>,
    pub(super) rest: Rest,
}

impl Body for Sending {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|it| !it.is_end_stream()) {
            *self.rest.0.lock() = Some(body);
        }
    }
}
