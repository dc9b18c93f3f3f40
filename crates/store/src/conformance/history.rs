//! Rules about lists, the past and compaction.

use super::{Subject, support::*};
use crate::{CommitError, Entry, Place, Range, ReadAt, ReadError, Revision, SharedStore, Store, Txn};

pub(super) async fn a_list_is_in_key_order_and_within_its_range(it: Subject) {
    let store = &it.store;
    for name in ["b/2", "a/1", "b/1", "c", "b", "b0", "b/10"] {
        put(store, name, "v").await;
    }
    let below = Range::prefix("/conformance/b/");
    let page = list(store, &below, ReadAt::Latest, ALL).await;
    assert_eq!(show(&page), ["b/1=v", "b/10=v", "b/2=v"]);
    let page = list(store, &below.after(&key("b/1")), ReadAt::Latest, ALL).await;
    assert_eq!(show(&page), ["b/10=v", "b/2=v"]);
    let page = list(store, &Range::single(&key("b")), ReadAt::Latest, ALL).await;
    assert_eq!(show(&page), ["b=v"]);
    let page = list(store, &everything(), ReadAt::Latest, ALL).await;
    assert_eq!(show(&page), ["a/1=v", "b=v", "b/1=v", "b/10=v", "b/2=v", "b0=v", "c=v"]);
}

pub(super) async fn a_list_shows_the_revision_it_was_asked_for(it: Subject) {
    let store = &it.store;
    let one = put(store, "a", "1").await;
    let two = put(store, "b", "1").await;
    let three = put(store, "a", "2").await;
    let four = delete(store, "b").await;
    let expected: [(Revision, &[&str]); 4] =
        [(one, &["a=1"]), (two, &["a=1", "b=1"]), (three, &["a=2", "b=1"]), (four, &["a=2"])];
    for (revision, entries) in expected {
        let page = list(store, &everything(), ReadAt::Revision(revision), ALL).await;
        assert_eq!(
            (show(&page), page.revision),
            (entries.iter().map(|it| (*it).to_owned()).collect(), revision)
        );
    }
    let page = list(store, &everything(), ReadAt::Revision(three), ALL).await;
    assert_eq!((page.entries[0].created, page.entries[0].modified), (one, three));
    assert_eq!((page.entries[1].created, page.entries[1].modified), (two, two));
    let latest = list(store, &everything(), ReadAt::Latest, ALL).await;
    assert_eq!(latest.revision, four);
}

pub(super) async fn pages_say_how_many_entries_follow(it: Subject) {
    let store = &it.store;
    for name in ["a", "b", "c", "d", "e"] {
        put(store, name, "v").await;
    }
    let cases: [(usize, usize, u64); 5] = [(2, 2, 3), (4, 4, 1), (5, 5, 0), (ALL, 5, 0), (0, 0, 5)];
    for (limit, entries, remaining) in cases {
        let page = list(store, &everything(), ReadAt::Latest, limit).await;
        assert_eq!((page.entries.len(), page.remaining), (entries, remaining), "with limit {limit}");
    }
}

pub(super) async fn paging_at_one_revision_is_not_disturbed_by_writes(it: Subject) {
    let store = &it.store;
    for name in ["a", "b", "c", "d", "e"] {
        put(store, name, "old").await;
    }
    let mut rest = everything();
    let mut names = Vec::new();
    let mut at = ReadAt::Latest;
    loop {
        let page = list(store, &rest, at, 2).await;
        names.extend(show(&page));
        let Some(last) = page.entries.last().filter(|_| page.remaining > 0) else { break };
        rest = rest.after(&last.key);
        at = ReadAt::Revision(page.revision);
        put(store, "e", "new").await;
        put(store, "dd", "new").await;
        delete(store, "d").await;
    }
    assert_eq!(names, ["a=old", "b=old", "c=old", "d=old", "e=old"]);
}

pub(super) async fn an_empty_range_lists_nothing(it: Subject) {
    let store = &it.store;
    let revision = put(store, "m", "v").await;
    let inverted = Range { start: key("z"), end: key("a") };
    for range in [Range::prefix("/conformance/none/"), Range { start: key("m"), end: key("m") }, inverted] {
        let page = list(store, &range, ReadAt::Latest, ALL).await;
        assert_eq!((page.entries.len(), page.remaining, page.revision), (0, 0, revision), "{range:?}");
    }
}

pub(super) async fn a_revision_in_the_future_is_refused(it: Subject) {
    let store = &it.store;
    let revision = put(store, "a", "1").await;
    let future = Revision::new(revision.get() + 1000);
    match store.list(&everything(), ReadAt::Revision(future), ALL).await {
        Err(ReadError::Future { current }) => assert!(current >= revision && current < future, "{current}"),
        other => panic!("expected Future, got {other:?}"),
    }
}

pub(super) async fn compaction_ends_reads_of_the_past_and_keeps_the_present(it: Subject) {
    let store = &it.store;
    let one = put(store, "a", "1").await;
    put(store, "b", "1").await;
    put(store, "untouched", "1").await;
    delete(store, "b").await;
    let kept = put(store, "a", "2").await;
    let last = put(store, "a", "3").await;
    store.compact(kept).await.expect("compaction must work");
    match store.list(&everything(), ReadAt::Revision(one), ALL).await {
        Err(ReadError::Compacted { oldest }) => assert_eq!(oldest, kept),
        other => panic!("expected Compacted, got {other:?}"),
    }
    let page = list(store, &everything(), ReadAt::Revision(kept), ALL).await;
    assert_eq!(show(&page), ["a=2", "untouched=1"]);
    let page = list(store, &everything(), ReadAt::Revision(last), ALL).await;
    assert_eq!(show(&page), ["a=3", "untouched=1"]);
    assert_eq!(page.entries[0].created, one, "compaction must not forget when a key was created");
    assert_eq!(current(store).await, last, "compaction is no change");
}

pub(super) async fn compaction_of_the_future_is_rejected(it: Subject) {
    let store = &it.store;
    let revision = put(store, "a", "1").await;
    let result = store.compact(Revision::new(revision.get() + 1000)).await;
    assert!(matches!(result, Err(CommitError::Rejected(_))), "{result:?}");
}

pub(super) async fn compaction_twice_is_fine(it: Subject) {
    let store = &it.store;
    let one = put(store, "a", "1").await;
    let two = put(store, "a", "2").await;
    for before in [two, two, one] {
        assert_eq!(store.compact(before).await, Ok(()));
    }
    assert_eq!(show(&list(store, &everything(), ReadAt::Revision(two), ALL).await), ["a=2"]);
}

pub(super) async fn many_keys_are_listed_and_counted(it: Subject) {
    let store = &it.store;
    for chunk in 0..20 {
        let txn =
            (0..100).fold(Txn::new(), |txn, n| txn.put(&key(&format!("{chunk:02}-{n:02}")), text("value")));
        store.commit(txn).await.expect("a hundred puts fit");
    }
    let page = list(store, &everything(), ReadAt::Latest, 500).await;
    assert_eq!((page.entries.len(), page.remaining), (500, 1500));
    let page = list(store, &everything(), ReadAt::Latest, ALL).await;
    assert_eq!((page.entries.len(), page.remaining), (2000, 0));
    assert!(page.entries.is_sorted_by_key(|it| it.key.clone()));
}

/// All entries of a range in key order, by a scan in portions of `limit`, with this key written in between.
async fn scan(
    store: &SharedStore,
    range: &Range,
    at: ReadAt,
    limit: usize,
    disturbed: Option<&str>,
) -> Result<Vec<Entry>, ReadError> {
    let (mut entries, mut at, mut from): (Vec<Entry>, ReadAt, Option<Place>) = (Vec::new(), at, None);
    loop {
        let portion = store.scan(range, at, from, limit).await?;
        entries.extend(portion.entries);
        at = ReadAt::Revision(portion.revision);
        from = portion.next;
        if from.is_none() {
            entries.sort_by(|a, b| a.key.cmp(&b.key));
            return Ok(entries);
        }
        if let Some(name) = disturbed {
            put(store, name, "new").await;
        }
    }
}

pub(super) async fn a_scan_finds_what_a_list_finds(it: Subject) {
    let store = &it.store;
    let mut revisions = vec![put(store, "a/1", "1").await];
    for (name, value) in [("b/1", "1"), ("a/2", "1"), ("a/1", "2"), ("c", "1"), ("b/1", "2"), ("a/1", "3")] {
        revisions.push(put(store, name, value).await);
    }
    revisions.push(delete(store, "a/2").await);
    revisions.push(put(store, "a/2", "again").await);
    let both = Txn::new().put(&key("a/3"), "x".into()).put(&key("a/4"), "y".into());
    revisions.push(store.commit(both).await.expect("a commit must work"));
    revisions.push(delete(store, "c").await);
    for range in [everything(), Range::prefix("/conformance/a/"), Range::prefix("/conformance/none/")] {
        for at in revisions.iter().map(|it| ReadAt::Revision(*it)).chain([ReadAt::Latest]) {
            let listed = list(store, &range, at, ALL).await.entries;
            for limit in [1, 2, 3, 1000] {
                let scanned = scan(store, &range, at, limit, None).await;
                assert_eq!(scanned.as_ref(), Ok(&listed), "{at:?} with limit {limit}");
            }
        }
    }
}

pub(super) async fn a_scan_at_one_revision_is_not_disturbed_by_writes(it: Subject) {
    let store = &it.store;
    for name in ["a", "b", "c", "d", "e"] {
        put(store, name, "old").await;
    }
    for name in ["a", "e", "f"] {
        let listed = list(store, &everything(), ReadAt::Latest, ALL).await.entries;
        let scanned = scan(store, &everything(), ReadAt::Latest, 1, Some(name)).await;
        assert_eq!(scanned, Ok(listed));
    }
}

pub(super) async fn a_scan_of_a_compacted_revision_is_refused(it: Subject) {
    let store = &it.store;
    let old = put(store, "a", "1").await;
    put(store, "a", "2").await;
    let now = put(store, "b", "1").await;
    store.compact(now).await.expect("compaction must work");
    let refused = scan(store, &everything(), ReadAt::Revision(old), 10, None).await;
    assert!(matches!(refused, Err(ReadError::Compacted { .. })), "{refused:?}");
    let listed = list(store, &everything(), ReadAt::Latest, ALL).await.entries;
    assert_eq!(scan(store, &everything(), ReadAt::Latest, 1, None).await, Ok(listed));
}
