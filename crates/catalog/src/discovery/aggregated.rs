//! The document that describes all groups, versions and resources at once: `APIGroupDiscoveryList`.

use std::sync::Arc;

use bytes::Bytes;
use meta::GroupVersion;
use serde::Serialize;

use super::{GroupDiscovery, ResourceDiscovery, SubresourceDiscovery, VersionDiscovery, to_bytes};

/// `/api` or `/apis` in a version of apidiscovery.k8s.io.
pub(super) fn list(version: &str, groups: &[&GroupDiscovery]) -> Bytes {
    to_bytes(&ApiGroupDiscoveryList {
        kind: "APIGroupDiscoveryList",
        api_version: format!("apidiscovery.k8s.io/{version}"),
        metadata: Metadata { name: "" },
        items: groups.iter().map(|it| describe_group(it)).collect(),
    })
}

fn describe_group(group: &GroupDiscovery) -> ApiGroupDiscovery<'_> {
    ApiGroupDiscovery {
        metadata: Metadata { name: &group.name },
        versions: group.versions.iter().map(describe_version).collect(),
    }
}

fn describe_version(version: &VersionDiscovery) -> ApiVersionDiscovery<'_> {
    ApiVersionDiscovery {
        version: version.version.as_str(),
        resources: version.resources.iter().map(describe_resource).collect(),
        freshness: "Current",
    }
}

fn describe_resource(resource: &ResourceDiscovery) -> ApiResourceDiscovery<'_> {
    ApiResourceDiscovery {
        resource: &resource.name,
        response_kind: response_kind(&resource.kind, resource.response.as_ref()),
        scope: if resource.namespaced { "Namespaced" } else { "Cluster" },
        singular_resource: &resource.singular,
        verbs: resource.verbs.iter().map(|it| it.as_str()).collect(),
        short_names: &resource.short_names,
        categories: &resource.categories,
        subresources: resource.subresources.iter().map(describe_subresource).collect(),
    }
}

fn describe_subresource(sub: &SubresourceDiscovery) -> ApiSubresourceDiscovery<'_> {
    ApiSubresourceDiscovery {
        subresource: &sub.name,
        response_kind: response_kind(&sub.kind, sub.group_version.as_ref().or(sub.response.as_ref())),
        verbs: sub.verbs.iter().map(|it| it.as_str()).collect(),
    }
}

fn response_kind<'a>(kind: &'a str, group_version: Option<&'a GroupVersion>) -> ResponseKind<'a> {
    ResponseKind {
        group: group_version.map_or("", |it| &it.group),
        version: group_version.map_or("", |it| it.version.as_str()),
        kind,
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiGroupDiscoveryList<'a> {
    kind: &'static str,
    api_version: String,
    metadata: Metadata<'static>,
    items: Vec<ApiGroupDiscovery<'a>>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
}

#[derive(Serialize)]
struct ApiGroupDiscovery<'a> {
    metadata: Metadata<'a>,
    versions: Vec<ApiVersionDiscovery<'a>>,
}

#[derive(Serialize)]
struct ApiVersionDiscovery<'a> {
    version: &'a str,
    resources: Vec<ApiResourceDiscovery<'a>>,
    freshness: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiResourceDiscovery<'a> {
    resource: &'a str,
    response_kind: ResponseKind<'a>,
    scope: &'static str,
    singular_resource: &'a str,
    verbs: Vec<&'static str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    short_names: &'a [Arc<str>],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    categories: &'a [Arc<str>],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    subresources: Vec<ApiSubresourceDiscovery<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiSubresourceDiscovery<'a> {
    subresource: &'a str,
    response_kind: ResponseKind<'a>,
    verbs: Vec<&'static str>,
}

#[derive(Serialize)]
struct ResponseKind<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}
