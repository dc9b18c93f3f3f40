//! Compaction, the limits of transactions, revisions at the edge.

use std::time::Duration;

use bytes::Bytes;
use store::{CommitError, Event, Key, LeaseId, ReadAt, ReadError, Revision, Store, Txn, WatchError};
use testkit::etcd;

use crate::support::*;

/// Old etcd forgets a removal at the very revision of a compaction. A watch that still wants it must be told
/// so instead of going on without it.
#[tokio::test]
async fn a_removal_at_the_compaction_revision_is_not_lost_quietly() {
    if etcd::is_missing() {
        return;
    }
    let etcd = start().await;
    let store = connect(&etcd).await;
    let before = put(&store, "a", "1").await;
    let removed = store.commit(Txn::new().delete(&key("a"))).await.unwrap();
    put(&store, "b", "1").await;
    store.compact(removed).await.unwrap();
    assert_eq!(watch_end(&store, &tests(), before).await, WatchError::Compacted { oldest: removed });
    let mut events = store.watch(&tests(), removed).await.unwrap();
    assert_eq!(next(&mut events).await.unwrap().events.len(), 1);
}

#[tokio::test]
async fn a_compacted_read_says_what_is_left() {
    if etcd::is_missing() {
        return;
    }
    let etcd = start().await;
    let store = connect(&etcd).await;
    let first = put(&store, "a", "1").await;
    put(&store, "a", "2").await;
    let kept = put(&store, "a", "3").await;
    store.compact(kept).await.unwrap();
    let read = store.list(&tests(), ReadAt::Revision(first), ALL).await;
    assert_eq!(read, Err(ReadError::Compacted { oldest: kept }));
    let read = store.list(&tests(), ReadAt::Revision(Revision::ZERO), ALL).await;
    assert_eq!(read, Err(ReadError::Compacted { oldest: kept }));
    let read = store.list(&tests(), ReadAt::Revision(Revision::new(u64::MAX)), ALL).await;
    assert_eq!(read, Err(ReadError::Future { current: kept }));
    assert!(matches!(store.compact(kept.next()).await, Err(CommitError::Rejected(_))));
    assert_eq!(store.compact(first).await, Ok(()));
}

#[tokio::test]
async fn servers_compact_in_turn_and_keep_what_is_young() {
    if etcd::is_missing() {
        return;
    }
    let etcd = start().await;
    let (one, two) = (connect(&etcd).await, connect(&etcd).await);
    let first = put(&one, "a", "1").await;
    let interval = Duration::from_millis(200);
    let gone = async {
        loop {
            let newest = put(&one, "a", "2").await;
            assert!(one.list(&tests(), ReadAt::Revision(newest), ALL).await.is_ok());
            if let Err(ReadError::Compacted { .. }) = one.list(&tests(), ReadAt::Revision(first), ALL).await {
                return;
            }
        }
    };
    tokio::select! {
        () = one.compact_every(interval) => unreachable!("it never ends"),
        () = two.compact_every(interval) => unreachable!("it never ends"),
        () = soon(gone) => {}
    }
}

#[tokio::test]
async fn transactions_that_etcd_cannot_take_are_rejected() {
    if etcd::is_missing() {
        return;
    }
    let etcd = start().await;
    let store = connect(&etcd).await;
    let before = store.current().await.unwrap();
    let many = |n| (0..n).fold(Txn::new(), |txn, n| txn.put(&key(&n.to_string()), Bytes::new()));
    assert!(matches!(store.commit(many(129)).await, Err(CommitError::Rejected(_))));
    for (size, expect) in [(1700 << 10, "etcdserver: request is too large"), (3 << 20, "larger than max")] {
        let refused = store.commit(Txn::new().put(&key("large"), vec![0; size].into())).await;
        assert!(matches!(&refused, Err(CommitError::Rejected(text)) if text.contains(expect)), "{refused:?}");
    }
    let no_lease = Txn::new().put_leased(&key("leased"), Bytes::new(), LeaseId(0));
    assert_eq!(store.commit(no_lease).await, Err(CommitError::NoLease(LeaseId(0))));
    assert_eq!(store.current().await, Ok(before));
    assert_eq!(store.commit(many(128)).await, Ok(before.next()));
}

#[tokio::test]
async fn an_absent_key_was_not_written_at_revision_zero() {
    if etcd::is_missing() {
        return;
    }
    let etcd = start().await;
    let store = connect(&etcd).await;
    for revision in [Revision::ZERO, Revision::new(u64::MAX)] {
        let txn = Txn::new().put(&key("a"), Bytes::new()).require_at(&key("a"), revision);
        let unmet = store.commit(txn).await;
        assert!(matches!(unmet, Err(CommitError::Unmet { failed: 0, .. })), "{unmet:?}");
    }
    assert_eq!(get(&store, "a").await, None);
}

#[tokio::test]
async fn a_full_etcd_takes_no_writes_and_still_reads() {
    if etcd::is_missing() {
        return;
    }
    let etcd = etcd::Etcd::start_with(None, &["--quota-backend-bytes=4194304"]).await.unwrap();
    let store = connect(&etcd).await;
    let mut n_written = 0;
    let error = loop {
        let txn = Txn::new().put(&key(&n_written.to_string()), vec![0; 1 << 18].into());
        match store.commit(txn).await {
            Ok(_) => n_written += 1,
            // The one that fills it up may have happened, and that is what is said of it.
            Err(CommitError::Unavailable(text)) if text.contains("space exceeded") => n_written += 1,
            Err(error) => break error,
        }
        // etcd learns its own size from time to time only, so a fast disk takes far more than the quota.
        assert!(n_written < 2000, "etcd never said that it is full");
    };
    assert!(matches!(&error, CommitError::ReadOnly(text) if text.contains("space exceeded")), "{error:?}");
    let page = store.list(&tests(), ReadAt::Latest, ALL).await.unwrap();
    assert_eq!(page.entries.len(), n_written);
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_reads_of_the_revision_are_never_older_than_the_callers_write() {
    if etcd::is_missing() {
        return;
    }
    let etcd = start().await;
    let store = connect(&etcd).await;
    let mut tasks = Vec::new();
    for n in 0..16 {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            for _ in 0..20 {
                let written = put(&store, &n.to_string(), "v").await;
                assert!(store.current().await.unwrap() >= written);
                // A caller that goes away must not hold up the others.
                let _ = tokio::time::timeout(Duration::from_micros(200), store.current()).await;
            }
        }));
    }
    for task in tasks {
        soon(task).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_reads_of_the_revision_share_requests() {
    const RANGES: &str = "grpc_server_started_total{grpc_method=\"Range\"";
    if etcd::is_missing() {
        return;
    }
    let etcd = start().await;
    let store = connect(&etcd).await;
    let before = etcd.metric(RANGES).await.unwrap();
    let reads = futures_util::future::join_all((0..200).map(|_| store.current()));
    assert!(soon(reads).await.iter().all(Result::is_ok));
    let n_requests = etcd.metric(RANGES).await.unwrap() - before;
    assert!((1.0..=10.0).contains(&n_requests), "200 reads took {n_requests} requests");
}

/// The watch that feeds the caches must reach every revision that `current` names, also when somebody else
/// writes to the same etcd.
#[tokio::test]
async fn a_watch_of_all_objects_makes_progress_with_foreign_writes() {
    if etcd::is_missing() {
        return;
    }
    let etcd = start().await;
    let store = connect(&etcd).await;
    let before = store.current().await.unwrap();
    let mut events = store.watch(&everything(), before).await.unwrap();
    for n in 0..3 {
        let foreign = Txn::new().put(&Key::new("/somebody/else"), Bytes::copy_from_slice(&[n]));
        let written = store.commit(foreign).await.unwrap();
        let seen = collect_until(&mut events, before, written).await;
        assert_eq!(seen, []);
    }
    let ours = put(&store, "a", "1").await;
    let seen = collect_until(&mut events, before, ours).await;
    assert_eq!(seen.iter().map(Event::revision).collect::<Vec<_>>(), [ours]);
}

/// Otherwise etcd keeps a watcher, and everything it would have been told, until the server ends.
#[tokio::test]
async fn a_watch_that_nobody_wants_any_more_is_forgotten_by_etcd() {
    const WATCHERS: &str = "etcd_debugging_mvcc_watcher_total ";
    if etcd::is_missing() {
        return;
    }
    let etcd = start().await;
    let store = connect(&etcd).await;
    let from = put(&store, "a", "1").await;
    let before = etcd.metric(WATCHERS).await.unwrap();
    for _ in 0..20 {
        drop(store.watch(&tests(), from).await.unwrap());
        // One that has been told something, too.
        let mut events = store.watch(&tests(), Revision::ZERO).await.unwrap();
        next(&mut events).await.unwrap();
    }
    let watched = async {
        while etcd.metric(WATCHERS).await.unwrap() > before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(watched).await;
}
