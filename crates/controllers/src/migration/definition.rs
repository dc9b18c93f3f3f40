//! The definition of a custom resource under migration: its storage version is frozen meanwhile (KEP-2855), and its
//! `status.storedVersions` narrowed at the end.
//!
//! # Guarantees
//! - The freeze ends by itself if nobody renews it, so that a migrator that dies leaves nothing behind for long.
//! - Versions leave `status.storedVersions` by name, on the condition that the definition is the one that was read, and
//!   whole lists are written: an empty one would be filled in by the server.

use jiff::SignedDuration;
use meta::freeze::{FROZEN, FROZEN_BY, FROZEN_UNTIL, annotation, is_frozen, storage_version};
use meta::{GroupResource, Value, object, time};
use serde_json::json;

use super::request::Migration;
use crate::api::Collection;
use crate::error::Error;
use crate::run::Ctx;

/// How long a freeze lasts that nobody renews.
const LASTS: SignedDuration = SignedDuration::from_mins(5);
/// It is renewed when less is left.
const RENEWED_BELOW: SignedDuration = SignedDuration::from_mins(4);

/// How often a write is tried when others change the definition at the same time.
const TRIES: usize = 8;

/// What became of an attempt to narrow `status.storedVersions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pruned {
    /// These versions left it.
    Done(Vec<String>),
    /// The storage version is another one by now.
    Moved(String),
    /// The server says that something is stored in them.
    Refused(String),
}

fn collection() -> Collection {
    Collection::cluster("apiextensions.k8s.io", "v1", "customresourcedefinitions")
}

fn name_of(resource: &GroupResource) -> String {
    format!("{}.{}", resource.resource, resource.group)
}

/// The definition of a resource; `None` if it is built in.
pub(super) async fn get(ctx: &Ctx, resource: &GroupResource) -> Result<Option<Value>, Error> {
    if resource.group.is_empty() {
        return Ok(None);
    }
    collection().get(&ctx.client, &name_of(resource)).await
}

/// Freezes it, or renews the freeze. `false` if another migration holds it.
pub(super) async fn freeze(ctx: &Ctx, migration: &Migration, crd: &Value) -> Result<bool, Error> {
    let now = (ctx.now)();
    let by = holder(migration);
    match annotation(crd, FROZEN_BY) {
        Some(other) if other != by && is_frozen(crd, now) => return Ok(false),
        Some(_) if is_frozen(crd, now + RENEWED_BELOW) && annotation(crd, FROZEN_BY) == Some(&by) => {
            return Ok(true);
        }
        _ => {}
    }
    let until = time::format_time(now + LASTS);
    let annotations = json!({FROZEN: "true", FROZEN_BY: by, FROZEN_UNTIL: until});
    annotate(ctx, crd, &annotations).await?;
    Ok(true)
}

/// Lets go of the definition if this migration holds it.
pub(super) async fn unfreeze(ctx: &Ctx, migration: &Migration) -> Result<(), Error> {
    for _ in 0..TRIES {
        let Some(crd) = get(ctx, &migration.resource).await? else { return Ok(()) };
        if annotation(&crd, FROZEN_BY) != Some(holder(migration).as_str()) {
            return Ok(());
        }
        let gone = json!({FROZEN: null, FROZEN_BY: null, FROZEN_UNTIL: null});
        match annotate(ctx, &crd, &gone).await {
            Err(error) if error.is(409) => {}
            Err(error) if error.is(404) => return Ok(()),
            other => return other,
        }
    }
    Err(Error::Unknown("the definition changes too often to be let go".to_owned()))
}

/// Whether the server refuses to move the storage version now: it is asked to, without meaning it.
pub(super) async fn is_enforced(ctx: &Ctx, crd: &Value) -> Result<bool, Error> {
    let Some(flipped) = flipped(crd) else { return Ok(true) };
    match collection().dry_run(&ctx.client, object::name(crd), &flipped).await {
        Ok(()) => Ok(false),
        Err(error) if error.is(409) || error.is(404) => Err(error),
        Err(error @ Error::Refused { .. }) => Ok(error.text().contains(FROZEN)),
        Err(error) => Err(error),
    }
}

/// The same definition with another storage version; `None` if it has only one.
fn flipped(crd: &Value) -> Option<Value> {
    let mut flipped = crd.clone();
    let versions = flipped.pointer_mut("/spec/versions")?.as_array_mut()?;
    let now = versions.iter().position(|it| it["storage"] == true)?;
    let other = (0..versions.len()).find(|it| *it != now)?;
    versions[now]["storage"] = json!(false);
    versions[other]["storage"] = json!(true);
    Some(flipped)
}

/// Takes every version but the one in which everything is stored out of `status.storedVersions`.
pub(super) async fn prune(ctx: &Ctx, resource: &GroupResource, version: &str) -> Result<Pruned, Error> {
    let wanted = version.rsplit('/').next().unwrap_or_default();
    for _ in 0..TRIES {
        let Some(mut crd) = get(ctx, resource).await? else { return Ok(Pruned::Done(Vec::new())) };
        let storage = storage_version(&crd).unwrap_or_default().to_owned();
        if storage != wanted {
            return Ok(Pruned::Moved(storage));
        }
        let dropped: Vec<String> = stored_versions(&crd).into_iter().filter(|it| it != wanted).collect();
        if dropped.is_empty() {
            return Ok(Pruned::Done(Vec::new()));
        }
        crd["status"]["storedVersions"] = json!([wanted]);
        match collection().replace_subresource(&ctx.client, &name_of(resource), "status", &crd).await {
            Ok(_) => return Ok(Pruned::Done(dropped)),
            Err(error) if error.is(409) => {}
            Err(error) if error.is(422) => return Ok(Pruned::Refused(error.text())),
            Err(error) => return Err(error),
        }
    }
    Err(Error::Unknown("the definition changes too often to be pruned".to_owned()))
}

async fn annotate(ctx: &Ctx, crd: &Value, annotations: &Value) -> Result<(), Error> {
    let version = object::resource_version(crd);
    let patch = json!({"metadata": {"resourceVersion": version, "annotations": annotations}});
    collection().patch(&ctx.client, object::name(crd), &patch).await
}

fn holder(migration: &Migration) -> String {
    migration.api.key(migration.name())
}

fn stored_versions(crd: &Value) -> Vec<String> {
    let stored = crd.pointer("/status/storedVersions").and_then(Value::as_array);
    stored.into_iter().flatten().filter_map(|it| it.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_moves_the_storage_version_and_nothing_else() {
        let crd = json!({"spec": {"versions": [
            {"name": "v1", "storage": false}, {"name": "v2", "storage": true},
        ]}});
        assert_eq!(storage_version(&crd), Some("v2"));
        assert_eq!(storage_version(&flipped(&crd).unwrap()), Some("v1"));
        let single = json!({"spec": {"versions": [{"name": "v1", "storage": true}]}});
        assert_eq!(flipped(&single), None);
    }
}
