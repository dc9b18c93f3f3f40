//! WATCH as a stream of lines. It ends by itself after its time, when the server drains, or with an ERROR event.

use std::time::Duration;

use bytes::Bytes;
use catalog::Schemas;
use futures_util::stream;
use http::HeaderValue;
use meta::Status;
use rand::RngExt;
use registry::{Line, WatchEvent, WatchStream};
use store::SharedClock;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::{Call, options};
use crate::{
    answer::{self, Answer},
    body::{Body, BoxError},
    metrics::WatchGuard,
    negotiate::{self, Media},
    payer::Payer,
    pool::{self, Pool},
    shape, transcode,
};

/// How often a quiet watch gets a bookmark.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// `GET …?watch=true`
pub(super) async fn watch(call: &mut Call<'_>) -> Result<Answer, Status> {
    let (shape, media) = match shape::wanted(call.exchange) {
        Some(wanted) => (Some(shape::Events::new(call, wanted)?), Media::Json),
        None => (None, media(call)?),
    };
    let options = options::watch(call)?;
    let lasts = duration(call)?;
    let watch = call.registry.watch(&call.target, options).await?;
    let clock = call.registry.clock().clone();
    let running = Running {
        watch,
        ends_at: clock.monotonic() + lasts,
        bookmark_at: clock.monotonic() + BOOKMARK_EVERY,
        clock,
        draining: Box::pin(call.dispatch.lifecycle.draining()),
        guard: call.dispatch.watch_started(call),
        lines: Vec::new().into_iter(),
        pieces: [const { Bytes::new() }; 2],
        n_read: 0,
        pool: call.dispatch.pool.clone(),
        payer: call.caller.payer.clone(),
        shape,
        schemas: (media == Media::Protobuf).then(|| call.dispatch.schemas.clone()),
        is_over: false,
    };
    let body = Body::stream(stream::unfold(running, |mut running| async move {
        let piece = running.next().await?;
        Some((piece, running))
    }));
    let content_type = match media {
        Media::Protobuf => HeaderValue::from_static("application/vnd.kubernetes.protobuf;stream=watch"),
        Media::Json | Media::Yaml => negotiate::JSON,
    };
    Ok(answer::plain(200, content_type, body))
}

/// The form of the events. Kinds that have no other are sent as JSON, if the client can read that.
fn media(call: &Call<'_>) -> Result<Media, Status> {
    let headers = &call.exchange.headers;
    let media = negotiate::stream(headers)?;
    let group_version = call.target.group_version.to_string();
    let has_type =
        transcode::find(&call.dispatch.schemas, &group_version, &call.served.definition.kind).is_some();
    match media {
        Media::Protobuf if !has_type && negotiate::reads_json(headers) => Ok(Media::Json),
        Media::Protobuf if !has_type => Err(Status::not_acceptable(&["application/json;stream=watch"])),
        media => Ok(media),
    }
}

/// What the client asks for, or a random time above the server's minimum, so that not all come back at once.
fn duration(call: &Call<'_>) -> Result<Duration, Status> {
    let query = &call.exchange.query;
    if query.has("timeoutSeconds") {
        let seconds = options::number(query.get("timeoutSeconds"))?;
        if seconds > 0 {
            return Ok(Duration::from_secs(seconds));
        }
    }
    let least = call.dispatch.min_request_timeout;
    Ok(least.mul_f64(1.0 + rand::rng().random::<f64>()))
}

/// A watch that is being sent.
struct Running {
    watch: WatchStream,
    clock: SharedClock,
    ends_at: Duration,
    bookmark_at: Duration,
    draining: std::pin::Pin<Box<WaitForCancellationFutureOwned>>,
    guard: WatchGuard,
    /// Events that are sent next.
    lines: std::vec::IntoIter<Line>,
    /// The rest of the event that is being sent.
    pieces: [Bytes; 2],
    /// So many bytes were read to be sent in another form since it was others' turn.
    n_read: usize,
    pool: Pool,
    payer: Payer,
    shape: Option<shape::Events>,
    /// There if events are sent as protobuf.
    schemas: Option<Schemas>,
    is_over: bool,
}

impl Running {
    /// The next bytes to send.
    async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        if let Some(piece) = self.pieces.iter_mut().find(|it| !it.is_empty()) {
            return Some(Ok(std::mem::take(piece)));
        }
        if self.n_read >= pool::LARGE {
            self.n_read = 0;
            tokio::task::yield_now().await;
        }
        let line = self.next_line().await?;
        if self.shape.is_none() && self.schemas.is_none() {
            let [first, second, third] = line.into_pieces();
            self.pieces = [second, third];
            return Some(Ok(first));
        }
        let line = line.into_whole();
        if line.len() < pool::LARGE {
            self.n_read += line.len();
            return Some(self.encode(line));
        }
        let ticket = self.pool.enter_anyway(&self.payer);
        Some(ticket.run(async { self.encode(line) }).await)
    }

    fn encode(&mut self, line: Bytes) -> Result<Bytes, BoxError> {
        let line = match &mut self.shape {
            Some(shape) => shape.reshape(&line),
            None => line,
        };
        match &self.schemas {
            None => Ok(line),
            Some(schemas) => {
                transcode::watch_frame(schemas, &line).ok_or_else(|| "an event has no such form".into())
            }
        }
    }

    async fn next_line(&mut self) -> Option<Line> {
        loop {
            if let Some(line) = self.lines.next() {
                self.guard.events.inc();
                return Some(line);
            }
            if self.is_over {
                return None;
            }
            let now = self.clock.monotonic();
            if now >= self.ends_at {
                return None;
            }
            let wait = self.ends_at.min(self.bookmark_at).saturating_sub(now);
            tokio::select! {
                biased;
                () = &mut self.draining => {
                    self.is_over = true;
                    return self.watch.bookmark().map(Line::whole);
                }
                event = self.watch.next() => match event {
                    WatchEvent::Lines(lines) => self.lines = lines.into_iter(),
                    WatchEvent::Last(frame) => {
                        self.is_over = true;
                        return Some(Line::whole(frame));
                    }
                },
                () = self.clock.sleep(wait) => {
                    if self.clock.monotonic() >= self.bookmark_at {
                        self.bookmark_at = self.clock.monotonic() + BOOKMARK_EVERY;
                        if let Some(frame) = self.watch.bookmark() {
                            return Some(Line::whole(frame));
                        }
                    }
                }
            }
        }
    }
}
