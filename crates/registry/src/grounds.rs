//! Turns the facts that justify a write into requirements of its store transaction.
//!
//! **Flow.** Each fact is looked up in the cache, which says at which revision it holds; the transaction requires that
//! revision. If the store refuses because the object has changed, it says how the object is now, and the fact is judged
//! again on that: it holds, at a newer revision, or the write is refused. So a fact costs no round trip of its own.
//!
//! **Guarantees.** A write with grounds commits only at a revision at which every fact holds. Neither a clock nor a
//! lease, a cache or discovery is part of the argument: what they say only decides what is tried.
//!
//! Decision 0034. Deliberately not here: which facts justify what; whoever removes something says so ([`Grounds`]).

use std::sync::Arc;

use bytes::Bytes;
use cache::Item;
use meta::{
    Cause, GroupResource, RetryAfter, Status,
    grounds::{Fact, Grounds, Place, REASON},
};
use serde::Deserialize;
use store::{Entry, Key, Require, Revision, Store};

use crate::{
    Basis, Registry, Target, WriteOptions,
    custom::{custom_prefix, definition_key},
    outcome,
};

/// Facts, each with the state in which it was last seen to hold.
#[derive(Clone, Default)]
pub(crate) struct Settled(Vec<Ground>);

/// One fact as a requirement.
#[derive(Clone)]
struct Ground {
    claim: Claim,
    require: Require,
}

/// What must hold of one key.
#[derive(Clone)]
enum Claim {
    /// A controller says so.
    Fact(Fact),
    /// The definition gives its resource this kind.
    Names { definition: String, kind: String, is_namespaced: bool },
    /// The namespace is this one and stays.
    Stays { target: Arc<Target>, uid: String },
    /// The object is as it was when something was decided on it.
    AsRead(Place),
}

/// The state of an object, as far as facts are about it.
#[derive(Debug)]
struct Found {
    revision: Revision,
    uid: String,
    is_deleting: bool,
    text: Bytes,
}

impl Settled {
    /// These facts and others.
    #[must_use]
    pub(crate) fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// What the transaction must require, in the order in which [`Settled::judge_again`] counts them.
    pub(crate) fn requirements(&self) -> impl Iterator<Item = Require> + '_ {
        self.0.iter().map(|it| it.require.clone())
    }

    /// After a requirement was not met: whether its fact holds all the same for what the store has now.
    pub(crate) fn judge_again(&mut self, position: usize, now: Option<&Entry>) -> Result<(), Status> {
        let ground = self.0.get_mut(position).ok_or_else(|| Status::internal("an unknown requirement"))?;
        let found = now.map(Found::of_entry).transpose()?;
        ground.require = ground.claim.judge(ground.require.key(), found.as_ref())?;
        Ok(())
    }
}

impl Registry {
    /// The facts as requirements of a transaction; 409 if one does not hold.
    pub(crate) async fn settle(&self, grounds: &Grounds) -> Result<Settled, Status> {
        let mut settled = Settled::default();
        for fact in grounds.facts() {
            let place = fact.place();
            if let Fact::Gone { kind: Some(kind), .. } = fact {
                self.settle_kind(&place, kind, &mut settled).await?;
            }
            let key = self.key_of(&place)?;
            settled.0.push(self.ground(Claim::Fact(fact.clone()), key, &place).await?);
        }
        Ok(settled)
    }

    /// The requirement that everything is as it was when the write was found to be justified.
    pub(crate) fn rests_on(&self, options: &WriteOptions<'_>) -> Result<Settled, Status> {
        let basis = options.admit.basis().into_iter();
        let ground = |it: Basis| {
            let require = Require::At(self.key_of(&it.place)?, it.revision);
            Ok(Ground { claim: Claim::AsRead(it.place), require })
        };
        basis.map(ground).collect::<Result<_, Status>>().map(Settled)
    }

    /// The requirement that the namespace of a new object is there and stays.
    pub(crate) fn namespace_stays(&self, target: &Target, namespace: &Item) -> Settled {
        let require = Require::At(namespace.key().clone(), namespace.revision());
        let uid = namespace.uid().to_owned();
        Settled(vec![Ground { claim: Claim::Stays { target: Arc::new(target.clone()), uid }, require }])
    }

    /// A resource that was never seen to have an object must at least have its kind.
    async fn settle_kind(&self, place: &Place, kind: &str, settled: &mut Settled) -> Result<(), Status> {
        let resource = GroupResource::new(place.group.as_str(), place.resource.as_str());
        if let Some(built_in) = catalog::built_in(&place.group, &place.resource) {
            let is_it = built_in.kind == kind && built_in.is_namespaced != place.namespace.is_empty();
            return if is_it {
                Ok(())
            } else {
                Err(unmet(place, &format!("{resource} is not of kind {kind}")))
            };
        }
        let definition = resource.to_string();
        let (kind, is_namespaced) = (kind.to_owned(), !place.namespace.is_empty());
        let claim = Claim::Names { definition: definition.clone(), kind, is_namespaced };
        let definitions = crate::custom::definitions();
        let at = Place {
            group: definitions.group.to_string(),
            resource: definitions.resource.to_string(),
            namespace: String::new(),
            name: definition,
        };
        settled.0.push(self.ground(claim, definition_key(&resource), &at).await?);
        Ok(())
    }

    async fn ground(&self, claim: Claim, key: Key, place: &Place) -> Result<Ground, Status> {
        let resource = GroupResource::new(place.group.as_str(), place.resource.as_str());
        let kind = self.kinds.get(&resource);
        if let Some(collection) = kind.as_ref().and_then(|it| it.collection())
            && let Ok(cached) = collection.get(key.as_str())
            && let Ok(require) = claim.judge(&key, cached.as_deref().map(Found::of_item).as_ref())
        {
            return Ok(Ground { claim, require });
        }
        // The cache may be behind; only what the store says now can refuse.
        let now = self.store.get(&key).await.map_err(|it| outcome::read_failed(&it))?;
        let found = now.as_ref().map(Found::of_entry).transpose()?;
        let require = claim.judge(&key, found.as_ref())?;
        Ok(Ground { claim, require })
    }

    /// Where an object is stored, also one of a resource whose definition is gone. The scope is that of the place: a
    /// definition may have been made anew with another.
    fn key_of(&self, place: &Place) -> Result<Key, Status> {
        let resource = GroupResource::new(place.group.as_str(), place.resource.as_str());
        let known = self.kinds.get(&resource).and_then(|it| it.definition.key_prefix.clone());
        let built_in = catalog::built_in(&place.group, &place.resource);
        let prefix = match (known, built_in) {
            (Some(prefix), _) => prefix.to_string(),
            // Another release serves it.
            (None, Some(built_in)) => built_in.key_prefix.unwrap_or_default().to_owned(),
            (None, None) if !self.kinds.is_of_user(&resource) => {
                let why =
                    format!("this server does not know {resource} and cannot tell where its objects are");
                return Err(Status::unavailable(why, RetryAfter::not_begun(1)));
            }
            (None, None) => custom_prefix(&resource),
        };
        let separator = if place.namespace.is_empty() { "" } else { "/" };
        Ok(Key::new(format!("{prefix}{}{separator}{}", place.namespace, place.name)))
    }
}

impl Claim {
    /// What proves the claim for an object in this state; 409 if it does not hold.
    fn judge(&self, key: &Key, found: Option<&Found>) -> Result<Require, Status> {
        match self {
            Self::Fact(fact) => judge_fact(fact, key, found),
            Self::Names { definition, kind, is_namespaced } => match found {
                Some(found) if found.head()?.names_kind(kind, *is_namespaced) => Ok(found.require(key)),
                _ => Err(conflict(
                    &crate::custom::definitions(),
                    definition,
                    &format!("the definition does not define kind {kind}"),
                )),
            },
            Self::Stays { target, uid } => match found {
                Some(found) if found.is_deleting => Err(crate::write::namespace::terminating(target)),
                Some(found) if found.uid == *uid => Ok(found.require(key)),
                Some(_) => Err(crate::write::namespace::replaced(target)),
                None => Err(crate::write::namespace::missing(target)),
            },
            // Whatever it is now, the decision has to be made again.
            Self::AsRead(place) => Err(outdated(place)),
        }
    }
}

fn judge_fact(fact: &Fact, key: &Key, found: Option<&Found>) -> Result<Require, Status> {
    match (fact, found) {
        (Fact::Deleting { object, uid, finalizer }, found) => match found {
            Some(found) if found.uid == *uid && found.is_deleting && found.head()?.waits_for(finalizer) => {
                Ok(found.require(key))
            }
            _ => Err(unmet(
                object,
                &format!("uid {uid} is not being deleted, or does not wait for {finalizer}"),
            )),
        },
        (Fact::Gone { .. }, None) => Ok(Require::Absent(key.clone())),
        (Fact::Gone { uid, .. }, Some(found)) if !uid.is_empty() && found.uid != *uid => {
            Ok(found.require(key))
        }
        (Fact::Gone { object, uid, .. }, Some(_)) => Err(unmet(object, &format!("uid {uid} is still there"))),
        (Fact::Leads { holder, transitions, .. }, Some(found))
            if found.head()?.is_held_by(holder, *transitions) =>
        {
            Ok(found.require(key))
        }
        (Fact::Leads { holder, .. }, _) => {
            Err(unmet(&fact.place(), &format!("{holder} does not hold it any more")))
        }
    }
}

/// The cause in a 409 by which a caller recognises that it must decide again.
const OUTDATED: &str = "DecisionOutdated";

/// 409: something was decided on an object that has changed since.
fn outdated(place: &Place) -> Status {
    let resource = GroupResource::new(place.group.as_str(), place.resource.as_str());
    let why = "the object, on which the decision about this request rests, has been modified";
    let mut status = Status::conflict(&resource, &place.name, why);
    let details = status.details.get_or_insert_default();
    details.causes.push(Cause { reason: OUTDATED.to_owned(), message: why.to_owned(), field: String::new() });
    status
}

/// Whether a write was refused only because what admission had decided on has changed. It may be tried again.
pub fn is_outdated(status: &Status) -> bool {
    status.details.as_ref().is_some_and(|it| it.causes.iter().any(|it| it.reason == OUTDATED))
}

/// 409: what justified the write does not hold.
fn unmet(place: &Place, why: &str) -> Status {
    conflict(&GroupResource::new(place.group.as_str(), place.resource.as_str()), &place.name, why)
}

fn conflict(resource: &GroupResource, name: &str, why: &str) -> Status {
    let mut status =
        Status::conflict(resource, name, &format!("the write rests on a fact that does not hold: {why}"));
    let details = status.details.get_or_insert_default();
    details.causes.push(Cause { reason: REASON.to_owned(), message: why.to_owned(), field: String::new() });
    status
}

impl Found {
    fn of_item(item: &Item) -> Self {
        let (uid, is_deleting) = (item.uid().to_owned(), item.is_deleting());
        Self { revision: item.revision(), uid, is_deleting, text: item.text().clone() }
    }

    fn of_entry(entry: &Entry) -> Result<Self, Status> {
        let Entry { key, value, modified, .. } = entry;
        let head = Head::read(value).map_err(|why| {
            tracing::warn!(%key, %why, "a value that a write depends on cannot be read");
            Status::internal(format!("the object at {key}, on which the write rests, cannot be read"))
        })?;
        let is_deleting = head.metadata.deletion_timestamp.is_some();
        Ok(Self { revision: *modified, uid: head.metadata.uid, is_deleting, text: value.clone() })
    }

    fn require(&self, key: &Key) -> Require {
        Require::At(key.clone(), self.revision)
    }

    fn head(&self) -> Result<Head, Status> {
        Head::read(&self.text).map_err(Status::internal)
    }
}

/// The few fields that facts are about.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Head {
    metadata: Metadata,
    spec: Spec,
    status: HeadStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    uid: String,
    deletion_timestamp: Option<String>,
    finalizers: Option<Vec<String>>,
}

/// Fields of namespaces, Leases and definitions.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    finalizers: Option<Vec<String>>,
    holder_identity: Option<String>,
    lease_transitions: Option<i64>,
    names: Option<Names>,
    scope: Option<String>,
}

/// Fields of definitions.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct HeadStatus {
    accepted_names: Option<Names>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Names {
    kind: String,
}

impl Head {
    fn read(text: &[u8]) -> Result<Self, serde_json::Error> {
        // The spec of other kinds may have fields of these names with values of other types.
        #[derive(Deserialize)]
        struct OnlyMetadata {
            #[serde(default)]
            metadata: Metadata,
        }
        serde_json::from_slice(text).or_else(|_| {
            let OnlyMetadata { metadata } = serde_json::from_slice(text)?;
            Ok(Self { metadata, ..Self::default() })
        })
    }

    fn waits_for(&self, finalizer: &str) -> bool {
        let own = self.metadata.finalizers.iter().flatten();
        own.chain(self.spec.finalizers.iter().flatten()).any(|it| it == finalizer)
    }

    fn is_held_by(&self, holder: &str, transitions: i64) -> bool {
        self.spec.holder_identity.as_deref() == Some(holder)
            && self.spec.lease_transitions.unwrap_or_default() == transitions
    }

    fn names_kind(&self, kind: &str, is_namespaced: bool) -> bool {
        let scope = if is_namespaced { "Namespaced" } else { "Cluster" };
        // The names that were asked for may be another definition's.
        let is_accepted = self.status.accepted_names.as_ref().is_some_and(|it| it.kind == kind);
        self.spec.scope.as_deref() == Some(scope)
            && self.spec.names.as_ref().is_some_and(|it| it.kind == kind)
            && is_accepted
    }
}

#[cfg(test)]
mod tests;
