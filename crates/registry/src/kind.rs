//! A resource as the registry sees it: its definition, its place in the store and its special behaviour.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use cache::{Cache, Closed, Collection, CollectionSpec, Swap};
use catalog::{Catalog, Definition, Schemas, Served};
use meta::{ApiVersion, GroupKind, GroupResource, Release};
use parking_lot::RwLock;
use store::Key;

use crate::{
    convert::Converter,
    custom::{self, Custom},
    fields,
    strategy::Strategy,
};

/// One resource.
#[derive(Clone)]
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

    /// Whether both are built in, or made of the same definition, maybe in different states of it.
    pub(crate) fn is_defined_like(&self, other: &Self) -> bool {
        match (&self.custom, &other.custom) {
            (None, None) => true,
            (Some(own), Some(other)) => own.stored.uid() == other.stored.uid(),
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

/// So many resources are remembered that users have defined in groups of releases; of others nothing is concluded.
const MOST_ONCE_DEFINED: usize = 10_000;

/// All resources of one server, by group and resource. Those that users define come and go.
pub struct Kinds {
    by_resource: HashMap<GroupResource, Arc<Kind>>,
    custom: RwLock<HashMap<GroupResource, Arc<Kind>>>,
    /// Resources of groups that releases use, too, which users have defined since this server started.
    once_defined: RwLock<HashSet<GroupResource>>,
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
            once_defined: RwLock::default(),
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

    /// Takes a kind in, unless it is there in the same state or a newer one. The answer is what is there afterwards, and
    /// whether that is no newer. An error if its collection was closed: then it has to be made anew.
    pub(crate) fn install(&self, kind: Kind) -> Result<(Arc<Kind>, bool), Closed> {
        let revision = |it: &Kind| it.custom.as_ref().map(|it| it.stored.revision());
        // Collections of kinds in the table are closed only under this lock: none of them is.
        let mut custom = self.custom.write();
        if !kind.collection().is_some_and(|it| it.is_open()) {
            return Err(Closed);
        }
        if let Some(known) = custom.get(&kind.resource)
            && revision(known) >= revision(&kind)
        {
            return Ok((Arc::clone(known), revision(known) == revision(&kind)));
        }
        self.note_defined(&kind.resource);
        let kind = Arc::new(kind);
        let before = custom.insert(kind.resource.clone(), Arc::clone(&kind));
        if !before.is_some_and(|it| it.is_shown_as(&kind)) {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
        Ok((kind, true))
    }

    fn note_defined(&self, resource: &GroupResource) {
        let mut once_defined = self.once_defined.write();
        if is_reserved(&resource.group) && once_defined.len() < MOST_ONCE_DEFINED {
            once_defined.insert(resource.clone());
        }
    }

    /// Whether objects of a resource that this server does not serve are where those of definitions are. Not so if the
    /// resource may be built into another binary: what is built in has prefixes of its own.
    pub(crate) fn is_of_user(&self, resource: &GroupResource) -> bool {
        !is_reserved(&resource.group) || self.once_defined.read().contains(resource)
    }

    /// Lets a loaded collection take the place of the one that a kind reads from, and of that kind at the same moment.
    pub(crate) fn swap(&self, resource: &GroupResource, swap: Swap) {
        let mut custom = self.custom.write();
        let Some(collection) = swap.finish() else { return };
        if let Some(kind) = custom.get(resource) {
            let kind = Kind { collection: Some(collection), ..Kind::clone(kind) };
            custom.insert(resource.clone(), Arc::new(kind));
        }
    }

    /// Takes out the kind of a definition with this uid, and closes its collection. A collection that no kind reads from
    /// is closed, too: it was loaded for a definition that is gone.
    pub(crate) fn remove(&self, resource: &GroupResource, uid: &str, cache: &Cache) {
        let mut custom = self.custom.write();
        let is_it = |it: &Arc<Kind>| it.custom.as_ref().is_some_and(|it| it.stored.uid() == uid);
        if custom.get(resource).is_some_and(|it| !is_it(it)) {
            return;
        }
        if custom.remove(resource).is_some() {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
        cache.remove(&custom::custom_prefix(resource));
    }
}

/// Whether releases may bring resources of this group along.
fn is_reserved(group: &str) -> bool {
    !group.contains('.') || group.ends_with(".k8s.io") || group.ends_with(".kubernetes.io")
}

fn with_status(catalog: &Catalog, definition: &Definition) -> Vec<ApiVersion> {
    let served = catalog.served().iter().filter(|it| {
        it.definition.group == definition.group && it.definition.resource == definition.resource
    });
    served.filter(|it| it.subresource("status").is_some()).map(|it| it.version.clone()).collect()
}
