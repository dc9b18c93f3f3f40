//! Three members, of which one at a time is gone.

use std::time::Duration;

use bytes::Bytes;
use store::{Leases, Store, Txn};
use testkit::etcd::{self, Etcd};

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn work_goes_on_at_other_members() {
    const WRITES: usize = 30;
    if etcd::is_missing() {
        return;
    }
    let mut members = Etcd::start_cluster(3).await.unwrap();
    let urls: Vec<String> = members.iter().map(Etcd::url).collect();
    let store = connect_to(&urls).await;
    let before = store.current().await.unwrap();
    let mut live = store.watch(&everything(), before).await.unwrap();
    for (round, member) in members.iter_mut().enumerate() {
        member.kill9().unwrap();
        for n in 0..WRITES {
            soon(put_surely(&store, &format!("{round}-{n:03}"), "v")).await;
        }
        member.restart().await.unwrap();
    }
    let last = soon(store.current()).await.unwrap();
    let seen = collect_until(&mut live, before, last).await;
    let mut replay = store.watch(&everything(), before).await.unwrap();
    assert_eq!(seen, collect_until(&mut replay, before, last).await);
    assert_eq!(seen.len(), 3 * WRITES);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_hangs_is_left() {
    if etcd::is_missing() {
        return;
    }
    let members = Etcd::start_cluster(3).await.unwrap();
    let urls: Vec<String> = members.iter().map(Etcd::url).collect();
    let mut config = config(&urls);
    config.request_timeout = Duration::from_secs(4);
    let store = store_etcd::EtcdStore::connect(config).await.unwrap();
    let before = store.current().await.unwrap();
    let mut live = store.watch(&everything(), before).await.unwrap();
    members[0].pause().unwrap();
    // The first read finds out; then the member is not asked any more.
    let read = async { while store.current().await.is_err() {} };
    soon(read).await;
    soon(put_surely(&store, "a", "1")).await;
    let last = store.current().await.unwrap();
    assert_eq!(collect_until(&mut live, before, last).await.len(), 1);
    members[0].resume().unwrap();
}

/// A write whose member hangs is withdrawn and sent to another one; its time-out is far away.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_does_not_wait_for_a_member_that_hangs() {
    if etcd::is_missing() {
        return;
    }
    let members = Etcd::start_cluster(3).await.unwrap();
    let urls: Vec<String> = members.iter().map(Etcd::url).collect();
    let mut config = config(&urls);
    config.request_timeout = 10 * LIMIT;
    let store = store_etcd::EtcdStore::connect(config).await.unwrap();
    let before = put(&store, "a", "0").await;
    members[0].pause().unwrap();
    let txn = Txn::new().require_at(&key("a"), before).put(&key("a"), Bytes::from("1"));
    let written = soon(store.commit(txn)).await.unwrap();
    let created =
        soon(store.commit(Txn::new().require_absent(&key("b")).put(&key("b"), Bytes::from("2")))).await;
    assert!(created.unwrap() > written);
    members[0].resume().unwrap();
    let entry = store.get(&key("a")).await.unwrap().unwrap();
    assert_eq!((entry.modified, entry.value.as_ref()), (written, b"1".as_ref()));
}

/// A lease is renewed through another member before it ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_outlives_a_member_that_hangs() {
    const TTL: Duration = Duration::from_secs(9);
    if etcd::is_missing() {
        return;
    }
    let members = Etcd::start_cluster(3).await.unwrap();
    let urls: Vec<String> = members.iter().map(Etcd::url).collect();
    let mut config = config(&urls);
    config.request_timeout = 10 * LIMIT;
    let store = store_etcd::EtcdStore::connect(config).await.unwrap();
    let lease = store.grant(TTL).await.unwrap();
    store.commit(Txn::new().put_leased(&key("a"), Bytes::from("1"), lease)).await.unwrap();
    members[0].pause().unwrap();
    let began = tokio::time::Instant::now();
    while began.elapsed() < 2 * TTL {
        soon(store.renew(lease)).await.unwrap();
        tokio::time::sleep(TTL / 3).await;
    }
    members[0].resume().unwrap();
    assert_eq!(get(&store, "a").await.as_deref(), Some("1"));
}

/// What a watch misses because its member hangs comes from another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_leaves_a_member_that_hangs() {
    if etcd::is_missing() {
        return;
    }
    let members = Etcd::start_cluster(3).await.unwrap();
    let urls: Vec<String> = members.iter().map(Etcd::url).collect();
    let store = connect_to(&urls).await;
    let other = connect_to(&urls[1..]).await;
    let before = store.current().await.unwrap();
    let mut live = store.watch(&everything(), before).await.unwrap();
    members[0].pause().unwrap();
    let written = put(&other, "a", "1").await;
    let seen = store.current();
    assert_eq!(soon(seen).await, Ok(written));
    assert_eq!(collect_until(&mut live, before, written).await.len(), 1);
    members[0].resume().unwrap();
}

#[tokio::test]
async fn endpoints_that_do_not_answer_are_passed_over() {
    if etcd::is_missing() {
        return;
    }
    let etcd = start().await;
    let urls = ["http://127.0.0.1:1".to_owned(), etcd.url()];
    let store = soon(connect_to(&urls)).await;
    put(&store, "a", "1").await;
    let mut events = store.watch(&everything(), store::Revision::ZERO).await.unwrap();
    assert_eq!(next(&mut events).await.unwrap().events.len(), 1);
}
