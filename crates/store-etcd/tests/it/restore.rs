//! An operator puts an old copy of etcd's data in place.

use std::{fs, path::Path};

use bytes::Bytes;
use store::{CommitError, ReadError, Revision, Store, Txn, WatchError};
use testkit::etcd;

use crate::support::*;

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_went_back_is_not_used_any_more() {
    if etcd::is_missing() {
        return;
    }
    let mut etcd = start().await;
    let store = connect(&etcd).await;
    let old = put(&store, "a", "old").await;
    etcd.kill9().unwrap();
    let copied = tempfile::tempdir().unwrap();
    copy(&etcd.data_dir(), copied.path());
    etcd.restart().await.unwrap();

    for n in 0..5 {
        put_surely(&store, &format!("new-{n}"), "v").await;
    }
    let seen = store.current().await.unwrap();
    let mut live = store.watch(&everything(), seen).await.unwrap();
    let mut narrow = store.watch(&tests(), seen).await.unwrap();

    etcd.kill9().unwrap();
    fs::remove_dir_all(etcd.data_dir()).unwrap();
    copy(copied.path(), &etcd.data_dir());
    etcd.restart().await.unwrap();

    assert_eq!(end(&mut live).await, WatchError::WentBack { seen, now: old });
    assert_eq!(end(&mut narrow).await, WatchError::WentBack { seen, now: old });
    let read = store.get(&key("a")).await;
    assert!(matches!(&read, Err(ReadError::Unavailable(text)) if text.contains("went back")), "{read:?}");
    let write = store.commit(Txn::new().put(&key("b"), Bytes::new())).await;
    assert!(matches!(&write, Err(CommitError::ReadOnly(text)) if text.contains("went back")), "{write:?}");
    let watch = store.watch(&everything(), old).await.map(drop);
    assert_eq!(watch, Err(WatchError::WentBack { seen, now: old }));

    let anew = connect(&etcd).await;
    assert_eq!(get(&anew, "a").await.as_deref(), Some("old"));
    assert_eq!(get(&anew, "b").await, None);
}

/// A backup put in place of the data while one server sleeps, without raising revisions. Others go on from there, and the
/// key that the sleeper requires is written again at the very revision that it knows.
#[tokio::test(flavor = "multi_thread")]
async fn a_revision_of_another_history_proves_nothing() {
    if etcd::is_missing() {
        return;
    }
    let mut etcd = start().await;
    let sleeper = connect(&etcd).await;
    sleeper.begin_history("sleeper").await.unwrap();
    // As every server was before there was such a value.
    let credulous = connect(&etcd).await;
    put(&sleeper, "fence", "agreed").await;
    etcd.kill9().unwrap();
    let copied = tempfile::tempdir().unwrap();
    copy(&etcd.data_dir(), copied.path());
    etcd.restart().await.unwrap();
    put_surely(&sleeper, "only in the past", "v").await;
    let required = put(&sleeper, "fence", "moved").await;

    etcd.kill9().unwrap();
    fs::remove_dir_all(etcd.data_dir()).unwrap();
    copy(copied.path(), &etcd.data_dir());
    etcd.restart().await.unwrap();
    let other = connect(&etcd).await;
    other.begin_history("other").await.unwrap();
    let met = put(&other, "fence", "moved elsewhere").await;
    assert_eq!(met, required, "or this shows nothing");
    for n in 0..5 {
        put(&other, &format!("more-{n}"), "v").await;
    }

    let write =
        |name: &str| Txn::new().put(&key(name), Bytes::from("stray")).require_at(&key("fence"), required);
    let carried_out = loop {
        match credulous.commit(write("credulous")).await {
            Err(CommitError::Unavailable(_) | CommitError::ReadOnly(_)) => {}
            result => break result,
        }
    };
    assert!(carried_out.is_ok(), "or the value would not be needed: {carried_out:?}");
    let refused = loop {
        match sleeper.commit(write("sleeper")).await {
            Err(CommitError::Unavailable(_)) => {}
            result => break result,
        }
    };
    assert!(matches!(&refused, Err(CommitError::ReadOnly(text)) if text.contains("restored")), "{refused:?}");
    assert_eq!(get(&other, "sleeper").await, None);
    assert!(sleeper.current().await.is_err(), "nothing that it holds in memory can be trusted");
}

/// A server that starts changes the value; those that run go on as if nothing had happened.
#[tokio::test(flavor = "multi_thread")]
async fn servers_that_start_disturb_nobody() {
    if etcd::is_missing() {
        return;
    }
    let etcd = start().await;
    let stores = [connect(&etcd).await, connect(&etcd).await, connect(&etcd).await];
    for (n, store) in stores.iter().enumerate() {
        store.begin_history(&format!("server {n}")).await.unwrap();
    }
    for round in 0..5 {
        for (n, store) in stores.iter().enumerate() {
            if (round + n) % 2 == 0 {
                store.current().await.unwrap();
            }
            let absent = store
                .commit(Txn::new().put(&key("x"), Bytes::new()).require_at(&key("y"), Revision::new(7)))
                .await;
            assert!(
                matches!(&absent, Err(CommitError::Unmet { failed: 0, current, .. }) if current == &[None]),
                "{absent:?}"
            );
            put(store, &format!("{round}-{n}"), "v").await;
        }
        stores[round % 3].begin_history(&format!("again {round}")).await.unwrap();
    }
}
