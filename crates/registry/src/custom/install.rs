//! Puts the kinds of definitions into the table of kinds.
//!
//! **Guarantees.** A kind in the table has a collection that is filled, and is never older than the definition that it
//! was installed from. Deliberately not here: which definitions are in force; [`super::follow`] decides that.

use std::{sync::Arc, time::Duration};

use cache::{Cache, Item};
use meta::{GroupResource, Status};
use store::Revision;

use super::{definition::Crd, definitions};
use crate::{Kind, Kinds, resource_version};

/// How long a read waits for the definition that its object was written by. It was stored before the object was.
const WAIT: Duration = Duration::from_secs(3);

/// Opens collections and makes kinds of definitions.
pub(crate) struct Installer {
    pub(crate) kinds: Arc<Kinds>,
    pub(crate) cache: Cache,
}

impl Installer {
    /// Puts the kind of a definition into the table, as the definition is now.
    pub(crate) async fn install(&self, item: &Arc<Item>) -> Result<Option<Arc<Kind>>, Status> {
        let Some(crd) = Crd::read(item) else { return Ok(None) };
        let resource = GroupResource::new(crd.spec.group.as_str(), crd.spec.names.plural.as_str());
        if self.kinds.is_built_in(&resource) {
            return Ok(None);
        }
        let spec = crd.collection();
        let collection = match self.cache.collection(&spec.prefix) {
            Some(collection) if *collection.spec() == spec => collection,
            found => {
                if found.is_some() {
                    // Other fields can be selected by now; watchers begin anew.
                    self.cache.remove(&spec.prefix);
                }
                match self.cache.add(spec.clone()).await {
                    Ok(collection) => collection,
                    // Somebody else was faster.
                    Err(error) => self
                        .cache
                        .collection(&spec.prefix)
                        .ok_or_else(|| Status::unavailable(error.to_string(), 1))?,
                }
            }
        };
        let before = self.kinds.get(&resource);
        let (definition, custom) = crd.compile(item, before.as_ref().and_then(|it| it.custom.as_deref()));
        Ok(Some(self.kinds.install(Kind::of_user(definition, custom, collection, self.kinds.schemas()))))
    }

    /// The kind as its definition was when something of it was stored at this revision, or later: whoever follows
    /// definitions may be behind the objects.
    pub(crate) async fn as_of(&self, kind: &Kind, revision: Revision) -> Result<Arc<Kind>, Status> {
        let custom = kind.custom.as_deref().ok_or_else(Status::no_such_resource)?;
        let reached = self.cache.wait_for(revision, WAIT).await;
        reached.map_err(|behind| resource_version::too_large(revision, behind.current))?;
        let item = self.definitions()?.get(custom.stored.key().as_str());
        let item = item.ok_or_else(Status::no_such_resource)?;
        self.install(&item).await?.ok_or_else(Status::no_such_resource)
    }

    /// The collection of definitions.
    pub(crate) fn definitions(&self) -> Result<Arc<cache::Collection>, Status> {
        let kind = self.kinds.get(&definitions()).ok_or_else(Status::no_such_resource)?;
        kind.collection().cloned().ok_or_else(Status::no_such_resource)
    }
}
