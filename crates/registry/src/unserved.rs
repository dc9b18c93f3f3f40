//! A namespace does not go while something of it is stored that nobody serves.
//!
//! **Flow.** Clients, controllers among them, see only what is served. The cache counts the keys that belong to nothing
//! it knows; where there are any, the store is asked which of them are of the namespace, directory by directory.
//!
//! **Why.** A server that does not know a resource, because it is older or because the definition is gone, would make
//! the namespace go and leave the objects; whoever makes a namespace of that name later would find them in it.
//!
//! Decision 0028. Deliberately not here: what is served; controllers delete that.

use std::collections::BTreeMap;

use meta::{Cause, Status, Value, object};
use store::{Range, ReadAt, Store};

use crate::{Registry, Target, outcome, resource_version::Wanted};

/// The finalizer of whoever empties namespaces.
const FINALIZER: &str = "kubernetes";

/// On a namespace, with any value but `false`: what nobody serves may be left behind.
pub const ABANDON: &str = "convoy.dev/abandon-unserved-content";

/// By this, programs recognise the refusal.
pub const REASON: &str = "UnservedContent";

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
        if self.cache.unclaimed().is_empty() {
            return Ok(());
        }
        let Some(item) = self.fresh(target).await? else { return Ok(()) };
        let namespace: Value = serde_json::from_slice(item.text()).map_err(Status::internal)?;
        let annotation = namespace.pointer("/metadata/annotations").and_then(|it| it.get(ABANDON));
        if !object::is_deleting(&namespace) || annotation.is_some_and(|it| it != "false") {
            return Ok(());
        }
        let found = self.unserved_in(&target.name).await?;
        if found.is_empty() {
            return Ok(());
        }
        let mut told: Vec<String> =
            found.iter().take(MAX_TOLD).map(|(place, n)| format!("{n} under {place}")).collect();
        if found.len() > MAX_TOLD {
            told.push(format!("and more under {} others", found.len() - MAX_TOLD));
        }
        let told = format!("keys that no server serves: {}", told.join(", "));
        let why = format!("{told}; serve them, or annotate the namespace with {ABANDON}=true to leave them");
        let mut status = Status::conflict(&target.kind.resource, &target.name, &why);
        if let Some(details) = &mut status.details {
            details.causes.push(Cause { reason: REASON.to_owned(), message: told, field: String::new() });
        }
        Err(status)
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
