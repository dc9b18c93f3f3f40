//! Short words for the cases: keys, values, calls that must succeed, and collecting events.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;

use super::{Subject, Time};
use crate::{
    Batch, Entry, Event, Events, Key, LeaseId, Leases, Page, Range, ReadAt, Revision, SharedStore, Store,
    Txn, WatchError,
};

/// More entries than any case writes.
pub(super) const ALL: usize = 1_000_000;

pub(super) fn key(name: &str) -> Key {
    Key::new(format!("/conformance/{name}"))
}

pub(super) fn everything() -> Range {
    Range::prefix("/conformance/")
}

pub(super) fn text(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub(super) async fn put(store: &SharedStore, name: &str, value: &str) -> Revision {
    store.commit(Txn::new().put(&key(name), text(value))).await.expect("a plain put must succeed")
}

pub(super) async fn put_leased(store: &SharedStore, name: &str, lease: LeaseId) -> Revision {
    let txn = Txn::new().put_leased(&key(name), text("leased"), lease);
    store.commit(txn).await.expect("a put on a living lease must succeed")
}

pub(super) async fn delete(store: &SharedStore, name: &str) -> Revision {
    store.commit(Txn::new().delete(&key(name))).await.expect("a plain delete must succeed")
}

pub(super) async fn get(store: &SharedStore, name: &str) -> Option<Entry> {
    store.get(&key(name)).await.expect("a get must succeed")
}

pub(super) async fn current(store: &SharedStore) -> Revision {
    store.current().await.expect("the current revision must be readable")
}

pub(super) async fn list(store: &SharedStore, range: &Range, at: ReadAt, limit: usize) -> Page {
    store.list(range, at, limit).await.expect("a list must succeed")
}

pub(super) async fn grant(store: &SharedStore, seconds: u64) -> LeaseId {
    store.grant(Duration::from_secs(seconds)).await.expect("a lease must be granted")
}

pub(super) async fn watch(store: &SharedStore, range: &Range, after: Revision) -> Events {
    store.watch(range, after).await.expect("a watch must start")
}

/// What a page holds, as `name=value`.
pub(super) fn show(page: &Page) -> Vec<String> {
    page.entries.iter().map(show_entry).collect()
}

pub(super) fn show_entry(entry: &Entry) -> String {
    let name = entry.key.as_str().trim_start_matches("/conformance/");
    format!("{name}={}", String::from_utf8_lossy(&entry.value))
}

/// What an event says: `name=value` or `-name`.
pub(super) fn show_event(event: &Event) -> String {
    match event {
        Event::Put(entry) => show_entry(entry),
        Event::Delete(key, _) => format!("-{}", key.as_str().trim_start_matches("/conformance/")),
    }
}

pub(super) async fn next_batch(events: &mut Events) -> Batch {
    events.next().await.expect("a watch must not end without an error").expect("the watch must go on")
}

/// The next `count` events; whole batches, so it may be more.
pub(super) async fn collect(events: &mut Events, count: usize) -> Vec<Event> {
    let mut collected = Vec::new();
    let mut seen = Revision::ZERO;
    while collected.len() < count {
        let batch = next_batch(events).await;
        check_batch(&batch, seen);
        seen = batch.revision;
        collected.extend(batch.events);
    }
    collected
}

/// A batch lies behind what was seen, in order, and not behind its own revision.
pub(super) fn check_batch(batch: &Batch, seen: Revision) {
    let revisions: Vec<Revision> = batch.events.iter().map(Event::revision).collect();
    assert!(revisions.is_sorted(), "events out of order: {revisions:?}");
    assert!(revisions.iter().all(|it| *it > seen), "events repeated: {revisions:?} after {seen}");
    assert!(
        revisions.iter().all(|it| *it <= batch.revision),
        "events beyond {}: {revisions:?}",
        batch.revision
    );
    assert!(batch.revision >= seen, "progress went back from {seen} to {}", batch.revision);
}

/// The error a watch ends in, whether at once or after some batches.
pub(super) async fn watch_error(store: &SharedStore, after: Revision) -> WatchError {
    let mut events = match store.watch(&everything(), after).await {
        Ok(events) => events,
        Err(error) => return error,
    };
    loop {
        match events.next().await.expect("a watch must not end without an error") {
            Ok(batch) => {
                assert!(batch.events.is_empty(), "events came although the watch cannot work: {batch:?}")
            }
            Err(error) => return error,
        }
    }
}

/// Lets time pass for the leases of the store.
pub(super) async fn pass(subject: &Subject, duration: Duration) {
    match &subject.time {
        Time::Manual(clock) => clock.advance(duration),
        Time::Real => tokio::time::sleep(duration).await,
    }
}

/// What a task that panicked said.
pub(super) fn panic_text(error: tokio::task::JoinError) -> String {
    let Ok(payload) = error.try_into_panic() else { return "cancelled".into() };
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|it| (*it).to_owned())).unwrap_or_default()
}
