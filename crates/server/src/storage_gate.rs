//! Whether a write may pass while the version it would be stored in is not reported yet. Upstream's barrier.

use fleet::gate::{self, Asked, Gate, Shut};
use meta::{GroupResource, Status};

use crate::chain::{Caller, Chain, Exchange};

/// 503 if not. What passes here can still fail its fence.
pub(crate) fn step(chain: &Chain, exchange: &Exchange, caller: &Caller) -> Result<(), Status> {
    let Some((_, gate)) = shut(chain, exchange) else { return Ok(()) };
    checked(&gate, exchange, caller).map_err(|it| Status::unavailable(it.to_string(), it.retry_after()))
}

/// The record for which a write must wait here.
pub(crate) fn closed(chain: &Chain, exchange: &Exchange, caller: &Caller) -> Option<GroupResource> {
    let (record, gate) = shut(chain, exchange)?;
    checked(&gate, exchange, caller).is_err().then_some(record)
}

/// The gate of what a write is about, if it is not open.
fn shut(chain: &Chain, exchange: &Exchange) -> Option<(GroupResource, Gate)> {
    let path = exchange.info.resource.as_ref()?;
    // Reads always pass, so nothing is looked up for them.
    if matches!(exchange.info.verb, "get" | "list" | "watch") {
        return None;
    }
    let dispatch = &chain.dispatch;
    let definition = dispatch.catalog.definition(&path.group, &path.resource)?;
    let gate = dispatch.registry.station().gate(&definition.record);
    (gate != Gate::Open).then(|| (definition.record.clone(), gate))
}

fn checked(gate: &Gate, exchange: &Exchange, caller: &Caller) -> Result<(), Shut> {
    let Some(path) = &exchange.info.resource else { return Ok(()) };
    let resource = GroupResource::new(path.group.as_str(), path.resource.as_str());
    let user = &caller.user;
    let asked = Asked {
        verb: exchange.info.verb,
        resource: Some(&resource),
        namespace: &path.namespace,
        is_server: user.name == "system:apiserver" && user.is_in("system:masters"),
    };
    gate::check(gate, &asked)
}
