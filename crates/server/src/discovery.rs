//! What servers offer, as discovery documents: from a catalog to what a member record says, back, and merged.
//!
//! Pure. Deliberately not here: who the members are, and when documents are made anew ([`crate::documents`]).

use std::collections::BTreeMap;

use catalog::{
    Catalog, Verb,
    discovery::{self, GroupDiscovery, ResourceDiscovery, SubresourceDiscovery, VersionDiscovery},
};
use fleet::{
    Offer,
    offer::{GroupOffer, ResourceOffer, SubresourceOffer},
};
use meta::{ApiVersion, GroupResource, GroupVersion};

/// What a server of this catalog tells the others that it offers.
pub(crate) fn offer(catalog: &Catalog) -> Offer {
    let texts = |it: &[std::sync::Arc<str>]| it.iter().map(ToString::to_string).collect();
    let verbs = |it: &[Verb]| it.iter().map(ToString::to_string).collect();
    let groups = discovery::builtin(catalog, |_| None).into_iter().map(|group| {
        let mut versions: BTreeMap<String, BTreeMap<String, ResourceOffer>> = BTreeMap::new();
        for version in group.versions {
            let resources = version.resources.into_iter().map(|it| {
                let subresources = it.subresources.iter().map(|sub| {
                    let group_version =
                        sub.group_version.as_ref().map(|it| (it.group.to_string(), it.version.to_string()));
                    let (kind, verbs) = (sub.kind.to_string(), verbs(&sub.verbs));
                    (sub.name.to_string(), SubresourceOffer { kind, group_version, verbs })
                });
                let resource = ResourceOffer {
                    singular: it.singular.to_string(),
                    kind: it.kind.to_string(),
                    namespaced: it.namespaced,
                    verbs: verbs(&it.verbs),
                    short_names: texts(&it.short_names),
                    categories: texts(&it.categories),
                    subresources: subresources.collect(),
                };
                (it.name.to_string(), resource)
            });
            versions.insert(version.version.to_string(), resources.collect());
        }
        (group.name.to_string(), GroupOffer { priority: group.priority, versions })
    });
    Offer(groups.collect())
}

/// What discovery says of an offer; `stored` is the group and version in which a resource is now being stored.
pub(crate) fn describe(
    offer: &Offer,
    stored: impl Fn(&GroupResource) -> Option<GroupVersion>,
) -> Vec<GroupDiscovery> {
    let groups = offer.0.iter().map(|(group, offered)| GroupDiscovery {
        name: group.as_str().into(),
        priority: offered.priority,
        versions: offered
            .versions
            .iter()
            .map(|(version, resources)| VersionDiscovery {
                version: ApiVersion::new(version.as_str()),
                resources: resources
                    .iter()
                    .map(|(name, it)| {
                        let hash = stored(&GroupResource::new(group.as_str(), name.as_str()));
                        describe_resource(name, it, hash.as_ref())
                    })
                    .collect(),
            })
            .collect(),
    });
    groups.collect()
}

fn describe_resource(name: &str, it: &ResourceOffer, stored: Option<&GroupVersion>) -> ResourceDiscovery {
    let texts = |it: &[String]| it.iter().map(|it| it.as_str().into()).collect();
    ResourceDiscovery {
        name: name.into(),
        singular: it.singular.as_str().into(),
        kind: it.kind.as_str().into(),
        response: None,
        namespaced: it.namespaced,
        verbs: verbs(&it.verbs),
        short_names: texts(&it.short_names),
        categories: texts(&it.categories),
        storage_version_hash: stored.map(|stored| discovery::storage_version_hash(stored, &it.kind)),
        subresources: it
            .subresources
            .iter()
            .map(|(name, it)| SubresourceDiscovery {
                name: name.as_str().into(),
                kind: it.kind.as_str().into(),
                group_version: it
                    .group_version
                    .as_ref()
                    .map(|(group, version)| GroupVersion::new(group.as_str(), version.as_str())),
                response: None,
                verbs: verbs(&it.verbs),
            })
            .collect(),
    }
}

/// Verbs of newer releases that this one has never heard of cannot be asked for through it either.
fn verbs(names: &[String]) -> Vec<Verb> {
    names.iter().filter_map(|it| Verb::parse(it)).collect()
}

/// The union of what several servers offer, the newest server first. Where two say different things about the same, the
/// newer one counts: its priorities decide the order, its names and kinds are shown; verbs and subresources are added up.
pub(crate) fn merge(newest_first: impl IntoIterator<Item = Vec<GroupDiscovery>>) -> Vec<GroupDiscovery> {
    let mut merged: Vec<GroupDiscovery> = Vec::new();
    for group in newest_first.into_iter().flatten() {
        match merged.iter_mut().find(|it| it.name == group.name) {
            None => merged.push(group),
            Some(known) => group.versions.into_iter().for_each(|it| merge_version(known, it)),
        }
    }
    merged
}

fn merge_version(group: &mut GroupDiscovery, version: VersionDiscovery) {
    let Some(known) = group.versions.iter_mut().find(|it| it.version == version.version) else {
        group.versions.push(version);
        return;
    };
    for resource in version.resources {
        match known.resources.iter_mut().find(|it| it.name == resource.name) {
            None => known.resources.push(resource),
            Some(newer) => merge_resource(newer, resource),
        }
    }
}

fn merge_resource(newer: &mut ResourceDiscovery, older: ResourceDiscovery) {
    add_verbs(&mut newer.verbs, &older.verbs);
    newer.storage_version_hash = newer.storage_version_hash.take().or(older.storage_version_hash);
    for sub in older.subresources {
        match newer.subresources.iter_mut().find(|it| it.name == sub.name) {
            None => newer.subresources.push(sub),
            Some(known) => add_verbs(&mut known.verbs, &sub.verbs),
        }
    }
}

fn add_verbs(verbs: &mut Vec<Verb>, more: &[Verb]) {
    let before = verbs.len();
    let new: Vec<Verb> = more.iter().copied().filter(|it| !verbs.contains(it)).collect();
    verbs.extend(new);
    if verbs.len() > before {
        verbs.sort_unstable();
    }
}

#[cfg(test)]
mod tests {
    use catalog::{FeatureGates, RuntimeConfig, discovery::Documents};
    use meta::Release;

    use super::*;

    fn catalog(minor: u16, runtime_config: &str) -> Catalog {
        let release = Release::v1(minor);
        let config = RuntimeConfig::parse(runtime_config).unwrap();
        Catalog::new(release, &config, &FeatureGates::defaults(release)).unwrap()
    }

    fn documents(groups: Vec<GroupDiscovery>) -> Documents {
        Documents::build(groups, "127.0.0.1:6443")
    }

    fn described(catalog: &Catalog) -> Vec<GroupDiscovery> {
        describe(&offer(catalog), |_| None)
    }

    #[test]
    fn what_a_record_says_becomes_the_document_of_its_server() {
        for minor in 33..=36 {
            let catalog = catalog(minor, "api/all=true");
            let own = documents(discovery::builtin(&catalog, |_| None));
            let told = documents(described(&catalog));
            assert_eq!(told.aggregated_apis_v2, own.aggregated_apis_v2, "1.{minor}");
            assert_eq!(told.aggregated_api_v2, own.aggregated_api_v2, "1.{minor}");
        }
    }

    #[test]
    fn merging_what_is_the_same_changes_nothing() {
        let one = catalog(36, "");
        let merged = documents(merge([described(&one), described(&one)]));
        assert_eq!(merged.aggregated_apis_v2, documents(described(&one)).aggregated_apis_v2);
    }

    #[test]
    fn each_server_adds_what_only_it_has() {
        let (a, b) = (catalog(36, "apps/v1=false"), catalog(36, "batch/v1=false"));
        let merged = documents(merge([described(&a), described(&b)]));
        let whole = documents(described(&catalog(36, "")));
        assert_eq!(merged.aggregated_apis_v2, whole.aggregated_apis_v2);
        assert_eq!(merged.apis, whole.apis);
        let other_way = documents(merge([described(&b), described(&a)]));
        assert_eq!(merged.aggregated_apis_v2, other_way.aggregated_apis_v2);
    }

    #[test]
    fn the_newest_release_decides_the_order() {
        let (old, new) = (catalog(33, ""), catalog(36, ""));
        let merged = merge([described(&new), described(&old)]);
        let position = |groups: &[GroupDiscovery]| -> Vec<String> {
            let text = documents(groups.to_vec());
            let list: serde_json::Value = serde_json::from_slice(&text.apis).unwrap();
            let names = list["groups"].as_array().unwrap().iter();
            names.map(|it| it["name"].as_str().unwrap().to_owned()).collect()
        };
        let (all, newest) = (position(&merged), position(&described(&new)));
        let kept: Vec<&String> = all.iter().filter(|it| newest.contains(it)).collect();
        assert_eq!(kept, newest.iter().collect::<Vec<_>>());
    }

    #[test]
    fn verbs_and_subresources_add_up() {
        let resource = |verbs: &[Verb], subs: &[&str]| {
            let mut it = describe_resource("things", &ResourceOffer::default(), None);
            it.verbs = verbs.to_vec();
            let sub = |name: &&str| SubresourceDiscovery {
                name: (*name).into(),
                kind: "Scale".into(),
                group_version: None,
                response: None,
                verbs: vec![Verb::Get],
            };
            it.subresources = subs.iter().map(sub).collect();
            let version = VersionDiscovery { version: ApiVersion::new("v1"), resources: vec![it] };
            vec![GroupDiscovery { name: "example.com".into(), priority: 1, versions: vec![version] }]
        };
        let merged = merge([
            resource(&[Verb::Get, Verb::Watch], &["scale"]),
            resource(&[Verb::Create, Verb::Get], &["scale", "status"]),
        ]);
        let things = &merged[0].versions[0].resources[0];
        assert_eq!(things.verbs, [Verb::Create, Verb::Get, Verb::Watch]);
        assert_eq!(things.subresources.len(), 2);
    }
}
