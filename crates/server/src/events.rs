//! Events that the server itself writes, in `events.k8s.io/v1`.

use std::sync::Arc;

use meta::{GroupResource, GroupVersion, Status, Value, time::format_micro_time};
use registry::{Anything, Registry, Target, WriteOptions};
use schema::check::FieldValidation;
use serde_json::json;

/// Who reports.
const CONTROLLER: &str = "convoy.dev/apiserver";

/// The longest text of an Event, as upstream's rules allow.
const MAX_NOTE: usize = 1024;

/// Something that happened.
pub(crate) struct Event<'a> {
    pub(crate) regarding: Regarding<'a>,
    pub(crate) reason: &'a str,
    pub(crate) action: &'a str,
    pub(crate) is_warning: bool,
    pub(crate) note: &'a str,
}

/// What it happened to.
pub(crate) struct Regarding<'a> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

/// Whether the same is told by an Event that is still there.
pub(crate) fn is_there(registry: &Registry, event: &Event<'_>) -> bool {
    let resource = GroupResource::new("events.k8s.io", "events");
    let kind = registry.kinds().get(&resource);
    let Some(collection) = kind.as_ref().and_then(|it| it.collection()) else { return false };
    let namespace = namespace_of(&event.regarding);
    let prefix = format!("{}{namespace}/{}-", collection.spec().prefix, name_of(event.regarding.name));
    let note: String = event.note.chars().take(MAX_NOTE).collect();
    let Ok(snapshot) = collection.snapshot() else { return false };
    // At worst the same is told twice.
    let mut items = snapshot.readable(&prefix, None);
    items.any(|it| {
        let Ok(object) = serde_json::from_slice::<Value>(it.text()) else { return false };
        // As stored: the older version of the kind has other names for the same.
        let said = object.get("note").or_else(|| object.get("message")).and_then(Value::as_str);
        object["reason"] == event.reason && said == Some(&note)
    })
}

/// Writes an Event into the namespace of what it is about, or into `default`.
pub(crate) async fn write(registry: &Arc<Registry>, event: &Event<'_>) -> Result<(), Status> {
    let Event { regarding, reason, action, is_warning, note } = event;
    let resource = GroupResource::new("events.k8s.io", "events");
    let kind = registry.kinds().get(&resource).ok_or_else(Status::no_such_resource)?;
    let namespace = namespace_of(regarding);
    let mut about = json!({
        "apiVersion": regarding.api_version, "kind": regarding.kind, "name": regarding.name,
    });
    if !regarding.namespace.is_empty() {
        about["namespace"] = Value::from(regarding.namespace);
    }
    let note: String = note.chars().take(MAX_NOTE).collect();
    let object = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": format!("{}-", name_of(regarding.name)), "namespace": namespace},
        "eventTime": format_micro_time(registry.clock().now()),
        "reportingController": CONTROLLER,
        "reportingInstance": registry.station().identity().as_str(),
        "action": action,
        "reason": reason,
        "regarding": about,
        "note": note,
        "type": if *is_warning { "Warning" } else { "Normal" },
    });
    let target = Target {
        kind,
        group_version: GroupVersion::new("events.k8s.io", "v1"),
        namespace: namespace.to_owned(),
        name: String::new(),
        subresource: String::new(),
    };
    let options = WriteOptions {
        dry_run: false,
        manager: "kube-apiserver",
        field_validation: FieldValidation::Ignore,
        admit: &Anything,
        grounds: &meta::Grounds::asked_for(),
    };
    registry.create(&target, &options, object).await.map(|_| ())
}

fn namespace_of<'a>(regarding: &Regarding<'a>) -> &'a str {
    if regarding.namespace.is_empty() { "default" } else { regarding.namespace }
}

/// A name may be longer than the prefix of a generated one.
fn name_of(name: &str) -> String {
    name.chars().take(200).collect()
}
