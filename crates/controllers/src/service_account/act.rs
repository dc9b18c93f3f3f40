//! Makes the account.

use kube::Client;
use serde_json::json;

use super::NAME;
use crate::api::Collection;
use crate::error::Error;

pub(crate) async fn create(client: &Client, namespace: &str) -> Result<(), Error> {
    let accounts = Collection::namespaced("", "v1", namespace, "serviceaccounts");
    let account = json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": NAME, "namespace": namespace},
    });
    match accounts.create(client, &account).await {
        // Somebody else was faster, or the namespace is gone or going.
        Err(error) if error.is(409) || error.is(404) || error.is_namespace_terminating() => Ok(()),
        outcome => outcome,
    }
}
