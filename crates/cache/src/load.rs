//! Reads everything under the root, all as of one revision: when the cache starts, and after history was lost.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use store::{Entry, Place, Portion, Range, ReadAt, ReadError, Revision, SharedStore, Store};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    Collection,
    collection::Contents,
    routes::{Fed, Routes, Unclaimed},
};

/// How often a list begins anew because its revision was compacted while it was read.
const MAX_ATTEMPTS: usize = 5;

/// Everything under the root at one revision.
pub(crate) struct Loaded {
    pub(crate) revision: Revision,
    pub(crate) collections: Vec<(Arc<Collection>, Contents)>,
    /// All that were fed when the list began.
    pub(crate) fed: Vec<Fed>,
    pub(crate) unclaimed: Unclaimed,
}

/// Lists everything under the root and sorts it into the collections that are fed.
pub(crate) async fn load(
    store: &SharedStore,
    root: &str,
    page: usize,
    routes: &Routes,
) -> Result<Loaded, ReadError> {
    let mut attempt = 1;
    loop {
        let fed = routes.fed();
        let mut loading: BTreeMap<String, Seat> = BTreeMap::new();
        for (collection, is_current) in &fed {
            let seat = loading.entry(collection.spec().prefix.clone()).or_default();
            seat.is_claimed |= is_current;
            seat.collections.push((Arc::clone(collection), Contents::default()));
        }
        let mut unclaimed = Unclaimed::default();
        let visit = |entry: Entry| {
            let behind = loading
                .range_mut::<str, _>((Bound::Unbounded, Bound::Included(entry.key.as_str())))
                .next_back();
            let seat = behind.filter(|(prefix, _)| entry.key.as_str().starts_with(prefix.as_str()));
            let Some((_, seat)) = seat else {
                unclaimed.add(entry.key.as_str(), 1);
                return;
            };
            if !seat.is_claimed {
                unclaimed.add(entry.key.as_str(), 1);
            }
            for (collection, contents) in &mut seat.collections {
                contents.put(entry.key.clone(), entry.modified, collection.read(&entry));
            }
        };
        match scan_all(store, &Range::prefix(root), page, visit).await {
            Ok(revision) => {
                let collections = loading.into_values().flat_map(|it| it.collections).collect();
                return Ok(Loaded { revision, collections, fed, unclaimed });
            }
            Err(ReadError::Compacted { .. }) if attempt < MAX_ATTEMPTS => attempt += 1,
            Err(error) => return Err(error),
        }
    }
}

/// What the entries of one prefix are put into.
#[derive(Default)]
struct Seat {
    collections: Vec<(Arc<Collection>, Contents)>,
    is_claimed: bool,
}

/// Calls `visit` with every entry of the range as of the newest revision, which is returned. In no particular order;
/// the store reads the next portion while the last one is visited.
async fn scan_all(
    store: &SharedStore,
    range: &Range,
    portion: usize,
    mut visit: impl FnMut(Entry),
) -> Result<Revision, ReadError> {
    let limit = portion.max(1);
    let read = |at: ReadAt, from: Option<Place>| {
        let (store, range) = (store.clone(), range.clone());
        AbortOnDropHandle::new(tokio::spawn(async move { store.scan(&range, at, from, limit).await }))
    };
    let mut reading = read(ReadAt::Latest, None);
    loop {
        let read_so_far = reading.await.map_err(|it| ReadError::Unavailable(it.to_string()))?;
        let Portion { entries, revision, next } = read_so_far?;
        let Some(next) = next else {
            entries.into_iter().for_each(&mut visit);
            return Ok(revision);
        };
        reading = read(ReadAt::Revision(revision), Some(next));
        entries.into_iter().for_each(&mut visit);
        // Reading values takes time; other tasks get their turn.
        tokio::task::yield_now().await;
    }
}
