//! Gets, snapshots, consistent reads, and collections that come and go.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use cache::{AddError, Cache, Closed, CollectionSpec, StartError};
use meta::StorageVersion;
use store::{Key, Revision, Store, Txn, fault::FaultStore};

use crate::support::*;

#[tokio::test]
async fn what_was_there_before_the_start_is_served() {
    let store = memory_store();
    for number in 0..40 {
        put_map(&store, &format!("m{number:02}"), "x").await;
    }
    let last = put(&store, &Key::new(format!("{WIDGETS}w")), r#"{"apiVersion":"example.com/v1"}"#).await;
    let cache = start(&store).await;
    assert_eq!(cache.applied(), last);
    let snapshot = maps(&cache).snapshot().unwrap();
    assert_eq!((snapshot.len(), snapshot.revision()), (40, last));
    let item = maps(&cache).get(map_key("m07").as_str()).unwrap().unwrap();
    assert_eq!((item.namespace(), item.name(), item.field(0)), ("default", "m07", "x"));
    assert_eq!(
        item.text(),
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"resourceVersion":"8","name":"m07"},"data":{"a":"x"}}"#
    );
    assert_eq!(widgets(&cache).counts().unwrap(), [(StorageVersion::new("example.com/v1"), 1)].into());
    assert_eq!(maps(&cache).field_position("data.a"), Some(0));
}

#[tokio::test]
async fn a_range_begins_behind_a_key_and_stays_in_its_prefix() {
    let store = memory_store();
    for key in ["a/1", "a/2", "a/3", "ab/1", "b/1"] {
        put(&store, &Key::new(format!("{MAPS}{key}")), "{}").await;
    }
    let cache = start(&store).await;
    let snapshot = maps(&cache).snapshot().unwrap();
    let names = |prefix: &str, after: Option<&str>| -> Vec<String> {
        let prefix = format!("{MAPS}{prefix}");
        let after = after.map(|it| format!("{MAPS}{it}"));
        let items = snapshot.readable(&prefix, after.as_deref());
        items.map(|it| format!("{}/{}", it.namespace(), it.name())).collect()
    };
    assert_eq!(names("a/", None), ["a/1", "a/2", "a/3"]);
    assert_eq!(names("a/", Some("a/1")), ["a/2", "a/3"]);
    assert_eq!(names("a/", Some("a/10")), ["a/2", "a/3"]);
    assert_eq!(names("a/", Some("a/3")), [""; 0]);
    assert_eq!(names("a/", Some("")), ["a/1", "a/2", "a/3"]);
    assert_eq!(names("", Some("a/3")), ["ab/1", "b/1"]);
    assert_eq!(snapshot.len_in(&format!("{MAPS}a/")), 3);
    assert_eq!((snapshot.len_in(MAPS), snapshot.len_in("/registry/"), snapshot.len_in("/x")), (5, 5, 0));
}

#[tokio::test]
async fn a_snapshot_does_not_see_later_changes() {
    let store = memory_store();
    put_map(&store, "a", "1").await;
    let cache = start(&store).await;
    let old = maps(&cache).snapshot().unwrap();
    put_map(&store, "a", "2").await;
    put_map(&store, "b", "2").await;
    cache.catch_up().await.unwrap();
    let new = maps(&cache).snapshot().unwrap();
    assert_eq!((old.len(), old.get(map_key("a").as_str()).unwrap().field(0)), (1, "1"));
    assert_eq!((new.len(), new.get(map_key("a").as_str()).unwrap().field(0)), (2, "2"));
    assert!(old.revision() < new.revision());
}

/// A transaction larger than what the feed applies at once, while a reader looks between all of its steps.
#[tokio::test]
async fn no_reader_sees_half_of_a_transaction() {
    let store = memory_store();
    let cache = start(&store).await;
    let (mut revision, mut seen) = (Revision::ZERO, Vec::new());
    for round in 1..=3_usize {
        let single = put_map(&store, "single", "x").await;
        let names = (0..600).map(|it| format!("{round}-{it}"));
        let txn = names.fold(Txn::new(), |txn, it| txn.put(&map_key(&it), map_text(&it, "x")));
        assert_eq!(store.commit(txn).await.unwrap(), single.next());
        revision = single.next();
    }
    while cache.applied() < revision {
        tokio::task::yield_now().await;
        let snapshot = maps(&cache).snapshot().unwrap();
        seen.push((snapshot.revision().get(), snapshot.len()));
    }
    for (revision, n_objects) in seen {
        let n_transactions = usize::try_from(revision / 2).unwrap();
        assert_eq!(n_objects, n_transactions * 600 + usize::from(revision > 0), "at revision {revision}");
    }
}

#[tokio::test]
async fn leases_and_creation_are_known() {
    let store = memory_store();
    let cache = start(&store).await;
    let lease = store::Leases::grant(&store, Duration::from_secs(60)).await.unwrap();
    let created = put_map(&store, "a", "1").await;
    let txn = Txn::new().put_leased(&map_key("a"), map_text("a", "2"), lease);
    let modified = store.commit(txn).await.unwrap();
    cache.catch_up().await.unwrap();
    let item = maps(&cache).get(map_key("a").as_str()).unwrap().unwrap();
    assert_eq!((item.created(), item.revision(), item.lease()), (created, modified, Some(lease)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consistent_read_sees_every_write_before_it() {
    let store = memory_store();
    let (slow, faults) = FaultStore::new(store.clone(), clock());
    let cache = start(&store::SharedStore::new(slow)).await;
    faults.delay(Duration::from_millis(1));
    let writers = (0..8).map(|writer| {
        let (store, cache) = (store.clone(), cache.clone());
        tokio::spawn(async move {
            for number in 0..25 {
                let name = format!("w{writer}");
                let written = put_map(&store, &name, &number.to_string()).await;
                let revision = cache.catch_up().await.unwrap();
                assert!(revision >= written);
                let item = maps(&cache).get(map_key(&name).as_str()).unwrap().unwrap();
                assert_eq!((item.revision(), item.field(0)), (written, number.to_string().as_str()));
                assert!(maps(&cache).snapshot().unwrap().revision() >= revision);
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

#[tokio::test]
async fn consistent_reads_share_questions_to_the_store() {
    let (store, tricks) = Odd::around(memory_store());
    let (paused, faults) = FaultStore::new(store.clone(), clock());
    let cache = start(&store::SharedStore::new(paused)).await;
    faults.pause();
    let mut readers: Vec<_> = Vec::new();
    for _ in 0..100 {
        let cache = cache.clone();
        readers.push(tokio::spawn(async move { cache.catch_up().await }));
    }
    // Everybody has asked by now; the first question hangs.
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    let written = put_map(&store, "a", "1").await;
    let late = tokio::spawn({
        let cache = cache.clone();
        async move { cache.catch_up().await }
    });
    tokio::task::yield_now().await;
    faults.resume();
    for reader in readers {
        reader.await.unwrap().unwrap();
    }
    assert!(late.await.unwrap().unwrap() >= written);
    assert!(tricks.n_current.load(Ordering::SeqCst) <= 3);
}

#[tokio::test]
async fn writes_elsewhere_move_every_collection_forward() {
    let store = memory_store();
    let cache = start(&store).await;
    let revision = put(&store, &Key::new("/convoy/own"), "x").await;
    assert_eq!(cache.catch_up().await, Ok(revision));
    assert_eq!(maps(&cache).snapshot().unwrap().revision(), revision);
    assert_eq!(cache.unclaimed(), Default::default());
}

#[tokio::test]
async fn values_that_cannot_be_served_are_named_and_hide_nothing() {
    let store = memory_store();
    put_map(&store, "a", "1").await;
    put(&store, &map_key("b"), "k8s\0secret").await;
    put(&store, &map_key("c"), "[\"secret\"]").await;
    let cache = start(&store).await;
    put(&store, &map_key("d"), "{\"secret").await;
    put_map(&store, "c", "1").await;
    delete(&store, &map_key("b")).await;
    cache.catch_up().await.unwrap();
    let unreadable = maps(&cache).unreadable().unwrap();
    assert_eq!(unreadable.len(), 1);
    assert_eq!(unreadable[0].0, map_key("d"));
    assert!(!unreadable[0].1.contains("secret"));
    assert_eq!(cache.unreadable(), unreadable);
    assert_eq!(maps(&cache).len().unwrap(), 2);
    assert!(maps(&cache).get(map_key("d").as_str()).is_err());
}

#[tokio::test]
async fn unclaimed_keys_are_counted() {
    let store = memory_store();
    for key in ["/registry/gone/a", "/registry/gone/b", "/registry/example.com/gadgets/a", "/registry/lone"] {
        put(&store, &Key::new(key), "{}").await;
    }
    let cache = start(&store).await;
    put(&store, &Key::new("/registry/gone/a"), "{} ").await;
    put(&store, &Key::new("/registry/gone/c"), "{}").await;
    put(&store, &Key::new("/registry/gone/d"), "{}").await;
    delete(&store, &Key::new("/registry/gone/b")).await;
    delete(&store, &Key::new("/registry/lone")).await;
    cache.catch_up().await.unwrap();
    let counts = [("/registry/example.com/".to_owned(), 1), ("/registry/gone/".to_owned(), 3)];
    assert_eq!(cache.unclaimed(), counts.into());
}

#[tokio::test]
async fn collections_come_and_go() {
    let store = memory_store();
    let prefix = "/registry/example.com/gadgets/";
    for name in ["a", "b"] {
        put(&store, &Key::new(format!("{prefix}{name}")), "{}").await;
    }
    let cache = start(&store).await;
    assert_eq!(cache.unclaimed(), [("/registry/example.com/".to_owned(), 2)].into());

    let gadgets = cache.add(CollectionSpec::new(prefix, false)).await.unwrap();
    assert_eq!((gadgets.len().unwrap(), cache.unclaimed().len()), (2, 0));
    let mut watcher = gadgets.watch(gadgets.snapshot().unwrap().revision(), prefix).unwrap();
    let revision = put(&store, &Key::new(format!("{prefix}c")), "{}").await;
    cache.catch_up().await.unwrap();
    assert_eq!(gadgets.len().unwrap(), 3);
    assert!(matches!(watcher.next().await, cache::Step::Event(it) if it.revision == revision));
    // There is one like it already.
    assert!(Arc::ptr_eq(&cache.add(CollectionSpec::new(prefix, false)).await.unwrap(), &gadgets));
    assert!(matches!(cache.add(CollectionSpec::new("/x/", false)).await, Err(AddError::BadPrefix { .. })));

    cache.remove(prefix);
    assert!(matches!(watcher.next().await, cache::Step::Ended(_)));
    assert!(cache.collection(prefix).is_none());
    assert_eq!(cache.unclaimed(), [("/registry/example.com/".to_owned(), 3)].into());
    put(&store, &Key::new(format!("{prefix}d")), "{}").await;
    cache.catch_up().await.unwrap();
    assert_eq!((gadgets.len(), cache.unclaimed()["/registry/example.com/"]), (Err(Closed), 4));
    let again = cache.add(CollectionSpec::new(prefix, false)).await.unwrap();
    assert_eq!(again.len().unwrap(), 4);
    // Nobody keeps what is gone.
    let gone = Arc::downgrade(&again);
    cache.remove(prefix);
    drop(again);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(gone.upgrade().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_added_during_writes_misses_none() {
    let store = memory_store();
    let cache = start(&store).await;
    let prefix = "/registry/example.com/gadgets/";
    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            for number in 0..600 {
                put(&store, &Key::new(format!("{prefix}{}", number % 50)), format!("{{\"n\":{number}}}"))
                    .await;
                if number % 100 == 0 {
                    // The revision that the feed is at may be gone when the collection is listed.
                    store.compact(store.current().await.unwrap()).await.unwrap();
                }
                tokio::task::yield_now().await;
            }
        }
    });
    while !writer.is_finished() {
        let gadgets = cache.add(CollectionSpec::new(prefix, false)).await.unwrap();
        let snapshot = gadgets.snapshot().unwrap();
        let current = cache.catch_up().await.unwrap();
        let listed = store.list(&store::Range::prefix(prefix), store::ReadAt::Latest, 1000).await.unwrap();
        cache.wait_for(listed.revision, Duration::from_secs(10)).await.unwrap();
        assert!(snapshot.revision() <= current);
        for entry in listed.entries {
            assert!(gadgets.get(entry.key.as_str()).unwrap().unwrap().revision() >= entry.modified);
        }
        cache.remove(prefix);
    }
    writer.await.unwrap();
}

#[tokio::test]
async fn overlapping_and_foreign_prefixes_are_refused_at_start() {
    for prefix in ["/registry/configmaps/x/", "/elsewhere/", "/registry/open"] {
        let mut specs = specs();
        specs.push(CollectionSpec::new(prefix, true));
        let error = Cache::start(memory_store(), clock(), config(), specs).await.unwrap_err();
        assert!(matches!(error, StartError::BadPrefix { prefix: it, .. } if it == prefix));
    }
}

#[tokio::test]
async fn waiting_for_the_future_ends_in_time() {
    let store = memory_store();
    let cache = start(&store).await;
    let behind = cache.wait_for(Revision::new(5), Duration::from_millis(5)).await.unwrap_err();
    assert_eq!(behind.current, Revision::ZERO);
    let waiting = tokio::spawn({
        let cache = cache.clone();
        async move { cache.wait_for(Revision::new(2), Duration::from_secs(60)).await }
    });
    put_map(&store, "a", "1").await;
    put_map(&store, "b", "1").await;
    waiting.await.unwrap().unwrap();
    cache.wait_for(Revision::new(2), Duration::ZERO).await.unwrap();
}
