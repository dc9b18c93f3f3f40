//! Reports what this server stores, resource by resource, and keeps it reported.
//!
//! # Guarantees
//! Every resource has its own attempts and pauses: one that fails delays no other. What is lost is reported again.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use fleet::{
    agree::{self, Blocked, Facts, Plan, Report},
    cluster::Agreement,
    custom::{self, Definition, Reporter},
    gate::{Gate, Shut},
};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use meta::GroupResource;
use store::Require;

use crate::{Resource, board::Basis, config::Occasion, fences::Setback, station::Inner};

/// How many reports are under way at the same time.
const MAX_ACTIVE: usize = 64;

/// How often one report is planned anew because somebody else was faster.
const MAX_ATTEMPTS: usize = 64;

/// Pauses of a resource whose report failed.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Why a resource could not be reported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReported {
    /// This server is not a member; it joins first.
    #[error("this server is not a member of the cluster at the moment")]
    NotMember,
    /// The agreement does not allow it.
    #[error(transparent)]
    Blocked(#[from] Blocked),
    /// The definition of the custom resource has changed or is gone.
    #[error("the definition of {0} has changed")]
    Redefined(GroupResource),
    /// The store failed, or something is not known.
    #[error("{0}")]
    Failed(String),
}

impl NotReported {
    /// What a client is told that wanted to write.
    pub fn shut(&self, resource: &GroupResource) -> Shut {
        let resource = resource.clone();
        match self {
            Self::Blocked(blocked) => match Gate::from(blocked) {
                Gate::Refused(reason) => Shut::Refused { resource, reason },
                Gate::Closed(last_error) => Shut::Pending { resource, last_error },
                Gate::Open => Shut::Pending { resource, last_error: None },
            },
            other => Shut::Pending { resource, last_error: Some(other.to_string()) },
        }
    }
}

type Active = BoxFuture<'static, (GroupResource, Result<(), NotReported>)>;

impl Inner {
    /// Reports everything that is not reported, until the task is dropped.
    pub(crate) async fn keep_reported(self: Arc<Self>) {
        let mut ticks = self.ticks.subscribe();
        let mut queue: VecDeque<GroupResource> = VecDeque::new();
        let mut active: FuturesUnordered<Active> = FuturesUnordered::new();
        let mut resting: FuturesUnordered<BoxFuture<'static, GroupResource>> = FuturesUnordered::new();
        let mut busy: HashSet<GroupResource> = HashSet::new();
        let mut pauses: HashMap<GroupResource, Duration> = HashMap::new();
        loop {
            if queue.is_empty() {
                ticks.borrow_and_update();
                let unreported = self.unreported();
                self.forget_errors(&unreported);
                pauses.retain(|resource, _| busy.contains(resource) || unreported.contains(resource));
                queue = unreported.into_iter().filter(|it| !busy.contains(it)).collect();
            }
            while let (true, Some(resource)) = (active.len() < MAX_ACTIVE, queue.pop_front()) {
                if busy.insert(resource.clone()) {
                    active.push(report_one(Arc::clone(&self), resource).boxed());
                }
            }
            tokio::select! {
                _ = ticks.changed(), if queue.is_empty() => {}
                Some((resource, result)) = active.next() => match result {
                    Ok(()) => {
                        busy.remove(&resource);
                        pauses.remove(&resource);
                        self.errors.lock().remove(&resource);
                        let began = *self.began.lock();
                        let after = self.clock.monotonic().saturating_sub(began);
                        self.around().gate_opened(&resource, after);
                    }
                    Err(why) => {
                        let pause = pauses.entry(resource.clone()).or_insert(PAUSE);
                        self.take_note(&resource, &why, *pause);
                        let rest = self.clock.sleep(*pause);
                        *pause = (*pause * 2).min(PAUSE_MAX);
                        resting.push(async move { rest.await; resource }.boxed());
                    }
                },
                Some(resource) = resting.next() => {
                    busy.remove(&resource);
                }
            }
        }
    }

    /// What is to be reported, what a start needs first.
    fn unreported(&self) -> Vec<GroupResource> {
        if !self.is_member() {
            return Vec::new();
        }
        let definitions = self.around().definitions();
        let board = self.board.read();
        let built_in = self.config.resources.iter().map(|it| &it.record).filter(|it| board.own(it).is_none());
        let mut all: Vec<GroupResource> = built_in.cloned().collect();
        all.sort_by_key(|it| {
            !matches!((&*it.group, &*it.resource), ("", "namespaces") | ("coordination.k8s.io", "leases"))
        });
        let is_open = |resource: &GroupResource, definition: &Definition| {
            board.own(resource).is_none_or(|it| it.version != definition.storage)
        };
        all.extend(
            definitions.into_iter().filter(|(it, definition)| is_open(it, definition)).map(|(it, _)| it),
        );
        all
    }

    /// Definitions that were deleted leave nothing behind.
    fn forget_errors(&self, unreported: &[GroupResource]) {
        let mut errors = self.errors.lock();
        if self.is_member() && !errors.is_empty() {
            errors.retain(|resource, _| unreported.contains(resource));
        }
    }

    fn take_note(&self, resource: &GroupResource, why: &NotReported, pause: Duration) {
        let text = why.to_string();
        let is_news = self.errors.lock().insert(resource.clone(), text.clone()).as_ref() != Some(&text);
        if is_news {
            tracing::warn!(%resource, why = text, ?pause, "a storage version could not be reported");
        }
        if let NotReported::Blocked(blocked @ Blocked::CannotRead { .. }) = why {
            // Others write what this server cannot read: it must not be one of them.
            self.withdraw(blocked.to_string());
        }
    }

    /// Reports one resource.
    pub(crate) async fn report(&self, resource: &GroupResource) -> Result<(), NotReported> {
        self.membership().ok_or(NotReported::NotMember)?;
        if let Some(own) = self.config.resource(resource) {
            return self.report_built_in(own).await;
        }
        let definition = self.around().definition(resource);
        let definition = definition.ok_or_else(|| NotReported::Redefined(resource.clone()))?;
        self.report_definition(resource, &definition).await
    }

    async fn report_built_in(&self, own: &Resource) -> Result<(), NotReported> {
        let report = Report {
            identity: self.config.identity.clone(),
            incarnation: self.config.incarnation.clone(),
            preferred: own.preferred.clone(),
            decodable: own.decodable.clone(),
            served: own.served.clone(),
            votes: self.config.votes(),
        };
        let agreement = self.board.read().cluster.as_ref().map(|it| it.agreement);
        let is_vote = agreement == Some(Agreement::Vote) && report.votes;
        let occasion = if is_vote { Occasion::Vote } else { Occasion::Report };
        self.put_entry(occasion, &own.record, |facts| agree::plan(facts, Some(&report)), Vec::new).await
    }

    /// Reports a custom resource as its definition has it.
    pub(crate) async fn report_definition(
        &self,
        resource: &GroupResource,
        definition: &Definition,
    ) -> Result<(), NotReported> {
        // Before it has joined, a server has nothing to say, and nobody to ask.
        self.membership().ok_or(NotReported::NotMember)?;
        let reporter = Reporter {
            identity: self.config.identity.clone(),
            incarnation: self.config.incarnation.clone(),
            votes: self.config.votes(),
        };
        if self.is_reported(resource, definition) {
            return Ok(());
        }
        let key = self.around().definition_key(resource);
        let also = || vec![Require::At(key.clone(), definition.revision)];
        let plan = |facts: &Facts<'_>| custom::plan(facts, Some(&reporter), definition);
        self.put_entry(Occasion::Report, resource, plan, also).await
    }

    /// Whether this server's entry says just what the definition does; a newer definition need not be reported then.
    fn is_reported(&self, resource: &GroupResource, definition: &Definition) -> bool {
        let board = self.board.read();
        let Some(fence) = board.fence(resource) else { return false };
        let own = fence.record.own_entry(&self.config.identity, &self.config.incarnation);
        fence.record.definition_uid.as_deref() == Some(&*definition.uid)
            && own.is_some_and(|it| {
                it.encoding == definition.storage
                    && it.decodable == definition.versions
                    && it.served == definition.served
            })
    }

    async fn put_entry(
        &self,
        occasion: Occasion,
        resource: &GroupResource,
        plan: impl Fn(&Facts<'_>) -> Result<Plan, Blocked>,
        also: impl Fn() -> Vec<Require>,
    ) -> Result<(), NotReported> {
        for _ in 0..MAX_ATTEMPTS {
            let member = self.membership().ok_or(NotReported::NotMember)?;
            let (basis, plan) = self.planned(resource, &plan)?;
            if !plan.changed {
                return Ok(());
            }
            match self.write_plan_on(occasion, &basis, &plan, Some(member), also()).await {
                Ok(()) => {
                    self.tell_of_move(&basis, &plan);
                    return Ok(());
                }
                Err(Setback::Moved) => {}
                Err(Setback::NotMember) => return Err(NotReported::NotMember),
                Err(Setback::Redefined) => return Err(NotReported::Redefined(resource.clone())),
                Err(Setback::Failed(why)) => return Err(NotReported::Failed(why)),
            }
        }
        Err(NotReported::Failed("too many servers report at the same time".to_owned()))
    }

    /// A plan on what the board shows now.
    pub(crate) fn planned(
        &self,
        resource: &GroupResource,
        plan: impl Fn(&Facts<'_>) -> Result<Plan, Blocked>,
    ) -> Result<(Basis, Plan), NotReported> {
        let (basis, cluster) = {
            let board = self.board.read();
            let basis = board.basis(resource).map_err(NotReported::Failed)?;
            (basis, board.cluster.clone())
        };
        let agreement = cluster.ok_or(NotReported::NotMember)?.agreement;
        let facts = Facts {
            resource,
            fence: basis.fence.as_deref().map(|it| &it.record),
            members: &basis.members,
            agreement,
            settle: self.config.settle,
            now: self.clock.now(),
            revision: basis.revision,
        };
        let plan = plan(&facts)?;
        Ok((basis, plan))
    }
}

async fn report_one(inner: Arc<Inner>, resource: GroupResource) -> (GroupResource, Result<(), NotReported>) {
    let result = inner.report(&resource).await;
    (resource, result)
}
