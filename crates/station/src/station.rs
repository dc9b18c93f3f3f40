//! The handle on a station: what the rest of the server asks and tells it.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, OnceLock},
    time::Duration,
};

use fleet::{
    ClusterId, Encoding, Identity, Incarnation, Members,
    cluster::ClusterRecord,
    custom::{self, Definition},
    gate::{Gate, Shut},
    put::{self, Failed, Next},
    record,
    sender::{self, Claim, Verdict},
};
use meta::{GroupResource, StorageVersion};
use parking_lot::{Mutex, RwLock};
use store::{Entry, Revision, SharedClock, SharedStore};
use tokio::sync::watch;

use crate::{
    Config, Life, NotReported, Surroundings, board::Board, catch_up::Looks, consensus::Waits, life::Order,
};

/// How long a server that leaves waits for its record to be gone.
const LEAVE_WITHIN: Duration = Duration::from_secs(3);

/// How far the fleet is, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Members.
    pub members: usize,
    /// Resources that are agreed on.
    pub agreed: usize,
    /// Resources that are not, though somebody serves them.
    pub disputed: usize,
    /// Resources that this server may write.
    pub open: usize,
    /// Resources that it may not write yet.
    pub closed: usize,
}

/// One server's place in the fleet. Cheap to clone.
#[derive(Clone)]
pub struct Station {
    pub(crate) inner: Arc<Inner>,
}

/// However short the lease is, a busy machine may keep this server from the store for so long.
const OUT_OF_TOUCH: Duration = Duration::from_secs(10);

pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) store: SharedStore,
    pub(crate) clock: SharedClock,
    pub(crate) board: RwLock<Board>,
    /// Changes with everything that could be decided anew.
    pub(crate) ticks: watch::Sender<u64>,
    pub(crate) life: watch::Sender<Life>,
    pub(crate) orders: watch::Sender<Order>,
    /// Why resources could not be reported the last time.
    pub(crate) errors: Mutex<HashMap<GroupResource, String>>,
    /// When this server last began to report.
    pub(crate) began: Mutex<Duration>,
    /// Until when what this server knows was shown to be all there is; asked where the guarantee is loose.
    pub(crate) heard: Mutex<Duration>,
    /// When this server last asked the store something that was answered; unknown until it was a member once.
    pub(crate) met: Mutex<Option<Duration>>,
    /// Looks at the members that several callers share.
    pub(crate) looks: Looks,
    /// Since when the servers do not agree on a resource.
    pub(crate) waits: Mutex<Waits>,
    around: OnceLock<Arc<dyn Surroundings>>,
}

/// What a task of a station is for, with its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It keeps the lease: nobody must make it wait.
    KeepsLease(&'static str),
    /// Anything else.
    Plain(&'static str),
}

impl Station {
    /// The place of a server that has not joined yet.
    pub fn new(config: Config, store: SharedStore, clock: SharedClock) -> Self {
        let board = RwLock::new(Board::of(&config.identity, &config.incarnation));
        let inner = Inner {
            board,
            config,
            store,
            clock,
            ticks: watch::Sender::new(0),
            life: watch::Sender::new(Life::Joining),
            orders: watch::Sender::new(Order::Stay),
            errors: Mutex::default(),
            began: Mutex::default(),
            heard: Mutex::default(),
            met: Mutex::default(),
            looks: Looks::default(),
            waits: Mutex::default(),
            around: OnceLock::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Joins and takes part until told to leave. `spawn` runs a task in its role. Says whether it was not running yet.
    pub fn start(
        &self,
        around: Arc<dyn Surroundings>,
        spawn: impl Fn(Role, futures_util::future::BoxFuture<'static, ()>),
    ) -> bool {
        if self.inner.around.set(around).is_err() {
            return false;
        }
        let task = || Arc::clone(&self.inner);
        spawn(Role::Plain("fleet records"), Box::pin(task().follow()));
        spawn(Role::KeepsLease("membership"), Box::pin(task().live()));
        spawn(Role::Plain("storage version reports"), Box::pin(task().keep_reported()));
        spawn(Role::Plain("storage version mirrors"), Box::pin(task().keep_mirrors()));
        if self.inner.config.collects {
            spawn(Role::Plain("storage version garbage collection"), Box::pin(task().keep_collected()));
        }
        true
    }

    /// Who this server is.
    pub fn identity(&self) -> &Identity {
        &self.inner.config.identity
    }

    /// Which process this is.
    pub fn incarnation(&self) -> &Incarnation {
        &self.inner.config.incarnation
    }

    /// What it was told.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// How the cluster agrees, once that is known.
    pub fn cluster(&self) -> Option<ClusterRecord> {
        self.inner.board.read().cluster.clone()
    }

    /// Which cluster this is, once that is known.
    pub fn cluster_id(&self) -> Option<ClusterId> {
        self.inner.board.read().cluster.as_ref().and_then(|it| it.id.clone())
    }

    /// Whether another server that handed a request on is a member of this cluster, as far as is known.
    pub fn judge(&self, sender: &Identity, claim: &Claim<'_>) -> Verdict {
        let board = self.inner.board.read();
        let own = board.cluster.as_ref().and_then(|it| it.id.as_ref());
        sender::judge(claim, own, board.member(sender).map(|it| &it.record))
    }

    /// Where it is in its life.
    pub fn life(&self) -> Life {
        self.inner.life.borrow().clone()
    }

    /// Why the server must stop, as soon as it must: another process has its identity.
    pub async fn ended(&self) -> String {
        let mut life = self.inner.life.subscribe();
        let ended = life.wait_for(|it| matches!(it, Life::Ended(_))).await;
        let why =
            ended.ok().and_then(|it| if let Life::Ended(why) = &*it { Some(why.clone()) } else { None });
        match why {
            Some(why) => why,
            // The sender lives in `self`.
            None => std::future::pending().await,
        }
    }

    /// Ends when this server is a member, or has been refused; then the answer is why.
    pub async fn joined_or_refused(&self) -> Result<(), String> {
        let mut life = self.inner.life.subscribe();
        loop {
            match &*life.borrow_and_update() {
                Life::Member(_) => return Ok(()),
                Life::Refused(why) | Life::Ended(why) => return Err(why.clone()),
                Life::Joining | Life::Lost | Life::Left => {}
            }
            if life.changed().await.is_err() {
                return Err("the station is gone".to_owned());
            }
        }
    }

    /// Ends when this server is a member.
    pub async fn joined(&self) {
        let mut life = self.inner.life.subscribe();
        // The sender lives in `self`, so that waiting cannot fail.
        let _ = life.wait_for(|it| matches!(it, Life::Member(_))).await;
    }

    /// Whether this server is a member.
    pub fn is_member(&self) -> bool {
        self.inner.is_member()
    }

    /// For how long the store has answered nothing, if that is longer than three leases and than ten seconds: the others have done without this
    /// server for a while, and what it knows may be out of date.
    pub fn out_of_touch(&self) -> Option<Duration> {
        let met = (*self.inner.met.lock())?;
        let silent = self.inner.clock.monotonic().saturating_sub(met);
        (silent > (self.inner.config.lease * 3).max(OUT_OF_TOUCH)).then_some(silent)
    }

    /// Changes with everything that could be decided anew.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.ticks.subscribe()
    }

    /// How far the fleet is.
    pub fn summary(&self) -> Summary {
        let board = self.inner.board.read();
        let fences = board.fences();
        let agreed = fences.values().filter(|it| it.record.common.is_some()).count();
        let resources = &self.inner.config.resources;
        let n_open = resources.iter().filter(|it| board.own(&it.record).is_some()).count();
        let n_open = if self.inner.is_member() { n_open } else { 0 };
        // What no server serves any more is nobody's to agree on.
        let records = fences.values().map(|it| &it.record);
        let disputed = records.filter(|it| it.common.is_none() && !it.entries.is_empty()).count();
        let members = board.members().iter().count();
        Summary { members, agreed, disputed, open: n_open, closed: resources.len() - n_open }
    }

    /// Something has changed outside of the records: look whether there is something to do.
    pub fn look(&self) {
        self.inner.tick();
    }

    /// Ends when `check` holds; it is asked again whenever something has changed.
    pub async fn until(&self, mut check: impl FnMut(&Self) -> bool) {
        let mut ticks = self.inner.ticks.subscribe();
        while !check(self) {
            if ticks.changed().await.is_err() {
                return;
            }
        }
    }

    /// What a put of a resource must be encoded in and must require; or why nothing may be put now.
    pub fn encoding(&self, resource: &GroupResource) -> Result<Encoding, Shut> {
        let own = self.inner.board.read().own(resource).cloned();
        match own.filter(|_| self.inner.is_member()) {
            // No store compares it with the selection, so that it must not be an old one.
            Some(_) if self.inner.board.read().is_loose() && !self.inner.has_heard() => {
                let last_error = Some("it is not known whether another version was selected".to_owned());
                Err(Shut::Pending { resource: resource.clone(), last_error })
            }
            Some(own) => Ok(own),
            None => Err(self.inner.shut(resource)),
        }
    }

    /// How far this server is with a built-in resource; everything else has no gate.
    pub fn gate(&self, resource: &GroupResource) -> Gate {
        let is_open = self.inner.is_member() && self.inner.board.read().own(resource).is_some();
        if is_open || self.inner.config.resource(resource).is_none() {
            return Gate::Open;
        }
        match &*self.inner.life.borrow() {
            Life::Refused(why) | Life::Ended(why) => Gate::Refused(why.clone()),
            Life::Member(_) | Life::Joining | Life::Lost | Life::Left => {
                Gate::Closed(self.inner.errors.lock().get(resource).cloned())
            }
        }
    }

    /// Whether every built-in resource can be written; if not, why.
    pub fn health(&self) -> Result<(), String> {
        match &*self.inner.life.borrow() {
            Life::Refused(why) | Life::Ended(why) => return Err(why.clone()),
            Life::Joining => return Err("not a member of the cluster yet".to_owned()),
            Life::Lost => return Err("no longer a member of the cluster; joining again".to_owned()),
            Life::Left => return Err("left the cluster".to_owned()),
            Life::Member(_) => {}
        }
        let board = self.inner.board.read();
        let mut waiting = self.inner.config.resources.iter().filter(|it| board.own(&it.record).is_none());
        let Some(first) = waiting.next() else { return Ok(()) };
        let why = self.inner.errors.lock().get(&first.record).cloned();
        let more = waiting.count();
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        Err(format!("not reported yet: {}{more}: {}", first.record, why.as_deref().unwrap_or("<nil>")))
    }

    /// Takes in what a put found that failed its fence, and brings this server so far that the put can be tried again.
    pub async fn after_failed_put(
        &self,
        resource: &GroupResource,
        current: Option<&Entry>,
        seen: Revision,
    ) -> Result<(), Shut> {
        self.inner.around().fence_retried(resource);
        if current.is_some_and(|it| self.inner.note_modes(it)) {
            return Ok(());
        }
        let fence = {
            let mut board = self.inner.board.write();
            board.note_fence(resource, current, seen);
            board.fence(resource)
        };
        self.inner.tick();
        let refused = match &*self.inner.life.borrow() {
            Life::Refused(why) | Life::Ended(why) => Some(why.clone()),
            _ => None,
        };
        let failed = Failed {
            fence: fence.as_deref(),
            identity: self.identity(),
            incarnation: self.incarnation(),
            is_member: self.inner.is_member(),
            is_defined: true,
            refused: refused.as_deref(),
        };
        match put::after_failure(&failed) {
            Next::Encode(..) => Ok(()),
            Next::Report => self.report(resource).await.map_err(|it| it.shut(resource)),
            Next::Rejoin | Next::Gone => {
                let last_error = Some(NotReported::NotMember.to_string());
                Err(Shut::Pending { resource: resource.clone(), last_error })
            }
            Next::Refused(reason) => Err(Shut::Refused { resource: resource.clone(), reason }),
        }
    }

    /// Reports one resource, built in or defined by a user.
    pub async fn report(&self, resource: &GroupResource) -> Result<(), NotReported> {
        self.inner.report(resource).await
    }

    /// Reports a custom resource as this definition has it, before anything is written by it.
    pub async fn report_definition(
        &self,
        resource: &GroupResource,
        definition: &Definition,
    ) -> Result<(), NotReported> {
        self.inner.report_definition(resource, definition).await
    }

    /// The members that have not reported a definition yet.
    pub fn awaited(&self, resource: &GroupResource, definition: &Definition) -> Vec<Identity> {
        let board = self.inner.board.read();
        let fence = board.fence(resource);
        custom::awaited(fence.as_deref().map(|it| &it.record), &board.members(), definition)
    }

    /// The version in which a resource is written now, as far as anything is agreed on.
    pub fn version(&self, resource: &GroupResource) -> Option<StorageVersion> {
        self.inner.board.read().version(resource)
    }

    /// What the servers have agreed on about a resource, as far as this one knows.
    pub fn fence(&self, resource: &GroupResource) -> Option<Arc<fleet::fence::Fence>> {
        self.inner.board.read().fence(resource)
    }

    /// The same by the store itself, at a moment after the call.
    pub async fn fence_now(
        &self,
        resource: &GroupResource,
    ) -> Result<Option<Arc<fleet::fence::Fence>>, String> {
        self.inner.read_again(resource).await.map_err(|it| it.to_string())?;
        Ok(self.fence(resource))
    }

    /// Grows whenever [`Station::version`] changes for some resource.
    pub fn moves(&self) -> u64 {
        self.inner.board.read().n_moves
    }

    /// Grows whenever what servers agree on about some resource changes, be it that they agree at all. Where each server
    /// writes what it likes best, that happens without a move.
    pub fn agreements(&self) -> u64 {
        self.inner.board.read().n_agreements
    }

    /// The live members, and whether nothing can be missing among them: the records were read, and each could be.
    pub fn members(&self) -> (Arc<Members>, bool) {
        let board = self.inner.board.read();
        (board.members(), board.is_loaded && board.knows_all_members())
    }

    /// Grows whenever the members change.
    pub fn memberships(&self) -> u64 {
        self.inner.board.read().n_memberships
    }

    /// The members that may write a resource now.
    pub fn writers(&self, resource: &GroupResource) -> Vec<Identity> {
        let board = self.inner.board.read();
        let (members, fence) = (board.members(), board.fence(resource));
        let entries = fence.iter().flat_map(|it| &it.record.entries);
        entries.filter(|it| members.is_live(it)).map(|it| it.identity.clone()).collect()
    }

    /// Returns once every member is known that had joined before the call, or says why that cannot be told.
    pub async fn catch_up(&self) -> Result<Revision, String> {
        self.inner.catch_up().await
    }

    /// Whether a server is a member, and which process of it.
    pub fn member(&self, identity: &Identity) -> Option<Incarnation> {
        self.inner.board.read().member(identity).map(|it| it.record.incarnation.clone())
    }

    /// Whether this server has been a member for longer than all others: it does what only one needs to do.
    pub fn is_eldest(&self) -> bool {
        self.inner.is_member() && self.inner.board.read().rank(self.identity()) == 0
    }

    /// Leaves the fleet. Everything that this server writes must have ended before.
    pub async fn leave(&self) {
        self.inner.orders.send_replace(Order::Leave);
        if self.inner.around.get().is_none() {
            return;
        }
        let mut life = self.inner.life.subscribe();
        let left = life.wait_for(|it| matches!(it, Life::Left | Life::Ended(_)));
        tokio::select! {
            _ = left => {}
            () = self.inner.clock.sleep(LEAVE_WITHIN) => {
                tracing::warn!("the member record could not be removed in time; its lease will");
            }
        }
    }
}

impl Inner {
    /// The server around. Nothing asks before the station is started.
    pub(crate) fn around(&self) -> &dyn Surroundings {
        self.around.get().expect("a station must be started before it is used").as_ref()
    }

    pub(crate) fn is_member(&self) -> bool {
        matches!(*self.life.borrow(), Life::Member(_))
    }

    /// Takes in how the cluster agrees by now, if that is what a put without a fence failed on. Says whether it is.
    fn note_modes(&self, found: &Entry) -> bool {
        if found.key != fleet::keys::cluster() {
            return false;
        }
        let cluster = record::read(&found.key, &found.value).ok();
        self.board.write().set_cluster(cluster, found.modified);
        self.tick();
        true
    }

    /// Something may be decided anew.
    pub(crate) fn tick(&self) {
        self.ticks.send_modify(|it| *it = it.wrapping_add(1));
    }

    pub(crate) fn shut(&self, resource: &GroupResource) -> Shut {
        let resource = resource.clone();
        match &*self.life.borrow() {
            Life::Refused(reason) | Life::Ended(reason) => Shut::Refused { resource, reason: reason.clone() },
            _ => {
                let last_error = self.errors.lock().get(&resource).cloned();
                Shut::Pending { resource, last_error }
            }
        }
    }

    /// Waits until the watch has brought everything up to `revision`.
    pub(crate) async fn reach(&self, revision: Revision, within: Duration) -> Result<(), String> {
        let mut ticks = self.ticks.subscribe();
        let reached = async {
            while self.board.read().applied < revision {
                if ticks.changed().await.is_err() {
                    return;
                }
            }
        };
        self.within(within, reached)
            .await
            .ok_or_else(|| format!("the records of revision {revision} did not arrive within {within:?}"))
    }

    /// `None` if it takes too long.
    pub(crate) async fn within<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.clock.sleep(limit) => None,
        }
    }
}
