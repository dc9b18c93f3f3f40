//! Collections that are loaded beside others, while the store is slow, is compacted or does not answer.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cache::{AddError, Cache, CacheConfig, Closed, CollectionSpec, FieldSpec, GetError, Step, Swap};
use store::{
    Key, Range, ReadAt, Revision, SharedStore, Store,
    fault::{Cut, FaultStore},
};

use crate::support::*;

const GADGETS: &str = "/registry/example.com/gadgets/";

fn gadget(name: &str) -> Key {
    Key::new(format!("{GADGETS}{name}"))
}

fn text(color: &str) -> String {
    format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{{}},"spec":{{"color":"{color}"}}}}"#
    )
}

fn with_color() -> CollectionSpec {
    CollectionSpec { fields: vec![FieldSpec::new("spec.color")], ..CollectionSpec::new(GADGETS, false) }
}

fn finish(swap: Swap) {
    swap.finish();
}

/// A cache whose store answers lists only when a test lets it, while its watch goes on.
async fn held_up(store: &SharedStore) -> (Cache, Arc<Tricks>) {
    let (odd, tricks) = Odd::around(store.clone());
    let cache = Cache::start(odd, clock(), config(), specs()).await.unwrap();
    *tricks.hold.lock() = Some(Arc::new(tokio::sync::Semaphore::new(0)));
    (cache, tricks)
}

fn let_pass(tricks: &Tricks, n_lists: usize) {
    tricks.hold.lock().as_ref().unwrap().add_permits(n_lists);
}

/// Everything else is read and written as if nothing was loaded, however long that takes.
#[tokio::test]
async fn the_feed_does_not_wait_for_a_load() {
    let store = memory_store();
    for number in 0..40 {
        put(&store, &gadget(&format!("{number:02}")), text("red")).await;
    }
    let (cache, tricks) = held_up(&store).await;
    let opening = cache.open(CollectionSpec::new(GADGETS, false), Revision::new(1), finish).unwrap();
    for round in 0..20 {
        let written = put_map(&store, "a", &round.to_string()).await;
        assert_eq!(cache.catch_up().await, Ok(written));
        assert_eq!(maps(&cache).get(map_key("a").as_str()).unwrap().unwrap().revision(), written);
        let_pass(&tricks, usize::from(round % 10 == 9));
    }
    assert!(cache.collection(GADGETS).is_none());
    assert_eq!(cache.unclaimed()["/registry/example.com/"], 40);
    let_pass(&tricks, 100);
    let gadgets = opening.wait().await.unwrap();
    assert_eq!((gadgets.len(), cache.unclaimed().len()), (Ok(40), 0));
}

/// What is written, removed and made anew while a load hangs between two portions, on both sides of where it is.
#[tokio::test]
async fn a_load_shows_the_newest_state_of_every_key() {
    let store = memory_store();
    for number in 0..30 {
        put(&store, &gadget(&format!("{number:02}")), text("red")).await;
    }
    let (cache, tricks) = held_up(&store).await;
    let opening = cache.open(with_color(), Revision::new(1), finish).unwrap();
    for step in 0..12 {
        let_pass(&tricks, usize::from(step % 2 == 0));
        for number in [step, step + 10, step + 18] {
            let name = format!("{number:02}");
            match (step + number) % 3 {
                0 => drop(put(&store, &gadget(&name), text(&format!("blue{step}"))).await),
                1 => drop(delete(&store, &gadget(&name)).await),
                _ => {
                    delete(&store, &gadget(&name)).await;
                    put(&store, &gadget(&name), text("anew")).await;
                }
            }
        }
        put(&store, &gadget(&format!("new{step}")), text("new")).await;
        cache.catch_up().await.unwrap();
        // History is compacted again and again; a load goes on.
        store.compact(store.current().await.unwrap()).await.unwrap();
        tokio::task::yield_now().await;
    }
    let_pass(&tricks, 100);
    let gadgets = opening.wait().await.unwrap();
    cache.catch_up().await.unwrap();
    let snapshot = gadgets.snapshot().unwrap();
    let shown: BTreeMap<String, (Revision, String)> = snapshot
        .range(GADGETS, None)
        .unwrap()
        .map(|it| (it.name().to_owned(), (it.revision(), it.field(0).to_owned())))
        .collect();
    let listed = store.list(&Range::prefix(GADGETS), ReadAt::Latest, 1000).await.unwrap();
    let stored: BTreeMap<String, (Revision, String)> = listed
        .entries
        .iter()
        .map(|it| {
            let value: serde_json::Value = serde_json::from_slice(&it.value).unwrap();
            let color = value["spec"]["color"].as_str().unwrap().to_owned();
            (it.key.as_str().trim_start_matches(GADGETS).to_owned(), (it.modified, color))
        })
        .collect();
    assert_eq!(shown, stored);
    assert_eq!(cache.unclaimed().len(), 0);
}

/// The old collection answers, and is fed, until the new one takes its place; then it answers nobody.
#[tokio::test]
async fn a_collection_is_replaced_at_one_moment() {
    let store = memory_store();
    put(&store, &gadget("a"), text("red")).await;
    let cache = start(&store).await;
    let old = cache.add(CollectionSpec::new(GADGETS, false)).await.unwrap();
    let mut watcher = old.watch(old.snapshot().unwrap().revision(), GADGETS).unwrap();
    let watched = Arc::clone(&old);
    let swap = move |swap: Swap| {
        assert!(watched.is_open());
        let new = swap.finish().unwrap();
        assert!(new.is_open() && !watched.is_open());
    };
    let new = cache.open(with_color(), Revision::new(9), swap).unwrap().wait().await.unwrap();
    assert_eq!(old.get(gadget("a").as_str()).err(), Some(GetError::Closed(Closed)));
    assert!(matches!(watcher.next().await, Step::Ended(_)));
    assert!(Arc::ptr_eq(&cache.collection(GADGETS).unwrap(), &new));
    let (item, before) = (new.get(gadget("a").as_str()).unwrap().unwrap(), old.spec().fields.len());
    assert_eq!((item.field(0), before), ("red", 0));
    let written = put(&store, &gadget("b"), text("blue")).await;
    cache.catch_up().await.unwrap();
    assert_eq!(new.get(gadget("b").as_str()).unwrap().unwrap().revision(), written);
    assert_eq!(old.len(), Err(Closed));
}

/// Readers and writers go on while a collection is replaced again and again: whoever gets an answer gets the truth.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_read_misses_a_write_while_collections_are_replaced() {
    let store = memory_store();
    for number in 0..300 {
        put(&store, &gadget(&format!("old{number}")), text("red")).await;
    }
    let cache = start(&store).await;
    cache.add(CollectionSpec::new(GADGETS, false)).await.unwrap();
    let replacing = tokio::spawn({
        let cache = cache.clone();
        async move {
            for round in 0..40 {
                let spec = if round % 2 == 0 { with_color() } else { CollectionSpec::new(GADGETS, false) };
                cache.open(spec, Revision::new(round), finish).unwrap().wait().await.unwrap();
            }
        }
    });
    let (mut n_written, mut n_closed) = (0, 0);
    while !replacing.is_finished() {
        let name = format!("new{n_written}");
        let written = put(&store, &gadget(&name), text("blue")).await;
        n_written += 1;
        cache.catch_up().await.unwrap();
        loop {
            let collection = cache.collection(GADGETS).unwrap();
            tokio::task::yield_now().await;
            let (found, listed) = (collection.get(gadget(&name).as_str()), collection.snapshot());
            let (Ok(found), Ok(listed)) = (found, listed) else {
                n_closed += 1;
                continue;
            };
            assert_eq!(found.map(|it| it.revision()), Some(written));
            assert!(listed.revision() >= written);
            assert_eq!(listed.len(), 300 + n_written);
            assert_eq!(
                collection.counts().map_or(listed.len() as u64, |it| it.values().sum()),
                300 + n_written as u64
            );
            break;
        }
    }
    replacing.await.unwrap();
    println!("{n_written} writes, {n_closed} reads met a closed collection");
}

#[tokio::test]
async fn of_two_loads_the_later_definition_wins() {
    let store = memory_store();
    put(&store, &gadget("a"), text("red")).await;
    let (cache, tricks) = held_up(&store).await;
    let plain = CollectionSpec::new(GADGETS, false);
    let first = cache.open(plain.clone(), Revision::new(5), finish).unwrap();
    let second = cache.open(with_color(), Revision::new(7), finish).unwrap();
    let late = cache.open(plain, Revision::new(6), finish).unwrap();
    let_pass(&tricks, 100);
    assert_eq!(first.wait().await.err(), Some(AddError::Unwanted));
    let (second, late) = (second.wait().await.unwrap(), late.wait().await.unwrap());
    assert!(Arc::ptr_eq(&second, &late));
    assert_eq!(cache.collection(GADGETS).unwrap().spec(), &with_color());
}

#[tokio::test]
async fn a_collection_that_is_removed_while_it_is_loaded_never_answers() {
    let store = memory_store();
    put(&store, &gadget("a"), text("red")).await;
    let (cache, tricks) = held_up(&store).await;
    let opening = cache.open(with_color(), Revision::new(5), finish).unwrap();
    tokio::task::yield_now().await;
    cache.remove(GADGETS);
    let_pass(&tricks, 100);
    assert_eq!(opening.wait().await.err(), Some(AddError::Unwanted));
    assert!(cache.collection(GADGETS).is_none());
    assert_eq!(cache.unclaimed()["/registry/example.com/"], 1);
    assert_eq!(cache.add(with_color()).await.unwrap().len(), Ok(1));
}

/// A store that does not answer makes a load wait, not fail; what was loaded stays loaded.
#[tokio::test]
async fn a_load_outlasts_a_store_that_does_not_answer() {
    let store = memory_store();
    for number in 0..60 {
        put(&store, &gadget(&format!("{number:02}")), text("red")).await;
    }
    let (bad, faults) = FaultStore::new(store.clone(), clock());
    let config = CacheConfig { timeout: Duration::from_millis(20), ..config() };
    let cache = Cache::start(SharedStore::new(bad), clock(), config, specs()).await.unwrap();
    faults.cut(Cut::Unsent);
    let opening = cache.open(with_color(), Revision::new(5), finish).unwrap();
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert!(cache.collection(GADGETS).is_none());
    faults.heal();
    for round in 0..3 {
        faults.pause();
        put(&store, &gadget(&format!("{round}")), text("late")).await;
        tokio::time::sleep(Duration::from_millis(30)).await;
        faults.resume();
        tokio::task::yield_now().await;
    }
    assert_eq!(opening.wait().await.unwrap().len(), Ok(63));
}

/// History is lost while a collection is loaded: everything is listed anew, and the new collection with it.
#[tokio::test]
async fn a_load_goes_on_after_everything_was_listed_anew() {
    let store = memory_store();
    for number in 0..30 {
        put(&store, &gadget(&format!("{number:02}")), text("red")).await;
    }
    let (odd, tricks) = Odd::around(store.clone());
    let (bad, faults) = FaultStore::new(odd, clock());
    let cache = Cache::start(SharedStore::new(bad), clock(), config(), specs()).await.unwrap();
    *tricks.hold.lock() = Some(Arc::new(tokio::sync::Semaphore::new(1)));
    let opening = cache.open(with_color(), Revision::new(5), finish).unwrap();
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    faults.cut(Cut::Unsent);
    delete(&store, &gadget("00")).await;
    delete(&store, &gadget("29")).await;
    let last = put(&store, &gadget("03"), text("blue")).await;
    store.compact(last).await.unwrap();
    faults.heal();
    let_pass(&tricks, 1000);
    let gadgets = opening.wait().await.unwrap();
    cache.catch_up().await.unwrap();
    assert_eq!(gadgets.len(), Ok(28));
    assert_eq!(gadgets.get(gadget("03").as_str()).unwrap().unwrap().field(0), "blue");
    assert_eq!(cache.unclaimed().len(), 0);
}
