//! Reads a whole range of the store, page by page, all as of one revision.

use std::{collections::BTreeMap, sync::Arc};

use store::{Entry, Place, Portion, Range, ReadAt, ReadError, Revision, SharedStore, Store};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    Collection,
    collection::Contents,
    routes::{Routes, Unclaimed},
};

/// How often a list begins anew because its revision was compacted while it was read.
const MAX_ATTEMPTS: usize = 5;

/// Everything under the root at one revision.
pub(crate) struct Loaded {
    pub(crate) revision: Revision,
    pub(crate) collections: Vec<(Arc<Collection>, Contents)>,
    pub(crate) unclaimed: Unclaimed,
}

/// Lists everything under the root and sorts it into the collections there are.
pub(crate) async fn load(
    store: &SharedStore,
    root: &str,
    page: usize,
    routes: &Routes,
) -> Result<Loaded, ReadError> {
    let mut attempt = 1;
    loop {
        let mut loading: BTreeMap<String, (Arc<Collection>, Contents)> = routes
            .all()
            .into_iter()
            .map(|it| (it.spec().prefix.clone(), (it, Contents::default())))
            .collect();
        let mut unclaimed = Unclaimed::default();
        let visit = |entry: Entry| {
            let found = routes.find(entry.key.as_str());
            match found.and_then(|it| loading.get_mut(&it.spec().prefix)) {
                Some((collection, contents)) => {
                    let value = collection.read(&entry);
                    contents.put(entry.key, value);
                }
                None => unclaimed.add(entry.key.as_str(), 1),
            }
        };
        match scan_all(store, &Range::prefix(root), page, visit).await {
            Ok(revision) => {
                return Ok(Loaded { revision, collections: loading.into_values().collect(), unclaimed });
            }
            Err(ReadError::Compacted { .. }) if attempt < MAX_ATTEMPTS => attempt += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Lists what belongs to one collection: at `at`, or, if that is compacted, at the newest revision.
pub(crate) async fn load_one(
    store: &SharedStore,
    collection: &Collection,
    mut at: ReadAt,
    page: usize,
) -> Result<(Contents, Revision), ReadError> {
    let range = Range::prefix(&collection.spec().prefix);
    let mut attempt = 1;
    loop {
        let mut contents = Contents::default();
        let visit = |entry: Entry| {
            let value = collection.read(&entry);
            contents.put(entry.key, value);
        };
        match read_all(store, &range, at, page, visit).await {
            Ok(revision) => return Ok((contents, revision)),
            Err(ReadError::Compacted { .. }) if attempt < MAX_ATTEMPTS => {
                at = ReadAt::Latest;
                attempt += 1;
            }
            Err(error) => return Err(error),
        }
    }
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

/// Calls `visit` with every entry of the range in key order as of one revision, which is returned.
async fn read_all(
    store: &SharedStore,
    range: &Range,
    mut at: ReadAt,
    page: usize,
    mut visit: impl FnMut(Entry),
) -> Result<Revision, ReadError> {
    let mut rest = range.clone();
    loop {
        let page = store.list(&rest, at, page.max(1)).await?;
        let last = page.entries.last().map(|it| it.key.clone());
        page.entries.into_iter().for_each(&mut visit);
        match last {
            Some(last) if page.remaining > 0 => rest = range.after(&last),
            _ => return Ok(page.revision),
        }
        at = ReadAt::Revision(page.revision);
        // Reading values takes time; other tasks get their turn.
        tokio::task::yield_now().await;
    }
}
