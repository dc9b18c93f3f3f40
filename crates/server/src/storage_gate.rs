//! Whether a write may pass while the version it would be stored in is not reported yet. Upstream's barrier.

use fleet::gate::{self, Asked};
use meta::{GroupResource, Status};

use crate::chain::{Caller, Chain, Exchange};

/// 503 if not. What passes here can still fail its fence.
pub(crate) fn step(chain: &Chain, exchange: &Exchange, caller: &Caller) -> Result<(), Status> {
    let Some(path) = &exchange.info.resource else { return Ok(()) };
    // Reads always pass, so nothing is looked up for them.
    if matches!(exchange.info.verb, "get" | "list" | "watch") {
        return Ok(());
    }
    let dispatch = &chain.dispatch;
    let Some(definition) = dispatch.catalog.definition(&path.group, &path.resource) else { return Ok(()) };
    let gate = dispatch.registry.station().gate(&definition.record);
    if gate == gate::Gate::Open {
        return Ok(());
    }
    let resource = GroupResource::new(path.group.as_str(), path.resource.as_str());
    let user = &caller.user;
    let asked = Asked {
        verb: exchange.info.verb,
        resource: Some(&resource),
        namespace: &path.namespace,
        is_server: user.name == "system:apiserver" && user.is_in("system:masters"),
    };
    gate::check(&gate, &asked).map_err(|it| Status::unavailable(it.to_string(), it.retry_after()))
}
