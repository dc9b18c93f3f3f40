//! What one server serves: the table of resources, seen from a release and its flags, with fast look-ups.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use meta::{ApiVersion, GroupResource, GroupVersion, Release};

use crate::{
    Definition, Deprecation, FeatureGates, Gate, Origin, RuntimeConfig, RuntimeConfigError, Served,
    Subresource,
    table::{self, Row, VersionRow},
};

/// The oldest release that can be emulated.
pub const FIRST_RELEASE: Release = Release::v1(30);
/// The newest release that can be emulated, and the default.
pub const LAST_RELEASE: Release = Release::v1(36);

/// Whether any release that can be emulated has a resource of this name built in, our own resources included. Servers of
/// several releases share a store, and with it what is recorded under that name: users cannot define it.
pub fn is_reserved(group: &str, resource: &str) -> bool {
    built_in(group, resource).is_some()
}

/// What all releases say alike of a built-in resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltIn {
    /// Its kind.
    pub kind: &'static str,
    /// Where its objects are stored; `None` if they are not.
    pub key_prefix: Option<&'static str>,
    /// Whether they are in namespaces.
    pub is_namespaced: bool,
}

/// A built-in resource of any release that can be emulated, our own resources included.
pub fn built_in(group: &str, resource: &str) -> Option<BuiltIn> {
    static ROWS: LazyLock<HashMap<(&str, &str), BuiltIn>> = LazyLock::new(|| {
        let rows = table::parse(table::RESOURCES).expect("the shipped table must be readable");
        let built_in = |it: &Row<'static>| BuiltIn {
            kind: it.kind,
            key_prefix: it.prefix,
            is_namespaced: it.namespaced,
        };
        rows.iter().map(|it| ((it.group, it.resource), built_in(it))).collect()
    });
    ROWS.get(&(group, resource)).copied()
}

/// The resource, of any release, that names the record of what is stored right below a prefix.
pub fn record_at(prefix: &str) -> Option<GroupResource> {
    static RECORDS: LazyLock<HashMap<&str, GroupResource>> = LazyLock::new(|| {
        let rows = table::parse(table::RESOURCES).expect("the shipped table must be readable");
        rows.iter().filter_map(|it| Some((it.prefix?, record(it)))).collect()
    });
    RECORDS.get(prefix).cloned()
}

/// Everything one server instance serves.
#[derive(Clone, Debug)]
pub struct Catalog {
    release: Release,
    gates: FeatureGates,
    definitions: Vec<Arc<Definition>>,
    served: Vec<Arc<Served>>,
    groups: Vec<Group>,
    index: HashMap<Arc<str>, Vec<VersionIndex>>,
}

/// A group as discovery lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The name; never empty.
    pub name: Arc<str>,
    /// Groups of higher priority are listed first.
    pub priority: u32,
    /// The versions served, preferred first.
    pub versions: Vec<ApiVersion>,
}

impl Group {
    /// The priority of groups that users define.
    pub const CUSTOM_PRIORITY: u32 = 1000;
}

/// Why there is no catalog for what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// A release outside of what can be emulated.
    #[error("emulation version {0} is not between [{FIRST_RELEASE}, {LAST_RELEASE}]")]
    Release(Release),
    /// A `--runtime-config` that names what does not exist.
    #[error(transparent)]
    RuntimeConfig(#[from] RuntimeConfigError),
}

impl Catalog {
    /// What a server of a release serves with these flags.
    pub fn new(
        release: Release,
        runtime_config: &RuntimeConfig,
        gates: &FeatureGates,
    ) -> Result<Self, CatalogError> {
        if !(FIRST_RELEASE..=LAST_RELEASE).contains(&release) {
            return Err(CatalogError::Release(release));
        }
        let rows = table::parse(table::RESOURCES).expect("the shipped table must be readable");
        check_names(runtime_config, &rows)?;
        let mut catalog = Self {
            release,
            gates: gates.clone(),
            definitions: Vec::with_capacity(rows.len()),
            served: Vec::with_capacity(rows.len() + rows.len() / 2),
            groups: Vec::new(),
            index: HashMap::new(),
        };
        for row in &rows {
            catalog.add(row, &rows, runtime_config);
        }
        catalog.groups = list_groups(&catalog.index);
        Ok(catalog)
    }

    /// The release that is emulated.
    pub fn release(&self) -> Release {
        self.release
    }

    /// The feature gates of the server.
    pub fn gates(&self) -> &FeatureGates {
        &self.gates
    }

    /// One entry per resource that is served in at least one version, ordered by group and resource.
    pub fn definitions(&self) -> &[Arc<Definition>] {
        &self.definitions
    }

    /// One entry per resource and served version, in the order of the definitions, preferred versions first.
    pub fn served(&self) -> &[Arc<Served>] {
        &self.served
    }

    /// The groups in the order in which `/apis` lists them. The core group is not among them.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// A resource in a version.
    pub fn find(&self, group: &str, version: &str, resource: &str) -> Option<&Arc<Served>> {
        let position = self.version(group, version)?.resources.get(resource)?;
        Some(&self.served[*position])
    }

    /// The resource whose objects are of a kind.
    pub fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Served>> {
        let position = self.version(group, version)?.kinds.get(kind)?;
        Some(&self.served[*position])
    }

    /// The definition of a resource, whatever the versions in which it is served.
    pub fn definition(&self, group: &str, resource: &str) -> Option<&Arc<Definition>> {
        let versions = self.index.get(group)?;
        let position = versions.iter().find_map(|it| it.resources.get(resource))?;
        Some(&self.served[*position].definition)
    }

    /// Whether anything is served in a group and version.
    pub fn has_group_version(&self, group: &str, version: &str) -> bool {
        self.version(group, version).is_some()
    }

    /// Whether anything is served in a group.
    pub fn has_group(&self, group: &str) -> bool {
        self.index.contains_key(group)
    }

    fn version(&self, group: &str, version: &str) -> Option<&VersionIndex> {
        self.index.get(group)?.iter().find(|it| it.version.as_str() == version)
    }

    fn add(&mut self, row: &Row<'_>, rows: &[Row<'_>], runtime_config: &RuntimeConfig) {
        let is_served = |it: &&VersionRow<'_>| {
            let version = GroupVersion::new(row.group, it.version);
            it.releases.contain(self.release) && runtime_config.serves(&version, row.resource, it.on)
        };
        let mut versions: Vec<_> = row.versions.iter().filter(|it| row.convoy || is_served(it)).collect();
        if versions.is_empty() {
            return;
        }
        versions.sort_by_cached_key(|it| std::cmp::Reverse(ApiVersion::new(it.version)));
        let names = versions.iter().map(|it| ApiVersion::new(it.version)).collect();
        let definition = Arc::new(define(row, rows, names, self.release));
        for version in versions {
            let served = serve(&definition, row, version, self.release, &self.gates);
            self.insert(Arc::new(served));
        }
        self.definitions.push(definition);
    }

    fn insert(&mut self, served: Arc<Served>) {
        let Definition { group, resource, kind, .. } = &*served.definition;
        let versions = self.index.entry(group.clone()).or_default();
        let found = versions.iter().position(|it| it.version == served.version);
        let found = found.unwrap_or_else(|| {
            versions.push(VersionIndex::new(served.version.clone()));
            versions.len() - 1
        });
        let position = self.served.len();
        versions[found].resources.insert(resource.clone(), position);
        versions[found].kinds.insert(kind.clone(), position);
        self.served.push(served);
    }
}

/// Where the resources of one version are in [`Catalog::served`].
#[derive(Clone, Debug)]
struct VersionIndex {
    version: ApiVersion,
    resources: HashMap<Arc<str>, usize>,
    kinds: HashMap<Arc<str>, usize>,
}

impl VersionIndex {
    fn new(version: ApiVersion) -> Self {
        Self { version, resources: HashMap::new(), kinds: HashMap::new() }
    }
}

/// kube-apiserver's priorities of its groups. A group that is not here comes last among the built-in ones.
const PRIORITIES: &[(&str, u32)] = &[
    ("apiregistration.k8s.io", 20000),
    ("apps", 17800),
    ("events.k8s.io", 17750),
    ("authentication.k8s.io", 17700),
    ("authorization.k8s.io", 17600),
    ("autoscaling", 17500),
    ("batch", 17400),
    ("certificates.k8s.io", 17300),
    ("networking.k8s.io", 17200),
    ("policy", 17100),
    ("rbac.authorization.k8s.io", 17000),
    ("storage.k8s.io", 16800),
    ("admissionregistration.k8s.io", 16700),
    ("apiextensions.k8s.io", 16700),
    ("scheduling.k8s.io", 16600),
    ("coordination.k8s.io", 16500),
    ("node.k8s.io", 16300),
    ("discovery.k8s.io", 16200),
    ("flowcontrol.apiserver.k8s.io", 16100),
    ("internal.apiserver.k8s.io", 16000),
    ("resource.k8s.io", 15900),
    ("storagemigration.k8s.io", 15800),
    // Ours.
    ("migration.k8s.io", 15700),
];

fn list_groups(index: &HashMap<Arc<str>, Vec<VersionIndex>>) -> Vec<Group> {
    let named = index.iter().filter(|(name, _)| !name.is_empty());
    let mut groups: Vec<_> = named
        .map(|(name, versions)| {
            let mut versions: Vec<_> = versions.iter().map(|it| it.version.clone()).collect();
            versions.sort_by(|a, b| b.cmp(a));
            let priority = PRIORITIES.iter().find(|(it, _)| *it == &**name).map_or(15000, |(_, it)| *it);
            Group { name: name.clone(), priority, versions }
        })
        .collect();
    groups.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.name.cmp(&b.name)));
    groups
}

/// Whether the groups and versions that the flag names exist in any release: one that the emulated release does not
/// have is no mistake, it only has no effect.
fn check_names(runtime_config: &RuntimeConfig, rows: &[Row<'_>]) -> Result<(), RuntimeConfigError> {
    let has_group = |it: &GroupVersion| rows.iter().any(|row| row.group == &*it.group);
    let mut unknown: Vec<_> =
        runtime_config.named_versions().filter(|it| !has_group(it)).map(|it| it.group.to_string()).collect();
    unknown.dedup();
    if !unknown.is_empty() {
        return Err(RuntimeConfigError::UnknownGroups(unknown));
    }
    let has_version = |it: &GroupVersion| {
        let mut rows = rows.iter().filter(|row| row.group == &*it.group);
        rows.any(|row| row.versions.iter().any(|version| version.version == it.version.as_str()))
    };
    if let Some(version) = runtime_config.named_versions().find(|it| !has_version(it)) {
        return Err(RuntimeConfigError::UnknownVersion(version.clone()));
    }
    check_own(runtime_config, rows)
}

/// Our own resources are served whatever the flag says, so it must not say otherwise. General keys such as `api/alpha`
/// are about the resources of Kubernetes.
fn check_own(runtime_config: &RuntimeConfig, rows: &[Row<'_>]) -> Result<(), RuntimeConfigError> {
    for row in rows.iter().filter(|it| it.convoy) {
        for version in &row.versions {
            let version = GroupVersion::new(row.group, version.version);
            if let Some(key) = runtime_config.switched_off_by_name(&version, row.resource) {
                let resource = row.resource.to_owned();
                return Err(RuntimeConfigError::AlwaysOn { key, version, resource });
            }
        }
    }
    Ok(())
}

fn define(row: &Row<'_>, rows: &[Row<'_>], versions: Vec<ApiVersion>, release: Release) -> Definition {
    let storage = row.stored.iter().rev().find(|(since, _)| *since <= release);
    let storage =
        storage.map(|(_, stored)| GroupVersion::parse(stored).expect("a stored version must be one"));
    Definition {
        group: row.group.into(),
        resource: row.resource.into(),
        kind: row.kind.into(),
        list_kind: format!("{}List", row.kind).into(),
        singular: row.singular.into(),
        short_names: row.short_names.iter().map(|it| (*it).into()).collect(),
        categories: row.categories.iter().map(|it| (*it).into()).collect(),
        namespaced: row.namespaced,
        key_prefix: row.prefix.map(Into::into),
        decodable: decodable(row, rows, release),
        storage,
        record: record(row),
        versions,
        origin: if row.convoy { Origin::Convoy } else { Origin::Kubernetes },
    }
}

/// What can be read under the keys of a resource: its own versions, then those of resources that share the keys.
fn decodable(row: &Row<'_>, rows: &[Row<'_>], release: Release) -> Vec<GroupVersion> {
    let Some(prefix) = row.prefix else { return Vec::new() };
    let others = rows.iter().filter(|it| it.prefix == Some(prefix) && it.group != row.group);
    std::iter::once(row).chain(others).flat_map(|it| readable_versions(it, release)).collect()
}

fn readable_versions(row: &Row<'_>, release: Release) -> Vec<GroupVersion> {
    let available = row.versions.iter().map(|it| (it.version, it.releases));
    let known =
        available.chain(row.readable.iter().copied()).filter(|(_, releases)| releases.contain(release));
    let mut known: Vec<_> = known.map(|(version, _)| GroupVersion::new(row.group, version)).collect();
    known.sort_by(|a, b| b.version.cmp(&a.version));
    known.dedup();
    known
}

fn record(row: &Row<'_>) -> GroupResource {
    match row.shares.map(|it| it.split_once('.').unwrap_or((it, ""))) {
        Some((resource, group)) => GroupResource::new(group, resource),
        None => GroupResource::new(row.group, row.resource),
    }
}

fn serve(
    definition: &Arc<Definition>,
    row: &Row<'_>,
    version: &VersionRow<'_>,
    release: Release,
    gates: &FeatureGates,
) -> Served {
    let is_on = |gate: &str| gates.enabled(Gate::parse(gate).expect("the table must name known gates"));
    let subresources = row.subresources.iter().filter(|it| {
        it.version == version.version && it.releases.contain(release) && it.gate.is_none_or(is_on)
    });
    let subresource = |it: &table::SubresourceRow<'_>| Subresource {
        name: it.name.into(),
        kind: it.kind.map_or_else(|| definition.kind.clone(), Into::into),
        group_version: it.group_version.and_then(GroupVersion::parse),
        verbs: it.verbs,
    };
    Served {
        definition: definition.clone(),
        version: ApiVersion::new(version.version),
        verbs: version.verbs,
        subresources: subresources.map(subresource).collect(),
        deprecation: version.deprecated.filter(|it| *it <= release).map(|deprecated| Deprecation {
            deprecated,
            removed: version.removed,
            replacement: version.replacement.and_then(replacement),
        }),
    }
}

/// `apps/v1/Deployment` as people write it: `apps/v1 Deployment`.
fn replacement(path: &str) -> Option<String> {
    path.rsplit_once('/').map(|(group_version, kind)| format!("{group_version} {kind}"))
}
