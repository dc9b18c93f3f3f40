//! WATCH: the changes of a collection from some state on, as frames ready for the wire.
//!
//! **Flow.** First, where asked for, the objects that are there as ADDED events and a bookmark that ends them; then
//! every change, turned into what a client with these selectors must see; now and then a bookmark.
//! **Guarantees.** In order, without gap or repeat. A watcher that cannot keep up, or asks for a past that is gone,
//! gets an ERROR event with 410 and the stream ends.
//! Deliberately not here: time limits and the connection; the server ends the stream.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use cache::{Change, EventType, Item, Step, Watcher};
use meta::{FieldSelector, LabelSelector, Status};
use store::Revision;

use crate::{
    Registry, Target,
    custom::Presenter,
    fields, list, list_options,
    resource_version::{self, Wanted},
    serve,
};

/// What a WATCH asks for, as it came from the query string.
#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    /// Which labels.
    pub labels: LabelSelector,
    /// Which fields.
    pub fields: FieldSelector,
    /// Where to start.
    pub resource_version: String,
    /// How `resource_version` is meant; only with `send_initial_events`.
    pub resource_version_match: String,
    /// The client understands bookmarks.
    pub allow_bookmarks: bool,
    /// Begin with the objects that are there, and say when they are through.
    pub send_initial_events: Option<bool>,
    /// Means nothing to a watch, and must not stand beside a match.
    pub continue_token: String,
}

/// What comes next on a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// One or more events, each a line of JSON.
    Frames(Vec<Bytes>),
    /// The last event: an ERROR. The stream ends.
    Last(Bytes),
}

/// A running watch.
pub struct WatchStream {
    target: Target,
    options: WatchOptions,
    initial: std::vec::IntoIter<Arc<Item>>,
    initial_end: Option<Revision>,
    source: Source,
    presenter: Presenter,
}

enum Source {
    Live(Watcher),
    Failed(Status),
}

/// How many events are handed over at once.
const BATCH: usize = 64;

impl Registry {
    /// Starts a watch. What is wrong with the request is said at once, what happened to history in the stream.
    pub async fn watch(&self, target: &Target, options: WatchOptions) -> Result<WatchStream, Status> {
        list_options::check_watch(&options)?;
        fields::check(target, &options.fields)?;
        let revision = resource_version::parse_or_fail(&options.resource_version)?;
        let start = Start::of(&options, revision);
        let collection = self.collection(target)?.clone();
        let scope = target.scope();
        let mut stream = WatchStream {
            target: target.clone(),
            options,
            initial: Vec::new().into_iter(),
            initial_end: None,
            source: Source::Failed(Status::internal("the watch did not start")),
            presenter: self.presenter(target),
        };
        let after = match start {
            Start::After(revision) => {
                // A revision that another server handed out a moment ago may not have come here yet.
                self.reach(Wanted::NotOlderThan(revision)).await?;
                revision
            }
            Start::Now => {
                self.reach(Wanted::Consistent).await?;
                collection.snapshot().revision()
            }
            Start::State(wanted) => {
                self.reach(wanted).await?;
                let snapshot = collection.snapshot();
                let items = snapshot.range(&scope, None).cloned().collect();
                let mut items = stream.presenter.present(items).await?;
                items.retain(|it| stream.sees(it));
                stream.initial = items.into_iter();
                if stream.options.send_initial_events == Some(true) {
                    stream.initial_end = Some(snapshot.revision());
                }
                snapshot.revision()
            }
        };
        stream.source = match collection.watch(after, &scope) {
            Ok(watcher) => Source::Live(watcher),
            Err(expired) => {
                let message = format!("too old resource version: {after} ({})", expired.oldest);
                Source::Failed(Status::expired(message))
            }
        };
        Ok(stream)
    }
}

/// Where a watch starts.
enum Start {
    /// With the changes after this revision.
    After(Revision),
    /// With whatever happens next.
    Now,
    /// With the objects that are there.
    State(Wanted),
}

impl Start {
    fn of(options: &WatchOptions, revision: Option<Revision>) -> Self {
        match (options.send_initial_events, revision) {
            (Some(false), None | Some(Revision::ZERO)) => Self::Now,
            (Some(true) | None, None) => Self::State(Wanted::Consistent),
            (Some(true) | None, Some(Revision::ZERO)) => Self::State(Wanted::Any),
            (Some(true), Some(revision)) => Self::State(Wanted::NotOlderThan(revision)),
            (Some(false) | None, Some(revision)) => Self::After(revision),
        }
    }
}

impl WatchStream {
    /// Waits for what comes next.
    pub async fn next(&mut self) -> WatchEvent {
        loop {
            let mut frames = self.take_initial();
            if !frames.is_empty() {
                return WatchEvent::Frames(frames);
            }
            let watcher = match &mut self.source {
                Source::Live(watcher) => watcher,
                Source::Failed(status) => return WatchEvent::Last(error_frame(status)),
            };
            let mut step = Some(watcher.next().await);
            while let Some(now) = step {
                match now {
                    Step::Event(change) => match shown(&self.presenter, change).await {
                        Ok(change) => frames.extend(frame(&self.target, &self.options, &change)),
                        Err(status) => {
                            self.source = Source::Failed(status);
                            break;
                        }
                    },
                    Step::Progress(_) => {}
                    Step::Ended(_) => {
                        let status =
                            Status::expired("too old resource version: the watch fell behind; list again");
                        self.source = Source::Failed(status);
                        break;
                    }
                }
                let Source::Live(watcher) = &mut self.source else { break };
                step = if frames.len() < BATCH { watcher.try_next() } else { None };
            }
            if !frames.is_empty() {
                return WatchEvent::Frames(frames);
            }
        }
    }

    /// A bookmark for everything delivered so far, if the client wants bookmarks.
    pub fn bookmark(&self) -> Option<Bytes> {
        if !self.options.allow_bookmarks || self.initial.len() > 0 || self.initial_end.is_some() {
            return None;
        }
        match &self.source {
            Source::Live(watcher) => Some(bookmark_frame(&self.target, watcher.position(), false)),
            Source::Failed(_) => None,
        }
    }

    fn sees(&self, item: &Item) -> bool {
        list::matches(&self.target, &self.options.labels, &self.options.fields, item)
    }

    fn take_initial(&mut self) -> Vec<Bytes> {
        let mut frames: Vec<Bytes> = self
            .initial
            .by_ref()
            .take(BATCH)
            .map(|it| event_frame(EventType::Added, &serve::object(&self.target, &it)))
            .collect();
        if self.initial.len() == 0
            && let Some(revision) = self.initial_end.take()
        {
            frames.push(bookmark_frame(&self.target, revision, true));
        }
        frames
    }
}

/// The change as the client's version shows it.
async fn shown(presenter: &Presenter, change: Arc<Change>) -> Result<Arc<Change>, Status> {
    let items: Vec<Arc<Item>> = [&change.before, &change.after].into_iter().flatten().cloned().collect();
    if items.iter().all(|it| presenter.is_as_stored(it)) {
        return Ok(change);
    }
    let mut items = presenter.present(items).await?.into_iter();
    let before = change.before.as_ref().and_then(|_| items.next());
    let after = change.after.as_ref().and_then(|_| items.next());
    Ok(Change::new(change.revision, before, after).map_or(change, Arc::new))
}

/// The event that a client with these selectors sees, if any.
fn frame(target: &Target, options: &WatchOptions, change: &Change) -> Option<Bytes> {
    let sees = |it: &Option<Arc<Item>>| {
        it.as_ref().is_some_and(|it| list::matches(target, &options.labels, &options.fields, it))
    };
    let event = match (sees(&change.before), sees(&change.after)) {
        (false, false) => return None,
        (false, true) => EventType::Added,
        (true, true) => EventType::Modified,
        (true, false) => EventType::Deleted,
    };
    let shown = if event == EventType::Deleted { &change.before } else { &change.after };
    let shown = shown.as_ref()?;
    if serve::is_stored_as(target, shown) {
        return Some(change.frame(event));
    }
    let version = target.group_version.to_string();
    Some(change.frame_in(event, &version, |text| serve::in_version(target, shown, &text)))
}

fn event_frame(event: EventType, object: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(object.len() + 40);
    out.put_slice(b"{\"type\":\"");
    out.put_slice(event.as_str().as_bytes());
    out.put_slice(b"\",\"object\":");
    out.put_slice(object);
    out.put_slice(b"}\n");
    out.freeze()
}

fn bookmark_frame(target: &Target, revision: Revision, ends_initial: bool) -> Bytes {
    let annotations =
        if ends_initial { ",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}" } else { "" };
    let head = serve::head(&target.group_version, &target.kind.definition.kind);
    Bytes::from(format!(
        "{{\"type\":\"BOOKMARK\",\"object\":{head}\"metadata\":{{\"resourceVersion\":\"{revision}\",\
         \"creationTimestamp\":null{annotations}}}}}}}\n"
    ))
}

/// An ERROR event that carries a `Status`.
pub fn error_frame(status: &Status) -> Bytes {
    let mut out = BytesMut::new();
    out.put_slice(b"{\"type\":\"ERROR\",\"object\":");
    out.put_slice(&status.to_json());
    out.put_slice(b"}\n");
    out.freeze()
}
