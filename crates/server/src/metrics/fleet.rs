//! What is counted about members, reports and fences.

use std::time::Duration;

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use super::{
    Metrics, SECONDS, as_i64,
    labels::{AgreementState, Resource, WriteKind},
};

/// A rollout takes minutes or hours, and so does the agreement on what it brings.
const WAITS: [f64; 14] =
    [0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 14_400.0, 43_200.0, 86_400.0];

#[derive(Debug)]
pub(super) struct FleetSeries {
    members: Gauge,
    agreement: Family<AgreementState, Gauge>,
    written: Family<WriteKind, Counter>,
    events_lost: Counter,
    retries: Family<Resource, Counter>,
    gate: Histogram,
    consensus: Histogram,
    open: Gauge,
    closed: Gauge,
}

/// How far the fleet is, for gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FleetSummary {
    /// Live members.
    pub members: usize,
    /// Resources that all store in the same version.
    pub agreed: usize,
    /// Resources that they do not.
    pub disagreed: usize,
    /// Resources that this server may write.
    pub open: usize,
    /// Resources that it may not write yet.
    pub closed: usize,
}

impl FleetSeries {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let (members, agreement, written) = (Gauge::default(), Family::default(), Family::default());
        let events_lost = Counter::default();
        let (retries, open, closed) = (Family::default(), Gauge::default(), Gauge::default());
        let (gate, consensus) = (Histogram::new(SECONDS), Histogram::new(WAITS));
        let r = registry;
        r.register("convoy_fleet_members", "Servers that are members of the cluster", members.clone());
        r.register(
            "convoy_storage_version_agreements",
            "Resources by whether all servers store them in the same version",
            agreement.clone(),
        );
        r.register(
            "convoy_storage_version_writes",
            "StorageVersion objects that this server wrote, per occasion: report, vote, collect, hold, mend",
            written.clone(),
        );
        r.register(
            "convoy_fleet_events_lost",
            "Events about servers and storage versions that could not be written",
            events_lost.clone(),
        );
        r.register(
            "convoy_fence_retries",
            "Writes that met a changed agreement and were tried again, per resource",
            retries.clone(),
        );
        r.register(
            "convoy_storage_version_gate_seconds",
            "Time from joining until a resource could be written",
            gate.clone(),
        );
        r.register(
            "convoy_storage_version_consensus_seconds",
            "Time from the first report of a resource, or the first vote for another version, until all servers agreed",
            consensus.clone(),
        );
        r.register("convoy_storage_version_gates_open", "Resources that this server may write", open.clone());
        r.register(
            "convoy_storage_version_gates_closed",
            "Resources that this server may not write yet",
            closed.clone(),
        );
        Self { members, agreement, written, events_lost, retries, gate, consensus, open, closed }
    }
}

impl Metrics {
    /// How far the fleet is.
    pub fn set_fleet(&self, summary: FleetSummary) {
        let FleetSummary { members, agreed, disagreed, open, closed } = summary;
        self.fleet.members.set(as_i64(members));
        for (state, count) in [("agreed", agreed), ("disagreed", disagreed)] {
            self.fleet.agreement.get_or_create(&AgreementState { state }).set(as_i64(count));
        }
        self.fleet.open.set(as_i64(open));
        self.fleet.closed.set(as_i64(closed));
    }

    /// A StorageVersion object was written on this occasion.
    pub fn storage_version_written(&self, kind: &'static str) {
        self.fleet.written.get_or_create(&WriteKind { kind }).inc();
    }

    /// An Event about a server or a storage version was lost.
    pub fn fleet_event_lost(&self) {
        self.fleet.events_lost.inc();
    }

    /// A write met a changed agreement.
    pub fn fence_retried(&self, resource: &str) {
        let resource = self.names.shown(resource).to_owned();
        self.fleet.retries.get_or_create(&Resource { resource }).inc();
    }

    /// All servers agreed on a resource, so long after they had begun to disagree.
    pub fn agreed(&self, after: Duration) {
        self.fleet.consensus.observe(after.as_secs_f64());
    }

    /// A resource could be written, so long after this server had joined.
    pub fn gate_opened(&self, after: Duration) {
        self.fleet.gate.observe(after.as_secs_f64());
    }
}
