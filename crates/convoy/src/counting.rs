//! What controllers do, on the server's `/metrics`.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use controllers::Observe;
use meta::GroupResource;
use registry::Registry;
use server::metrics::Metrics;

/// Counts into the metrics of a server.
pub(crate) struct Counting {
    pub(crate) metrics: Arc<Metrics>,
    /// Knows which resources there are, where they are known: a migration can be asked for by any name.
    pub(crate) registry: Option<Weak<Registry>>,
}

impl Counting {
    /// The resource as it is shown: nobody makes up a label by asking for a migration.
    fn shown<'a>(&self, resource: &'a str) -> &'a str {
        let Some(registry) = self.registry.as_ref().and_then(Weak::upgrade) else { return resource };
        if registry.kinds().get(&GroupResource::from(resource)).is_some() { resource } else { "other" }
    }
}

impl Observe for Counting {
    fn queued(&self, controller: &'static str) {
        self.metrics.work().queued(controller);
    }

    fn unqueued(&self, controller: &'static str) {
        self.metrics.work().unqueued(controller);
    }

    fn begins(&self, controller: &'static str, waited: Duration) {
        self.metrics.work().begins(controller, waited);
    }

    fn ended(&self, controller: &'static str, took: Duration, has_failed: bool) {
        self.metrics.work().ended(controller, took, has_failed);
    }

    fn retried(&self, controller: &'static str) {
        self.metrics.work().retried(controller);
    }

    fn undiscovered(&self) {
        self.metrics.work().undiscovered();
    }

    fn leads(&self, lease: &str, does: bool) {
        self.metrics.work().leads(lease, does);
    }

    fn migrated(&self, resource: &str, objects: u64) {
        self.metrics.migration().migrated(self.shown(resource), objects);
    }

    fn migration_remaining(&self, resource: &str, objects: u64, per_second: u64) {
        self.metrics.migration().remaining(self.shown(resource), objects, per_second);
    }

    fn migration_failure(&self, resource: &str, class: &'static str) {
        self.metrics.migration().failed(self.shown(resource), class);
    }

    fn migration_ended(&self, resource: &str, status: &'static str, took: Duration) {
        self.metrics.migration().ended(self.shown(resource), status, took);
    }
}
