//! Disks and stores without space: what is there can be read and removed, and all goes on when there is space again.

use super::*;

/// A store that is full after about this much, with a clock that a test moves.
fn small(quota: Option<u64>) -> (Options, std::sync::Arc<ManualClock>) {
    let clock = ManualClock::at(jiff::Timestamp::UNIX_EPOCH);
    let options = Options {
        quota_bytes: quota,
        reserve_bytes: 4 << 20,
        shrink_bytes: 1 << 20,
        essential: vec!["/convoy/".into()],
        compaction_interval: Some(Duration::from_secs(300)),
        ..Options::new(clock.clone())
    };
    (options, clock)
}

fn item(n: usize) -> Key {
    Key::new(format!("/item/{n}"))
}

fn put(n: usize, n_bytes: usize) -> Txn {
    Txn::new().put(&item(n), Bytes::from(vec![b'x'; n_bytes]))
}

fn is_no_space(result: &Result<Revision, CommitError>) -> bool {
    matches!(result, Err(CommitError::ReadOnly(why)) if why.contains("mvcc: database space exceeded"))
}

/// Puts until there is no space; says how many there are.
async fn fill(store: &EmbeddedStore, n_bytes: usize) -> usize {
    for n in 0..10_000 {
        let result = store.commit(put(n, n_bytes)).await;
        if result.is_err() {
            assert!(is_no_space(&result), "{result:?}");
            return n;
        }
    }
    panic!("there was space for everything")
}

/// Lets housekeeping look at the disk, as it does every few seconds, until something holds.
async fn until(clock: &ManualClock, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..2_000 {
        if holds().await {
            return;
        }
        clock.advance(Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("it never came to that");
}

#[tokio::test]
async fn a_store_beyond_its_quota_takes_removals_and_is_itself_again_by_them() {
    let directory = tempfile::tempdir().unwrap();
    let (options, clock) = small(Some(1 << 20));
    let store = EmbeddedStore::open_or_make(directory.path(), options).unwrap();
    let n = fill(&store, 10_000).await;
    assert!(n > 20, "there was space for {n} only");
    assert!(matches!(store.health(), Health::Full(_)));
    // A mark of a deletion, the removal of a finalizer, what a server says of itself.
    store.commit(put(0, 10_100)).await.unwrap();
    store.commit(Txn::new().put(&Key::new("/convoy/members/a"), Bytes::from(vec![0; 5_000]))).await.unwrap();
    assert!(is_no_space(&store.commit(put(1, 10_500)).await));
    let lease = store.grant(Duration::from_secs(3600)).await.unwrap();
    for n in 0..n / 2 {
        store.commit(Txn::new().delete(&item(n))).await.unwrap();
    }
    // History goes early, and with it the alarm.
    until(&clock, async || store.health() == Health::Writable).await;
    store.commit(put(0, 10_000)).await.unwrap();
    store.revoke(lease).await.unwrap();
}

#[tokio::test]
async fn a_full_disk_takes_removals_and_is_itself_again_without_a_restart() {
    for is_unseen in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (options, clock) = small(None);
        let disk = DiskFaults::default();
        let store = EmbeddedStore::open_with_faults(directory.path(), options, &disk).unwrap();
        for n in 0..50 {
            store.commit(put(n, 20_000)).await.unwrap();
        }
        if is_unseen {
            disk.fill_unseen()
        } else {
            disk.fill()
        }
        // What did not fit did not happen, and is said to.
        let n = 50 + fill_from(&store, 50).await;
        let page = store.list(&Range::prefix("/item/"), ReadAt::Latest, usize::MAX).await.unwrap();
        assert_eq!(page.entries.len(), n);
        assert!(matches!(store.health(), Health::Full(_)), "{:?}", store.health());
        for n in 0..n {
            store.commit(Txn::new().delete(&item(n))).await.unwrap_or_else(|error| panic!("{n}: {error}"));
        }
        store.compact(store.current().await.unwrap()).await.unwrap();
        assert!(is_no_space(&store.commit(put(0, 20_000)).await), "others have the disk");
        disk.free();
        until(&clock, async || store.health() == Health::Writable).await;
        store.commit(put(0, 20_000)).await.unwrap();
        store.close().await;
        let store = EmbeddedStore::open(directory.path(), self::options()).unwrap();
        let page = store.list(&Range::prefix("/item/"), ReadAt::Latest, usize::MAX).await.unwrap();
        assert_eq!(page.entries.len(), 1);
    }
}

/// Puts large values until there is no space; says how many there were.
async fn fill_from(store: &EmbeddedStore, first: usize) -> usize {
    for n in first.. {
        let result = store.commit(put(n, 20_000)).await;
        if result.is_err() {
            assert!(is_no_space(&result), "{result:?}");
            return n - first;
        }
    }
    unreachable!("the disk is full")
}

/// Such a server was not ready after a restart, and nothing could be deleted to help it.
#[tokio::test]
async fn a_store_opens_on_a_full_disk_and_takes_removals() {
    let directory = tempfile::tempdir().unwrap();
    let disk = DiskFaults::default();
    let (options, clock) = small(None);
    let store = EmbeddedStore::open_with_faults(directory.path(), options, &disk).unwrap();
    for n in 0..50 {
        store.commit(put(n, 20_000)).await.unwrap();
    }
    disk.fill();
    fill_from(&store, 50).await;
    store.close().await;
    drop((store, clock));
    let (options, clock) = small(None);
    let store = EmbeddedStore::open_with_faults(directory.path(), options, &disk).unwrap();
    assert!(matches!(store.health(), Health::Full(_)));
    store.commit(Txn::new().put(&Key::new("/convoy/members/a"), Bytes::from(vec![0; 5_000]))).await.unwrap();
    assert!(is_no_space(&store.commit(put(99, 20_000)).await));
    for n in 0..50 {
        store.commit(Txn::new().delete(&item(n))).await.unwrap();
    }
    disk.free();
    until(&clock, async || store.health() == Health::Writable).await;
    store.commit(put(99, 20_000)).await.unwrap();
}

#[tokio::test]
async fn the_file_is_given_back_while_the_store_is_open() {
    let directory = tempfile::tempdir().unwrap();
    let (options, clock) = small(None);
    let disk = DiskFaults::default();
    let store = EmbeddedStore::open_with_faults(directory.path(), options, &disk).unwrap();
    for n in 0..200 {
        store.commit(put(n, 60_000)).await.unwrap();
    }
    let path = directory.path().join(crate::open::FILE);
    let size = || std::fs::metadata(&path).unwrap().len();
    let before = size();
    for n in 0..199 {
        store.commit(Txn::new().delete(&item(n))).await.unwrap();
    }
    until(&clock, async || {
        store.compact(store.current().await.unwrap()).await.unwrap();
        size() < before / 4
    })
    .await;
    assert_eq!(store.get(&item(199)).await.unwrap().unwrap().value.len(), 60_000);
}

/// After a failed sync nothing that is read proves what is on the disk: only a restart helps.
#[tokio::test]
async fn a_store_whose_syncs_failed_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open_faulty(directory.path(), Kind::Sync, 60);
    let store = store.unwrap();
    run_until_it_fails(&store).await;
    store.inner().leases_changed.notify_one();
    assert!(!store.inner().disk.is_recoverable());
    assert!(matches!(store.health(), Health::ReadOnly(_)));
}
