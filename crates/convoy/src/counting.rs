//! What controllers do, on the server's `/metrics`.

use std::{sync::Arc, time::Duration};

use controllers::Observe;
use server::metrics::Metrics;

/// Counts into the metrics of a server.
pub(crate) struct Counting(pub(crate) Arc<Metrics>);

impl Observe for Counting {
    fn queued(&self, controller: &'static str) {
        self.0.work().queued(controller);
    }

    fn unqueued(&self, controller: &'static str) {
        self.0.work().unqueued(controller);
    }

    fn begins(&self, controller: &'static str, waited: Duration) {
        self.0.work().begins(controller, waited);
    }

    fn ended(&self, controller: &'static str, took: Duration, has_failed: bool) {
        self.0.work().ended(controller, took, has_failed);
    }

    fn retried(&self, controller: &'static str) {
        self.0.work().retried(controller);
    }

    fn undiscovered(&self) {
        self.0.work().undiscovered();
    }

    fn leads(&self, lease: &str, does: bool) {
        self.0.work().leads(lease, does);
    }

    fn migrated(&self, resource: &str, objects: u64) {
        self.0.migration().migrated(resource, objects);
    }

    fn migration_remaining(&self, resource: &str, objects: u64, per_second: u64) {
        self.0.migration().remaining(resource, objects, per_second);
    }

    fn migration_failure(&self, resource: &str, class: &'static str) {
        self.0.migration().failed(resource, class);
    }

    fn migration_ended(&self, resource: &str, status: &'static str, took: Duration) {
        self.0.migration().ended(resource, status, took);
    }
}
