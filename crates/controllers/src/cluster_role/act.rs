//! Writes roles whose rules have changed.

use meta::{Value, object};
use tracing::debug;

use crate::error::Error;
use crate::run::Ctx;

/// Tries all of them; returns the first failure.
pub(crate) async fn replace(ctx: &Ctx, roles: Vec<Value>) -> Result<(), Error> {
    let mut outcome = Ok(());
    // A leader that slept would grant anew what was taken away meanwhile.
    let why = ctx.because([]);
    for role in roles {
        let name = object::name(&role);
        debug!(name, "an aggregated ClusterRole gets new rules");
        match super::collection().replace_because(&ctx.client, name, &role, &why).await {
            Ok(()) => {}
            // Deleted meanwhile.
            Err(error) if error.is(404) => {}
            Err(error) => outcome = outcome.and(Err(error)),
        }
    }
    outcome
}
