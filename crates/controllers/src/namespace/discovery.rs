//! Which namespaced resources there are.
//!
//! The aggregated documents are asked first (two requests); a server without them is asked group by group. Either way
//! the answer is complete or it is none: a namespace must not be finished because a group did not answer.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::Client;
use serde::Deserialize;

use super::plan::Resource;
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

/// All that can be listed and deleted, each in its preferred version, pods first.
pub(crate) async fn discover(client: &Client) -> Result<Vec<Resource>, Undiscovered> {
    let failed = |error: Error| Undiscovered::Failed(error.text());
    let core: Document = api::get_path(client, "/api", AGGREGATED).await.map_err(failed)?;
    let groups: Document = api::get_path(client, "/apis", AGGREGATED).await.map_err(failed)?;
    let groups = match (core.groups(), groups.groups()) {
        (Some(core), Some(groups)) => core.into_iter().chain(groups).collect(),
        (_, _) => one_by_one(client).await?,
    };
    resources(&groups)
}

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
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
    resources: Vec<Served>,
    #[serde(default)]
    freshness: String,
}

#[derive(Debug, Deserialize)]
struct Served {
    resource: String,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    verbs: Vec<String>,
}

/// Picks what a namespace can hold. Pure.
fn resources(groups: &[Group]) -> Result<Vec<Resource>, Undiscovered> {
    let versions = || {
        groups
            .iter()
            .flat_map(|group| group.versions.iter().map(move |it| (group.metadata.name.as_str(), it)))
    };
    let written = |group: &str, version: &str| match group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
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
    let mut found: Vec<Resource> = Vec::new();
    for (group, version) in versions() {
        for served in version.resources.iter().filter(|it| it.is_content()) {
            if !found.iter().any(|it| it.group == group && it.resource == served.resource) {
                found.push(served.to_resource(group, &version.version));
            }
        }
    }
    found.sort_by_key(|it| !it.is_pods());
    Ok(found)
}

impl Served {
    /// What cannot be deleted is no content, and what cannot be listed cannot be waited for.
    fn is_content(&self) -> bool {
        let can = |verb: &str| self.verbs.iter().any(|it| it == verb);
        self.scope == "Namespaced" && can("list") && (can("delete") || can("deletecollection"))
    }

    fn to_resource(&self, group: &str, version: &str) -> Resource {
        Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: self.resource.clone(),
            can_delete_collection: self.verbs.iter().any(|it| it == "deletecollection"),
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
                Ok(list) => read.push(Version { version, resources: served(list), freshness: String::new() }),
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

fn served(list: APIResourceList) -> Vec<Served> {
    let resources = list.resources.into_iter().filter(|it| !it.name.contains('/')).map(|it| Served {
        resource: it.name,
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
        let found = resources(&document.groups().unwrap())?;
        Ok(found
            .iter()
            .map(|it| format!("{}/{}/{} {}", it.group, it.version, it.resource, it.can_delete_collection))
            .collect())
    }

    /// Name, scope and verbs.
    type Facts<'a> = (&'a str, &'a str, &'a [&'a str]);

    fn group(name: &str, versions: &[(&str, &[Facts<'_>])]) -> Value {
        let versions: Vec<Value> = versions
            .iter()
            .map(|(version, resources)| {
                let resources: Vec<Value> = resources
                    .iter()
                    .map(|(resource, scope, verbs)| json!({"resource": resource, "scope": scope, "verbs": verbs}))
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
    fn content_is_what_can_be_listed_and_deleted_in_the_preferred_version_pods_first() {
        let apps: &[Facts<'_>] = &[("widgets", "Namespaced", ALL)];
        let older: &[Facts<'_>] = &[("widgets", "Namespaced", ALL), ("gadgets", "Namespaced", ALL)];
        let groups = json!([core(), group("example.org", &[("v2", apps), ("v1", older)])]);
        assert_eq!(
            parse(&groups).unwrap(),
            [
                "/v1/pods true",
                "/v1/configmaps true",
                "/v1/services false",
                "example.org/v2/widgets true",
                "example.org/v1/gadgets true",
            ]
        );
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
