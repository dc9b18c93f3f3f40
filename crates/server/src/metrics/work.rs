//! What controllers in this process do, under the names of upstream's work queues.
//!
//! Deliberately not here: controllers. The binary joins them with these series.

use std::time::Duration;

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use super::{
    family,
    labels::{LeaseName, QueueName},
    single,
};

/// Upstream's buckets for work queues: from ten nanoseconds to a thousand seconds.
const SECONDS: [f64; 12] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0];

type Histograms = Family<QueueName, Histogram, fn() -> Histogram>;

/// The series of controllers; `name` is that of the controller.
#[derive(Debug)]
pub struct WorkSeries {
    adds: Family<QueueName, Counter>,
    depth: Family<QueueName, Gauge>,
    waits: Histograms,
    passes: Histograms,
    retries: Family<QueueName, Counter>,
    failures: Family<QueueName, Counter>,
    sync_errors: Counter,
    leads: Family<LeaseName, Gauge>,
}

impl WorkSeries {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let adds = family(registry, "workqueue_adds", "Objects that came into the queue of a controller");
        let depth = family(registry, "workqueue_depth", "Objects in the queue of a controller");
        let waits: Histograms = Family::new_with_constructor(|| Histogram::new(SECONDS));
        let passes: Histograms = Family::new_with_constructor(|| Histogram::new(SECONDS));
        registry.register(
            "workqueue_queue_duration_seconds",
            "How long objects wait in the queue of a controller",
            waits.clone(),
        );
        registry.register(
            "workqueue_work_duration_seconds",
            "How long passes of a controller take",
            passes.clone(),
        );
        let retries = family(registry, "workqueue_retries", "Passes of a controller that are repeated");
        let failures = family(registry, "convoy_controller_failed_passes", "Passes that failed");
        let sync_errors = single(
            registry,
            "garbagecollector_controller_resources_sync_error",
            "Failures to learn which resources there are, while which nothing is collected",
        );
        let leads = family(
            registry,
            "leader_election_master_status",
            "Whether this process holds the lease: 1 is yes",
        );
        Self { adds, depth, waits, passes, retries, failures, sync_errors, leads }
    }

    /// An object came into the queue.
    pub fn queued(&self, name: &'static str) {
        self.adds.get_or_create(&QueueName { name }).inc();
        self.depth.get_or_create(&QueueName { name }).inc();
    }

    /// An object left the queue.
    pub fn unqueued(&self, name: &'static str) {
        self.depth.get_or_create(&QueueName { name }).dec();
    }

    /// A pass begins after this time in the queue.
    pub fn begins(&self, name: &'static str, waited: Duration) {
        self.waits.get_or_create(&QueueName { name }).observe(waited.as_secs_f64());
    }

    /// A pass ended.
    pub fn ended(&self, name: &'static str, took: Duration, has_failed: bool) {
        self.passes.get_or_create(&QueueName { name }).observe(took.as_secs_f64());
        if has_failed {
            self.failures.get_or_create(&QueueName { name }).inc();
        }
    }

    /// A pass will be repeated.
    pub fn retried(&self, name: &'static str) {
        self.retries.get_or_create(&QueueName { name }).inc();
    }

    /// The garbage collector could not learn which resources there are.
    pub fn undiscovered(&self) {
        self.sync_errors.inc();
    }

    /// Whether this process holds a lease.
    pub fn leads(&self, name: &str, does: bool) {
        self.leads.get_or_create(&LeaseName { name: name.to_owned() }).set(i64::from(does));
    }
}
