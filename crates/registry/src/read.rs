//! GET: one object.

use std::{borrow::Cow, sync::Arc, time::Duration};

use bytes::Bytes;
use cache::{Collection, GetError, Item};
use meta::Status;
use store::Store;

use crate::{
    Registry, Target, outcome,
    resource_version::{self, Wanted},
    serve,
};

/// How long a read waits for a revision this server has not seen yet, as upstream does.
const WAIT: Duration = Duration::from_secs(3);

/// How much there is to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of objects.
    pub n_bytes: usize,
    /// Those of objects that have to be converted.
    pub n_converted: usize,
}

impl Registry {
    /// One object in the client's version.
    pub async fn get(&self, target: &Target, resource_version: &str) -> Result<Bytes, Status> {
        let wanted = resource_version::for_get(resource_version)?;
        self.reach(wanted).await?;
        let item = self.item(target)?;
        Ok(serve::object(target, &*self.presented(target, &item).await?))
    }

    /// The object as the cache has it now.
    pub fn item(&self, target: &Target) -> Result<Arc<Item>, Status> {
        let key = target.key();
        let mut target = Cow::Borrowed(target);
        loop {
            return match self.collection(&target)?.get(key.as_str()) {
                Ok(Some(item)) => Ok(item),
                Ok(None) => Err(Status::not_found(&target.kind.resource, &target.name)),
                Err(GetError::Undecodable(why)) => Err(outcome::undecodable(&target, &key, why)),
                Err(GetError::Closed(_)) => {
                    target = Cow::Owned(self.resolved_again(&target)?);
                    continue;
                }
            };
        }
    }

    /// The object as the cache has it; where the cache cannot tell, as the store has it now. Says which it is.
    pub(crate) async fn known(&self, target: &Target) -> Result<(Option<Arc<Item>>, bool), Status> {
        match self.collection(target)?.get(target.key().as_str()) {
            Ok(item) => Ok((item, false)),
            Err(_) => Ok((self.fresh(target).await?, true)),
        }
    }

    /// How many bytes are stored of an object, as far as this server knows; 0 if there is none.
    pub fn stored_bytes(&self, target: &Target) -> usize {
        let Ok(collection) = self.collection(target) else { return 0 };
        collection.get(target.key().as_str()).ok().flatten().map_or(0, |it| it.text().len())
    }

    /// How many bytes the objects in the scope of a target have, of the first `most` of them, as far as this server knows;
    /// and how many of these bytes are shown otherwise than they are stored.
    pub fn extent(&self, target: &Target, most: usize) -> Extent {
        let Some(Ok(snapshot)) = target.kind.collection().map(|it| it.snapshot()) else {
            return Extent::default();
        };
        let presenter = self.presenter(target);
        let scope = target.scope();
        // Whoever reads them learns what cannot be decoded.
        let Ok(items) = snapshot.range(&scope, None) else { return Extent::default() };
        items.take(most).fold(Extent::default(), |sum, it| {
            let n_bytes = it.text().len();
            let is_as_stored = presenter.is_as_stored(it);
            Extent {
                n_bytes: sum.n_bytes + n_bytes,
                n_converted: sum.n_converted + if is_as_stored { 0 } else { n_bytes },
            }
        })
    }

    /// How many objects of a kind there are, as far as this server knows.
    pub fn n_objects(&self, target: &Target) -> usize {
        target.kind.collection().and_then(|it| it.len().ok()).unwrap_or(0)
    }

    /// The same target with its kind as it is now: the collection it was to be read from was closed, because another one
    /// has taken its place. 503 if the resource is not the same any more; then the request has to begin anew.
    pub(crate) fn resolved_again(&self, target: &Target) -> Result<Target, Status> {
        let is_it = |it: &Arc<crate::Kind>| {
            it.is_defined_like(&target.kind) && it.collection().is_some_and(|it| it.is_open())
        };
        let kind = self.kinds.get(&target.kind.resource).filter(is_it);
        let kind = kind.ok_or_else(|| outcome::closed(cache::Closed))?;
        Ok(Target { kind, ..target.clone() })
    }

    /// Knows everything that was stored when this was called.
    pub async fn catch_up(&self) -> Result<(), Status> {
        self.reach(Wanted::Consistent).await
    }

    /// Waits until the cache is as fresh as wanted. `Exact` is not the cache's business.
    pub(crate) async fn reach(&self, wanted: Wanted) -> Result<(), Status> {
        match wanted {
            Wanted::Any | Wanted::Exact(_) => Ok(()),
            Wanted::Consistent => {
                self.cache.catch_up().await.map_err(|it| outcome::read_failed(&it))?;
                Ok(())
            }
            Wanted::NotOlderThan(revision) => self
                .cache
                .wait_for(revision, WAIT)
                .await
                .map_err(|behind| resource_version::too_large(revision, behind.current)),
        }
    }

    /// The newest state of one object, straight from the store.
    pub(crate) async fn fresh(&self, target: &Target) -> Result<Option<Arc<Item>>, Status> {
        let entry = self.store.get(&target.key()).await.map_err(|it| outcome::read_failed(&it))?;
        let Some(entry) = entry else { return Ok(None) };
        self.decode(target, &entry).map(Some)
    }

    pub(crate) fn decode(&self, target: &Target, entry: &store::Entry) -> Result<Arc<Item>, Status> {
        let collection = self.collection(target)?;
        collection.parse(entry).map(Arc::new).map_err(|why| outcome::undecodable(target, &entry.key, why))
    }

    pub(crate) fn collection<'a>(&self, target: &'a Target) -> Result<&'a Arc<Collection>, Status> {
        target
            .kind
            .collection()
            .ok_or_else(|| Status::method_not_supported(&target.kind.resource, "the operation"))
    }
}
