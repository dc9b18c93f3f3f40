//! Tiles over random keys that are there and random keys that are known.

use std::collections::BTreeSet;

use proptest::prelude::*;
use store::{MemoryStore, SystemClock, Txn};

use super::*;

const PREFIX: &str = "/registry/parcels/";

fn key(n: u8) -> String {
    format!("{PREFIX}{n:03}")
}

fn keys(of: impl IntoIterator<Item = u8>) -> BTreeSet<String> {
    of.into_iter().map(key).collect()
}

fn run<T>(it: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(it)
}

async fn stored(keys: &BTreeSet<String>) -> MemoryStore {
    let store = MemoryStore::new(SystemClock::shared());
    // Neighbours that no tile may reach into.
    for key in keys.iter().map(String::as_str).chain(["/registry/parcel/z", "/registry/parcelt/a"]) {
        store.commit(Txn::new().put(&Key::new(key), "{}".into())).await.unwrap();
    }
    store
}

/// What the cache would say that knows these keys.
fn nth(known: &BTreeSet<String>, limit: usize) -> impl Fn(&Range) -> Option<Key> {
    move |range| known.iter().filter(|it| range.contains(it)).nth(limit - 1).map(|it| Key::new(it.as_str()))
}

/// Reads tile by tile: which keys each had, and what it said of the rest.
async fn tiles(
    there: &BTreeSet<String>,
    known: &BTreeSet<String>,
    limit: usize,
) -> Vec<(Vec<String>, Option<u64>)> {
    let (store, mut range, mut tiles) = (stored(there).await, Range::prefix(PREFIX), Vec::new());
    loop {
        let tile = read(&store, range, ReadAt::Latest, limit, nth(known, limit)).await.unwrap();
        tiles.push((tile.entries.iter().map(|it| it.key.as_str().to_owned()).collect(), tile.n_left));
        if tile.n_left == Some(0) {
            return tiles;
        }
        range = tile.rest;
    }
}

#[test]
fn a_tile_ends_at_a_key_that_is_known_and_the_last_one_counts() {
    let all = keys(0..5);
    let found = run(tiles(&all, &all, 2));
    let sizes: Vec<(usize, Option<u64>)> = found.iter().map(|(read, left)| (read.len(), *left)).collect();
    assert_eq!(sizes, [(2, None), (2, None), (1, Some(0))]);
}

#[test]
fn what_lies_behind_the_last_known_key_is_read() {
    let (there, known) = (keys(0..5), keys(0..4));
    assert_eq!(run(tiles(&there, &known, 2)).last(), Some(&(vec![key(4)], Some(0))));
    assert_eq!(run(tiles(&known, &known, 2)).last(), Some(&(vec![], Some(0))), "nothing is there");
}

#[test]
fn tiles_of_which_nothing_is_left_are_passed_over() {
    assert_eq!(run(tiles(&keys([9]), &keys(0..10), 2))[0].0, [key(9)]);
}

proptest! {
    /// Whatever the cache knows: every key is read once, in order, none of others, and no tile is empty but the last.
    #[test]
    fn no_key_is_missed(
        there in prop::collection::btree_set(0_u8..40, 0..40),
        known in prop::collection::btree_set(0_u8..40, 0..40),
        limit in 1_usize..6,
    ) {
        let (there, known) = (keys(there), keys(known));
        let found = run(tiles(&there, &known, limit));
        let n_tiles = found.len();
        for (n, (read, left)) in found.iter().enumerate() {
            prop_assert!(read.len() <= limit);
            prop_assert!(!read.is_empty() || n + 1 == n_tiles, "{found:?}");
            if let Some(left) = left {
                let n_behind: usize = found[n + 1..].iter().map(|it| it.0.len()).sum();
                prop_assert_eq!(*left, n_behind as u64);
            }
        }
        let read: Vec<String> = found.into_iter().flat_map(|it| it.0).collect();
        prop_assert_eq!(read, there.into_iter().collect::<Vec<_>>());
    }
}
