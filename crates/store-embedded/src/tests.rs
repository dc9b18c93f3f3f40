//! Disks that fail and power that goes: nothing acknowledged is lost, nothing unacknowledged is shown.

mod faulty;
mod full;

use std::{path::Path, time::Duration};

use bytes::Bytes;
use futures_util::StreamExt;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use store::{CommitError, Key, Leases, ManualClock, Range, ReadAt, Revision, Store, Txn};

use crate::{
    Carry, DiskFaults, EmbeddedStore, Health, OpenError, Options,
    open::IfMissing,
    restore,
    volume::{Volume, disk_of},
};
use faulty::{Faulty, Kind};

const N_TASKS: usize = 4;

fn options() -> Options {
    let clock = ManualClock::at(jiff::Timestamp::UNIX_EPOCH);
    Options { compaction_interval: None, recent_bytes: 0, ..Options::new(clock) }
}

/// Opens a directory on a file with faults.
fn open_faulty(
    directory: &Path,
    kind: Kind,
    fails_at: u64,
) -> (Result<EmbeddedStore, OpenError>, Option<Faulty>) {
    // The same faults, however often it is opened.
    let faulty = std::sync::Arc::new(std::sync::Mutex::new(None::<Faulty>));
    let made = std::sync::Arc::clone(&faulty);
    let backend = move |file| {
        let mut made = made.lock().unwrap();
        Ok(made.get_or_insert_with(|| Faulty::new(file, kind, fails_at)).clone())
    };
    let volume = Volume::new(backend, disk_of(directory));
    let store = EmbeddedStore::open_on(directory, options(), IfMissing::Make, volume);
    let faulty = faulty.lock().unwrap().clone();
    (store, faulty)
}

fn key(task: usize) -> Key {
    Key::new(format!("/task/{task}"))
}

fn twin(task: usize) -> Key {
    Key::new(format!("/twin/{task}"))
}

/// Counts upwards in two keys until a commit fails; returns the last acknowledged number and the error.
async fn count(store: EmbeddedStore, task: usize) -> (u64, CommitError) {
    for n in 1.. {
        let value = Bytes::from(format!("{n:0>width$}", width = 100 + 300 * task));
        let mut txn = Txn::new().put(&key(task), value.clone()).put(&twin(task), value);
        if n % 7 == 0 {
            txn = Txn::new().delete(&key(task)).delete(&twin(task));
        }
        match store.commit(txn).await {
            Ok(revision) if n % 5 == 0 => {
                // An error shows up in the next commit as well.
                store.compact(Revision::new(revision.get().saturating_sub(3))).await.ok();
            }
            Ok(_) => {}
            Err(error) => return (n - 1, error),
        }
    }
    unreachable!("every disk here fails at some point")
}

async fn run_until_it_fails(store: &EmbeddedStore) -> Vec<(u64, CommitError)> {
    let tasks: Vec<_> = (0..N_TASKS).map(|task| tokio::spawn(count(store.clone(), task))).collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.unwrap());
    }
    results
}

/// The number that a task's keys hold; both must hold the same.
async fn number(store: &EmbeddedStore, task: usize) -> u64 {
    let value = store.get(&key(task)).await.unwrap().map(|it| it.value);
    assert_eq!(store.get(&twin(task)).await.unwrap().map(|it| it.value), value, "half a transaction");
    value.map_or(0, |it| std::str::from_utf8(&it).unwrap().parse().unwrap())
}

/// What a task's keys hold after its `n`th step.
fn number_after(n: u64) -> u64 {
    if n.is_multiple_of(7) { 0 } else { n }
}

/// After a restart every task's keys hold what was acknowledged, or the one step that was under way.
async fn check_reopened(directory: &Path, results: &[(u64, CommitError)], context: &str) {
    let store =
        EmbeddedStore::open(directory, options()).unwrap_or_else(|error| panic!("{context}: {error:?}"));
    for (task, (acknowledged, error)) in results.iter().enumerate() {
        let found = number(&store, task).await;
        let may_have_happened = matches!(error, CommitError::Unavailable(_));
        let is_right = found == number_after(*acknowledged)
            || (may_have_happened && found == number_after(acknowledged + 1));
        assert!(is_right, "{context}: task {task} holds {found} after {acknowledged} steps and {error}");
    }
    store.commit(Txn::new().put(&key(0), Bytes::from_static(b"1"))).await.unwrap();
    let lease = store.grant(Duration::from_secs(1)).await.unwrap();
    store.revoke(lease).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_disk_stops_writes_and_nothing_else() {
    let mut random = StdRng::seed_from_u64(1);
    for round in 0..24 {
        let kind = [Kind::Write, Kind::NoSpace, Kind::Sync][round % 3];
        let fails_at = random.random_range(20..400);
        let context = format!("round {round}, {kind:?} fails at operation {fails_at}");
        let directory = tempfile::tempdir().unwrap();
        let (store, _) = open_faulty(directory.path(), kind, fails_at);
        let store = store.unwrap_or_else(|error| panic!("{context}: {error:?}"));
        let results = run_until_it_fails(&store).await;
        let known = |it: &CommitError| matches!(it, CommitError::Unavailable(_) | CommitError::ReadOnly(_));
        assert!(results.iter().all(|(_, error)| known(error)), "{context}: {results:?}");
        check_read_only(&store, &results, &context, directory.path()).await;
        store.close().await;
        drop(store);
        check_reopened(directory.path(), &results, &context).await;
    }
}

/// Writes are refused as not attempted, and everything acknowledged can still be read, and nothing else.
async fn check_read_only(
    store: &EmbeddedStore,
    results: &[(u64, CommitError)],
    context: &str,
    directory: &Path,
) {
    let refused = store.commit(Txn::new().put(&key(0), Bytes::new())).await;
    assert!(matches!(refused, Err(CommitError::ReadOnly(_))), "{context}: {refused:?}");
    assert!(matches!(store.health(), Health::ReadOnly(_)), "{context}");
    assert!(store.grant(Duration::from_secs(1)).await.is_err());
    for (task, (acknowledged, _)) in results.iter().enumerate() {
        assert_eq!(number(store, task).await, number_after(*acknowledged), "{context}: task {task}");
    }
    let everything = Range::prefix("/");
    let page = store.list(&everything, ReadAt::Latest, usize::MAX).await.unwrap();
    let current = store.current().await.unwrap();
    assert_eq!(page.revision, current);
    if current > Revision::new(10) {
        // Compaction never forgets the last three revisions before it.
        let after = Revision::new(current.get() - 1);
        let mut events = store.watch(&everything, after).await.unwrap();
        let batch = events.next().await.unwrap().unwrap();
        assert_eq!((batch.revision, batch.events.len()), (current, 2), "{context}");
    }
    let file = directory.join("snapshot");
    store.snapshot(&file).await.unwrap();
    let copy = tempfile::tempdir().unwrap();
    let report = restore(&file, copy.path(), &*options().clock, |_, _| Ok(Carry::AsIs)).unwrap();
    assert_eq!(report.n_entries, u64::try_from(page.entries.len()).unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_loses_nothing_that_was_acknowledged() {
    let rounds = std::env::var("CONVOY_SOAK_ROUNDS").ok().and_then(|it| it.parse().ok()).unwrap_or(30);
    let mut random = StdRng::seed_from_u64(rounds);
    for round in 0..rounds {
        let fails_at = random.random_range(1..300);
        let context = format!("round {round} of {rounds}, power fails at operation {fails_at}");
        let directory = tempfile::tempdir().unwrap();
        EmbeddedStore::open_or_make(directory.path(), options()).unwrap().close().await;
        let (store, faulty) = open_faulty(directory.path(), Kind::Power, fails_at);
        let results = match store {
            Ok(store) => run_until_it_fails(&store).await,
            // The power went while the store was opened.
            Err(_) => vec![(0, CommitError::ReadOnly(String::new())); N_TASKS],
        };
        let faulty = faulty.unwrap();
        assert!(faulty.n_operations() >= fails_at, "{context}");
        // A disk that lost power holds one of many states; try several.
        for _ in 0..3 {
            let copy = tempfile::tempdir().unwrap();
            std::fs::write(copy.path().join("store.redb"), faulty.after_power_cut(&mut random)).unwrap();
            check_reopened(copy.path(), &results, &context).await;
        }
    }
}

#[tokio::test]
async fn a_damaged_record_that_is_found_late_is_reported_and_not_served() {
    let directory = tempfile::tempdir().unwrap();
    let store =
        EmbeddedStore::open_or_make(directory.path(), Options { cache_bytes: 0, ..options() }).unwrap();
    let value = Bytes::from(vec![b'x'; 20_000]);
    store.commit(Txn::new().put(&key(0), value)).await.unwrap();
    store.commit(Txn::new().put(&key(1), Bytes::from_static(b"1"))).await.unwrap();
    let path = directory.path().join(crate::open::FILE);
    let bytes = std::fs::read(&path).unwrap();
    let position = bytes.windows(100).position(|it| it.iter().all(|it| *it == b'x')).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"y", u64::try_from(position + 50).unwrap()).unwrap();
    let result = store.get(&key(0)).await;
    assert!(
        matches!(&result, Err(store::ReadError::Unavailable(why))
            if why.contains("is damaged") && why.ends_with("; restore a snapshot into an empty directory")),
        "{result:?}"
    );
    assert_eq!(number_of(&store).await, "1");
}

async fn number_of(store: &EmbeddedStore) -> String {
    String::from_utf8(store.get(&key(1)).await.unwrap().unwrap().value.to_vec()).unwrap()
}
