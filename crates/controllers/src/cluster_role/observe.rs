//! All ClusterRoles.

use kube::Client;
use meta::Value;

use crate::error::Error;

pub(crate) async fn observe(client: &Client) -> Result<Vec<Value>, Error> {
    let mut roles = Vec::new();
    let mut token = None;
    loop {
        let (items, next) = super::collection().list(client, token.as_deref()).await?.open();
        token = next;
        roles.extend(items);
        if token.is_none() {
            return Ok(roles);
        }
    }
}
