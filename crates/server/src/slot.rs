//! The slot of one request among those in flight, and how its body is read without one.
//!
//! A slot is for work. Whoever sends slowly has none meanwhile, but a place among the uploads ([`crate::uploads`]), of
//! which there are more. Limits come before authorization, as upstream, and what is refused is not read: so the slot is
//! taken first, given back for as long as the body takes, and taken again.

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http_body_util::BodyExt;
use meta::{RetryAfter, Status};
use parking_lot::Mutex;

use crate::{
    api::MAX_BODY,
    body::RequestBody,
    chain::{Caller, Chain, Exchange},
    inflight::{self, InFlightGuard, InFlightLimits, RequestKind},
    payer::Payer,
    uploads::{Upload, Uploads},
};

/// What a request holds while it is worked on.
#[derive(Debug)]
pub(crate) struct Slot {
    limits: InFlightLimits,
    uploads: Uploads,
    /// `None` for what may take as long as it likes: watches do not count.
    kind: Option<RequestKind>,
    payer: Payer,
    guard: Mutex<Option<InFlightGuard>>,
}

impl Slot {
    /// 429 if too much is going on, or too much of it is this user's. Operators always get in.
    pub(crate) fn take(chain: &Chain, exchange: &Exchange, caller: &Caller) -> Result<Self, Status> {
        let info = &exchange.info;
        let slot = Self {
            limits: chain.limits.clone(),
            uploads: chain.uploads.clone(),
            kind: (!info.is_long_running()).then(|| RequestKind::of_verb(info.verb)),
            payer: caller.payer.clone(),
            guard: Mutex::default(),
        };
        slot.retake()?;
        Ok(slot)
    }

    /// The whole body, bounded. While its client is waited for there is no slot; afterwards there may be none left.
    pub(crate) async fn read(&self, body: RequestBody) -> Result<Bytes, Status> {
        let mut reading = Reading { body, whole: BytesMut::new() };
        // Mostly it came with its head.
        if let Some(read) = reading.finish(None).now_or_never() {
            return read.map(|()| reading.whole.freeze());
        }
        *self.guard.lock() = None;
        let mut upload = self.uploads.enter(&self.payer).ok_or_else(refuse)?;
        if !upload.grow(reading.whole.len()) {
            return Err(refuse());
        }
        reading.finish(Some(&mut upload)).await?;
        drop(upload);
        self.retake()?;
        Ok(reading.whole.freeze())
    }

    /// What is kept until the last byte of the answer was taken.
    pub(crate) fn into_guard(self) -> Option<InFlightGuard> {
        self.guard.into_inner()
    }

    fn retake(&self) -> Result<(), Status> {
        let Some(kind) = self.kind else { return Ok(()) };
        let taken = match self.payer.is_operator() {
            true => Some(self.limits.acquire(kind)),
            false => self.limits.try_acquire(kind, &self.payer),
        };
        *self.guard.lock() = Some(taken.ok_or_else(refuse)?);
        Ok(())
    }
}

/// Nothing has been done yet.
fn refuse() -> Status {
    Status::too_many_requests(inflight::REFUSAL, RetryAfter::not_begun(1))
}

/// A body, and what has come of it.
struct Reading {
    body: RequestBody,
    whole: BytesMut,
}

impl Reading {
    /// Reads to the end, or 413; 429 if it does not fit among the uploads. Can be dropped and called again.
    async fn finish(&mut self, mut upload: Option<&mut Upload>) -> Result<(), Status> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame
                .map_err(|it| Status::bad_request(format!("the request body could not be read: {it}")))?;
            let Ok(piece) = frame.into_data() else { continue };
            if self.whole.len() + piece.len() > MAX_BODY {
                return Err(Status::too_large(format!("limit is {MAX_BODY}")));
            }
            if upload.as_mut().is_some_and(|it| !it.grow(piece.len())) {
                return Err(refuse());
            }
            self.whole.extend_from_slice(&piece);
        }
        Ok(())
    }
}

/// Reads a body to its end, or 413, for what has no slot to give back.
pub(crate) async fn read_body(body: RequestBody) -> Result<Bytes, Status> {
    let mut reading = Reading { body, whole: BytesMut::new() };
    reading.finish(None).await?;
    Ok(reading.whole.freeze())
}
