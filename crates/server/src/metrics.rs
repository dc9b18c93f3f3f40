//! What `/metrics` shows, under upstream's names.
//!
//! Responsible for: one registry per server, cheap counting on the path of a request, and Prometheus' text.
//! Deliberately not here: when something is counted. Nothing is global: two servers in one process count apart.
//! Start reading at [`Metrics`]; `series` is the part that every request passes.

mod admission;
mod fleet;
mod labels;
mod migration;
mod names;
mod peers;
mod process;
mod series;
mod text;
mod work;

use std::{fmt, time::Duration};

use parking_lot::Mutex;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use store::SharedClock;

use self::{
    admission::AdmissionSeries,
    fleet::FleetSeries,
    labels::{
        AuthResult, Build, Check, CheckOutcome, LongRunning, Operation, Plugin, RequestKind, Resource,
        Termination, Watched,
    },
    names::Names,
    peers::PeerSeries,
    process::Process,
    series::RequestSeries,
};
pub use self::{fleet::FleetSummary, migration::MigrationSeries, series::RequestKey, work::WorkSeries};

/// `Content-Type` of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Upstream's buckets for the time of requests, in seconds.
const SECONDS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0, 60.0,
];

/// Upstream's buckets for the size of answers, in bytes.
const BYTES: [f64; 7] = [1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

/// The most series that clients can make by asking for different things; whatever comes later is counted together.
const MAX_REQUEST_SERIES: usize = 4_000;

/// Everything one server counts.
pub struct Metrics {
    registry: Registry,
    requests: RequestSeries,
    in_flight: Family<RequestKind, Gauge>,
    long_running: Family<LongRunning, Gauge>,
    watchers: Family<Watched, Gauge>,
    watch_events: Family<Watched, Counter>,
    terminations: Family<Termination, Counter>,
    audit_errors: Family<Plugin, Counter>,
    authentication: Family<AuthResult, Counter>,
    storage_objects: Family<Resource, Gauge>,
    store_requests: Family<Operation, Histogram, fn() -> Histogram>,
    health: Family<Check, Gauge>,
    health_total: Family<CheckOutcome, Counter>,
    admission: AdmissionSeries,
    fleet: FleetSeries,
    peers: PeerSeries,
    work: WorkSeries,
    migration: MigrationSeries,
    process: Process,
    names: Names,
    before_render: Mutex<Vec<BeforeRender>>,
    /// Audit events that were written.
    pub audit_events: Counter,
    /// Handshakes that failed.
    pub tls_handshake_errors: Counter,
    /// Panics that were caught.
    pub panics: Counter,
    /// Open connections.
    pub connections: Gauge,
}

type BeforeRender = Box<dyn Fn(&Metrics) + Send + Sync>;

impl Metrics {
    /// Nothing counted yet. The versions are for `kubernetes_build_info`.
    pub fn new(clock: &SharedClock, git_version: &str, release: meta::Release) -> Self {
        let mut registry = Registry::default();
        let r = &mut registry;
        let requests = RequestSeries::register(r);
        let in_flight =
            family(r, "apiserver_current_inflight_requests", "Requests being worked on, per kind");
        let long_running = family(r, "apiserver_longrunning_requests", "Open requests without a time limit");
        let watchers = family(r, "apiserver_registered_watchers", "Open watches, per kind");
        let watch_events = family(r, "apiserver_watch_events", "Events sent to watchers");
        let terminations =
            family(r, "apiserver_request_terminations", "Requests that the server refused to protect itself");
        let audit_errors = family(r, "apiserver_audit_error", "Audit events that were lost, per plugin");
        let authentication = family(r, "authentication_attempts", "Attempts to authenticate, per result");
        let storage_objects = family(r, "apiserver_storage_objects", "Stored objects, per resource");
        let store_requests: Family<Operation, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(SECONDS));
        r.register("etcd_request_duration_seconds", "Time of requests to the store", store_requests.clone());
        let health = family(r, "kubernetes_healthcheck", "The last result of a health check: 1 is healthy");
        let health_total = family(r, "kubernetes_healthchecks", "Results of health checks");
        let build: Family<Build, Gauge> =
            family(r, "kubernetes_build_info", "The version of this server, in labels");
        build.get_or_create(&Build::new(git_version, release)).set(1);
        let admission = AdmissionSeries::register(r);
        let fleet = FleetSeries::register(r);
        let peers = PeerSeries::register(r);
        let work = WorkSeries::register(r);
        let migration = MigrationSeries::register(r);
        let process = Process::register(r, clock.now());
        let audit_events = single(r, "apiserver_audit_event", "Audit events that were written");
        let tls_handshake_errors = single(r, "apiserver_tls_handshake_errors", "TLS handshakes that failed");
        let panics = single(r, "convoy_panics", "Panics that were caught and answered with an error");
        let connections = single(r, "convoy_open_connections", "Open connections");
        Self {
            registry,
            requests,
            in_flight,
            long_running,
            watchers,
            watch_events,
            terminations,
            audit_errors,
            authentication,
            storage_objects,
            store_requests,
            health,
            health_total,
            admission,
            fleet,
            peers,
            work,
            migration,
            process,
            names: Names::default(),
            before_render: Mutex::default(),
            audit_events,
            tls_handshake_errors,
            panics,
            connections,
        }
    }

    /// A request was answered. `response_bytes` where the size is known.
    pub fn request_done(&self, key: &RequestKey<'_>, took: Duration, response_bytes: Option<u64>) {
        self.requests.done(key, took, response_bytes);
    }

    /// A request was refused or cut off by the server to protect itself: 429 and 504.
    pub fn request_terminated(&self, key: &RequestKey<'_>) {
        self.terminations.get_or_create(&Termination::new(&self.names.of_request(key))).inc();
    }

    /// A watch begins; it is counted until the guard is dropped.
    pub fn watch_started(&self, key: &RequestKey<'_>, kind: &str) -> WatchGuard {
        let key = &self.names.of_request(key);
        let watched = Watched::new(key.group, key.version, self.names.shown(kind));
        let guard = WatchGuard {
            long_running: self.long_running.get_or_create_owned(&LongRunning::new(key)),
            watchers: self.watchers.get_or_create_owned(&watched),
            events: self.watch_events.get_or_create_owned(&watched),
        };
        guard.long_running.inc();
        guard.watchers.inc();
        guard
    }

    /// How many requests of a kind are being worked on: `mutating` or `readOnly`.
    pub fn set_in_flight(&self, request_kind: &'static str, requests: usize) {
        self.in_flight.get_or_create(&RequestKind { request_kind }).set(as_i64(requests));
    }

    /// An attempt to authenticate: `success`, `failure` or `error`.
    pub fn authentication_attempt(&self, result: &'static str) {
        self.authentication.get_or_create(&AuthResult { result }).inc();
    }

    /// How many objects of a resource are stored, for instance `deployments.apps`.
    pub fn set_storage_objects(&self, resource: &str, objects: usize) {
        let resource = self.names.shown(resource).to_owned();
        self.storage_objects.get_or_create(&Resource { resource }).set(as_i64(objects));
    }

    /// The handle to time one kind of request to the store with; keep it.
    pub fn store_request(&self, operation: &'static str, resource: &str) -> Histogram {
        let r#type = self.names.shown(resource).to_owned();
        self.store_requests.get_or_create_owned(&Operation { operation, r#type })
    }

    /// An audit event was lost.
    pub fn audit_event_lost(&self, plugin: &'static str) {
        self.audit_errors.get_or_create(&Plugin { plugin }).inc();
    }

    /// A health check ran, for `healthz`, `livez` or `readyz`.
    pub fn health_checked(&self, check: &str, endpoint: &'static str, healthy: bool) {
        let label = Check { name: check.to_owned(), r#type: endpoint };
        self.health.get_or_create(&label).set(i64::from(healthy));
        let status = if healthy { "success" } else { "error" };
        let Check { name, r#type } = label;
        self.health_total.get_or_create(&CheckOutcome { name, status, r#type }).inc();
    }

    /// What controllers in this process count.
    pub fn work(&self) -> &WorkSeries {
        &self.work
    }

    /// Migrations of stored objects.
    pub fn migration(&self) -> &MigrationSeries {
        &self.migration
    }

    /// Called before every rendering, to set what nobody counts along the way.
    pub fn before_render(&self, set: impl Fn(&Self) + Send + Sync + 'static) {
        self.before_render.lock().push(Box::new(set));
    }

    /// The text of `/metrics`.
    pub fn render(&self) -> String {
        for set in self.before_render.lock().iter() {
            set(self);
        }
        self.process.refresh();
        text::render(&self.registry)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// One open watch.
#[derive(Debug)]
pub struct WatchGuard {
    long_running: Gauge,
    watchers: Gauge,
    /// Events sent.
    pub events: Counter,
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.long_running.dec();
        self.watchers.dec();
    }
}

fn family<L, M>(registry: &mut Registry, name: &str, help: &str) -> Family<L, M>
where
    Family<L, M>: prometheus_client::registry::Metric + Default + Clone,
{
    single(registry, name, help)
}

fn single<M: prometheus_client::registry::Metric + Default + Clone>(
    registry: &mut Registry,
    name: &str,
    help: &str,
) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
