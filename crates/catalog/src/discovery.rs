//! Discovery: the documents that tell clients which groups, versions and resources there are.
//!
//! [`documents`] describes a catalog. Whoever serves more than that (custom resources, what peers serve, another
//! storage version than the release prefers) makes a list of [`GroupDiscovery`] from [`builtin`], adds to it and calls
//! [`Documents::build`]. Documents are built once and handed out as shared bytes.
//! Deliberately not here: HTTP, negotiation, and who may see a document.

mod aggregated;
mod legacy;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use meta::{ApiVersion, GroupVersion};
use sha2::{Digest, Sha256, Sha512};

use crate::{Catalog, Definition, Gate, Group, Served, Verb};

/// A group and all that discovery says of it. The core group has an empty name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDiscovery {
    /// The name.
    pub name: Arc<str>,
    /// Groups of higher priority come first; equal ones are ordered by name.
    pub priority: u32,
    /// The versions; their order does not matter.
    pub versions: Vec<VersionDiscovery>,
}

/// One version of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionDiscovery {
    /// The version.
    pub version: ApiVersion,
    /// Its resources; their order does not matter.
    pub resources: Vec<ResourceDiscovery>,
}

/// One resource of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceDiscovery {
    /// The plural name.
    pub name: Arc<str>,
    /// The singular name.
    pub singular: Arc<str>,
    /// The kind.
    pub kind: Arc<str>,
    /// The group and version that the aggregated document prints with the kind. Built-in resources leave them empty,
    /// custom resources do not.
    pub response: Option<GroupVersion>,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// The verbs in the order in which they are printed, which differs between built-in and custom resources.
    pub verbs: Vec<Verb>,
    /// The short names.
    pub short_names: Vec<Arc<str>>,
    /// The categories.
    pub categories: Vec<Arc<str>>,
    /// See [`storage_version_hash`].
    pub storage_version_hash: Option<String>,
    /// The subresources; their order does not matter.
    pub subresources: Vec<SubresourceDiscovery>,
}

/// One subresource of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubresourceDiscovery {
    /// The name, without that of the resource.
    pub name: Arc<str>,
    /// The kind.
    pub kind: Arc<str>,
    /// The group and version of the kind, if it is not one of the resource's own.
    pub group_version: Option<GroupVersion>,
    /// As [`ResourceDiscovery::response`]; a `group_version` goes before it.
    pub response: Option<GroupVersion>,
    /// The verbs in the order in which they are printed.
    pub verbs: Vec<Verb>,
}

/// All documents of one server.
#[derive(Clone, Debug)]
pub struct Documents {
    /// `/api`: `APIVersions`.
    pub api: Bytes,
    /// `/apis`: `APIGroupList`.
    pub apis: Bytes,
    /// `/apis/<group>`: `APIGroup`, by group.
    pub groups: HashMap<Arc<str>, Bytes>,
    /// `/api/v1` and `/apis/<group>/<version>`: `APIResourceList`, by `v1` and `<group>/<version>`.
    pub group_versions: HashMap<Arc<str>, Bytes>,
    /// `/api` as `APIGroupDiscoveryList` of apidiscovery.k8s.io/v2.
    pub aggregated_api_v2: Tagged,
    /// `/apis` as `APIGroupDiscoveryList` of apidiscovery.k8s.io/v2.
    pub aggregated_apis_v2: Tagged,
    /// `/api` as `APIGroupDiscoveryList` of apidiscovery.k8s.io/v2beta1.
    pub aggregated_api_v2beta1: Tagged,
    /// `/apis` as `APIGroupDiscoveryList` of apidiscovery.k8s.io/v2beta1.
    pub aggregated_apis_v2beta1: Tagged,
}

/// A document with the tag that lets clients ask whether it has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// The document.
    pub body: Bytes,
    /// The value of the `ETag` header, with its quotes.
    pub etag: Arc<str>,
}

/// The documents of a server that serves a catalog and nothing else. The address is what `/api` tells clients to use,
/// `host:port`.
pub fn documents(catalog: &Catalog, server_address: &str) -> Documents {
    Documents::build(builtin(catalog, |it| it.storage.clone()), server_address)
}

/// What discovery says of a catalog; `encoding` is the group and version in which a resource is now being stored.
pub fn builtin(
    catalog: &Catalog,
    encoding: impl Fn(&Definition) -> Option<GroupVersion>,
) -> Vec<GroupDiscovery> {
    let core = Group { name: "".into(), priority: u32::MAX, versions: Vec::new() };
    let has_hash = catalog.gates().enabled(Gate::StorageVersionHash);
    let mut groups = Vec::with_capacity(catalog.groups().len() + 1);
    for group in catalog.groups().iter().chain([&core]) {
        let mut versions: Vec<VersionDiscovery> = Vec::new();
        for served in catalog.served().iter().filter(|it| it.definition.group == group.name) {
            let stored = if has_hash { encoding(&served.definition) } else { None };
            let resource = describe(served, stored);
            match versions.iter_mut().find(|it| it.version == served.version) {
                Some(version) => version.resources.push(resource),
                None => versions
                    .push(VersionDiscovery { version: served.version.clone(), resources: vec![resource] }),
            }
        }
        if !versions.is_empty() {
            groups.push(GroupDiscovery { name: group.name.clone(), priority: group.priority, versions });
        }
    }
    groups
}

/// The opaque text by which clients see that the encoding of a resource has changed.
pub fn storage_version_hash(stored: &GroupVersion, kind: &str) -> String {
    let digest = Sha256::digest(format!("{}/{}/{kind}", stored.group, stored.version));
    BASE64_STANDARD.encode(&digest[..8])
}

impl Documents {
    /// The documents for these groups. A group that comes more than once is merged, with its highest priority.
    pub fn build(groups: impl IntoIterator<Item = GroupDiscovery>, server_address: &str) -> Self {
        let groups = arrange(groups);
        let (core, named): (Vec<_>, Vec<_>) = groups.iter().partition(|it| it.name.is_empty());
        let lists = groups.iter().flat_map(|group| group.versions.iter().map(move |it| (group, it)));
        Self {
            api: legacy::api(&core, server_address),
            apis: legacy::apis(&named),
            groups: named.iter().map(|it| (it.name.clone(), legacy::group(it))).collect(),
            group_versions: lists
                .map(|(group, version)| {
                    let name = GroupVersion { group: group.name.clone(), version: version.version.clone() };
                    (name.to_string().into(), legacy::resources(&name, version))
                })
                .collect(),
            aggregated_api_v2: Tagged::new(aggregated::list("v2", &core)),
            aggregated_apis_v2: Tagged::new(aggregated::list("v2", &named)),
            aggregated_api_v2beta1: Tagged::new(aggregated::list("v2beta1", &core)),
            aggregated_apis_v2beta1: Tagged::new(aggregated::list("v2beta1", &named)),
        }
    }
}

impl Tagged {
    fn new(body: Bytes) -> Self {
        let mut etag = String::with_capacity(130);
        etag.push('"');
        for byte in Sha512::digest(&body) {
            etag += &format!("{byte:02X}");
        }
        etag.push('"');
        Self { body, etag: etag.into() }
    }
}

fn describe(served: &Served, stored: Option<GroupVersion>) -> ResourceDiscovery {
    let definition = &served.definition;
    ResourceDiscovery {
        name: definition.resource.clone(),
        singular: definition.singular.clone(),
        kind: definition.kind.clone(),
        response: None,
        namespaced: definition.namespaced,
        verbs: served.verbs.iter().collect(),
        short_names: definition.short_names.clone(),
        categories: definition.categories.clone(),
        storage_version_hash: stored.map(|it| storage_version_hash(&it, &definition.kind)),
        subresources: served
            .subresources
            .iter()
            .map(|it| SubresourceDiscovery {
                name: it.name.clone(),
                kind: it.kind.clone(),
                group_version: it.group_version.clone(),
                response: None,
                verbs: it.verbs.iter().collect(),
            })
            .collect(),
    }
}

/// Merges groups, versions and orders everything as it is printed.
fn arrange(groups: impl IntoIterator<Item = GroupDiscovery>) -> Vec<GroupDiscovery> {
    let mut arranged: Vec<GroupDiscovery> = Vec::new();
    let mut positions: HashMap<Arc<str>, usize> = HashMap::new();
    for group in groups {
        match positions.get(&group.name) {
            Some(position) => merge(&mut arranged[*position], group),
            None => {
                positions.insert(group.name.clone(), arranged.len());
                arranged.push(group);
            }
        }
    }
    for group in &mut arranged {
        group.versions.sort_by(|a, b| b.version.cmp(&a.version));
        for version in &mut group.versions {
            version.resources.sort_by(|a, b| a.name.cmp(&b.name));
            for resource in &mut version.resources {
                resource.subresources.sort_by(|a, b| a.name.cmp(&b.name));
            }
        }
    }
    arranged.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.name.cmp(&b.name)));
    arranged
}

fn merge(into: &mut GroupDiscovery, group: GroupDiscovery) {
    into.priority = into.priority.max(group.priority);
    for version in group.versions {
        match into.versions.iter_mut().find(|it| it.version == version.version) {
            Some(known) => {
                for resource in version.resources {
                    if known.resources.iter().all(|it| it.name != resource.name) {
                        known.resources.push(resource);
                    }
                }
            }
            None => into.versions.push(version),
        }
    }
}

fn to_bytes(document: &impl serde::Serialize) -> Bytes {
    serde_json::to_vec(document).expect("a discovery document must be serializable").into()
}
