//! Whether a write may pass while the version it would be stored in is not reported yet. Upstream's barrier.

use fleet::gate::{self, Asked, Gate, Shut};
use meta::{GroupResource, RetryAfter, Status};

use crate::{authorize::Authorized, chain::Chain};

/// 503 if not. What passes here can still fail its fence.
pub(crate) fn step(chain: &Chain, asked: &Authorized<'_>) -> Result<(), Status> {
    let Some((_, gate)) = shut(chain, asked) else { return Ok(()) };
    checked(&gate, asked)
        .map_err(|it| Status::unavailable(it.to_string(), RetryAfter::not_begun(it.retry_after())))
}

/// The record for which a write must wait here.
pub(crate) fn closed(chain: &Chain, asked: &Authorized<'_>) -> Option<GroupResource> {
    let (record, gate) = shut(chain, asked)?;
    checked(&gate, asked).is_err().then_some(record)
}

/// The gate of what a write is about, if it is not open.
fn shut(chain: &Chain, asked: &Authorized<'_>) -> Option<(GroupResource, Gate)> {
    let path = asked.resource()?;
    // Reads always pass, so nothing is looked up for them.
    if matches!(asked.verb(), "get" | "list" | "watch") {
        return None;
    }
    let dispatch = &chain.dispatch;
    let definition = dispatch.catalog.definition(&path.group, &path.resource)?;
    let gate = dispatch.registry.station().gate(&definition.record);
    (gate != Gate::Open).then(|| (definition.record.clone(), gate))
}

fn checked(gate: &Gate, request: &Authorized<'_>) -> Result<(), Shut> {
    let Some(path) = request.resource() else { return Ok(()) };
    let resource = GroupResource::new(path.group.as_str(), path.resource.as_str());
    let user = &request.caller().user;
    let asked = Asked {
        verb: request.verb(),
        resource: Some(&resource),
        namespace: &path.namespace,
        is_server: user.name == "system:apiserver" && user.is_in("system:masters"),
    };
    gate::check(gate, &asked)
}
