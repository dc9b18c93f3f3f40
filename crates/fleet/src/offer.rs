//! What a server offers to clients by itself: built-in groups, versions, resources, subresources and verbs.
//!
//! It stands in the member record, so that whoever knows that a server is a member also knows what it can be asked for,
//! and can describe that to clients. Deliberately not here: custom resources, which every server knows from the store.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::record::bounded;

const MAX_GROUPS: usize = 512;
const MAX_VERSIONS: usize = 32;
const MAX_RESOURCES: usize = 512;
const MAX_SUBRESOURCES: usize = 64;
const MAX_NAMES: usize = 64;

/// Everything, by group; the core group has an empty name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Offer(pub BTreeMap<String, GroupOffer>);

/// One group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GroupOffer {
    /// Groups of higher priority come first in discovery.
    pub priority: u32,
    /// Resources by version and plural name.
    pub versions: BTreeMap<String, BTreeMap<String, ResourceOffer>>,
}

/// One resource in one version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceOffer {
    /// The singular name.
    pub singular: String,
    /// The kind.
    pub kind: String,
    /// Whether objects live in a namespace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub namespaced: bool,
    /// The verbs, as discovery prints them.
    pub verbs: Vec<String>,
    /// The short names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub short_names: Vec<String>,
    /// The categories.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    /// The subresources by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub subresources: BTreeMap<String, SubresourceOffer>,
}

/// One subresource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubresourceOffer {
    /// The kind.
    pub kind: String,
    /// The group and version of the kind, if they are not those of the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_version: Option<(String, String)>,
    /// The verbs, as discovery prints them.
    pub verbs: Vec<String>,
}

/// What a request needs: a verb on a resource, or on a subresource of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need<'a> {
    /// The group; empty for the core group.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// The plural name.
    pub resource: &'a str,
    /// The subresource; empty for the resource itself.
    pub subresource: &'a str,
    /// The verb, as in authorization.
    pub verb: &'a str,
}

impl Offer {
    /// A resource in a version.
    pub fn resource(&self, group: &str, version: &str, resource: &str) -> Option<&ResourceOffer> {
        self.0.get(group)?.versions.get(version)?.get(resource)
    }

    /// Whether anything is offered in that group and version.
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.0.get(group).is_some_and(|it| it.versions.contains_key(version))
    }

    /// Whether a request can be served.
    pub fn covers(&self, need: &Need<'_>) -> bool {
        let Some(resource) = self.resource(need.group, need.version, need.resource) else { return false };
        let verbs = match need.subresource {
            "" => &resource.verbs,
            name => match resource.subresources.get(name) {
                Some(it) => &it.verbs,
                None => return false,
            },
        };
        verbs.iter().any(|it| it == need.verb)
    }

    /// Whether counts are within bounds.
    pub(crate) fn check(&self) -> Result<(), String> {
        bounded("groups", self.0.len(), MAX_GROUPS)?;
        for group in self.0.values() {
            bounded("versions", group.versions.len(), MAX_VERSIONS)?;
            for resources in group.versions.values() {
                bounded("resources", resources.len(), MAX_RESOURCES)?;
                for it in resources.values() {
                    bounded("subresources", it.subresources.len(), MAX_SUBRESOURCES)?;
                    bounded("names", it.verbs.len() + it.short_names.len() + it.categories.len(), MAX_NAMES)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer() -> Offer {
        let verbs = |it: &[&str]| it.iter().map(|it| (*it).to_owned()).collect();
        let scale = SubresourceOffer { verbs: verbs(&["get"]), ..SubresourceOffer::default() };
        let things = ResourceOffer {
            verbs: verbs(&["get", "list"]),
            subresources: [("scale".to_owned(), scale)].into(),
            ..ResourceOffer::default()
        };
        let versions = [("v1".to_owned(), [("things".to_owned(), things)].into())].into();
        Offer([("example.com".to_owned(), GroupOffer { priority: 1, versions })].into())
    }

    #[test]
    fn verbs_and_subresources_are_told_apart() {
        let need = |resource, subresource, verb| Need {
            group: "example.com",
            version: "v1",
            resource,
            subresource,
            verb,
        };
        for (resource, subresource, verb, expect) in [
            ("things", "", "get", true),
            ("things", "", "create", false),
            ("things", "scale", "get", true),
            ("things", "scale", "update", false),
            ("things", "status", "get", false),
            ("others", "", "get", false),
        ] {
            assert_eq!(
                offer().covers(&need(resource, subresource, verb)),
                expect,
                "{resource}/{subresource} {verb}"
            );
        }
        assert!(!offer().covers(&Need { version: "v2", ..need("things", "", "get") }));
    }

    #[test]
    fn it_survives_being_written() {
        let text = serde_json::to_string(&offer()).unwrap();
        assert_eq!(serde_json::from_str::<Offer>(&text).unwrap(), offer());
    }
}
