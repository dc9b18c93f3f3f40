//! Ends a migration though nobody works on it: a command that was cut off, a controller that is not there.
//!
//! # Guarantees
//! - The definition is let go first, then it is said that the migration is over. Whoever works on it after all finds that
//!   its status is another one, and stops.
//! - A freeze is lifted only if its migration is over, gone, or the one that is cancelled.

use kube::Client;
use meta::{GroupResource, time};

use super::definition;
use super::plan::CANCELLED;
use super::request::{Api, Migration};
use super::state::Phase;
use crate::error::{Chain, Error};
use crate::run::{Ctx, Now};

/// How often a write is tried when others write at the same time.
const TRIES: usize = 8;

/// Ends the migration of this key, `<group>/<name>`, as cancelled. One that has ended is left as it is.
///
/// # Errors
/// In the server's words, if it refuses.
pub async fn cancel(client: Client, now: Now, key: &str) -> Result<(), String> {
    let ctx = Ctx::bare(client, now);
    let Some((api, name)) = Api::of_key(key) else { return Err(format!("{key} is no migration")) };
    for _ in 0..TRIES {
        match end(&ctx, api, name).await {
            Err(error) if error.is(409) => {}
            other => return other.map_err(|it| it.text()),
        }
    }
    Err(format!("{name} changes too often to be cancelled"))
}

/// Lifts a freeze that was left behind on the definition of a resource. Whether there was one.
///
/// # Errors
/// In the server's words, if it refuses.
pub async fn thaw(client: Client, now: Now, resource: &GroupResource) -> Result<bool, String> {
    let ctx = Ctx::bare(client, now);
    let held = async {
        let Some(crd) = definition::get(&ctx, resource).await? else { return Ok(false) };
        let Some((api, name)) = definition::holder_of(&crd).and_then(Api::of_key) else { return Ok(false) };
        let found = api.collection().get(&ctx.client, name).await?;
        if found.is_some_and(|it| !Migration::read(api, it).run.phase.is_end()) {
            return Ok(false);
        }
        definition::lift(&ctx, &crd).await.map(|()| true)
    };
    held.await.map_err(|error: Error| Chain(&error).to_string())
}

async fn end(ctx: &Ctx, api: Api, name: &str) -> Result<(), Error> {
    let Some(object) = api.collection().get(&ctx.client, name).await? else { return Ok(()) };
    let mut migration = Migration::read(api, object);
    definition::unfreeze(ctx, &migration).await?;
    if !migration.run.phase.is_end() {
        let now = (ctx.now)();
        let mut run = migration.run.clone();
        run.enter(Phase::Aborted, CANCELLED, "somebody cancelled it");
        run.completion_time = Some(time::format_time(now));
        run.progress.estimated_completion_time = None;
        let mut written = migration.object.clone();
        written["status"] = migration.status(&run, now);
        let stored = api.collection().replace_subresource(&ctx.client, name, "status", &written).await?;
        migration = Migration::read(api, stored);
    }
    migration.drop_finalizer(ctx).await
}
