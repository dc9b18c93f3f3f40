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
use meta::{GroupResource, GroupVersion, Status, Value};
use schema::check::FieldValidation;
use serde_json::json;

use super::{
    Custom,
    definition::{Crd, Names},
    definitions,
    names::{Accepted, Decision, condition},
    prepare::{self, CLEANUP},
};
use crate::{Anything, DeleteOptions, Kind, ListOptions, Registry, Target, WriteOptions, outcome};

/// Who writes the status of definitions, as upstream.
const MANAGER: &str = "kube-apiserver";

/// How many definitions are worked on at the same time.
const MAX_WORK: usize = 64;

/// The pause after something failed, and between looks at objects that are held by finalizers.
const RETRY: Duration = Duration::from_millis(200);

/// The task. Made by [`Registry::load_definitions`], which has taken over everything that was stored then.
pub struct Follower {
    registry: Arc<Registry>,
    accepted: Accepted,
    watcher: Option<Watcher>,
    work: FuturesUnordered<BoxFuture<'static, Done>>,
    /// What waits for objects to go, which may take for ever; it is not counted.
    endings: FuturesUnordered<BoxFuture<'static, Done>>,
    /// Definitions whose objects are being deleted.
    ending: HashSet<String>,
}

enum Done {
    Written,
    /// Try again with whatever is there then.
    Failed(String),
    Ended(String),
}

impl Registry {
    /// Takes over all definitions that are stored, so that their objects can be asked for.
    pub async fn load_definitions(self: &Arc<Self>) -> Result<Follower, Status> {
        let mut follower = Follower {
            registry: Arc::clone(self),
            accepted: Accepted::default(),
            watcher: None,
            work: FuturesUnordered::new(),
            endings: FuturesUnordered::new(),
            ending: HashSet::new(),
        };
        follower.start().await?;
        Ok(follower)
    }

    /// The kind of a custom resource as its definition is in the store: after a put was refused by its fence.
    pub(crate) async fn renewed(
        &self,
        custom: &Custom,
        resource: &GroupResource,
        entry: Option<&store::Entry>,
    ) -> Result<Arc<Kind>, Status> {
        let Some(entry) = entry else {
            self.kinds.remove(resource, custom.stored.uid());
            return Err(Status::no_such_resource());
        };
        let definitions = self.installer.definitions()?;
        let item = definitions.parse(entry).map(Arc::new).map_err(Status::internal)?;
        self.installer.install(&item).await?.ok_or_else(Status::no_such_resource)
    }

    /// Knows the definition of a resource, if one is in force at a moment after the call: whoever follows definitions may
    /// not have come to it yet.
    pub async fn catch_up_definition(&self, resource: &GroupResource) -> Result<(), Status> {
        let caught_up = self.cache.catch_up().await;
        caught_up.map_err(|it| Status::unavailable(it.to_string(), 1))?;
        let item = self.installer.definitions()?.get(super::definition_key(resource).as_str());
        let Some(item) = item else { return Ok(()) };
        if Crd::read(&item).is_some_and(|it| it.has("Established")) {
            self.installer.install(&item).await?;
        }
        Ok(())
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
                if let Err(status) = self.start().await {
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

    /// Takes over what is there, and goes on from exactly that state.
    async fn start(&mut self) -> Result<(), Status> {
        let collection = self.registry.installer.definitions()?;
        let prefix = collection.spec().prefix.clone();
        let snapshot = collection.snapshot();
        let items: Vec<Arc<Item>> = snapshot.range(&prefix, None).cloned().collect();
        for item in &items {
            if let Some(crd) = Crd::read(item) {
                self.accepted.note(&crd.metadata.name, &crd.spec.group, crd.status.accepted_names.clone());
                if crd.has("Established") {
                    self.registry.installer.install(item).await?;
                }
            }
        }
        self.forget_missing(&items);
        self.watcher = collection.watch(snapshot.revision(), &prefix).ok();
        items.iter().for_each(|it| self.see(it));
        Ok(())
    }

    /// Kinds whose definitions went while nobody looked.
    fn forget_missing(&mut self, items: &[Arc<Item>]) {
        for kind in self.registry.kinds.custom() {
            let Some(custom) = &kind.custom else { continue };
            if items.iter().all(|it| it.uid() != custom.stored.uid()) {
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
            Step::Ended(_) => self.watcher = None,
        }
    }

    /// A definition is there, in this state.
    fn see(&mut self, item: &Arc<Item>) {
        let Some(crd) = Crd::read(item) else { return };
        if crd.is_deleting() {
            self.end(item, &crd);
            return;
        }
        let decision = self.accepted.decide(&crd);
        self.accepted.note(&crd.metadata.name, &crd.spec.group, decision.names.clone());
        let is_settled = decision.names == crd.status.accepted_names
            && Some(&decision.conditions) == crd.status.conditions.as_ref();
        let (registry, item) = (Arc::clone(&self.registry), Arc::clone(item));
        self.work.push(async move { settle(&registry, &item, decision, is_settled).await }.boxed());
    }

    /// A definition is being deleted: its objects go first.
    fn end(&mut self, item: &Arc<Item>, crd: &Crd) {
        let name = crd.metadata.name.clone();
        if !crd.metadata.finalizers.iter().any(|it| it == CLEANUP) || !self.ending.insert(name.clone()) {
            return;
        }
        let (registry, item) = (Arc::clone(&self.registry), Arc::clone(item));
        let is_established = crd.has("Established");
        let work = async move {
            if let Err(status) = finish(&registry, &item, is_established).await {
                tracing::warn!(%status, definition = name, "objects of a deleted definition could not be removed");
                registry.clock.sleep(RETRY).await;
                return Done::Failed(name);
            }
            Done::Ended(name)
        };
        self.endings.push(work.boxed());
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Written => {}
            Done::Ended(name) => {
                self.ending.remove(&name);
            }
            Done::Failed(name) => {
                self.ending.remove(&name);
                let Ok(target) = self.registry.definition_target(&name, "") else { return };
                if let Ok(item) = self.registry.item(&target) {
                    self.see(&item);
                }
            }
        }
    }

    /// A definition is gone: so is its kind, and its names are free for those who wait for them.
    fn gone(&mut self, name: &str, uid: &str, resource: &GroupResource) {
        self.accepted.forget(name);
        // What the servers have agreed on for it is no longer needed.
        self.registry.station.look();
        if let Some(kind) = self.registry.kinds.remove(resource, uid)
            && let Some(prefix) = &kind.definition.key_prefix
        {
            self.registry.cache.remove(prefix);
        }
        let Ok(collection) = self.registry.installer.definitions() else { return };
        let snapshot = collection.snapshot();
        let others: Vec<Arc<Item>> = snapshot.range(&collection.spec().prefix, None).cloned().collect();
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

/// Deletes all objects of a definition, waits until they are gone, and lets the definition go.
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
    say(
        registry,
        item.name(),
        condition(
            "Terminating",
            true,
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
        ),
    )
    .await?;
    let collection = registry.collection(&all)?.clone();
    loop {
        let deleted = registry
            .delete_collection(&all, &DeleteOptions::default(), &Anything, &ListOptions::default())
            .await;
        if let Err(status) = deleted {
            tracing::warn!(%status, definition = item.name(), "objects of a deleted definition could not be deleted");
        }
        delete_unreadable(registry, &collection).await?;
        registry.cache.catch_up().await.map_err(|it| outcome::read_failed(&it))?;
        if collection.is_empty() && collection.unreadable().is_empty() {
            break;
        }
        // Finalizers hold the rest.
        registry.clock.sleep(RETRY).await;
    }
    let done = condition("Terminating", false, "InstanceDeletionCompleted", "removed all instances");
    release(registry, item, done).await
}

/// What cannot be read cannot be held by finalizers either.
async fn delete_unreadable(registry: &Registry, collection: &cache::Collection) -> Result<(), Status> {
    use store::{Store, Txn};
    for (key, _) in collection.unreadable() {
        let removed = registry.store.commit(Txn::new().delete(&key)).await;
        removed.map_err(|error| Status::unavailable(error.to_string(), 1))?;
    }
    Ok(())
}

/// Writes one condition into a definition as it is now.
async fn say(registry: &Registry, name: &str, condition: super::definition::Condition) -> Result<(), Status> {
    let target = registry.definition_target(name, "")?;
    let Some(item) = registry.fresh(&target).await? else { return Ok(()) };
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
