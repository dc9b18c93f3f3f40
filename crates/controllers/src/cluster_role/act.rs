//! Writes roles whose rules have changed.

use kube::Client;
use meta::{Value, object};
use tracing::debug;

use crate::error::Error;

/// Tries all of them; returns the first failure.
pub(crate) async fn replace(client: &Client, roles: Vec<Value>) -> Result<(), Error> {
    let mut outcome = Ok(());
    for role in roles {
        let name = object::name(&role);
        debug!(name, "an aggregated ClusterRole gets new rules");
        match super::collection().replace(client, name, &role).await {
            Ok(_) => {}
            // Deleted meanwhile.
            Err(error) if error.is(404) => {}
            Err(error) => outcome = outcome.and(Err(error)),
        }
    }
    outcome
}
