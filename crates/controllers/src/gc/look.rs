//! One look at one object: asks the server what is there, and does what follows.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, TryStreamExt, stream};
use tracing::{debug, info};

use super::Shared;
use super::act::{self, FOREGROUND, Latest, ORPHAN, Slim};
use super::graph::{Identity, Life, Owner, Text, View};
use super::kinds::{Kinds, Place};
use super::plan::{self, Item, Plan, Standing};
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
        return Ok(Next::After(UNSERVED));
    };
    let Some(identity) = located(&view.identity, place) else { return Ok(Next::OnChange) };
    let found = act::get(&shared.ctx.client, place, &identity).await?;
    let Some(latest) = found.filter(|it| *it.uid == *uid) else {
        let actions = shared.graph().absent(&identity);
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

struct Look<'a> {
    shared: &'a Shared,
    kinds: &'a Kinds,
    place: &'a Place,
    view: &'a View,
    identity: &'a Identity,
    latest: &'a Latest,
}

/// How an owner was found.
enum Found {
    Owner(Standing),
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
        for owner in &owners {
            match self.find(owner).await? {
                Found::Owner(standing) => standings.push((owner.uid.clone(), standing)),
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
        self.carry_out(plan::plan(item, &standings)).await
    }

    async fn carry_out(&self, plan: Plan) -> Result<Next, Error> {
        let Self { shared, place, identity, latest, .. } = self;
        let client = &shared.ctx.client;
        match plan {
            Plan::Keep => {}
            Plan::Release(lost) => {
                debug!(kind = %identity.kind, namespace = %identity.namespace, name = %identity.name, "lost owners are forgotten");
                act::release(client, place, &identity.namespace, latest, |it| lost.contains(&it.uid)).await?;
            }
            Plan::Delete { unblock: true, .. } if latest.owners().iter().any(|it| it.is_blocking) => {
                act::unblock(client, place, &identity.namespace, latest).await?;
                // The object has changed; what it is now decides.
                return Ok(Next::After(Duration::ZERO));
            }
            Plan::Delete { policy, .. } => {
                info!(kind = %identity.kind, namespace = %identity.namespace, name = %identity.name, policy = policy.name(), "an object without owners is deleted");
                act::delete(client, place, identity, latest, policy).await?;
            }
        }
        Ok(Next::OnChange)
    }

    async fn find(&self, owner: &Owner) -> Result<Found, Error> {
        let named = |namespace: Text| Identity {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            namespace,
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        };
        let own_namespace = &self.identity.namespace;
        {
            let graph = self.shared.graph();
            if graph.is_known_absent(&named(Text::default()))
                || graph.is_known_absent(&named(own_namespace.clone()))
            {
                return Ok(Found::Owner(Standing::Dangling));
            }
        }
        let Some(place) = self.kinds.place(&owner.api_version, &owner.kind) else {
            return Ok(Found::Unserved);
        };
        let Some(identity) = located(&named(own_namespace.clone()), place) else {
            return Ok(Found::Impossible);
        };
        let found = act::get(&self.shared.ctx.client, place, &identity).await?;
        let standing = match found.filter(|it| *it.uid == *owner.uid) {
            None => {
                self.shared.graph().note_absent(identity);
                Standing::Dangling
            }
            Some(it) if it.life() == Life::GoingLast => Standing::Waiting,
            Some(_) => Standing::Solid,
        };
        Ok(Found::Owner(standing))
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
        if view.blocking.is_empty() {
            act::finish(client, place, &identity.namespace, latest, FOREGROUND).await?;
            return Ok(Next::OnChange);
        }
        if shared.graph().is_in_waiting_circle(&identity.uid)
            && latest.owners().iter().any(|it| it.is_blocking)
        {
            act::unblock(client, place, &identity.namespace, latest).await?;
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
        act::finish(client, place, &identity.namespace, latest, ORPHAN).await?;
        Ok(Next::OnChange)
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
                    act::release(client, &place, namespace, &metadata, is_owner).await?;
                }
            }
            if token.is_none() {
                return Ok(());
            }
        }
    }
}
