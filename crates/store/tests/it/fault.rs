//! One holder of a store has trouble, the others do not.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use store::{
    CommitError, Key, Leases, ManualClock, MemoryStore, Range, ReadError, Revision, SharedStore, Store, Txn,
    WatchError,
    fault::{Cut, FaultStore, Faults},
};

struct Setup {
    healthy: SharedStore,
    faulty: SharedStore,
    faults: Faults,
    clock: Arc<ManualClock>,
}

fn setup() -> Setup {
    let clock = ManualClock::at(jiff::Timestamp::UNIX_EPOCH);
    let healthy = SharedStore::new(MemoryStore::new(clock.clone()));
    let (faulty, faults) = FaultStore::new(healthy.clone(), clock.clone());
    Setup { healthy, faulty: SharedStore::new(faulty), faults, clock }
}

fn key() -> Key {
    Key::new("/k")
}

fn put(value: &'static str) -> Txn {
    Txn::new().put(&key(), Bytes::from_static(value.as_bytes()))
}

/// Lets every task on this one-threaded runtime run until it waits.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_paused_holder_hangs_and_goes_on_later_while_others_work() {
    let Setup { healthy, faulty, faults, .. } = setup();
    faults.pause();
    let commit = tokio::spawn(async move { faulty.commit(put("late")).await });
    settle().await;
    assert!(!commit.is_finished());
    let first = healthy.commit(put("early")).await.unwrap();
    faults.resume();
    assert!(commit.await.unwrap().unwrap() > first);
    assert_eq!(healthy.get(&key()).await.unwrap().unwrap().value, "late");
}

#[tokio::test]
async fn a_holder_can_be_paused_exactly_before_its_commit_is_sent() {
    let Setup { healthy, faulty, faults, .. } = setup();
    faults.pause_at_next_commit();
    assert_eq!(faulty.get(&key()).await, Ok(None), "reads before the commit go through");
    let commit = tokio::spawn(async move { faulty.commit(put("v").require_absent(&key())).await });
    faults.wait_until_paused().await;
    assert_eq!(healthy.get(&key()).await, Ok(None));
    healthy.commit(put("other")).await.unwrap();
    faults.resume();
    assert!(matches!(commit.await.unwrap(), Err(CommitError::Unmet { .. })));
}

#[tokio::test]
async fn a_cut_hides_whether_a_commit_happened() {
    let Setup { healthy, faulty, faults, .. } = setup();
    faults.cut(Cut::Unsent);
    assert!(matches!(faulty.commit(put("1")).await, Err(CommitError::Unavailable(_))));
    assert!(matches!(faulty.get(&key()).await, Err(ReadError::Unavailable(_))));
    assert_eq!(healthy.get(&key()).await, Ok(None));
    faults.heal();
    faults.cut_next_commit(Cut::AnswerLost);
    assert!(matches!(faulty.commit(put("2")).await, Err(CommitError::Unavailable(_))));
    assert_eq!(faulty.get(&key()).await.unwrap().unwrap().value, "2");
    assert!(faulty.commit(put("3")).await.is_ok());
}

#[tokio::test]
async fn a_cut_ends_watches_and_a_pause_stalls_them() {
    let Setup { healthy, faulty, faults, .. } = setup();
    let mut events = faulty.watch(&Range::single(&key()), Revision::ZERO).await.unwrap();
    faults.pause();
    healthy.commit(put("1")).await.unwrap();
    settle().await;
    assert!(events.next().now_or_never().is_none());
    faults.resume();
    assert_eq!(events.next().await.unwrap().unwrap().events.len(), 1);
    let waiting = tokio::spawn(async move { (events.next().await, events.next().await) });
    settle().await;
    faults.cut(Cut::Unsent);
    let (last, end) = waiting.await.unwrap();
    assert!(matches!(last, Some(Err(WatchError::Interrupted(_)))));
    assert!(end.is_none());
}

#[tokio::test]
async fn a_paused_holder_loses_its_lease() {
    let Setup { healthy, faulty, faults, clock } = setup();
    let lease = faulty.grant(Duration::from_secs(10)).await.unwrap();
    faulty.commit(Txn::new().put_leased(&key(), Bytes::new(), lease)).await.unwrap();
    faults.pause();
    let renew = tokio::spawn(async move { faulty.renew(lease).await });
    clock.advance(Duration::from_secs(11));
    assert_eq!(healthy.get(&key()).await, Ok(None));
    faults.resume();
    assert!(renew.await.unwrap().is_err());
}

#[tokio::test]
async fn a_delay_runs_on_the_clock() {
    let Setup { faulty, faults, clock, .. } = setup();
    faults.delay(Duration::from_secs(1));
    let get = tokio::spawn(async move { faulty.get(&key()).await });
    settle().await;
    assert!(!get.is_finished());
    clock.advance(Duration::from_secs(1));
    assert_eq!(get.await.unwrap(), Ok(None));
}
