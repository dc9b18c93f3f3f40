//! What is there now, read from the server and not from what watches said.

use kube::Client;
use meta::Value;

use super::NAME;
use crate::api::Collection;
use crate::error::Error;

pub(crate) struct Seen {
    /// Not read where the account is there.
    pub(crate) namespace: Option<Value>,
    pub(crate) has_account: bool,
}

pub(crate) async fn observe(client: &Client, namespace: &str) -> Result<Seen, Error> {
    let accounts = Collection::namespaced("", "v1", namespace, "serviceaccounts");
    if accounts.get(client, NAME).await?.is_some() {
        return Ok(Seen { namespace: None, has_account: true });
    }
    let namespace = Collection::cluster("", "v1", "namespaces").get(client, namespace).await?;
    Ok(Seen { namespace, has_account: false })
}
