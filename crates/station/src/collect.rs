//! Collects what the departed left, moves selections when their time has come, and puts mirrors back.
//!
//! Every member could do this at any time, because every write is conditional. So that they do not all do the same, the
//! eldest member does it at once and the others only if it is still to be done a while later.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use fleet::{
    Identity,
    agree::{self, Blocked, Facts, Plan, Waiting},
    collect::{self, Collect, Owner},
    fence::Fence,
    keys, mirror,
};
use jiff::Timestamp;
use meta::{GroupResource, Value};
use store::{Range, ReadAt, Require, Store, Txn};

use crate::{
    board::{Basis, Mirror},
    config::{About, Notice, Occasion},
    fences::Setback,
    station::Inner,
};

/// Changes come in bursts; one look is enough for all of them.
const GATHER: Duration = Duration::from_millis(50);

/// How much later than the eldest the next member acts.
const STEP: Duration = Duration::from_secs(2);

/// How often everything is looked at without a reason.
const AT_LEAST: Duration = Duration::from_secs(20);

impl Inner {
    /// Collects until the task is dropped.
    pub(crate) async fn keep_collected(self: Arc<Self>) {
        let mut ticks = self.ticks.subscribe();
        let mut known_refusals = BTreeSet::new();
        let mut until = AT_LEAST;
        loop {
            tokio::select! {
                _ = ticks.changed() => {}
                () = self.clock.sleep(until) => {}
            }
            self.wait_for_turn().await;
            ticks.borrow_and_update();
            if !self.is_member() {
                continue;
            }
            until = self.collect_all().await.min(AT_LEAST);
            self.tell_of_refusals(&mut known_refusals);
        }
    }

    /// Puts mirrors back until the task is dropped.
    pub(crate) async fn keep_mirrors(self: Arc<Self>) {
        let mut ticks = self.ticks.subscribe();
        loop {
            tokio::select! {
                _ = ticks.changed() => {}
                () = self.clock.sleep(AT_LEAST) => {}
            }
            self.wait_for_turn().await;
            ticks.borrow_and_update();
            if self.is_member() {
                self.mend_all().await;
            }
        }
    }

    async fn wait_for_turn(&self) {
        let rank = self.board.read().rank(&self.config.identity);
        let later = STEP.saturating_mul(u32::try_from(rank).unwrap_or(u32::MAX));
        self.clock.sleep(GATHER + later).await;
    }

    /// One look at every record. Says when to look again.
    async fn collect_all(&self) -> Duration {
        let fences = {
            let board = self.board.read();
            let mut fences = board.fences();
            // What an earlier process of this server left is replaced by its report, in its place.
            fences.retain(|it, _| self.config.resource(it).is_none() || board.own(it).is_some());
            fences
        };
        let mut next = AT_LEAST;
        for resource in fences.keys() {
            match self.collect_one(resource).await {
                Ok(Some(at)) => next = next.min(self.time_until(at)),
                Ok(None) => {}
                Err(Setback::Moved | Setback::Redefined) => next = GATHER,
                Err(setback) => {
                    tracing::debug!(%resource, %setback, "a storage version could not be collected");
                    next = next.min(Duration::from_secs(1));
                }
            }
        }
        let orphans = self.board.read().orphans();
        for (name, orphan) in orphans {
            if let Some(at) = self.collect_orphan(&name, &orphan).await {
                next = next.min(self.time_until(at));
            }
        }
        next
    }

    fn time_until(&self, at: Timestamp) -> Duration {
        let left = Duration::try_from(at.duration_since(self.clock.now())).unwrap_or_default();
        left.max(Duration::from_millis(10))
    }

    /// One record. The answer is when a departure in it has settled.
    async fn collect_one(&self, resource: &GroupResource) -> Result<Option<Timestamp>, Setback> {
        let basis = self.board.read().basis(resource).map_err(Setback::Failed)?;
        let Some(fence) = basis.fence.clone() else { return Ok(None) };
        let also;
        let (owner, definition);
        if fence.record.definition.is_none() {
            (owner, also) = (Owner::BuiltIn, Vec::new());
        } else {
            let key = self.around().definition_key(resource);
            definition = self.around().definition(resource);
            match &definition {
                Some(it) => {
                    owner = Owner::Custom(it);
                    also = vec![Require::At(key, it.revision)];
                }
                // Only the store can prove that it is gone.
                None => match self.read_now(&key).await? {
                    (Some(_), _) => return Ok(None),
                    (None, seen) => {
                        owner = Owner::Gone(seen);
                        also = vec![Require::Absent(key)];
                    }
                },
            }
        }
        let keys_remain = self.keys_remain(resource, &fence, &basis, &owner).await?;
        let cluster = self.board.read().cluster.clone();
        let agreement =
            cluster.ok_or_else(|| Setback::Failed("the modes are not known".to_owned()))?.agreement;
        let facts = Facts {
            resource,
            fence: Some(&fence.record),
            members: &basis.members,
            agreement,
            settle: self.config.settle,
            now: self.clock.now(),
            revision: basis.revision,
        };
        // Only a member says who is none: a server that has lost its lease, and does not know it yet, sees nobody.
        let member = self.membership().ok_or(Setback::NotMember)?;
        match collect::collect(&facts, &fence.record, owner, keys_remain) {
            Ok(Collect::Keep) => Ok(settled_at(&facts)),
            Ok(Collect::Write(plan)) => {
                self.write_plan(&basis, &plan, Some(member), also).await?;
                tracing::debug!(%resource, "what departed servers left in a storage version was collected");
                self.tell_of_move(&basis, &plan);
                let facts = Facts { fence: Some(&plan.record), ..facts };
                Ok(settled_at(&facts))
            }
            Ok(Collect::Remove) => {
                self.remove_fence(&basis, member, also).await?;
                tracing::info!(%resource, "the storage version of a resource that nobody serves was removed");
                Ok(None)
            }
            Err(Blocked::Behind { .. }) => Ok(None),
            Err(blocked) => Err(Setback::Failed(blocked.to_string())),
        }
    }

    /// Whether anything is stored of a resource that may be abandoned. Not looked at while somebody serves it.
    async fn keys_remain(
        &self,
        resource: &GroupResource,
        fence: &Fence,
        basis: &Basis,
        owner: &Owner<'_>,
    ) -> Result<bool, Setback> {
        let is_served = match owner {
            Owner::BuiltIn => basis.members.counted(resource).next().is_some(),
            Owner::Custom(_) => true,
            Owner::Gone(_) => false,
        };
        if is_served || !fence.record.entries.is_empty() {
            return Ok(true);
        }
        let prefix = match owner {
            // What this release does not know, it cannot look for.
            Owner::BuiltIn => match self.config.resource(resource) {
                Some(own) => own.prefix.clone(),
                None => return Ok(true),
            },
            Owner::Custom(_) | Owner::Gone(_) => self.around().custom_prefix(resource),
        };
        let page = self.store.list(&Range::prefix(&prefix), ReadAt::Latest, 1).await;
        page.map(|it| !it.entries.is_empty()).map_err(|it| Setback::Failed(it.to_string()))
    }

    /// A StorageVersion object that a person made and no server stands behind.
    async fn collect_orphan(&self, name: &str, orphan: &Mirror) -> Option<Timestamp> {
        let (object, modified) = (orphan.object.as_deref()?, orphan.modified?);
        let created = created(object);
        if !collect::is_orphan(None, created, self.clock.now()) {
            return created.checked_add(collect::ORPHAN_AGE).ok();
        }
        let key = store::Key::new(format!("{}{name}", self.config.mirrors));
        // A server may stand behind it by now.
        let fence = keys::fence_of_mirror(name);
        let txn = Txn::new().require_at(&key, modified).require_absent(&fence).delete(&key);
        if let Ok(revision) = self.store.commit(txn).await {
            self.board.write().note_mirror(name, None, revision);
            self.around().mirrored(name, None, Occasion::Collect);
            tracing::info!(name, "a StorageVersion that no server stands behind was removed");
        }
        None
    }

    async fn mend_all(&self) {
        let untrue: Vec<GroupResource> = {
            let board = self.board.read();
            let fences = board.fences();
            let is_untrue = |resource: &GroupResource, fence: &Fence| {
                !mirror::is_true(&fence.record, board.mirror(resource).object.as_deref())
            };
            fences.iter().filter(|(it, fence)| is_untrue(it, fence)).map(|(it, _)| it.clone()).collect()
        };
        for resource in untrue {
            if let Err(setback) = self.mend(&resource).await {
                tracing::debug!(%resource, %setback, "a StorageVersion could not be put back");
            }
        }
    }

    /// Puts one mirror back, if the store says that it is untrue: the board may show one of the two sooner.
    async fn mend(&self, resource: &GroupResource) -> Result<(), Setback> {
        self.read_again(resource).await?;
        let basis = self.board.read().basis(resource).map_err(Setback::Failed)?;
        let Some(fence) = &basis.fence else { return Ok(()) };
        if mirror::is_true(&fence.record, basis.mirror.object.as_deref()) {
            return Ok(());
        }
        let txn = Txn::new().require_at(&keys::fence(resource), fence.modified);
        let (txn, mirrored) = self.with_mirror(txn, &fence.record, &basis.mirror);
        let Some(object) = mirrored else { return Ok(()) };
        let revision = self.store.commit(txn).await.map_err(|it| Setback::Failed(it.to_string()))?;
        tracing::info!(%resource, "a StorageVersion that had been changed or deleted was put back");
        self.note_mirrored(resource, object, revision, Occasion::Mend);
        Ok(())
    }

    /// Tells people that a resource is stored in another version from now on.
    pub(crate) fn tell_of_move(&self, basis: &Basis, plan: &Plan) {
        let before = basis.fence.as_ref().and_then(|it| it.record.common.clone());
        let after = plan.record.common.clone();
        if before == after {
            return;
        }
        let name = keys::mirror_name(&plan.record.resource);
        let message = match (&before, &after) {
            (Some(before), Some(after)) => format!("All servers store {after} now, no longer {before}"),
            (None, Some(after)) => format!("All servers store {after}"),
            (_, None) => plan.record.condition.message.clone(),
        };
        if basis.fence.is_some() {
            tracing::info!(name, message, "the agreement on a storage version has changed");
            let reason = plan.record.condition.reason.as_str();
            let is_warning = after.is_none();
            self.around().noticed(&Notice { reason, is_warning, about: About::Resource(name), message });
        }
    }

    /// Tells people of servers that may not take part and therefore cannot tell themselves.
    fn tell_of_refusals(&self, known: &mut BTreeSet<(Identity, String)>) {
        let refusals: Vec<_> = self.board.read().refusals.values().cloned().collect();
        let now: BTreeSet<_> = refusals.iter().map(|it| (it.identity.clone(), it.reason.clone())).collect();
        for (identity, message) in now.difference(known) {
            let about = About::Server(identity.clone());
            let message = message.clone();
            self.around().noticed(&Notice { reason: "ServerRefused", is_warning: true, about, message });
        }
        *known = now;
    }
}

/// When the departures in a record have settled, if a selection waits for that.
fn settled_at(facts: &Facts<'_>) -> Option<Timestamp> {
    if facts.fence.is_some_and(|it| it.departed.is_empty()) {
        return None;
    }
    match agree::plan(facts, None).ok()?.waiting {
        Some(Waiting::Settle(_, at)) => Some(at),
        _ => None,
    }
}

fn created(object: &Value) -> Timestamp {
    let text = object.pointer("/metadata/creationTimestamp").and_then(Value::as_str);
    text.and_then(|it| it.parse().ok()).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests;
