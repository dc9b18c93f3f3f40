//! Counts what a namespace holds, page by page; only counts are kept.

use futures_util::{StreamExt, stream};
use kube::Client;
use serde::Deserialize;

use super::plan::{Content, Resource, Seen};
use crate::api::{Collection, Exactly};
use crate::error::Error;

/// Lists or deletions in one namespace that run at the same time.
pub(crate) const AT_ONCE: usize = 8;

/// Finds out what is left of `resources`. A list that fails, with whatever code, leaves its resource unknown: a 404
/// may come from a server that does not serve yet what another one does, and fresh discovery decides.
pub(crate) async fn look(client: &Client, seen: &mut Seen, resources: Vec<Resource>) {
    let namespace = &seen.namespace;
    let deletions = &seen.deletions;
    let looks = resources.into_iter().map(|it| async move {
        // Before the deletion it is enough to know that there is something to delete.
        let depth = if deletions.contains_key(&it) { Depth::All } else { Depth::FirstStaying };
        let content = count(client, namespace, &it, depth).await;
        (it, content.map_err(|error| error.text()))
    });
    let found: Vec<_> = stream::iter(looks).buffered(AT_ONCE).collect().await;
    seen.content.extend(found);
}

pub(crate) fn collection(namespace: &str, resource: &Resource) -> Collection {
    Collection::namespaced(&resource.group, &resource.version, namespace, &resource.resource)
}

/// As much of an object as is counted.
#[derive(Debug, Deserialize)]
pub(crate) struct Slim {
    pub(crate) metadata: SlimMetadata,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SlimMetadata {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
    deletion_timestamp: Option<String>,
    finalizers: Option<Vec<String>>,
}

impl SlimMetadata {
    /// This object in this state.
    pub(crate) fn exactly(&self) -> Exactly<'_> {
        Exactly { uid: &self.uid, resource_version: &self.resource_version, policy: "Background" }
    }
}

/// How far to read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    All,
    /// To the end of the page with the first object that has to be deleted.
    FirstStaying,
}

async fn count(
    client: &Client,
    namespace: &str,
    resource: &Resource,
    depth: Depth,
) -> Result<Content, Error> {
    let collection = collection(namespace, resource);
    let mut content = Content::default();
    let mut token = None;
    loop {
        let (items, next) = collection.list_metadata::<Slim>(client, token.as_deref()).await?.open();
        token = next;
        for Slim { metadata } in items {
            content.n_objects += 1;
            content.n_staying += usize::from(metadata.deletion_timestamp.is_none());
            for finalizer in metadata.finalizers.unwrap_or_default() {
                *content.finalizers.entry(finalizer).or_default() += 1;
            }
        }
        if token.is_none() || (depth == Depth::FirstStaying && content.n_staying > 0) {
            return Ok(content);
        }
    }
}
