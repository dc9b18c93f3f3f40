//! Empties namespaces that are being deleted, and then lets them go.
//!
//! # Flow
//! A namespace with a `deletionTimestamp` and `kubernetes` among its `spec.finalizers` is worked on: find every
//! namespaced resource by discovery, delete the pods, when they are gone everything else, and when nothing is left
//! take the finalizer off. What holds this up is written into the namespace's conditions, in upstream's words.
//!
//! # Guarantees
//! - A namespace that is not being deleted is never touched.
//! - Nothing is deleted and nothing finished unless discovery is complete. A resource that cannot be listed, for
//!   whatever reason, counts as unknown, and a namespace with an unknown in it stays.
//! - What is stored and served by nobody is seen by the server alone: it refuses to let the namespace go, and says why.
//! - Every single removal requires, in its own transaction, that the namespace with this uid is still being deleted and
//!   still waits for us, and that we lead: whoever was paused or cut off removes nothing of a namespace that was made anew.
//! - A pass remembers nothing. It can be cut off anywhere, repeated, and run by several servers at once.
//!
//! # Assumptions
//! The server stores no new object in a namespace that is being deleted: it requires that when it commits.

mod act;
mod conditions;
mod content;
mod observe;
mod plan;

use std::time::Duration;

use futures_util::StreamExt;
use meta::{Value, object, time};

use crate::api::Collection;
use crate::changes::{Change, Watched, changes};
use crate::error::Error;
use crate::run::Ctx;
use crate::selection::Controller;
use crate::work::{AT_ONCE, Next, work};
use plan::{Plan, Seen, Waiting};

const NAMESPACES: Watched =
    Watched { group: "", version: "v1", kind: "Namespace", resource: "namespaces", fields: "" };

pub(crate) async fn run(ctx: Ctx) {
    let triggers = changes(&ctx.client, NAMESPACES).filter_map(|it| {
        let name = match it {
            Change::Listed(object) | Change::Applied(object) if object.is_deleting => Some(object.name),
            Change::Listed(_)
            | Change::Applied(_)
            | Change::Deleted(_)
            | Change::ListBegins
            | Change::ListEnds => None,
        };
        std::future::ready(name)
    });
    work(ctx.counted(Controller::Namespace), AT_ONCE, triggers, |it| reconcile(ctx.clone(), it)).await;
}

/// One pass over one namespace.
async fn reconcile(ctx: Ctx, name: String) -> Result<Next, Error> {
    let Some(namespace) = collection().get(&ctx.client, &name).await? else { return Ok(Next::OnChange) };
    if !plan::is_due(&namespace) {
        return Ok(Next::OnChange);
    }
    let namespace = act::announce(&ctx, namespace).await?;
    let mut seen = Seen::new(&name, content::discover(&ctx.client).await);
    loop {
        match plan::plan(&seen) {
            Plan::Look(resources) => observe::look(&ctx.client, &mut seen, resources).await,
            Plan::Delete(resources) => {
                act::delete(&ctx, object::uid(&namespace), &mut seen, resources).await;
            }
            Plan::Wait(waiting) => {
                let namespace = act::report(&ctx, namespace, &seen).await?;
                return match waiting {
                    Waiting::ForContent => Ok(Next::After(plan::pause(age(&ctx, &namespace)))),
                    Waiting::ForKnowledge(why) => Err(Error::Unknown(why)),
                };
            }
            Plan::Finish => {
                let held = act::finish(&ctx, namespace, &mut seen).await?;
                // It may be served again at any time, or removed: no change would tell.
                return Ok(held.map_or(Next::OnChange, |it| Next::After(plan::pause(age(&ctx, &it)))));
            }
        }
    }
}

fn collection() -> Collection {
    Collection::cluster("", "v1", "namespaces")
}

/// How long ago the namespace was deleted, by the clocks of two machines that may disagree.
fn age(ctx: &Ctx, namespace: &Value) -> Duration {
    let since = time::parse_time(object::meta_text(namespace, "deletionTimestamp"));
    let seconds = since.map_or(0, |it| (ctx.now)().as_second().saturating_sub(it.as_second()));
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}
