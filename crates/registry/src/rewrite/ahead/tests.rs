use std::collections::BTreeSet;

use meta::selector::LabelSelector;
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
    // Neighbours that no page may reach into.
    for key in keys.iter().map(String::as_str).chain(["/registry/parcel/z", "/registry/parcelt/a"]) {
        store.commit(Txn::new().put(&Key::new(key), "{}".into())).await.unwrap();
    }
    store
}

/// What the cache would say that knows these keys.
fn nth(known: &BTreeSet<String>, limit: usize) -> impl Fn(Option<&Key>) -> Option<Key> {
    move |after| {
        let after = after.map_or("", Key::as_str);
        known.iter().filter(|it| it.as_str() > after).nth(limit - 1).map(Key::new)
    }
}

/// Reads page by page, as steps do: which keys each page had, and what it said of the rest.
async fn pages(store: &MemoryStore, known: &BTreeSet<String>, limit: usize) -> Vec<(Vec<String>, u64)> {
    let (mut after, mut left, mut pages) = (String::new(), known.len() as u64, Vec::new());
    loop {
        let page = read_page(store, PREFIX, &after, limit, left, nth(known, limit)).await.unwrap();
        let read: Vec<String> = page.entries.iter().map(|it| it.key.as_str().to_owned()).collect();
        left = page.remaining;
        after = read.last().cloned().unwrap_or_default();
        pages.push((read, left));
        if left == 0 {
            return pages;
        }
    }
}

#[test]
fn a_page_ends_at_a_key_that_is_known() {
    let all = keys(0..5);
    let found = run(async { pages(&stored(&all).await, &all, 2).await });
    let sizes: Vec<(usize, u64)> = found.iter().map(|(read, left)| (read.len(), *left)).collect();
    assert_eq!(sizes, [(2, 3), (2, 1), (1, 0)]);
}

#[test]
fn a_page_that_ends_with_the_last_known_key_is_followed_by_a_look_behind_it() {
    let (there, known) = (keys(0..5), keys(0..4));
    let found = run(async { pages(&stored(&there).await, &known, 2).await });
    assert_eq!(found.last(), Some(&(vec![key(4)], 0)));
    let found = run(async { pages(&stored(&known).await, &known, 2).await });
    assert_eq!(found.last(), Some(&(vec![], 0)), "nothing is there");
}

#[test]
fn pages_of_which_nothing_is_left_are_passed_over() {
    let (there, known) = (keys([9]), keys(0..10));
    let found = run(async { pages(&stored(&there).await, &known, 2).await });
    assert_eq!(found[0].0, [key(9)]);
}

#[test]
fn more_keys_than_are_known_take_more_pages() {
    let (there, known) = (keys(0..10), keys([0, 9]));
    let found = run(async { pages(&stored(&there).await, &known, 2).await });
    let read: Vec<String> = found.into_iter().flat_map(|it| it.0).collect();
    assert_eq!(read, there.into_iter().collect::<Vec<_>>());
}

proptest! {
    /// Whatever the cache knows: every key is read once, in order, none of others, and no page is empty but the last.
    #[test]
    fn no_key_is_missed(
        there in prop::collection::btree_set(0_u8..40, 0..40),
        known in prop::collection::btree_set(0_u8..40, 0..40),
        limit in 1_usize..6,
    ) {
        let (there, known) = (keys(there), keys(known));
        let found = run(async { pages(&stored(&there).await, &known, limit).await });
        let n_pages = found.len();
        for (n, (read, left)) in found.iter().enumerate() {
            prop_assert!(read.len() <= limit);
            prop_assert!(!read.is_empty() || n + 1 == n_pages, "{found:?}");
            prop_assert_eq!(*left == 0, n + 1 == n_pages);
        }
        let read: Vec<String> = found.into_iter().flat_map(|it| it.0).collect();
        prop_assert_eq!(read, there.into_iter().collect::<Vec<_>>());
    }
}

fn task(epoch: u64) -> Rewrite {
    Rewrite {
        resource: GroupResource { group: "example.com".into(), resource: "parcels".into() },
        version: "example.com/v1".to_owned(),
        epoch,
        namespaces: Vec::new(),
        selector: LabelSelector::default(),
        dry_run: false,
        limit: 2,
        at_once: 1,
    }
}

#[test]
fn what_was_read_ahead_is_for_whoever_goes_on_where_it_ended_under_the_same_agreement() {
    let all = keys(0..5);
    let page = run(async {
        read_page(&stored(&all).await, PREFIX, "", 5, 5, nth(&BTreeSet::new(), 5)).await.unwrap()
    });
    let mut ahead = Ahead::default();
    ahead.fill(&task(1), page);
    let (taken, left) = ahead.take(2);
    assert_eq!((taken.len(), left), (2, 3));
    assert!(ahead.is_at(&task(1), &key(1)));
    assert!(!ahead.is_at(&task(2), &key(1)), "another agreement");
    assert!(!ahead.is_at(&task(1), &key(0)), "somebody went back");
    assert!(!ahead.is_at(&task(1), ""), "somebody began again");
    assert_eq!(ahead.left(&task(1), &key(1)), Some(0), "behind what is here");
    assert_eq!(ahead.take(9).0.len(), 3);
    assert!(!ahead.is_at(&task(1), &key(4)), "there is nothing left");
}
