//! What a station is told, and what it may ask the server around it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fleet::{
    ClusterId, Identity, Incarnation, MemberRecord, Offer,
    cluster::{PROTOCOL, Wanted},
    custom::Definition,
    member::{Other, Persisted},
    record::{FORMAT, Unknown},
    stored::{Allowed, Census},
};
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use meta::{GroupResource, Release, StorageVersion, Value};
use store::Key;

/// Who this server is, and how it takes part.
#[derive(Clone, Debug)]
pub struct Config {
    /// The server.
    pub identity: Identity,
    /// This process.
    pub incarnation: Incarnation,
    /// What a cluster is called from now on that has no id yet.
    pub fresh_cluster: ClusterId,
    /// What the binary is.
    pub release: Release,
    /// What it behaves as.
    pub emulated: Release,
    /// The oldest release it stays compatible with.
    pub min_compatible: Release,
    /// Where other servers reach it.
    pub peer_address: Option<String>,
    /// Gates that matter to others.
    pub features: BTreeMap<String, bool>,
    /// The built-in resources that it stores, one for each record.
    pub resources: Vec<Resource>,
    /// What it offers to clients by itself.
    pub offer: Arc<Offer>,
    /// The modes that its flags ask for.
    pub wanted: Wanted,
    /// `--member-lease-duration`
    pub lease: Duration,
    /// `--departure-settle-time`
    pub settle: Duration,
    /// `--allow-undecodable`
    pub allowed: Vec<Allowed>,
    /// Whether the store admits one process at a time, so that an older one with this identity must be dead.
    pub is_exclusive: bool,
    /// Whether it collects what the departed left.
    pub collects: bool,
    /// Where StorageVersion objects are stored.
    pub mirrors: String,
}

/// A built-in resource as this release stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// The resource that names the record.
    pub record: GroupResource,
    /// What this release likes to write.
    pub preferred: StorageVersion,
    /// What it can read.
    pub decodable: Vec<StorageVersion>,
    /// What it serves, of all resources that share the record.
    pub served: Vec<StorageVersion>,
    /// Where the objects are.
    pub prefix: String,
}

/// What a station asks of, and tells, the server around it.
pub trait Surroundings: Send + Sync + 'static {
    /// How many objects are stored in which version, counted at a moment after the call.
    fn census(&self) -> BoxFuture<'_, Result<Census, String>>;

    /// Who answers at the address of a peer, nobody, or something that could not be proven to be anybody.
    fn probe(&self, address: String) -> BoxFuture<'_, Other>;

    /// The definitions of all custom resources, as this server knows them.
    fn definitions(&self) -> Vec<(GroupResource, Definition)>;

    /// The definition of one custom resource, as this server knows it.
    fn definition(&self, resource: &GroupResource) -> Option<Definition>;

    /// Where the definition of a custom resource is stored.
    fn definition_key(&self, resource: &GroupResource) -> Key;

    /// Where the objects of a custom resource are stored.
    fn custom_prefix(&self, resource: &GroupResource) -> String;

    /// A StorageVersion object was written past the API, or removed.
    fn mirrored(&self, name: &str, object: Option<&Arc<Value>>, occasion: Occasion);

    /// A resource can be written now, so long after this server began to report it.
    fn gate_opened(&self, resource: &GroupResource, after: Duration);

    /// The servers have come to agree on a resource, so long after they had begun to disagree or to report it.
    fn agreed(&self, resource: &GroupResource, after: Duration);

    /// A put or a report met a fence that had changed.
    fn fence_retried(&self, resource: &GroupResource);

    /// Something happened that people should read about.
    fn noticed(&self, notice: &Notice);
}

/// What a server wrote a StorageVersion object for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// It said what it stores.
    Report,
    /// The same, and that was its vote.
    Vote,
    /// Somebody has left, or time has passed since.
    Collect,
    /// An operator set or lifted a hold.
    Hold,
    /// Somebody had changed or deleted the object.
    Mend,
}

/// Something for a log and an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// In one word, as in an Event.
    pub reason: &'static str,
    /// Whether somebody should act.
    pub is_warning: bool,
    /// The StorageVersion or server it is about.
    pub about: About,
    /// In a sentence.
    pub message: String,
}

/// What a [`Notice`] is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// A StorageVersion object, by name.
    Resource(String),
    /// A server's identity.
    Server(Identity),
}

impl Occasion {
    /// In one word, for a metric.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Vote => "vote",
            Self::Collect => "collect",
            Self::Hold => "hold",
            Self::Mend => "mend",
        }
    }
}

impl Config {
    /// What this server records of itself.
    pub(crate) fn member(&self, cluster: Option<ClusterId>, now: Timestamp) -> MemberRecord {
        MemberRecord {
            format: FORMAT,
            identity: self.identity.clone(),
            incarnation: self.incarnation.clone(),
            release: self.release,
            emulated: self.emulated,
            min_compatible: self.min_compatible,
            peer_address: self.peer_address.clone(),
            protocol: PROTOCOL,
            cluster,
            features: self.features.clone(),
            persisted: self
                .resources
                .iter()
                .map(|it| {
                    let (preferred, decodable) = (it.preferred.clone(), it.decodable.clone());
                    (it.record.clone(), Persisted { preferred, decodable })
                })
                .collect(),
            offer: Arc::clone(&self.offer),
            since: now,
            unknown: Unknown::new(),
        }
    }

    /// Whether it takes part in agreements.
    pub(crate) fn votes(&self) -> bool {
        self.features.get(fleet::member::FEATURE).copied().unwrap_or(false)
    }

    /// The built-in resource of a record.
    pub(crate) fn resource(&self, record: &GroupResource) -> Option<&Resource> {
        self.resources.iter().find(|it| it.record == *record)
    }
}
