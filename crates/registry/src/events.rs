//! Events go away by themselves: each hangs on a store lease. Events written close together share one, so that a
//! burst of events does not become a burst of leases.

use std::time::Duration;

use meta::Status;
use parking_lot::Mutex;
use store::{LeaseId, Leases};

use crate::{Registry, Target, outcome};

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

impl Registry {
    /// The lease that a put of this kind hangs on, if it does on any.
    pub(crate) async fn lease_for(&self, target: &Target) -> Result<Option<LeaseId>, Status> {
        if &*target.kind.definition.resource != "events" || self.event_leases.ttl.is_zero() {
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
