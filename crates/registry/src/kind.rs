//! A resource as the registry sees it: its definition, its place in the store and its special behaviour.

use std::{collections::HashMap, sync::Arc};

use cache::{Cache, Collection, CollectionSpec};
use catalog::{Catalog, Definition, Schemas};
use meta::{ApiVersion, GroupKind, GroupResource, GroupVersion, Release, StorageVersion};
use store::Key;

use crate::{convert::Converter, fields, strategy::Strategy};

/// One resource.
pub struct Kind {
    /// The facts.
    pub definition: Arc<Definition>,
    /// `deployments.apps`
    pub resource: GroupResource,
    /// `Deployment.apps`
    pub group_kind: GroupKind,
    /// How it differs from other kinds.
    pub strategy: Strategy,
    /// The versions in which `status` is a subresource.
    with_status: Vec<ApiVersion>,
    collection: Option<Arc<Collection>>,
    converter: Converter,
}

impl Kind {
    /// The objects in memory; `None` for kinds that are not stored.
    pub fn collection(&self) -> Option<&Arc<Collection>> {
        self.collection.as_ref()
    }

    /// How its versions become each other.
    pub fn converter(&self) -> &Converter {
        &self.converter
    }

    /// Whether objects live in namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.definition.namespaced
    }

    /// Whether the object's `status` can only be written through the subresource.
    pub fn has_status(&self, version: &ApiVersion) -> bool {
        self.with_status.contains(version)
    }

    pub(crate) fn key(&self, namespace: &str, name: &str) -> Key {
        Key::new(format!("{}{name}", self.scope(namespace)))
    }

    pub(crate) fn scope(&self, namespace: &str) -> String {
        let prefix = self.prefix();
        if namespace.is_empty() || !self.is_namespaced() {
            prefix.to_owned()
        } else {
            format!("{prefix}{namespace}/")
        }
    }

    fn prefix(&self) -> &str {
        self.definition.key_prefix.as_deref().unwrap_or_default()
    }
}

/// All resources of one server, by group and resource.
pub struct Kinds {
    by_resource: HashMap<GroupResource, Arc<Kind>>,
    schemas: Schemas,
    release: Release,
}

impl Kinds {
    /// What the cache must hold for these definitions. Resources that share keys share one collection.
    pub fn collections(catalog: &Catalog) -> Vec<CollectionSpec> {
        let mut specs: Vec<CollectionSpec> = Vec::new();
        for definition in catalog.definitions() {
            let Some(prefix) = &definition.key_prefix else { continue };
            if specs.iter().any(|it| it.prefix == **prefix) {
                continue;
            }
            let fields = fields::selectable(&definition.group, &definition.resource);
            specs.push(CollectionSpec {
                prefix: prefix.to_string(),
                namespaced: definition.namespaced,
                fields,
                versions: definition.decodable.iter().map(ToString::to_string).collect(),
            });
        }
        specs
    }

    /// Joins definitions with the cache's collections.
    pub fn new(catalog: &Catalog, cache: &Cache) -> Self {
        let schemas = Schemas::new(catalog.release());
        let by_resource = catalog
            .definitions()
            .iter()
            .map(|definition| {
                let resource = GroupResource::new(definition.group.clone(), definition.resource.clone());
                let kind = Kind {
                    definition: definition.clone(),
                    group_kind: GroupKind::new(definition.group.clone(), definition.kind.clone()),
                    strategy: Strategy::of(&definition.group, &definition.resource),
                    with_status: with_status(catalog, definition),
                    collection: definition.key_prefix.as_deref().and_then(|it| cache.collection(it)),
                    converter: Converter::new(&schemas, definition),
                    resource: resource.clone(),
                };
                (resource, Arc::new(kind))
            })
            .collect();
        Self { by_resource, schemas, release: catalog.release() }
    }

    /// What objects of all kinds look like.
    pub fn schemas(&self) -> &Schemas {
        &self.schemas
    }

    /// The release that this server stands in for.
    pub fn release(&self) -> Release {
        self.release
    }

    /// The versions this release stores its resources in.
    pub fn storage_versions(catalog: &Catalog) -> impl Iterator<Item = (GroupResource, StorageVersion)> + '_ {
        catalog.definitions().iter().filter_map(|it| {
            let storage: &GroupVersion = it.storage.as_ref()?;
            let resource = GroupResource::new(it.group.clone(), it.resource.clone());
            Some((resource, StorageVersion::new(storage.to_string())))
        })
    }

    /// One resource.
    pub fn get(&self, resource: &GroupResource) -> Option<&Arc<Kind>> {
        self.by_resource.get(resource)
    }

    /// All resources, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.by_resource.values()
    }
}

fn with_status(catalog: &Catalog, definition: &Definition) -> Vec<ApiVersion> {
    let served = catalog.served().iter().filter(|it| {
        it.definition.group == definition.group && it.definition.resource == definition.resource
    });
    served.filter(|it| it.subresource("status").is_some()).map(|it| it.version.clone()).collect()
}
