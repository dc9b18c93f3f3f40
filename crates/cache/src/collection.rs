//! All objects of one kind, as readers use them. The feed is the only writer.
//!
//! Everything is behind one lock that is held for an O(1) copy by readers and for the inserts of one
//! batch by the feed; values are parsed before it is taken. All changes of one revision are applied
//! under one hold of the lock, so no snapshot shows half of a transaction.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt, sync::Arc};

use imbl::OrdMap;
use meta::StorageVersion;
use parking_lot::RwLock;
use store::{Entry, Event, Key, Revision};
use tokio::sync::watch;

use crate::{
    Change, Expired, Item, Snapshot, Unreadable, Watcher,
    config::{CacheConfig, CollectionSpec},
    ingest::{Interner, ingest},
    progress::Progress,
    ring::Ring,
};

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

    /// One object.
    pub fn get(&self, key: &str) -> Option<Arc<Item>> {
        self.state.read().contents.items.get(key).cloned()
    }

    /// All objects as of one revision. Costs the same however many there are.
    pub fn snapshot(&self) -> Snapshot {
        // Read before the state: everything up to `applied` is in the state that is read later.
        let applied = self.progress.applied();
        let state = self.state.read();
        let revision = applied.max(state.last);
        Snapshot::new(state.contents.items.clone(), revision, Arc::clone(&self.spec))
    }

    /// The changes after a revision of the objects whose key begins with `scope`. Who watches from
    /// a revision of the future waits for it first.
    pub fn watch(self: &Arc<Self>, after: Revision, scope: &str) -> Result<Watcher, Expired> {
        // Subscribed before the look, so that nothing between the two is slept through.
        let changed = self.changed.subscribe();
        let state = self.state.read();
        if state.is_closed {
            return Err(state.ring.expired());
        }
        let cursor = state.ring.after(after)?;
        drop(state);
        Ok(Watcher::new(Arc::clone(self), changed, cursor, after, scope))
    }

    /// How many objects there are per stored version.
    pub fn counts(&self) -> BTreeMap<StorageVersion, u64> {
        self.state.read().contents.counts.clone()
    }

    /// How many objects are stored in each version, those included that are in a version this server cannot read.
    pub fn stored(&self) -> BTreeMap<StorageVersion, u64> {
        let state = self.state.read();
        let mut counts = state.contents.counts.clone();
        for why in state.contents.unreadable.values() {
            if let Unreadable::UnknownVersion(version) = why {
                *counts.entry(version.clone()).or_default() += 1;
            }
        }
        counts
    }

    /// How many values do not even say in which version they are stored.
    pub fn n_unknown(&self) -> u64 {
        let state = self.state.read();
        let unreadable = state.contents.unreadable.values();
        unreadable.filter(|it| !matches!(it, Unreadable::UnknownVersion(_))).count() as u64
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.state.read().contents.items.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The keys whose values cannot be served, and why. They are hidden from everything else.
    pub fn unreadable(&self) -> Vec<(Key, String)> {
        let state = self.state.read();
        state.contents.unreadable.iter().map(|(key, why)| (key.clone(), why.to_string())).collect()
    }

    /// Why the value of this key is not shown, if it is there and cannot be read.
    pub fn unreadable_at(&self, key: &str) -> Option<String> {
        self.state.read().contents.unreadable.get(key).map(ToString::to_string)
    }

    /// An entry of this collection that came straight from the store, or is about to go there.
    pub fn parse(&self, entry: &Entry) -> Result<Item, Unreadable> {
        ingest(&self.spec, &self.interner, entry)
    }

    pub(crate) fn new(spec: CollectionSpec, config: &CacheConfig, progress: Arc<Progress>) -> Self {
        let state = State {
            contents: Contents::default(),
            ring: Ring::new(Revision::ZERO, config.history_events, config.history_bytes),
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
        let known = self.get(entry.key.as_str()).filter(|it| it.revision() == entry.modified);
        known.map_or_else(|| ingest(&self.spec, &self.interner, entry).map(Arc::new), Ok)
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

    /// Replaces everything by what was listed at `revision`, and ends all watchers.
    pub(crate) fn replace(&self, contents: Contents, revision: Revision) {
        let mut state = self.state.write();
        let old = std::mem::replace(&mut state.contents, contents);
        state.loaded = revision;
        state.last = state.last.max(revision);
        state.ring.reset(revision);
        drop(state);
        self.changed.send_replace(());
        // Taking apart a large collection takes time and needs no lock.
        drop(old);
    }

    /// Ends all watchers, for good.
    pub(crate) fn close(&self) {
        self.state.write().is_closed = true;
        self.changed.send_replace(());
    }

    /// How many keys there are, readable or not.
    pub(crate) fn n_keys(&self) -> u64 {
        self.state.read().contents.n_keys()
    }
}

impl fmt::Debug for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} objects)", self.spec.prefix, self.len())
    }
}

/// What the lock of a collection guards.
pub(crate) struct State {
    pub(crate) contents: Contents,
    pub(crate) ring: Ring,
    /// The revision at which the contents were listed; the feed may still be behind it.
    loaded: Revision,
    /// The newest revision that the contents show.
    pub(crate) last: Revision,
    pub(crate) is_closed: bool,
}

impl State {
    fn apply(&mut self, Prepared { key, revision, value }: Prepared) {
        if revision <= self.loaded {
            return;
        }
        let after = value.as_ref().and_then(|it| it.as_ref().ok()).cloned();
        let before = match value {
            Some(value) => self.contents.put(key, value),
            None => self.contents.remove(&key),
        };
        self.last = self.last.max(revision);
        if let Some(change) = Change::new(revision, before, after) {
            self.ring.push(change);
        }
    }
}

/// An event whose value has been read. Without a value it is a removal.
pub(crate) struct Prepared {
    key: Key,
    revision: Revision,
    value: Option<Result<Arc<Item>, Unreadable>>,
}

/// The objects of a collection and what is counted about them.
#[derive(Default)]
pub(crate) struct Contents {
    pub(crate) items: OrdMap<Key, Arc<Item>>,
    counts: BTreeMap<StorageVersion, u64>,
    unreadable: BTreeMap<Key, Unreadable>,
}

impl Contents {
    /// Puts a value in, and returns the readable one that was there.
    pub(crate) fn put(&mut self, key: Key, value: Result<Arc<Item>, Unreadable>) -> Option<Arc<Item>> {
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
                self.unreadable.insert(key, why);
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

    pub(crate) fn unreadable(&self) -> impl Iterator<Item = (&Key, Unreadable)> {
        self.unreadable.iter().map(|(key, why)| (key, why.clone()))
    }

    pub(crate) fn n_keys(&self) -> u64 {
        (self.items.len() + self.unreadable.len()) as u64
    }
}
