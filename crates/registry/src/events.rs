//! Events go away by themselves: each hangs on a store lease. Events written close together share one, so that a
//! burst of events does not become a burst of leases.
//!
//! Earlier builds gave a lease to the objects of every resource that is called `events`, whatever its group. Those of
//! custom resources are written anew without one, once their kind is there ([`Registry::free_leased`]).

use std::{sync::Arc, time::Duration};

use cache::Item;
use meta::Status;
use parking_lot::Mutex;
use store::{LeaseId, Leases, Require};

use crate::{Kind, Registry, Target, grounds::Settled, outcome, serve, write::Setback};

/// For how long new events join the same lease.
const SHARED_FOR: Duration = Duration::from_secs(60);

/// The lease that new events join.
pub(crate) struct EventLeases {
    ttl: Duration,
    newest: Mutex<Option<(LeaseId, Duration)>>,
}

impl EventLeases {
    pub(crate) fn new(ttl: Duration) -> Self {
        Self { ttl, newest: Mutex::new(None) }
    }
}

impl Kind {
    /// Whether objects go away by themselves: Events do, in both groups that show them.
    pub(crate) fn expires(&self) -> bool {
        let is_built_in = self.custom.is_none() && matches!(&*self.definition.group, "" | "events.k8s.io");
        is_built_in && &*self.definition.resource == "events"
    }
}

impl Registry {
    /// Writes the objects of a kind anew that hang on a lease though nothing of their kind goes away by itself. Each is
    /// required to be as it was seen, and fenced as every put is, so that any number of servers may do it at the same
    /// time. The answer is how many there were.
    pub(crate) async fn free_leased(&self, kind: &Arc<Kind>) -> Result<usize, Status> {
        let (Some(custom), Some(collection)) = (&kind.custom, kind.collection()) else { return Ok(0) };
        self.cache.catch_up().await.map_err(|it| outcome::read_failed(&it))?;
        let snapshot = collection.snapshot().map_err(outcome::closed)?;
        let leased: Vec<Arc<Item>> =
            snapshot.readable("", None).filter(|it| it.lease().is_some()).cloned().collect();
        for item in &leased {
            let target = Target {
                kind: Arc::clone(kind),
                group_version: custom.storage.clone(),
                namespace: item.namespace().to_owned(),
                name: item.name().to_owned(),
                subresource: String::new(),
            };
            let shown = self.presented_at_best(&target, item).await;
            let state = Require::At(item.key().clone(), item.revision());
            match self.put(&target, &serve::stored_tree(&shown), Some(item), state, Settled::default()).await
            {
                // Somebody else wrote it; whether that left it on the lease is seen the next time.
                Ok(_) | Err(Setback::Raced(_)) => {}
                Err(Setback::Refused(status) | Setback::Ended(status)) => return Err(status),
            }
        }
        Ok(leased.len())
    }

    /// The lease that a put of this kind hangs on, if it does on any.
    pub(crate) async fn lease_for(&self, target: &Target) -> Result<Option<LeaseId>, Status> {
        if !target.kind.expires() || self.event_leases.ttl.is_zero() {
            return Ok(None);
        }
        let now = self.clock.monotonic();
        let newest = *self.event_leases.newest.lock();
        if let Some((lease, granted)) = newest
            && now.saturating_sub(granted) < SHARED_FOR
        {
            return Ok(Some(lease));
        }
        // Two requests at once may both be here; the loser's lease just ends unused.
        let ttl = self.event_leases.ttl + SHARED_FOR;
        let lease = self.store.grant(ttl).await.map_err(|it| outcome::lease_failed(&it))?;
        *self.event_leases.newest.lock() = Some((lease, now));
        Ok(Some(lease))
    }

    /// After the store said that a lease is gone: the next event gets a new one.
    pub(crate) fn forget_event_lease(&self) {
        *self.event_leases.newest.lock() = None;
    }
}
