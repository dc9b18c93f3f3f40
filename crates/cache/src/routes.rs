//! Which collection a key belongs to, and how many keys belong to none.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use parking_lot::{Mutex, RwLock};
use store::Event;

use crate::{Collection, CollectionSpec};

/// More places than this are counted together.
const MAX_PLACES: usize = 1000;

/// The place of everything that is counted together.
const ELSEWHERE: &str = "(elsewhere)";

pub(crate) struct Routes {
    root: String,
    collections: RwLock<BTreeMap<String, Arc<Collection>>>,
    pub(crate) unclaimed: Mutex<Unclaimed>,
}

impl Routes {
    pub(crate) fn new(root: String) -> Self {
        Self { root, collections: RwLock::default(), unclaimed: Mutex::default() }
    }

    /// What is wrong with a collection's prefix, if anything is.
    pub(crate) fn check(&self, spec: &CollectionSpec) -> Result<(), String> {
        let prefix = &spec.prefix;
        if !prefix.ends_with('/') {
            return Err("it does not end in a slash".into());
        }
        if !prefix.starts_with(&self.root) || *prefix == self.root {
            return Err(format!("it is not below {}", self.root));
        }
        let overlaps = |it: &&String| it.starts_with(prefix) || prefix.starts_with(it.as_str());
        match self.collections.read().keys().find(overlaps) {
            Some(other) => Err(format!("it overlaps {other}")),
            None => Ok(()),
        }
    }

    pub(crate) fn insert(&self, collection: Arc<Collection>) {
        self.collections.write().insert(collection.spec().prefix.clone(), collection);
    }

    pub(crate) fn get(&self, prefix: &str) -> Option<Arc<Collection>> {
        self.collections.read().get(prefix).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Collection>> {
        self.collections.read().values().cloned().collect()
    }

    /// The collection of a key. Prefixes do not overlap, so only the last one not behind the key can be it.
    pub(crate) fn find(&self, key: &str) -> Option<Arc<Collection>> {
        let collections = self.collections.read();
        let mut candidates = collections.range::<str, _>((Bound::Unbounded, Bound::Included(key)));
        let (prefix, collection) = candidates.next_back()?;
        key.starts_with(prefix.as_str()).then(|| Arc::clone(collection))
    }

    /// Takes a collection out; its keys belong to none from now on.
    pub(crate) fn remove(&self, prefix: &str) -> Option<Arc<Collection>> {
        let collection = self.collections.write().remove(prefix)?;
        self.unclaimed.lock().add(prefix, collection.n_keys());
        Some(collection)
    }
}

/// How many keys there are that belong to no collection, by the first two segments of their paths.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unclaimed(BTreeMap<String, u64>);

impl Unclaimed {
    pub(crate) fn count(&mut self, event: &Event) {
        match event {
            Event::Put(entry) if entry.created == entry.modified => self.add(entry.key.as_str(), 1),
            Event::Put(_) => {}
            Event::Delete(key, _) => self.subtract(key.as_str(), 1),
        }
    }

    pub(crate) fn add(&mut self, key: &str, n_keys: u64) {
        if n_keys == 0 {
            return;
        }
        let place = place(key);
        let is_full = self.0.len() >= MAX_PLACES && !self.0.contains_key(place);
        let place = if is_full { ELSEWHERE } else { place };
        *self.0.entry(place.to_owned()).or_default() += n_keys;
    }

    pub(crate) fn subtract(&mut self, key: &str, n_keys: u64) {
        let place = place(key);
        let place = if self.0.contains_key(place) { place } else { ELSEWHERE };
        if let Some(count) = self.0.get_mut(place) {
            *count = count.saturating_sub(n_keys);
            if *count == 0 {
                self.0.remove(place);
            }
        }
    }

    pub(crate) fn places(&self) -> BTreeMap<String, u64> {
        self.0.clone()
    }
}

/// `/registry/widgets/` of `/registry/widgets/default/a`.
fn place(key: &str) -> &str {
    let third_slash = key.match_indices('/').nth(2);
    third_slash.map_or(key, |(at, _)| &key[..=at])
}

#[cfg(test)]
mod tests {
    use store::{Key, Revision, SystemClock};

    use super::*;
    use crate::{CacheConfig, progress::Progress};

    fn routes(prefixes: &[&str]) -> Routes {
        let routes = Routes::new("/registry/".into());
        let progress = Arc::new(Progress::new(SystemClock::shared()));
        for prefix in prefixes {
            let spec = CollectionSpec::new(*prefix, true);
            routes.check(&spec).unwrap();
            let collection = Collection::new(spec, &CacheConfig::default(), Arc::clone(&progress));
            routes.insert(Arc::new(collection));
        }
        routes
    }

    #[test]
    fn a_key_belongs_to_the_collection_whose_prefix_it_has() {
        let routes =
            routes(&["/registry/services/specs/", "/registry/services/endpoints/", "/registry/pods/"]);
        let found = |key| routes.find(key).map(|it| it.spec().prefix.clone());
        assert_eq!(found("/registry/services/specs/a/b").as_deref(), Some("/registry/services/specs/"));
        assert_eq!(found("/registry/services/endpoints/a").as_deref(), Some("/registry/services/endpoints/"));
        assert_eq!(found("/registry/services/x"), None);
        assert_eq!(found("/registry/podsx"), None);
        assert_eq!(found("/registry/pods"), None);
        assert_eq!(found("/a"), None);
        assert_eq!(found("/z"), None);
    }

    #[test]
    fn prefixes_are_below_the_root_and_do_not_overlap() {
        let routes = routes(&["/registry/services/specs/"]);
        let refused = [
            "/registry/",
            "/registry/a",
            "/other/a/",
            "/registry/services/",
            "/registry/services/specs/",
            "/registry/services/specs/x/",
        ];
        for prefix in refused {
            assert!(routes.check(&CollectionSpec::new(prefix, true)).is_err(), "{prefix}");
        }
        assert!(routes.check(&CollectionSpec::new("/registry/services/specs2/", true)).is_ok());
    }

    #[test]
    fn unclaimed_keys_are_counted_by_place_and_places_are_bounded() {
        let mut unclaimed = Unclaimed::default();
        for number in 0..MAX_PLACES + 10 {
            unclaimed.add(&format!("/registry/{number}/a"), 1);
        }
        assert_eq!(unclaimed.0.len(), MAX_PLACES + 1);
        assert_eq!(unclaimed.0[ELSEWHERE], 10);
        unclaimed.count(&Event::Delete(Key::new("/registry/0/a"), Revision::new(9)));
        unclaimed.count(&Event::Delete(Key::new("/registry/unheard/of"), Revision::new(9)));
        assert!(!unclaimed.0.contains_key("/registry/0/"));
        assert_eq!(unclaimed.0[ELSEWHERE], 9);
    }
}
