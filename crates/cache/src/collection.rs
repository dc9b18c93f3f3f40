//! All objects of one kind, as readers use them. The feed is the only writer; while a collection is loaded, what is
//! loaded is written beside the feed.
//!
//! A collection that is still loaded, and one that was replaced or removed, answers nobody: what it holds is not what
//! is stored, and nothing would tell the reader.
//!
//! Everything is behind one lock that is held for an O(1) copy by readers and for the inserts of one
//! batch by the feed; values are parsed before it is taken. All changes of one revision are applied
//! under one hold of the lock, so no snapshot shows half of a transaction.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use imbl::OrdMap;
use meta::StorageVersion;
use parking_lot::RwLock;
use store::{Entry, Event, Key, Revision};
use tokio::sync::watch;

use crate::{
    Change, Closed, GetError, Item, Snapshot, Unreadable, WatchError, Watcher,
    config::{CacheConfig, CollectionSpec},
    ingest::{Interner, ingest, reindex},
    progress::Progress,
    ring::Ring,
};

/// More keys than this are taken apart by a thread of their own.
const LARGE: u64 = 10_000;

/// One kind's objects.
pub struct Collection {
    spec: Arc<CollectionSpec>,
    interner: Interner,
    pub(crate) progress: Arc<Progress>,
    pub(crate) state: RwLock<State>,
    /// Tells watchers to look at the ring again.
    pub(crate) changed: watch::Sender<()>,
}

impl Collection {
    /// Where the objects are and which fields can be selected.
    pub fn spec(&self) -> &CollectionSpec {
        &self.spec
    }

    /// The position of a selectable field, for [`Item::field`].
    pub fn field_position(&self, name: &str) -> Option<usize> {
        self.spec.fields.iter().position(|it| it.name == name)
    }

    /// One object; an error if a value is there that cannot be served.
    pub fn get(&self, key: &str) -> Result<Option<Arc<Item>>, GetError> {
        let state = self.state.read();
        let contents = state.open()?;
        match contents.unreadable.get(key) {
            Some(Unread { why, .. }) => Err(GetError::Undecodable(why.clone())),
            None => Ok(contents.items.get(key).cloned()),
        }
    }

    /// All objects as of one revision. Costs the same however many there are.
    pub fn snapshot(&self) -> Result<Snapshot, Closed> {
        // Read before the state: everything up to `applied` is in the state that is read later.
        let applied = self.progress.applied();
        let state = self.state.read();
        let contents = state.open()?;
        let revision = applied.max(state.last);
        let (items, unreadable) = (contents.items.clone(), contents.unreadable.clone());
        Ok(Snapshot::new(items, unreadable, revision, Arc::clone(&self.spec)))
    }

    /// The changes after a revision of the objects whose key begins with `scope`. Who watches from
    /// a revision of the future waits for it first.
    pub fn watch(self: &Arc<Self>, after: Revision, scope: &str) -> Result<Watcher, WatchError> {
        // Subscribed before the look, so that nothing between the two is slept through.
        let changed = self.changed.subscribe();
        let state = self.state.read();
        state.open()?;
        let cursor = state.ring.after(after)?;
        drop(state);
        Ok(Watcher::new(Arc::clone(self), changed, cursor, after, scope))
    }

    /// How many objects there are per stored version.
    pub fn counts(&self) -> Result<BTreeMap<StorageVersion, u64>, Closed> {
        Ok(self.state.read().open()?.counts.clone())
    }

    /// How many objects are stored in each version, those included that are in a version this server cannot read.
    pub fn stored(&self) -> Result<BTreeMap<StorageVersion, u64>, Closed> {
        let state = self.state.read();
        let contents = state.open()?;
        let mut counts = contents.counts.clone();
        for Unread { why, .. } in contents.unreadable.values() {
            if let Unreadable::UnknownVersion(version) = why {
                *counts.entry(version.clone()).or_default() += 1;
            }
        }
        Ok(counts)
    }

    /// How many values do not even say in which version they are stored.
    pub fn n_unknown(&self) -> Result<u64, Closed> {
        let state = self.state.read();
        let unreadable = state.open()?.unreadable.values();
        Ok(unreadable.filter(|it| !matches!(it.why, Unreadable::UnknownVersion(_))).count() as u64)
    }

    /// How many objects there are that can be served.
    pub fn len(&self) -> Result<usize, Closed> {
        Ok(self.state.read().open()?.items.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> Result<bool, Closed> {
        self.len().map(|it| it == 0)
    }

    /// The keys whose values cannot be served, and why.
    pub fn unreadable(&self) -> Result<Vec<(Key, String)>, Closed> {
        let state = self.state.read();
        Ok(state.open()?.unreadable.iter().map(|(key, it)| (key.clone(), it.why.to_string())).collect())
    }

    /// Whether there are values that cannot be served. Cheap.
    pub fn has_unreadable(&self) -> bool {
        !self.state.read().contents.unreadable.is_empty()
    }

    /// Whether it answers: neither still loaded nor replaced or removed.
    pub fn is_open(&self) -> bool {
        self.state.read().open().is_ok()
    }

    /// An entry of this collection that came straight from the store, or is about to go there.
    pub fn parse(&self, entry: &Entry) -> Result<Item, Unreadable> {
        ingest(&self.spec, &self.interner, entry)
    }

    pub(crate) fn new(spec: CollectionSpec, config: &CacheConfig, progress: Arc<Progress>) -> Self {
        let state = State {
            contents: Contents::default(),
            ring: Ring::new(Revision::ZERO, config.history_events, config.history_bytes),
            loading: None,
            loaded: Revision::ZERO,
            last: Revision::ZERO,
            is_closed: false,
        };
        Self {
            spec: Arc::new(spec),
            interner: Interner::default(),
            progress,
            state: RwLock::new(state),
            changed: watch::Sender::new(()),
        }
    }

    /// The item of an entry; the one there is, if it already shows this revision.
    pub(crate) fn read(&self, entry: &Entry) -> Result<Arc<Item>, Unreadable> {
        let known = self.state.read().contents.items.get(entry.key.as_str()).cloned();
        let known = known.filter(|it| it.revision() == entry.modified);
        known.map_or_else(|| ingest(&self.spec, &self.interner, entry).map(Arc::new), Ok)
    }

    /// The item of another collection with the fields of this one. They share the text.
    pub(crate) fn reread(&self, item: &Item) -> Result<Arc<Item>, Unreadable> {
        reindex(&self.spec, item).map(Arc::new)
    }

    /// Makes an event ready to be applied: what takes time happens here, without the lock.
    pub(crate) fn prepare(&self, event: Event) -> Prepared {
        let revision = event.revision();
        match event {
            Event::Put(entry) => Prepared { value: Some(self.read(&entry)), key: entry.key, revision },
            Event::Delete(key, _) => Prepared { key, revision, value: None },
        }
    }

    /// Applies events in order; those of one revision must not be split over two calls.
    pub(crate) fn apply(&self, events: Vec<Prepared>) {
        let mut state = self.state.write();
        for event in events {
            state.apply(event);
        }
        drop(state);
        self.changed.send_replace(());
    }

    /// From now on the collection is loaded: out of another one, or portion by portion.
    pub(crate) fn begin(&self, source: Option<Snapshot>) {
        self.state.write().loading = Some(Loading { gone: HashMap::new(), source });
    }

    /// What everything is taken from, while it is.
    pub(crate) fn source(&self) -> Option<Snapshot> {
        self.state.read().loading.as_ref()?.source.clone()
    }

    /// To be called before each portion is asked for: it will not show what is known to be gone by now.
    pub(crate) fn expect_portion(&self) {
        if let Some(Loading { gone, source: None }) = &mut self.state.write().loading {
            gone.clear();
        }
    }

    /// Takes in what was loaded, unless the feed has brought something newer. Says whether the load is to go on.
    pub(crate) fn take(&self, loaded: Vec<Prepared>) -> bool {
        let mut state = self.state.write();
        loaded.into_iter().all(|it| state.take(it))
    }

    /// Everything is loaded, and the feed has come as far as what was loaded.
    pub(crate) fn finish(&self) {
        let applied = self.progress.applied();
        let mut state = self.state.write();
        let Some(loading) = state.loading.take() else { return };
        let revision = applied.max(state.last);
        state.loaded = revision;
        state.last = revision;
        state.ring.reset(revision);
        drop(state);
        drop(loading);
    }

    /// Replaces everything by what was listed at `revision`, and ends all watchers.
    pub(crate) fn replace(&self, contents: Contents, revision: Revision) {
        let mut state = self.state.write();
        let old = std::mem::replace(&mut state.contents, contents);
        let loading = state.loading.take();
        state.loaded = revision;
        state.last = state.last.max(revision);
        state.ring.reset(revision);
        drop(state);
        self.changed.send_replace(());
        // Taking apart a large collection takes time and needs no lock.
        drop((old, loading));
    }

    /// Ends all watchers and refuses all readers, for good.
    pub(crate) fn close(&self) {
        self.state.write().is_closed = true;
        self.changed.send_replace(());
    }

    /// How many keys there are, readable or not.
    pub(crate) fn n_keys(&self) -> u64 {
        self.state.read().contents.n_keys()
    }
}

impl Drop for Collection {
    /// Taking apart a large collection takes time, and whoever happens to hold it last must not: it may be under a lock
    /// that everybody needs.
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let old = (std::mem::take(&mut state.contents), state.loading.take());
        if old.0.n_keys() > LARGE
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn_blocking(move || drop(old));
        }
    }
}

impl fmt::Debug for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} keys)", self.spec.prefix, self.n_keys())
    }
}

/// What the lock of a collection guards.
pub(crate) struct State {
    contents: Contents,
    pub(crate) ring: Ring,
    /// There while not everything is in the contents.
    loading: Option<Loading>,
    /// The revision at which the contents were listed; the feed may still be behind it.
    loaded: Revision,
    /// The newest revision that the contents show.
    pub(crate) last: Revision,
    is_closed: bool,
}

/// What a load must know about what the feed did meanwhile.
struct Loading {
    /// Keys that were removed: a portion that was read before must not bring them back. Bounded by what is removed while
    /// one portion is read, or by the source.
    gone: HashMap<Key, Revision>,
    /// The collection that everything is taken from; without one the store is asked.
    source: Option<Snapshot>,
}

impl State {
    /// The contents, for whoever may see them.
    pub(crate) fn open(&self) -> Result<&Contents, Closed> {
        if self.is_closed || self.loading.is_some() { Err(Closed) } else { Ok(&self.contents) }
    }

    fn apply(&mut self, event: Prepared) {
        if self.loading.is_some() {
            self.apply_while_loading(event);
            return;
        }
        let Prepared { key, revision, value } = event;
        if revision <= self.loaded {
            return;
        }
        let (after, why) = match &value {
            Some(Ok(item)) => (Some(Arc::clone(item)), None),
            Some(Err(why)) => (None, Some(why.clone())),
            // What goes without anybody having seen what it was.
            None => (None, self.contents.unreadable.get(&key).map(|it| it.why.clone())),
        };
        let before = match value {
            Some(value) => self.contents.put(key.clone(), revision, value),
            None => self.contents.remove(&key),
        };
        self.last = self.last.max(revision);
        let change = match why {
            Some(why) => Some(Change::undecodable(revision, key, before, why)),
            None => Change::new(revision, before, after),
        };
        if let Some(change) = change {
            self.ring.push(change);
        }
    }

    /// Nobody reads or watches yet, so only the newest state of every key matters.
    fn apply_while_loading(&mut self, Prepared { key, revision, value }: Prepared) {
        let Some(loading) = &mut self.loading else { return };
        self.last = self.last.max(revision);
        if self.contents.revision_of(&key).is_some_and(|it| it >= revision) {
            return;
        }
        match value {
            Some(value) => {
                loading.gone.remove(&key);
                self.contents.put(key, revision, value);
            }
            None => {
                self.contents.remove(&key);
                if loading.source.as_ref().is_none_or(|it| it.holds(key.as_str())) {
                    loading.gone.insert(key, revision);
                }
            }
        }
    }

    fn take(&mut self, Prepared { key, revision, value }: Prepared) -> bool {
        let Some(loading) = self.loading.as_ref().filter(|_| !self.is_closed) else { return false };
        let newest = loading.gone.get(&key).copied().max(self.contents.revision_of(&key));
        if newest.is_none_or(|it| it < revision)
            && let Some(value) = value
        {
            self.contents.put(key, revision, value);
            self.last = self.last.max(revision);
        }
        true
    }
}

/// An event whose value has been read. Without a value it is a removal.
pub(crate) struct Prepared {
    pub(crate) key: Key,
    pub(crate) revision: Revision,
    pub(crate) value: Option<Result<Arc<Item>, Unreadable>>,
}

/// A value that cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Why not.
    pub why: Unreadable,
    /// The revision that last wrote it.
    pub revision: Revision,
}

/// The objects of a collection and what is counted about them.
#[derive(Default)]
pub(crate) struct Contents {
    items: OrdMap<Key, Arc<Item>>,
    counts: BTreeMap<StorageVersion, u64>,
    unreadable: OrdMap<Key, Unread>,
}

impl Contents {
    /// Puts a value in, and returns the readable one that was there.
    pub(crate) fn put(
        &mut self,
        key: Key,
        revision: Revision,
        value: Result<Arc<Item>, Unreadable>,
    ) -> Option<Arc<Item>> {
        match value {
            Ok(item) => {
                self.unreadable.remove(&key);
                *self.counts.entry(item.storage_version().clone()).or_default() += 1;
                let before = self.items.insert(key, item);
                self.discount(before)
            }
            Err(why) => {
                if self.unreadable.is_empty() {
                    tracing::warn!(%key, %why, "a stored value cannot be served");
                }
                let before = self.remove(&key);
                self.unreadable.insert(key, Unread { why, revision });
                before
            }
        }
    }

    /// Removes a value, and returns it if it was readable.
    fn remove(&mut self, key: &Key) -> Option<Arc<Item>> {
        self.unreadable.remove(key);
        let before = self.items.remove(key);
        self.discount(before)
    }

    fn discount(&mut self, item: Option<Arc<Item>>) -> Option<Arc<Item>> {
        if let Some(item) = &item
            && let Some(count) = self.counts.get_mut(item.storage_version())
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(item.storage_version());
            }
        }
        item
    }

    fn revision_of(&self, key: &Key) -> Option<Revision> {
        let readable = self.items.get(key).map(|it| it.revision());
        readable.or_else(|| self.unreadable.get(key).map(|it| it.revision))
    }

    pub(crate) fn unreadable(&self) -> &OrdMap<Key, Unread> {
        &self.unreadable
    }

    pub(crate) fn n_keys(&self) -> u64 {
        (self.items.len() + self.unreadable.len()) as u64
    }
}
