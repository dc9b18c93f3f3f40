//! The requests of the garbage collector. Every one is conditional on what it was decided from.

use kube::Client;
use meta::Value;
use serde::Deserialize;
use serde_json::json;

use super::graph::{Identity, Life, Owner};
use super::kinds::Place;
use super::plan::Policy;
use crate::api::Exactly;
use crate::error::Error;
use crate::justify::Justified;

pub(super) const ORPHAN: &str = "orphan";
pub(super) const FOREGROUND: &str = "foregroundDeletion";

/// How often a deletion is repeated when the object changes, but not in what decided its fate.
const MOST_ATTEMPTS: usize = 10;

/// Any object, read down to what the garbage collector needs.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Slim {
    pub(super) metadata: Latest,
}

/// The metadata of an object as the server has it now.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Latest {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) uid: String,
    resource_version: String,
    /// As they are written, so that nothing is lost when some of them are taken away.
    owner_references: Option<Vec<Value>>,
    finalizers: Option<Vec<String>>,
    deletion_timestamp: Option<String>,
}

impl Latest {
    pub(super) fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().flatten().any(|it| it == name)
    }

    pub(super) fn life(&self) -> Life {
        life(self.deletion_timestamp.is_some(), |it| self.has_finalizer(it))
    }

    pub(super) fn owners(&self) -> Vec<Owner> {
        self.references().iter().map(owner).collect()
    }

    fn references(&self) -> &[Value] {
        self.owner_references.as_deref().unwrap_or_default()
    }
}

/// What the metadata say about a deletion.
pub(super) fn life(is_deleting: bool, has_finalizer: impl Fn(&str) -> bool) -> Life {
    match is_deleting {
        false => Life::Staying,
        true if has_finalizer(ORPHAN) => Life::Orphaning,
        true if has_finalizer(FOREGROUND) => Life::GoingLast,
        true => Life::Going,
    }
}

fn owner(reference: &Value) -> Owner {
    let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default().into();
    Owner {
        api_version: text("apiVersion"),
        kind: text("kind"),
        name: text("name"),
        uid: text("uid"),
        is_blocking: reference.get("blockOwnerDeletion").and_then(Value::as_bool).unwrap_or(false),
    }
}

/// The object of this name, or `None` if the server proves that there is none.
pub(super) async fn get(
    client: &Client,
    place: &Place,
    identity: &Identity,
) -> Result<Option<Latest>, Error> {
    let found = place.collection(&identity.namespace).get_metadata::<Slim>(client, &identity.name).await?;
    Ok(found.map(|it| it.metadata))
}

/// Deletes the object if it is still what `latest` says, as far as that matters, and while its owners are as `why` says.
pub(super) async fn delete(
    client: &Client,
    place: &Place,
    identity: &Identity,
    latest: &Latest,
    policy: Policy,
    why: &Justified,
) -> Result<(), Error> {
    let collection = place.collection(&identity.namespace);
    let mut resource_version = latest.resource_version.clone();
    for _ in 0..MOST_ATTEMPTS {
        let exactly =
            Exactly { uid: &latest.uid, resource_version: &resource_version, policy: policy.name() };
        match collection.delete(client, &identity.name, exactly, why).await {
            Err(error) if error.proves_absent(&identity.name) => return Ok(()),
            Err(error) if error.is_unjustified() => return Err(error),
            Err(error) if error.is(409) => match get(client, place, identity).await? {
                None => return Ok(()),
                Some(now) if is_same(&now, latest) && now.resource_version != resource_version => {
                    resource_version = now.resource_version;
                }
                Some(_) => return Err(error),
            },
            outcome => return outcome,
        }
    }
    Err(Error::Unknown(format!("{} {} changes all the time", identity.kind, identity.name)))
}

/// Whether a decision about one state holds for the other.
fn is_same(now: &Latest, then: &Latest) -> bool {
    now.uid == then.uid && now.owner_references == then.owner_references && now.finalizers == then.finalizers
}

/// Takes some owner references away.
pub(super) async fn release(
    client: &Client,
    place: &Place,
    namespace: &str,
    latest: &Latest,
    is_lost: impl Fn(&Owner) -> bool,
    why: &Justified,
) -> Result<(), Error> {
    let kept: Vec<&Value> = latest.references().iter().filter(|it| !is_lost(&owner(it))).collect();
    patch(client, place, namespace, latest, "ownerReferences", json!(kept), why).await
}

/// No owner need wait for this object any more.
pub(super) async fn unblock(
    client: &Client,
    place: &Place,
    namespace: &str,
    latest: &Latest,
    why: &Justified,
) -> Result<(), Error> {
    let mut references = latest.references().to_vec();
    for reference in &mut references {
        if owner(reference).is_blocking {
            reference["blockOwnerDeletion"] = json!(false);
        }
    }
    patch(client, place, namespace, latest, "ownerReferences", json!(references), why).await
}

/// The garbage collector's part is done; the object goes if nobody else holds it.
pub(super) async fn finish(
    client: &Client,
    place: &Place,
    namespace: &str,
    latest: &Latest,
    finalizer: &str,
    why: &Justified,
) -> Result<(), Error> {
    let kept: Vec<&String> = latest.finalizers.iter().flatten().filter(|it| *it != finalizer).collect();
    patch(client, place, namespace, latest, "finalizers", json!(kept), why).await
}

async fn patch(
    client: &Client,
    place: &Place,
    namespace: &str,
    latest: &Latest,
    field: &str,
    value: Value,
    why: &Justified,
) -> Result<(), Error> {
    let Latest { uid, resource_version, name, .. } = latest;
    let patch = json!({"metadata": {"uid": uid, "resourceVersion": resource_version, field: value}});
    match place.collection(namespace).patch(client, name, &patch, why).await {
        Err(error) if error.proves_absent(name) => Ok(()),
        outcome => outcome,
    }
}
