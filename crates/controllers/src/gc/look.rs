//! One look at one object: asks the server what is there, and does what follows.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, TryStreamExt, stream};
use meta::{Fact, GroupResource, grounds};
use tracing::{debug, info};

use super::Shared;
use super::act::{self, FOREGROUND, Latest, ORPHAN, Slim};
use super::graph::{Abandoned, Identity, Life, Owner, Site, Text, View};
use super::kinds::{Kinds, Place};
use super::plan::{self, Item, Plan, Policy, Standing};
use crate::api::Exactly;
use crate::discovery::{self, Undiscovered};
use crate::error::Error;
use crate::work::Next;

/// Until the next look at something of a kind that nobody serves: it may come back.
const UNSERVED: Duration = Duration::from_secs(30);
/// Until the next look at an object that is there, but that no watch has shown.
const UNSEEN: Duration = Duration::from_secs(30);
/// Lists of one orphaning that run at the same time.
const LISTS_AT_ONCE: usize = 4;

pub(super) async fn look(shared: Arc<Shared>, uid: String) -> Result<Next, Error> {
    let Some(view) = shared.graph().view(&uid) else { return Ok(Next::OnChange) };
    if view.life == Life::Going {
        return Ok(Next::OnChange);
    }
    let kinds = shared.kinds()?;
    let Some(place) = kinds.place(&view.identity.api_version, &view.identity.kind) else {
        if shared.ctx.proves && view.is_virtual && view.seen_in.is_some() {
            let actions = shared.graph().named_by(&uid);
            shared.take_up(actions);
        }
        return Ok(Next::After(UNSERVED));
    };
    let Some(identity) = located(&view.identity, place) else { return Ok(Next::OnChange) };
    let abandoned = shared.graph().abandoned(&uid);
    if let Some(abandoned) = abandoned
        && delete_as_seen(&shared, place, &identity, abandoned).await?
    {
        return Ok(Next::OnChange);
    }
    let found = act::get(&shared.ctx.client, place, &identity).await?;
    let Some(latest) = found.filter(|it| *it.uid == *uid) else {
        let actions = shared.graph().absent(&identity, &place.resource());
        shared.take_up(actions);
        return Ok(Next::OnChange);
    };
    let look =
        Look { shared: &shared, kinds: &kinds, place, view: &view, identity: &identity, latest: &latest };
    let next = match latest.life() {
        Life::Going => Next::OnChange,
        Life::Orphaning => look.orphan().await?,
        Life::GoingLast => look.finish().await?,
        Life::Staying => look.settle().await?,
    };
    match next {
        Next::OnChange if view.is_virtual => Ok(Next::After(UNSEEN)),
        next => Ok(next),
    }
}

/// Where to ask for an object. `None` for one that would need a namespace and has none: only an object outside of
/// namespaces can name such an owner, and that is not allowed to mean anything.
fn located(identity: &Identity, place: &Place) -> Option<Identity> {
    match (place.is_namespaced, identity.namespace.is_empty()) {
        (true, true) => None,
        (true, false) => Some(identity.clone()),
        (false, _) => Some(Identity { namespace: Text::default(), ..identity.clone() }),
    }
}

/// Where the object of this identity is, in this resource.
fn place_of(identity: &Identity, resource: &GroupResource) -> grounds::Place {
    grounds::Place {
        group: resource.group.to_string(),
        resource: resource.resource.to_string(),
        namespace: identity.namespace.to_string(),
        name: identity.name.to_string(),
    }
}

/// The fact that an owner is not there; the server is to check that.
fn gone(owner: &Identity, site: &Site) -> Fact {
    // Where only its kind led to the resource, the resource must still be of that kind.
    let kind = (!site.was_seen).then(|| owner.kind.to_string());
    Fact::Gone { object: place_of(owner, &site.resource), uid: owner.uid.to_string(), kind }
}

/// An owner that was not found.
fn dangling(owner: Identity, site: &Site) -> Found {
    let fact = gone(&owner, site);
    Found::Owner(Standing::Dangling, Some(Box::new(Proof { owner, fact })))
}

/// Deletes an object in exactly the state that a watch has shown, without asking for it first. `false` if that is not its
/// state any more, or an owner may be there after all: then a look tells more.
async fn delete_as_seen(
    shared: &Shared,
    place: &Place,
    identity: &Identity,
    abandoned: Abandoned,
) -> Result<bool, Error> {
    let Abandoned { resource_version, owners } = abandoned;
    if owners.len() > MOST_OWNERS {
        return Ok(false);
    }
    let why = shared.ctx.because(owners.iter().map(|(owner, site)| gone(owner, site)));
    let resource_version = resource_version.to_string();
    let policy = Policy::Background.name();
    let exactly = Exactly { uid: &identity.uid, resource_version: &resource_version, policy };
    let collection = place.collection(&identity.namespace);
    match collection.delete(&shared.ctx.client, &identity.name, exactly, &why).await {
        Ok(()) => {
            info!(kind = %identity.kind, namespace = %identity.namespace, name = %identity.name, policy, "an object without owners is deleted");
            Ok(true)
        }
        Err(error) if error.is(409) || error.proves_absent(&identity.name) => Ok(false),
        Err(error) => Err(error),
    }
}

struct Look<'a> {
    shared: &'a Shared,
    kinds: &'a Kinds,
    place: &'a Place,
    view: &'a View,
    identity: &'a Identity,
    latest: &'a Latest,
}

/// The most owners whose standing one request can rest on, beside the term of the leader.
const MOST_OWNERS: usize = grounds::MAX_FACTS - 1;

/// An owner, and what proves how it stands. The owner that it names is looked for again if that turns out to be wrong.
struct Proof {
    owner: Identity,
    fact: Fact,
}

/// How an owner was found.
enum Found {
    Owner(Standing, Option<Box<Proof>>),
    /// Nobody serves its kind: that proves nothing.
    Unserved,
    /// An object outside of namespaces names an owner inside one.
    Impossible,
}

impl Look<'_> {
    /// The object stays if one of its owners does.
    async fn settle(&self) -> Result<Next, Error> {
        let owners = self.latest.owners();
        if owners.is_empty() {
            return Ok(Next::OnChange);
        }
        let mut standings = Vec::with_capacity(owners.len());
        let mut proofs = Vec::new();
        for owner in &owners {
            match self.find(owner).await? {
                Found::Owner(standing, proof) => {
                    standings.push((owner.uid.clone(), standing));
                    proofs.extend(proof.map(|it| *it));
                }
                Found::Unserved => return Ok(Next::After(UNSERVED)),
                Found::Impossible => return Ok(Next::OnChange),
            }
        }
        let item = Item {
            has_dependents: self.view.has_dependents,
            has_dependent_going_last: self.view.has_dependent_going_last,
            has_orphan_finalizer: self.latest.has_finalizer(ORPHAN),
            has_foreground_finalizer: self.latest.has_finalizer(FOREGROUND),
        };
        let outcome = self.carry_out(plan::plan(item, &standings), &proofs).await;
        if outcome.as_ref().is_err_and(Error::is_unjustified) {
            // What was thought of the owners is wrong, or the lease is lost.
            let mut graph = self.shared.graph();
            let actions = proofs.iter().flat_map(|it| graph.doubt_absent(&it.owner)).collect();
            drop(graph);
            self.shared.take_up(actions);
        }
        outcome
    }

    async fn carry_out(&self, plan: Plan, proofs: &[Proof]) -> Result<Next, Error> {
        let Self { shared, place, identity, latest, .. } = self;
        let (ctx, client) = (&shared.ctx, &shared.ctx.client);
        let because = |proofs: &[&Proof]| ctx.because(proofs.iter().map(|it| it.fact.clone()));
        let some: Vec<&Proof> = proofs.iter().take(MOST_OWNERS).collect();
        match plan {
            Plan::Keep => {}
            Plan::Delete { .. } if proofs.len() > MOST_OWNERS => {
                // One request cannot prove so much: some owners are forgotten first.
                let is_lost = |it: &Owner| some.iter().any(|proof| proof.owner.uid == it.uid);
                act::release(client, place, &identity.namespace, latest, is_lost, &because(&some)).await?;
                return Ok(Next::After(Duration::ZERO));
            }
            Plan::Release(lost) => {
                debug!(kind = %identity.kind, namespace = %identity.namespace, name = %identity.name, "lost owners are forgotten");
                let all = proofs.iter().filter(|it| lost.contains(&it.owner.uid));
                let some: Vec<&Proof> = all.take(MOST_OWNERS).collect();
                let is_lost = |it: &Owner| some.iter().any(|proof| proof.owner.uid == it.uid);
                act::release(client, place, &identity.namespace, latest, is_lost, &because(&some)).await?;
                if some.len() < lost.len() {
                    return Ok(Next::After(Duration::ZERO));
                }
            }
            Plan::Delete { unblock: true, .. } if latest.owners().iter().any(|it| it.is_blocking) => {
                act::unblock(client, place, &identity.namespace, latest, &because(&some)).await?;
                // The object has changed; what it is now decides.
                return Ok(Next::After(Duration::ZERO));
            }
            Plan::Delete { policy, .. } => {
                info!(kind = %identity.kind, namespace = %identity.namespace, name = %identity.name, policy = policy.name(), "an object without owners is deleted");
                act::delete(client, place, identity, latest, policy, &because(&some)).await?;
            }
        }
        Ok(Next::OnChange)
    }

    async fn find(&self, owner: &Owner) -> Result<Found, Error> {
        let own_namespace = &self.identity.namespace;
        if let Some((owner, site)) = self.shared.graph().absent_owner(owner, own_namespace) {
            return Ok(dangling(owner, &site));
        }
        let Some(place) = self.kinds.place(&owner.api_version, &owner.kind) else {
            // Nobody can be asked, but the server can check where the owner was.
            let seen = self.shared.graph().seen_in(owner).filter(|_| self.shared.ctx.proves);
            return Ok(seen.map_or(Found::Unserved, |(identity, resource)| {
                dangling(identity, &Site { resource, was_seen: true })
            }));
        };
        let Some(identity) = located(&owner.identity(own_namespace.clone()), place) else {
            return Ok(Found::Impossible);
        };
        let found = act::get(&self.shared.ctx.client, place, &identity).await?;
        Ok(match found.filter(|it| *it.uid == *owner.uid) {
            None => {
                let mut graph = self.shared.graph();
                let resource = place.resource();
                let was_seen = graph.seen_in(owner).is_some_and(|(_, it)| *it == resource);
                let site = Site { resource: Arc::new(resource), was_seen };
                graph.note_absent(identity.clone(), site.clone());
                dangling(identity, &site)
            }
            Some(it) if it.life() == Life::GoingLast => {
                let object = place_of(&identity, &place.resource());
                let uid = identity.uid.to_string();
                let fact = Fact::Deleting { object, uid, finalizer: FOREGROUND.to_owned() };
                Found::Owner(Standing::Waiting, Some(Box::new(Proof { owner: identity, fact })))
            }
            Some(_) => Found::Owner(Standing::Solid, None),
        })
    }

    /// Foreground: the object goes when nothing blocks it any more.
    async fn finish(&self) -> Result<Next, Error> {
        let Self { shared, place, identity, latest, view, .. } = self;
        let client = &shared.ctx.client;
        if view.life == Life::Staying && !view.is_virtual {
            // Its watch is behind and leads to another look. Until then two that block one another would call for each
            // other without end, because neither knows that the other one goes, too.
            return Ok(Next::OnChange);
        }
        if !shared.graph().is_complete() {
            return Err(Error::Unknown(
                "not everything that could be a dependent has been seen yet".to_owned(),
            ));
        }
        let why = shared.ctx.because([]);
        if view.blocking.is_empty() {
            act::finish(client, place, &identity.namespace, latest, FOREGROUND, &why).await?;
            return Ok(Next::OnChange);
        }
        if shared.graph().is_in_waiting_circle(&identity.uid)
            && latest.owners().iter().any(|it| it.is_blocking)
        {
            act::unblock(client, place, &identity.namespace, latest, &why).await?;
            return Ok(Next::OnChange);
        }
        for uid in &view.blocking {
            if shared.graph().view(uid).is_some_and(|it| it.life == Life::Staying) {
                shared.queue.push(uid.clone());
            }
        }
        Ok(Next::OnChange)
    }

    /// Orphan: every dependent that there is now forgets this owner, then it goes. They are listed and not taken from
    /// the graph: one that a watch has yet to show would be deleted later. Discovery is asked afresh for the same reason:
    /// a server may have joined a moment ago with kinds of its own. What it leaves out now and had before is listed, too, and
    /// if that fails the owner waits.
    async fn orphan(&self) -> Result<Next, Error> {
        let Self { shared, place, identity, latest, .. } = self;
        let client = &shared.ctx.client;
        let unknown = |it: Undiscovered| Error::Unknown(it.into_text());
        let fresh = Kinds::of(discovery::discover(client).await.map_err(unknown)?);
        let mut places: Vec<Place> = self.kinds.places_of_dependents(place.is_namespaced).collect();
        let known = places.clone();
        places.extend(fresh.places_of_dependents(place.is_namespaced).filter(|it| !known.contains(it)));
        let lists = stream::iter(places.into_iter().map(|it| self.release_in(it)));
        lists.buffer_unordered(LISTS_AT_ONCE).try_collect::<()>().await?;
        act::finish(client, place, &identity.namespace, latest, ORPHAN, &shared.ctx.because([])).await?;
        Ok(Next::OnChange)
    }

    /// The fact that the object goes and leaves its dependents behind.
    fn is_orphaning(&self) -> Fact {
        let object = place_of(self.identity, &self.place.resource());
        Fact::Deleting { object, uid: self.identity.uid.to_string(), finalizer: ORPHAN.to_owned() }
    }

    async fn release_in(&self, place: Place) -> Result<(), Error> {
        let client = &self.shared.ctx.client;
        let collection = place.collection(&self.identity.namespace);
        let mut token = None;
        loop {
            let (items, next) = collection.list_metadata::<Slim>(client, token.as_deref()).await?.open();
            token = next;
            for Slim { metadata } in items {
                let is_owner = |it: &Owner| it.uid == self.identity.uid;
                if metadata.owners().iter().any(is_owner) {
                    let namespace = metadata.namespace.as_deref().unwrap_or_default();
                    let why = self.shared.ctx.because([self.is_orphaning()]);
                    act::release(client, &place, namespace, &metadata, is_owner, &why).await?;
                }
            }
            if token.is_none() {
                return Ok(());
            }
        }
    }
}
