//! Discovery and OpenAPI of everything that is served: what is built in and what users define.
//!
//! Users define things while the server runs, so documents are made anew when they are asked for and something has
//! changed since; in between they are handed out as they are.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
    sync::{Arc, OnceLock},
};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use catalog::{
    Catalog, Definition, Gate, Group, Served, Verb,
    discovery::{
        self, Documents, GroupDiscovery, ResourceDiscovery, SubresourceDiscovery, Tagged, VersionDiscovery,
    },
    openapi::{self, OpenApi},
};
use fleet::MemberRecord;
use meta::{GroupVersion, Value};
use parking_lot::Mutex;
use registry::{Kind, Registry, custom::Custom};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::{answer, metrics::Metrics, negotiate::discovery::Profile};

/// The order in which upstream lists the verbs of custom resources.
const VERBS: [Verb; 8] = [
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Create,
    Verb::Update,
    Verb::Watch,
];

/// What is left while a definition goes.
const ENDING_VERBS: [Verb; 5] = [Verb::Delete, Verb::DeleteCollection, Verb::Get, Verb::List, Verb::Watch];

/// Which servers' documents clients see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerDiscovery {
    /// Everything that any live member serves.
    #[default]
    Merged,
    /// What the newest live member serves.
    Newest,
}

/// The documents of one server.
pub(crate) struct ServedDocuments {
    catalog: Arc<Catalog>,
    registry: Arc<Registry>,
    metrics: Arc<Metrics>,
    mode: PeerDiscovery,
    server_address: String,
    own: ArcSwapOption<Made>,
    of_all: ArcSwapOption<Made>,
    union: ArcSwapOption<Made>,
    /// After a change everybody wants the same documents: one makes them, the others wait for those.
    turn: Mutex<()>,
    /// The same for those that wait without holding up a thread.
    preparing: Arc<tokio::sync::Mutex<()>>,
}

/// Documents with the numbers of the changes that they show. What was made from older facts is never taken for newer: the
/// numbers are read first.
pub(crate) struct Made {
    changes: Changes,
    documents: Documents,
    root: OnceLock<Bytes>,
    /// The aggregated documents for clients that read gzip, each packed once: of `/api` and `/apis`, v2 and v2beta1.
    packed: [OnceLock<Bytes>; 4],
}

/// A document that is the same for everybody until something changes.
pub(crate) struct Aggregated<'a> {
    pub(crate) document: &'a Tagged,
    packed: &'a OnceLock<Bytes>,
}

impl Aggregated<'_> {
    /// The document packed with gzip, where that pays.
    pub(crate) fn packed(&self) -> Option<Bytes> {
        let body = &self.document.body;
        (body.len() >= answer::GZIP_FROM)
            .then(|| self.packed.get_or_init(|| answer::gzip(body).into()).clone())
    }
}

impl Deref for Made {
    type Target = Documents;

    fn deref(&self) -> &Documents {
        &self.documents
    }
}

impl Made {
    /// `/`: what there is.
    pub(crate) fn root(&self) -> &Bytes {
        self.root.get_or_init(|| {
            let fixed = [
                "/api",
                "/api/v1",
                "/apis",
                "/healthz",
                "/livez",
                "/metrics",
                "/openapi/v2",
                "/openapi/v3",
                "/readyz",
                "/version",
            ];
            let mut paths: Vec<String> = fixed.map(str::to_owned).to_vec();
            paths.extend(self.groups.keys().map(|it| format!("/apis/{it}")));
            let group_versions = self.group_versions.keys().filter(|it| it.contains('/'));
            paths.extend(group_versions.map(|it| format!("/apis/{it}")));
            paths.sort();
            Bytes::from(json!({ "paths": paths }).to_string())
        })
    }

    /// `/api` as v2 and v2beta1.
    pub(crate) fn aggregated_api(&self) -> [Aggregated<'_>; 2] {
        let [v2, v2beta1, ..] = &self.packed;
        [
            Aggregated { document: &self.aggregated_api_v2, packed: v2 },
            Aggregated { document: &self.aggregated_api_v2beta1, packed: v2beta1 },
        ]
    }

    /// `/apis` as v2 and v2beta1.
    pub(crate) fn aggregated_apis(&self) -> [Aggregated<'_>; 2] {
        let [.., v2, v2beta1] = &self.packed;
        [
            Aggregated { document: &self.aggregated_apis_v2, packed: v2 },
            Aggregated { document: &self.aggregated_apis_v2beta1, packed: v2beta1 },
        ]
    }
}

/// Of what users define, of what is stored, and of the members.
type Changes = (u64, u64, u64);

impl ServedDocuments {
    pub(crate) fn new(
        catalog: Arc<Catalog>,
        registry: Arc<Registry>,
        metrics: Arc<Metrics>,
        mode: PeerDiscovery,
        server_address: String,
    ) -> Self {
        let (own, of_all, union) = (ArcSwapOption::empty(), ArcSwapOption::empty(), ArcSwapOption::empty());
        let (turn, preparing) = (Mutex::new(()), Arc::default());
        Self { catalog, registry, metrics, mode, server_address, own, of_all, union, turn, preparing }
    }

    /// The documents of a profile, as of now. The first after a change makes them.
    pub(crate) fn of(&self, profile: Profile) -> Arc<Made> {
        match profile {
            Profile::NoPeer => self.own(),
            Profile::Usual => self.of_all(),
            Profile::Union => self.union(),
        }
    }

    /// Sees to it that the documents of a profile are there, without making them on a thread that serves requests.
    pub(crate) async fn prepare(self: &Arc<Self>, profile: Profile) {
        if self.has(profile) {
            return;
        }
        let turn = Arc::clone(&self.preparing).lock_owned().await;
        if self.has(profile) {
            return;
        }
        let served = Arc::clone(self);
        // A panic shows where the documents are asked for.
        let _ = tokio::task::spawn_blocking(move || {
            served.of(profile);
            // Held by the work itself: a client that hangs up does not start another beside it.
            drop(turn);
        })
        .await;
    }

    fn has(&self, profile: Profile) -> bool {
        let (kept, changes) = match profile {
            _ if !self.has_peers() => (&self.own, self.own_changes()),
            Profile::NoPeer => (&self.own, self.own_changes()),
            Profile::Union if self.mode == PeerDiscovery::Newest => (&self.union, self.changes()),
            Profile::Usual | Profile::Union => (&self.of_all, self.changes()),
        };
        there(kept, changes).is_some()
    }

    /// Numbers that grow with what users define, and with the members.
    pub(crate) fn versions(&self) -> (u64, u64) {
        (self.registry.kinds().changes(), self.registry.station().memberships())
    }

    fn own_changes(&self) -> Changes {
        (self.registry.kinds().changes(), self.registry.station().moves(), 0)
    }

    fn changes(&self) -> Changes {
        let station = self.registry.station();
        (self.registry.kinds().changes(), station.moves(), station.memberships())
    }

    fn has_peers(&self) -> bool {
        self.catalog.gates().enabled(Gate::UnknownVersionInteroperabilityProxy)
    }

    /// What this server serves by itself, as of now.
    fn own(&self) -> Arc<Made> {
        if let Some(made) = there(&self.own, self.own_changes()) {
            return made;
        }
        let _turn = self.turn.lock();
        let changes = self.own_changes();
        if let Some(made) = there(&self.own, changes) {
            return made;
        }
        self.metrics.discovery_made();
        self.keep(&self.own, changes, self.own_groups())
    }

    /// What clients are shown: what can be asked for through this server, as of now, or as much of it as flags say.
    pub(crate) fn of_all(&self) -> Arc<Made> {
        self.of_members(self.mode, &self.of_all)
    }

    /// Everything that can be asked for through this server, as of now, whatever clients are shown.
    fn union(&self) -> Arc<Made> {
        match self.mode {
            PeerDiscovery::Merged => self.of_all(),
            PeerDiscovery::Newest => self.of_members(PeerDiscovery::Merged, &self.union),
        }
    }

    fn of_members(&self, mode: PeerDiscovery, kept: &ArcSwapOption<Made>) -> Arc<Made> {
        if !self.has_peers() {
            return self.own();
        }
        let made = there(kept, self.changes());
        self.metrics.merged_discovery(made.is_some());
        if let Some(made) = made {
            return made;
        }
        let _turn = self.turn.lock();
        let changes = self.changes();
        if let Some(made) = there(kept, changes) {
            return made;
        }
        let station = self.registry.station();
        let (members, _) = station.members();
        let mut others: Vec<&MemberRecord> =
            members.iter().filter(|it| it.identity != *station.identity()).collect();
        for strange in others.iter().filter(|it| it.peer_address.is_none()) {
            self.metrics.peer_discovery_error("hostport_resolution");
            tracing::debug!(peer = %strange.identity, "a member does not say where it is");
        }
        if others.is_empty() {
            return self.keep(kept, changes, self.own_groups());
        }
        // All servers come to the same result, whichever is asked: the newest goes first, then it is by name.
        let rank = |it: &MemberRecord| (std::cmp::Reverse((it.emulated, it.release)), it.identity.clone());
        let own_rank = (
            std::cmp::Reverse((station.config().emulated, station.config().release)),
            station.identity().clone(),
        );
        others.sort_by_key(|it| rank(it));
        let place = others.iter().filter(|it| rank(it) < own_rank).count();
        let mut lists: Vec<Vec<GroupDiscovery>> = others.iter().map(|it| self.describe(it)).collect();
        lists.insert(place, discovery::builtin(&self.catalog, |it| self.stored(it)));
        if mode == PeerDiscovery::Newest {
            lists.truncate(1);
        }
        let mut groups = crate::discovery::merge(lists);
        groups.extend(self.custom_groups());
        self.keep(kept, changes, groups)
    }

    fn keep(&self, kept: &ArcSwapOption<Made>, changes: Changes, groups: Vec<GroupDiscovery>) -> Arc<Made> {
        let documents = Documents::build(groups, &self.server_address);
        let made = Arc::new(Made { changes, documents, root: OnceLock::new(), packed: Default::default() });
        kept.store(Some(Arc::clone(&made)));
        made
    }

    /// What another member offers.
    fn describe(&self, member: &MemberRecord) -> Vec<GroupDiscovery> {
        let has_hash = self.catalog.gates().enabled(Gate::StorageVersionHash);
        crate::discovery::describe(&member.offer, |resource| {
            let own = self.catalog.definition(&resource.group, &resource.resource);
            let record = own.map_or(resource, |it| &it.record);
            let agreed = self.registry.station().version(record).filter(|_| has_hash)?;
            GroupVersion::parse(agreed.as_str())
        })
    }

    /// What is really written, which may be older than what this release prefers.
    fn stored(&self, it: &Definition) -> Option<GroupVersion> {
        let agreed = self.registry.station().version(&it.record);
        agreed.and_then(|it| GroupVersion::parse(it.as_str())).or_else(|| it.storage.clone())
    }

    fn own_groups(&self) -> Vec<GroupDiscovery> {
        let mut groups = discovery::builtin(&self.catalog, |it| self.stored(it));
        groups.extend(self.custom_groups());
        groups
    }

    /// What users define: every server knows it from the store.
    fn custom_groups(&self) -> Vec<GroupDiscovery> {
        let has_hash = self.catalog.gates().enabled(Gate::StorageVersionHash);
        let mut groups = Vec::new();
        for kind in self.registry.kinds().custom() {
            let Some(custom) = &kind.custom else { continue };
            groups.extend(custom.served().map(|it| describe(&kind, custom, it, has_hash)));
        }
        groups
    }

    /// `/openapi/v3`
    pub(crate) fn openapi_index(&self, builtin: &OpenApi) -> Bytes {
        let custom = self.group_versions();
        let index = builtin.index();
        if custom.is_empty() {
            return index;
        }
        let Ok(mut index) = serde_json::from_slice::<Value>(&index) else { return index };
        let known: BTreeSet<String> =
            index["paths"].as_object().map(|it| it.keys().cloned().collect()).unwrap_or_default();
        for group_version in custom {
            let path = openapi::path_of(&group_version);
            if !known.contains(&path) {
                let hash = hash(&self.kinds_in(&group_version));
                let url = format!("/openapi/v3/{path}?hash={hash}");
                index["paths"][path] = json!({ "serverRelativeURL": url });
            }
        }
        Bytes::from(index.to_string())
    }

    /// `/openapi/v3` with the documents that only other members have. Those have no hash: it would have to be asked for.
    pub(crate) fn openapi_index_of_all(&self, builtin: &OpenApi) -> Bytes {
        let index = self.openapi_index(builtin);
        let station = self.registry.station();
        let (members, _) = station.members();
        let offered =
            members.iter().filter(|it| it.identity != *station.identity()).flat_map(|it| &it.offer.0);
        let offered = offered.flat_map(|(group, it)| {
            it.versions.keys().map(|version| GroupVersion::new(group.as_str(), version.as_str()))
        });
        let known = self.group_versions();
        let is_new = |it: &GroupVersion| {
            !self.catalog.has_group_version(&it.group, it.version.as_str()) && !known.contains(it)
        };
        let missing: BTreeSet<GroupVersion> = offered.filter(is_new).collect();
        if missing.is_empty() || !self.catalog.gates().enabled(Gate::UnknownVersionInteroperabilityProxy) {
            return index;
        }
        let Ok(mut index) = serde_json::from_slice::<Value>(&index) else { return index };
        for group_version in missing {
            let path = openapi::path_of(&group_version);
            let url = format!("/openapi/v3/{path}");
            index["paths"][path] = json!({ "serverRelativeURL": url });
        }
        Bytes::from(index.to_string())
    }

    /// The document of a group and version that users define, and its hash.
    pub(crate) fn openapi_document(&self, path: &str) -> Option<(Bytes, String)> {
        let group_version = self.group_versions().into_iter().find(|it| openapi::path_of(it) == path)?;
        let kinds = self.kinds_in(&group_version);
        let described: Vec<(Arc<Served>, Value)> = kinds
            .values()
            .filter_map(|kind| {
                let custom = kind.custom.as_ref()?;
                let served = custom.served().find(|it| it.version == group_version.version)?;
                Some((Arc::clone(served), schema(custom, group_version.version.as_str())))
            })
            .collect();
        let schemas = self.registry.kinds().schemas();
        Some((openapi::custom_document(schemas, &described, self.catalog.release()), hash(&kinds)))
    }

    /// `/openapi/v2`: everything that is served. Takes long: ask [`crate::openapi`].
    pub(crate) fn openapi_v2(&self, builtin: &OpenApi) -> Value {
        let custom = self.group_versions().into_iter().filter_map(|it| {
            let (document, _) = self.openapi_document(&openapi::path_of(&it))?;
            serde_json::from_slice(&document).ok()
        });
        openapi::v2::document(builtin.documents().chain(custom))
    }

    /// Changes whenever the document of v2 may have changed.
    pub(crate) fn openapi_v2_hash(&self, builtin: &OpenApi) -> String {
        let hash = Sha256::digest(self.openapi_index(builtin));
        hash.iter().take(16).map(|it| format!("{it:02X}")).collect()
    }

    /// Whether users define anything in a group and version.
    pub(crate) fn defines(&self, group: &str, version: &str) -> bool {
        self.group_versions().contains(&GroupVersion::new(group, version))
    }

    fn group_versions(&self) -> BTreeSet<GroupVersion> {
        let kinds = self.registry.kinds().custom();
        let served = kinds.iter().filter_map(|it| it.custom.as_ref()).flat_map(|it| it.served());
        served.map(|it| it.group_version()).collect()
    }

    /// The kinds that are served in a group and version, by resource.
    fn kinds_in(&self, group_version: &GroupVersion) -> BTreeMap<String, Arc<Kind>> {
        let serves = |kind: &Kind| {
            let custom = kind.custom.as_ref();
            custom.is_some_and(|it| it.served().any(|it| it.group_version() == *group_version))
        };
        let kinds = self.registry.kinds().custom().into_iter().filter(|it| serves(it));
        kinds.map(|it| (it.resource.resource.to_string(), it)).collect()
    }
}

/// What was made, if nothing has changed since.
fn there(kept: &ArcSwapOption<Made>, changes: Changes) -> Option<Arc<Made>> {
    let made = kept.load();
    made.as_ref().filter(|it| it.changes == changes).map(Arc::clone)
}

/// Changes whenever one of the definitions does.
fn hash(kinds: &BTreeMap<String, Arc<Kind>>) -> String {
    let mut hasher = Sha256::new();
    hasher.update(env!("CARGO_PKG_VERSION"));
    for custom in kinds.values().filter_map(|it| it.custom.as_ref()) {
        hasher.update(custom.text());
    }
    hasher.finalize().iter().take(16).map(|it| format!("{it:02X}")).collect()
}

/// The schema of a version as its user wrote it.
fn schema(custom: &Custom, version: &str) -> Value {
    let definition: Value = serde_json::from_slice(custom.text()).unwrap_or_default();
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    let own = versions.into_iter().flatten().find(|it| it["name"] == version);
    own.and_then(|it| it.pointer("/schema/openAPIV3Schema")).cloned().unwrap_or_default()
}

fn describe(kind: &Kind, custom: &Custom, served: &Served, has_hash: bool) -> GroupDiscovery {
    let definition = &kind.definition;
    // As upstream: a version that nobody can ask for is not hinted at.
    let is_served = custom.served().any(|it| it.group_version() == *custom.storage());
    let hash =
        (has_hash && is_served).then(|| discovery::storage_version_hash(custom.storage(), &definition.kind));
    let response = Some(served.group_version());
    let verbs = if custom.is_terminating() { ENDING_VERBS.to_vec() } else { VERBS.to_vec() };
    let subresources = served.subresources.iter().map(|it| SubresourceDiscovery {
        name: it.name.clone(),
        kind: it.kind.clone(),
        group_version: it.group_version.clone(),
        response: response.clone(),
        verbs: vec![Verb::Get, Verb::Patch, Verb::Update],
    });
    let resource = ResourceDiscovery {
        name: definition.resource.clone(),
        singular: definition.singular.clone(),
        kind: definition.kind.clone(),
        response: response.clone(),
        namespaced: definition.namespaced,
        verbs,
        short_names: definition.short_names.clone(),
        categories: definition.categories.clone(),
        storage_version_hash: hash,
        subresources: subresources.collect(),
    };
    GroupDiscovery {
        name: definition.group.clone(),
        priority: Group::CUSTOM_PRIORITY,
        versions: vec![VersionDiscovery { version: served.version.clone(), resources: vec![resource] }],
    }
}
