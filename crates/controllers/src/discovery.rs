//! Which resources there are.
//!
//! The aggregated documents are asked first (two requests); a server without them is asked group by group. Either way
//! the answer is complete or it is none: a namespace must not be finished, and an owner not taken for absent, because
//! a group did not answer.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::Client;
use serde::Deserialize;

use crate::api;
use crate::error::Error;

/// Where discovery does not give a complete answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Undiscovered {
    /// Something did not answer.
    Failed(String),
    /// A group or version is not written as it should be.
    Unparsable(String),
}

impl Undiscovered {
    /// Why.
    pub(crate) fn into_text(self) -> String {
        let (Self::Failed(why) | Self::Unparsable(why)) = self;
        why
    }
}

/// A resource in one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    pub(crate) kind: String,
    pub(crate) is_namespaced: bool,
    verbs: Vec<String>,
}

impl Served {
    pub(crate) fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|it| it == verb)
    }

    /// Group and version as objects write them.
    pub(crate) fn api_version(&self) -> String {
        written(&self.group, &self.version)
    }

    #[cfg(test)]
    pub(crate) fn new(
        api_version: &str,
        resource: &str,
        kind: &str,
        is_namespaced: bool,
        verbs: &[&str],
    ) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
            kind: kind.to_owned(),
            is_namespaced,
            verbs: verbs.iter().map(|it| (*it).to_owned()).collect(),
        }
    }
}

/// Everything that is served, in all versions; those of one group with the preferred one first.
pub(crate) async fn discover(client: &Client) -> Result<Vec<Served>, Undiscovered> {
    let failed = |error: Error| Undiscovered::Failed(error.text());
    let core: Document = api::get_path(client, "/api", AGGREGATED).await.map_err(failed)?;
    let groups: Document = api::get_path(client, "/apis", AGGREGATED).await.map_err(failed)?;
    let groups = match (core.groups(), groups.groups()) {
        (Some(core), Some(groups)) => core.into_iter().chain(groups).collect(),
        (_, _) => one_by_one(client).await?,
    };
    resources(groups)
}

/// Where several servers of different releases share a store, what any of them serves is asked for: `profile=union`.
/// A server may show its clients less (`--peer-discovery=newest`), and what is not shown would be left behind. Servers
/// that do not know the profile take the next entry.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=union,\
    application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// What `/api` and `/apis` answer. The kind tells whether it is the aggregated form: the older one must not be
/// mistaken for an empty list of groups.
#[derive(Debug, Deserialize)]
struct Document {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    items: Vec<Group>,
}

impl Document {
    fn groups(self) -> Option<Vec<Group>> {
        (self.kind == "APIGroupDiscoveryList").then_some(self.items)
    }
}

#[derive(Debug, Deserialize)]
struct Group {
    #[serde(default)]
    metadata: GroupMetadata,
    /// The preferred one first.
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Debug, Default, Deserialize)]
struct GroupMetadata {
    #[serde(default)]
    name: String,
}

#[derive(Debug, Deserialize)]
struct Version {
    version: String,
    #[serde(default)]
    resources: Vec<Entry>,
    #[serde(default)]
    freshness: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    resource: String,
    #[serde(default)]
    response_kind: ResponseKind,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    verbs: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
struct ResponseKind {
    #[serde(default)]
    kind: String,
}

fn written(group: &str, version: &str) -> String {
    match group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    }
}

/// Reads the answer, if it is a complete one. Pure.
fn resources(groups: Vec<Group>) -> Result<Vec<Served>, Undiscovered> {
    let versions = || {
        groups
            .iter()
            .flat_map(|group| group.versions.iter().map(move |it| (group.metadata.name.as_str(), it)))
    };
    let odd = versions()
        .find(|(group, it)| it.version.is_empty() || it.version.contains('/') || group.contains('/'));
    if let Some((group, it)) = odd {
        let text = written(group, &it.version);
        return Err(Undiscovered::Unparsable(format!("unexpected GroupVersion string: {text}")));
    }
    let stale: Vec<String> = versions()
        .filter(|(_, it)| it.freshness == "Stale")
        .map(|(group, it)| written(group, &it.version))
        .collect();
    if !stale.is_empty() {
        let failures =
            stale.iter().map(|it| (it.clone(), format!("stale GroupVersion discovery: {it}"))).collect();
        return Err(some_failed(failures));
    }
    if !versions()
        .any(|(group, it)| group.is_empty() && it.resources.iter().any(|it| it.resource == "namespaces"))
    {
        // No server is without these; an answer without them is not the whole answer.
        return Err(Undiscovered::Failed("discovery does not list the core resources".to_owned()));
    }
    let mut served = Vec::new();
    for Group { metadata, versions } in groups {
        for Version { version, resources, .. } in versions {
            served.extend(resources.into_iter().map(|it| it.served(&metadata.name, &version)));
        }
    }
    Ok(served)
}

impl Entry {
    fn served(self, group: &str, version: &str) -> Served {
        Served {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: self.resource,
            kind: self.response_kind.kind,
            is_namespaced: self.scope == "Namespaced",
            verbs: self.verbs,
        }
    }
}

/// In upstream's words; sorted, so that the message does not change from pass to pass.
fn some_failed(mut failures: Vec<(String, String)>) -> Undiscovered {
    failures.sort();
    let listed: Vec<String> = failures.iter().map(|(version, why)| format!("{version}: {why}")).collect();
    Undiscovered::Failed(format!(
        "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server APIs: {}",
        failures.len(),
        listed.join(", ")
    ))
}

/// For servers without aggregated discovery.
async fn one_by_one(client: &Client) -> Result<Vec<Group>, Undiscovered> {
    let failed = |error: kube::Error| Undiscovered::Failed(Error::from(error).text());
    let core = client.list_core_api_versions().await.map_err(failed)?;
    let mut wanted: Vec<(String, Vec<String>)> = vec![(String::new(), core.versions)];
    for group in client.list_api_groups().await.map_err(failed)?.groups {
        let preferred = group.preferred_version.map(|it| it.version);
        let mut versions: Vec<String> = group.versions.into_iter().map(|it| it.version).collect();
        versions.sort_by_key(|it| Some(it) != preferred.as_ref());
        wanted.push((group.name, versions));
    }
    let mut groups = Vec::new();
    let mut failures = Vec::new();
    for (name, versions) in wanted {
        let mut read = Vec::new();
        for version in versions {
            let answer = if name.is_empty() {
                client.list_core_api_resources(&version).await
            } else {
                client.list_api_group_resources(&format!("{name}/{version}")).await
            };
            match answer {
                Ok(list) => {
                    read.push(Version { version, resources: entries(list), freshness: String::new() })
                }
                Err(error) => {
                    let written = if name.is_empty() { version } else { format!("{name}/{version}") };
                    failures.push((written, Error::from(error).text()));
                }
            }
        }
        groups.push(Group { metadata: GroupMetadata { name }, versions: read });
    }
    if failures.is_empty() { Ok(groups) } else { Err(some_failed(failures)) }
}

fn entries(list: APIResourceList) -> Vec<Entry> {
    let resources = list.resources.into_iter().filter(|it| !it.name.contains('/')).map(|it| Entry {
        resource: it.name,
        response_kind: ResponseKind { kind: it.kind },
        scope: if it.namespaced { "Namespaced".to_owned() } else { "Cluster".to_owned() },
        verbs: it.verbs,
    });
    resources.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(groups: &Value) -> Result<Vec<String>, Undiscovered> {
        let document: Document =
            serde_json::from_value(json!({"kind": "APIGroupDiscoveryList", "items": groups})).unwrap();
        let found = resources(document.groups().unwrap())?;
        Ok(found.iter().map(|it| format!("{}/{} {}", it.api_version(), it.resource, it.kind)).collect())
    }

    /// Name, scope and verbs.
    type Facts<'a> = (&'a str, &'a str, &'a [&'a str]);

    fn group(name: &str, versions: &[(&str, &[Facts<'_>])]) -> Value {
        let versions: Vec<Value> = versions
            .iter()
            .map(|(version, resources)| {
                let resources: Vec<Value> = resources
                    .iter()
                    .map(|(resource, scope, verbs)| json!({"resource": resource, "responseKind": {"kind": "K"}, "scope": scope, "verbs": verbs}))
                    .collect();
                json!({"version": version, "freshness": "Current", "resources": resources})
            })
            .collect();
        json!({"metadata": {"name": name, "creationTimestamp": null}, "versions": versions})
    }

    const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list"];

    fn core() -> Value {
        let resources: &[Facts<'_>] = &[
            ("bindings", "Namespaced", &["create"]),
            ("configmaps", "Namespaced", ALL),
            ("namespaces", "Cluster", ALL),
            ("pods", "Namespaced", ALL),
            ("services", "Namespaced", &["delete", "list"]),
        ];
        group("", &[("v1", resources)])
    }

    #[test]
    fn every_version_is_found_the_preferred_one_first() {
        let newer: &[Facts<'_>] = &[("widgets", "Namespaced", ALL)];
        let older: &[Facts<'_>] = &[("widgets", "Namespaced", ALL), ("gadgets", "Namespaced", ALL)];
        let core = group("", &[("v1", &[("namespaces", "Cluster", ALL)])]);
        let groups = json!([core, group("example.org", &[("v2", newer), ("v1", older)])]);
        let expect = [
            "v1/namespaces K",
            "example.org/v2/widgets K",
            "example.org/v1/widgets K",
            "example.org/v1/gadgets K",
        ];
        assert_eq!(parse(&groups).unwrap(), expect);
    }

    #[test]
    fn incomplete_discovery_is_no_discovery() {
        let mut stale = group("metrics.k8s.io", &[("v1beta1", &[])]);
        stale["versions"][0]["freshness"] = json!("Stale");
        let expect = "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: \
                      metrics.k8s.io/v1beta1: stale GroupVersion discovery: metrics.k8s.io/v1beta1";
        assert_eq!(parse(&json!([core(), stale])), Err(Undiscovered::Failed(expect.to_owned())));
        let no_core = Undiscovered::Failed("discovery does not list the core resources".to_owned());
        assert_eq!(parse(&json!([])), Err(no_core.clone()));
        assert_eq!(parse(&json!([group("apps", &[("v1", &[])])])), Err(no_core));
        let odd = Undiscovered::Unparsable("unexpected GroupVersion string: a/b/c".to_owned());
        assert_eq!(parse(&json!([core(), group("a", &[("b/c", &[])])])), Err(odd));
    }

    #[test]
    fn the_older_document_is_not_an_empty_answer() {
        let older = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [{"name": "apps"}]});
        assert!(serde_json::from_value::<Document>(older).unwrap().groups().is_none());
    }
}
