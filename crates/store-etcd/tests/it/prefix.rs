//! Two clusters on one etcd.

use bytes::Bytes;
use store::{CommitError, Event, Key, Range, ReadAt, Store, Txn};
use store_etcd::EtcdStore;
use testkit::etcd::{self, Etcd};

use crate::support::*;

async fn with_prefix(etcd: &Etcd, prefix: &str) -> EtcdStore {
    let mut config = config(&[etcd.url()]);
    config.prefix = prefix.into();
    EtcdStore::connect(config).await.unwrap()
}

async fn keys(store: &EtcdStore, range: &Range) -> Vec<String> {
    let page = store.list(range, ReadAt::Latest, ALL).await.unwrap();
    page.entries.iter().map(|it| it.key.as_str().to_owned()).collect()
}

async fn write(store: &EtcdStore, key: &str) {
    store
        .commit(Txn::new().put(&Key::new(key), Bytes::from("v")).require_absent(&Key::new(key)))
        .await
        .unwrap();
}

#[tokio::test]
async fn clusters_with_different_prefixes_do_not_see_each_other() {
    if etcd::is_missing() {
        return;
    }
    let etcd = start().await;
    let one = connect(&etcd).await;
    let two = with_prefix(&etcd, "/two").await;
    let three = with_prefix(&etcd, "/two-b").await;
    let before = one.current().await.unwrap();
    for store in [&one, &two, &three] {
        write(store, "/registry/pods/a").await;
        write(store, "/convoy/servers/s").await;
    }
    let ours = ["/convoy/servers/s", "/registry/pods/a"];
    for store in [&one, &two, &three] {
        assert_eq!(keys(store, &everything()).await, ours);
        let last = store.current().await.unwrap();
        let mut events = store.watch(&everything(), before).await.unwrap();
        let seen = collect_until(&mut events, before, last).await;
        let mut seen: Vec<&str> = seen.iter().map(|it| it.key().as_str()).collect();
        seen.sort_unstable();
        assert_eq!(seen, ours);
    }
    let raw = Range { start: "/".into(), end: "/registry".into() };
    assert_eq!(keys(&one, &raw).await, ["/convoy/servers/s"]);
    let raw = Range { start: "/two".into(), end: "/twp".into() };
    assert_eq!(
        keys(&one, &raw).await,
        ["/two-b.convoy/servers/s", "/two-b/pods/a", "/two.convoy/servers/s", "/two/pods/a"]
    );
}

#[tokio::test]
async fn the_contract_holds_under_a_prefix() {
    if etcd::is_missing() {
        return;
    }
    let etcd = start().await;
    let store = with_prefix(&etcd, "/other").await;
    let a = Key::new("/registry/pods/a");
    let created = store.commit(Txn::new().put(&a, Bytes::from("1"))).await.unwrap();
    match store.commit(Txn::new().put(&a, Bytes::from("2")).require_absent(&a)).await {
        Err(CommitError::Unmet { failed: 0, current, .. }) => assert_eq!(current[0].as_ref().unwrap().key, a),
        other => panic!("{other:?}"),
    }
    let mut events = store.watch(&Range::prefix("/registry/pods/"), created).await.unwrap();
    let removed = store.commit(Txn::new().delete(&a)).await.unwrap();
    assert_eq!(next(&mut events).await.unwrap().events, [Event::Delete(a.clone(), removed)]);
    let outside = Key::new("/elsewhere");
    assert_eq!(store.get(&outside).await, Ok(None));
    let refused = store.commit(Txn::new().put(&outside, Bytes::new())).await;
    assert!(matches!(refused, Err(CommitError::Rejected(_))), "{refused:?}");
}
