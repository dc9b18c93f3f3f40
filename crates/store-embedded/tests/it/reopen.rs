//! What a store holds when it is opened again, and who may open it.

use std::{path::Path, time::Duration};

use bytes::Bytes;
use futures_util::StreamExt;
use store::{CommitError, LeaseError, Leases, ReadAt, ReadError, Revision, Store, Txn, WatchError};
use store_embedded::{EmbeddedStore, Health, OpenError, Options};

use crate::support::{everything, key, list, manual, open, put};

fn open_error(directory: &Path) -> OpenError {
    EmbeddedStore::open(directory, Options::new(manual())).expect_err("the directory must be refused")
}

#[tokio::test]
async fn everything_is_there_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let mut revisions = Vec::new();
    for n in 0..50 {
        revisions.push(put(&store, &format!("{}", n % 10), &n.to_string()).await);
    }
    revisions.push(store.commit(Txn::new().delete(&key("3"))).await.unwrap());
    let mut before = Vec::new();
    for revision in &revisions {
        before.push(list(&store, ReadAt::Revision(*revision)).await);
    }
    store.close().await;
    let store = open(directory.path());
    assert_eq!(store.current().await.unwrap(), *revisions.last().unwrap());
    for (revision, before) in revisions.iter().zip(before) {
        assert_eq!(list(&store, ReadAt::Revision(*revision)).await, before);
    }
    let mut events = store.watch(&everything(), Revision::ZERO).await.unwrap();
    let mut n_events = 0;
    while n_events < 51 {
        n_events += events.next().await.unwrap().unwrap().events.len();
    }
    assert!(put(&store, "next", "1").await > *revisions.last().unwrap());
}

#[tokio::test]
async fn dropping_the_store_closes_it() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let store = open(directory.path());
        put(&store, "a", &round.to_string()).await;
    }
    assert_eq!(list(&open(directory.path()), ReadAt::Latest).await[0].value, "2");
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let revision = put(&store, "a", "1").await;
    let mut events = store.watch(&everything(), revision).await.unwrap();
    store.close().await;
    assert!(matches!(store.commit(Txn::new()).await, Err(CommitError::ReadOnly(_))));
    assert!(matches!(store.get(&key("a")).await, Err(ReadError::Unavailable(_))));
    assert!(matches!(store.grant(Duration::from_secs(1)).await, Err(LeaseError::Unavailable(_))));
    assert!(matches!(events.next().await, Some(Err(WatchError::Interrupted(_)))));
    assert!(matches!(store.health(), Health::ReadOnly(_)));
    store.close().await;
}

#[tokio::test]
async fn compaction_survives_and_is_finished_later() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let mut last = Revision::ZERO;
    for n in 0..200 {
        last = put(&store, &format!("{}", n % 3), &n.to_string()).await;
    }
    store.commit(Txn::new().delete(&key("0"))).await.unwrap();
    store.compact(last).await.unwrap();
    // Closed at once: sweeping may not even have begun.
    store.close().await;
    let store = open(directory.path());
    let refused = store.list(&everything(), ReadAt::Revision(last.previous()), 1).await;
    assert_eq!(refused, Err(ReadError::Compacted { oldest: last }));
    assert_eq!(list(&store, ReadAt::Revision(last)).await.len(), 3);
    assert_eq!(list(&store, ReadAt::Latest).await.len(), 2);
    let current = store.current().await.unwrap();
    store.compact(current).await.unwrap();
    store.close().await;
    let store = open(directory.path());
    assert_eq!(store.current().await.unwrap(), current, "the revision must not go back with the last record");
}

#[tokio::test]
async fn history_is_compacted_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let clock = manual();
    let interval = Duration::from_secs(60);
    let options = Options { compaction_interval: Some(interval), ..Options::new(clock.clone()) };
    let store = EmbeddedStore::open_or_make(directory.path(), options).unwrap();
    let old = put(&store, "a", "1").await;
    let kept = put(&store, "a", "2").await;
    let mut is_compacted = false;
    // The task has to see each interval; the first one ends with nothing to forget.
    for _ in 0..2000 {
        clock.advance(interval);
        tokio::time::sleep(Duration::from_millis(5)).await;
        let result = store.list(&everything(), ReadAt::Revision(old), 1).await;
        is_compacted = result == Err(ReadError::Compacted { oldest: kept });
        if is_compacted {
            break;
        }
    }
    assert!(is_compacted, "history was not compacted");
    assert_eq!(list(&store, ReadAt::Latest).await[0].value, "2");
}

#[tokio::test]
async fn short_leases_survive_and_start_their_time_anew() {
    let directory = tempfile::tempdir().unwrap();
    let clock = manual();
    let store = EmbeddedStore::open_or_make(directory.path(), Options::new(clock.clone())).unwrap();
    let lease = store.grant(Duration::from_secs(10)).await.unwrap();
    let ended = store.grant(Duration::from_secs(10)).await.unwrap();
    store.revoke(ended).await.unwrap();
    store.commit(Txn::new().put_leased(&key("a"), Bytes::new(), lease)).await.unwrap();
    clock.advance(Duration::from_secs(8));
    store.close().await;
    let store = EmbeddedStore::open(directory.path(), Options::new(clock.clone())).unwrap();
    clock.advance(Duration::from_secs(8));
    assert_eq!(store.renew(lease).await, Ok(()));
    let revision = store.current().await.unwrap();
    assert!(store.get(&key("a")).await.unwrap().is_some());
    let newer = store.grant(Duration::from_secs(10)).await.unwrap();
    assert!(newer > ended, "the id of an ended lease must not come back");
    let mut events = store.watch(&everything(), revision).await.unwrap();
    clock.advance(Duration::from_secs(10));
    assert_eq!(events.next().await.unwrap().unwrap().events.len(), 1);
    assert_eq!(store.get(&key("a")).await, Ok(None));
}

/// Events are to be gone after an hour, however often the server is restarted within it.
#[tokio::test]
async fn long_leases_go_on_where_they_were() {
    const HOUR: Duration = Duration::from_secs(3600);
    const MINUTE: Duration = Duration::from_secs(60);
    let directory = tempfile::tempdir().unwrap();
    let clock = manual();
    let open = || EmbeddedStore::open_or_make(directory.path(), Options::new(clock.clone())).unwrap();
    let store = open();
    let (old, renewed) = (store.grant(HOUR).await.unwrap(), store.grant(HOUR).await.unwrap());
    store.commit(Txn::new().put_leased(&key("old"), Bytes::new(), old)).await.unwrap();
    store.commit(Txn::new().put_leased(&key("renewed"), Bytes::new(), renewed)).await.unwrap();
    clock.advance(50 * MINUTE);
    store.renew(renewed).await.unwrap();
    store.close().await;
    // Time that passes while nobody has the store open counts, too; a clock that is set back adds nothing.
    clock.jump_wall(5 * MINUTE);
    let store = open();
    let revision = store.current().await.unwrap();
    assert_eq!(list(&store, ReadAt::Latest).await.len(), 2);
    let mut events = store.watch(&everything(), revision).await.unwrap();
    clock.advance(5 * MINUTE);
    let ended = events.next().await.unwrap().unwrap().events;
    assert_eq!(ended.iter().map(store::Event::key).collect::<Vec<_>>(), [&key("old")]);
    drop(events);
    store.close().await;
    clock.jump_wall_back(100 * HOUR);
    let store = open();
    let revision = store.current().await.unwrap();
    let mut events = store.watch(&everything(), revision).await.unwrap();
    assert!(store.get(&key("renewed")).await.unwrap().is_some());
    clock.advance(HOUR);
    assert_eq!(events.next().await.unwrap().unwrap().events.len(), 1);
    assert!(list(&store, ReadAt::Latest).await.is_empty());
}

/// An unmounted disk leaves an empty directory: whoever only wants to read must be told, and leave it as it is.
#[tokio::test]
async fn opening_makes_no_store() {
    let parent = tempfile::tempdir().unwrap();
    let (empty, absent) = (parent.path().join("empty"), parent.path().join("absent"));
    std::fs::create_dir(&empty).unwrap();
    for directory in [&empty, &absent] {
        let error = open_error(directory);
        assert!(matches!(&error, OpenError::Missing { directory: it } if it == directory), "{error:?}");
        assert!(error.to_string().contains(&directory.display().to_string()), "{error}");
    }
    assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0);
    assert!(!absent.exists());
    open(&absent).close().await;
    EmbeddedStore::open(&absent, Options::new(manual())).unwrap();
}

#[tokio::test]
async fn a_second_opener_is_refused_and_told_who_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let error = open_error(directory.path());
    let expected = format!(
        "the data directory {} is in use by another process (process {})",
        directory.path().display(),
        std::process::id()
    );
    assert_eq!(error.to_string(), expected);
    put(&store, "a", "still works").await;
    store.close().await;
    open(directory.path());
}

#[cfg(unix)]
#[tokio::test]
async fn nobody_else_may_read_the_files() {
    use std::os::unix::fs::PermissionsExt;
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("data");
    let store = open(&directory);
    store.snapshot(&parent.path().join("snapshot")).await.unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&directory.join("store.redb")), 0o600);
    assert_eq!(mode(&parent.path().join("snapshot")), 0o600);
}

/// Every kind of damage is refused at open, never served and never papered over.
#[tokio::test]
async fn damaged_files_are_refused() {
    let original = tempfile::tempdir().unwrap();
    let store = open(original.path());
    for n in 0..300 {
        put(&store, &format!("{n:03}"), &"x".repeat(500)).await;
    }
    store.close().await;
    let bytes = std::fs::read(original.path().join("store.redb")).unwrap();
    let length = bytes.len();
    let value = bytes.windows(100).position(|it| it.iter().all(|it| *it == b'x')).unwrap();
    let damages: [(&str, Vec<u8>); 6] = [
        ("empty", Vec::new()),
        ("header only", bytes[..4096].to_vec()),
        ("half", bytes[..length / 2].to_vec()),
        ("garbage", vec![0xa5; length]),
        ("zeros", vec![0; length]),
        ("a flipped bit in a value", {
            let mut bytes = bytes.clone();
            bytes[value + 50] ^= 1;
            bytes
        }),
    ];
    for (what, bytes) in damages {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("store.redb"), bytes).unwrap();
        let error = open_error(directory.path());
        assert!(matches!(error, OpenError::Damaged { .. }), "{what}: {error:?}");
    }
}
