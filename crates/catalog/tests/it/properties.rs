//! The types of the built-in kinds against the properties that another project read from Kubernetes' OpenAPI
//! documents (`golden/properties-from-k8s-openapi.py`), release by release.

use std::collections::BTreeMap;

use catalog::{Catalog, FeatureGates, RuntimeConfig, Schemas};
use meta::Release;
use schema::model::ObjectType;

const GOLDEN: &str = include_str!("golden/properties.txt");

/// The properties of every type in 1.33 to 1.36.
fn golden(minor: u16) -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut types = BTreeMap::new();
    for line in GOLDEN.lines() {
        let mut words = line.split(' ');
        let release: Release = words.next().unwrap().parse().unwrap();
        let name = words.next().unwrap();
        let properties: Vec<_> = words.collect();
        if release.minor < minor {
            continue;
        }
        if properties == ["absent"] {
            types.remove(name);
        } else {
            types.insert(name, properties);
        }
    }
    types
}

/// What StorageVersions and migrations show beyond upstream's.
const OWN: [(&str, &[&str]); 3] = [
    ("io.k8s.api.apiserverinternal.v1alpha1.ServerStorageVersion", &["preferredVersion"]),
    ("io.k8s.api.apiserverinternal.v1alpha1.StorageVersionStatus", &["epoch", "selectedVersion"]),
    (
        "io.k8s.api.storagemigration.v1beta1.StorageVersionMigrationStatus",
        &[
            "completionTime",
            "engine",
            "epoch",
            "evidence",
            "failures",
            "lastUpdateTime",
            "message",
            "phase",
            "progress",
            "prunedVersions",
            "reason",
            "startTime",
            "storageVersion",
        ],
    ),
];

fn known(object: &ObjectType) -> Vec<&str> {
    object.fields.iter().filter(|it| it.is_known).map(|it| &*it.name).collect()
}

#[test]
fn every_type_has_the_properties_of_its_release() {
    for minor in 33..=36 {
        let schemas = Schemas::new(Release::v1(minor));
        let schema = schemas.schema();
        let mut n_compared = 0;
        for (name, properties) in golden(minor) {
            let Some(object) = schema.find(name).and_then(|it| schema.object(it)) else { continue };
            let mut properties = properties;
            properties.extend(OWN.iter().filter(|(ty, _)| *ty == name).flat_map(|(_, fields)| *fields));
            properties.sort_unstable();
            assert_eq!(known(object), properties, "{name} in 1.{minor}");
            n_compared += 1;
        }
        assert!(n_compared > 500, "only {n_compared} types of 1.{minor} were compared");
    }
}

#[test]
fn every_type_of_the_other_project_that_kinds_need_is_there() {
    let schemas = Schemas::new(Release::v1(36));
    // Not part of any kind: documents of discovery, and JSON of any shape.
    let missing: Vec<_> = golden(36).into_keys().filter(|it| schemas.schema().find(it).is_none()).collect();
    assert_eq!(missing, ["io.k8s.apimachinery.pkg.version.Info"]);
}

#[test]
fn every_kind_that_a_release_serves_has_a_type() {
    for minor in 30..=36 {
        let release = Release::v1(minor);
        let schemas = Schemas::new(release);
        let all = RuntimeConfig::parse("api/all=true").unwrap();
        let catalog = Catalog::new(release, &all, &FeatureGates::defaults(release)).unwrap();
        for served in catalog.served() {
            let (group, version) = (&*served.definition.group, served.version.as_str());
            let kind = schemas.kind(group, version, &served.definition.kind).unwrap();
            let object = schemas.schema().object(kind).unwrap();
            for field in ["apiVersion", "kind", "metadata"] {
                assert!(object.field(field).is_some(), "{served} lacks {field}");
            }
            if served.definition.is_stored() {
                assert!(schemas.kind(group, version, &served.definition.list_kind).is_some(), "{served}");
            }
        }
    }
}
