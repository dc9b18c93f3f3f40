//! `GET /convoy/census`: how many objects are stored in which version, of every resource.
//!
//! The shape of the document is stable; fields are only added. Deliberately not here: what follows from it. `convoy
//! census` and `convoy check` say that, and make the same document from a store that nobody serves.

use std::collections::BTreeMap;

use meta::{GroupResource, Status, Value};
use registry::Registry;
use serde::{Deserialize, Serialize};

/// The version of objects of which nobody knows it: they may be stored in any.
pub const UNKNOWN: &str = "Unknown";

/// What is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CensusView {
    /// How this is known: `StoreCounter` (a server counts along) or `StoreScan` (every key was read).
    pub evidence: String,
    /// By resource; those of which nothing is stored are there, too.
    pub resources: Vec<ResourceCensus>,
    /// Keys of resources that are not known, by where they are.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown: BTreeMap<String, u64>,
}

/// One resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceCensus {
    /// Such as `widgets.example.com`.
    pub resource: String,
    /// Whether users defined it.
    pub custom: bool,
    /// All objects.
    pub objects: u64,
    /// Objects by the version in which they are stored, such as `example.com/v1`; [`UNKNOWN`], or how they are encrypted,
    /// where that cannot be told.
    pub versions: BTreeMap<String, u64>,
    /// What is written now, as far as that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<String>,
    /// Why the objects could not be counted, if they could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncounted: Option<String>,
    /// `status.storedVersions` of the definition of a custom resource.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stored_versions: Vec<String>,
}

impl ResourceCensus {
    /// From counts.
    pub fn of(resource: &GroupResource, versions: BTreeMap<String, u64>) -> Self {
        let objects = versions.values().sum();
        Self { resource: resource.to_string(), objects, versions, ..Self::default() }
    }

    /// Adds what the definition of a custom resource says.
    #[must_use]
    pub fn defined_by(mut self, definition: &Value) -> Self {
        let texts = |it: Option<&Value>| -> Vec<String> {
            let texts = it.and_then(Value::as_array).into_iter().flatten();
            texts.filter_map(|it| it.as_str().map(str::to_owned)).collect()
        };
        self.custom = true;
        if self.written.is_none() {
            let written = meta::freeze::storage_version(definition);
            let group = definition.pointer("/spec/group").and_then(Value::as_str);
            self.written = group.zip(written).map(|(group, it)| format!("{group}/{it}"));
        }
        self.stored_versions = texts(definition.pointer("/status/storedVersions"));
        self
    }
}

/// The census of a server, at a moment after the call.
pub(crate) async fn view(registry: &Registry) -> Result<CensusView, Status> {
    let census = registry.census().await?;
    let station = registry.station();
    let custom: BTreeMap<GroupResource, Value> = registry
        .kinds()
        .custom()
        .iter()
        .filter_map(|kind| {
            let definition = serde_json::from_slice(kind.custom.as_ref()?.text()).ok()?;
            Some((kind.resource.clone(), definition))
        })
        .collect();
    let resources = census.into_iter().map(|(resource, versions)| {
        let mut versions: BTreeMap<String, u64> =
            versions.into_iter().map(|(version, n)| (version.to_string(), n)).collect();
        let n_unknown = registry.n_unknown_versions(&resource)?;
        if n_unknown > 0 {
            versions.insert(UNKNOWN.to_owned(), n_unknown);
        }
        let mut counted = ResourceCensus::of(&resource, versions);
        counted.written = station.version(&resource).map(|it| it.to_string());
        match custom.get(&resource) {
            Some(definition) => Ok(counted.defined_by(definition)),
            None => Ok(counted),
        }
    });
    Ok(CensusView {
        evidence: "StoreCounter".to_owned(),
        resources: resources.collect::<Result<_, Status>>()?,
        unknown: registry.cache().unclaimed(),
    })
}
