//! A namespace does not go while something of it is stored that nobody serves, or that this server cannot read; and an
//! owner does not leave orphans behind that nobody could tell.
//!
//! **Flow.** Clients, controllers among them, see only what is served. The cache counts the keys that belong to nothing
//! it knows; where there are any, the store is asked which of them are of the namespace, directory by directory.
//!
//! **Why.** A server that does not know a resource, because it is older or because the definition is gone, would make
//! the namespace go and leave the objects; whoever makes a namespace of that name later would find them in it. The same
//! holds for objects in a version that only another release reads: lists do not show them.
//!
//! An owner that is deleted so that its dependents stay (`orphan`) goes after they have forgotten it. Those that nobody
//! serves cannot forget it, and would be taken for lost, and deleted, as soon as somebody serves them again.
//!
//! Decision 0028. Deliberately not here: what is served; controllers delete that.

use std::collections::BTreeMap;

use meta::{Cause, Status, Value, object};
use store::{Range, ReadAt, Store};

use crate::{Registry, Target, outcome, resource_version::Wanted};

/// The finalizer of whoever empties namespaces.
const FINALIZER: &str = "kubernetes";

/// The finalizer of whoever makes dependents forget their owner.
const ORPHAN: &str = "orphan";

/// On a namespace or an owner, with any value but `false`: what nobody serves may be left behind.
pub const ABANDON: &str = "convoy.dev/abandon-unserved-content";

/// By this, programs recognise the refusal.
pub const REASON: &str = "UnservedContent";

/// Keys that are read at once to find dependents.
const PAGE: usize = 500;

/// More directories than this are not told one by one.
const MAX_TOLD: usize = 10;

impl Registry {
    /// 409 if these finalizers would let a namespace go of which something is stored that nobody serves.
    pub(crate) async fn check_unserved(
        &self,
        target: &Target,
        finalizers: Option<&Value>,
    ) -> Result<(), Status> {
        let listed = finalizers.and_then(Value::as_array).into_iter().flatten();
        if listed.into_iter().any(|it| it == FINALIZER) {
            return Ok(());
        }
        self.reach(Wanted::Consistent).await?;
        if self.cache.unclaimed().is_empty() && self.cache.unreadable().is_empty() {
            return Ok(());
        }
        let Some(item) = self.fresh(target).await? else { return Ok(()) };
        let namespace: Value = serde_json::from_slice(item.text()).map_err(Status::internal)?;
        if !object::is_deleting(&namespace) || is_abandoning(&namespace) {
            return Ok(());
        }
        let unserved = told("keys that no server serves", &self.unserved_in(&target.name).await?);
        let unreadable = told("keys that this server cannot read", &self.unreadable_in(&target.name));
        let told: Vec<String> = unserved.into_iter().chain(unreadable).collect();
        if told.is_empty() {
            return Ok(());
        }
        Err(refusal(target, told.join("; "), "the namespace"))
    }

    /// 409 if a change would let an orphaning owner go that something names which nobody serves.
    pub(crate) async fn check_unserved_dependents(
        &self,
        target: &Target,
        new: &Value,
        old: &Value,
    ) -> Result<(), Status> {
        let is_orphaning = |it: &Value| object::finalizers(it).contains(&ORPHAN);
        if !object::is_deleting(old) || !is_orphaning(old) || is_orphaning(new) || is_abandoning(new) {
            return Ok(());
        }
        self.reach(Wanted::Consistent).await?;
        let unserved = self.unserved_dependents(object::uid(old)).await?;
        match told("dependents that no server serves", &unserved) {
            Some(told) => Err(refusal(target, told, "the owner")),
            None => Ok(()),
        }
    }

    /// How many objects name this owner, by directory, of those that belong to no collection or cannot be read.
    async fn unserved_dependents(&self, uid: &str) -> Result<BTreeMap<String, u64>, Status> {
        let mut found = BTreeMap::new();
        let mut note = |key: &str, value: &[u8]| {
            if names_owner(value, uid) {
                let place = key.rsplit_once('/').map_or(key, |it| it.0);
                *found.entry(format!("{place}/")).or_default() += 1;
            }
        };
        for (key, _) in self.cache.unreadable() {
            let entry = self.store.get(&key).await.map_err(|it| outcome::read_failed(&it))?;
            entry.iter().for_each(|it| note(it.key.as_str(), &it.value));
        }
        let places =
            if self.cache.unclaimed().is_empty() { Vec::new() } else { self.unclaimed_places().await? };
        for place in places {
            let mut range = Range::prefix(&place);
            loop {
                let page = self.store.list(&range, ReadAt::Latest, PAGE).await;
                let page = page.map_err(|it| outcome::read_failed(&it))?;
                page.entries.iter().for_each(|it| note(it.key.as_str(), &it.value));
                match page.entries.last() {
                    Some(last) if page.remaining > 0 => range = range.after(&last.key),
                    _ => break,
                }
            }
        }
        Ok(found)
    }

    /// How many keys of a namespace there are in collections that are known, with values that cannot be read.
    fn unreadable_in(&self, namespace: &str) -> BTreeMap<String, u64> {
        let mut found = BTreeMap::new();
        for (key, _) in self.cache.unreadable() {
            let Some((parent, _)) = key.as_str().rsplit_once('/') else { continue };
            let Some(holder) = parent.strip_suffix(namespace).filter(|it| it.ends_with('/')) else {
                continue;
            };
            // Of what is outside of namespaces, the parent is the collection.
            if self.cache.collection(holder).is_some() {
                *found.entry(holder.to_owned()).or_default() += 1;
            }
        }
        found
    }

    /// How many keys of a namespace there are in directories that belong to no collection.
    async fn unserved_in(&self, namespace: &str) -> Result<BTreeMap<String, u64>, Status> {
        let mut found = BTreeMap::new();
        for place in self.unclaimed_places().await? {
            // `/registry/pods/` holds namespaces, `/registry/example.org/` resources, `/registry/services/` both.
            let is_group = place.trim_end_matches('/').rsplit('/').next().is_some_and(|it| it.contains('.'));
            let mut holders = self.directories(&place).await?;
            if !is_group {
                holders.push(place);
            }
            for holder in holders {
                let own = format!("{holder}{namespace}/");
                if self.cache.collection(&holder).is_some() || self.cache.collection(&own).is_some() {
                    continue;
                }
                let page = self.store.list(&Range::prefix(&own), ReadAt::Latest, 1).await;
                let page = page.map_err(|it| outcome::read_failed(&it))?;
                // What lies deeper is not an object of this namespace.
                let is_object = |key: &str| key.strip_prefix(&own).is_some_and(|it| !it.contains('/'));
                if let Some(first) = page.entries.first()
                    && is_object(first.key.as_str())
                {
                    found.insert(holder, 1 + page.remaining);
                }
            }
        }
        Ok(found)
    }

    /// Where keys are that belong to no collection. Some may be counted together, so then it is everywhere.
    async fn unclaimed_places(&self) -> Result<Vec<String>, Status> {
        let counted = self.cache.unclaimed();
        if counted.keys().all(|it| it.starts_with('/')) {
            return Ok(counted.into_keys().filter(|it| it.ends_with('/')).collect());
        }
        self.directories("/registry/").await
    }

    /// The directories right below a directory. Each costs one question, however much is in it.
    async fn directories(&self, parent: &str) -> Result<Vec<String>, Status> {
        let mut range = Range::prefix(parent);
        let mut directories = Vec::new();
        loop {
            let page = self.store.list(&range, ReadAt::Latest, 1).await;
            let page = page.map_err(|it| outcome::read_failed(&it))?;
            let Some(first) = page.entries.first() else { return Ok(directories) };
            let rest = first.key.as_str().strip_prefix(parent).unwrap_or_default();
            match rest.split_once('/') {
                Some((name, _)) => {
                    let directory = format!("{parent}{name}/");
                    range.start = Range::prefix(&directory).end;
                    directories.push(directory);
                }
                None => range = range.after(&first.key),
            }
        }
    }
}

/// What is stored as JSON names its owners by their uids. Most names none, which is seen without reading it.
fn names_owner(value: &[u8], uid: &str) -> bool {
    if uid.is_empty() || !value.windows(uid.len()).any(|it| it == uid.as_bytes()) {
        return false;
    }
    let Ok(object) = serde_json::from_slice::<Value>(value) else { return false };
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().any(|it| it["uid"] == uid)
}

fn is_abandoning(object: &Value) -> bool {
    let annotation = object.pointer("/metadata/annotations").and_then(|it| it.get(ABANDON));
    annotation.is_some_and(|it| it != "false")
}

fn refusal(target: &Target, told: String, what: &str) -> Status {
    let why = format!("{told}; serve them, or annotate {what} with {ABANDON}=true to leave them");
    let mut status = Status::conflict(&target.kind.resource, &target.name, &why);
    if let Some(details) = &mut status.details {
        details.causes.push(Cause { reason: REASON.to_owned(), message: told, field: String::new() });
    }
    status
}

/// What there is, and where; `None` if nothing is.
fn told(what: &str, found: &BTreeMap<String, u64>) -> Option<String> {
    let mut told: Vec<String> =
        found.iter().take(MAX_TOLD).map(|(place, n)| format!("{n} under {place}")).collect();
    if found.len() > MAX_TOLD {
        told.push(format!("and more under {} others", found.len() - MAX_TOLD));
    }
    (!told.is_empty()).then(|| format!("{what}: {}", told.join(", ")))
}
