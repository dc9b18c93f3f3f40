//! An operator puts an old copy of etcd's data in place.

use std::{fs, path::Path};

use bytes::Bytes;
use store::{CommitError, ReadError, Store, Txn, WatchError};
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
