//! The documents that describe one level each: versions, groups, a group, a version.

use bytes::Bytes;
use meta::{ApiVersion, GroupVersion};
use serde::Serialize;

use super::{GroupDiscovery, ResourceDiscovery, SubresourceDiscovery, VersionDiscovery, to_bytes};

/// `/api`.
pub(super) fn api(core: &[&GroupDiscovery], server_address: &str) -> Bytes {
    let versions = core.iter().flat_map(|it| &it.versions).map(|it| it.version.as_str()).collect();
    let address = ServerAddress { client_cidr: "0.0.0.0/0", server_address };
    to_bytes(&ApiVersions { kind: "APIVersions", versions, server_addresses: [address] })
}

/// `/apis`.
pub(super) fn apis(groups: &[&GroupDiscovery]) -> Bytes {
    let groups = groups.iter().filter_map(|it| ApiGroup::new(it)).collect();
    to_bytes(&ApiGroupList { kind: "APIGroupList", api_version: "v1", groups })
}

/// `/apis/<group>`.
pub(super) fn group(group: &GroupDiscovery) -> Bytes {
    let head =
        ApiGroup::new(group).map(|it| ApiGroup { kind: Some("APIGroup"), api_version: Some("v1"), ..it });
    to_bytes(&head)
}

/// `/api/v1` and `/apis/<group>/<version>`. Only the latter says that it is a `v1` document itself.
pub(super) fn resources(name: &GroupVersion, version: &VersionDiscovery) -> Bytes {
    let mut resources = Vec::new();
    for resource in &version.resources {
        resources.push(ApiResource::of(resource));
        resources.extend(resource.subresources.iter().map(|it| ApiResource::of_sub(resource, it)));
    }
    to_bytes(&ApiResourceList {
        kind: "APIResourceList",
        api_version: (!name.group.is_empty()).then_some("v1"),
        group_version: name.to_string(),
        resources,
    })
}

#[derive(Serialize)]
struct ApiVersions<'a> {
    kind: &'static str,
    versions: Vec<&'a str>,
    #[serde(rename = "serverAddressByClientCIDRs")]
    server_addresses: [ServerAddress<'a>; 1],
}

#[derive(Serialize)]
struct ServerAddress<'a> {
    #[serde(rename = "clientCIDR")]
    client_cidr: &'static str,
    #[serde(rename = "serverAddress")]
    server_address: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiGroupList<'a> {
    kind: &'static str,
    api_version: &'static str,
    groups: Vec<ApiGroup<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiGroup<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<&'static str>,
    name: &'a str,
    versions: Vec<GroupVersionForDiscovery<'a>>,
    preferred_version: GroupVersionForDiscovery<'a>,
}

impl<'a> ApiGroup<'a> {
    /// `None` for a group without versions.
    fn new(group: &'a GroupDiscovery) -> Option<Self> {
        let describe = |it: &'a VersionDiscovery| GroupVersionForDiscovery {
            group_version: format!("{}/{}", group.name, it.version),
            version: &it.version,
        };
        Some(Self {
            kind: None,
            api_version: None,
            name: &group.name,
            versions: group.versions.iter().map(describe).collect(),
            preferred_version: group.versions.first().map(describe)?,
        })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupVersionForDiscovery<'a> {
    group_version: String,
    #[serde(serialize_with = "text")]
    version: &'a ApiVersion,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiResourceList<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<&'static str>,
    group_version: String,
    resources: Vec<ApiResource<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiResource<'a> {
    name: String,
    singular_name: &'a str,
    namespaced: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    version: &'a str,
    kind: &'a str,
    verbs: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    short_names: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    categories: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    storage_version_hash: Option<&'a str>,
}

impl<'a> ApiResource<'a> {
    fn of(resource: &'a ResourceDiscovery) -> Self {
        Self {
            name: resource.name.to_string(),
            singular_name: &resource.singular,
            namespaced: resource.namespaced,
            group: "",
            version: "",
            kind: &resource.kind,
            verbs: resource.verbs.iter().map(|it| it.as_str()).collect(),
            short_names: resource.short_names.iter().map(|it| &**it).collect(),
            categories: resource.categories.iter().map(|it| &**it).collect(),
            storage_version_hash: resource.storage_version_hash.as_deref(),
        }
    }

    fn of_sub(resource: &'a ResourceDiscovery, sub: &'a SubresourceDiscovery) -> Self {
        Self {
            name: format!("{}/{}", resource.name, sub.name),
            singular_name: "",
            namespaced: resource.namespaced,
            group: sub.group_version.as_ref().map_or("", |it| &it.group),
            version: sub.group_version.as_ref().map_or("", |it| it.version.as_str()),
            kind: &sub.kind,
            verbs: sub.verbs.iter().map(|it| it.as_str()).collect(),
            short_names: Vec::new(),
            categories: Vec::new(),
            storage_version_hash: None,
        }
    }
}

fn text<S: serde::Serializer>(version: &ApiVersion, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(version.as_str())
}
