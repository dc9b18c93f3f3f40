//! A namespace does not go while something of it is stored that nobody serves, or that this server cannot read; and an
//! owner does not leave orphans behind that nobody could tell.
//!
//! **Flow.** Clients, controllers among them, see only what is served. The cache counts the keys that belong to nothing
//! it knows; where there are any, the store is asked which of them are of the namespace, directory by directory. What
//! belongs to a kind of which no version is served is counted in its collection. For a controller the collections of all
//! kinds must be without objects of the namespace: it may have asked discovery before a kind was there.
//!
//! **Why.** A server that does not know a resource, because it is older or because the definition is gone, would make
//! the namespace go and leave the objects; whoever makes a namespace of that name later would find them in it. The same
//! holds for objects in a version that only another release reads: lists do not show them.
//!
//! An owner that is deleted so that its dependents stay (`orphan`) goes after they have forgotten it. Those that nobody
//! serves cannot forget it, and would be taken for lost, and deleted, as soon as somebody serves them again.
//!
//! What a live server serves is never left behind, whatever the annotation says: that this one cannot reach the other is
//! no reason. The refusal names the server, and what keeps this one from asking it.
//!
//! Decisions 0028 and 0046. Deliberately not here: what is served; controllers delete that.

use std::collections::{BTreeMap, BTreeSet};

use meta::{Cause, Grounds, Status, StorageVersion, Value, object};
use store::{Key, Range, ReadAt, Store};

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
    /// 409 if these finalizers would let a namespace go of which something is stored that nobody serves; if a controller
    /// asks, of which anything is stored. Nothing new is stored in it meanwhile: it is being deleted.
    pub(crate) async fn check_unserved(
        &self,
        target: &Target,
        finalizers: Option<&Value>,
        grounds: &Grounds,
    ) -> Result<(), Status> {
        let listed = finalizers.and_then(Value::as_array).into_iter().flatten();
        if listed.into_iter().any(|it| it == FINALIZER) {
            return Ok(());
        }
        // Keys of a definition that is not in force here yet belong to nothing until it is.
        self.catch_up_definitions().await?;
        let Some(item) = self.fresh(target).await? else { return Ok(()) };
        let namespace: Value = serde_json::from_slice(item.text()).map_err(Status::internal)?;
        if !object::is_deleting(&namespace) {
            return Ok(());
        }
        self.reach(Wanted::Consistent).await?;
        let is_controller = !grounds.facts().is_empty();
        let mut found = Found::default();
        // Definitions come and go meanwhile: keys that are in a collection may belong to none a moment later, or the other
        // way round. So collections are looked at before and after.
        self.claimed_in(&target.name, is_controller, &mut found)?;
        self.unserved_in(&target.name, &mut found).await?;
        self.unreadable_in(&target.name, &mut found).await?;
        self.claimed_in(&target.name, is_controller, &mut found)?;
        self.judge(target, &found, is_abandoning(&namespace), ("keys", "the namespace"))
    }

    /// 409 if a change would let an orphaning owner go that something names which nobody serves; if a controller asks,
    /// that any custom object names: it may have asked discovery before the definition of that object was there.
    pub(crate) async fn check_unserved_dependents(
        &self,
        target: &Target,
        new: &Value,
        old: &Value,
        grounds: &Grounds,
    ) -> Result<(), Status> {
        let is_orphaning = |it: &Value| object::finalizers(it).contains(&ORPHAN);
        if !object::is_deleting(old) || !is_orphaning(old) || is_orphaning(new) {
            return Ok(());
        }
        self.catch_up_definitions().await?;
        self.reach(Wanted::Consistent).await?;
        let mut found = self.unserved_dependents(object::uid(old)).await?;
        if !grounds.facts().is_empty() {
            self.custom_dependents(object::uid(old), &mut found).await?;
        }
        self.judge(target, &found, is_abandoning(new), ("dependents", "the owner"))
    }

    /// 409 if something was found that may not be left behind.
    fn judge(
        &self,
        target: &Target,
        found: &Found,
        is_abandoning: bool,
        (things, what): (&str, &str),
    ) -> Result<(), Status> {
        let hands_on = self.station.config().features.get(fleet::route::FEATURE).copied().unwrap_or(false);
        let Some(mut told) = found.told(things, Circumstances { is_abandoning, hands_on }) else {
            return Ok(());
        };
        let causes = Cause { reason: REASON.to_owned(), message: told.clone(), field: String::new() };
        if found.elsewhere.is_empty() && found.remaining.is_empty() {
            told.push_str(&format!("; serve them, or annotate {what} with {ABANDON}=true to leave them"));
        }
        let mut status = Status::conflict(&target.kind.resource, &target.name, &told);
        if let Some(details) = &mut status.details {
            details.causes.push(causes);
        }
        Err(status)
    }

    /// The live servers, this one not among them, that serve what is stored below a prefix; of what is stored in a
    /// version, only those that can read it.
    fn served_by(&self, prefix: &str, version: Option<&StorageVersion>) -> Vec<String> {
        let Some(record) = catalog::record_at(prefix) else { return Vec::new() };
        let reads = |decodable: &[StorageVersion]| version.is_none_or(|it| decodable.contains(it));
        let (members, _) = self.station.members();
        let others = members.counted(&record).filter(|it| it.identity != *self.station.identity());
        let serve = others.filter(|it| it.persisted.get(&record).is_some_and(|it| reads(&it.decodable)));
        serve.map(|it| it.identity.to_string()).collect()
    }

    /// Custom objects that name this owner, of kinds that are served.
    async fn custom_dependents(&self, uid: &str, found: &mut Found) -> Result<(), Status> {
        let kinds = self.kinds.all();
        for kind in kinds.iter().filter(|it| it.custom.is_some() && !it.definition.versions.is_empty()) {
            let Some(collection) = kind.collection() else { continue };
            let snapshot = collection.snapshot().map_err(outcome::closed)?;
            let place = &collection.spec().prefix;
            for (at, item) in snapshot.readable("", None).enumerate() {
                if names_owner(item.text(), uid) {
                    *found.remaining.entry(place.clone()).or_default() += 1;
                }
                if at % PAGE == PAGE - 1 {
                    // There may be a million of them, and others are waiting.
                    tokio::task::yield_now().await;
                }
            }
        }
        Ok(())
    }

    /// Objects that name this owner, of those that belong to no collection, cannot be read, or are of a kind of which no
    /// version is served.
    async fn unserved_dependents(&self, uid: &str) -> Result<Found, Status> {
        let mut found = Found::default();
        for kind in self.kinds.all().iter().filter(|it| it.definition.versions.is_empty()) {
            let Some(collection) = kind.collection() else { continue };
            let snapshot = collection.snapshot().map_err(outcome::closed)?;
            // What cannot be read follows below, of all kinds.
            for item in snapshot.readable("", None).filter(|it| names_owner(it.text(), uid)) {
                found.note(&format!("{}/", parent(item.key())), 1, true, Vec::new());
            }
        }
        for (key, _) in self.cache.unreadable() {
            let entry = self.store.get(&key).await.map_err(|it| outcome::read_failed(&it))?;
            if let Some(entry) = entry.filter(|it| names_owner(&it.value, uid)) {
                let servers = self.served_by(&collection_of(&key), version_of(&entry.value).as_ref());
                found.note(&format!("{}/", parent(&key)), 1, false, servers);
            }
        }
        let places =
            if self.cache.unclaimed().is_empty() { Vec::new() } else { self.unclaimed_places().await? };
        for place in places {
            let mut range = Range::prefix(&place);
            loop {
                let page = self.store.list(&range, ReadAt::Latest, PAGE).await;
                let page = page.map_err(|it| outcome::read_failed(&it))?;
                for entry in page.entries.iter().filter(|it| names_owner(&it.value, uid)) {
                    let servers = self.served_by(&collection_of(&entry.key), None);
                    found.note(&format!("{}/", parent(&entry.key)), 1, true, servers);
                }
                match page.entries.last() {
                    Some(last) if page.remaining > 0 => range = range.after(&last.key),
                    _ => break,
                }
            }
        }
        Ok(found)
    }

    /// Objects of a namespace in the collections of kinds of which no version is served; or, for whoever should have
    /// removed them, of all kinds.
    fn claimed_in(&self, namespace: &str, is_controller: bool, found: &mut Found) -> Result<(), Status> {
        for kind in self.kinds.all().iter().filter(|it| it.is_namespaced()) {
            let is_served = !kind.definition.versions.is_empty();
            let Some(collection) = kind.collection().filter(|_| is_controller || !is_served) else {
                continue;
            };
            let snapshot = match collection.snapshot() {
                Ok(snapshot) => snapshot,
                Err(closed) => return Err(outcome::closed(closed)),
            };
            let n = snapshot.len_in(&kind.scope(namespace));
            if n > 0 {
                let place = collection.spec().prefix.clone();
                let places = if is_served { &mut found.remaining } else { &mut found.unserved };
                places.insert(place, u64::try_from(n).unwrap_or(u64::MAX));
            }
        }
        Ok(())
    }

    /// Keys of a namespace in collections that are known, with values that cannot be read.
    async fn unreadable_in(&self, namespace: &str, found: &mut Found) -> Result<(), Status> {
        for (key, _) in self.cache.unreadable() {
            let Some(holder) = parent(&key).strip_suffix(namespace).filter(|it| it.ends_with('/')) else {
                continue;
            };
            // Of what is outside of namespaces, the parent is the collection.
            if self.cache.collection(holder).is_some() {
                let entry = self.store.get(&key).await.map_err(|it| outcome::read_failed(&it))?;
                let Some(entry) = entry else { continue };
                // Where nobody knows the version, nobody can read it.
                let version = version_of(&entry.value);
                let servers = version.map(|it| self.served_by(holder, Some(&it))).unwrap_or_default();
                found.note(holder, 1, false, servers);
            }
        }
        Ok(())
    }

    /// Keys of a namespace in directories that belong to no collection.
    async fn unserved_in(&self, namespace: &str, found: &mut Found) -> Result<(), Status> {
        if self.cache.unclaimed().is_empty() {
            return Ok(());
        }
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
                    found.note(&holder, 1 + page.remaining, true, self.served_by(&holder, None));
                }
            }
        }
        Ok(())
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
    if uid.is_empty() || memchr::memmem::find(value, uid.as_bytes()).is_none() {
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

/// What else decides about what was found.
#[derive(Clone, Copy, Debug)]
struct Circumstances {
    /// What nobody serves may be left behind.
    is_abandoning: bool,
    /// This server hands requests on to others.
    hands_on: bool,
}

/// What is in the way, by directory.
#[derive(Debug, Default)]
struct Found {
    /// What is served, and is still there.
    remaining: BTreeMap<String, u64>,
    /// What no live server serves.
    unserved: BTreeMap<String, u64>,
    /// What this server cannot read, and no other one either.
    unreadable: BTreeMap<String, u64>,
    /// What others serve, and who.
    elsewhere: BTreeMap<String, (u64, BTreeSet<String>)>,
}

impl Found {
    fn note(&mut self, place: &str, n: u64, is_unserved: bool, servers: Vec<String>) {
        if !servers.is_empty() {
            let (count, names) = self.elsewhere.entry(place.to_owned()).or_default();
            *count += n;
            names.extend(servers);
            return;
        }
        let found = if is_unserved { &mut self.unserved } else { &mut self.unreadable };
        *found.entry(place.to_owned()).or_default() += n;
    }

    /// What may not be left behind; `None` if nothing is in the way.
    fn told(&self, things: &str, circumstances: Circumstances) -> Option<String> {
        let Circumstances { is_abandoning, hands_on } = circumstances;
        let mut all = Vec::new();
        all.extend(told(&format!("{things} that are still there"), &self.remaining));
        if !is_abandoning {
            all.extend(told(&format!("{things} that no server serves"), &self.unserved));
            all.extend(told(&format!("{things} that this server cannot read"), &self.unreadable));
        }
        if !self.elsewhere.is_empty() {
            let counts = self.elsewhere.iter().map(|(place, (n, _))| (place.clone(), *n)).collect();
            let names: BTreeSet<&str> =
                self.elsewhere.values().flat_map(|it| &it.1).map(String::as_str).collect();
            let names = names.into_iter().take(MAX_TOLD).collect::<Vec<_>>().join(", ");
            all.extend(told(&format!("{things} that {names} serves and this server does not"), &counts));
            all.push(match hands_on {
                true => "they go through that server, which must be reachable from here".to_owned(),
                false => format!(
                    "delete them through that server, or switch the feature gate {} on for this one",
                    fleet::route::FEATURE
                ),
            });
        }
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// The directory that a key is in, without the last slash.
fn parent(key: &Key) -> &str {
    key.as_str().rsplit_once('/').map_or(key.as_str(), |it| it.0)
}

/// The directory of the collection of a key: what is in a namespace is one level deeper.
fn collection_of(key: &Key) -> String {
    let parent = parent(key);
    let own = format!("{parent}/");
    match parent.rsplit_once('/') {
        Some((above, _)) if catalog::record_at(&own).is_none() => format!("{above}/"),
        _ => own,
    }
}

/// The version that a stored value says it is in.
fn version_of(value: &[u8]) -> Option<StorageVersion> {
    let object: Value = serde_json::from_slice(value).ok()?;
    Some(object::api_version(&object)).filter(|it| !it.is_empty()).map(StorageVersion::new)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody has asked to leave anything behind, and requests are handed on.
    const USUAL: Circumstances = Circumstances { is_abandoning: false, hands_on: true };

    fn found(notes: &[(&str, bool, &[&str])]) -> Found {
        let mut found = Found::default();
        for (place, is_unserved, servers) in notes {
            found.note(place, 1, *is_unserved, servers.iter().map(|it| (*it).to_owned()).collect());
        }
        found
    }

    #[test]
    fn what_a_live_server_serves_is_not_left_behind_whatever_is_asked() {
        let jobs = found(&[("/registry/jobs/", true, &["b"]), ("/registry/jobs/", true, &["b", "c"])]);
        let expect = "keys that b, c serves and this server does not: 2 under /registry/jobs/; ";
        for is_abandoning in [false, true] {
            let told = jobs.told("keys", Circumstances { is_abandoning, hands_on: false }).unwrap();
            let advice = "delete them through that server, or switch the feature gate \
                          UnknownVersionInteroperabilityProxy on for this one";
            assert_eq!(told, format!("{expect}{advice}"));
            assert!(jobs.told("keys", Circumstances { is_abandoning, ..USUAL }).unwrap().starts_with(expect));
        }
    }

    #[test]
    fn what_nobody_serves_is_left_behind_if_asked() {
        let ships = found(&[("/registry/ships/", true, &[]), ("/registry/pods/", false, &[])]);
        assert_eq!(ships.told("keys", Circumstances { is_abandoning: true, ..USUAL }), None);
        let expect = "keys that no server serves: 1 under /registry/ships/; \
                      keys that this server cannot read: 1 under /registry/pods/";
        assert_eq!(ships.told("keys", USUAL).as_deref(), Some(expect));
        let both = found(&[("/registry/ships/", true, &[]), ("/registry/jobs/", true, &["b"])]);
        assert!(
            !both.told("keys", Circumstances { is_abandoning: true, ..USUAL }).unwrap().contains("ships")
        );
    }

    #[test]
    fn the_collection_of_a_key_is_found() {
        assert_eq!(collection_of(&Key::new("/registry/jobs/default/a")), "/registry/jobs/");
        assert_eq!(collection_of(&Key::new("/registry/deviceclasses/a")), "/registry/deviceclasses/");
        assert_eq!(
            collection_of(&Key::new("/registry/services/specs/default/a")),
            "/registry/services/specs/"
        );
    }
}
