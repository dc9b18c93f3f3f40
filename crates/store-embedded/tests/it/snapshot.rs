//! Snapshots and what is made of them.

use std::{path::Path, time::Duration};

use bytes::Bytes;
use store::{Leases, ReadAt, ReadError, Revision, Store, Txn, WatchError};
use store_embedded::{DEFAULT_RAISE, EmbeddedStore, OpenError, Options, SnapshotError, restore};

use crate::support::{everything, key, list, manual, open, put};

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

    let restored = restore(&file, &copy, DEFAULT_RAISE).unwrap();
    assert_eq!(restored.revision.get(), report.revision.get() + DEFAULT_RAISE);
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
        restore(&file, &copy, 0).unwrap();
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
    let error = restore(&file, &data, 0).unwrap_err();
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
        let error = restore(&file, &directory, 0).unwrap_err();
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
    assert_eq!(restore(&file, &copy, 5).unwrap().revision, Revision::new(5));
    assert_eq!(open(&copy).current().await, Ok(Revision::new(5)));
}
