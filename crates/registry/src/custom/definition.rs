//! A stored CustomResourceDefinition, read: everything but its schemas.

use std::sync::{Arc, OnceLock};

use cache::{CollectionSpec, FieldSpec, Item};
use catalog::{Definition, Origin, Served, Subresource, Verb, Verbs};
use meta::{ApiVersion, GroupResource, GroupVersion, Value};
use serde::Deserialize;

use super::{
    Conversion, Custom, CustomVersion,
    columns::{self, ColumnSpec},
    convert::ClientConfig,
};

/// A definition as far as it matters for serving. Schemas are passed over.
#[derive(Debug, Deserialize)]
pub(crate) struct Crd {
    pub(crate) metadata: Metadata,
    pub(crate) spec: Spec,
    #[serde(default)]
    pub(crate) status: Status,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata {
    pub(crate) name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    generation: i64,
    #[serde(default)]
    pub(crate) deletion_timestamp: Option<String>,
    #[serde(default)]
    pub(crate) finalizers: Vec<String>,
    #[serde(default)]
    pub(crate) annotations: std::collections::BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Spec {
    pub(crate) group: String,
    pub(crate) scope: String,
    pub(crate) names: Names,
    pub(crate) versions: Vec<Version>,
    #[serde(default)]
    conversion: Option<RawConversion>,
}

/// What a resource is called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Names {
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) categories: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Status {
    pub(crate) conditions: Option<Vec<Condition>>,
    pub(crate) accepted_names: Names,
    pub(crate) stored_versions: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) last_transition_time: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Version {
    name: String,
    #[serde(default)]
    served: bool,
    #[serde(default)]
    storage: bool,
    #[serde(default)]
    deprecated: bool,
    #[serde(default)]
    deprecation_warning: Option<String>,
    #[serde(default)]
    subresources: Option<Subresources>,
    #[serde(default)]
    additional_printer_columns: Vec<ColumnSpec>,
    #[serde(default)]
    selectable_fields: Vec<SelectableField>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Subresources {
    status: Option<serde::de::IgnoredAny>,
    scale: Option<ScalePaths>,
}

/// Where a custom kind keeps what `scale` shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScalePaths {
    /// `.spec.replicas`
    pub spec_replicas_path: String,
    /// `.status.replicas`
    pub status_replicas_path: String,
    /// `.status.selector`; may be empty.
    pub label_selector_path: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SelectableField {
    #[serde(default)]
    json_path: String,
}

#[derive(Debug, Deserialize)]
struct RawConversion {
    #[serde(default)]
    strategy: String,
    #[serde(default)]
    webhook: Option<RawWebhook>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawWebhook {
    #[serde(default)]
    client_config: Option<Value>,
    #[serde(default)]
    conversion_review_versions: Vec<String>,
}

impl Crd {
    /// `None` for a text that is no definition, which none can be that was stored by this server.
    pub(crate) fn read(item: &Item) -> Option<Self> {
        match serde_json::from_slice(item.text()) {
            Ok(crd) => Some(crd),
            Err(error) => {
                tracing::warn!(name = item.name(), %error, "a stored definition cannot be read");
                None
            }
        }
    }

    /// Whether a condition is there and true.
    pub(crate) fn has(&self, condition: &str) -> bool {
        let conditions = self.status.conditions.iter().flatten();
        conditions.into_iter().any(|it| it.kind == condition && it.status == "True")
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// What the cache must hold for the resource.
    pub(crate) fn collection(&self) -> CollectionSpec {
        let mut fields: Vec<FieldSpec> = Vec::new();
        for name in self.spec.versions.iter().flat_map(|it| it.selectable()) {
            if fields.iter().all(|it| it.name != name) {
                fields.push(FieldSpec::new(name));
            }
        }
        CollectionSpec {
            prefix: self.prefix(),
            namespaced: self.is_namespaced(),
            fields,
            versions: Vec::new(),
        }
    }

    /// Where objects lie in the store.
    pub(crate) fn prefix(&self) -> String {
        prefix(&self.spec.group, &self.spec.names.plural)
    }

    fn is_namespaced(&self) -> bool {
        self.spec.scope == "Namespaced"
    }

    /// The kind that the definition defines, under the names that were accepted.
    pub(crate) fn compile(&self, item: &Arc<Item>, before: Option<&Custom>) -> (Arc<Definition>, Custom) {
        let definition = Arc::new(self.definition());
        let versions = self.spec.versions.iter().map(|it| it.compile(&definition)).collect();
        // A definition with the same spec as before needs no new schemas, and its objects are as they were.
        let same = before
            .filter(|it| it.generation == self.metadata.generation && it.stored.uid() == self.metadata.uid);
        let storage = self.spec.versions.iter().find(|it| it.storage);
        let storage = storage.map_or_else(String::new, |it| it.name.clone());
        let custom = Custom {
            stored: Arc::clone(item),
            since: same.map_or(item.revision(), |it| it.since),
            generation: self.metadata.generation,
            lists_storage: self.status.stored_versions.iter().flatten().any(|it| *it == storage),
            storage: GroupVersion::new(self.spec.group.as_str(), storage),
            versions,
            conversion: self.conversion(),
            is_terminating: self.is_deleting(),
            shapes: same.map_or_else(|| Arc::new(OnceLock::new()), |it| Arc::clone(&it.shapes)),
        };
        (definition, custom)
    }

    fn definition(&self) -> Definition {
        // What was accepted before holds until something else is.
        let names = match self.status.accepted_names.plural.as_str() {
            "" => &self.spec.names,
            _ => &self.status.accepted_names,
        };
        let group = self.spec.group.as_str();
        let mut served: Vec<ApiVersion> = self
            .spec
            .versions
            .iter()
            .filter(|it| it.served)
            .map(|it| ApiVersion::new(it.name.as_str()))
            .collect();
        served.sort_by(|a, b| b.cmp(a));
        let storage = self.spec.versions.iter().find(|it| it.storage);
        Definition {
            group: group.into(),
            resource: self.spec.names.plural.as_str().into(),
            kind: self.spec.names.kind.as_str().into(),
            list_kind: self.spec.names.list_kind.as_str().into(),
            singular: names.singular.as_str().into(),
            short_names: names.short_names.iter().map(|it| it.as_str().into()).collect(),
            categories: names.categories.iter().map(|it| it.as_str().into()).collect(),
            namespaced: self.is_namespaced(),
            key_prefix: Some(self.prefix().into()),
            storage: storage.map(|it| GroupVersion::new(group, it.name.as_str())),
            decodable: self
                .spec
                .versions
                .iter()
                .map(|it| GroupVersion::new(group, it.name.as_str()))
                .collect(),
            record: GroupResource::new(group, self.spec.names.plural.as_str()),
            versions: served,
            origin: Origin::User,
        }
    }

    fn conversion(&self) -> Conversion {
        let webhook = self.spec.conversion.as_ref().filter(|it| it.strategy == "Webhook");
        let Some(RawWebhook { client_config: Some(client), conversion_review_versions }) =
            webhook.and_then(|it| it.webhook.as_ref())
        else {
            return Conversion::None;
        };
        Conversion::Webhook(Arc::new(ClientConfig {
            definition: self.metadata.name.clone(),
            client: client.clone(),
            review_versions: conversion_review_versions.clone(),
        }))
    }
}

/// Where objects of a custom resource lie in the store.
pub(crate) fn prefix(group: &str, plural: &str) -> String {
    format!("/registry/{group}/{plural}/")
}

impl Version {
    fn selectable(&self) -> impl Iterator<Item = String> {
        self.selectable_fields.iter().map(|it| it.json_path.trim_start_matches('.').to_owned())
    }

    fn compile(&self, definition: &Arc<Definition>) -> CustomVersion {
        let has_status = self.subresources.as_ref().is_some_and(|it| it.status.is_some());
        let scale = self.subresources.as_ref().and_then(|it| it.scale.clone());
        let deprecated = || format!("{}/{} {} is deprecated", definition.group, self.name, definition.kind);
        let warning = self.deprecation_warning.clone().unwrap_or_else(deprecated);
        CustomVersion {
            name: ApiVersion::new(self.name.as_str()),
            served: self.served.then(|| Arc::new(self.serve(definition))),
            has_status,
            scale,
            columns: columns::compile(&self.additional_printer_columns),
            selectable: self.selectable().collect(),
            warning: self.deprecated.then_some(warning),
        }
    }

    fn serve(&self, definition: &Arc<Definition>) -> Served {
        let verbs: Verbs = [Verb::Get, Verb::Patch, Verb::Update].into_iter().collect();
        let mut subresources = Vec::new();
        let own = self.subresources.as_ref();
        if own.is_some_and(|it| it.scale.is_some()) {
            subresources.push(Subresource {
                name: "scale".into(),
                kind: "Scale".into(),
                group_version: Some(GroupVersion::new("autoscaling", "v1")),
                verbs,
            });
        }
        if own.is_some_and(|it| it.status.is_some()) {
            let kind = definition.kind.clone();
            subresources.push(Subresource { name: "status".into(), kind, group_version: None, verbs });
        }
        Served {
            definition: Arc::clone(definition),
            version: ApiVersion::new(self.name.as_str()),
            verbs: Verbs::ALL,
            subresources,
            deprecation: None,
        }
    }
}
