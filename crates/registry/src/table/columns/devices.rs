//! The columns of devices and of claims on them.

use meta::{Value, object};
use serde_json::json;

use super::{AGE, Column, NAME, age, at, found, items, shown, text};

pub(super) const CLAIMS: &[Column] = &[
    NAME,
    text("State", "A summary of the current state (allocated, pending, reserved, etc.).", |it, _| {
        json!(state(it))
    }),
    AGE,
];
pub(super) const SLICES: &[Column] = &[
    NAME,
    text(
        "Node",
        "NodeName identifies the node which provides the resources in this pool. A field selector can be used to list only ResourceSlice objects belonging to a certain node.\n\nThis field can be used to limit access from nodes to ResourceSlices with the same node name. It also indicates to autoscalers that adding new nodes of the same type as some old node might also make new resources available.\n\nExactly one of NodeName, NodeSelector, AllNodes, and PerDeviceNodeSelection must be set. This field is immutable.",
        |it, _| at(it, &["spec", "nodeName"]),
    ),
    text(
        "Driver",
        "Driver identifies the DRA driver providing the capacity information. A field selector can be used to list only ResourceSlice objects with a certain driver name.\n\nMust be a DNS subdomain and should end with a DNS domain owned by the vendor of the driver. It should use only lower case characters. This field is immutable.",
        |it, _| at(it, &["spec", "driver"]),
    ),
    text(
        "Pool",
        "Name is used to identify the pool. For node-local devices, this is often the node name, but this is not required.\n\nIt must not be longer than 253 characters and must consist of one or more DNS sub-domains separated by slashes. This field is immutable.",
        |it, _| at(it, &["spec", "pool", "name"]),
    ),
    AGE,
];
pub(super) const TAINT_RULES: &[Column] = &[
    NAME,
    text("Key", "The taint key to be applied to a device. Must be a label name.", |it, _| {
        at(it, &["spec", "taint", "key"])
    }),
    text("Value", "The taint value corresponding to the taint key. Must be a label value.", |it, _| {
        at(it, &["spec", "taint", "value"])
    }),
    text(
        "Effect",
        "The effect of the taint on claims that do not tolerate the taint and through such claims on the pods using them.\n\nValid effects are None, NoSchedule and NoExecute. PreferNoSchedule as used for nodes is not valid here. More effects may get added in the future. Consumers must treat unknown effects like None.",
        |it, _| at(it, &["spec", "taint", "effect"]),
    ),
    text(
        "TimeAdded",
        "TimeAdded represents the time at which the taint was added or (only in a DeviceTaintRule) the effect was modified. Added automatically during create or update if not set.\n\nIn addition, in a DeviceTaintRule a value provided during an update gets replaced with the current time if the provided value is the same as the old one and the new effect is different. Changing the key and/or value while keeping the effect unchanged is possible and does not update the time stamp because the eviction which uses it is either already started (NoExecute) or not started yet (NoEffect, NoSchedule).",
        |it, now| match shown(it, &["spec", "taint", "timeAdded"]) {
            "" => json!(""),
            time => json!(age(time, now)),
        },
    ),
    AGE,
];

fn state(claim: &Value) -> String {
    let is_allocated = found(claim, &["status", "allocation"]).is_some_and(|it| !it.is_null());
    let is_reserved = !items(claim, &["status", "reservedFor"]).is_empty();
    let mut states = Vec::new();
    match (object::is_deleting(claim), is_allocated) {
        (false, false) => states.push("pending"),
        (true, false) => states.push("deleted"),
        (true, true) => states.extend(["deleted", "allocated"]),
        (false, true) => states.push("allocated"),
    }
    if is_allocated && is_reserved {
        states.push("reserved");
    }
    states.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_show_how_far_they_are() {
        let allocated = json!({"status": {"allocation": {}, "reservedFor": [{}]}});
        assert_eq!(state(&json!({})), "pending");
        assert_eq!(state(&allocated), "allocated,reserved");
        let mut deleted = allocated;
        deleted["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(state(&deleted), "deleted,allocated,reserved");
    }
}
