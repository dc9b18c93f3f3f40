//! What the servers say of a resource. I/O; what follows from it is decided in `agree.rs`.
//!
//! Discovery is asked of each endpoint, version by version of the one group: the aggregated documents have no storage
//! version hash, may speak for other servers, and may be incomplete because of a group that does not matter here.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::{join, join_all};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIResource, APIResourceList};
use kube::Client;
use meta::{GroupResource, Value};
use tracing::debug;

use super::Endpoint;
use super::agree::{Definition, Facts, Offer, Offered, Storage};
use crate::api::Collection;
use crate::error::Error;

/// Asks everybody. `limit` is for each one.
pub(super) async fn observe(endpoints: &[Endpoint], resource: &GroupResource, limit: Duration) -> Facts {
    let offers = join_all(endpoints.iter().map(|it| async {
        let said = tokio::time::timeout(limit, offer(&it.client, resource)).await;
        (it.name.clone(), said.unwrap_or(Err(Error::TooLong(limit))).map_err(|it| it.text()))
    }));
    let Some(Endpoint { client, .. }) = endpoints.first() else {
        return Facts { endpoints: Vec::new(), definition: Ok(None), storage: Ok(None) };
    };
    // These are stored once, and every server reads them where they are stored.
    let stored = tokio::time::timeout(limit, join(definition(client, resource), storage(client, resource)));
    let (endpoints, stored) = join(offers, stored).await;
    let (definition, storage) = stored.unwrap_or((Err(Error::TooLong(limit)), Err(Error::TooLong(limit))));
    Facts {
        endpoints,
        definition: definition.map_err(|it| it.text()),
        storage: storage.map_err(|it| it.text()),
    }
}

/// Every resource whose objects are stored: those that discovery announces a hash for, and all that users defined.
pub(super) async fn stored(client: &Client) -> Result<Vec<GroupResource>, Error> {
    let mut found = BTreeSet::new();
    let mut lists = Vec::new();
    for version in client.list_core_api_versions().await?.versions {
        lists.push((String::new(), client.list_core_api_resources(&version).await?));
    }
    for group in client.list_api_groups().await?.groups {
        for version in &group.versions {
            match client.list_api_group_resources(&version.group_version).await {
                Ok(list) => lists.push((group.name.clone(), list)),
                // A group that somebody else serves and that does not answer holds up no other.
                Err(error) => debug!(group = version.group_version, %error, "a group cannot be asked for"),
            }
        }
    }
    for (group, list) in lists {
        let is_stored =
            |it: &APIResource| it.storage_version_hash.as_deref().is_some_and(|it| !it.is_empty());
        let stored = list.resources.into_iter().filter(is_stored);
        found.extend(stored.map(|it| (group.clone(), it.name)));
    }
    let all = Collection::cluster("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    let mut token = None;
    loop {
        let page = match all.list(client, token.as_deref()).await {
            Err(error) if error.is(403) => break,
            page => page?,
        };
        let (items, next) = page.open();
        let named = |it: &Value| (text(&it["spec"]["group"]), text(&it["spec"]["names"]["plural"]));
        found.extend(items.iter().map(named));
        token = next;
        if token.is_none() {
            break;
        }
    }
    Ok(found.into_iter().map(|(group, resource)| GroupResource::new(group, resource)).collect())
}

async fn offer(client: &Client, resource: &GroupResource) -> Result<Option<Offer>, Error> {
    let mut offer = Offer::default();
    for version in versions(client, &resource.group).await? {
        let list = if resource.group.is_empty() {
            client.list_core_api_resources(&version).await?
        } else {
            client.list_api_group_resources(&format!("{}/{version}", resource.group)).await?
        };
        add(&mut offer, version, &resource.resource, list);
    }
    Ok((!offer.versions.is_empty()).then_some(offer))
}

/// The versions of a group, the preferred one first; none if there is no such group.
async fn versions(client: &Client, group: &str) -> Result<Vec<String>, Error> {
    if group.is_empty() {
        return Ok(client.list_core_api_versions().await?.versions);
    }
    let groups = client.list_api_groups().await?.groups;
    let Some(group) = groups.into_iter().find(|it| it.name == group) else { return Ok(Vec::new()) };
    let preferred = group.preferred_version.map(|it| it.version);
    let mut versions: Vec<String> = group.versions.into_iter().map(|it| it.version).collect();
    versions.sort_by_key(|it| Some(it) != preferred.as_ref());
    Ok(versions)
}

fn add(offer: &mut Offer, version: String, resource: &str, list: APIResourceList) {
    let status = format!("{resource}/status");
    let has_status =
        list.resources.iter().any(|it| it.name == status && it.verbs.iter().any(|it| it == "patch"));
    if let Some(it) = list.resources.into_iter().find(|it| it.name == resource) {
        offer.hashes.extend(it.storage_version_hash.filter(|it| !it.is_empty()));
        let (kind, is_namespaced, verbs) = (it.kind, it.namespaced, it.verbs);
        offer.versions.push(Offered { version, kind, is_namespaced, verbs, has_status });
    }
}

/// `None` also where it may not be read: then the hashes have to do.
async fn definition(client: &Client, resource: &GroupResource) -> Result<Option<Definition>, Error> {
    if resource.group.is_empty() {
        return Ok(None);
    }
    let all = Collection::cluster("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    let name = format!("{}.{}", resource.resource, resource.group);
    let Some(it) = readable(all.get(client, &name).await)? else { return Ok(None) };
    let mut versions = it["spec"]["versions"].as_array().into_iter().flatten();
    let storage = versions.find(|it| it["storage"] == true).map(|it| text(&it["name"]));
    let storage = storage.ok_or_else(|| Error::Unknown("it has no storage version".to_owned()))?;
    let stored = it["status"]["storedVersions"].as_array().into_iter().flatten().map(text).collect();
    Ok(Some(Definition { uid: text(&it["metadata"]["uid"]), storage, stored }))
}

/// How the mark of what Convoy's servers agreed on begins.
const EPOCH: &str = "epoch ";

async fn storage(client: &Client, resource: &GroupResource) -> Result<Option<Storage>, Error> {
    let all = Collection::cluster("internal.apiserver.k8s.io", "v1alpha1", "storageversions");
    let group = if resource.group.is_empty() { "core" } else { &*resource.group };
    let name = format!("{group}.{}", resource.resource);
    Ok(readable(all.get(client, &name).await)?.map(|it| {
        let servers = it["status"]["storageVersions"].as_array().into_iter().flatten();
        let servers = servers.map(|it| (text(&it["apiServerID"]), text(&it["encodingVersion"]))).collect();
        let common = it["status"]["commonEncodingVersion"].as_str().filter(|it| !it.is_empty());
        // Convoy's servers count what they agreed on; elsewhere every change counts.
        let mark = match &it["status"]["epoch"] {
            Value::Null => format!("{} at {}", it["metadata"]["uid"], it["metadata"]["resourceVersion"]),
            epoch => format!("{EPOCH}{epoch}"),
        };
        Storage { common: common.map(str::to_owned), servers, mark }
    }))
}

/// The namespace by which a cluster is known: there is one in each, and it is never made again.
pub(super) const NAMESPACE: &str = "kube-system";

/// The uid of that namespace.
pub(super) async fn cluster(client: &Client) -> Result<String, Error> {
    let all = Collection::cluster("", "v1", "namespaces");
    let found = all.list_where::<Value>(client, &format!("metadata.name={NAMESPACE}"), "", None).await?;
    let (items, _) = found.open();
    let uid = items.first().map(|it| text(&it["metadata"]["uid"])).filter(|it| !it.is_empty());
    uid.ok_or_else(|| Error::Unknown(format!("the cluster has no namespace {NAMESPACE}")))
}

/// Whether servers refuse to write anything but what they agreed on, as Convoy's do, which count their agreements.
pub(super) async fn is_fenced(client: &Client, resource: &GroupResource) -> bool {
    storage(client, resource).await.is_ok_and(|it| it.is_some_and(|it| it.mark.starts_with(EPOCH)))
}

/// Who may not read something goes on without it.
fn readable(answer: Result<Option<Value>, Error>) -> Result<Option<Value>, Error> {
    match answer {
        Err(error) if error.is(403) => Ok(None),
        answer => answer,
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
