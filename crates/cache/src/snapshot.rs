//! All objects of a collection as of one revision. Whoever holds one does not see later changes.

use std::{fmt, ops::Bound, sync::Arc};

use imbl::OrdMap;
use store::{Key, Range, Revision};

use crate::{CollectionSpec, Item, Undecodable, Unread};

/// So many of the values that cannot be served are named, as upstream.
const MAX_NAMED: usize = 100;

/// A collection at one revision. Cheap to clone and to keep: it shares with the collection what has
/// not changed since.
#[derive(Clone)]
pub struct Snapshot {
    items: OrdMap<Key, Arc<Item>>,
    unreadable: OrdMap<Key, Unread>,
    revision: Revision,
    spec: Arc<CollectionSpec>,
}

impl Snapshot {
    pub(crate) fn new(
        items: OrdMap<Key, Arc<Item>>,
        unreadable: OrdMap<Key, Unread>,
        revision: Revision,
        spec: Arc<CollectionSpec>,
    ) -> Self {
        Self { items, unreadable, revision, spec }
    }

    /// Everything up to this revision is in here, and nothing after it.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Where the objects are and which fields can be selected.
    pub fn spec(&self) -> &CollectionSpec {
        &self.spec
    }

    /// One object, if it can be served.
    pub fn get(&self, key: &str) -> Option<&Arc<Item>> {
        self.items.get(key)
    }

    /// Whether there is a value, readable or not.
    pub(crate) fn holds(&self, key: &str) -> bool {
        self.items.contains_key(key) || self.unreadable.contains_key(key)
    }

    /// The objects whose key begins with `prefix` and lies behind `after`, in order of their keys. An error if a value is
    /// among them that cannot be served: without it they are less than there is.
    pub fn range<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
    ) -> Result<impl Iterator<Item = &'a Arc<Item>> + use<'a>, Undecodable> {
        self.check(prefix, after)?;
        Ok(self.readable(prefix, after))
    }

    /// The same without what cannot be served, for whoever may see less than there is.
    pub fn readable<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Arc<Item>> + use<'a> {
        in_scope(&self.items, prefix, after).map(|(_, item)| item)
    }

    /// The values that cannot be served whose key begins with `prefix`, in order of their keys.
    pub fn unreadable<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a Key, &'a Unread)> + use<'a> {
        in_scope(&self.unreadable, prefix, None)
    }

    /// An error if a value that cannot be served is in scope.
    pub fn check(&self, prefix: &str, after: Option<&str>) -> Result<(), Undecodable> {
        if self.unreadable.is_empty() {
            return Ok(());
        }
        let mut found = in_scope(&self.unreadable, prefix, after).map(|(key, it)| (key.clone(), it.clone()));
        let first: Vec<(Key, Unread)> = found.by_ref().take(MAX_NAMED).collect();
        if first.is_empty() {
            return Ok(());
        }
        Err(Undecodable { n_keys: first.len() + found.count(), first })
    }

    /// The objects whose key lies in a range, in order of their keys.
    pub fn from<'a>(&'a self, range: &'a Range) -> impl Iterator<Item = &'a Arc<Item>> + use<'a> {
        let items = self.items.range::<_, str>((Bound::Included(range.start.as_str()), Bound::Unbounded));
        items.take_while(|(key, _)| key.as_str() < range.end.as_str()).map(|(_, item)| item)
    }

    /// How many objects have a key that begins with `prefix`. At once for the whole collection,
    /// else by counting.
    pub fn len_in(&self, prefix: &str) -> usize {
        if self.spec.prefix.starts_with(prefix) {
            self.items.len()
        } else {
            self.readable(prefix, None).count()
        }
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

/// What is in a map under keys that begin with `prefix` and lie behind `after`.
fn in_scope<'a, V: Clone>(
    map: &'a OrdMap<Key, V>,
    prefix: &'a str,
    after: Option<&'a str>,
) -> impl Iterator<Item = (&'a Key, &'a V)> + use<'a, V> {
    let start = match after {
        Some(after) if after >= prefix => Bound::Excluded(after),
        _ => Bound::Included(prefix),
    };
    map.range::<_, str>((start, Bound::Unbounded))
        .take_while(move |(key, _)| key.as_str().starts_with(prefix))
}
