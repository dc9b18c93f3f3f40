//! Short words for the tests.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use store::{
    Batch, CommitError, Event, Events, Key, Range, ReadAt, Revision, Store, SystemClock, Txn, WatchError,
};
use store_etcd::{EtcdConfig, EtcdStore};
use testkit::etcd::Etcd;

pub const ALL: usize = usize::MAX;
/// How long anything that must happen may take.
pub const LIMIT: Duration = Duration::from_secs(60);

pub fn config(urls: &[String]) -> EtcdConfig {
    EtcdConfig::new(urls.to_vec(), SystemClock::shared())
}

pub async fn start() -> Etcd {
    Etcd::start().await.unwrap()
}

pub async fn connect(etcd: &Etcd) -> EtcdStore {
    connect_to(&[etcd.url()]).await
}

pub async fn connect_to(urls: &[String]) -> EtcdStore {
    EtcdStore::connect(config(urls)).await.unwrap()
}

pub fn key(name: &str) -> Key {
    Key::new(format!("/registry/test/{name}"))
}

pub fn everything() -> Range {
    Range { start: "/convoy/".into(), end: "/registry0".into() }
}

pub fn tests() -> Range {
    Range::prefix("/registry/test/")
}

pub async fn put(store: &EtcdStore, name: &str, value: &str) -> Revision {
    store.commit(Txn::new().put(&key(name), Bytes::copy_from_slice(value.as_bytes()))).await.unwrap()
}

pub async fn get(store: &EtcdStore, name: &str) -> Option<String> {
    let entry = store.get(&key(name)).await.unwrap()?;
    Some(String::from_utf8_lossy(&entry.value).into_owned())
}

/// Writes until it is certain: what may have happened is looked up.
pub async fn put_surely(store: &EtcdStore, name: &str, value: &str) {
    loop {
        let txn =
            Txn::new().put(&key(name), Bytes::copy_from_slice(value.as_bytes())).require_absent(&key(name));
        match store.commit(txn).await {
            Ok(_) => return,
            Err(CommitError::Unmet { current, .. }) => {
                let there = current[0].as_ref().unwrap();
                assert_eq!(there.value, value.as_bytes(), "only an earlier try can have written {name}");
                return;
            }
            Err(CommitError::Unavailable(_) | CommitError::ReadOnly(_)) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(other) => panic!("{other}"),
        }
    }
}

pub async fn soon<T>(it: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, it).await.expect("it must not take so long")
}

pub async fn next(events: &mut Events) -> Result<Batch, WatchError> {
    soon(events.next()).await.expect("a watch must not end without an error")
}

/// The events up to a revision; each must be new, in order, and its revision whole.
pub async fn collect_until(events: &mut Events, after: Revision, until: Revision) -> Vec<Event> {
    let mut collected: Vec<Event> = Vec::new();
    let mut done = after;
    while done < until {
        let batch = next(events).await.unwrap();
        for event in &batch.events {
            assert!(event.revision() > done && event.revision() <= batch.revision, "{event:?} after {done}");
        }
        assert!(batch.events.iter().map(Event::revision).is_sorted());
        done = batch.revision;
        collected.extend(batch.events);
    }
    collected
}

/// The error that a watch ends in.
pub async fn watch_end(store: &EtcdStore, range: &Range, after: Revision) -> WatchError {
    let mut events = match store.watch(range, after).await {
        Ok(events) => events,
        Err(error) => return error,
    };
    end(&mut events).await
}

pub async fn end(events: &mut Events) -> WatchError {
    loop {
        if let Err(error) = next(events).await {
            return error;
        }
    }
}

/// Removes everything below a prefix.
pub async fn wipe(store: &EtcdStore, prefix: &str) {
    let page = store.list(&Range::prefix(prefix), ReadAt::Latest, ALL).await.unwrap();
    for entries in page.entries.chunks(100) {
        let txn = entries.iter().fold(Txn::new(), |txn, it| txn.delete(&it.key));
        store.commit(txn).await.unwrap();
    }
}
