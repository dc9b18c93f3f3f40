//! This server among the others: what its station is told of it, and what it does for its station.
//!
//! Deliberately not here: joining, reporting and collecting (`station`), the identity's Lease (`identity_lease`), and
//! what people see and steer (`fleet_api`).

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use access::{AuditEvent, Stage, User};
use bytes::Bytes;
use catalog::{Catalog, Gate};
use fleet::{
    Identity, Incarnation,
    cluster::Wanted,
    custom::Definition,
    stored::{Allowed, Census},
};
use futures_util::{FutureExt, future::BoxFuture};
use meta::{GroupResource, GroupVersion, Release, StorageVersion, Value};
use registry::Registry;
use station::{
    Config, Resource, Surroundings,
    config::{About, Notice},
};
use store::Key;
use tokio::sync::mpsc;

use crate::{chain::Chain, documents::PeerDiscovery, metrics::Metrics, peers::Peers, server::BINARY_RELEASE};

/// How much may wait to be written down; what comes on top is in the log only.
const MAX_WAITING: usize = 1024;

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
        let mirrors = catalog.definition("internal.apiserver.k8s.io", "storageversions");
        Config {
            identity: Identity::of_host(&self.hostname),
            incarnation: Incarnation::new(uuid::Uuid::new_v4().to_string()),
            release: BINARY_RELEASE,
            emulated,
            min_compatible: Release::v1(emulated.minor.saturating_sub(1)),
            peer_address: self.peer_address.clone(),
            features: features.map(|it| (it.name().to_owned(), catalog.gates().enabled(it))).into(),
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
    records: mpsc::Sender<ToRecord>,
}

/// Something for the audit log, or for an Event.
pub(crate) enum ToRecord {
    Mirrored(String, Option<Value>),
    Notice(Notice),
}

impl Around {
    /// The surroundings, and what they want to have recorded.
    pub(crate) fn of(
        registry: &Arc<Registry>,
        metrics: Arc<Metrics>,
        peers: Option<Peers>,
    ) -> (Self, mpsc::Receiver<ToRecord>) {
        let (records, receiver) = mpsc::channel(MAX_WAITING);
        (Self { registry: Arc::downgrade(registry), metrics, peers, records }, receiver)
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

    fn probe(&self, address: String) -> BoxFuture<'_, Option<(Identity, Incarnation)>> {
        async move { self.peers.as_ref()?.identity(&address).await }.boxed()
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

    fn mirrored(&self, name: &str, object: Option<&Value>) {
        self.metrics.storage_version_written();
        let _ = self.records.try_send(ToRecord::Mirrored(name.to_owned(), object.cloned()));
    }

    fn gate_opened(&self, resource: &GroupResource, after: Duration) {
        self.metrics.gate_opened(after);
        tracing::debug!(%resource, ?after, "can be written");
    }

    fn fence_retried(&self, resource: &GroupResource) {
        self.metrics.fence_retried(&resource.to_string());
    }

    fn noticed(&self, notice: &Notice) {
        let _ = self.records.try_send(ToRecord::Notice(notice.clone()));
    }
}

/// Writes down what the station did past the API: in the audit log, and as Events.
pub(crate) async fn record(
    chain: Weak<Chain>,
    registry: Weak<Registry>,
    mut receiver: mpsc::Receiver<ToRecord>,
) {
    while let Some(item) = receiver.recv().await {
        let (Some(chain), Some(registry)) = (chain.upgrade(), registry.upgrade()) else { return };
        match item {
            ToRecord::Mirrored(name, object) => audit(&chain, &name, object.as_ref()).await,
            ToRecord::Notice(notice) => tell(&registry, &notice).await,
        }
    }
}

/// Writes a notice as an Event. A server that may not write leaves it to the others; one that starts writes it a moment
/// later.
async fn tell(registry: &Arc<Registry>, notice: &Notice) {
    registry.station().until(|it| !it.is_member() || it.health().is_ok()).await;
    if registry.station().is_member()
        && let Err(status) = crate::events::write(registry, &event(notice)).await
    {
        tracing::warn!(%status, reason = notice.reason, "an Event could not be written");
    }
}

/// Tells people what this server leaves alone: objects that it was told to leave unreadable, and what is stored of
/// resources that it does not know.
pub(crate) async fn tell_of_leftovers(chain: &Chain, registry: &Arc<Registry>) {
    let station = registry.station();
    let warning = |reason: &'static str, message: String| {
        let about = About::Server(station.identity().clone());
        Notice { reason, is_warning: true, about, message }
    };
    let allowed: Vec<String> = station.config().allowed.iter().map(ToString::to_string).collect();
    if !allowed.is_empty() {
        let message =
            format!("takes part although it cannot read {}: --allow-undecodable", allowed.join(", "));
        audit_override(chain, &message).await;
        tell(registry, &warning("UndecodableAllowed", message)).await;
    }
    let unknown = registry.cache().unclaimed();
    if !unknown.is_empty() {
        let places: Vec<String> = unknown.iter().map(|(place, n)| format!("{n} below {place}")).collect();
        let message =
            format!("objects are stored of resources that this server does not know: {}", places.join(", "));
        tracing::warn!(message);
        tell(registry, &warning("UnknownResourcesStored", message)).await;
    }
}

fn event(notice: &Notice) -> crate::events::Event<'_> {
    use crate::events::{Event, Regarding};
    let regarding = match &notice.about {
        About::Resource(name) => Regarding {
            api_version: fleet::mirror::API_VERSION,
            kind: fleet::mirror::KIND,
            namespace: "",
            name,
        },
        About::Server(identity) => Regarding {
            api_version: "coordination.k8s.io/v1",
            kind: "Lease",
            namespace: "kube-system",
            name: identity.as_str(),
        },
    };
    Event {
        regarding,
        reason: notice.reason,
        action: "AgreeOnStorageVersion",
        is_warning: notice.is_warning,
        note: &notice.message,
    }
}

/// The audit record of a check that an operator has switched off.
async fn audit_override(chain: &Chain, message: &str) {
    let Some(log) = &chain.audit.log else { return };
    let user = servers();
    let path = "/convoy/allow-undecodable";
    let attributes = access::Attributes { user: &user, verb: "post", target: access::Target::Path(path) };
    let decision = chain.audit.policy.decide(&attributes);
    if decision.level == access::Level::None || !decision.wants(Stage::ResponseComplete) {
        return;
    }
    let id = uuid::Uuid::new_v4().to_string();
    let mut event = AuditEvent::received(&decision, &attributes, id.as_str(), path, chain.clock.now());
    event.annotations.insert("convoy/allow-undecodable".to_owned(), message.to_owned());
    event.set_code(200);
    event.set_stage(Stage::ResponseComplete, chain.clock.now());
    log.write(Bytes::from(event.to_line())).await;
}

/// Who acts where servers act by themselves.
fn servers() -> User {
    let mut user = User::named("system:apiserver");
    user.groups.push("system:masters".to_owned());
    user
}

/// The audit record of a StorageVersion that was written straight through the store.
async fn audit(chain: &Chain, name: &str, object: Option<&Value>) {
    let Some(log) = &chain.audit.log else { return };
    let user = servers();
    let target = access::Target::Resource {
        group: "internal.apiserver.k8s.io",
        version: "v1alpha1",
        resource: "storageversions",
        subresource: if object.is_some() { "status" } else { "" },
        namespace: "",
        name,
    };
    let verb = if object.is_some() { "update" } else { "delete" };
    let attributes = access::Attributes { user: &user, verb, target };
    let decision = chain.audit.policy.decide(&attributes);
    if decision.level == access::Level::None || !decision.wants(Stage::ResponseComplete) {
        return;
    }
    let uri = format!("/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/{name}");
    let uri = if object.is_some() { format!("{uri}/status") } else { uri };
    let id = uuid::Uuid::new_v4().to_string();
    let mut event = AuditEvent::received(&decision, &attributes, id.as_str(), &uri, chain.clock.now());
    event.annotations.insert("convoy/written".to_owned(), "straight through the store".to_owned());
    if let Some(object) = object.filter(|_| decision.wants_request()) {
        event.set_request(object);
    }
    event.set_code(200);
    event.set_stage(Stage::ResponseComplete, chain.clock.now());
    log.write(Bytes::from(event.to_line())).await;
}
