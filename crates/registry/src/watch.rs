//! WATCH: the changes of a collection from some state on, as frames ready for the wire.
//!
//! **Flow.** First, where asked for, the objects that are there as ADDED events and a bookmark that ends them; then
//! every change, turned into what a client with these selectors must see; now and then a bookmark.
//! **Guarantees.** In order, without gap or repeat. A watcher that cannot keep up, or asks for a past that is gone,
//! gets an ERROR event with 410 and the stream ends.
//! **Memory.** A watch that nobody reads holds a position, and what it hands over next: some small events, or one large
//! one. Objects are taken from a snapshot, converted and judged only when somebody asks for the next event.
//! Deliberately not here: time limits and the connection; the server ends the stream.

mod line;

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use cache::{Change, EventType, Item, Snapshot, Step, Undecodable, WatchError, Watcher};
use meta::{FieldSelector, LabelSelector, Status};
use store::{Key, Revision};

pub use self::line::Line;
use crate::{
    Registry, Target,
    custom::Presenter,
    fields, list, list_options, outcome,
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
    /// One or more events.
    Lines(Vec<Line>),
    /// The last event: an ERROR. The stream ends.
    Last(Bytes),
}

/// A running watch.
pub struct WatchStream {
    target: Target,
    options: WatchOptions,
    /// What is there, until all of it was handed over.
    initial: Option<Initial>,
    source: Source,
    /// A change that was taken from the source and is not among the lines yet.
    taken: Option<Arc<Change>>,
    /// What is handed over next.
    lines: Vec<Line>,
    presenter: Presenter,
    /// The last step took a while: before the next one it is others' turn.
    owes_turn: bool,
}

/// The objects that were there when the watch began. Taken from the snapshot as they are asked for: it shares with the
/// collection what has not changed since.
struct Initial {
    snapshot: Snapshot,
    scope: String,
    /// The last one that was taken.
    after: Option<Key>,
    /// There is a bookmark behind the last one.
    has_end: bool,
}

enum Source {
    Live(Watcher),
    Failed(Status),
}

/// How many events are handed over at once, and from how many bytes on no other is added to them.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 16 << 10;

/// How much is sent to a conversion webhook at once.
const SENT: usize = 500;
const SENT_BYTES: usize = 256 << 10;

/// How many requirements of selectors are judged before it is others' turn.
const JUDGED: usize = 4_096;

impl Registry {
    /// Starts a watch. What is wrong with the request is said at once, what happened to history in the stream.
    pub async fn watch(&self, target: &Target, options: WatchOptions) -> Result<WatchStream, Status> {
        let mut target = Cow::Borrowed(target);
        loop {
            match self.watch_once(&target, options.clone()).await {
                // Another collection has taken its place; nothing of the watch was sent.
                Err(status) if outcome::is_closed(&status) => {
                    target = Cow::Owned(self.resolved_again(&target)?);
                }
                done => return done,
            }
        }
    }

    async fn watch_once(&self, target: &Target, options: WatchOptions) -> Result<WatchStream, Status> {
        list_options::check_watch(&options)?;
        fields::check(target, &options.fields)?;
        let revision = resource_version::parse_or_fail(&options.resource_version)?;
        let start = Start::of(&options, revision);
        let collection = self.collection(target)?.clone();
        let scope = target.scope();
        let mut stream = WatchStream {
            target: target.clone(),
            options,
            initial: None,
            source: Source::Failed(Status::internal("the watch did not start")),
            taken: None,
            lines: Vec::new(),
            presenter: self.presenter(target),
            owes_turn: false,
        };
        let after = match start {
            Start::After(revision) => {
                // A revision that another server handed out a moment ago may not have come here yet.
                self.reach(Wanted::NotOlderThan(revision)).await?;
                revision
            }
            Start::Now => {
                self.reach(Wanted::Consistent).await?;
                collection.snapshot().map_err(outcome::closed)?.revision()
            }
            Start::State(wanted) => {
                self.reach(wanted).await?;
                let snapshot = collection.snapshot().map_err(outcome::closed)?;
                let revision = snapshot.revision();
                let has_end = stream.options.send_initial_events == Some(true);
                stream.initial = Some(Initial { snapshot, scope: scope.clone(), after: None, has_end });
                // What goes wrong at the beginning is told with a status code.
                stream.take_initial().await?;
                revision
            }
        };
        stream.source = match collection.watch(after, &scope) {
            Ok(watcher) => Source::Live(watcher),
            Err(WatchError::Closed(closed)) => return Err(outcome::closed(closed)),
            Err(WatchError::Expired(expired)) => {
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
    /// Waits for what comes next. Dropping the future loses nothing: the next call goes on where it was.
    pub async fn next(&mut self) -> WatchEvent {
        loop {
            if std::mem::take(&mut self.owes_turn) {
                tokio::task::yield_now().await;
            }
            if self.initial.is_some() && self.lines.is_empty() {
                if let Err(status) = self.take_initial().await {
                    self.initial = None;
                    self.source = Source::Failed(status);
                }
                continue;
            }
            if self.initial.is_some() {
                return WatchEvent::Lines(std::mem::take(&mut self.lines));
            }
            if let Some(change) = &self.taken {
                // Conversion may take long; the change stays taken until its line is there.
                match shown(&self.presenter, Arc::clone(change)).await {
                    Ok(change) => {
                        let seen = frame(&self.target, &self.options, &change);
                        self.lines.extend(seen.map(Line::whole));
                        self.owes_turn = self.n_requirements() > JUDGED / BATCH;
                    }
                    Err(status) => self.source = Source::Failed(status),
                }
                self.taken = None;
            }
            let is_full = is_full(&self.lines) || self.owes_turn;
            let step = match &mut self.source {
                Source::Live(_) if self.owes_turn && self.lines.is_empty() => continue,
                Source::Live(watcher) if self.lines.is_empty() => Some(watcher.next().await),
                Source::Live(watcher) if !is_full => watcher.try_next(),
                Source::Failed(status) if self.lines.is_empty() => {
                    return WatchEvent::Last(error_frame(status));
                }
                Source::Live(_) | Source::Failed(_) => None,
            };
            match step {
                None => return WatchEvent::Lines(std::mem::take(&mut self.lines)),
                Some(Step::Event(change)) => self.taken = Some(change),
                Some(Step::Progress(_)) => {}
                Some(Step::Undecodable(key, why)) => {
                    self.source = Source::Failed(outcome::undecodable(&self.target, &key, why));
                }
                Some(Step::Ended(_)) => {
                    let status =
                        Status::expired("too old resource version: the watch fell behind; list again");
                    self.source = Source::Failed(status);
                }
            }
        }
    }

    /// A bookmark for everything delivered so far, if the client wants bookmarks and that is known.
    pub fn bookmark(&self) -> Option<Bytes> {
        let is_delivered = self.initial.is_none() && self.taken.is_none() && self.lines.is_empty();
        match &self.source {
            Source::Live(watcher) if is_delivered && self.options.allow_bookmarks => {
                Some(bookmark_frame(&self.target, watcher.position()?, false))
            }
            Source::Live(_) | Source::Failed(_) => None,
        }
    }

    /// Takes some of the objects that are there, and makes lines of those that the client sees. Behind the last one it
    /// ends.
    async fn take_initial(&mut self) -> Result<(), Status> {
        let Some(initial) = &self.initial else { return Ok(()) };
        let most = self.portion();
        let items = initial.some(&most).map_err(|it| outcome::some_undecodable(&self.target, &it))?;
        let last = items.last().map(|it| it.key().clone());
        let is_converted = items.iter().any(|it| !self.presenter.is_as_stored(it));
        let items = self.presenter.present(items).await?;
        self.owes_turn = is_converted || most.items < BATCH;
        for item in items {
            if list::matches(&self.target, &self.options.labels, &self.options.fields, &item) {
                self.lines.push(Line::added(&self.target, &item));
            }
        }
        self.owes_turn |= self.lines.is_empty();
        match (last, &mut self.initial) {
            (Some(last), Some(initial)) => initial.after = Some(last),
            (None, Some(initial)) if initial.has_end => {
                let end = bookmark_frame(&self.target, initial.snapshot.revision(), true);
                self.lines.push(Line::whole(end));
                self.initial = None;
            }
            (_, initial) => *initial = None,
        }
        Ok(())
    }

    /// How many objects are taken at once: as many as can be judged in a moment, and for a webhook more.
    fn portion(&self) -> Portion {
        let items = (JUDGED / self.n_requirements().max(1)).clamp(1, BATCH);
        match self.presenter.asks_webhook() {
            true => Portion { items: SENT, bytes: SENT_BYTES },
            false => Portion { items, bytes: BATCH_BYTES },
        }
    }

    fn n_requirements(&self) -> usize {
        self.options.labels.requirements().len() + self.options.fields.requirements().len()
    }
}

/// At most so many objects, and no other behind so many bytes.
struct Portion {
    items: usize,
    bytes: usize,
}

impl Initial {
    /// Some of the next objects.
    fn some(&self, most: &Portion) -> Result<Vec<Arc<Item>>, Undecodable> {
        let mut n_bytes = 0;
        let rest = self.snapshot.range(&self.scope, self.after.as_ref().map(Key::as_str))?;
        let fits = |it: &&Arc<Item>| {
            let is_room = n_bytes < most.bytes;
            n_bytes += it.text().len();
            is_room
        };
        Ok(rest.take(most.items).take_while(fits).cloned().collect())
    }
}

fn is_full(lines: &[Line]) -> bool {
    lines.len() >= BATCH || lines.iter().map(Line::len).sum::<usize>() >= BATCH_BYTES
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
    [b"{\"type\":\"ERROR\",\"object\":", &*status.to_json(), b"}\n"].concat().into()
}
