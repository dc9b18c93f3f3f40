//! Watches that outlive their connection.
//!
//! # Flow
//! A watch opens a stream at one member, waits until etcd confirms it, and asks for the current revision:
//! only a store that is not older than what was delivered may go on. Then it hands on complete revisions.
//! When the stream ends it begins again at the next member, behind the last revision it handed on.
//!
//! # Guarantees
//! Every event once, in order, never half a revision. Ends only when events are gone (`Compacted`) or the
//! store is another one (`WentBack`).
//!
//! # Assumptions
//! etcd orders the events of a watch by revision and splits one revision over several answers only as
//! fragments. etcd keeps every event *after* its compaction revision; one *at* it may be gone (old releases drop
//! removals), so a watch starts at the last revision it knows, not behind it, and skips what it has.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use store::{Batch, Change, Event, Events, Range, Revision, WatchError};
use tokio::sync::{oneshot, watch};
use tonic::{Status, Streaming};

use crate::{
    client::{MAX_ANSWER, Pause, Turn, request},
    convert::{event, number, revision},
    failure::Failure,
    guard::Freshness,
    layout::holds_all_objects,
    proto::{
        ResponseHeader, WatchCreateRequest, WatchRequest, WatchResponse, event::EventType,
        watch_client::WatchClient, watch_request::RequestUnion,
    },
    store::Inner,
};

/// How long a watch may lag behind what other answers showed before another member is tried.
const STALL: Duration = Duration::from_secs(2);

/// How long a look at history may take.
const HISTORY_WITHIN: Duration = Duration::from_secs(5);

/// Begins to watch; the first connection is made here, so that a caller hears of an etcd that is not there.
pub(crate) async fn open(inner: Arc<Inner>, range: Range, after: Revision) -> Result<Events, WatchError> {
    let is_all = holds_all_objects(&range);
    let is_limited = inner.is_limited.load(Ordering::Acquire);
    let scope = if is_all && !is_limited { Scope::Everything } else { Scope::Range };
    let mut watch = Watch { inner, range, is_all, scope, done: after, held: Vec::new(), stream: None };
    let give_up = watch.inner.client.clock.monotonic() + watch.inner.client.request_timeout;
    let mut pause = Pause::default();
    while let Err(failure) = watch.connect().await {
        let client = &watch.inner.client;
        if matches!(failure, End::Final(_)) || client.clock.monotonic() >= give_up {
            return Err(failure.into_error());
        }
        client.clock.sleep(pause.next()).await;
    }
    Ok(Box::pin(stream::unfold(Some(watch), async |watch| {
        let mut watch = watch?;
        match watch.next().await {
            Ok(batch) => Some((Ok(batch), Some(watch))),
            Err(error) => Some((Err(error), None)),
        }
    })))
}

/// The oldest revision that etcd can still show, if it says so.
pub(crate) async fn oldest(inner: &Inner) -> Option<Revision> {
    let create = WatchCreateRequest { key: inner.layout.probe(), start_revision: 1, ..Default::default() };
    let (_, channel) = inner.client.watch_channel();
    let look = async {
        let mut answers = start(channel, create, None).await?;
        while let Some(answer) = answers.stream.message().await? {
            if answer.compact_revision > 0 {
                return Ok(Some(revision(answer.compact_revision)));
            }
        }
        Ok(None)
    };
    inner.client.within(inner.client.request_timeout, look).await.ok().flatten()
}

/// What etcd is asked to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// The range, and only that.
    Range,
    /// Every write there is, so that each of them is progress.
    Everything,
}

struct Watch {
    inner: Arc<Inner>,
    range: Range,
    /// Whether the range holds all objects.
    is_all: bool,
    scope: Scope,
    /// Everything up to here was handed on.
    done: Revision,
    /// Events of revisions whose rest is still to come, with those that are not ours as nothing.
    held: Vec<(Revision, Option<Event>)>,
    stream: Option<(Turn, Answers)>,
}

/// What etcd sends, for as long as this lives. Whoever drops only the answers leaves etcd with a watcher for ever: a
/// stream ends when both of its halves have, and nothing else ends the half that asks.
struct Answers {
    stream: Streaming<WatchResponse>,
    /// Changes when the member is found not to answer others.
    silence: Option<watch::Receiver<u64>>,
    _asks: oneshot::Sender<()>,
}

/// Why a stream is of no use any more.
enum End {
    /// Another one may be.
    Lost(String),
    /// The watch is over.
    Final(WatchError),
}

impl End {
    fn into_error(self) -> WatchError {
        match self {
            End::Lost(text) => WatchError::Interrupted(text),
            End::Final(error) => error,
        }
    }
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        match failure.into_watch_error() {
            WatchError::Interrupted(text) => End::Lost(text),
            error => End::Final(error),
        }
    }
}

impl Watch {
    async fn next(&mut self) -> Result<Batch, WatchError> {
        let mut pause = Pause::default();
        loop {
            match self.step().await {
                Ok(Some(batch)) => return Ok(batch),
                Ok(None) => {}
                Err(End::Final(error)) => return Err(error),
                Err(End::Lost(text)) => {
                    tracing::warn!(after = %self.done, "the watch of etcd begins again: {text}");
                    if let Some((turn, _)) = self.stream.take() {
                        self.inner.client.leave(turn);
                    }
                    self.inner.client.clock.sleep(pause.next()).await;
                }
            }
        }
    }

    /// Takes one answer, or makes the connection that brings the next.
    async fn step(&mut self) -> Result<Option<Batch>, End> {
        let Some((_, answers)) = &mut self.stream else {
            return self.connect().await.map(|()| None);
        };
        let answer = tokio::select! {
            biased;
            answer = answers.stream.message() => answer,
            () = changed(&mut answers.silence) => return Err(End::Lost("the member does not answer".into())),
            () = stalled(&self.inner, self.scope, self.done) => {
                return Err(End::Lost("the member sends nothing of what others have".into()));
            }
        };
        match answer {
            Ok(Some(answer)) => self.take(&answer),
            Ok(None) => Err(End::Lost("etcd ended the stream".into())),
            Err(status) => Err(Failure::from(&status).into()),
        }
    }

    async fn connect(&mut self) -> Result<(), End> {
        self.held.clear();
        self.inner.client.guard.before_request().map_err(Failure::WentBack)?;
        let create = self.create_request();
        let client = &self.inner.client;
        let (turn, channel) = client.watch_channel();
        let silence = client.silence(turn);
        let opened = async {
            let mut answers = start(channel, create, silence).await?;
            let first = answers.stream.message().await?;
            Ok((answers, first.ok_or_else(|| Status::unavailable("etcd ended the stream at once"))?))
        };
        let (answers, first) = match client.within(client.watch_patience(), opened).await {
            Ok(it) => it,
            Err(failure) => {
                client.leave(turn);
                return Err(failure.into());
            }
        };
        self.take(&first)?;
        self.check_revision().await?;
        self.stream = Some((turn, answers));
        Ok(())
    }

    /// A restored etcd would wait quietly until it reaches our revision again.
    async fn check_revision(&self) -> Result<(), End> {
        let asked = self.inner.current().await;
        self.inner.client.guard.before_request().map_err(Failure::WentBack)?;
        match asked {
            Ok(now) if now < self.done => Err(End::Final(WatchError::WentBack { seen: self.done, now })),
            Ok(_) => Ok(()),
            Err(error) => Err(End::Lost(error.to_string())),
        }
    }

    fn create_request(&self) -> WatchCreateRequest {
        let range = match self.scope {
            Scope::Everything => Some(everything()),
            Scope::Range => self.inner.layout.range(&self.range),
        };
        // Nothing lies in an empty range, so it does not matter what etcd sends.
        let (key, range_end) = range.unwrap_or_else(|| (self.inner.layout.probe(), Bytes::new()));
        // Zero would mean "from now on"; nothing ever happened at revision one.
        let start_revision = number(self.done).unwrap_or(i64::MAX).max(1);
        WatchCreateRequest { key, range_end, start_revision, progress_notify: true, fragment: true }
    }

    fn take(&mut self, answer: &WatchResponse) -> Result<Option<Batch>, End> {
        let header = answer.header.ok_or_else(|| End::Lost("an answer without a header".into()))?;
        self.inner.client.guard.answered(&header, Freshness::Local).map_err(Failure::WentBack)?;
        if answer.compact_revision > 0 {
            let oldest = revision(answer.compact_revision);
            return Err(End::Final(WatchError::Compacted { oldest }));
        }
        if answer.canceled {
            return Err(self.cancelled(&answer.cancel_reason));
        }
        if answer.created {
            return Ok(None);
        }
        if answer.events.is_empty() && !answer.fragment && self.held.is_empty() {
            return Ok(self.progress(&header));
        }
        self.hold(answer);
        Ok(self.hand_on(answer.fragment))
    }

    fn cancelled(&mut self, reason: &str) -> End {
        if reason.contains("permission denied") && self.scope == Scope::Everything {
            // Then only what is ours moves us forward, which is what one may see.
            self.scope = Scope::Range;
            self.inner.is_limited.store(true, Ordering::Release);
        }
        End::Lost(format!("etcd cancelled the watch: {reason}"))
    }

    fn progress(&mut self, header: &ResponseHeader) -> Option<Batch> {
        let now = revision(header.revision);
        if now <= self.done {
            return None;
        }
        self.done = now;
        Some(Batch { revision: now, events: Vec::new() })
    }

    fn hold(&mut self, answer: &WatchResponse) {
        for it in &answer.events {
            let Some(kv) = &it.kv else { continue };
            let at = revision(kv.mod_revision);
            if at > self.done {
                let is_delete = it.r#type() == EventType::Delete;
                let ours = event(&self.inner.layout, is_delete, kv);
                self.held.push((at, ours.filter(|it| self.range.contains(it.key().as_str()))));
            }
        }
    }

    /// Hands on the revisions that are complete: all, or all but the last if a fragment may follow.
    fn hand_on(&mut self, more_follows: bool) -> Option<Batch> {
        let last = self.held.last()?.0;
        let complete =
            if more_follows { self.held.partition_point(|(at, _)| *at < last) } else { self.held.len() };
        let rest = self.held.split_off(complete);
        let ready = std::mem::replace(&mut self.held, rest);
        let revision = ready.last()?.0;
        self.done = revision;
        if self.is_all {
            self.inner.has_reached(revision);
        }
        Some(Batch { revision, events: ready.into_iter().filter_map(|(_, event)| event).collect() })
    }
}

async fn changed(silence: &mut Option<watch::Receiver<u64>>) {
    let is_told = match silence {
        Some(silence) => silence.changed().await.is_ok(),
        None => false,
    };
    if !is_told {
        std::future::pending::<()>().await;
    }
}

/// Ends when a watch that is told everything is told nothing for a while, although there is something to tell.
async fn stalled(inner: &Inner, scope: Scope, done: Revision) {
    loop {
        inner.client.clock.sleep(STALL).await;
        if scope == Scope::Everything && inner.client.guard.newest() > done {
            return;
        }
    }
}

/// When a change was made behind `sent` and up to `until`, by etcd's history; `until` must be the revision of a change
/// that we may see, or nobody can tell.
pub(crate) async fn find(
    inner: &Inner,
    change: &Change,
    sent: Revision,
    until: Revision,
) -> Result<Option<Revision>, String> {
    let is_limited = inner.is_limited.load(Ordering::Acquire);
    let own = Range { start: "/convoy/".into(), end: "/registry0".into() };
    let range = if is_limited { inner.layout.range(&own) } else { None };
    let (key, range_end) = range.unwrap_or_else(everything);
    let start_revision = number(sent.next()).unwrap_or(i64::MAX);
    let create = WatchCreateRequest { key, range_end, start_revision, fragment: true, ..Default::default() };
    let (_, channel) = inner.client.watch_channel();
    let look = async {
        let mut answers = start(channel, create, None).await?;
        while let Some(answer) = answers.stream.message().await? {
            if answer.compact_revision > 0 || answer.canceled {
                return Err(Status::unavailable("etcd has no such history, or does not show it"));
            }
            for it in &answer.events {
                let Some(kv) = &it.kv else { continue };
                let at = revision(kv.mod_revision);
                if at > until {
                    return Ok(None);
                }
                let happened = event(&inner.layout, it.r#type() == EventType::Delete, kv);
                match happened.map_or(Made::Otherwise, |it| made(change, &it)) {
                    Made::ByIt => return Ok(Some(at)),
                    Made::ByItOrAnother => {
                        return Err(Status::unavailable(format!(
                            "the key was removed at revision {at}, by this request or another"
                        )));
                    }
                    Made::InItsPlace => return Ok(None),
                    Made::Otherwise => {}
                }
            }
            // A revision may go on in the next fragment.
            let last = answer.events.last().and_then(|it| it.kv.as_ref()).map(|it| revision(it.mod_revision));
            if last >= Some(until) && !answer.fragment {
                return Ok(None);
            }
        }
        Err(Status::unavailable("etcd ended the stream"))
    };
    inner.client.within(HISTORY_WITHIN, look).await.map_err(|it| it.to_string())
}

/// How an event came about.
enum Made {
    /// By the change.
    ByIt,
    /// By the change, or by one like it.
    ByItOrAnother,
    /// By somebody who was faster, so that the change was not made.
    InItsPlace,
    /// By something that has nothing to do with it.
    Otherwise,
}

/// A put is known by its bytes. A removal leaves no trace of its own: somebody else may have removed the key before, and
/// was told so. If something else is the first thing that happens to its key, it was not made.
fn made(change: &Change, event: &Event) -> Made {
    match (change, event) {
        _ if event.key() != change.key() => Made::Otherwise,
        (Change::Put(_, value, _), Event::Put(entry)) if entry.value == *value => Made::ByIt,
        (Change::Put(..), _) => Made::Otherwise,
        (Change::Delete(_), Event::Delete(..)) => Made::ByItOrAnother,
        (Change::Delete(_), Event::Put(_)) => Made::InItsPlace,
    }
}

fn everything() -> (Bytes, Bytes) {
    (Bytes::from_static(b"\0"), Bytes::from_static(b"\0"))
}

async fn start(
    channel: tonic::transport::Channel,
    create: WatchCreateRequest,
    silence: Option<watch::Receiver<u64>>,
) -> Result<Answers, Status> {
    let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    // Our half of the stream stays open for as long as we want to hear.
    let (open, closed) = oneshot::channel();
    let asks = stream::iter([create]).chain(stream::once(closed).filter_map(|_| std::future::ready(None)));
    let mut client = WatchClient::new(channel).max_decoding_message_size(MAX_ANSWER);
    Ok(Answers { stream: client.watch(request(asks)).await?.into_inner(), silence, _asks: open })
}
