//! GET: one object.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use cache::{Collection, Item};
use meta::Status;
use store::Store;

use crate::{
    Registry, Target, outcome,
    resource_version::{self, Wanted},
    serve,
};

/// How long a read waits for a revision this server has not seen yet, as upstream does.
const WAIT: Duration = Duration::from_secs(3);

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
        let collection = self.collection(target)?;
        let key = target.key();
        if let Some(item) = collection.get(key.as_str()) {
            return Ok(item);
        }
        if let Some(why) = collection.unreadable_at(key.as_str()) {
            return Err(Status::internal(format!(
                "{} {:?} cannot be decoded: {why}",
                target.kind.resource, target.name
            )));
        }
        Err(Status::not_found(&target.kind.resource, &target.name))
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
        collection.parse(entry).map(Arc::new).map_err(|why| {
            Status::internal(format!("{} {:?} cannot be decoded: {why}", target.kind.resource, target.name))
        })
    }

    pub(crate) fn collection<'a>(&self, target: &'a Target) -> Result<&'a Arc<Collection>, Status> {
        target
            .kind
            .collection()
            .ok_or_else(|| Status::method_not_supported(&target.kind.resource, "the operation"))
    }
}
