//! Knows every definition that is in force: before anybody is told that a resource is not there.
//!
//! Whoever follows definitions ([`super::follow`]) is behind the store by as much as news takes to travel, and by the work
//! that is waiting there. What the cache holds is read up to a revision that was current after the call began, and what
//! is not installed yet is installed here.

use std::{collections::HashMap, sync::Arc};

use cache::Item;
use meta::{GroupResource, RetryAfter, Status};
use store::Revision;

use super::definition::Crd;
use crate::{Registry, outcome};

impl Registry {
    /// Knows the definition of a resource, if one is in force at the revision that is returned.
    pub async fn catch_up_definition(&self, resource: &GroupResource) -> Result<Revision, Status> {
        let revision = self.caught_up().await?;
        if let Some(item) = self.installer.definition(&super::definition_key(resource))? {
            self.install_established(&item).await?;
        }
        Ok(revision)
    }

    /// Knows all definitions that are in force at the revision that is returned.
    pub async fn catch_up_definitions(&self) -> Result<Revision, Status> {
        let revision = self.caught_up().await?;
        let definitions = self.installer.definitions()?;
        let kinds = self.kinds.custom();
        let known: HashMap<&str, Revision> = kinds
            .iter()
            .filter_map(|it| it.custom.as_ref())
            .map(|it| (it.stored.uid(), it.stored.revision()))
            .collect();
        let is_news = |it: &&Arc<Item>| known.get(it.uid()).is_none_or(|known| *known < it.revision());
        let snapshot = definitions.snapshot().map_err(outcome::closed)?;
        // One that cannot be read may define what is asked for.
        let all = snapshot.range(&definitions.spec().prefix, None);
        for item in all.map_err(|it| Status::internal(it.to_string()))?.filter(is_news) {
            self.install_established(item).await?;
        }
        Ok(revision)
    }

    async fn caught_up(&self) -> Result<Revision, Status> {
        self.cache
            .catch_up()
            .await
            .map_err(|it| Status::unavailable(it.to_string(), RetryAfter::only_read(1)))
    }

    async fn install_established(&self, item: &Arc<Item>) -> Result<(), Status> {
        if Crd::read(item).is_some_and(|it| it.has("Established")) {
            self.installer.install_soon(item).await?;
        }
        Ok(())
    }
}
