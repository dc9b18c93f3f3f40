//! What watchers get, and when they are ended.

use cache::{Cache, CacheConfig, Change, EventType, Expired, Step, Watcher};
use std::sync::Arc;
use store::{
    Key, Revision, SharedStore, Store, Txn,
    fault::{Cut, FaultStore},
};

use crate::support::*;

async fn event(watcher: &mut Watcher) -> Arc<Change> {
    match watcher.next().await {
        Step::Event(change) => change,
        other => panic!("an event was expected, not {other:?}"),
    }
}

#[tokio::test]
async fn changes_come_in_order_with_what_was_before() {
    let store = memory_store();
    let start_at = put_map(&store, "a", "1").await;
    let cache = start(&store).await;
    let mut watcher = maps(&cache).watch(start_at, MAPS).unwrap();
    put_map(&store, "a", "2").await;
    put_map(&store, "b", "1").await;
    let removed = delete(&store, &map_key("a")).await;

    let first = event(&mut watcher).await;
    assert_eq!(first.event(), EventType::Modified);
    assert_eq!(first.before.as_ref().unwrap().field(0), "1");
    assert_eq!(first.after.as_ref().unwrap().field(0), "2");
    assert_eq!(event(&mut watcher).await.event(), EventType::Added);
    let last = event(&mut watcher).await;
    assert_eq!((last.event(), last.revision), (EventType::Deleted, removed));
    assert_eq!(last.key(), &map_key("a"));
    assert!(last.after.is_none());
    assert!(watcher.try_next().is_none());
}

#[tokio::test]
async fn frames_are_made_once_for_all_watchers() {
    let store = memory_store();
    let cache = start(&store).await;
    let mut watchers: Vec<_> = (0..3).map(|_| maps(&cache).watch(Revision::ZERO, MAPS).unwrap()).collect();
    put_map(&store, "a", "1").await;
    put_map(&store, "a", "2").await;
    delete(&store, &map_key("a")).await;
    let object = |revision: u64, value: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"resourceVersion":"{revision}","name":"a"}},"data":{{"a":"{value}"}}}}"#
        )
    };
    let expected = [
        (EventType::Added, "ADDED", object(1, "1")),
        (EventType::Modified, "MODIFIED", object(2, "2")),
        // The last state, but with the revision of the removal.
        (EventType::Deleted, "DELETED", object(3, "2")),
    ];
    for (kind, word, object) in expected {
        let mut frames = Vec::new();
        for watcher in &mut watchers {
            let change = event(watcher).await;
            assert_eq!((change.event(), change.text(kind).as_ref()), (kind, object.as_bytes()));
            frames.push(change.frame(kind));
        }
        assert_eq!(frames[0], format!("{{\"type\":\"{word}\",\"object\":{object}}}\n"));
        assert!(frames.iter().all(|it| it.as_ptr() == frames[0].as_ptr()));
    }
}

#[tokio::test]
async fn an_object_that_leaves_a_selection_is_shown_as_it_was_before() {
    let store = memory_store();
    put_map(&store, "a", "1").await;
    let cache = start(&store).await;
    let mut watcher = maps(&cache).watch(cache.applied(), MAPS).unwrap();
    put_map(&store, "a", "2").await;
    let change = event(&mut watcher).await;
    let frame = String::from_utf8(change.frame(EventType::Deleted).to_vec()).unwrap();
    assert!(frame.starts_with(r#"{"type":"DELETED","object":"#), "{frame}");
    assert!(frame.contains(r#""resourceVersion":"2""#) && frame.contains(r#""a":"1""#), "{frame}");
}

#[tokio::test]
async fn a_watcher_sees_only_its_scope_and_its_collection() {
    let store = memory_store();
    let cache = start(&store).await;
    let mut watcher = maps(&cache).watch(Revision::ZERO, &format!("{MAPS}default/")).unwrap();
    put(&store, &Key::new(format!("{MAPS}other/a")), "{}").await;
    put(&store, &Key::new(format!("{WIDGETS}default")), "{}").await;
    put(&store, &Key::new(format!("{MAPS}defaultx/a")), "{}").await;
    put_map(&store, "a", "1").await;
    assert_eq!(event(&mut watcher).await.key(), &map_key("a"));
    cache.catch_up().await.unwrap();
    assert!(watcher.try_next().is_none());
}

#[tokio::test]
async fn a_watch_resumes_where_the_client_stopped() {
    let store = memory_store();
    let cache = start(&store).await;
    for number in 0..10 {
        put_map(&store, "a", &number.to_string()).await;
    }
    cache.catch_up().await.unwrap();
    let mut watcher = maps(&cache).watch(Revision::new(7), MAPS).unwrap();
    assert_eq!(event(&mut watcher).await.revision, Revision::new(8));
}

#[tokio::test]
async fn what_happened_before_the_start_is_expired() {
    let store = memory_store();
    put_map(&store, "a", "1").await;
    let last = put_map(&store, "a", "2").await;
    let cache = start(&store).await;
    assert_eq!(
        maps(&cache).watch(Revision::new(1), MAPS).unwrap_err(),
        cache::WatchError::Expired(Expired { oldest: last })
    );
    assert!(maps(&cache).watch(last, MAPS).is_ok());
}

#[tokio::test]
async fn a_watch_from_the_future_shows_nothing_before_it() {
    let store = memory_store();
    let cache = start(&store).await;
    let mut watcher = maps(&cache).watch(Revision::new(3), MAPS).unwrap();
    for number in 0..5 {
        put_map(&store, "a", &number.to_string()).await;
    }
    assert_eq!(event(&mut watcher).await.revision, Revision::new(4));
}

#[tokio::test]
async fn who_falls_behind_is_ended_and_others_are_not() {
    let store = memory_store();
    let config = CacheConfig { history_events: 10, ..config() };
    let cache = Cache::start(store.clone(), clock(), config, specs()).await.unwrap();
    let mut slow = maps(&cache).watch(Revision::ZERO, MAPS).unwrap();
    let mut quick = maps(&cache).watch(Revision::ZERO, MAPS).unwrap();
    let mut elsewhere = widgets(&cache).watch(Revision::ZERO, WIDGETS).unwrap();
    for number in 0..30 {
        let revision = put_map(&store, "a", &number.to_string()).await;
        assert_eq!(event(&mut quick).await.revision, revision);
    }
    assert!(matches!(slow.next().await, Step::Ended(Expired { oldest }) if oldest == Revision::new(20)));
    assert!(matches!(slow.try_next(), Some(Step::Ended(_))));
    assert_eq!(slow.position(), None);
    assert!(elsewhere.try_next().is_none());
    assert_eq!(elsewhere.position(), Some(Revision::new(30)));
}

#[tokio::test]
async fn history_is_bounded_in_bytes() {
    let store = memory_store();
    let config = CacheConfig { history_bytes: 100_000, ..config() };
    let cache = Cache::start(store.clone(), clock(), config, specs()).await.unwrap();
    for _ in 0..20 {
        put_map(&store, "a", &"x".repeat(10_000)).await;
    }
    cache.catch_up().await.unwrap();
    assert!(maps(&cache).watch(Revision::new(15), MAPS).is_err());
    assert!(maps(&cache).watch(Revision::new(17), MAPS).is_ok());
}

#[tokio::test]
async fn progress_is_told_when_asked_for_and_only_when_true() {
    let store = memory_store();
    let cache = start(&store).await;
    let mut watcher = maps(&cache).watch(Revision::ZERO, MAPS).unwrap();
    put_map(&store, "a", "1").await;
    let txn = Txn::new().put(&map_key("b"), map_text("b", "1")).put(&map_key("c"), map_text("c", "1"));
    let both = store.commit(txn).await.unwrap();
    let last = put(&store, &Key::new(format!("{WIDGETS}w")), "{}").await;
    cache.catch_up().await.unwrap();

    assert_eq!(watcher.position(), Some(Revision::ZERO));
    watcher.request_progress();
    assert_eq!(event(&mut watcher).await.revision, Revision::new(1));
    assert_eq!(watcher.position(), Some(Revision::new(1)));
    // Half of a transaction is not progress.
    assert_eq!(event(&mut watcher).await.revision, both);
    assert_eq!(watcher.position(), Some(Revision::new(1)));
    assert_eq!(event(&mut watcher).await.revision, both);
    assert_eq!(watcher.position(), Some(last));
    assert!(matches!(watcher.next().await, Step::Progress(it) if it == last));
    assert!(watcher.try_next().is_none());
}

#[tokio::test]
async fn what_becomes_unreadable_is_told_and_not_taken_for_gone() {
    let store = memory_store();
    put_map(&store, "a", "1").await;
    let cache = start(&store).await;
    let mut watcher = maps(&cache).watch(cache.applied(), MAPS).unwrap();
    put(&store, &map_key("a"), "?").await;
    put(&store, &map_key("a"), "??").await;
    put_map(&store, "a", "2").await;
    for _ in 0..2 {
        assert!(matches!(watcher.next().await, Step::Undecodable(key, _) if key == map_key("a")));
    }
    let back = event(&mut watcher).await;
    assert_eq!((back.event(), back.revision), (EventType::Added, Revision::new(4)));
    put(&store, &map_key("b"), "?").await;
    delete(&store, &map_key("b")).await;
    for _ in 0..2 {
        assert!(matches!(watcher.next().await, Step::Undecodable(key, _) if key == map_key("b")));
    }
}

#[tokio::test]
async fn an_interruption_loses_and_repeats_nothing() {
    let store = memory_store();
    let (bad, faults) = FaultStore::new(store.clone(), clock());
    let cache = start(&SharedStore::new(bad)).await;
    let mut watcher = maps(&cache).watch(Revision::ZERO, MAPS).unwrap();
    for round in 0..5_u64 {
        let before = put_map(&store, "a", "1").await;
        assert_eq!(event(&mut watcher).await.revision, before);
        faults.cut(Cut::Unsent);
        let during = put_map(&store, "b", "1").await;
        let also_during = delete(&store, &map_key("a")).await;
        faults.heal();
        assert_eq!(event(&mut watcher).await.revision, during);
        assert_eq!(event(&mut watcher).await.revision, also_during);
        assert_eq!(also_during, Revision::new(3 * round + 3));
    }
    cache.catch_up().await.unwrap();
    assert!(watcher.try_next().is_none());
    assert_eq!(cache.health(), Ok(()));
}

#[tokio::test]
async fn after_a_compaction_during_an_interruption_everything_is_listed_anew() {
    let store = memory_store();
    let (bad, faults) = FaultStore::new(store.clone(), clock());
    put_map(&store, "kept", "1").await;
    put_map(&store, "gone", "1").await;
    let cache = start(&SharedStore::new(bad)).await;
    let kept = maps(&cache).get(map_key("kept").as_str()).unwrap().unwrap();
    let mut watcher = maps(&cache).watch(cache.applied(), MAPS).unwrap();
    faults.cut(Cut::Unsent);
    delete(&store, &map_key("gone")).await;
    put(&store, &map_key("bad"), "?").await;
    let last = put_map(&store, "new", "1").await;
    store.compact(last).await.unwrap();
    faults.heal();

    assert!(matches!(watcher.next().await, Step::Ended(it) if it.oldest == last));
    assert_eq!(cache.catch_up().await, Ok(last));
    let snapshot = maps(&cache).snapshot().unwrap();
    let names: Vec<_> = snapshot.readable(MAPS, None).map(|it| it.name()).collect();
    assert_eq!((names, snapshot.revision()), (vec!["kept", "new"], last));
    assert_eq!(maps(&cache).unreadable().unwrap().len(), 1);
    assert_eq!(maps(&cache).counts().unwrap().values().sum::<u64>(), 2);
    // What did not change is not read and held again.
    assert!(Arc::ptr_eq(&kept, snapshot.get(map_key("kept").as_str()).unwrap()));
    assert!(maps(&cache).watch(last.previous(), MAPS).is_err());
    let mut watcher = maps(&cache).watch(last, MAPS).unwrap();
    let next = put_map(&store, "new", "2").await;
    assert_eq!(event(&mut watcher).await.revision, next);
}
