//! This server among the others: what its station is told of it, and what it does for its station.
//!
//! Deliberately not here: joining, reporting and collecting (`station`), the identity's Lease (`identity_lease`), what
//! is written down of it (`fleet_records`), and what people see and steer (`fleet_api`).

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use catalog::{Catalog, Gate};
use fleet::{
    ClusterId, Identity, Incarnation,
    cluster::Wanted,
    custom::Definition,
    member::Other,
    stored::{Allowed, Census},
};
use futures_util::{FutureExt, future::BoxFuture};
use meta::{GroupResource, GroupVersion, Release, StorageVersion, Value};
use registry::Registry;
use station::{
    Config, Resource, Surroundings,
    config::{Notice, Occasion},
};
use store::Key;

use crate::{
    documents::PeerDiscovery,
    fleet_records::Recorder,
    metrics::Metrics,
    peers::{self, Peers},
    server::BINARY_RELEASE,
};

/// How this server takes part in a cluster of several.
#[derive(Clone, Debug)]
pub struct FleetSettings {
    /// What its identity is made of.
    pub hostname: String,
    /// Where other servers reach it.
    pub peer_address: Option<String>,
    /// The modes that flags ask for.
    pub wanted: Wanted,
    /// `--member-lease-duration`
    pub lease: Duration,
    /// `--departure-settle-time`
    pub settle: Duration,
    /// `--allow-undecodable`
    pub allowed: Vec<Allowed>,
    /// Whether the store admits one process at a time.
    pub is_exclusive: bool,
    /// Whether it collects what departed servers left.
    pub collects: bool,
    /// How to reach other servers.
    pub peers: Option<Peers>,
    /// `--peer-discovery`
    pub discovery: PeerDiscovery,
}

impl FleetSettings {
    /// What a server is without flags.
    pub fn named(hostname: impl Into<String>) -> Self {
        Self {
            hostname: hostname.into(),
            peer_address: None,
            wanted: Wanted::default(),
            lease: Duration::from_secs(10),
            settle: Duration::from_secs(60),
            allowed: Vec::new(),
            is_exclusive: false,
            collects: true,
            peers: None,
            discovery: PeerDiscovery::default(),
        }
    }

    /// What the station of such a server is told.
    pub(crate) fn config(&self, catalog: &Catalog) -> Config {
        let emulated = catalog.release();
        let features =
            [Gate::ApiServerIdentity, Gate::StorageVersionApi, Gate::UnknownVersionInteroperabilityProxy];
        let mut features: BTreeMap<String, bool> =
            features.map(|it| (it.name().to_owned(), catalog.gates().enabled(it))).into();
        features.insert(fleet::member::REQUIRES_GROUNDS.to_owned(), true);
        let mirrors = catalog.definition("internal.apiserver.k8s.io", "storageversions");
        Config {
            identity: Identity::of_host(&self.hostname),
            incarnation: Incarnation::new(uuid::Uuid::new_v4().to_string()),
            fresh_cluster: ClusterId::new(uuid::Uuid::new_v4().to_string()),
            release: BINARY_RELEASE,
            emulated,
            min_compatible: Release::v1(emulated.minor.saturating_sub(1)),
            peer_address: self.peer_address.clone(),
            features,
            resources: resources(catalog),
            offer: Arc::new(crate::discovery::offer(catalog)),
            wanted: self.wanted,
            lease: self.lease,
            settle: self.settle,
            allowed: self.allowed.clone(),
            is_exclusive: self.is_exclusive,
            collects: self.collects,
            mirrors: mirrors
                .and_then(|it| it.key_prefix.as_deref())
                .unwrap_or("/registry/storageversions/")
                .to_owned(),
        }
    }
}

/// The built-in resources that are stored, one for each record.
fn resources(catalog: &Catalog) -> Vec<Resource> {
    let mut by_record: BTreeMap<GroupResource, Resource> = BTreeMap::new();
    let text = |it: &GroupVersion| StorageVersion::new(it.to_string());
    for definition in catalog.definitions() {
        let (Some(prefix), Some(storage)) = (&definition.key_prefix, &definition.storage) else { continue };
        let resource = by_record.entry(definition.record.clone()).or_insert_with(|| Resource {
            record: definition.record.clone(),
            preferred: text(storage),
            decodable: definition.decodable.iter().map(text).collect(),
            served: Vec::new(),
            prefix: prefix.to_string(),
        });
        let versions = definition.versions.iter();
        let served = versions.map(|it| text(&GroupVersion::new(definition.group.clone(), it.as_str())));
        resource.served.extend(served);
    }
    for resource in by_record.values_mut() {
        resource.served.sort();
        resource.served.dedup();
        resource.decodable.sort();
        resource.decodable.dedup();
    }
    by_record.into_values().collect()
}

/// What a station asks of this server. Holds it weakly: the server holds the station.
pub(crate) struct Around {
    registry: Weak<Registry>,
    metrics: Arc<Metrics>,
    peers: Option<Peers>,
    recorder: Recorder,
}

impl Around {
    pub(crate) fn of(
        registry: &Arc<Registry>,
        metrics: Arc<Metrics>,
        peers: Option<Peers>,
        recorder: Recorder,
    ) -> Self {
        Self { registry: Arc::downgrade(registry), metrics, peers, recorder }
    }

    fn with<T>(&self, ask: impl FnOnce(&Registry) -> T) -> Option<T> {
        self.registry.upgrade().map(|it| ask(&it))
    }
}

impl Surroundings for Around {
    fn census(&self) -> BoxFuture<'_, Result<Census, String>> {
        let registry = self.registry.upgrade();
        async move {
            let registry = registry.ok_or("the server is gone")?;
            registry.census().await.map_err(|it| it.to_string())
        }
        .boxed()
    }

    fn probe(&self, address: String) -> BoxFuture<'_, Other> {
        async move { peers::probe(self.peers.as_ref(), &address).await }.boxed()
    }

    fn definitions(&self) -> Vec<(GroupResource, Definition)> {
        self.with(Registry::reported_definitions).unwrap_or_default()
    }

    fn definition(&self, resource: &GroupResource) -> Option<Definition> {
        self.with(|it| it.reported_definition(resource)).flatten()
    }

    fn definition_key(&self, resource: &GroupResource) -> Key {
        registry::custom::definition_key(resource)
    }

    fn custom_prefix(&self, resource: &GroupResource) -> String {
        registry::custom::custom_prefix(resource)
    }

    fn mirrored(&self, name: &str, object: Option<&Arc<Value>>, occasion: Occasion) {
        self.metrics.storage_version_written(occasion.as_str());
        self.recorder.mirrored(name, object);
    }

    fn gate_opened(&self, resource: &GroupResource, after: Duration) {
        self.metrics.gate_opened(after);
        tracing::debug!(%resource, ?after, "can be written");
    }

    fn agreed(&self, resource: &GroupResource, after: Duration) {
        self.metrics.agreed(after);
        tracing::debug!(%resource, ?after, "all servers agree on a storage version");
    }

    fn fence_retried(&self, resource: &GroupResource) {
        self.metrics.fence_retried(&resource.to_string());
    }

    fn noticed(&self, notice: &Notice) {
        self.recorder.noticed(notice);
    }
}

#[cfg(test)]
mod tests {
    use catalog::{FeatureGates, RuntimeConfig};

    use super::*;

    /// SV-12: by group, then by resource, the core group first; of resources that share a record the first.
    #[test]
    fn resources_are_reported_in_one_order_and_each_record_once() {
        let resource = GroupResource::new;
        let sorted = [
            resource("", "nodes"),
            resource("", "pods"),
            resource("extensions", "ingresses"),
            resource("networking.k8s.io", "ingresses"),
        ];
        let mut mixed = [3, 1, 2, 0].map(|it: usize| sorted[it].clone());
        mixed.sort();
        assert_eq!(mixed, sorted);
        let release = Release::v1(36);
        let catalog =
            Catalog::new(release, &RuntimeConfig::default(), &FeatureGates::defaults(release)).unwrap();
        let records: Vec<GroupResource> = resources(&catalog).into_iter().map(|it| it.record).collect();
        assert!(records.is_sorted() && records.len() > 50, "{records:?}");
        let events: Vec<_> = records.iter().filter(|it| &*it.resource == "events").collect();
        assert_eq!(events.len(), 1, "{events:?}");
    }
}
