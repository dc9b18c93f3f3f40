//! The identity of every server as a Lease in `kube-system`, for people and tools: who is there, of which release.
//!
//! Nothing is decided by it; membership is the station's. As upstream's, with a few more annotations. The eldest member
//! removes the Leases of servers that are gone.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use meta::{Grounds, GroupResource, GroupVersion, Status, Value, object, time::format_micro_time};
use registry::{Anything, DeleteOptions, Preconditions, Registry, Target, WriteOptions};
use schema::check::FieldValidation;
use serde_json::json;

/// As upstream.
const EVERY: Duration = Duration::from_secs(10);
/// After a failure.
const RETRY: Duration = Duration::from_millis(200);
const DURATION_SECONDS: i64 = 3600;
const NAMESPACE: &str = "kube-system";

/// What marks a Lease as a server's identity.
pub(crate) const LABEL: &str = "apiserver.kubernetes.io/identity";
pub(crate) const COMPONENT: &str = "kube-apiserver";

/// Leases with this annotation follow the membership; others expire.
const INCARNATION: &str = "convoy.dev/incarnation";

/// Keeps the Lease of this server until the task is dropped.
pub(crate) async fn keep(registry: Arc<Registry>, hostname: String) {
    loop {
        registry.station().joined().await;
        let pause = match publish(&registry, &hostname).await {
            Ok(()) => EVERY,
            Err(status) => {
                tracing::debug!(%status, "the identity's Lease could not be written");
                RETRY
            }
        };
        registry.clock().sleep(pause).await;
    }
}

/// Removes the Leases of servers that are gone, until the task is dropped.
pub(crate) async fn collect(registry: Arc<Registry>) {
    let mut changes = registry.station().changes();
    loop {
        tokio::select! {
            () = registry.clock().sleep(EVERY) => {}
            changed = changes.changed() => if changed.is_err() { return },
        }
        remove_departed(&registry).await;
    }
}

/// Removes the Lease of a server that stops.
pub(crate) async fn remove(registry: &Registry) {
    let name = registry.station().identity().to_string();
    let Ok(target) = target(registry, &name) else { return };
    // Another server may have taken the name over by now: its Lease names another holder.
    let Ok(item) = registry.item(&target) else { return };
    let Ok(lease) = serde_json::from_slice::<Value>(item.text()) else { return };
    if lease["spec"]["holderIdentity"] != holder(registry) {
        return;
    }
    let options = DeleteOptions::exactly(&lease);
    if let Err(status) = registry.delete(&target, &options, &Anything, &Grounds::asked_for()).await
        && !matches!(status.code, 404 | 409)
    {
        tracing::debug!(%status, "the identity's Lease could not be removed");
    }
}

async fn publish(registry: &Registry, hostname: &str) -> Result<(), Status> {
    let station = registry.station();
    let name = station.identity().to_string();
    let target = target(registry, &name)?;
    let options = WriteOptions {
        dry_run: false,
        manager: COMPONENT,
        field_validation: FieldValidation::Ignore,
        admit: &Anything,
        grounds: &Grounds::asked_for(),
    };
    match registry.get(&target, "").await {
        Err(status) if status.code == 404 => {
            let mut lease = json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": NAMESPACE},
            });
            describe(registry, hostname, &mut lease);
            registry.create(&target, &options, lease).await.map(|_| ())
        }
        Err(status) => Err(status),
        Ok(text) => {
            let mut lease: Value = serde_json::from_slice(&text).map_err(Status::internal)?;
            describe(registry, hostname, &mut lease);
            registry.update(&target, &options, lease).await.map(|_| ())
        }
    }
}

/// This very process, as its Lease names it.
fn holder(registry: &Registry) -> String {
    format!("{}_{}", registry.station().identity(), registry.station().incarnation())
}

/// What the Lease says of this server. The holder is this process, also where another one made the Lease.
fn describe(registry: &Registry, hostname: &str, lease: &mut Value) {
    let station = registry.station();
    let config = station.config();
    let now = format_micro_time(registry.clock().now());
    let mut annotations = vec![
        (INCARNATION, station.incarnation().to_string()),
        ("apiserver.kubernetes.io/binary-version", config.release.to_string()),
        ("apiserver.kubernetes.io/emulation-version", config.emulated.to_string()),
        ("apiserver.kubernetes.io/min-compatibility-version", config.min_compatible.to_string()),
    ];
    if let Some(address) = &config.peer_address {
        annotations.push(("kubernetes.io/peer-advertise-address", address.clone()));
    }
    let metadata = object::metadata_mut(lease);
    let labels = object::child_mut(metadata, "labels");
    labels.insert(LABEL.to_owned(), COMPONENT.into());
    labels.insert("kubernetes.io/hostname".to_owned(), hostname.into());
    let shown = object::child_mut(metadata, "annotations");
    for (name, value) in annotations {
        shown.insert(name.to_owned(), value.into());
    }
    lease["spec"] = json!({
        "holderIdentity": holder(registry),
        "leaseDurationSeconds": DURATION_SECONDS,
        "renewTime": now,
    });
}

/// Removes the Leases of servers that were members and are no longer, and those that have expired.
async fn remove_departed(registry: &Registry) {
    // Only a list of the members proves that somebody is none: the Lease may be known sooner than its server.
    if !registry.station().is_eldest()
        || departed(registry).is_empty()
        || registry.station().catch_up().await.is_err()
    {
        return;
    }
    for (name, uid, version) in departed(registry) {
        let Ok(target) = target(registry, &name) else { return };
        let preconditions = Some(Preconditions { uid: Some(uid), resource_version: Some(version) });
        let options = DeleteOptions { preconditions, ..DeleteOptions::default() };
        match registry.delete(&target, &options, &Anything, &Grounds::asked_for()).await {
            Ok(_) => tracing::info!(name, "the Lease of a server that is gone was removed"),
            Err(status) => tracing::debug!(%status, name, "the Lease of a server could not be removed"),
        }
    }
}

/// Name, uid and resourceVersion of Leases whose servers are gone.
fn departed(registry: &Registry) -> Vec<(String, String, String)> {
    let Ok(target) = target(registry, "") else { return Vec::new() };
    let Some(collection) = target.kind.collection() else { return Vec::new() };
    let Ok(snapshot) = collection.snapshot() else { return Vec::new() };
    let prefix = format!("{}{NAMESPACE}/", collection.spec().prefix);
    let (members, is_complete) = registry.station().members();
    let now = registry.clock().now();
    // What cannot be read is nobody's Lease, and stays.
    let items = snapshot.readable(&prefix, None);
    let is_gone = |item: &cache::Item| {
        let Ok(lease) = serde_json::from_slice::<Value>(item.text()) else { return false };
        let text = |path: &str| lease.pointer(path).and_then(Value::as_str).unwrap_or_default();
        if text("/metadata/labels/apiserver.kubernetes.io~1identity") != COMPONENT {
            return false;
        }
        match text("/metadata/annotations/convoy.dev~1incarnation") {
            "" => has_expired(&lease, now),
            incarnation => {
                let member = members.get(&fleet::Identity::new(item.name()));
                is_complete && member.is_none_or(|it| it.incarnation.as_str() != incarnation)
            }
        }
    };
    items
        .filter(|it| is_gone(it))
        .map(|it| (it.name().to_owned(), it.uid().to_owned(), it.revision().to_string()))
        .collect()
}

/// As upstream judges Leases: what does not say how long it lasts has expired.
fn has_expired(lease: &Value, now: Timestamp) -> bool {
    let renewed = lease.pointer("/spec/renewTime").and_then(Value::as_str);
    let renewed: Option<Timestamp> = renewed.and_then(|it| it.parse().ok());
    let seconds = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64);
    let end = renewed.zip(seconds).and_then(|(at, it)| at.checked_add(SignedDuration::from_secs(it)).ok());
    end.is_none_or(|it| it < now)
}

fn target(registry: &Registry, name: &str) -> Result<Target, Status> {
    let resource = GroupResource::new("coordination.k8s.io", "leases");
    Ok(Target {
        kind: registry.kinds().get(&resource).ok_or_else(Status::no_such_resource)?,
        group_version: GroupVersion::new("coordination.k8s.io", "v1"),
        namespace: NAMESPACE.to_owned(),
        name: name.to_owned(),
        subresource: String::new(),
    })
}
