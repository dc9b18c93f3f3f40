//! Convoy without its fence, or without the grounds of its removals and creates: a store that forgets the requirements
//! that keep storage clean, or those that keep old knowledge from doing harm.
//!
//! Everything else is left as it is, so that whoever finds nothing here finds nothing at all.

use std::{fmt, time::Duration};

use store::{
    Change, CommitError, Entry, Events, Key, LeaseError, LeaseId, Leases, Page, Place, Portion, Range,
    ReadAt, ReadError, Require, Revision, SharedStore, Store, Txn, WatchError,
};

/// Where fences and members are.
const RECORDS: &str = "/convoy/";
const DEFINITIONS: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";

pub struct Unfenced {
    pub store: SharedStore,
    pub forgets: Forgets,
}

/// What is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgets {
    /// The record that proves the version of an object that is put.
    Fence,
    /// Whatever a removal or a create requires of other objects: namespace, definition, owner, lease.
    Grounds,
}

impl fmt::Debug for Unfenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unfenced")
    }
}

/// Which requirements stay. What servers agree on is agreed on as ever; only objects are put or removed without proof.
fn kept(txn: &Txn, forgets: Forgets) -> Vec<usize> {
    let is_record = |key: &Key| key.as_str().starts_with(RECORDS);
    let is_agreement = txn.changes.iter().map(Change::key).any(is_record);
    let is_removal = txn.changes.iter().any(|it| matches!(it, Change::Delete(_)));
    let is_kept = |it: &Require| match forgets {
        Forgets::Fence => !is_record(it.key()),
        // A definition proves the version of what is put, too.
        Forgets::Grounds => {
            let is_proof = it.key().as_str().starts_with(DEFINITIONS) && !is_removal;
            let is_own = txn.changes.iter().any(|change| change.key() == it.key());
            is_own || is_proof || is_record(it.key())
        }
    };
    let all = txn.require.iter().enumerate();
    all.filter(|(_, it)| is_agreement || is_kept(it)).map(|(n, _)| n).collect()
}

impl Store for Unfenced {
    async fn current(&self) -> Result<Revision, ReadError> {
        self.store.current().await
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, ReadError> {
        self.store.get(key).await
    }

    async fn list(&self, range: &Range, at: ReadAt, limit: usize) -> Result<Page, ReadError> {
        self.store.list(range, at, limit).await
    }

    async fn scan(
        &self,
        range: &Range,
        at: ReadAt,
        from: Option<Place>,
        limit: usize,
    ) -> Result<Portion, ReadError> {
        self.store.scan(range, at, from, limit).await
    }

    async fn watch(&self, range: &Range, after: Revision) -> Result<Events, WatchError> {
        self.store.watch(range, after).await
    }

    async fn commit(&self, txn: Txn) -> Result<Revision, CommitError> {
        let kept = kept(&txn, self.forgets);
        let all: Vec<Require> = txn.require.clone();
        let require = kept.iter().map(|n| all[*n].clone()).collect();
        match self.store.commit(Txn { require, changes: txn.changes }).await {
            Err(CommitError::Unmet { failed, current, revision }) => {
                // Whoever asked counts its own requirements.
                let mut whole = Vec::new();
                for (n, requirement) in all.iter().enumerate() {
                    let entry = match kept.iter().position(|it| *it == n) {
                        Some(place) => current[place].clone(),
                        None => self.store.get(requirement.key()).await.ok().flatten(),
                    };
                    whole.push(entry);
                }
                Err(CommitError::Unmet { failed: kept[failed], current: whole, revision })
            }
            other => other,
        }
    }

    async fn compact(&self, before: Revision) -> Result<(), CommitError> {
        self.store.compact(before).await
    }
}

impl Leases for Unfenced {
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, LeaseError> {
        self.store.grant(ttl).await
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), LeaseError> {
        self.store.renew(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), LeaseError> {
        self.store.revoke(lease).await
    }
}

#[test]
fn only_the_fence_of_objects_is_forgotten() {
    let (object, fence) = (Key::new("/registry/things/a"), Key::new("/convoy/fences/things"));
    let at = Revision::new(7);
    let put = Txn::new().put(&object, "{}".into()).require_at(&object, at).require_at(&fence, at);
    assert_eq!(kept(&put, Forgets::Fence), [0]);
    let vote = Txn::new().put(&fence, "{}".into()).put(&object, "{}".into()).require_at(&fence, at);
    assert_eq!(kept(&vote, Forgets::Fence), [0]);
}

#[test]
fn only_what_a_change_requires_of_other_objects_is_forgotten() {
    let (object, fence) = (Key::new("/registry/x/things/ns/a"), Key::new("/convoy/fences/things"));
    let (definition, namespace) =
        (Key::new(format!("{DEFINITIONS}things.x")), Key::new("/registry/namespaces/ns"));
    let at = Revision::new(7);
    let all = |txn: Txn| {
        let own = txn.require_at(&object, at).require_at(&fence, at);
        own.require_at(&definition, at).require_at(&namespace, at)
    };
    let put = all(Txn::new().put(&object, "{}".into()));
    assert_eq!(kept(&put, Forgets::Grounds), [0, 1, 2]);
    assert_eq!(kept(&all(Txn::new().delete(&object)), Forgets::Grounds), [0, 1]);
}
