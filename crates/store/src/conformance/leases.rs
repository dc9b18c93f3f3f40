//! Rules about leases.

use std::time::Duration;

use super::{Subject, support::*};
use crate::{CommitError, LeaseError, LeaseId, Leases, Store, Txn};

/// A lease that no case outlives.
const LONG: u64 = 600;

pub(super) async fn a_key_goes_when_its_lease_is_revoked(it: Subject) {
    let store = &it.store;
    let lease = grant(store, LONG).await;
    put_leased(store, "a", lease).await;
    put_leased(store, "b", lease).await;
    let before = put(store, "free", "1").await;
    assert_eq!(get(store, "a").await.and_then(|it| it.lease), Some(lease));
    store.revoke(lease).await.expect("the lease must be revocable");
    assert_eq!((get(store, "a").await, get(store, "b").await), (None, None));
    assert!(get(store, "free").await.is_some());
    assert!(current(store).await > before);
    put(store, "end", "1").await;
    let mut events = watch(store, &everything(), before).await;
    let mut seen: Vec<String> = collect(&mut events, 3).await.iter().map(show_event).collect();
    seen[..2].sort();
    assert_eq!(seen, ["-a", "-b", "end=1"]);
}

pub(super) async fn a_key_goes_when_its_lease_expires(it: Subject) {
    let store = &it.store;
    let lease = grant(store, 2).await;
    let before = put_leased(store, "a", lease).await;
    let mut events = watch(store, &everything(), before).await;
    pass(&it, Duration::from_secs(3)).await;
    // The removal must come by itself, without anybody calling the store.
    let seen: Vec<String> = collect(&mut events, 1).await.iter().map(show_event).collect();
    assert_eq!(seen, ["-a"]);
    assert_eq!(get(store, "a").await, None);
    assert_eq!(store.renew(lease).await, Err(LeaseError::NotFound(lease)));
}

pub(super) async fn renewing_keeps_a_lease_alive(it: Subject) {
    let store = &it.store;
    let lease = grant(store, 5).await;
    put_leased(store, "a", lease).await;
    for _ in 0..4 {
        pass(&it, Duration::from_secs(2)).await;
        assert_eq!(store.renew(lease).await, Ok(()));
    }
    assert!(get(store, "a").await.is_some(), "the key went although its lease was renewed");
}

pub(super) async fn a_missing_lease_cannot_be_renewed_or_revoked(it: Subject) {
    let store = &it.store;
    let lease = grant(store, LONG).await;
    store.revoke(lease).await.expect("the lease must be revocable");
    for lease in [lease, LeaseId(987_654_321)] {
        assert_eq!(store.renew(lease).await, Err(LeaseError::NotFound(lease)));
        assert_eq!(store.revoke(lease).await, Err(LeaseError::NotFound(lease)));
    }
}

pub(super) async fn a_put_on_a_missing_lease_changes_nothing(it: Subject) {
    let store = &it.store;
    let before = put(store, "a", "1").await;
    let lease = LeaseId(987_654_321);
    let txn = Txn::new().put_leased(&key("leased"), text("v"), lease);
    assert_eq!(store.commit(txn).await, Err(CommitError::NoLease(lease)));
    assert_eq!((current(store).await, get(store, "leased").await), (before, None));
}

pub(super) async fn a_put_without_a_lease_detaches_the_key(it: Subject) {
    let store = &it.store;
    let lease = grant(store, LONG).await;
    put_leased(store, "a", lease).await;
    put(store, "a", "free").await;
    assert_eq!(get(store, "a").await.and_then(|it| it.lease), None);
    store.revoke(lease).await.expect("the lease must be revocable");
    assert!(get(store, "a").await.is_some_and(|it| it.value == "free"));
}

pub(super) async fn a_put_on_another_lease_moves_the_key(it: Subject) {
    let store = &it.store;
    let (old, new) = (grant(store, LONG).await, grant(store, LONG).await);
    assert_ne!(old, new);
    put_leased(store, "a", old).await;
    put_leased(store, "a", new).await;
    store.revoke(old).await.expect("the lease must be revocable");
    assert_eq!(get(store, "a").await.and_then(|it| it.lease), Some(new));
    store.revoke(new).await.expect("the lease must be revocable");
    assert_eq!(get(store, "a").await, None);
}

pub(super) async fn a_removed_key_is_not_removed_again_with_its_lease(it: Subject) {
    let store = &it.store;
    let lease = grant(store, LONG).await;
    put_leased(store, "a", lease).await;
    delete(store, "a").await;
    let before = put(store, "a", "again").await;
    store.revoke(lease).await.expect("the lease must be revocable");
    assert_eq!(current(store).await, before, "revoking a lease without keys is no change");
    assert!(get(store, "a").await.is_some());
}
