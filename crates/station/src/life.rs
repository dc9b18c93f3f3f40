//! The life of a member: it joins, stays as long as its lease lives, and joins again when it has lost it.
//!
//! ```text
//! Joining ──► Member ──lease or record lost──► Lost ──► Member …
//!    │           │──cannot read what is written──► Refused ──obstacle gone──► Member
//!    │           │──another process has the identity──► Ended
//!    └──refused──► Refused     └──told to leave──► Left
//! ```
//!
//! Deliberately not here: whether it may join ([`fleet::member`]), and what it reports ([`crate::report`]).

use std::{sync::Arc, time::Duration};

use fleet::{
    FenceRecord, MemberRecord,
    agree::Facts,
    cluster::ClusterRecord,
    collect,
    member::{self, Applicant, Join, JoinError, Other, Standing},
    record, stored, write,
};
use meta::GroupResource;
use store::{CommitError, LeaseId, Leases, Revision, Store, Txn};

use crate::{
    config::{About, Notice},
    fences::Setback,
    refusal::{self, Refusal},
    station::Inner,
};

/// How long a peer may take to say who it is.
const PROBE_WITHIN: Duration = Duration::from_secs(2);

/// Between two attempts to join: after a refusal, and after a failure at first and at most.
const AFTER_REFUSAL: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How old what is known of selections may be where the guarantee is loose. The migrator waits a minute after each move
/// for writes that are still encoded as before; what is left of it is for the write itself.
const HEARD_WITHIN: Duration = Duration::from_secs(30);

/// How long the board may take to show what was just committed.
const REACH_WITHIN: Duration = Duration::from_secs(5);

/// Where a server is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Life {
    /// Not a member yet.
    Joining,
    /// Kept out until somebody acts, and why.
    Refused(String),
    /// A member, by the record of this revision.
    Member(Revision),
    /// It was a member, and joins again.
    Lost,
    /// Another process has its identity: this one must stop.
    Ended(String),
    /// It left.
    Left,
}

/// What a member is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Stay,
    /// The server stops.
    Leave,
    /// It must not be a member, for this reason.
    Withdraw(String),
}

/// Why a server is not a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotJoined {
    /// Somebody must act.
    Refused(String),
    /// The identity is alive elsewhere.
    Taken(String),
    /// Try again.
    Failed(String),
}

/// Why a member no longer is one.
enum Parting {
    Lost,
    TakenOver(String),
    Told(Order),
}

impl Inner {
    /// Lives until told to leave.
    pub(crate) async fn live(self: Arc<Self>) {
        self.loaded().await;
        let mut note: Option<LeaseId> = None;
        let mut pause = PAUSE;
        loop {
            if *self.orders.borrow() == Order::Leave {
                self.withdraw_note(note.take()).await;
                self.set_life(Life::Left);
                return;
            }
            match self.become_member().await {
                Ok((revision, lease)) => {
                    pause = PAUSE;
                    self.withdraw_note(note.take()).await;
                    if self.spend(revision, lease).await.is_none() {
                        return;
                    }
                }
                Err(NotJoined::Taken(why)) => {
                    self.set_life(Life::Ended(why));
                    return;
                }
                Err(NotJoined::Refused(why)) => {
                    self.refuse(&why, &mut note).await;
                    self.clock.sleep(AFTER_REFUSAL).await;
                }
                Err(NotJoined::Failed(why)) => {
                    tracing::warn!(why, "joining the cluster failed; trying again");
                    self.clock.sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// The time as a member. `None` if there is no life after it.
    async fn spend(&self, revision: Revision, lease: LeaseId) -> Option<()> {
        let now = self.clock.monotonic();
        (*self.began.lock(), *self.met.lock()) = (now, Some(now));
        self.hear().await;
        self.set_life(Life::Member(revision));
        tracing::info!(identity = %self.config.identity, incarnation = %self.config.incarnation, "joined the cluster");
        let parting = self.stay(lease).await;
        match parting {
            Parting::Lost => {
                tracing::warn!(
                    "no longer a member of the cluster: writes wait until this server has joined again"
                );
                self.set_life(Life::Lost);
                let _ = self.store.revoke(lease).await;
                Some(())
            }
            Parting::TakenOver(why) => {
                self.set_life(Life::Ended(why));
                None
            }
            Parting::Told(order) => {
                // Whatever still wants to write is refused before the record goes.
                let life = match &order {
                    Order::Withdraw(why) => Life::Refused(why.clone()),
                    Order::Leave | Order::Stay => Life::Lost,
                };
                self.set_life(life);
                self.remove_record(revision, lease).await;
                if order == Order::Leave {
                    self.set_life(Life::Left);
                    return None;
                }
                self.orders.send_if_modified(|it| {
                    let is_old = *it == order;
                    if is_old {
                        *it = Order::Stay;
                    }
                    is_old
                });
                Some(())
            }
        }
    }

    /// Keeps the lease alive and looks at the own record whenever something changes.
    async fn stay(&self, lease: LeaseId) -> Parting {
        let mut ticks = self.ticks.subscribe();
        let mut orders = self.orders.subscribe();
        let every = self.config.lease / 3;
        let mut renewal = self.clock.sleep(every);
        loop {
            if *orders.borrow_and_update() != Order::Stay {
                return Parting::Told(self.orders.borrow().clone());
            }
            match self.standing() {
                Standing::Member => {}
                Standing::Lost => return Parting::Lost,
                Standing::TakenOver(incarnation) => return Parting::TakenOver(self.taken_over(&incarnation)),
            }
            tokio::select! {
                _ = orders.changed() => {}
                _ = ticks.changed() => {}
                () = &mut renewal => {
                    // An answer that does not come must not keep this server from hearing the rest.
                    let asked = self.clock.monotonic();
                    let renewed = self.within(every, self.store.renew(lease)).await;
                    match renewed {
                        Some(Ok(())) => {
                            *self.met.lock() = Some(asked);
                            self.hear().await;
                        }
                        Some(Err(store::LeaseError::NotFound(_))) => {
                            return match self.own_record_now().await {
                                Ok(Standing::TakenOver(it)) => Parting::TakenOver(self.taken_over(&it)),
                                _ => Parting::Lost,
                            };
                        }
                        Some(Err(error)) => tracing::warn!(%error, "the membership could not be renewed"),
                        None => tracing::warn!("the membership could not be renewed in time"),
                    }
                    renewal = self.clock.sleep(every);
                }
            }
        }
    }

    /// Where the guarantee is loose: makes sure that the watch has brought every move of a selection until now.
    async fn hear(&self) {
        if !self.board.read().is_loose() {
            return;
        }
        let now = self.clock.monotonic();
        let all_heard = async {
            let newest = self.store.get(&fleet::keys::moved()).await.map_err(|it| it.to_string())?;
            let newest = newest.map(|it| it.modified).unwrap_or_default();
            self.reach(newest, self.config.lease / 3).await
        };
        match self.within(self.config.lease / 3, all_heard).await {
            Some(Ok(())) => *self.heard.lock() = now,
            Some(Err(why)) => tracing::warn!(why, "it is not known whether another version was selected"),
            None => tracing::warn!("it could not be told in time whether another version was selected"),
        }
    }

    /// Whether that was so recently enough to write without a fence.
    pub(crate) fn has_heard(&self) -> bool {
        self.clock.monotonic().saturating_sub(*self.heard.lock()) < HEARD_WITHIN
    }

    fn standing(&self) -> Standing {
        let board = self.board.read();
        let current = board.member(&self.config.identity).map(|it| &it.record);
        member::standing(&self.config.identity, &self.config.incarnation, current)
    }

    async fn own_record_now(&self) -> Result<Standing, String> {
        let key = fleet::keys::member(&self.config.identity);
        let entry = self.store.get(&key).await.map_err(|it| it.to_string())?;
        let record: Option<MemberRecord> = crate::board::read(entry.as_ref())?;
        Ok(member::standing(&self.config.identity, &self.config.incarnation, record.as_ref()))
    }

    fn taken_over(&self, other: &fleet::Incarnation) -> String {
        format!(
            "another process (incarnation {other}) has taken over the identity {}: this one stops; give each server \
             a name of its own with --hostname-override",
            self.config.identity
        )
    }

    /// Takes the steps to membership until it is reached or cannot be.
    async fn become_member(&self) -> Result<(Revision, LeaseId), NotJoined> {
        let (cluster, modes) = self.settle_modes().await?;
        let me = self.config.member(cluster.id.clone(), self.clock.now());
        let mut other = if self.config.is_exclusive { Other::Excluded } else { Other::NotAsked };
        let mut lease = None;
        loop {
            match self.next_step(&me, &other).await? {
                (Join::Probe(address), _) => {
                    let answer = self.within(PROBE_WITHIN, self.around().probe(address)).await;
                    other = answer.unwrap_or(Other::Silent);
                }
                (Join::Prune(resources), _) => {
                    for resource in resources {
                        self.clear_for(&resource, &cluster, &me).await?;
                    }
                }
                (how, moved) => {
                    let lease = match lease {
                        Some(lease) => lease,
                        None => *lease.insert(self.granted().await?),
                    };
                    if let Some(revision) = self.try_join(&me, &how, (moved, modes), lease).await? {
                        self.reach(revision, REACH_WITHIN).await.map_err(NotJoined::Failed)?;
                        return Ok((revision, lease));
                    }
                }
            }
        }
    }

    /// What to do next to become a member, and what was known of moves when that was decided.
    async fn next_step(
        &self,
        me: &MemberRecord,
        other: &Other,
    ) -> Result<(Join, Option<Revision>), NotJoined> {
        let (members, fences, custom, taken, moved) = {
            let board = self.board.read();
            let all = board.fences();
            let (custom, built_in): (Vec<_>, Vec<_>) =
                all.into_values().partition(|it| it.record.definition.is_some());
            let fences: Vec<FenceRecord> = built_in.iter().map(|it| it.record.clone()).collect();
            let custom: Vec<GroupResource> = custom.iter().map(|it| it.record.resource.clone()).collect();
            let taken = board.member(&me.identity).map(|it| (it.record.clone(), it.modified));
            (board.members(), fences, custom, taken, board.moved)
        };
        let defined = self.defined_elsewhere(custom).await?;
        // Counted after the fences were read: what came into use since is found by the condition on moves.
        let census = self.around().census().await.map_err(NotJoined::Failed)?;
        let decodable =
            self.config.resources.iter().map(|it| (it.record.clone(), it.decodable.clone())).collect();
        let unreadable = stored::undecodable(&census, &decodable, &self.config.allowed, me.emulated);
        let applicant = Applicant {
            me,
            taken: taken.as_ref().map(|(record, revision)| (record, *revision)),
            other: other.clone(),
            members: &members,
            fences: &fences,
            unreadable: &unreadable,
            defined: &defined,
        };
        match member::join(&applicant) {
            Ok(how) => Ok((how, moved)),
            Err(error @ JoinError::Taken { .. }) => Err(NotJoined::Taken(error.to_string())),
            Err(error) => Err(NotJoined::Refused(error.to_string())),
        }
    }

    /// Which of these custom resources this server has built in, while their definitions are stored. Once a definition is
    /// gone its record is collected.
    async fn defined_elsewhere(&self, custom: Vec<GroupResource>) -> Result<Vec<GroupResource>, NotJoined> {
        let mut defined = Vec::new();
        for resource in custom.into_iter().filter(|it| self.config.resource(it).is_some()) {
            let key = self.around().definition_key(&resource);
            let found = self.store.get(&key).await.map_err(|it| NotJoined::Failed(it.to_string()))?;
            if found.is_some() {
                defined.push(resource);
            }
        }
        Ok(defined)
    }

    async fn granted(&self) -> Result<LeaseId, NotJoined> {
        self.store.grant(self.config.lease).await.map_err(|it| NotJoined::Failed(it.to_string()))
    }

    /// One attempt to write the record. `None` if something else is there by now.
    async fn try_join(
        &self,
        me: &MemberRecord,
        how: &Join,
        (moved, modes): (Option<Revision>, Revision),
        lease: LeaseId,
    ) -> Result<Option<Revision>, NotJoined> {
        let txn = write::join(me, how, moved, Some(modes), lease)
            .map_err(|it| NotJoined::Failed(it.to_string()))?;
        let Some(txn) = txn else { return Ok(None) };
        match self.store.commit(txn).await {
            Ok(revision) => Ok(Some(revision)),
            Err(CommitError::Unmet { failed: write::JOIN_REQUIRES_MODES, .. }) => {
                Err(NotJoined::Failed("how the cluster agrees was changed in the meantime".to_owned()))
            }
            Err(CommitError::Unmet { current, .. }) => {
                // What stood in the way is on its way to the board, unless it is a removal, which only a list can tell.
                let newest = current.iter().flatten().map(|it| it.modified).max();
                match newest {
                    Some(newest) => self.reach(newest, REACH_WITHIN).await.map_err(NotJoined::Failed)?,
                    None => self.clock.sleep(PAUSE).await,
                }
                Ok(None)
            }
            Err(error) => Err(NotJoined::Failed(error.to_string())),
        }
    }

    /// Removes what departed servers were to write from a fence that keeps this one out.
    async fn clear_for(
        &self,
        resource: &GroupResource,
        cluster: &ClusterRecord,
        me: &MemberRecord,
    ) -> Result<(), NotJoined> {
        let basis = self.board.read().basis(resource).map_err(NotJoined::Failed)?;
        let Some(fence) = basis.fence.clone() else { return Ok(()) };
        let facts = Facts {
            resource,
            fence: Some(&fence.record),
            members: &basis.members,
            agreement: cluster.agreement,
            settle: self.config.settle,
            now: self.clock.now(),
            revision: basis.revision,
        };
        let plan = collect::clear_for(&facts, &fence.record, me);
        if !plan.changed {
            return Err(NotJoined::Failed(format!("{resource} cannot be cleared")));
        }
        match self.write_plan(&basis, &plan, None, Vec::new()).await {
            Ok(()) | Err(Setback::Moved) => Ok(()),
            Err(setback) => Err(NotJoined::Failed(setback.to_string())),
        }
    }

    /// Tells everybody that this server stays out, and why.
    async fn refuse(&self, why: &str, note: &mut Option<LeaseId>) {
        let is_new = *self.life.borrow() != Life::Refused(why.to_owned());
        if is_new {
            tracing::error!(
                why,
                "this server may not take part; it stays up, serves reads, and is not ready"
            );
            self.set_life(Life::Refused(why.to_owned()));
            let about = About::Server(self.config.identity.clone());
            let message = why.to_owned();
            self.around().noticed(&Notice { reason: "ServerRefused", is_warning: true, about, message });
        }
        let asked = self.clock.monotonic();
        let renewed = match *note {
            Some(lease) => self.store.renew(lease).await.is_ok(),
            None => false,
        };
        if !renewed || is_new {
            *note = self.leave_note(why).await;
        }
        if note.is_some() {
            *self.met.lock() = Some(asked);
        }
    }

    /// Writes the note for the others. They also hear of it when it fails: then they cannot be reached anyway.
    async fn leave_note(&self, why: &str) -> Option<LeaseId> {
        let lease = self.store.grant(self.config.lease).await.ok()?;
        let refusal = Refusal::new(&self.config.identity, self.config.emulated, why);
        let key = refusal::key(&self.config.identity);
        let bytes = record::write(&key, &refusal).ok()?;
        self.store.commit(Txn::new().put_leased(&key, bytes, lease)).await.ok()?;
        Some(lease)
    }

    async fn withdraw_note(&self, note: Option<LeaseId>) {
        if let Some(lease) = note {
            let _ = self.store.revoke(lease).await;
        }
    }

    /// Removes the own record; if that fails its lease will.
    async fn remove_record(&self, revision: Revision, lease: LeaseId) {
        let txn = write::leave(&self.config.identity, revision);
        if let Err(error) = self.store.commit(txn).await {
            tracing::debug!(%error, "the member record was not removed");
        }
        let _ = self.store.revoke(lease).await;
    }

    /// Orders this server out of the cluster, for this reason. Whoever stops leaves anyway, and for good.
    pub(crate) fn withdraw(&self, why: String) {
        self.orders.send_if_modified(|it| {
            let stays = *it != Order::Leave;
            if stays {
                *it = Order::Withdraw(why);
            }
            stays
        });
    }

    pub(crate) fn set_life(&self, life: Life) {
        self.life.send_replace(life);
        self.tick();
    }

    /// The revision of the own record, while this server is a member.
    pub(crate) fn membership(&self) -> Option<Revision> {
        match *self.life.borrow() {
            Life::Member(revision) => Some(revision),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
