//! Writes a planned fence record, with its mirror, in one transaction; and takes in what the store says to that.

use std::{sync::Arc, time::Duration};

use fleet::{
    FenceRecord,
    agree::Plan,
    keys, mirror,
    write::{self, Basis as WriteBasis},
};
use meta::{GroupResource, Value};
use store::{CommitError, Entry, Key, Range, ReadAt, Require, Revision, Store, Txn};
use uuid::Uuid;

use crate::{
    board::{Basis, Mirror},
    config::Occasion,
    station::Inner,
};

/// How long the board may take to show who joined.
const JOINED_WITHIN: Duration = Duration::from_secs(5);

/// Why a planned record was not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Setback {
    /// What it was planned on has changed; the board shows how. Plan again.
    #[error("somebody else was faster")]
    Moved,
    /// This server is no longer the member that planned it.
    #[error("this server is not a member of the cluster at the moment")]
    NotMember,
    /// The definition that it was planned by has changed.
    #[error("the definition has changed")]
    Redefined,
    /// The store failed, or something is not known.
    #[error("{0}")]
    Failed(String),
}

impl Inner {
    /// Writes the record of a plan that takes note of departures.
    pub(crate) async fn write_plan(
        &self,
        basis: &Basis,
        plan: &Plan,
        member: Option<Revision>,
        also: Vec<Require>,
    ) -> Result<(), Setback> {
        self.write_plan_on(Occasion::Collect, basis, plan, member, also).await
    }

    /// Writes the record of a plan. `member` is the revision of this server's record, if only a member may write it; `also`
    /// is what else the plan was based on.
    pub(crate) async fn write_plan_on(
        &self,
        occasion: Occasion,
        basis: &Basis,
        plan: &Plan,
        member: Option<Revision>,
        also: Vec<Require>,
    ) -> Result<(), Setback> {
        let resource = &plan.record.resource;
        let on = WriteBasis {
            fence: basis.fence.as_ref().map(|it| it.modified),
            joined: basis.joined,
            member: member.map(|it| (self.config.identity.clone(), it)),
            also,
        };
        let txn = write::fence(plan, &on).map_err(|it| Setback::Failed(it.to_string()))?;
        let (txn, mirrored) = self.with_mirror(txn, &plan.record, &basis.mirror);
        let required = txn.require.clone();
        match self.store.commit(txn).await {
            Ok(revision) => {
                self.note_written(plan, mirrored, revision, occasion);
                Ok(())
            }
            Err(CommitError::Unmet { current, revision, .. }) => {
                self.around().fence_retried(resource);
                self.absorb(resource, &required, &current, revision).await
            }
            Err(error @ CommitError::Unavailable(_)) => {
                // It may have happened: only the store knows.
                self.read_again(resource).await?;
                Err(Setback::Failed(error.to_string()))
            }
            Err(error) => Err(Setback::Failed(error.to_string())),
        }
    }

    /// Removes the record of a resource that is no more, with its mirror.
    pub(crate) async fn remove_fence(
        &self,
        basis: &Basis,
        member: Revision,
        also: Vec<Require>,
    ) -> Result<(), Setback> {
        let Some(fence) = &basis.fence else { return Ok(()) };
        let resource = &fence.record.resource;
        let member = Some((self.config.identity.clone(), member));
        let on = WriteBasis { fence: Some(fence.modified), joined: basis.joined, member, also };
        let mut txn = write::remove_fence(&fence.record, &on);
        if let Some(modified) = basis.mirror.modified {
            let key = self.mirror_key(resource);
            txn = txn.require_at(&key, modified).delete(&key);
        }
        let required = txn.require.clone();
        match self.store.commit(txn).await {
            Ok(revision) => {
                self.board.write().note_fence(resource, None, revision);
                if basis.mirror.modified.is_some() {
                    self.note_mirrored(resource, None, revision, Occasion::Collect);
                }
                Ok(())
            }
            Err(CommitError::Unmet { current, revision, .. }) => {
                self.absorb(resource, &required, &current, revision).await
            }
            Err(error) => Err(Setback::Failed(error.to_string())),
        }
    }

    /// Where the StorageVersion object of a resource is.
    pub(crate) fn mirror_key(&self, resource: &GroupResource) -> Key {
        Key::new(format!("{}{}", self.config.mirrors, keys::mirror_name(resource)))
    }

    /// Adds the mirror of a record to a transaction, unless it is there already as it should be. The answer also says
    /// what it becomes.
    pub(crate) fn with_mirror(
        &self,
        txn: Txn,
        record: &FenceRecord,
        now: &Mirror,
    ) -> (Txn, Option<Option<Value>>) {
        let uid = Uuid::new_v4().to_string();
        let new = mirror::New { uid: &uid, now: self.clock.now() };
        let existing = now.object.as_deref();
        let object = mirror::mirror(record, existing, new);
        if object.as_ref() == existing {
            return (txn, None);
        }
        let key = self.mirror_key(&record.resource);
        let txn = match now.modified {
            Some(modified) => txn.require_at(&key, modified),
            None => txn.require_absent(&key),
        };
        let txn = match &object {
            Some(object) => txn.put(&key, object.to_string().into()),
            None => txn.delete(&key),
        };
        (txn, Some(object))
    }

    fn note_written(
        &self,
        plan: &Plan,
        mirrored: Option<Option<Value>>,
        revision: Revision,
        occasion: Occasion,
    ) {
        self.board.write().note_written(plan.record.clone(), revision);
        if let Some(object) = mirrored {
            self.note_mirrored(&plan.record.resource, object, revision, occasion);
        }
        self.tick();
    }

    /// A mirror has become this.
    pub(crate) fn note_mirrored(
        &self,
        resource: &GroupResource,
        object: Option<Value>,
        revision: Revision,
        occasion: Occasion,
    ) {
        let name = keys::mirror_name(resource);
        let object = object.map(Arc::new);
        self.board.write().note_mirror(&name, object.clone().map(|it| (it, revision)), revision);
        self.around().mirrored(&name, object.as_ref(), occasion);
    }

    /// Puts on the board what a failed transaction found.
    async fn absorb(
        &self,
        resource: &GroupResource,
        required: &[Require],
        current: &[Option<Entry>],
        revision: Revision,
    ) -> Result<(), Setback> {
        let (fence, mirror) = (keys::fence(resource), self.mirror_key(resource));
        let own = keys::member(&self.config.identity);
        let mut setback = Setback::Moved;
        let mut joined = None;
        for (require, found) in required.iter().zip(current) {
            let is_met = require.holds(found.as_ref().map(|it| it.modified));
            let key = require.key();
            if *key == fence {
                self.board.write().note_fence(resource, found.as_ref(), revision);
            } else if *key == mirror {
                let mut board = self.board.write();
                match found {
                    Some(entry) => board.note_mirror_entry(entry, &self.config.mirrors, revision),
                    None => board.note_mirror(&keys::mirror_name(resource), None, revision),
                }
            } else if is_met {
            } else if *key == keys::joined() {
                joined = found.as_ref().map(|it| it.modified);
            } else if *key == own {
                setback = Setback::NotMember;
            } else {
                setback = Setback::Redefined;
            }
        }
        self.tick();
        if let (Some(joined), Setback::Moved) = (joined, &setback) {
            // Who is a member comes from the watch alone.
            self.reach(joined, JOINED_WITHIN).await.map_err(Setback::Failed)?;
        }
        Err(setback)
    }

    /// Reads fence and mirror of a resource from the store.
    pub(crate) async fn read_again(&self, resource: &GroupResource) -> Result<(), Setback> {
        let (fence, seen) = self.read_now(&keys::fence(resource)).await?;
        let (mirror, mirror_seen) = self.read_now(&self.mirror_key(resource)).await?;
        {
            let mut board = self.board.write();
            board.note_fence(resource, fence.as_ref(), seen);
            match &mirror {
                Some(entry) => board.note_mirror_entry(entry, &self.config.mirrors, mirror_seen),
                None => board.note_mirror(&keys::mirror_name(resource), None, mirror_seen),
            }
        }
        self.tick();
        Ok(())
    }

    /// One key, and the revision at which it was read.
    pub(crate) async fn read_now(&self, key: &Key) -> Result<(Option<Entry>, Revision), Setback> {
        let page = self.store.list(&Range::single(key), ReadAt::Latest, 1).await;
        let page = page.map_err(|it| Setback::Failed(it.to_string()))?;
        Ok((page.entries.into_iter().next(), page.revision))
    }
}
