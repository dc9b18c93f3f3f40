//! Identity Leases of API servers that are gone.
//!
//! Deliberately not here: Events. The server stores them with a time to live (`--event-ttl`).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use meta::{Value, object, time};
use tracing::{info, warn};

use crate::api::{Collection, Exactly};
use crate::error::{Chain, Error};
use crate::run::Ctx;

const LABELS: &str = "apiserver.kubernetes.io/identity=kube-apiserver";
/// Between two looks.
const PAUSE: Duration = Duration::from_secs(600);
/// The same after a failure.
const PAUSE_IN_TROUBLE: Duration = Duration::from_secs(30);

pub(crate) async fn run(ctx: Ctx) {
    loop {
        let pause = match pass(&ctx).await {
            Ok(()) => PAUSE,
            Err(error) => {
                warn!(error = %Chain(&error), "expired leases could not be deleted");
                PAUSE_IN_TROUBLE
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn pass(ctx: &Ctx) -> Result<(), Error> {
    let leases = Collection::namespaced("coordination.k8s.io", "v1", "kube-system", "leases");
    let mut token = None;
    loop {
        let (items, next) =
            leases.list_where::<Value>(&ctx.client, "", LABELS, token.as_deref()).await?.open();
        token = next;
        for lease in items.iter().filter(|it| is_expired(it, (ctx.now)())) {
            let name = object::name(lease);
            info!(lease = name, "an expired identity lease is deleted");
            // A server that comes back renews it and changes its resourceVersion by that.
            let outcome = leases.delete(&ctx.client, name, Exactly::of(lease), &ctx.because([])).await;
            match outcome {
                Err(error) if !error.is(404) && !error.is(409) => return Err(error),
                _ => {}
            }
        }
        if token.is_none() {
            return Ok(());
        }
    }
}

fn is_expired(lease: &Value, now: Timestamp) -> bool {
    let spec = |field: &str| lease.get("spec").and_then(|it| it.get(field));
    let renewed = spec("renewTime").and_then(Value::as_str).and_then(time::parse_time);
    let seconds = spec("leaseDurationSeconds").and_then(Value::as_i64);
    match (renewed, seconds) {
        (Some(renewed), Some(seconds)) => {
            renewed.saturating_add(SignedDuration::from_secs(seconds)).is_ok_and(|it| it < now)
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lease_expires_after_its_duration() {
        let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
        let lease = |renewed: &str| json!({"spec": {"renewTime": renewed, "leaseDurationSeconds": 3600}});
        assert!(!is_expired(&lease("2026-11-16T11:00:00.000001Z"), now));
        assert!(is_expired(&lease("2026-11-16T10:59:59.999999Z"), now));
        assert!(is_expired(&json!({"spec": {}}), now));
        assert!(is_expired(&json!({}), now));
    }
}
