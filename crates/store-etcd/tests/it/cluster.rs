//! Three members, of which one at a time is gone.

use std::time::Duration;

use store::Store;
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
