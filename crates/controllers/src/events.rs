//! Events that people read with `kubectl describe`.

use meta::{Value, time};
use serde_json::json;
use tracing::debug;

use crate::api::Collection;
use crate::error::Chain;
use crate::run::Ctx;

/// What is said about an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    /// Who says it.
    pub(crate) component: &'a str,
    pub(crate) is_warning: bool,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

/// Writes an Event about the object that `involved` refers to. Nothing depends on it, so a failure is only logged.
pub(crate) async fn record(ctx: &Ctx, involved: Value, record: &Record<'_>) {
    let now = (ctx.now)();
    let text = |field: &str| involved.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    // As upstream: what is outside of namespaces is reported in `default`.
    let namespace =
        Some(text("namespace")).filter(|it| !it.is_empty()).unwrap_or_else(|| "default".to_owned());
    let name = format!("{}.{:x}", text("name"), now.as_nanosecond());
    let when = time::format_time(now);
    let event = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": involved,
        "reason": record.reason, "message": record.message,
        "source": {"component": record.component},
        "reportingComponent": record.component, "reportingInstance": "",
        "type": if record.is_warning { "Warning" } else { "Normal" },
        "firstTimestamp": when, "lastTimestamp": when, "count": 1,
    });
    if let Err(error) =
        Collection::namespaced("", "v1", &namespace, "events").create(&ctx.client, &event).await
    {
        debug!(reason = record.reason, error = %Chain(&error), "an event could not be written");
    }
}
