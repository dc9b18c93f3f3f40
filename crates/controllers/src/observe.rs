//! Who counts what controllers do. Deliberately not here: metrics; whoever starts controllers brings them.

use std::{sync::Arc, time::Duration};

/// Counts what happens.
pub trait Observe: Send + Sync + 'static {
    /// An object waits for a pass of this controller.
    fn queued(&self, controller: &'static str);
    /// It does not wait any more: its pass begins, or the controller stops.
    fn unqueued(&self, controller: &'static str);
    /// A pass begins, after this time in the queue.
    fn begins(&self, controller: &'static str, waited: Duration);
    /// A pass has ended.
    fn ended(&self, controller: &'static str, took: Duration, has_failed: bool);
    /// A pass will be repeated because it failed.
    fn retried(&self, controller: &'static str);
    /// The garbage collector could not learn what there is, and collects nothing until it can.
    fn undiscovered(&self);
    /// This process holds the Lease of this name, or does not.
    fn leads(&self, lease: &str, does: bool);
    /// Objects of a resource were rewritten.
    fn migrated(&self, _resource: &str, _objects: u64) {}
    /// So many are left to look at, at so many a second.
    fn migration_remaining(&self, _resource: &str, _objects: u64, _per_second: u64) {}
    /// An object could not be rewritten.
    fn migration_failure(&self, _resource: &str, _class: &'static str) {}
    /// A migration ended as `status`.
    fn migration_ended(&self, _resource: &str, _status: &'static str, _took: Duration) {}
}

/// Counts nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nobody;

impl Observe for Nobody {
    fn queued(&self, _: &'static str) {}
    fn unqueued(&self, _: &'static str) {}
    fn begins(&self, _: &'static str, _: Duration) {}
    fn ended(&self, _: &'static str, _: Duration, _: bool) {}
    fn retried(&self, _: &'static str) {}
    fn undiscovered(&self) {}
    fn leads(&self, _: &str, _: bool) {}
}

/// The passes of one controller, as they are counted.
#[derive(Clone)]
pub(crate) struct Counted {
    pub(crate) controller: &'static str,
    pub(crate) observe: Arc<dyn Observe>,
}

impl Counted {
    /// Something waits, until what this returns is dropped.
    pub(crate) fn queue(&self) -> Queued<'_> {
        self.observe.queued(self.controller);
        Queued(self)
    }

    pub(crate) fn begins(&self, waited: Duration) {
        self.observe.begins(self.controller, waited);
    }

    pub(crate) fn ended(&self, took: Duration, has_failed: bool) {
        self.observe.ended(self.controller, took, has_failed);
    }

    pub(crate) fn retried(&self) {
        self.observe.retried(self.controller);
    }
}

/// Something in a queue. Whatever ends the wait, it is counted.
pub(crate) struct Queued<'a>(&'a Counted);

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.observe.unqueued(self.0.controller);
    }
}
