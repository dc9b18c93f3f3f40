//! Rules about commits.

use bytes::Bytes;

use super::{Subject, support::*};
use crate::{CommitError, ReadAt, Revision, SharedStore, Store, Txn};

pub(super) async fn a_commit_returns_a_greater_revision_that_its_changes_carry(it: Subject) {
    let store = &it.store;
    let mut last = current(store).await;
    for name in ["a", "b", "a"] {
        let revision = put(store, name, "v").await;
        assert!(revision > last, "{revision} is not after {last}");
        assert_eq!(current(store).await, revision);
        assert_eq!(get(store, name).await.map(|it| it.modified), Some(revision));
        last = revision;
    }
    let removed = delete(store, "a").await;
    assert!(removed > last, "a removal is a change");
}

pub(super) async fn a_key_remembers_its_creation_until_it_is_removed(it: Subject) {
    let store = &it.store;
    let first = put(store, "a", "1").await;
    let second = put(store, "a", "2").await;
    let entry = get(store, "a").await.expect("the key must be there");
    assert_eq!((entry.created, entry.modified, entry.lease), (first, second, None));
    assert_eq!(entry.value, "2");
    delete(store, "a").await;
    assert_eq!(get(store, "a").await, None);
    let third = put(store, "a", "3").await;
    let entry = get(store, "a").await.expect("the key must be there again");
    assert_eq!((entry.created, entry.modified), (third, third));
}

pub(super) async fn a_commit_without_effect_returns_the_current_revision(it: Subject) {
    let store = &it.store;
    let revision = put(store, "a", "1").await;
    assert_eq!(store.commit(Txn::new()).await, Ok(revision));
    assert_eq!(delete(store, "absent").await, revision);
    let txn = Txn::new().delete(&key("absent")).delete(&key("absent-too"));
    assert_eq!(store.commit(txn).await, Ok(revision));
    assert_eq!(current(store).await, revision);
    // A put of the same bytes is a change all the same.
    assert!(put(store, "a", "1").await > revision);
}

pub(super) async fn requirements_that_hold_let_the_changes_happen(it: Subject) {
    let store = &it.store;
    let a = put(store, "a", "1").await;
    let b = put(store, "b", "1").await;
    let txn = Txn::new()
        .require_at(&key("a"), a)
        .require_at(&key("b"), b)
        .require_absent(&key("c"))
        .put(&key("a"), text("2"))
        .delete(&key("b"))
        .put(&key("c"), text("1"));
    let revision = store.commit(txn).await.expect("all requirements hold");
    let page = list(store, &everything(), ReadAt::Latest, ALL).await;
    assert_eq!(show(&page), ["a=2", "c=1"]);
    assert!(page.entries.iter().all(|it| it.modified == revision));
}

pub(super) async fn the_first_unmet_requirement_is_named_and_current_values_are_returned(it: Subject) {
    let store = &it.store;
    let a = put(store, "a", "1").await;
    let b = put(store, "b", "1").await;
    let newer = put(store, "b", "2").await;
    let require = || Txn::new().require_at(&key("a"), a).require_absent(&key("c"));
    let txn = require().require_at(&key("b"), b).require_absent(&key("a")).put(&key("a"), text("x"));
    let expected = [get(store, "a").await, None, get(store, "b").await, get(store, "a").await];
    match store.commit(txn).await {
        Err(CommitError::Unmet { failed, current, revision }) => {
            assert_eq!(failed, 2);
            assert_eq!(current, expected);
            assert_eq!(
                current[2].as_ref().map(|it| (it.modified, it.value.clone())),
                Some((newer, text("2")))
            );
            assert_eq!(revision, newer);
        }
        other => panic!("expected Unmet, got {other:?}"),
    }
    let absent = Txn::new().require_at(&key("absent"), a);
    let unmet = store.commit(absent).await;
    assert!(
        matches!(&unmet, Err(CommitError::Unmet { failed: 0, current, .. }) if current == &[None]),
        "{unmet:?}"
    );
}

pub(super) async fn requirements_alone_are_checked(it: Subject) {
    let store = &it.store;
    let a = put(store, "a", "1").await;
    let b = put(store, "b", "1").await;
    assert_eq!(store.commit(Txn::new().require_at(&key("a"), a)).await, Ok(b));
    let unmet = store.commit(Txn::new().require_absent(&key("a"))).await;
    assert!(matches!(unmet, Err(CommitError::Unmet { failed: 0, .. })), "{unmet:?}");
}

pub(super) async fn an_unmet_transaction_changes_nothing(it: Subject) {
    let store = &it.store;
    let revision = put(store, "a", "1").await;
    let txn = Txn::new().put(&key("b"), text("1")).delete(&key("a")).require_absent(&key("a"));
    store.commit(txn).await.expect_err("the key exists");
    let page = list(store, &everything(), ReadAt::Latest, ALL).await;
    assert_eq!((show(&page), page.revision), (vec!["a=1".to_owned()], revision));
}

pub(super) async fn a_key_may_not_change_twice_in_one_transaction(it: Subject) {
    let store = &it.store;
    let before = current(store).await;
    for txn in [
        Txn::new().put(&key("a"), text("1")).put(&key("a"), text("2")),
        Txn::new().put(&key("a"), text("1")).delete(&key("a")),
        Txn::new().delete(&key("a")).put(&key("b"), text("1")).delete(&key("a")),
    ] {
        let result = store.commit(txn).await;
        assert!(matches!(result, Err(CommitError::Rejected(_))), "{result:?}");
    }
    assert_eq!(current(store).await, before);
}

pub(super) async fn an_empty_key_is_rejected(it: Subject) {
    let result = it.store.commit(Txn::new().put(&crate::Key::new(""), text("1"))).await;
    assert!(matches!(result, Err(CommitError::Rejected(_))), "{result:?}");
}

pub(super) async fn many_keys_change_in_one_transaction(it: Subject) {
    // 100 is what every etcd takes by default, with some to spare for fences.
    let store = &it.store;
    let before = current(store).await;
    let txn = (0..100).fold(Txn::new(), |txn, n| txn.put(&key(&format!("{n:03}")), text("v")));
    let revision = store.commit(txn).await.expect("a hundred puts fit");
    let page = list(store, &everything(), ReadAt::Latest, ALL).await;
    assert_eq!(page.entries.len(), 100);
    assert!(page.entries.iter().all(|it| it.created == revision && it.modified == revision));
    let mut events = watch(store, &everything(), before).await;
    assert_eq!(next_batch(&mut events).await.events.len(), 100);
}

pub(super) async fn a_value_of_one_mebibyte_is_kept(it: Subject) {
    let store = &it.store;
    let before = current(store).await;
    let bytes: Vec<u8> =
        (0_u32..1 << 18).flat_map(|it| it.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let value = Bytes::from(bytes);
    store.commit(Txn::new().put(&key("large"), value.clone())).await.expect("a mebibyte fits");
    assert!(get(store, "large").await.is_some_and(|it| it.value == value), "the value differs");
    let page = list(store, &everything(), ReadAt::Latest, 1).await;
    assert!(page.entries[0].value == value, "the value differs in a list");
    let mut events = watch(store, &everything(), before).await;
    let event = collect(&mut events, 1).await.remove(0);
    assert!(matches!(event, crate::Event::Put(it) if it.value == value), "the value differs in a watch");
}

pub(super) async fn empty_values_are_not_removals(it: Subject) {
    let store = &it.store;
    put(store, "a", "").await;
    assert!(get(store, "a").await.is_some_and(|it| it.value.is_empty()));
}

pub(super) async fn concurrent_increments_lose_no_update(it: Subject) {
    put(&it.store, "counter", "0").await;
    let tasks: Vec<_> = (0..8).map(|_| tokio::spawn(increment(it.store.clone(), 25))).collect();
    let mut revisions = Vec::new();
    for task in tasks {
        revisions.extend(task.await.expect("an incrementing task must not fail"));
    }
    let entry = get(&it.store, "counter").await.expect("the counter must be there");
    assert_eq!(entry.value, "200");
    revisions.sort_unstable();
    revisions.dedup();
    assert_eq!(revisions.len(), 200, "two commits got the same revision");
}

async fn increment(store: SharedStore, times: usize) -> Vec<Revision> {
    let mut entry = get(&store, "counter").await.expect("the counter must be there");
    let mut revisions = Vec::new();
    while revisions.len() < times {
        let value: u64 = String::from_utf8_lossy(&entry.value).parse().expect("the counter must be a number");
        let txn =
            Txn::new().require_at(&entry.key, entry.modified).put(&entry.key, text(&(value + 1).to_string()));
        match store.commit(txn).await {
            Ok(revision) => {
                revisions.push(revision);
                entry = get(&store, "counter").await.expect("the counter must be there");
            }
            Err(CommitError::Unmet { current, .. }) => {
                entry = current.into_iter().flatten().next().expect("the counter must be there");
            }
            Err(error) => panic!("an increment failed: {error}"),
        }
    }
    revisions
}

pub(super) async fn concurrent_creations_have_one_winner(it: Subject) {
    for round in 0..10 {
        let name = format!("prize-{round}");
        let tasks: Vec<_> = (0..8)
            .map(|n: usize| {
                let store = it.store.clone();
                let txn = Txn::new().require_absent(&key(&name)).put(&key(&name), text(&n.to_string()));
                tokio::spawn(async move { (n, store.commit(txn).await) })
            })
            .collect();
        let mut winners = Vec::new();
        for task in tasks {
            match task.await.expect("a creating task must not fail") {
                (n, Ok(_)) => winners.push(n),
                (_, Err(CommitError::Unmet { .. })) => {}
                (n, Err(error)) => panic!("creation {n} failed: {error}"),
            }
        }
        let value = get(&it.store, &name).await.expect("somebody must have won").value;
        assert_eq!(
            winners.iter().map(usize::to_string).collect::<Vec<_>>(),
            [String::from_utf8_lossy(&value)]
        );
    }
}
