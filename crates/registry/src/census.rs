//! How many objects are stored in which version.
//!
//! Read from the cache, which sees the stored form of every object. Deliberately not here: what follows from it; see
//! [`fleet::stored`].

use std::collections::BTreeMap;

use fleet::stored::Census;
use meta::{GroupResource, GroupVersion, Status, StorageVersion, Value};

use crate::{
    Registry,
    custom::{self, prepare},
    outcome, serve,
};

impl Registry {
    /// How many objects of one resource are stored in which version, at a moment after the call. `None` if this server
    /// does not have the resource.
    pub async fn stored_versions(
        &self,
        resource: &GroupResource,
    ) -> Result<Option<BTreeMap<StorageVersion, u64>>, Status> {
        self.cache.catch_up().await.map_err(|it| outcome::read_failed(&it))?;
        let kind = self.kinds.get(resource);
        Ok(kind.and_then(|it| it.collection().map(|it| it.stored())))
    }

    /// How many values of a resource do not even say in which version they are stored, at the last moment that is known.
    pub fn n_unknown_versions(&self, resource: &GroupResource) -> u64 {
        let kind = self.kinds.get(resource);
        kind.and_then(|it| it.collection().map(|it| it.n_unknown())).unwrap_or_default()
    }

    /// What `status.storedVersions` of a definition lists, such as `example.com/v1`; nothing for a built-in resource.
    pub fn listed_versions(&self, resource: &GroupResource) -> Vec<String> {
        let Some(kind) = self.kinds.get(resource) else { return Vec::new() };
        let Some(custom) = &kind.custom else { return Vec::new() };
        // What the cache has may be newer than what is served by.
        let definitions = self.kinds.get(&custom::definitions()).and_then(|it| it.collection().cloned());
        let cached = definitions.and_then(|it| it.get(custom::definition_key(resource).as_str()));
        let definition = match cached {
            Some(item) => serve::stored_tree(&item),
            None => serde_json::from_slice::<Value>(custom.text()).unwrap_or_default(),
        };
        let listed = prepare::stored_versions(&definition).into_iter();
        listed.map(|it| GroupVersion::new(&*resource.group, it).to_string()).collect()
    }

    /// The census at a moment after the call, of built-in and custom resources, by the resources that name their records.
    pub async fn census(&self) -> Result<Census, Status> {
        self.cache.catch_up().await.map_err(|it| outcome::read_failed(&it))?;
        let mut census = Census::new();
        for kind in self.kinds.all() {
            if let Some(collection) = kind.collection() {
                // Resources that share their keys share the collection, so the last word is the same as the first.
                census.insert(kind.definition.record.clone(), collection.stored());
            }
        }
        Ok(census)
    }
}
