//! The columns of volumes, claims and their classes.

use meta::{Value, object};
use serde_json::json;

use super::{AGE, Column, NAME, at, found, items, or_else, shown, text, wide};

const ABOUT_MODE: &str = "volumeMode defines what type of volume is required by the claim. Value of Filesystem is implied when not included in claim spec.";

pub(super) const VOLUMES: &[Column] = &[
    NAME,
    text(
        "Capacity",
        "capacity is the description of the persistent volume's resources and capacity. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#capacity",
        |it, _| at(it, &["spec", "capacity", "storage"]),
    ),
    text(
        "Access Modes",
        "accessModes contains all ways the volume can be mounted. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#access-modes",
        |it, _| json!(modes(items(it, &["spec", "accessModes"]))),
    ),
    text(
        "Reclaim Policy",
        "persistentVolumeReclaimPolicy defines what happens to a persistent volume when released from its claim. Valid options are Retain (default for manually created PersistentVolumes), Delete (default for dynamically provisioned PersistentVolumes), and Recycle (deprecated). Recycle must be supported by the volume plugin underlying this PersistentVolume. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#reclaiming",
        |it, _| at(it, &["spec", "persistentVolumeReclaimPolicy"]),
    ),
    text(
        "Status",
        "status represents the current information/status for the persistent volume. Populated by the system. Read-only. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#persistent-volumes",
        |it, _| json!(phase(it)),
    ),
    text(
        "Claim",
        "claimRef is part of a bi-directional binding between PersistentVolume and PersistentVolumeClaim. Expected to be non-nil when bound. claim.VolumeName is the authoritative bind between PV and PVC. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#binding",
        |it, _| match found(it, &["spec", "claimRef"]).filter(|it| it.is_object()) {
            Some(claim) => json!(format!("{}/{}", shown(claim, &["namespace"]), shown(claim, &["name"]))),
            None => json!(""),
        },
    ),
    text("StorageClass", "StorageClass of the pv", |it, _| json!(class(it))),
    text(
        "VolumeAttributesClass",
        "Name of VolumeAttributesClass to which this persistent volume belongs. Empty value is not allowed. When this field is not set, it indicates that this volume does not belong to any VolumeAttributesClass. This field is mutable and can be changed by the CSI driver after a volume has been updated successfully to a new class. For an unbound PersistentVolume, the volumeAttributesClassName will be matched with unbound PersistentVolumeClaims during the binding process.",
        |it, _| unset(it, "volumeAttributesClassName"),
    ),
    text(
        "Reason",
        "reason is a brief CamelCase string that describes any failure and is meant for machine parsing and tidy display in the CLI.",
        |it, _| at(it, &["status", "reason"]),
    ),
    AGE,
    wide("VolumeMode", ABOUT_MODE, |it, _| unset(it, "volumeMode")),
];
pub(super) const CLAIMS: &[Column] = &[
    NAME,
    text("Status", "phase represents the current phase of PersistentVolumeClaim.", |it, _| json!(phase(it))),
    text(
        "Volume",
        "volumeName is the binding reference to the PersistentVolume backing this claim.",
        |it, _| at(it, &["spec", "volumeName"]),
    ),
    text("Capacity", "capacity represents the actual resources of the underlying volume.", |it, _| {
        if is_bound(it) { at(it, &["status", "capacity", "storage"]) } else { json!("") }
    }),
    text(
        "Access Modes",
        "accessModes contains the actual access modes the volume backing the PVC has. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#access-modes-1",
        |it, _| {
            json!(if is_bound(it) { modes(items(it, &["status", "accessModes"])) } else { String::new() })
        },
    ),
    text("StorageClass", "StorageClass of the pvc", |it, _| json!(class(it))),
    text(
        "VolumeAttributesClass",
        "volumeAttributesClassName may be used to set the VolumeAttributesClass used by this claim.",
        |it, _| unset(it, "volumeAttributesClassName"),
    ),
    AGE,
    wide("VolumeMode", ABOUT_MODE, |it, _| unset(it, "volumeMode")),
];
pub(super) const CLASSES: &[Column] = &[
    Column {
        cell: |it, _| {
            let is_default = [
                "storageclass.kubernetes.io/is-default-class",
                "storageclass.beta.kubernetes.io/is-default-class",
            ]
            .iter()
            .any(|key| shown(it, &["metadata", "annotations", key]) == "true");
            let name = object::name(it);
            if is_default { json!(format!("{name} (default)")) } else { json!(name) }
        },
        ..NAME
    },
    text("Provisioner", "provisioner indicates the type of the provisioner.", |it, _| {
        at(it, &["provisioner"])
    }),
    text(
        "ReclaimPolicy",
        "reclaimPolicy controls the reclaimPolicy for dynamically provisioned PersistentVolumes of this storage class. Defaults to Delete.",
        |it, _| json!(or_else(shown(it, &["reclaimPolicy"]).to_owned(), "Delete")),
    ),
    text(
        "VolumeBindingMode",
        "volumeBindingMode indicates how PersistentVolumeClaims should be provisioned and bound. When unset, VolumeBindingImmediate is used. This field is only honored by servers that enable the VolumeScheduling feature.",
        |it, _| json!(or_else(shown(it, &["volumeBindingMode"]).to_owned(), "Immediate")),
    ),
    text(
        "AllowVolumeExpansion",
        "allowVolumeExpansion shows whether the storage class allow volume expand.",
        |it, _| json!(found(it, &["allowVolumeExpansion"]) == Some(&Value::Bool(true))),
    ),
    AGE,
];

fn is_bound(claim: &Value) -> bool {
    !shown(claim, &["spec", "volumeName"]).is_empty()
}

fn phase(object: &Value) -> &str {
    if object::is_deleting(object) { "Terminating" } else { shown(object, &["status", "phase"]) }
}

/// The annotation is what came before the field.
fn class(object: &Value) -> &str {
    match shown(object, &["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"]) {
        "" => shown(object, &["spec", "storageClassName"]),
        class => class,
    }
}

fn unset(object: &Value, field: &str) -> Value {
    json!(or_else(shown(object, &["spec", field]).to_owned(), "<unset>"))
}

/// Short forms, always in the same order.
fn modes(modes: &[Value]) -> String {
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let shown: Vec<&str> =
        short.iter().filter(|(mode, _)| modes.iter().any(|it| it == mode)).map(|(_, short)| *short).collect();
    shown.join(",")
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn claims_and_classes_show_what_they_are() {
        let cells = |columns: &[Column], object: &Value| -> Value {
            columns.iter().map(|it| (it.cell)(object, Timestamp::UNIX_EPOCH)).collect()
        };
        let claim = json!({
            "metadata": {"name": "c"},
            "spec": {"volumeName": "v", "storageClassName": "fast", "volumeMode": "Filesystem"},
            "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"]},
        });
        assert_eq!(
            cells(CLAIMS, &claim),
            json!(["c", "Bound", "v", "1Gi", "RWO,RWX", "fast", "<unset>", "<unknown>", "Filesystem"])
        );
        let class = json!({
            "metadata": {"name": "s", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "p",
        });
        assert_eq!(
            cells(CLASSES, &class),
            json!(["s (default)", "p", "Delete", "Immediate", false, "<unknown>"])
        );
    }
}
