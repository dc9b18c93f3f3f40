//! A resource as the registry sees it: its definition, its place in the store and its special behaviour.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use cache::{Cache, Collection, CollectionSpec};
use catalog::{Catalog, Definition, Schemas, Served};
use meta::{ApiVersion, GroupKind, GroupResource, Release};
use parking_lot::RwLock;
use store::Key;

use crate::{convert::Converter, custom::Custom, fields, strategy::Strategy};

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
    /// What a user has defined about it; `None` for built-in kinds.
    pub custom: Option<Arc<Custom>>,
}

impl Kind {
    /// A kind that a user has defined.
    pub(crate) fn of_user(
        definition: Arc<Definition>,
        custom: Custom,
        collection: Arc<Collection>,
        schemas: &Schemas,
    ) -> Self {
        let with_status =
            custom.versions.iter().filter(|it| it.has_status).map(|it| it.name.clone()).collect();
        Self {
            resource: definition.group_resource(),
            group_kind: GroupKind::new(definition.group.clone(), definition.kind.clone()),
            strategy: Strategy::of_user(),
            with_status,
            collection: Some(collection),
            converter: Converter::new(schemas, &definition),
            custom: Some(Arc::new(custom)),
            definition,
        }
    }

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

    /// Whether discovery and OpenAPI say the same of another state of the kind.
    fn is_shown_as(&self, other: &Self) -> bool {
        let (Some(own), Some(others)) = (&self.custom, &other.custom) else { return false };
        let (a, b) = (own.stored.uid() == others.stored.uid(), own.generation == others.generation);
        a && b && own.is_terminating == others.is_terminating && self.definition == other.definition
    }

    /// Whether this kind reads from the same collection as another.
    fn has_live_collection(&self, other: &Self) -> bool {
        match (&self.collection, &other.collection) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            _ => false,
        }
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

/// All resources of one server, by group and resource. Those that users define come and go.
pub struct Kinds {
    by_resource: HashMap<GroupResource, Arc<Kind>>,
    custom: RwLock<HashMap<GroupResource, Arc<Kind>>>,
    /// Grows with every change of `custom` that discovery could show.
    changes: AtomicU64,
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
                    custom: None,
                    resource: resource.clone(),
                };
                (resource, Arc::new(kind))
            })
            .collect();
        Self {
            by_resource,
            custom: RwLock::default(),
            changes: AtomicU64::new(0),
            schemas,
            release: catalog.release(),
        }
    }

    /// What objects of all kinds look like.
    pub fn schemas(&self) -> &Schemas {
        &self.schemas
    }

    /// The release that this server stands in for.
    pub fn release(&self) -> Release {
        self.release
    }

    /// One resource.
    pub fn get(&self, resource: &GroupResource) -> Option<Arc<Kind>> {
        self.by_resource.get(resource).cloned().or_else(|| self.custom.read().get(resource).cloned())
    }

    /// A resource that a user has defined, in a version in which it can be asked for.
    pub fn custom_served(&self, resource: &GroupResource, version: &str) -> Option<(Arc<Kind>, Arc<Served>)> {
        let kind = self.custom.read().get(resource).cloned()?;
        let served = kind.custom.as_ref()?.version(version)?.served.clone()?;
        Some((kind, served))
    }

    /// All resources, in no particular order.
    pub fn all(&self) -> Vec<Arc<Kind>> {
        self.by_resource.values().cloned().chain(self.custom()).collect()
    }

    /// The resources that users have defined, in no particular order.
    pub fn custom(&self) -> Vec<Arc<Kind>> {
        self.custom.read().values().cloned().collect()
    }

    /// A number that grows when users define something, or no longer do.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Whether the resource ships with the server.
    pub(crate) fn is_built_in(&self, resource: &GroupResource) -> bool {
        self.by_resource.contains_key(resource)
    }

    /// Takes a kind in, unless it is there in a newer state. The answer is what is there afterwards.
    pub(crate) fn install(&self, kind: Kind) -> Arc<Kind> {
        let revision = |it: &Kind| it.custom.as_ref().map(|it| it.stored.revision());
        let mut custom = self.custom.write();
        if let Some(known) = custom.get(&kind.resource)
            && revision(known) >= revision(&kind)
            && known.has_live_collection(&kind)
        {
            return Arc::clone(known);
        }
        let kind = Arc::new(kind);
        let before = custom.insert(kind.resource.clone(), Arc::clone(&kind));
        if !before.is_some_and(|it| it.is_shown_as(&kind)) {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
        kind
    }

    /// Takes out the kind of a definition with this uid.
    pub(crate) fn remove(&self, resource: &GroupResource, uid: &str) -> Option<Arc<Kind>> {
        let mut custom = self.custom.write();
        let is_it = |it: &Arc<Kind>| it.custom.as_ref().is_some_and(|it| it.stored.uid() == uid);
        custom.get(resource).filter(|it| is_it(it))?;
        self.changes.fetch_add(1, Ordering::AcqRel);
        custom.remove(resource)
    }
}

fn with_status(catalog: &Catalog, definition: &Definition) -> Vec<ApiVersion> {
    let served = catalog.served().iter().filter(|it| {
        it.definition.group == definition.group && it.definition.resource == definition.resource
    });
    served.filter(|it| it.subresource("status").is_some()).map(|it| it.version.clone()).collect()
}
