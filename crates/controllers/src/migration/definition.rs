//! The definition of a custom resource under migration: its storage version is frozen meanwhile (KEP-2855), and its
//! `status.storedVersions` narrowed at the end.
//!
//! # Guarantees
//! - The freeze ends by itself if nobody renews it, so that a migrator that dies leaves nothing behind for long.
//! - Versions leave `status.storedVersions` by name, on the condition that the definition is the one that was read, and
//!   whole lists are written: an empty one would be filled in by the server.
//! - They leave it only if the definition is in the state that it had when the last look at all objects began ([`Mark`]).
//!   A flip there and back leaves another generation behind, whatever is listed and whoever held the freeze meanwhile.

use jiff::{SignedDuration, Timestamp};
use meta::freeze::{FROZEN, FROZEN_BY, FROZEN_UNTIL, annotation, is_frozen, storage_version};
use meta::{GroupResource, Value, object, time};
use serde_json::json;
use tracing::info;

use super::request::Migration;
use crate::api::Collection;
use crate::error::Error;
use crate::run::Ctx;

/// How long a freeze lasts that nobody renews.
const LASTS: SignedDuration = SignedDuration::from_mins(5);
/// It is renewed when less is left.
const RENEWED_BELOW: SignedDuration = SignedDuration::from_mins(4);

/// What was changed so long ago is followed by every server, whatever clocks show.
const LONG_AGO: SignedDuration = SignedDuration::from_mins(10);

/// How often a write is tried when others change the definition at the same time.
const TRIES: usize = 8;

/// The state of a definition under which something was found out. Every change of its spec is another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    uid: String,
    generation: i64,
}

/// What became of a freeze.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// It is ours, and was ours since it was last looked after.
    Kept,
    /// It is ours now. Before, the storage version could be moved.
    Taken,
    /// Another migration has it.
    Others,
}

/// What became of an attempt to narrow `status.storedVersions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pruned {
    /// These versions left it.
    Done(Vec<String>),
    /// The storage version is another one by now.
    Moved(String),
    /// The definition was changed since the last look at all objects began.
    Changed,
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

/// Freezes it, or renews the freeze.
pub(super) async fn freeze(ctx: &Ctx, migration: &Migration, crd: &Value) -> Result<Hold, Error> {
    let now = (ctx.now)();
    let by = holder(migration);
    let hold = hold(crd, &by, now);
    if hold == Hold::Others || (hold == Hold::Kept && is_frozen(crd, now + RENEWED_BELOW)) {
        return Ok(hold);
    }
    let until = time::format_time(now + LASTS);
    let annotations = json!({FROZEN: "true", FROZEN_BY: by, FROZEN_UNTIL: until});
    annotate(ctx, crd, &annotations).await?;
    Ok(hold)
}

/// Whose freeze it is at a moment, before anything is done about it.
fn hold(crd: &Value, by: &str, now: Timestamp) -> Hold {
    match annotation(crd, FROZEN_BY) {
        _ if !is_frozen(crd, now) => Hold::Taken,
        Some(holder) if holder == by => Hold::Kept,
        Some(_) => Hold::Others,
        // Another tool's, without an end: it is taken over.
        None => Hold::Taken,
    }
}

/// Lets go of the definition if this migration holds it.
pub(super) async fn unfreeze(ctx: &Ctx, migration: &Migration) -> Result<(), Error> {
    for _ in 0..TRIES {
        let Some(crd) = get(ctx, &migration.resource).await? else { return Ok(()) };
        if annotation(&crd, FROZEN_BY) != Some(holder(migration).as_str()) {
            return Ok(());
        }
        match lift(ctx, &crd).await {
            Err(error) if error.is(409) => {}
            Err(error) if error.is(404) => return Ok(()),
            other => return other,
        }
    }
    Err(Error::Unknown("the definition changes too often to be let go".to_owned()))
}

/// Whose freeze a definition carries, whether it has run out or not.
pub(super) fn holder_of(crd: &Value) -> Option<&str> {
    annotation(crd, FROZEN).and(annotation(crd, FROZEN_BY))
}

/// Another program that migrates the objects of this definition: upstream's marks it with a condition.
pub(super) fn other_hand(crd: &Value) -> Option<&'static str> {
    let conditions = crd.pointer("/status/conditions").and_then(Value::as_array);
    let is_migrating = |it: &Value| it["type"] == "StorageMigrating" && it["status"] == "True";
    let found = conditions.into_iter().flatten().any(is_migrating);
    found.then_some("the migrator in kube-controller-manager")
}

/// Lifts the freeze of a definition, whoever made it.
pub(super) async fn lift(ctx: &Ctx, crd: &Value) -> Result<(), Error> {
    annotate(ctx, crd, &json!({FROZEN: null, FROZEN_BY: null, FROZEN_UNTIL: null})).await
}

/// Lifts every freeze that has run out. A policy has no clock: where one refuses, a freeze that was left behind would
/// hold for ever.
pub(super) async fn sweep(ctx: &Ctx) -> Result<(), Error> {
    let mut token = None;
    loop {
        let page = collection().list_metadata::<Value>(&ctx.client, token.as_deref()).await?;
        let (items, next) = page.open();
        let has_run_out = |it: &&Value| holder_of(it).is_some() && !is_frozen(it, (ctx.now)());
        for crd in items.iter().filter(has_run_out) {
            info!(definition = object::name(crd), "a freeze has run out and is lifted");
            match lift(ctx, crd).await {
                // Somebody looks after it.
                Err(error) if error.is(409) || error.is(404) => {}
                other => other?,
            }
        }
        token = next;
        if token.is_none() {
            return Ok(());
        }
    }
}

/// Whether every server refuses to move the storage version now: each is asked to, without meaning it. A server may not
/// know the policy yet, or any more.
pub(super) async fn is_enforced(ctx: &Ctx, crd: &Value) -> Result<bool, Error> {
    let Some(flipped) = flipped(crd) else { return Ok(true) };
    let mut clients = ctx.engine.as_ref().map(|it| it.clients()).unwrap_or_default();
    if clients.is_empty() {
        clients.push(ctx.client.clone());
    }
    for client in clients {
        match collection().dry_run(&client, object::name(crd), &flipped).await {
            Ok(()) => return Ok(false),
            Err(error) if error.is(409) || error.is(404) => return Err(error),
            Err(error @ Error::Refused { .. }) if !error.text().contains(FROZEN) => return Ok(false),
            Err(Error::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
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

/// Takes every version but the one in which everything is stored out of `status.storedVersions`, if the definition is as
/// it was when the last look at all objects began.
pub(super) async fn prune(
    ctx: &Ctx,
    resource: &GroupResource,
    version: &str,
    since: Option<&Mark>,
) -> Result<Pruned, Error> {
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
        // Asked at every try: a conflict may be the flip there and back that must not be missed.
        if since != Some(&mark(&crd)) {
            return Ok(Pruned::Changed);
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

/// The state that a definition is in.
pub(super) fn mark(crd: &Value) -> Mark {
    let generation = crd.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
    Mark { uid: object::uid(crd).to_owned(), generation }
}

/// Whether the spec is known not to have changed for long: everybody who wrote it did so long ago.
pub(super) fn is_long_unchanged(crd: &Value, now: Timestamp) -> bool {
    let managers = crd.pointer("/metadata/managedFields").and_then(Value::as_array);
    let of_spec = |it: &&Value| it["fieldsV1"].get("f:spec").is_some();
    let mut times = managers.into_iter().flatten().filter(of_spec);
    let is_old = |it: &Value| {
        let time = it["time"].as_str().and_then(time::parse_time);
        time.is_some_and(|it| it + LONG_AGO < now)
    };
    times.clone().next().is_some() && times.all(is_old)
}

async fn annotate(ctx: &Ctx, crd: &Value, annotations: &Value) -> Result<(), Error> {
    let version = object::resource_version(crd);
    let patch = json!({"metadata": {"resourceVersion": version, "annotations": annotations}});
    collection().patch(&ctx.client, object::name(crd), &patch, &ctx.because([])).await
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
    fn a_freeze_is_ours_somebody_elses_or_gone() {
        let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
        let frozen = |by: Option<&str>, until: &str| {
            let mut crd = json!({"metadata": {"annotations": {FROZEN: "true", FROZEN_UNTIL: until}}});
            if let Some(by) = by {
                crd["metadata"]["annotations"][FROZEN_BY] = json!(by);
            }
            crd
        };
        let (later, earlier) = ("2026-11-16T12:01:00Z", "2026-11-16T11:59:00Z");
        for (crd, expect) in [
            (json!({"metadata": {}}), Hold::Taken),
            (frozen(Some("us"), later), Hold::Kept),
            (frozen(Some("us"), earlier), Hold::Taken),
            (frozen(Some("them"), later), Hold::Others),
            (frozen(Some("them"), earlier), Hold::Taken),
            (frozen(None, later), Hold::Taken),
        ] {
            assert_eq!(hold(&crd, "us", now), expect, "{crd}");
        }
    }

    #[test]
    fn who_wrote_the_spec_says_since_when_it_is_as_it_is() {
        let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
        let (old, new) = ("2026-11-16T11:00:00Z", "2026-11-16T11:59:00Z");
        let by = |field: &str, time: &str| json!({"manager": "m", "time": time, "fieldsV1": {field: {}}});
        for (managers, expect) in [
            (json!([]), false),
            (json!([by("f:spec", old)]), true),
            (json!([by("f:spec", old), by("f:metadata", new), by("f:status", new)]), true),
            (json!([by("f:spec", old), by("f:spec", new)]), false),
            (json!([by("f:metadata", old)]), false),
            (json!([{"manager": "m", "fieldsV1": {"f:spec": {}}}]), false),
        ] {
            let crd = json!({"metadata": {"managedFields": managers}});
            assert_eq!(is_long_unchanged(&crd, now), expect, "{crd}");
        }
        assert!(!is_long_unchanged(&json!({"metadata": {}}), now));
    }

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
