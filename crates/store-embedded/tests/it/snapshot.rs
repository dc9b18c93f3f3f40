//! Snapshots and what is made of them.

use std::{path::Path, time::Duration};

use bytes::Bytes;
use store::{Leases, ReadAt, ReadError, Revision, Store, Txn, WatchError};
use store_embedded::{Carry, EmbeddedStore, OpenError, Options, SnapshotError, verify};

use crate::support::{everything, key, list, manual, open, put, restore};

#[tokio::test]
async fn a_snapshot_restores_the_newest_state_under_a_raised_revision() {
    let parent = tempfile::tempdir().unwrap();
    let (data, file, copy) =
        (parent.path().join("a"), parent.path().join("snapshot"), parent.path().join("b"));
    let store = open(&data);
    let lease = store.grant(Duration::from_secs(60)).await.unwrap();
    for n in 0..1500 {
        put(&store, &format!("{:04}", n % 1200), &n.to_string()).await;
    }
    store.commit(Txn::new().delete(&key("0007"))).await.unwrap();
    store.commit(Txn::new().put_leased(&key("leased"), Bytes::new(), lease)).await.unwrap();
    let expected = list(&store, ReadAt::Latest).await;
    let report = store.snapshot(&file).await.unwrap();
    assert_eq!((report.revision, report.n_entries), (store.current().await.unwrap(), 1200));
    put(&store, "later", "is not in it").await;

    assert_eq!(verify(&file).unwrap(), report);
    let restored = restore(&file, &copy).unwrap();
    assert!(restored.revision.get() > report.revision.get() + 999_999_999);
    assert_eq!(restored.n_entries, 1200);
    let copy = open(&copy);
    assert_eq!(copy.current().await.unwrap(), restored.revision);
    assert_eq!(list(&copy, ReadAt::Latest).await, expected);
    let oldest = restored.revision;
    let past = copy.list(&everything(), ReadAt::Revision(report.revision), 1).await;
    assert_eq!(past, Err(ReadError::Compacted { oldest }));
    let watch = copy.watch(&everything(), report.revision).await.map(|_| ());
    assert_eq!(watch, Err(WatchError::Compacted { oldest }));
    assert!(put(&copy, "new", "1").await > restored.revision);
    assert_eq!(copy.renew(lease).await, Ok(()));
    copy.revoke(lease).await.unwrap();
    assert_eq!(copy.get(&key("leased")).await, Ok(None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_under_load_shows_one_revision() {
    let parent = tempfile::tempdir().unwrap();
    let store = open(&parent.path().join("a"));
    for n in 0..2000 {
        put(&store, &format!("{n:04}"), "0").await;
    }
    // Every transaction writes both ends, so a snapshot that mixes revisions shows different values.
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            for n in 1..300 {
                let value = Bytes::from(n.to_string());
                let txn = Txn::new().put(&key("0000"), value.clone()).put(&key("1999"), value);
                let revision = store.commit(txn).await.unwrap();
                store.compact(revision).await.unwrap();
            }
        })
    };
    for round in 0..5 {
        let file = parent.path().join(format!("snapshot-{round}"));
        let copy = parent.path().join(format!("copy-{round}"));
        let report = store.snapshot(&file).await.unwrap();
        restore(&file, &copy).unwrap();
        let entries = list(&open(&copy), ReadAt::Latest).await;
        assert_eq!(entries.len(), 2000);
        assert_eq!(entries[0].value, entries[1999].value);
        assert!(entries.iter().all(|it| it.modified <= report.revision));
    }
    writer.await.unwrap();
    let current = store.current().await.unwrap();
    assert_eq!(list(&store, ReadAt::Revision(current)).await.len(), 2000);
}

#[tokio::test]
async fn restoring_needs_an_empty_directory() {
    let parent = tempfile::tempdir().unwrap();
    let (data, file) = (parent.path().join("a"), parent.path().join("snapshot"));
    let store = open(&data);
    put(&store, "a", "1").await;
    store.snapshot(&file).await.unwrap();
    store.close().await;
    let error = restore(&file, &data).unwrap_err();
    assert!(matches!(&error, SnapshotError::NotEmpty { directory } if *directory == data), "{error:?}");
    assert_eq!(list(&open(&data), ReadAt::Latest).await.len(), 1);
}

#[tokio::test]
async fn an_incomplete_or_damaged_snapshot_is_refused_and_leaves_no_store() {
    let parent = tempfile::tempdir().unwrap();
    let file = parent.path().join("snapshot");
    let store = open(&parent.path().join("a"));
    for n in 0..20 {
        put(&store, &n.to_string(), "value").await;
    }
    store.snapshot(&file).await.unwrap();
    let bytes = std::fs::read(&file).unwrap();
    let mut damages: Vec<Vec<u8>> = (0..bytes.len()).step_by(37).map(|it| bytes[..it].to_vec()).collect();
    damages.extend((0..bytes.len()).step_by(37).map(|position| {
        let mut bytes = bytes.clone();
        bytes[position] ^= 0x40;
        bytes
    }));
    damages.push([bytes.as_slice(), b"more"].concat());
    for (n, damaged) in damages.iter().enumerate() {
        let directory = parent.path().join(format!("damaged-{n}"));
        std::fs::write(&file, damaged).unwrap();
        assert!(matches!(verify(&file), Err(SnapshotError::Damaged { .. })), "{n}");
        let error = restore(&file, &directory).unwrap_err();
        assert!(matches!(error, SnapshotError::Damaged { .. }), "{n}: {error:?}");
        assert!(!directory.join("store.redb").exists());
        refuse_half_restored(&directory);
    }
}

fn refuse_half_restored(directory: &Path) {
    if directory.join("store.redb.restoring").exists() {
        let error = EmbeddedStore::open(directory, Options::new(manual())).unwrap_err();
        assert!(matches!(error, OpenError::Unfinished { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn an_empty_store_can_be_restored() {
    let parent = tempfile::tempdir().unwrap();
    let (file, copy) = (parent.path().join("snapshot"), parent.path().join("b"));
    open(&parent.path().join("a")).snapshot(&file).await.unwrap();
    let restored = restore(&file, &copy).unwrap();
    assert_eq!(restored.n_entries, 0);
    assert_eq!(open(&copy).current().await, Ok(restored.revision));
}

/// A client that followed the first copy must not go on at the second as if it were the same history.
#[tokio::test]
async fn a_second_restore_of_the_same_snapshot_uses_no_revision_again() {
    let parent = tempfile::tempdir().unwrap();
    let file = parent.path().join("snapshot");
    let store = open(&parent.path().join("a"));
    put(&store, "a", "1").await;
    store.snapshot(&file).await.unwrap();
    let first = parent.path().join("first");
    restore(&file, &first).unwrap();
    let first = open(&first);
    let mut seen = Revision::ZERO;
    for n in 0..50 {
        seen = put(&first, "only in the first", &n.to_string()).await;
    }
    let second = parent.path().join("second");
    let restored = restore(&file, &second).unwrap();
    assert!(restored.revision > seen, "{} was reached before {}", seen, restored.revision);
    assert!(restored.revision.get() < 1 << 53, "JavaScript could not count so far");
    let second = open(&second);
    put(&second, "only in the second", "1").await;
    let resumed = second.watch(&everything(), seen).await.map(|_| ());
    assert_eq!(resumed, Err(WatchError::Compacted { oldest: restored.revision }));
}

#[tokio::test]
async fn a_clock_that_stands_at_its_beginning_still_raises_revisions() {
    let parent = tempfile::tempdir().unwrap();
    let file = parent.path().join("snapshot");
    let store = open(&parent.path().join("a"));
    let revision = put(&store, "a", "1").await;
    store.snapshot(&file).await.unwrap();
    let copy = parent.path().join("copy");
    let restored = store_embedded::restore(&file, &copy, &*manual(), |_, _| Ok(Carry::AsIs)).unwrap();
    assert_eq!(restored.revision.get(), revision.get() + 1_000_000_000);
}

#[tokio::test]
async fn entries_can_be_left_out_or_replaced_by_a_restore() {
    let parent = tempfile::tempdir().unwrap();
    let (file, copy) = (parent.path().join("snapshot"), parent.path().join("b"));
    let store = open(&parent.path().join("a"));
    for name in ["dropped", "kept", "replaced-1", "replaced-2"] {
        put(&store, name, "old").await;
    }
    store.snapshot(&file).await.unwrap();
    let kept = store.get(&key("kept")).await.unwrap().unwrap();
    let restored = store_embedded::restore(&file, &copy, &store::SystemClock::new(), |key, value| {
        assert_eq!(value, "old");
        Ok(match key.as_str() {
            "/test/dropped" => Carry::Dropped,
            "/test/kept" => Carry::AsIs,
            _ => Carry::Replaced(Bytes::from_static(b"new")),
        })
    });
    let restored = restored.unwrap();
    assert_eq!(restored.n_entries, 3);
    let copy = open(&copy);
    let entries = list(&copy, ReadAt::Latest).await;
    assert_eq!(entries[0], kept);
    for replaced in &entries[1..] {
        assert_eq!((replaced.value.as_ref(), replaced.modified), (&b"new"[..], restored.revision));
    }
    assert!(put(&copy, "replaced-1", "newer").await > restored.revision);
}

/// Whoever could write to the directory of a snapshot could have it written to another file, or read it later as its owner.
#[tokio::test]
async fn a_snapshot_follows_no_link_and_is_its_makers_alone() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let parent = tempfile::tempdir().unwrap();
    let path = |name: &str| parent.path().join(name);
    let store = open(&path("data"));
    put(&store, "secret", "1").await;
    std::fs::write(path("victim"), "precious").unwrap();
    let victim = std::fs::metadata(path("victim")).unwrap().ino();
    for name in ["link", "link.unfinished", "link.part"] {
        std::os::unix::fs::symlink(path("victim"), path(name)).unwrap();
    }
    store.snapshot(&path("link")).await.unwrap();
    assert_eq!(std::fs::read_to_string(path("victim")).unwrap(), "precious");
    let made = std::fs::symlink_metadata(path("link")).unwrap();
    assert!(made.is_file() && made.ino() != victim);
    assert_eq!(made.permissions().mode() & 0o777, 0o600);
    verify(&path("link")).unwrap();
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 5, "no draft is left");
}

#[tokio::test]
async fn a_snapshot_that_nobody_wants_any_more_is_not_finished() {
    let parent = tempfile::tempdir().unwrap();
    let store = open(&parent.path().join("data"));
    put(&store, "secret", "1").await;
    let file = tempfile::tempfile().unwrap();
    let made = store.snapshot_into(file, Path::new("a copy"), || false).await;
    assert!(matches!(made, Err(SnapshotError::Unwanted)), "{made:?}");
}

#[tokio::test]
async fn copies_that_earlier_releases_left_are_removed_at_the_start() {
    let parent = tempfile::tempdir().unwrap();
    open(parent.path()).close().await;
    for name in [".snapshot-00", ".snapshot-01.unfinished", "snapshot", ".other"] {
        std::fs::write(parent.path().join(name), "every Secret").unwrap();
    }
    let _store = open(parent.path());
    let is_there = |name: &str| parent.path().join(name).exists();
    assert!(!is_there(".snapshot-00") && !is_there(".snapshot-01.unfinished"));
    assert!(is_there("snapshot") && is_there(".other"), "only what is ours");
}
