//! Convoy without its fence: a store that forgets the one requirement that keeps storage clean.
//!
//! Everything else is left as it is, so that whoever finds nothing here finds nothing at all.

use std::{fmt, time::Duration};

use store::{
    Change, CommitError, Entry, Events, Key, LeaseError, LeaseId, Leases, Page, Place, Portion, Range,
    ReadAt, ReadError, Require, Revision, SharedStore, Store, Txn, WatchError,
};

/// Where fences and members are.
const RECORDS: &str = "/convoy/";

pub struct Unfenced(pub SharedStore);

impl fmt::Debug for Unfenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unfenced")
    }
}

/// Which requirements stay. What servers agree on is agreed on as ever; only objects are put without proof.
fn kept(txn: &Txn) -> Vec<usize> {
    let is_record = |key: &Key| key.as_str().starts_with(RECORDS);
    let is_agreement = txn.changes.iter().map(Change::key).any(is_record);
    let all = txn.require.iter().enumerate();
    all.filter(|(_, it)| is_agreement || !is_record(it.key())).map(|(n, _)| n).collect()
}

impl Store for Unfenced {
    async fn current(&self) -> Result<Revision, ReadError> {
        self.0.current().await
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, ReadError> {
        self.0.get(key).await
    }

    async fn list(&self, range: &Range, at: ReadAt, limit: usize) -> Result<Page, ReadError> {
        self.0.list(range, at, limit).await
    }

    async fn scan(
        &self,
        range: &Range,
        at: ReadAt,
        from: Option<Place>,
        limit: usize,
    ) -> Result<Portion, ReadError> {
        self.0.scan(range, at, from, limit).await
    }

    async fn watch(&self, range: &Range, after: Revision) -> Result<Events, WatchError> {
        self.0.watch(range, after).await
    }

    async fn commit(&self, txn: Txn) -> Result<Revision, CommitError> {
        let kept = kept(&txn);
        let all: Vec<Require> = txn.require.clone();
        let require = kept.iter().map(|n| all[*n].clone()).collect();
        match self.0.commit(Txn { require, changes: txn.changes }).await {
            Err(CommitError::Unmet { failed, current, revision }) => {
                // Whoever asked counts its own requirements.
                let mut whole = Vec::new();
                for (n, requirement) in all.iter().enumerate() {
                    let entry = match kept.iter().position(|it| *it == n) {
                        Some(place) => current[place].clone(),
                        None => self.0.get(requirement.key()).await.ok().flatten(),
                    };
                    whole.push(entry);
                }
                Err(CommitError::Unmet { failed: kept[failed], current: whole, revision })
            }
            other => other,
        }
    }

    async fn compact(&self, before: Revision) -> Result<(), CommitError> {
        self.0.compact(before).await
    }
}

impl Leases for Unfenced {
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, LeaseError> {
        self.0.grant(ttl).await
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), LeaseError> {
        self.0.renew(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), LeaseError> {
        self.0.revoke(lease).await
    }
}

#[test]
fn only_the_fence_of_objects_is_forgotten() {
    let (object, fence) = (Key::new("/registry/things/a"), Key::new("/convoy/fences/things"));
    let at = Revision::new(7);
    let put = Txn::new().put(&object, "{}".into()).require_at(&object, at).require_at(&fence, at);
    assert_eq!(kept(&put), [0]);
    let vote = Txn::new().put(&fence, "{}".into()).put(&object, "{}".into()).require_at(&fence, at);
    assert_eq!(kept(&vote), [0]);
}
