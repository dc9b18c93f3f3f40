//! Watches as endless streams of names: what exists, what changed, what went away.
//!
//! Objects are read down to their name, namespace and `deletionTimestamp` and then dropped, so a watch holds no memory
//! for what it has seen. (A server that offers only metadata is not required.) A broken watch resumes by itself.

use std::{borrow::Cow, time::Duration};

use futures_util::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::api::ApiResource;
use kube::core::{DynamicResourceScope, GroupVersionKind};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use tracing::{debug, warn};

use crate::api::PAGE;
use crate::backoff::Backoff;
use crate::discovery::Served;
use crate::error::{Chain, Error};

/// After a failure; short at first, so that controllers work as soon as a starting server does.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(15);

/// A page of bare metadata.
const METADATA_PAGE: u32 = 500;

/// What happened to the objects of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A list begins: what is not in it is gone.
    ListBegins,
    Listed(Named),
    ListEnds,
    /// Made or changed.
    Applied(Named),
    Deleted(Named),
}

/// Which object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    /// Empty if the resource is not in namespaces.
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) is_deleting: bool,
}

/// Which resource to watch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) resource: &'static str,
    /// Only these objects; empty for all.
    pub(crate) fields: &'static str,
}

/// What happened to the objects of one resource, with as much of their metadata as is about deletion.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    ListBegins,
    Listed(ObjectMeta),
    ListEnds,
    Applied(ObjectMeta),
    Deleted(ObjectMeta),
}

/// All changes of a resource, in all namespaces, from metadata only. As [`changes`] otherwise.
pub(crate) fn metadata(client: &Client, served: &Served) -> impl Stream<Item = Told> + Send + use<> {
    let kind = GroupVersionKind::gvk(&served.group, &served.version, &served.kind);
    let resource_type = ApiResource::from_gvk_with_plural(&kind, &served.resource);
    let api: Api<Slim<true>> = Api::all_with(client.clone(), &resource_type);
    let config = watcher::Config::default().page_size(METADATA_PAGE);
    let resource = format!("{}.{}", served.resource, served.group);
    watcher(api, config).backoff(Backoff::new(FIRST_PAUSE, LAST_PAUSE)).filter_map(move |event| {
        let told = match event {
            Ok(watcher::Event::Init) => Some(Told::ListBegins),
            Ok(watcher::Event::InitApply(object)) => Some(Told::Listed(object.metadata)),
            Ok(watcher::Event::InitDone) => Some(Told::ListEnds),
            Ok(watcher::Event::Apply(object)) => Some(Told::Applied(object.metadata)),
            Ok(watcher::Event::Delete(object)) => Some(Told::Deleted(object.metadata)),
            Err(error) => {
                debug!(resource, error = explain(error), "a watch broke and will be taken up again");
                None
            }
        };
        std::future::ready(told)
    })
}

/// All changes, beginning with a list. Never ends; failures are logged and followed by a pause.
pub(crate) fn changes(client: &Client, watched: Watched) -> impl Stream<Item = Change> + Send + use<> {
    let Watched { group, version, kind, resource, fields } = watched;
    let resource_type =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), resource);
    let api: Api<Slim<false>> = Api::all_with(client.clone(), &resource_type);
    let mut config = watcher::Config::default().page_size(PAGE);
    if !fields.is_empty() {
        config = config.fields(fields);
    }
    watcher(api, config).backoff(Backoff::new(FIRST_PAUSE, LAST_PAUSE)).filter_map(move |event| {
        let change = match event {
            Ok(watcher::Event::Init) => Some(Change::ListBegins),
            Ok(watcher::Event::InitApply(object)) => Some(Change::Listed(object.named())),
            Ok(watcher::Event::InitDone) => Some(Change::ListEnds),
            Ok(watcher::Event::Apply(object)) => Some(Change::Applied(object.named())),
            Ok(watcher::Event::Delete(object)) => Some(Change::Deleted(object.named())),
            Err(error) => {
                warn!(resource, error = explain(error), "a watch broke and will be taken up again");
                None
            }
        };
        std::future::ready(change)
    })
}

fn explain(error: watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => Error::from(error).text(),
        other @ (watcher::Error::WatchError(_) | watcher::Error::NoResourceVersion) => {
            Chain(&other).to_string()
        }
    }
}

/// Any object, read down to what is asked of its metadata. The server is told to send only metadata, or not.
#[derive(Clone, Debug, serde::Deserialize)]
struct Slim<const METADATA_ONLY: bool> {
    #[serde(deserialize_with = "needed")]
    metadata: ObjectMeta,
}

/// The metadata without what can be long.
fn needed<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Needed {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        owner_references: Option<Vec<OwnerReference>>,
        finalizers: Option<Vec<String>>,
        deletion_timestamp: Option<Time>,
    }
    let Needed { name, namespace, uid, resource_version, owner_references, finalizers, deletion_timestamp } =
        serde::Deserialize::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name,
        namespace,
        uid,
        resource_version,
        owner_references,
        finalizers,
        deletion_timestamp,
        ..ObjectMeta::default()
    })
}

impl<const METADATA_ONLY: bool> Slim<METADATA_ONLY> {
    fn named(self) -> Named {
        let ObjectMeta { name, namespace, deletion_timestamp, .. } = self.metadata;
        Named {
            namespace: namespace.unwrap_or_default(),
            name: name.unwrap_or_default(),
            is_deleting: deletion_timestamp.is_some(),
        }
    }
}

impl<const METADATA_ONLY: bool> Resource for Slim<METADATA_ONLY> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.kind)
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.group)
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.version)
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.plural)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    fn metadata_api() -> bool {
        METADATA_ONLY
    }
}
