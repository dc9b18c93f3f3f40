//! How many objects are stored in which version.
//!
//! Read from the cache, which sees the stored form of every object. Deliberately not here: what follows from it; see
//! [`fleet::stored`].

use std::collections::BTreeMap;

use cache::{Closed, Collection, Unreadable};
use fleet::stored::Census;
use meta::{GroupResource, GroupVersion, Status, StorageVersion, Value};

use store::Key;

use crate::{
    Kind, Registry,
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
        self.counted(resource, Collection::stored)
    }

    /// How many values of a resource do not even say in which version they are stored, at the last moment that is known.
    pub fn n_unknown_versions(&self, resource: &GroupResource) -> Result<u64, Status> {
        self.counted(resource, Collection::n_unknown).map(Option::unwrap_or_default)
    }

    /// What is counted of a resource. A collection that was closed counts nothing; the one in its place does.
    fn counted<T>(
        &self,
        resource: &GroupResource,
        count: impl Fn(&Collection) -> Result<T, Closed>,
    ) -> Result<Option<T>, Status> {
        loop {
            let kind = self.kinds.get(resource);
            let Some(collection) = kind.as_ref().and_then(|it| it.collection()) else { return Ok(None) };
            match count(collection) {
                Ok(counted) => return Ok(Some(counted)),
                Err(closed) if self.cache.is_failed() => return Err(outcome::closed(closed)),
                // The table has another one by now.
                Err(_) => {}
            }
        }
    }

    /// The versions of stored objects of a resource that this server cannot decode: of one object, of a namespace, or of
    /// all. Nothing is said of what does not even name a version.
    pub fn unknown_versions(&self, kind: &Kind, namespace: &str, name: &str) -> Vec<StorageVersion> {
        let Some(collection) = kind.collection().filter(|it| it.has_unreadable()) else { return Vec::new() };
        let Ok(snapshot) = collection.snapshot() else { return Vec::new() };
        let (scope, key) = (kind.scope(namespace), kind.key(namespace, name));
        let is_asked_for = |it: &Key| name.is_empty() || *it == key;
        let mut versions: Vec<StorageVersion> = snapshot
            .unreadable(&scope)
            .filter(|(key, _)| is_asked_for(key))
            .filter_map(|(_, it)| match &it.why {
                Unreadable::UnknownVersion(version) => Some(version.clone()),
                _ => None,
            })
            .collect();
        versions.sort();
        versions.dedup();
        versions
    }

    /// What `status.storedVersions` of a definition lists, such as `example.com/v1`; nothing for a built-in resource.
    pub fn listed_versions(&self, resource: &GroupResource) -> Vec<String> {
        let Some(kind) = self.kinds.get(resource) else { return Vec::new() };
        let Some(custom) = &kind.custom else { return Vec::new() };
        // What the cache has may be newer than what is served by.
        let definitions = self.kinds.get(&custom::definitions()).and_then(|it| it.collection().cloned());
        let cached =
            definitions.and_then(|it| it.get(custom::definition_key(resource).as_str()).ok().flatten());
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
            // Resources that share their keys share the collection, so the last word is the same as the first.
            if let Some(stored) = self.counted(&kind.resource, Collection::stored)? {
                census.insert(kind.definition.record.clone(), stored);
            }
        }
        Ok(census)
    }
}
