//! Follows stored definitions: decides on their names, opens and closes collections, and cleans up after a deletion.
//!
//! **Flow.** One task sees every change of every definition in order. What a definition should look like is decided
//! there, one after the other, so that two of them cannot get the same name; what that takes (opening a collection,
//! writing a status, deleting objects) runs beside it, bounded in number.
//!
//! **Guarantees.** A resource can be used by the time its definition is Established: its kind is in the table before
//! that is written. A definition goes only after the last of its objects.

use std::{collections::HashSet, sync::Arc, time::Duration};

use cache::{Item, Step, Watcher};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use meta::{Fact, Grounds, GroupResource, GroupVersion, Status, Value, grounds::Place};
use schema::check::FieldValidation;
use serde_json::json;
use store::Store;

use super::{
    Custom,
    definition::{Crd, Names},
    definitions,
    names::{Accepted, Decision, condition},
    prepare::{self, CLEANUP},
};
use crate::{
    Anything, DeleteOptions, Kind, ListOptions, Registry, Target, WriteOptions, outcome, write::Setback,
};

/// Who writes the status of definitions, as upstream.
const MANAGER: &str = "kube-apiserver";

/// How many definitions are worked on at the same time.
const MAX_WORK: usize = 64;

/// The pause after something failed, and between looks at objects that are held by finalizers.
const RETRY: Duration = Duration::from_millis(200);

/// The pause between looks for objects with leases that they should not have. Such a lease lasts for an hour.
const LOOK_FOR_LEASES: Duration = Duration::from_secs(600);

/// How long a start waits for the objects of all definitions, before it goes on without those that are not loaded.
const START_PATIENCE: Duration = Duration::from_secs(2);

/// The task. Made by [`Registry::load_definitions`], which has taken over everything that was stored then.
pub struct Follower {
    registry: Arc<Registry>,
    accepted: Accepted,
    watcher: Option<Watcher>,
    work: FuturesUnordered<BoxFuture<'static, Done>>,
    /// What waits for objects to go, which may take for ever; it is not counted.
    endings: FuturesUnordered<BoxFuture<'static, Done>>,
    /// The uids of definitions whose objects are being deleted. Not their names: a definition may be freed by force and
    /// made anew while the objects of the old one are worked on.
    ending: HashSet<String>,
    /// Definitions, by uid, whose objects were freed of leases that they should not have, or are being.
    freed: HashSet<String>,
}

enum Done {
    Written,
    /// Try again with whatever is there then.
    Failed(String),
    /// The objects of the definition with this uid are no longer deleted; `again` names it if that is to be tried anew.
    Ended {
        uid: String,
        again: Option<String>,
    },
}

/// 409: a definition was deleted and made anew while an object of it was written. The new one may be somebody else's.
fn replaced(definition: &Item) -> Status {
    let why = "the definition was deleted and created again while an object of it was written";
    Status::conflict(&definitions(), definition.name(), why)
}

impl Registry {
    /// Takes over all definitions that are stored, so that their objects can be asked for. Large collections may still be
    /// loaded when it returns; [`Registry::loading_definitions`] names them.
    pub async fn load_definitions(self: &Arc<Self>) -> Result<Follower, Status> {
        let mut follower = Follower {
            registry: Arc::clone(self),
            accepted: Accepted::default(),
            watcher: None,
            work: FuturesUnordered::new(),
            endings: FuturesUnordered::new(),
            ending: HashSet::new(),
            freed: HashSet::new(),
        };
        let established = follower.start()?;
        let loaded = established.iter().map(|it| self.installer.install(it));
        let loaded = futures_util::future::join_all(loaded);
        tokio::select! {
            _ = loaded => {}
            () = self.clock.sleep(START_PATIENCE) => {}
        }
        Ok(follower)
    }

    /// The kind of a custom resource as its definition is in the store: after a put was refused by its fence. An error if
    /// that is another definition of the same name: what was checked against the one must not be stored under the other.
    pub(crate) async fn renewed(
        &self,
        custom: &Custom,
        resource: &GroupResource,
        entry: Option<&store::Entry>,
    ) -> Result<Arc<Kind>, Status> {
        let Some(entry) = entry else {
            self.kinds.remove(resource, custom.stored.uid(), &self.cache);
            return Err(Status::no_such_resource());
        };
        let definitions = self.installer.definitions()?;
        let item = definitions.parse(entry).map(Arc::new).map_err(Status::internal)?;
        if item.uid() != custom.stored.uid() {
            return Err(replaced(&item));
        }
        self.installer.install_soon(&item).await?.ok_or_else(Status::no_such_resource)
    }

    /// The definitions that were in force when this server started and whose objects are still being loaded.
    pub fn loading_definitions(&self) -> Vec<String> {
        self.installer.awaited()
    }

    fn definition_target(&self, name: &str, subresource: &str) -> Result<Target, Status> {
        Ok(Target {
            kind: self.kinds.get(&definitions()).ok_or_else(Status::no_such_resource)?,
            group_version: GroupVersion::new(super::GROUP, "v1"),
            namespace: String::new(),
            name: name.to_owned(),
            subresource: subresource.to_owned(),
        })
    }

    /// Writes the status of a definition, if it is still as it was.
    pub(crate) async fn write_definition(&self, crd: Value) -> Result<(), Status> {
        let target = self.definition_target(meta::object::name(&crd), "status")?;
        let options = WriteOptions {
            dry_run: false,
            manager: MANAGER,
            field_validation: FieldValidation::Ignore,
            admit: &Anything,
            grounds: &Grounds::asked_for(),
        };
        match self.update(&target, &options, crd).await {
            // Somebody else changed it: the next event tells how it is now.
            Err(status) if matches!(status.code, 404 | 409) => Ok(()),
            other => other.map(|_| ()),
        }
    }
}

impl Follower {
    /// Follows until the server stops.
    pub async fn run(mut self) {
        loop {
            let Some(watcher) = &mut self.watcher else {
                self.registry.clock.sleep(RETRY).await;
                if let Err(status) = self.start() {
                    tracing::warn!(%status, "definitions cannot be followed");
                }
                continue;
            };
            let has_room = self.work.len() < MAX_WORK;
            tokio::select! {
                step = watcher.next(), if has_room => self.step(step),
                Some(done) = self.work.next() => self.done(done),
                Some(done) = self.endings.next() => self.done(done),
            }
        }
    }

    /// Takes over what is there, and goes on from exactly that state. The answer is what is in force.
    fn start(&mut self) -> Result<Vec<Arc<Item>>, Status> {
        let collection = self.registry.installer.definitions()?;
        let prefix = collection.spec().prefix.clone();
        let snapshot = collection.snapshot().map_err(outcome::closed)?;
        // A definition that cannot be decoded defines nothing here; whoever asks for its resource is told so.
        let items: Vec<Arc<Item>> = snapshot.readable(&prefix, None).cloned().collect();
        let mut established = Vec::new();
        for item in &items {
            if let Some(crd) = Crd::read(item) {
                self.accepted.note(&crd.metadata.name, &crd.spec.group, crd.status.accepted_names.clone());
                if crd.has("Established") {
                    self.registry.installer.await_kind(item);
                    established.push(Arc::clone(item));
                }
            }
        }
        self.forget_missing(&items);
        self.watcher = collection.watch(snapshot.revision(), &prefix).ok();
        items.iter().for_each(|it| self.see(it));
        Ok(established)
    }

    /// Kinds whose definitions went while nobody looked.
    fn forget_missing(&mut self, items: &[Arc<Item>]) {
        for kind in self.registry.kinds.custom() {
            let Some(custom) = &kind.custom else { continue };
            // One that cannot be decoded is not one that went.
            let is_there = !matches!(self.registry.installer.definition(custom.stored.key()), Ok(None));
            let is_another = items.iter().any(|it| it.key() == custom.stored.key());
            if items.iter().all(|it| it.uid() != custom.stored.uid()) && (!is_there || is_another) {
                self.gone(custom.stored.name(), custom.stored.uid(), &kind.resource);
            }
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Event(change) => match (&change.before, &change.after) {
                (_, Some(item)) => self.see(item),
                (Some(item), None) => {
                    if let Some(crd) = Crd::read(item) {
                        let resource =
                            GroupResource::new(crd.spec.group.as_str(), crd.spec.names.plural.as_str());
                        self.gone(item.name(), item.uid(), &resource);
                    }
                }
                (None, None) => {}
            },
            Step::Progress(_) => {}
            // What happened to a definition that cannot be decoded is found by looking at all of them.
            Step::Undecodable(..) | Step::Ended(_) => self.watcher = None,
        }
    }

    /// A definition is there, in this state.
    fn see(&mut self, item: &Arc<Item>) {
        let Some(crd) = Crd::read(item) else { return };
        if crd.is_deleting() {
            self.end(item, &crd);
            return;
        }
        self.free(item, &crd);
        let decision = self.accepted.decide(&crd);
        self.accepted.note(&crd.metadata.name, &crd.spec.group, decision.names.clone());
        let is_settled = decision.names == crd.status.accepted_names
            && Some(&decision.conditions) == crd.status.conditions.as_ref();
        let (registry, item) = (Arc::clone(&self.registry), Arc::clone(item));
        self.work.push(async move { settle(&registry, &item, decision, is_settled).await }.boxed());
    }

    /// Frees the objects of a definition of leases that earlier builds gave them. It looks again and again: servers of
    /// those builds may go on beside this one for a while.
    fn free(&mut self, item: &Arc<Item>, crd: &Crd) {
        if crd.spec.names.plural != "events"
            || !crd.has("Established")
            || !self.freed.insert(item.uid().to_owned())
        {
            return;
        }
        let (registry, item) = (Arc::clone(&self.registry), Arc::clone(item));
        let work = async move {
            // Nothing to do if the definition goes meanwhile, which removes its kind.
            let is_there = || {
                let now = registry.installer.definition(item.key()).ok().flatten();
                now.is_some_and(|it| it.uid() == item.uid())
            };
            let mut kind = loop {
                match registry.installer.install(&item).await {
                    Ok(kind) => break kind,
                    Err(_) if is_there() => registry.clock.sleep(RETRY).await,
                    Err(_) => break None,
                }
            };
            while let Some(now) = kind {
                let pause = match registry.free_leased(&now).await {
                    Ok(0) => LOOK_FOR_LEASES,
                    Ok(n_objects) => {
                        tracing::info!(n_objects, definition = item.name(), "objects were freed of a lease");
                        RETRY
                    }
                    Err(status) => {
                        tracing::debug!(%status, definition = item.name(), "objects could not be freed of a lease yet");
                        RETRY
                    }
                };
                registry.clock.sleep(pause).await;
                kind = registry.kinds.get(&now.resource).filter(|it| it.is_defined_like(&now));
            }
            Done::Written
        };
        self.endings.push(work.boxed());
    }

    /// A definition is being deleted: its objects go first.
    fn end(&mut self, item: &Arc<Item>, crd: &Crd) {
        let name = crd.metadata.name.clone();
        let uid = item.uid().to_owned();
        if !crd.metadata.finalizers.iter().any(|it| it == CLEANUP) || !self.ending.insert(uid.clone()) {
            return;
        }
        let (registry, item) = (Arc::clone(&self.registry), Arc::clone(item));
        let is_established = crd.has("Established");
        let work = async move {
            if let Err(status) = finish(&registry, &item, is_established).await {
                tracing::warn!(%status, definition = name, "objects of a deleted definition could not be removed");
                registry.clock.sleep(RETRY).await;
                return Done::Ended { uid, again: Some(name) };
            }
            Done::Ended { uid, again: None }
        };
        self.endings.push(work.boxed());
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Written => {}
            Done::Ended { uid, again } => {
                self.ending.remove(&uid);
                again.iter().for_each(|it| self.look_again(it));
            }
            Done::Failed(name) => self.look_again(&name),
        }
    }

    /// Does what the definition of this name, as it is now, asks for.
    fn look_again(&mut self, name: &str) {
        let Ok(target) = self.registry.definition_target(name, "") else { return };
        if let Ok(item) = self.registry.item(&target) {
            self.see(&item);
        }
    }

    /// A definition is gone: so is its kind, and its names are free for those who wait for them.
    fn gone(&mut self, name: &str, uid: &str, resource: &GroupResource) {
        self.accepted.forget(name);
        self.freed.remove(uid);
        // What the servers have agreed on for it is no longer needed.
        self.registry.station.look();
        self.registry.kinds.remove(resource, uid, &self.registry.cache);
        let Ok(collection) = self.registry.installer.definitions() else { return };
        let Ok(snapshot) = collection.snapshot() else { return };
        let others: Vec<Arc<Item>> = snapshot.readable(&collection.spec().prefix, None).cloned().collect();
        for item in others {
            let waits = Crd::read(&item)
                .is_some_and(|it| *it.spec.group == *resource.group && !it.has("NamesAccepted"));
            if waits {
                self.see(&item);
            }
        }
    }
}

/// Makes a definition what was decided: first its kind, then its status, which says that the kind is there.
async fn settle(registry: &Registry, item: &Arc<Item>, decision: Decision, is_settled: bool) -> Done {
    let name = item.name().to_owned();
    let result = async {
        if decision.is_established
            && let Some(kind) = registry.installer.install(item).await?
        {
            match registry.report_kind(&kind).await {
                Ok(true) => {}
                // It is Established when every server knows it; until then it is looked at again and again.
                Ok(false) if !is_settled => return Ok(false),
                // What a server is still to report is reported when it has joined, or by the next put.
                Ok(false) | Err(_) if is_settled => {}
                Ok(false) | Err(_) => {
                    registry.clock.sleep(RETRY).await;
                    return Ok(false);
                }
            }
        }
        if is_settled {
            return Ok(true);
        }
        if !registry.station.is_member() {
            // Another server may write it, or this one when it has joined.
            registry.clock.sleep(RETRY).await;
            return Ok(false);
        }
        let mut crd: Value = serde_json::from_slice(item.text()).map_err(Status::internal)?;
        let now = meta::time::format_time(registry.clock.now());
        write_names(&mut crd, &decision.names);
        for condition in decision.conditions {
            prepare::set_condition(&mut crd, &condition, &now);
        }
        registry.write_definition(crd).await.map(|()| true)
    };
    match result.await {
        Ok(true) => Done::Written,
        Ok(false) => Done::Failed(name),
        Err(status) => {
            tracing::warn!(%status, definition = name, "a definition could not be established");
            registry.clock.sleep(RETRY).await;
            Done::Failed(name)
        }
    }
}

fn write_names(crd: &mut Value, names: &Names) {
    let mut accepted = json!({"plural": names.plural, "kind": names.kind});
    let texts = [("singular", &names.singular), ("listKind", &names.list_kind)];
    for (field, text) in texts.into_iter().filter(|(_, it)| !it.is_empty()) {
        accepted[field] = json!(text);
    }
    let lists = [("shortNames", &names.short_names), ("categories", &names.categories)];
    for (field, list) in lists.into_iter().filter(|(_, it)| !it.is_empty()) {
        accepted[field] = json!(list);
    }
    let status = meta::object::child_mut(meta::object::as_map_mut(crd), "status");
    status.insert("acceptedNames".to_owned(), accepted);
}

/// Deletes all objects of a definition, waits until they are gone, and lets the definition go. Ends without that when the
/// definition is not the one that is being deleted any more: what it has left behind is not ours to remove.
async fn finish(registry: &Arc<Registry>, item: &Arc<Item>, is_established: bool) -> Result<(), Status> {
    if !is_established {
        let done = condition("Terminating", false, "NeverEstablished", "resource was never established");
        return release(registry, item, done).await;
    }
    let Some(kind) = registry.installer.install(item).await? else {
        let message = "instances overlap with built-in resources in storage";
        let done = condition("Terminating", false, "OverlappingBuiltInResource", message);
        return release(registry, item, done).await;
    };
    let version = kind.custom.as_ref().map(|it| it.storage.clone()).ok_or_else(Status::no_such_resource)?;
    let all = Target {
        kind: Arc::clone(&kind),
        group_version: version,
        namespace: String::new(),
        name: String::new(),
        subresource: String::new(),
    };
    let in_progress = condition(
        "Terminating",
        true,
        "InstanceDeletionInProgress",
        "CustomResource deletion is in progress",
    );
    say(registry, item, in_progress).await?;
    let grounds = Grounds::because([definition_ends(item)]);
    let collection = registry.collection(&all)?.clone();
    loop {
        if !still_ends(registry, item).await? {
            tracing::info!(
                definition = item.name(),
                "a definition was freed while its objects were deleted; the rest stays"
            );
            return Ok(());
        }
        let deleted = registry
            .delete_collection(&all, &DeleteOptions::default(), &Anything, &ListOptions::default(), &grounds)
            .await;
        if let Err(status) = deleted {
            tracing::warn!(%status, definition = item.name(), "objects of a deleted definition could not be deleted");
        }
        delete_unreadable(registry, &all, &collection, &grounds).await?;
        registry.cache.catch_up().await.map_err(|it| outcome::read_failed(&it))?;
        if collection.is_empty().map_err(outcome::closed)?
            && collection.unreadable().map_err(outcome::closed)?.is_empty()
        {
            break;
        }
        // Finalizers hold the rest.
        registry.clock.sleep(RETRY).await;
    }
    let done = condition("Terminating", false, "InstanceDeletionCompleted", "removed all instances");
    release(registry, item, done).await
}

/// The fact that justifies the removal of a definition's objects.
fn definition_ends(item: &Item) -> Fact {
    let object = Place {
        group: super::GROUP.to_owned(),
        resource: "customresourcedefinitions".to_owned(),
        namespace: String::new(),
        name: item.name().to_owned(),
    };
    Fact::Deleting { object, uid: item.uid().to_owned(), finalizer: CLEANUP.to_owned() }
}

/// Whether the definition is still this one, and still waits for its objects to go.
async fn still_ends(registry: &Registry, item: &Item) -> Result<bool, Status> {
    let target = registry.definition_target(item.name(), "")?;
    let fresh = registry.fresh(&target).await?.filter(|it| it.uid() == item.uid());
    let crd = fresh.as_deref().and_then(Crd::read);
    Ok(crd.is_some_and(|it| it.is_deleting() && it.metadata.finalizers.iter().any(|it| it == CLEANUP)))
}

/// What cannot be read cannot be held by finalizers either.
async fn delete_unreadable(
    registry: &Registry,
    all: &Target,
    collection: &cache::Collection,
    grounds: &Grounds,
) -> Result<(), Status> {
    for (key, _) in collection.unreadable().map_err(outcome::closed)? {
        let entry = registry.store.get(&key).await.map_err(|it| outcome::read_failed(&it))?;
        // Somebody may have mended it, and then its finalizers count.
        let Some(entry) = entry.filter(|it| collection.parse(it).is_err()) else { continue };
        let grounds = registry.settle(grounds).await?;
        match registry.remove_key(all, &key, entry.modified, grounds).await {
            // It was changed: the next round tells whether it can be read now.
            Ok(_) | Err(Setback::Raced(_)) => {}
            Err(Setback::Refused(status) | Setback::Ended(status)) => return Err(status),
        }
    }
    Ok(())
}

/// Writes one condition into a definition as it is now.
async fn say(
    registry: &Registry,
    item: &Item,
    condition: super::definition::Condition,
) -> Result<(), Status> {
    let target = registry.definition_target(item.name(), "")?;
    let fresh = registry.fresh(&target).await?.filter(|it| it.uid() == item.uid());
    let Some(item) = fresh else { return Ok(()) };
    let mut crd: Value = serde_json::from_slice(item.text()).map_err(Status::internal)?;
    prepare::set_condition(&mut crd, &condition, &meta::time::format_time(registry.clock.now()));
    registry.write_definition(crd).await
}

/// Takes the finalizer away, with the last condition; the definition goes with it, unless others hold it.
async fn release(
    registry: &Registry,
    item: &Arc<Item>,
    condition: super::definition::Condition,
) -> Result<(), Status> {
    let target = registry.definition_target(item.name(), "")?;
    // Somebody may write at the same time; every attempt starts from what is there.
    for _ in 0..crate::limits::MAX_ATTEMPTS {
        let Some(fresh) = registry.fresh(&target).await?.filter(|it| it.uid() == item.uid()) else {
            return Ok(());
        };
        let mut crd: Value = serde_json::from_slice(fresh.text()).map_err(Status::internal)?;
        let finalizers =
            meta::object::metadata_mut(&mut crd).get_mut("finalizers").and_then(Value::as_array_mut);
        let Some(finalizers) = finalizers.filter(|it| it.iter().any(|it| it == CLEANUP)) else {
            return Ok(());
        };
        finalizers.retain(|it| it != CLEANUP);
        prepare::set_condition(&mut crd, &condition, &meta::time::format_time(registry.clock.now()));
        registry.write_definition(crd).await?;
    }
    Err(Status::modified(&definitions(), item.name()))
}
