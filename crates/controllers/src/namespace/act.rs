//! Deletes content, reports, and takes the finalizer off. Every write of the namespace is conditional on the version
//! of it that was read.

use futures_util::{StreamExt, stream};
use kube::Client;
use meta::{Fact, Value, object, time};
use tracing::{debug, info};

use super::observe::{AT_ONCE, Slim, collection};
use super::plan::{Resource, Seen};
use super::{conditions, plan};
use crate::error::Error;
use crate::justify::Justified;
use crate::run::Ctx;

/// Sets the phase, where the server has not.
pub(crate) async fn announce(ctx: &Ctx, namespace: Value) -> Result<Value, Error> {
    write_status(ctx, namespace, &[]).await
}

/// Writes what is known into the conditions.
pub(crate) async fn report(ctx: &Ctx, namespace: Value, seen: &Seen) -> Result<Value, Error> {
    write_status(ctx, namespace, &conditions::conditions(seen)).await
}

/// Deletes all of `resources`; they have to be looked at again.
pub(crate) async fn delete(ctx: &Ctx, uid: &str, seen: &mut Seen, resources: Vec<Resource>) {
    let (client, namespace) = (&ctx.client, &seen.namespace);
    // In the transaction of every single removal: the namespace may be freed by force and made anew at any moment.
    let why = &ctx.because([Fact::namespace_ends(namespace, uid)]);
    let deletions = resources.into_iter().map(|it| async move {
        debug!(namespace, resource = it.resource, group = it.group, "content is deleted");
        let outcome = delete_all(client, namespace, &it, why).await;
        (it, outcome.map_err(|it| it.text()))
    });
    let outcomes: Vec<_> = stream::iter(deletions).buffered(AT_ONCE).collect().await;
    for (resource, outcome) in outcomes {
        seen.content.remove(&resource);
        seen.deletions.insert(resource, outcome);
    }
}

/// Takes the finalizer off; the server removes the namespace if it was the last. Returns the namespace if it stays
/// because of what nobody serves.
pub(crate) async fn finish(ctx: &Ctx, namespace: Value, seen: &mut Seen) -> Result<Option<Value>, Error> {
    // Nobody could read the conditions of a namespace that is gone in a moment.
    let namespace =
        if plan::is_held_by_others(&namespace) { report(ctx, namespace, seen).await? } else { namespace };
    let name = object::name(&namespace).to_owned();
    let Some(finalized) = plan::finalized(namespace.clone()) else { return Ok(None) };
    match super::collection().finalize(&ctx.client, &name, &finalized, &ctx.because([])).await {
        Ok(()) => info!(namespace = name, "a deleted namespace is empty and finished"),
        Err(error) if error.is(404) => {}
        Err(error) if error.is_unserved_content() => {
            let why = error.text();
            debug!(namespace = name, why, "a namespace holds what nobody serves");
            seen.unserved = Some(why);
            return report(ctx, namespace, seen).await.map(Some);
        }
        Err(error) => return Err(error),
    }
    Ok(None)
}

async fn write_status(
    ctx: &Ctx,
    namespace: Value,
    conditions: &[conditions::Condition],
) -> Result<Value, Error> {
    let now = time::format_time((ctx.now)());
    match conditions::with_status(&namespace, conditions, &now) {
        None => Ok(namespace),
        Some(changed) => {
            let name = object::name(&changed);
            super::collection().replace_subresource(&ctx.client, name, "status", &changed).await
        }
    }
}

async fn delete_all(
    client: &Client,
    namespace: &str,
    resource: &Resource,
    why: &Justified,
) -> Result<(), Error> {
    if !resource.can_delete_collection {
        return delete_each(client, namespace, resource, why).await;
    }
    match collection(namespace, resource).delete_all(client, why).await {
        Err(error) if error.is(405) => delete_each(client, namespace, resource, why).await,
        outcome => outcome,
    }
}

async fn delete_each(
    client: &Client,
    namespace: &str,
    resource: &Resource,
    why: &Justified,
) -> Result<(), Error> {
    let collection = collection(namespace, resource);
    let mut token = None;
    loop {
        let (items, next) = collection.list_metadata::<Slim>(client, token.as_deref()).await?.open();
        token = next;
        for Slim { metadata } in items {
            match collection.delete(client, &metadata.name, metadata.exactly(), why).await {
                Err(error) if !error.is(404) && !error.is(409) => return Err(error),
                _ => {}
            }
        }
        if token.is_none() {
            return Ok(());
        }
    }
}
