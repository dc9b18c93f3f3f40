//! Stores that cannot be followed: what the cache says then, and to whom.

use std::{sync::Arc, time::Duration};

use cache::{AddError, Cache, CacheConfig, CollectionSpec, Step};
use store::{
    Clock, ManualClock, ReadError, Revision, SharedClock, SharedStore, Store, WatchError,
    fault::{Cut, FaultStore},
};

use crate::support::*;

/// Everything that can be asked fails, at once.
async fn check_failed(cache: &Cache, why: &str) {
    assert!(cache.failed().await.contains(why));
    assert!(cache.health().unwrap_err().contains(why));
    assert!(matches!(cache.catch_up().await, Err(ReadError::Unavailable(it)) if it.contains(why)));
    assert!(cache.wait_for(Revision::ZERO, Duration::from_secs(60)).await.is_err());
    assert!(maps(cache).watch(cache.applied(), MAPS).is_err());
    let added = cache.add(CollectionSpec::new("/registry/more/", true)).await;
    assert!(matches!(added, Err(AddError::NotLive(it)) if it.contains(why)));
}

#[tokio::test]
async fn a_store_that_went_back_fails_the_cache() {
    let store = memory_store();
    put_map(&store, "a", "1").await;
    let (odd, tricks) = Odd::around(store);
    let (bad, faults) = FaultStore::new(odd, clock());
    let cache = start(&SharedStore::new(bad)).await;
    let mut watcher = maps(&cache).watch(cache.applied(), MAPS).unwrap();
    let (seen, now) = (Revision::new(1), Revision::ZERO);
    tricks.watch_errors.lock().push(WatchError::WentBack { seen, now });
    faults.cut(Cut::Unsent);
    faults.heal();
    assert!(matches!(watcher.next().await, Step::Ended(_)));
    check_failed(&cache, "went back from 1 to 0").await;
}

#[tokio::test]
async fn a_consistent_read_notices_that_the_store_went_back() {
    let store = memory_store();
    put_map(&store, "a", "1").await;
    let (odd, tricks) = Odd::around(store);
    let cache = start(&odd).await;
    let mut watcher = maps(&cache).watch(cache.applied(), MAPS).unwrap();
    *tricks.current.lock() = Some(Revision::ZERO);
    assert!(cache.catch_up().await.is_err());
    assert!(matches!(watcher.next().await, Step::Ended(_)));
    check_failed(&cache, "went back from 1 to 0").await;
}

#[tokio::test]
async fn a_list_that_is_older_than_what_was_seen_fails_the_cache() {
    let store = memory_store();
    for _ in 0..3 {
        put_map(&store, "a", "1").await;
    }
    let empty = memory_store();
    let (odd, tricks) = Odd::around(store);
    let (bad, faults) = FaultStore::new(odd, clock());
    let cache = start(&SharedStore::new(bad)).await;
    tricks.watch_errors.lock().push(WatchError::Compacted { oldest: Revision::new(9) });
    *tricks.lists.lock() = Some(empty);
    faults.cut(Cut::Unsent);
    faults.heal();
    check_failed(&cache, "went back from 3 to 0").await;
}

#[tokio::test]
async fn a_stopped_cache_ends_its_watchers_and_fails_its_readers() {
    let store = memory_store();
    let cache = start(&store).await;
    let mut watcher = maps(&cache).watch(Revision::ZERO, MAPS).unwrap();
    cache.stop();
    cache.stopped().await;
    assert!(matches!(watcher.next().await, Step::Ended(_)));
    check_failed(&cache, "stopped").await;
}

#[tokio::test]
async fn a_cache_that_is_dropped_ends_its_tasks() {
    let store = memory_store();
    let cache = start(&store).await;
    let collection = maps(&cache);
    let mut watcher = collection.watch(Revision::ZERO, MAPS).unwrap();
    drop(cache);
    assert!(matches!(watcher.next().await, Step::Ended(_)));
}

#[tokio::test]
async fn a_cache_does_not_start_without_its_store() {
    let (bad, faults) = FaultStore::new(memory_store(), clock());
    faults.cut(Cut::Unsent);
    let error = Cache::start(SharedStore::new(bad), clock(), config(), specs()).await.unwrap_err();
    assert!(matches!(error, cache::StartError::List(ReadError::Unavailable(_))));
}

#[tokio::test]
async fn a_long_interruption_is_unhealthy_and_heals() {
    let manual = ManualClock::at("2026-11-15T00:00:00Z".parse().unwrap());
    let clock: SharedClock = Arc::clone(&manual) as SharedClock;
    let store = memory_store();
    let (bad, faults) = FaultStore::new(store.clone(), Arc::clone(&clock));
    let config = CacheConfig { grace: Duration::from_secs(15), ..CacheConfig::default() };
    let cache = Cache::start(SharedStore::new(bad), clock, config, specs()).await.unwrap();
    faults.cut(Cut::Unsent);
    let mut waited = Duration::ZERO;
    while cache.health().is_ok() {
        tokio::task::yield_now().await;
        manual.advance(Duration::from_millis(100));
        waited += Duration::from_millis(100);
        assert!(waited < Duration::from_secs(60), "an interruption must be noticed");
    }
    assert!(waited > Duration::from_secs(15));
    assert!(cache.health().unwrap_err().contains("interrupted for 15 s"));
    faults.heal();
    put_map(&store, "a", "1").await;
    while cache.health().is_err() {
        tokio::task::yield_now().await;
        manual.advance(Duration::from_millis(100));
        waited += Duration::from_millis(100);
        assert!(waited < Duration::from_secs(60), "a healed connection must be noticed");
    }
    assert_eq!(maps(&cache).len().unwrap(), 1);
}

#[tokio::test]
async fn a_consistent_read_gives_up_in_time() {
    let manual = ManualClock::at("2026-11-15T00:00:00Z".parse().unwrap());
    let clock: SharedClock = Arc::clone(&manual) as SharedClock;
    let store = memory_store();
    let (bad, faults) = FaultStore::new(store.clone(), Arc::clone(&clock));
    let cache = Cache::start(SharedStore::new(bad), clock, CacheConfig::default(), specs()).await.unwrap();
    faults.pause();
    put_map(&store, "a", "1").await;
    let reading = tokio::spawn({
        let cache = cache.clone();
        async move { cache.catch_up().await }
    });
    while !reading.is_finished() {
        tokio::task::yield_now().await;
        manual.advance(Duration::from_secs(1));
    }
    assert!(matches!(reading.await.unwrap(), Err(ReadError::Unavailable(_))));
    assert!(manual.monotonic() < Duration::from_secs(60));
    faults.resume();
    assert!(store.current().await.is_ok());
    assert_eq!(cache.catch_up().await, Ok(Revision::new(1)));
}
