//! All ClusterRoles; those that are only collected from are read down to what is collected.

use kube::Client;
use meta::{Value, object};

use crate::error::Error;

pub(crate) async fn observe(client: &Client) -> Result<Vec<Value>, Error> {
    let mut roles = Vec::new();
    let mut token = None;
    loop {
        let (items, next) = super::collection().list(client, token.as_deref()).await?.open();
        token = next;
        roles.extend(items.into_iter().map(slim));
        if token.is_none() {
            return Ok(roles);
        }
    }
}

/// Roles without an `aggregationRule` are never written, so the rest of them need not be held.
fn slim(mut role: Value) -> Value {
    if role.get("aggregationRule").is_some() {
        return role;
    }
    let metadata = object::metadata_mut(&mut role);
    metadata.retain(|field, _| field == "name" || field == "labels");
    role
}
