//! All objects of a collection as of one revision. Whoever holds one does not see later changes.

use std::{fmt, ops::Bound, sync::Arc};

use imbl::OrdMap;
use store::{Key, Range, Revision};

use crate::{CollectionSpec, Item};

/// A collection at one revision. Cheap to clone and to keep: it shares with the collection what has
/// not changed since.
#[derive(Clone)]
pub struct Snapshot {
    items: OrdMap<Key, Arc<Item>>,
    revision: Revision,
    spec: Arc<CollectionSpec>,
}

impl Snapshot {
    pub(crate) fn new(items: OrdMap<Key, Arc<Item>>, revision: Revision, spec: Arc<CollectionSpec>) -> Self {
        Self { items, revision, spec }
    }

    /// Everything up to this revision is in here, and nothing after it.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// One object.
    pub fn get(&self, key: &str) -> Option<&Arc<Item>> {
        self.items.get(key)
    }

    /// The objects whose key begins with `prefix` and lies behind `after`, in order of their keys.
    pub fn range<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Arc<Item>> + use<'a> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let items = self.items.range::<_, str>((start, Bound::Unbounded));
        items.take_while(move |(key, _)| key.as_str().starts_with(prefix)).map(|(_, item)| item)
    }

    /// The objects whose key lies in a range, in order of their keys.
    pub fn from<'a>(&'a self, range: &'a Range) -> impl Iterator<Item = &'a Arc<Item>> + use<'a> {
        let items = self.items.range::<_, str>((Bound::Included(range.start.as_str()), Bound::Unbounded));
        items.take_while(|(key, _)| key.as_str() < range.end.as_str()).map(|(_, item)| item)
    }

    /// How many objects have a key that begins with `prefix`. At once for the whole collection,
    /// else by counting.
    pub fn len_in(&self, prefix: &str) -> usize {
        if self.spec.prefix.starts_with(prefix) { self.items.len() } else { self.range(prefix, None).count() }
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} objects at revision {})", self.spec.prefix, self.len(), self.revision)
    }
}
