//! Answers that are larger than anybody's default.

use bytes::Bytes;
use store::{Event, Range, ReadAt, Store, Txn};
use testkit::etcd;

use crate::support::*;

#[tokio::test]
async fn a_list_of_many_megabytes_is_read_in_pages_at_one_revision() {
    if etcd::is_missing() {
        return;
    }
    let etcd = start().await;
    let store = connect(&etcd).await;
    let value = Bytes::from(vec![b'v'; 10_000]);
    for n in 0..30 {
        let txn =
            (0..100).fold(Txn::new(), |txn, m| txn.put(&key(&format!("{:04}", n * 100 + m)), value.clone()));
        store.commit(txn).await.unwrap();
    }
    let at = put(&store, "large/1", &"x".repeat(1 << 20)).await;
    let page = store.list(&tests(), ReadAt::Latest, ALL).await.unwrap();
    assert_eq!((page.entries.len(), page.remaining, page.revision), (3001, 0, at));
    assert!(page.entries.is_sorted_by(|a, b| a.key < b.key));
    let page = store.list(&tests(), ReadAt::Revision(at.previous()), 1700).await.unwrap();
    assert_eq!((page.entries.len(), page.remaining, page.revision), (1700, 1300, at.previous()));
    let rest = store.list(&tests().after(&page.entries[1699].key), ReadAt::Revision(at), ALL).await.unwrap();
    assert_eq!((rest.entries.len(), rest.remaining), (1301, 0));
    let none = store.list(&tests(), ReadAt::Latest, 0).await.unwrap();
    assert_eq!((none.entries.len(), none.remaining), (0, 3001));
}

/// 80 entries of a megabyte do not fit into one accepted answer.
#[tokio::test]
async fn a_page_that_is_too_large_is_asked_for_in_smaller_ones() {
    if etcd::is_missing() {
        return;
    }
    let etcd = start().await;
    let store = connect(&etcd).await;
    let value = Bytes::from(vec![b'v'; 1 << 20]);
    for n in 0..80 {
        store.commit(Txn::new().put(&key(&format!("{n:03}")), value.clone())).await.unwrap();
    }
    let page = store.list(&tests(), ReadAt::Latest, ALL).await.unwrap();
    assert_eq!((page.entries.len(), page.remaining), (80, 0));
    assert!(page.entries.iter().all(|it| it.value == value));
}

/// etcd cuts these answers into fragments, some of them in the middle of a revision.
#[tokio::test]
async fn fragments_are_put_together_before_a_revision_counts() {
    if etcd::is_missing() {
        return;
    }
    let etcd = start().await;
    let store = connect(&etcd).await;
    let before = store.current().await.unwrap();
    // Four of them fit into a fragment, but a revision has three.
    let value = Bytes::from(vec![b'v'; 350_000]);
    let mut last = before;
    for n in 0..12 {
        let txn = (0..3).fold(Txn::new(), |txn, m| txn.put(&key(&format!("{n:02}-{m}")), value.clone()));
        last = store.commit(txn).await.unwrap();
    }
    for range in [tests(), everything(), Range::prefix("/registry/")] {
        let mut events = store.watch(&range, before).await.unwrap();
        let mut done = before;
        let mut n_events = 0;
        while done < last {
            let batch = next(&mut events).await.unwrap();
            assert!(batch.revision > done);
            for revision in batch.events.iter().map(Event::revision) {
                assert_eq!(batch.events.iter().filter(|it| it.revision() == revision).count(), 3);
            }
            n_events += batch.events.len();
            done = batch.revision;
        }
        assert_eq!(n_events, 36);
    }
}
