//! `status.storedVersions` is never untrue.
//!
//! **Flow.** A definition starts with the versions that are found under its prefix, gets every version that becomes the
//! one that is stored, and loses one only when nothing is stored in it. Whoever takes the storage version itself off the
//! list, as upstream allows, finds it there again with the next object.
//!
//! **Why a look at the cache is enough.** Every put requires the definition at the revision it was encoded by. Once the
//! cache has reached a moment at which the definition was at revision R, and shows nothing in the old version, nothing
//! can come to be stored in it while the definition stays at R; and the write that drops the version requires just that.

use std::{collections::BTreeSet, sync::Arc};

use meta::{FieldError, FieldErrors, GroupResource, Status, Value};
use store::{Range, ReadAt, Store};

use super::{Custom, definition, prepare};
use crate::{Kind, Registry, Target, outcome, resource_version::Wanted};

/// How many entries are read at once.
const PAGE: usize = 500;

impl Registry {
    /// Gives a new definition the versions that are found under its prefix.
    pub(crate) async fn note_found_versions(&self, crd: &mut Value) -> Result<(), Status> {
        let text = |path: &str| crd.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let prefix = definition::prefix(text("/spec/group"), text("/spec/names/plural"));
        let found = self.versions_under(&prefix).await?;
        if found.is_empty() {
            return Ok(());
        }
        let known: Vec<String> = prepare::stored_versions(crd).into_iter().map(str::to_owned).collect();
        let all: Vec<Value> = found
            .into_iter()
            .filter(|it| !known.contains(it))
            .chain(known.iter().cloned())
            .map(Value::from)
            .collect();
        crd["status"]["storedVersions"] = Value::Array(all);
        Ok(())
    }

    /// 422 if the new status drops a version in which something is stored.
    pub(crate) async fn check_dropped_versions(
        &self,
        target: &Target,
        new: &Value,
        old: &Value,
    ) -> Result<(), Status> {
        let kept = prepare::stored_versions(new);
        let before = prepare::stored_versions(old);
        let dropped: Vec<&str> = before.iter().copied().filter(|it| !kept.contains(it)).collect();
        if dropped.is_empty() {
            return Ok(());
        }
        let text = |path: &str| old.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let group = text("/spec/group");
        let prefix = definition::prefix(group, text("/spec/names/plural"));
        self.reach(Wanted::Consistent).await?;
        let mut errors = FieldErrors::default();
        for version in dropped {
            let at = before.iter().position(|it| *it == version).unwrap_or_default();
            let Some(why) = self.holds_back(&prefix, group, version).await? else { continue };
            let place = format!("status.storedVersions[{at}]");
            errors.push(FieldError::invalid(place, version, why));
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(errors.into_status(&target.kind.group_kind, &target.name))
        }
    }

    /// Lists the storage version again before anything is stored in it; returns the kind as it is then.
    pub(crate) async fn list_storage_version(
        &self,
        custom: &Custom,
        resource: &GroupResource,
    ) -> Result<Arc<Kind>, Status> {
        let mut crd: Value = serde_json::from_slice(custom.text()).map_err(Status::internal)?;
        let mut listed: Vec<Value> = prepare::stored_versions(&crd).into_iter().map(Value::from).collect();
        listed.push(Value::from(custom.storage.version.as_str()));
        crd["status"]["storedVersions"] = Value::Array(listed);
        self.write_definition(crd).await?;
        let entry = self.store.get(custom.stored.key()).await.map_err(|it| outcome::read_failed(&it))?;
        self.renewed(custom, resource, entry.as_ref()).await
    }

    /// Why a version cannot be dropped.
    async fn holds_back(&self, prefix: &str, group: &str, version: &str) -> Result<Option<String>, Status> {
        let say = |n: u64, what: &str| {
            format!(
                "{n} objects {what}; rewrite them in the storage version before {version} is removed from \
                 status.storedVersions"
            )
        };
        let Some(collection) = self.cache.collection(prefix) else {
            let found = self.versions_under(prefix).await?;
            let is_there = found.contains(version);
            return Ok(is_there.then(|| format!("objects are stored in {version}")));
        };
        let n_unreadable = collection.unreadable().map_err(outcome::closed)?.len() as u64;
        let wanted = format!("{group}/{version}");
        let counts = collection.counts().map_err(outcome::closed)?;
        let count = counts.iter().find(|(it, _)| it.as_str() == wanted).map_or(0, |(_, it)| *it);
        Ok(match (count, n_unreadable) {
            (0, 0) => None,
            (0, n) => Some(say(n, "cannot be read and may be stored in it")),
            (n, _) => Some(say(n, "are stored in it")),
        })
    }

    /// The versions in which objects are stored under a prefix, straight from the store.
    async fn versions_under(&self, prefix: &str) -> Result<BTreeSet<String>, Status> {
        let mut found = BTreeSet::new();
        let whole = Range::prefix(prefix);
        let mut range = whole.clone();
        loop {
            let page = self
                .store
                .list(&range, ReadAt::Latest, PAGE)
                .await
                .map_err(|it| outcome::read_failed(&it))?;
            found.extend(page.entries.iter().filter_map(|it| version_of(&it.value)));
            match page.entries.last() {
                Some(last) if page.remaining > 0 => range = whole.after(&last.key),
                _ => return Ok(found),
            }
        }
    }
}

/// The version that a stored text says it is in.
fn version_of(text: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Head {
        api_version: String,
    }
    let Head { api_version } = serde_json::from_slice(text).ok()?;
    api_version.rsplit_once('/').map(|(_, version)| version.to_owned())
}
