//! Which collection a key belongs to, and how many keys belong to none.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use parking_lot::{Mutex, RwLock};
use store::Event;

use crate::{Collection, CollectionSpec};

/// More places than this are counted together.
const MAX_PLACES: usize = 1000;

/// The place of everything that is counted together.
const ELSEWHERE: &str = "(elsewhere)";

/// All collections that the feed writes into. Whoever changes which these are waits until the feed has written a chunk,
/// so that a collection gets either all of it or nothing.
pub(crate) struct Routes {
    root: String,
    seats: RwLock<BTreeMap<String, Seat>>,
    pub(crate) unclaimed: Mutex<Unclaimed>,
}

/// What is fed with the keys of one prefix.
#[derive(Default)]
pub(crate) struct Seat {
    /// The one that answers.
    pub(crate) current: Option<Arc<Collection>>,
    /// Those that are loaded to take its place.
    pub(crate) loading: Vec<Arc<Collection>>,
}

/// A collection that is fed, and whether it is the one that answers.
pub(crate) type Fed = (Arc<Collection>, bool);

impl Routes {
    pub(crate) fn new(root: String) -> Self {
        Self { root, seats: RwLock::default(), unclaimed: Mutex::default() }
    }

    /// What is wrong with a collection's prefix, if anything is. Another collection of the same prefix is nothing wrong.
    pub(crate) fn check(&self, spec: &CollectionSpec) -> Result<(), String> {
        let prefix = &spec.prefix;
        if !prefix.ends_with('/') {
            return Err("it does not end in a slash".into());
        }
        if !prefix.starts_with(&self.root) || *prefix == self.root {
            return Err(format!("it is not below {}", self.root));
        }
        let overlaps = |it: &&String| {
            *it != prefix && (it.starts_with(prefix.as_str()) || prefix.starts_with(it.as_str()))
        };
        match self.seats.read().keys().find(overlaps) {
            Some(other) => Err(format!("it overlaps {other}")),
            None => Ok(()),
        }
    }

    /// Takes in a collection that is filled before anybody reads, if its prefix is free.
    pub(crate) fn insert(&self, collection: Arc<Collection>) -> Result<(), String> {
        let mut seats = self.seats.write();
        let seat = seats.entry(collection.spec().prefix.clone()).or_default();
        if seat.current.is_some() {
            return Err("it is taken".to_owned());
        }
        seat.current = Some(collection);
        Ok(())
    }

    /// Feeds a collection that is loaded from now on. From the one that answers it can be loaded at once, and that one is
    /// as far as the feed is: the answer is a snapshot of it.
    pub(crate) fn begin(&self, collection: &Arc<Collection>) {
        let mut seats = self.seats.write();
        let seat = seats.entry(collection.spec().prefix.clone()).or_default();
        let is_alike = |it: &&Arc<Collection>| {
            let (a, b) = (it.spec(), collection.spec());
            (a.namespaced, &a.versions) == (b.namespaced, &b.versions)
        };
        let source = seat.current.as_ref().filter(is_alike).and_then(|it| it.snapshot().ok());
        collection.begin(source);
        seat.loading.push(Arc::clone(collection));
    }

    /// Lets a loaded collection take the place of the one that answers, which is closed. Nothing happens if it is not
    /// wanted any more.
    pub(crate) fn promote(&self, collection: &Arc<Collection>, is_wanted: impl FnOnce() -> bool) -> bool {
        let prefix = &collection.spec().prefix;
        let mut seats = self.seats.write();
        let Some(seat) = seats.get_mut(prefix) else { return false };
        let Some(at) = seat.loading.iter().position(|it| Arc::ptr_eq(it, collection)) else { return false };
        if !is_wanted() {
            return false;
        }
        let loaded = seat.loading.swap_remove(at);
        loaded.finish();
        match seat.current.replace(loaded) {
            Some(old) => old.close(),
            None => self.unclaimed.lock().subtract(prefix, collection.n_keys()),
        }
        true
    }

    /// Closes a collection that was loaded and is not wanted any more.
    pub(crate) fn abandon(&self, collection: &Arc<Collection>) {
        let prefix = &collection.spec().prefix;
        let mut seats = self.seats.write();
        let Some(seat) = seats.get_mut(prefix) else { return };
        let Some(at) = seat.loading.iter().position(|it| Arc::ptr_eq(it, collection)) else { return };
        let unwanted = seat.loading.swap_remove(at);
        unwanted.close();
        if seat.current.is_none() && seat.loading.is_empty() {
            seats.remove(prefix);
        }
        drop(seats);
        drop(unwanted);
    }

    pub(crate) fn get(&self, prefix: &str) -> Option<Arc<Collection>> {
        self.seats.read().get(prefix)?.current.clone()
    }

    /// Those that answer.
    pub(crate) fn all(&self) -> Vec<Arc<Collection>> {
        self.seats.read().values().filter_map(|it| it.current.clone()).collect()
    }

    /// All that are fed.
    pub(crate) fn fed(&self) -> Vec<Fed> {
        fed(&self.seats.read())
    }

    /// Calls `work` with a way to find the seat of a key. Nothing comes or goes meanwhile.
    pub(crate) fn with_seats<T>(&self, work: impl FnOnce(&dyn Fn(&str) -> Option<SeatRef>) -> T) -> T {
        let seats = self.seats.read();
        work(&|key| find(&seats, key))
    }

    /// Calls `work` if exactly these are fed, and nothing comes or goes meanwhile.
    pub(crate) fn if_unchanged(&self, known: &[Fed], work: impl FnOnce()) -> bool {
        let seats = self.seats.write();
        let now = fed(&seats);
        let is_same = |(a, b): (&Fed, &Fed)| Arc::ptr_eq(&a.0, &b.0) && a.1 == b.1;
        let is_unchanged = now.len() == known.len() && now.iter().zip(known).all(is_same);
        if is_unchanged {
            work();
        }
        is_unchanged
    }

    /// Closes the collection that answers, and those that are loaded; their keys belong to none from now on.
    pub(crate) fn remove(&self, prefix: &str) {
        let mut seats = self.seats.write();
        let Some(Seat { current, loading }) = seats.remove(prefix) else { return };
        // Closed while the feed waits: none of them is ever asked that has missed something.
        current.iter().chain(&loading).for_each(|it| it.close());
        if let Some(current) = &current {
            self.unclaimed.lock().add(prefix, current.n_keys());
        }
        drop(seats);
        drop((current, loading));
    }
}

/// The collections of a key, as the feed needs them.
pub(crate) struct SeatRef {
    pub(crate) fed: Vec<Arc<Collection>>,
    /// Whether one of them answers.
    pub(crate) is_claimed: bool,
}

fn fed(seats: &BTreeMap<String, Seat>) -> Vec<Fed> {
    let of_seat = |it: &Seat| -> Vec<Fed> {
        let current = it.current.iter().map(|it| (Arc::clone(it), true));
        current.chain(it.loading.iter().map(|it| (Arc::clone(it), false))).collect()
    };
    seats.values().flat_map(of_seat).collect()
}

/// The seat of a key. Prefixes do not overlap, so only the last one not behind the key can be it.
fn find(seats: &BTreeMap<String, Seat>, key: &str) -> Option<SeatRef> {
    let (prefix, seat) = seats.range::<str, _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
    key.starts_with(prefix.as_str()).then(|| SeatRef {
        fed: seat.current.iter().chain(&seat.loading).cloned().collect(),
        is_claimed: seat.current.is_some(),
    })
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
            routes.insert(Arc::new(collection)).unwrap();
        }
        routes
    }

    #[test]
    fn a_key_belongs_to_the_collection_whose_prefix_it_has() {
        let routes =
            routes(&["/registry/services/specs/", "/registry/services/endpoints/", "/registry/pods/"]);
        let found = |key| {
            routes
                .with_seats(|find| find(key))
                .and_then(|it| it.fed.first().map(|it| it.spec().prefix.clone()))
        };
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
        let refused =
            ["/registry/", "/registry/a", "/other/a/", "/registry/services/", "/registry/services/specs/x/"];
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
