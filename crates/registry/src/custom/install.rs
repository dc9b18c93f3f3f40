//! Puts the kinds of definitions into the table of kinds.
//!
//! **Flow.** A new resource joins the table once its collection is loaded. Where a definition changes what is indexed of
//! its objects, its kind goes on reading from the collection there is, another one is loaded beside it, and takes its
//! place in the same moment in which the kind does.
//!
//! **Guarantees.** A kind in the table has a collection that answers, and is never older than the definition that it
//! was installed from. Deliberately not here: which definitions are in force; [`super::follow`] decides that.

use std::{sync::Arc, time::Duration};

use cache::{Cache, GetError, Item, Opening, Swap};
use meta::{GroupResource, RetryAfter, Status};
use parking_lot::Mutex;
use store::{Revision, SharedClock};

use super::{definition::Crd, definitions};
use crate::{Kind, Kinds, limits, outcome, resource_version};

/// How long a read waits for the definition that its object was written by. It was stored before the object was.
const WAIT: Duration = Duration::from_secs(3);

/// How long a request waits for the objects of its resource to be loaded.
const PATIENCE: Duration = Duration::from_secs(1);

/// Opens collections and makes kinds of definitions.
pub(crate) struct Installer {
    pub(crate) kinds: Arc<Kinds>,
    pub(crate) cache: Cache,
    pub(crate) clock: SharedClock,
    /// Definitions that were in force when this server started, whose kinds are not in the table yet.
    pub(crate) awaited: Mutex<Vec<Awaited>>,
}

/// A definition whose objects are loaded while the server starts.
pub(crate) struct Awaited {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) resource: GroupResource,
}

/// How far the kind of a definition is.
enum Tried {
    Installed(Arc<Kind>),
    Loading(Opening),
    /// The definition is not stored any more.
    Gone,
}

impl Installer {
    /// Puts the kind of a definition into the table, as the definition is now, once its objects are loaded: however long
    /// that takes.
    pub(crate) async fn install(&self, item: &Arc<Item>) -> Result<Option<Arc<Kind>>, Status> {
        let Some((crd, resource)) = self.read(item) else { return Ok(None) };
        for _ in 0..limits::MAX_ATTEMPTS {
            match self.attempt(item, &crd, &resource)? {
                Tried::Installed(kind) => return Ok(Some(kind)),
                Tried::Gone => return Ok(None),
                Tried::Loading(opening) => drop(opening.wait().await.map_err(|it| unavailable(&it))?),
            }
        }
        Err(outcome::closed(cache::Closed))
    }

    /// The same for a request, which does not wait for long: 503 while objects are loaded.
    pub(crate) async fn install_soon(&self, item: &Arc<Item>) -> Result<Option<Arc<Kind>>, Status> {
        tokio::select! {
            installed = self.install(item) => installed,
            () = self.clock.sleep(PATIENCE) => {
                let why = format!("the objects of {} are being loaded", item.name());
                Err(Status::unavailable(why, RetryAfter::only_read(1)))
            }
        }
    }

    /// Notes a definition that was in force when the server started: it is not ready without its kind.
    pub(crate) fn await_kind(&self, item: &Item) {
        if let Some((_, resource)) = self.read(item) {
            let (name, uid) = (item.name().to_owned(), item.uid().to_owned());
            self.awaited.lock().push(Awaited { name, uid, resource });
        }
    }

    /// The names of definitions that were in force when the server started and cannot be asked for yet.
    pub(crate) fn awaited(&self) -> Vec<String> {
        let definitions = self.definitions().ok();
        let mut awaited = self.awaited.lock();
        awaited.retain(|it| {
            let is_stored = definitions.as_ref().is_none_or(|all| {
                match all.get(super::definition_key(&it.resource).as_str()) {
                    Ok(stored) => stored.is_some_and(|stored| stored.uid() == it.uid),
                    Err(_) => true,
                }
            });
            is_stored && self.kinds.get(&it.resource).is_none()
        });
        awaited.iter().map(|it| it.name.clone()).collect()
    }

    /// The definition, unless it cannot be read or what it defines is built in.
    fn read(&self, item: &Item) -> Option<(Crd, GroupResource)> {
        let crd = Crd::read(item)?;
        let resource = GroupResource::new(crd.spec.group.as_str(), crd.spec.names.plural.as_str());
        (!self.kinds.is_built_in(&resource)).then_some((crd, resource))
    }

    /// Whether the definition is known to be deleted or replaced. Kinds are taken out of the table when that becomes known,
    /// once: a slow caller with an old definition must not put one back.
    fn is_gone(&self, item: &Item) -> bool {
        // Read before the definitions: a definition from the store may be newer than what is known here.
        if self.cache.applied() < item.revision() {
            return false;
        }
        let found = self.definitions().ok().map(|it| it.get(item.key().as_str()));
        matches!(found, Some(Ok(found)) if found.as_ref().is_none_or(|it| it.uid() != item.uid()))
    }

    fn attempt(&self, item: &Arc<Item>, crd: &Crd, resource: &GroupResource) -> Result<Tried, Status> {
        let spec = crd.collection();
        let open = || {
            let (kinds, resource) = (Arc::clone(&self.kinds), resource.clone());
            let swap = move |swap: Swap| kinds.swap(&resource, swap);
            self.cache.open(spec.clone(), item.revision(), swap).map_err(|it| unavailable(&it))
        };
        for _ in 0..limits::MAX_ATTEMPTS {
            let Some(collection) = self.cache.collection(&spec.prefix) else {
                return if self.is_gone(item) { Ok(Tried::Gone) } else { open().map(Tried::Loading) };
            };
            let before = self.kinds.get(resource);
            let (definition, custom) = crd.compile(item, before.as_ref().and_then(|it| it.custom.as_deref()));
            let kind = Kind::of_user(definition, custom, collection, self.kinds.schemas());
            let Ok((kind, is_newest)) = self.kinds.install(kind) else { continue };
            if self.is_gone(item) {
                // Whoever follows definitions has taken the kind out before it was put back here, or will.
                self.kinds.remove(resource, item.uid(), &self.cache);
                return Ok(Tried::Gone);
            }
            if is_newest {
                // Other fields may be selectable by now. Until they are indexed the kind reads from what there is.
                open()?;
            }
            return Ok(Tried::Installed(kind));
        }
        Err(outcome::closed(cache::Closed))
    }

    /// The kind as its definition was when something of it was stored at this revision, or later: whoever follows
    /// definitions may be behind the objects.
    pub(crate) async fn as_of(&self, kind: &Kind, revision: Revision) -> Result<Arc<Kind>, Status> {
        let custom = kind.custom.as_deref().ok_or_else(Status::no_such_resource)?;
        let reached = self.cache.wait_for(revision, WAIT).await;
        reached.map_err(|behind| resource_version::too_large(revision, behind.current))?;
        let item = self.definition(custom.stored.key())?.ok_or_else(Status::no_such_resource)?;
        self.install_soon(&item).await?.ok_or_else(Status::no_such_resource)
    }

    /// A definition as the cache has it.
    pub(crate) fn definition(&self, key: &store::Key) -> Result<Option<Arc<Item>>, Status> {
        self.definitions()?.get(key.as_str()).map_err(|error| match error {
            GetError::Closed(closed) => outcome::closed(closed),
            GetError::Undecodable(why) => Status::internal(format!("{key} cannot be decoded: {why}")),
        })
    }

    /// The collection of definitions.
    pub(crate) fn definitions(&self) -> Result<Arc<cache::Collection>, Status> {
        let kind = self.kinds.get(&definitions()).ok_or_else(Status::no_such_resource)?;
        kind.collection().cloned().ok_or_else(Status::no_such_resource)
    }
}

fn unavailable(error: &cache::AddError) -> Status {
    Status::unavailable(error.to_string(), RetryAfter::only_read(1))
}

#[cfg(test)]
mod tests;
