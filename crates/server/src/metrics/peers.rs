//! What is counted about requests that other servers answer, and about what they offer. Upstream's names.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use super::{Metrics, family, single};
use crate::authorize::Authorized;

#[derive(Debug)]
pub(super) struct PeerSeries {
    rerouted: Family<Rerouted, Counter>,
    /// The sum of the above.
    all_rerouted: Counter,
    errors: Family<ProxyError, Counter>,
    refused: Family<Refused, Counter>,
    sync_errors: Family<SyncError, Counter>,
    made: Counter,
    hits: Counter,
    misses: Counter,
    local: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Rerouted {
    code: u16,
    group: String,
    version: String,
    resource: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProxyError {
    r#type: &'static str,
    group: String,
    version: String,
    resource: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Refused {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SyncError {
    r#type: &'static str,
}

impl PeerSeries {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let r = registry;
        let rerouted: Family<Rerouted, Counter> =
            family(r, "apiserver_rerouted_request", "Requests that another server was asked to answer");
        // The name of the proposal, for those who look for it.
        r.register(
            "kubernetes_apiserver_rerouted_request",
            "Requests that another server was asked to answer",
            rerouted.clone(),
        );
        let sync_errors: Family<SyncError, Counter> = family(
            r,
            "apiserver_peer_discovery_sync_errors",
            "Times that what a peer serves could not be told",
        );
        for r#type in ["lease_list", "hostport_resolution", "fetch_discovery"] {
            let _there_from_the_start = sync_errors.get_or_create(&SyncError { r#type });
        }
        let refused: Family<Refused, Counter> = family(
            r,
            "convoy_peer_requests_refused",
            "Requests that a server handed on which is no member of this cluster",
        );
        for reason in ["other_cluster", "unknown_member"] {
            let _there_from_the_start = refused.get_or_create(&Refused { reason });
        }
        Self {
            refused,
            rerouted,
            all_rerouted: Counter::default(),
            errors: family(
                r,
                "apiserver_peer_proxy_errors",
                "Requests that no peer could be asked to answer",
            ),
            sync_errors,
            made: single(r, "aggregator_discovery_aggregation_count", "Discovery documents that were made"),
            hits: single(
                r,
                "aggregator_discovery_peer_aggregated_cache_hits",
                "Merged discovery documents that were there already",
            ),
            misses: single(
                r,
                "aggregator_discovery_peer_aggregated_cache_misses",
                "Merged discovery documents that had to be made",
            ),
            local: single(
                r,
                "aggregator_discovery_nopeer_requests",
                "Requests for what this server serves by itself",
            ),
        }
    }
}

impl Metrics {
    /// Another server was asked; the code is that of its answer, or 503 if there was none.
    pub(crate) fn rerouted(&self, asked: &Authorized<'_>, code: u16) {
        let [group, version, resource] = self.labels(asked);
        self.peers.rerouted.get_or_create(&Rerouted { code, group, version, resource }).inc();
        self.peers.all_rerouted.inc();
    }

    /// How many requests another server was asked to answer.
    pub fn n_rerouted(&self) -> u64 {
        self.peers.all_rerouted.get()
    }

    /// No server could be asked: `endpoint_resolution` or `proxy_transport`.
    pub(crate) fn peer_proxy_error(&self, r#type: &'static str, asked: &Authorized<'_>) {
        let [group, version, resource] = self.labels(asked);
        self.peers.errors.get_or_create(&ProxyError { r#type, group, version, resource }).inc();
    }

    /// A forwarded request was refused because of who sent it: `other_cluster` or `unknown_member`.
    pub(crate) fn peer_request_refused(&self, reason: &'static str) {
        self.peers.refused.get_or_create(&Refused { reason }).inc();
    }

    /// What a member offers could not be told: `lease_list`, `hostport_resolution` or `fetch_discovery`.
    pub(crate) fn peer_discovery_error(&self, r#type: &'static str) {
        self.peers.sync_errors.get_or_create(&SyncError { r#type }).inc();
    }

    /// A document about this server alone was made.
    pub(crate) fn discovery_made(&self) {
        self.peers.made.inc();
    }

    /// A document about all servers was asked for; whether it was there already.
    pub(crate) fn merged_discovery(&self, was_there: bool) {
        if was_there { &self.peers.hits } else { &self.peers.misses }.inc();
    }

    /// A document about this server alone was asked for.
    pub(crate) fn discovery_without_peers(&self) {
        self.peers.local.inc();
    }

    /// What is asked for: only what some member offers is ever handed on.
    fn labels(&self, asked: &Authorized<'_>) -> [String; 3] {
        let resource = asked.resource();
        let shown = |it: &String| self.names.shown(it).to_owned();
        resource.map_or_else(Default::default, |it| [&it.group, &it.version, &it.resource].map(shown))
    }
}
