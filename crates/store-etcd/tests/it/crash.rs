//! etcd is killed while it works.

use std::time::Duration;

use store::{Event, ReadAt, Store};
use testkit::etcd;

use crate::support::*;

/// Kills etcd `ROUNDS` times under writes. The watch that lived through it must have seen exactly what a
/// fresh watch of the whole history sees, and every acknowledged write must be there.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_survives_kills_of_etcd_without_gap_or_repeat() {
    const ROUNDS: usize = 5;
    const WRITES: usize = 40;
    if etcd::is_missing() {
        return;
    }
    let mut etcd = start().await;
    let store = connect(&etcd).await;
    let before = store.current().await.unwrap();
    let mut live = store.watch(&everything(), before).await.unwrap();
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            for n in 0..ROUNDS * WRITES {
                put_surely(&store, &format!("{n:04}"), &n.to_string()).await;
            }
        })
    };
    for round in 1..=ROUNDS {
        let written = async {
            while store.list(&tests(), ReadAt::Latest, 0).await.map_or(0, |it| it.remaining)
                < (round * 20) as u64
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        soon(written).await;
        etcd.kill9().unwrap();
        etcd.restart().await.unwrap();
    }
    soon(writer).await.unwrap();
    let last = store.current().await.unwrap();
    let seen = collect_until(&mut live, before, last).await;
    let mut replay = store.watch(&everything(), before).await.unwrap();
    assert_eq!(seen, collect_until(&mut replay, before, last).await);
    assert_eq!(seen.len(), ROUNDS * WRITES);
    let names: Vec<_> = seen.iter().map(Event::key).collect();
    assert!(names.is_sorted(), "one writer wrote them in order");
}

#[tokio::test]
async fn reads_and_unsent_writes_wait_for_a_restart() {
    if etcd::is_missing() {
        return;
    }
    let mut etcd = start().await;
    let store = connect(&etcd).await;
    put(&store, "a", "1").await;
    etcd.kill9().unwrap();
    // So that the end of the connection is noticed and nothing is sent into it.
    tokio::time::sleep(Duration::from_millis(100)).await;
    etcd.spawn().unwrap();
    put(&store, "a", "2").await;
    assert_eq!(get(&store, "a").await.as_deref(), Some("2"));
}
