//! Rules about watches.

use std::time::Duration;

use super::{Progress, Subject, support::*};
use crate::{Event, Range, Revision, Store, Txn, WatchError};

pub(super) async fn a_watch_delivers_what_happens_after_it_started(it: Subject) {
    let store = &it.store;
    let before = put(store, "old", "1").await;
    let mut events = watch(store, &everything(), before).await;
    let one = put(store, "a", "1").await;
    let event = collect(&mut events, 1).await.remove(0);
    match &event {
        Event::Put(entry) => assert_eq!((entry.created, entry.modified, &entry.key), (one, one, &key("a"))),
        Event::Delete(..) => panic!("expected a put, got {event:?}"),
    }
    let two = put(store, "a", "2").await;
    let three = delete(store, "a").await;
    let events = collect(&mut events, 2).await;
    assert_eq!(events.iter().map(show_event).collect::<Vec<_>>(), ["a=2", "-a"]);
    assert_eq!(events.iter().map(Event::revision).collect::<Vec<_>>(), [two, three]);
    assert!(matches!(&events[0], Event::Put(it) if it.created == one));
}

pub(super) async fn a_watch_from_the_past_replays_every_event_once_in_order(it: Subject) {
    let store = &it.store;
    let before = current(store).await;
    let mut expected = Vec::new();
    for n in 0..60 {
        let name = format!("key-{}", n % 7);
        if n % 5 == 4 {
            delete(store, &name).await;
            expected.push(format!("-{name}"));
            put(store, &name, "again").await;
            expected.push(format!("{name}=again"));
        } else {
            put(store, &name, &n.to_string()).await;
            expected.push(format!("{name}={n}"));
        }
    }
    // A removal of a key that was not there yet is no event.
    let deletions_of_nothing = absent_deletions(&mut expected);
    let mut events = watch(store, &everything(), before).await;
    put(store, "last", "1").await;
    expected.push("last=1".into());
    let seen: Vec<String> = collect(&mut events, expected.len()).await.iter().map(show_event).collect();
    assert_eq!(seen, expected, "{deletions_of_nothing} removals had no effect");
}

/// Drops `-key` items for keys that do not exist at that point; says how many.
fn absent_deletions(expected: &mut Vec<String>) -> usize {
    let before = expected.len();
    let mut present = std::collections::BTreeSet::new();
    expected.retain(|it| match it.strip_prefix('-') {
        Some(name) => present.remove(name),
        None => {
            present.insert(it.split('=').next().unwrap_or_default().to_owned());
            true
        }
    });
    before - expected.len()
}

pub(super) async fn a_watch_sees_only_its_range(it: Subject) {
    let store = &it.store;
    let before = current(store).await;
    let txn = ["in/1", "in", "in0", "in/2"].iter().fold(Txn::new(), |txn, it| txn.put(&key(it), text("v")));
    store.commit(txn).await.expect("four puts fit");
    delete(store, "in0").await;
    delete(store, "in/1").await;
    let mut events = watch(store, &Range::prefix("/conformance/in/"), before).await;
    let mut seen: Vec<String> = collect(&mut events, 3).await.iter().map(show_event).collect();
    seen[..2].sort();
    assert_eq!(seen, ["in/1=v", "in/2=v", "-in/1"]);
}

pub(super) async fn a_revision_is_never_split_over_batches(it: Subject) {
    let store = &it.store;
    let before = current(store).await;
    let mut live = watch(store, &everything(), before).await;
    for round in 0..40 {
        let txn =
            (0..50).fold(Txn::new(), |txn, n| txn.put(&key(&format!("{n:02}")), text(&round.to_string())));
        store.commit(txn).await.expect("fifty puts fit");
    }
    let mut replay = watch(store, &everything(), before).await;
    for events in [&mut live, &mut replay] {
        let mut n_events = 0;
        let mut seen = before;
        while n_events < 2000 {
            let batch = next_batch(events).await;
            check_batch(&batch, seen);
            seen = batch.revision;
            n_events += batch.events.len();
            for revision in batch.events.iter().map(Event::revision) {
                let of_it = batch.events.iter().filter(|it| it.revision() == revision).count();
                assert_eq!(of_it, 50, "revision {revision} was split");
            }
        }
        assert_eq!(n_events, 2000);
    }
}

pub(super) async fn a_watch_reports_progress_for_other_keys(it: Subject) {
    if it.progress == Progress::Unpromised {
        return;
    }
    let store = &it.store;
    let before = current(store).await;
    let mut events = watch(store, &Range::prefix("/conformance/quiet/"), before).await;
    for n in 0..3 {
        let revision = put(store, "noisy", &n.to_string()).await;
        let limit = Duration::from_secs(1);
        let batch =
            tokio::time::timeout(limit, next_batch(&mut events)).await.expect("progress must be prompt");
        assert_eq!((batch.revision, batch.events.len()), (revision, 0));
    }
}

pub(super) async fn a_watch_from_a_compacted_revision_is_refused(it: Subject) {
    let store = &it.store;
    let one = put(store, "a", "1").await;
    put(store, "a", "2").await;
    put(store, "a", "3").await;
    let kept = put(store, "a", "4").await;
    put(store, "a", "5").await;
    store.compact(kept).await.expect("compaction must work");
    match watch_error(store, one).await {
        WatchError::Compacted { oldest } => assert_eq!(oldest, kept),
        other => panic!("expected Compacted, got {other:?}"),
    }
}

pub(super) async fn a_watch_from_the_compaction_revision_works(it: Subject) {
    let store = &it.store;
    put(store, "a", "1").await;
    let kept = put(store, "b", "1").await;
    delete(store, "a").await;
    put(store, "b", "2").await;
    let mut live = watch(store, &everything(), kept).await;
    store.compact(kept).await.expect("compaction must work");
    let mut replay = watch(store, &everything(), kept).await;
    for events in [&mut live, &mut replay] {
        let seen: Vec<String> = collect(events, 2).await.iter().map(show_event).collect();
        assert_eq!(seen, ["-a", "b=2"]);
    }
}

pub(super) async fn a_watch_from_the_future_ends_as_went_back(it: Subject) {
    let store = &it.store;
    let revision = put(store, "a", "1").await;
    let future = Revision::new(revision.get() + 1000);
    match watch_error(store, future).await {
        WatchError::WentBack { seen, now } => assert!(seen == future && now >= revision && now < future),
        other => panic!("expected WentBack, got {other:?}"),
    }
}

pub(super) async fn many_watches_see_the_same(it: Subject) {
    let store = &it.store;
    let before = current(store).await;
    let mut watches = Vec::new();
    for _ in 0..50 {
        watches.push(watch(store, &everything(), before).await);
    }
    let expected: Vec<String> = (0..20).map(|n| format!("k{n}=v")).collect();
    for n in 0..20 {
        put(store, &format!("k{n}"), "v").await;
    }
    for events in &mut watches {
        let seen: Vec<String> = collect(events, 20).await.iter().map(show_event).collect();
        assert_eq!(seen, expected);
    }
}

pub(super) async fn a_watch_under_concurrent_writes_skips_nothing(it: Subject) {
    let before = current(&it.store).await;
    let mut live = watch(&it.store, &everything(), before).await;
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let store = it.store.clone();
            tokio::spawn(async move {
                let mut revisions = Vec::new();
                for n in 0..50 {
                    revisions.push(put(&store, &format!("w{writer}"), &n.to_string()).await);
                }
                revisions
            })
        })
        .collect();
    let seen: Vec<Revision> = collect(&mut live, 200).await.iter().map(Event::revision).collect();
    let mut written = Vec::new();
    for writer in writers {
        written.extend(writer.await.expect("a writer must not fail"));
    }
    written.sort_unstable();
    assert_eq!(seen, written);
}
