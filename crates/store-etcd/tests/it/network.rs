//! Connections that break at the worst moment.

use std::time::Duration;

use bytes::Bytes;
use store::{CommitError, Event, Leases, ReadError, Store, Txn, WatchError};
use store_etcd::{ConnectError, EtcdStore};
use testkit::etcd;

use crate::{proxy::Proxy, support::*};

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_after_cuts_without_gap_or_repeat() {
    if etcd::is_missing() {
        return;
    }
    let etcd = start().await;
    let proxy = Proxy::to(etcd.port()).await;
    let direct = connect(&etcd).await;
    let store = connect_to(&[proxy.url()]).await;
    let before = direct.current().await.unwrap();
    let mut live = store.watch(&everything(), before).await.unwrap();
    let mut seen = Vec::new();
    let mut done = before;
    for n in 0..60 {
        let written = put(&direct, &format!("{n:02}"), "v").await;
        match n % 3 {
            0 => proxy.cut(),
            // Read in between, so that cuts meet watches that are behind and ones that are not.
            1 => {
                seen.extend(collect_until(&mut live, done, written).await);
                done = written;
            }
            _ => {}
        }
    }
    let last = direct.current().await.unwrap();
    seen.extend(collect_until(&mut live, done, last).await);
    let revisions: Vec<u64> = seen.iter().map(|it| it.revision().get()).collect();
    assert_eq!(revisions, (before.next().get()..=last.get()).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_has_an_unknown_outcome() {
    if etcd::is_missing() {
        return;
    }
    let etcd = start().await;
    let proxy = Proxy::to(etcd.port()).await;
    let direct = connect(&etcd).await;
    let store = connect_to(&[proxy.url()]).await;
    proxy.mute();
    let commit = {
        let store = store.clone();
        tokio::spawn(async move { store.commit(Txn::new().put(&key("a"), Bytes::from("1"))).await })
    };
    let arrived = async { while get(&direct, "a").await.is_none() {} };
    soon(arrived).await;
    proxy.cut();
    let outcome = soon(commit).await.unwrap();
    assert!(matches!(outcome, Err(CommitError::Unavailable(_))), "{outcome:?}");
    proxy.unmute();
    let entry = store.get(&key("a")).await.unwrap().unwrap();
    assert_eq!((entry.created, entry.value.as_ref()), (entry.modified, b"1".as_ref()), "written once");
}

/// The answer is lost, not etcd: what became of the write is found out.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_found_out() {
    if etcd::is_missing() {
        return;
    }
    let etcd = start().await;
    let proxy = Proxy::to(etcd.port()).await;
    let direct = connect(&etcd).await;
    let store = connect_to(&[proxy.url()]).await;
    for (name, is_overwritten) in [("a", false), ("b", true)] {
        proxy.mute();
        let commit = {
            let (store, key) = (store.clone(), key(name));
            let txn = Txn::new().require_absent(&key).put(&key, Bytes::from("1"));
            tokio::spawn(async move { store.commit(txn).await })
        };
        let arrived = async { while get(&direct, name).await.is_none() {} };
        soon(arrived).await;
        let created = direct.get(&key(name)).await.unwrap().unwrap().modified;
        if is_overwritten {
            direct.commit(Txn::new().delete(&key(name))).await.unwrap();
        }
        proxy.unmute();
        assert_eq!(soon(commit).await.unwrap(), Ok(created), "{name}");
    }
    assert_eq!(get(&direct, "b").await, None, "it is not written a second time");
}

/// A request that a hung member keeps may be carried out whenever it wakes up, unless it was withdrawn.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_was_given_up_cannot_be_carried_out_later() {
    if etcd::is_missing() {
        return;
    }
    let etcd = start().await;
    let (slow, fast) = (Proxy::to(etcd.port()).await, Proxy::to(etcd.port()).await);
    let direct = connect(&etcd).await;
    let mut config = config(&[slow.url(), fast.url()]);
    config.request_timeout = LIMIT;
    let store = EtcdStore::connect(config).await.unwrap();
    slow.hold();
    let commit = {
        let (store, key) = (store.clone(), key("a"));
        let txn = Txn::new().require_absent(&key).put(&key, Bytes::from("1"));
        tokio::spawn(async move { store.commit(txn).await })
    };
    let kept = async {
        while slow.held() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(kept).await;
    // Whatever else belongs to the request follows at once; that it was given up, later.
    tokio::time::sleep(Duration::from_millis(500)).await;
    slow.seal();
    let written = soon(commit).await.unwrap().unwrap();
    direct.commit(Txn::new().require_at(&key("a"), written).delete(&key("a"))).await.unwrap();
    let before = etcd.metric("grpc_server_handled_total{grpc_code=\"OK\",grpc_method=\"Txn\"").await.unwrap();
    slow.deliver();
    let handled = async {
        let start = "grpc_server_handled_total{grpc_code=\"OK\",grpc_method=\"Txn\"";
        while etcd.metric(start).await.unwrap() <= before {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(handled).await;
    assert_eq!(get(&direct, "a").await, None, "what was deleted does not come back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_without_an_answer_has_an_unknown_outcome() {
    if etcd::is_missing() {
        return;
    }
    let etcd = start().await;
    let mut config = config(&[etcd.url()]);
    config.request_timeout = Duration::from_millis(500);
    let store = EtcdStore::connect(config).await.unwrap();
    etcd.pause().unwrap();
    let outcome = soon(store.commit(Txn::new().put(&key("a"), Bytes::from("1")))).await;
    assert!(matches!(outcome, Err(CommitError::Unavailable(_))), "{outcome:?}");
    assert!(matches!(soon(store.current()).await, Err(ReadError::Unavailable(_))));
    etcd.resume().unwrap();
    let back = async { while store.current().await.is_err() {} };
    soon(back).await;
}

#[tokio::test]
async fn a_commit_that_reaches_nobody_did_not_happen() {
    if etcd::is_missing() {
        return;
    }
    let mut etcd = start().await;
    let mut config = config(&[etcd.url()]);
    config.request_timeout = Duration::from_millis(500);
    let store = EtcdStore::connect(config).await.unwrap();
    etcd.kill9().unwrap();
    // The first error may still be about a connection that was just ending.
    let _ = soon(store.current()).await;
    let outcome = soon(store.commit(Txn::new().put(&key("a"), Bytes::from("1")))).await;
    assert!(matches!(outcome, Err(CommitError::ReadOnly(_))), "{outcome:?}");
    assert!(soon(store.grant(Duration::from_secs(5))).await.is_err());
    let watch = soon(store.watch(&everything(), store::Revision::ZERO)).await.map(drop);
    assert!(matches!(watch, Err(WatchError::Interrupted(_))), "{watch:?}");
}

#[tokio::test]
async fn an_etcd_that_is_not_there_is_named() {
    let mut config = config(&["http://127.0.0.1:1".into()]);
    config.request_timeout = Duration::from_millis(200);
    let error = soon(EtcdStore::connect(config)).await.unwrap_err();
    assert!(matches!(&error, ConnectError::Unreachable(text) if text.contains("refused")), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_was_cut_off_for_too_long_is_told_so() {
    if etcd::is_missing() {
        return;
    }
    let etcd = start().await;
    let proxy = Proxy::to(etcd.port()).await;
    let direct = connect(&etcd).await;
    let store = connect_to(&[proxy.url()]).await;
    let before = put(&direct, "a", "0").await;
    let mut live = store.watch(&everything(), before).await.unwrap();
    put(&direct, "a", "1").await;
    assert!(matches!(next(&mut live).await.unwrap().events[..], [Event::Put(_)]));
    proxy.mute();
    for n in 2..5 {
        put(&direct, "a", &n.to_string()).await;
    }
    let kept = put(&direct, "a", "5").await;
    direct.compact(kept).await.unwrap();
    proxy.unmute();
    assert_eq!(end(&mut live).await, WatchError::Compacted { oldest: kept });
}
