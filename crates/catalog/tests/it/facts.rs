//! What is served, stored and read in each release, against golden files that were made from the facts directly
//! (`golden/from-facts.py`), not from the table that the crate ships. `golden/ours.txt` is what is ours in all of them.

use std::collections::{BTreeMap, BTreeSet};

use catalog::{
    Catalog, FIRST_RELEASE, FeatureGates, LAST_RELEASE, Origin, RuntimeConfig, Served,
    discovery::{Documents, documents},
};
use meta::{GroupVersion, Release};
use serde_json::Value;

/// What we serve in every release, whatever upstream does with it; written by hand.
const OURS: &str = include_str!("golden/ours.txt");

/// Release, golden lines, number of resources that default flags serve, number of those available.
const GOLDEN: [(u16, &str, usize, usize); 7] = [
    (30, include_str!("golden/1.30.txt"), 65, 82),
    (31, include_str!("golden/1.31.txt"), 65, 82),
    (32, include_str!("golden/1.32.txt"), 63, 82),
    (33, include_str!("golden/1.33.txt"), 65, 90),
    (34, include_str!("golden/1.34.txt"), 70, 92),
    (35, include_str!("golden/1.35.txt"), 70, 92),
    (36, include_str!("golden/1.36.txt"), 72, 97),
];

fn catalog(release: Release, runtime_config: &str) -> Catalog {
    let runtime_config = RuntimeConfig::parse(runtime_config).unwrap();
    Catalog::new(release, &runtime_config, &FeatureGates::defaults(release)).unwrap()
}

#[test]
fn the_golden_files_cover_every_release() {
    assert_eq!(Release::v1(GOLDEN[0].0), FIRST_RELEASE);
    assert_eq!(Release::v1(GOLDEN[6].0), LAST_RELEASE);
}

#[test]
fn default_flags_serve_what_the_facts_say() {
    for (minor, golden, n_default, _) in GOLDEN {
        let golden = Golden::read(golden);
        let expected = golden.discovery(|it| it.on);
        assert_eq!(expected.len(), n_default, "1.{minor}");
        check_discovery(&catalog(Release::v1(minor), ""), &expected);
    }
}

#[test]
fn with_everything_on_all_is_served_that_the_facts_know() {
    for (minor, golden, _, n_available) in GOLDEN {
        let expected = Golden::read(golden).discovery(|_| true);
        assert_eq!(expected.len(), n_available, "1.{minor}");
        check_discovery(&catalog(Release::v1(minor), "api/all=true"), &expected);
    }
}

#[test]
fn preference_storage_and_deprecation_follow_the_facts() {
    for (minor, golden, ..) in GOLDEN {
        let golden = Golden::read(golden);
        for (flags, word) in [("", "default"), ("api/all=true", "all")] {
            let catalog = catalog(Release::v1(minor), flags);
            for served in catalog.served() {
                let entry = golden.0[&path(served)];
                assert_eq!(served.is_preferred(), entry.preferred.contains(word), "{served} 1.{minor}");
                assert_eq!(storage_line(served), entry.storage, "{served} 1.{minor}");
                let is_convoy = served.definition.origin == Origin::Convoy;
                assert_eq!(is_convoy, is_ours(&served.definition.group_resource().to_string()), "{served}");
            }
        }
    }
}

#[test]
fn releases_read_each_others_objects_as_the_facts_say() {
    let mut n_changes = 0;
    for line in include_str!("golden/transitions.txt").lines() {
        let [old, new, resource, from, to, decodes] = line.splitn(6, ' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        if is_ours(resource) {
            continue;
        }
        let (resource, group) = resource.split_once('.').unwrap();
        let [old, new] = [old, new].map(|it| catalog(it.parse().unwrap(), "api/all=true"));
        let [old, new] = [&old, &new].map(|it| it.definition(group, resource).unwrap());
        let [from, to] = [from, to].map(|it| GroupVersion::new(group, it));
        assert_eq!(old.storage.as_ref(), Some(&from), "{line}");
        assert_eq!(new.storage.as_ref(), Some(&to), "{line}");
        assert_eq!(old.can_decode(&to), decodes.contains("oldDecodesNew"), "{line}");
        assert_eq!(new.can_decode(&from), decodes.contains("newDecodesOld"), "{line}");
        n_changes += 1;
    }
    assert_eq!(n_changes, 32);
}

/// Each line: a resource, a version in which it was stored, the first release that knew it, the first that no longer does.
#[test]
fn a_stored_version_can_be_read_for_as_long_as_the_facts_say() {
    let catalogs = GOLDEN.map(|(minor, ..)| catalog(Release::v1(minor), "api/all=true"));
    for line in include_str!("golden/lifetimes.txt").lines() {
        let [name, version, since, until] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        if is_ours(name) {
            continue;
        }
        let (resource, group) = name.split_once('.').unwrap_or((name, ""));
        let stored = GroupVersion::new(group, version);
        let since: Release = since.parse().unwrap();
        for catalog in &catalogs {
            let release = catalog.release();
            let Some(definition) = catalog.definition(group, resource) else { continue };
            let is_known =
                since <= release && until.parse().map_or(until == "never", |it: Release| release < it);
            // CRDs are stored as v1 here, so there is nothing else to read.
            let is_pinned = name == "customresourcedefinitions.apiextensions.k8s.io";
            assert_eq!(definition.can_decode(&stored), is_known && !is_pinned, "{line} in {release}");
        }
    }
}

#[test]
fn a_release_can_read_what_it_stores_and_what_it_serves() {
    for (minor, ..) in GOLDEN {
        let catalog = catalog(Release::v1(minor), "api/all=true");
        for definition in catalog.definitions() {
            assert_eq!(definition.is_stored(), definition.storage.is_some());
            assert!(
                definition
                    .key_prefix
                    .as_ref()
                    .is_none_or(|it| it.starts_with("/registry/") && it.ends_with('/'))
            );
            let unique: BTreeSet<_> = definition.decodable.iter().collect();
            assert_eq!(unique.len(), definition.decodable.len(), "{definition:?}");
            if let Some(storage) = &definition.storage {
                assert!(definition.can_decode(storage), "{definition:?}");
                let served = definition
                    .versions
                    .iter()
                    .map(|it| GroupVersion { group: definition.group.clone(), version: it.clone() });
                assert!(served.into_iter().all(|it| definition.can_decode(&it)), "{definition:?}");
            }
        }
    }
}

#[test]
fn decodable_versions_do_not_depend_on_what_is_switched_on() {
    let [defaults, all] = ["", "api/all=true"].map(|it| catalog(LAST_RELEASE, it));
    for definition in defaults.definitions() {
        let same = all.definition(&definition.group, &definition.resource).unwrap();
        assert_eq!(definition.decodable, same.decodable);
    }
    let policies = defaults.definition("admissionregistration.k8s.io", "mutatingadmissionpolicies").unwrap();
    let decodable: Vec<_> = policies.decodable.iter().map(|it| it.version.as_str()).collect();
    assert_eq!(decodable, ["v1", "v1beta1", "v1alpha1"]);
}

#[test]
fn resources_that_share_keys_share_a_record() {
    let catalog = catalog(LAST_RELEASE, "");
    let core = catalog.definition("", "events").unwrap();
    let grouped = catalog.definition("events.k8s.io", "events").unwrap();
    assert_eq!(core.key_prefix, grouped.key_prefix);
    assert_eq!(core.record, core.group_resource());
    assert_eq!(grouped.record, core.record);
    let words = |it: &[GroupVersion]| it.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(words(&core.decodable), ["v1", "events.k8s.io/v1"]);
    assert_eq!(words(&grouped.decodable), ["events.k8s.io/v1", "v1"]);

    let mut owners = BTreeMap::new();
    for definition in catalog.definitions() {
        if let Some(prefix) = &definition.key_prefix {
            let owner = owners.entry(prefix.clone()).or_insert_with(|| definition.record.clone());
            assert_eq!(*owner, definition.record, "{prefix}");
        }
    }
}

/// Both kinds of discovery document, and the look-ups, against the expected lines.
fn check_discovery(catalog: &Catalog, expected: &BTreeSet<String>) {
    let documents = documents(catalog, "127.0.0.1:6443");
    let release = catalog.release();
    compare(&from_lists(&documents), expected, &format!("{release}, legacy"));
    compare(&from_aggregated(&documents), expected, &format!("{release}, aggregated"));
    assert_eq!(catalog.served().len(), expected.len());
    for served in catalog.served() {
        let definition = &served.definition;
        let version = served.version.as_str();
        assert!(std::ptr::eq(
            catalog.find(&definition.group, version, &definition.resource).unwrap(),
            served
        ));
        assert!(std::ptr::eq(
            catalog.find_kind(&definition.group, version, &definition.kind).unwrap(),
            served
        ));
        assert!(
            catalog.has_group_version(&definition.group, version) && catalog.has_group(&definition.group)
        );
        assert_eq!(*definition.list_kind, format!("{}List", definition.kind));
    }
    for group in catalog.groups() {
        assert!(group.versions.is_sorted_by(|a, b| a > b), "{group:?}");
        assert!(group.versions.iter().all(|it| catalog.has_group_version(&group.name, it.as_str())));
    }
}

fn compare(actual: &BTreeSet<String>, expected: &BTreeSet<String>, what: &str) {
    let missing: Vec<_> = expected.difference(actual).collect();
    let surplus: Vec<_> = actual.difference(expected).collect();
    assert!(missing.is_empty() && surplus.is_empty(), "{what}: missing {missing:#?}, surplus {surplus:#?}");
}

/// The golden lines of one release, by group/version/resource.
struct Golden<'a>(BTreeMap<String, Entry<'a>>);

#[derive(Clone, Copy)]
struct Entry<'a> {
    path: &'a str,
    on: bool,
    discovery: &'a str,
    preferred: &'a str,
    storage: &'a str,
}

impl<'a> Golden<'a> {
    fn read(text: &'a str) -> Self {
        let entry = |line: &'a str| {
            let (discovery, rest) = line.split_once(" | ").unwrap();
            let (path, rest_of_discovery) = discovery.split_once(' ').unwrap();
            let (on, discovery) = rest_of_discovery.split_once(' ').unwrap();
            let (preferred, storage) = rest.split_once(' ').unwrap();
            (path.to_owned(), Entry { path, on: on == "on", discovery, preferred, storage })
        };
        let theirs = text.lines().map(entry).filter(|(path, _)| !is_ours(&name_in(path)));
        Self(theirs.chain(OURS.lines().map(entry)).collect())
    }

    fn discovery(&self, choose: impl Fn(&Entry<'_>) -> bool) -> BTreeSet<String> {
        self.0.values().filter(|it| choose(it)).map(|it| format!("{} {}", it.path, it.discovery)).collect()
    }
}

/// Whether a resource, `storagestates.migration.k8s.io`, is ours.
fn is_ours(name: &str) -> bool {
    OURS.lines().filter_map(|it| it.split(' ').next()).any(|it| name_in(it) == name)
}

/// `apps/v1/deployments` without the version: `deployments.apps`.
fn name_in(path: &str) -> String {
    match path.split('/').collect::<Vec<_>>()[..] {
        [group, _, resource] => format!("{resource}.{group}"),
        [_, resource] => resource.to_owned(),
        _ => panic!("{path}"),
    }
}

fn path(served: &Served) -> String {
    served.to_string()
}

/// The second half of a golden line, without the preference. CRDs are stored as v1, which is our exception.
fn storage_line(served: &Served) -> String {
    let definition = &served.definition;
    let stored = definition.storage.as_ref().map(|it| {
        let group = if it.group.is_empty() { "core" } else { &*it.group };
        let is_crd = &*definition.resource == "customresourcedefinitions";
        assert!(!is_crd || it.version.as_str() == "v1");
        format!("{group}/{}", if is_crd { "v1beta1" } else { it.version.as_str() })
    });
    let deprecated = served.deprecation.as_ref().map(|it| it.deprecated.to_string());
    format!(
        "stored={} prefix={} deprecated={}",
        stored.unwrap_or_default(),
        definition.key_prefix.as_deref().unwrap_or_default(),
        deprecated.unwrap_or_default()
    )
}

fn from_lists(documents: &Documents) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for (group_version, bytes) in &documents.group_versions {
        let list: Value = serde_json::from_slice(bytes).unwrap();
        assert_eq!(list["groupVersion"], **group_version);
        let resources = list["resources"].as_array().unwrap();
        for resource in resources.iter().filter(|it| !text(&it["name"]).contains('/')) {
            let name = text(&resource["name"]);
            let prefix = format!("{name}/");
            let subresources = resources.iter().filter_map(|it| {
                let sub = text(&it["name"]).strip_prefix(&prefix)?;
                let kind = qualified(&it["group"], &it["version"], &it["kind"]);
                Some(format!("{sub}:{kind}:{}", letters(&it["verbs"])))
            });
            let scope = if resource["namespaced"].as_bool().unwrap() { "Namespaced" } else { "Cluster" };
            lines.insert(format!(
                "{group_version}/{name} {} {} {scope} short={} categories={} verbs={} subresources={}",
                text(&resource["kind"]),
                text(&resource["singularName"]),
                words(&resource["shortNames"]),
                words(&resource["categories"]),
                letters(&resource["verbs"]),
                subresources.collect::<Vec<_>>().join(",")
            ));
        }
    }
    lines
}

fn from_aggregated(documents: &Documents) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for document in [&documents.aggregated_api_v2, &documents.aggregated_apis_v2] {
        let list: Value = serde_json::from_slice(&document.body).unwrap();
        for group in list["items"].as_array().unwrap() {
            for version in group["versions"].as_array().unwrap() {
                let group_version =
                    GroupVersion::new(text(&group["metadata"]["name"]), text(&version["version"]));
                for resource in version["resources"].as_array().unwrap() {
                    lines.insert(format!("{group_version}/{}", aggregated_resource(resource)));
                }
            }
        }
    }
    lines
}

fn aggregated_resource(resource: &Value) -> String {
    let subresources = resource["subresources"].as_array().into_iter().flatten().map(|it| {
        let kind = &it["responseKind"];
        let kind = qualified(&kind["group"], &kind["version"], &kind["kind"]);
        format!("{}:{kind}:{}", text(&it["subresource"]), letters(&it["verbs"]))
    });
    format!(
        "{} {} {} {} short={} categories={} verbs={} subresources={}",
        text(&resource["resource"]),
        text(&resource["responseKind"]["kind"]),
        text(&resource["singularResource"]),
        text(&resource["scope"]),
        words(&resource["shortNames"]),
        words(&resource["categories"]),
        letters(&resource["verbs"]),
        subresources.collect::<Vec<_>>().join(",")
    )
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn words(value: &Value) -> String {
    value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(",")
}

fn qualified(group: &Value, version: &Value, kind: &Value) -> String {
    if text(version).is_empty() {
        text(kind).to_owned()
    } else {
        format!("{}/{}/{}", text(group), text(version), text(kind))
    }
}

fn letters(verbs: &Value) -> String {
    let letter = |it: &Value| match text(it) {
        "create" => 'c',
        "delete" => 'd',
        "deletecollection" => 'D',
        "get" => 'g',
        "list" => 'l',
        "patch" => 'p',
        "update" => 'u',
        "watch" => 'w',
        other => panic!("{other}"),
    };
    verbs.as_array().unwrap().iter().map(letter).collect()
}
