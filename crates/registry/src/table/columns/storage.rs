//! The columns of volumes, claims and their classes.

use meta::{Value, object};
use serde_json::json;

use super::{AGE, Column, NAME, at, found, items, number, or_else, quantity, shown, switch, text, wide};

pub(super) const VOLUMES: &[Column] = &[
    NAME,
    text(
        "Capacity",
        "capacity is the description of the persistent volume's resources and capacity. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#capacity",
        |it, _| json!(quantity(found(it, &["spec", "capacity", "storage"]))),
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
        "phase indicates if a volume is available, bound to a claim, or released by a claim. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#phase",
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
    text("VolumeAttributesClass", "VolumeAttributesClass of the pv", |it, _| {
        unset(it, "volumeAttributesClassName")
    }),
    text(
        "Reason",
        "reason is a brief CamelCase string that describes any failure and is meant for machine parsing and tidy display in the CLI.",
        |it, _| at(it, &["status", "reason"]),
    ),
    AGE,
    wide(
        "VolumeMode",
        "volumeMode defines if a volume is intended to be used with a formatted filesystem or to remain in raw block state. Value of Filesystem is implied when not included in spec.",
        |it, _| unset(it, "volumeMode"),
    ),
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
        json!(if is_bound(it) {
            quantity(found(it, &["status", "capacity", "storage"]))
        } else {
            String::new()
        })
    }),
    text(
        "Access Modes",
        "accessModes contains the actual access modes the volume backing the PVC has. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#access-modes-1",
        |it, _| {
            json!(if is_bound(it) { modes(items(it, &["status", "accessModes"])) } else { String::new() })
        },
    ),
    text("StorageClass", "StorageClass of the pvc", |it, _| json!(class(it))),
    text("VolumeAttributesClass", "VolumeAttributesClass of the pvc", |it, _| {
        unset(it, "volumeAttributesClassName")
    }),
    AGE,
    wide(
        "VolumeMode",
        "volumeMode defines what type of volume is required by the claim. Value of Filesystem is implied when not included in claim spec.",
        |it, _| unset(it, "volumeMode"),
    ),
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
        "volumeBindingMode indicates how PersistentVolumeClaims should be provisioned and bound.  When unset, VolumeBindingImmediate is used. This field is only honored by servers that enable the VolumeScheduling feature.",
        |it, _| json!(or_else(shown(it, &["volumeBindingMode"]).to_owned(), "Immediate")),
    ),
    text(
        "AllowVolumeExpansion",
        "allowVolumeExpansion shows whether the storage class allow volume expand.",
        |it, _| json!(found(it, &["allowVolumeExpansion"]) == Some(&Value::Bool(true))),
    ),
    AGE,
];
pub(super) const ATTRIBUTES_CLASSES: &[Column] = &[
    NAME,
    text("DriverName", "Name of the CSI driver This field is immutable.", |it, _| at(it, &["driverName"])),
    AGE,
];
pub(super) const ATTACHMENTS: &[Column] = &[
    NAME,
    Column {
        format: "name",
        ..text(
            "Attacher",
            "attacher indicates the name of the volume driver that MUST handle this request. This is the name returned by GetPluginName().",
            |it, _| at(it, &["spec", "attacher"]),
        )
    },
    text("PV", "persistentVolumeName represents the name of the persistent volume to attach.", |it, _| {
        at(it, &["spec", "source", "persistentVolumeName"])
    }),
    text("Node", "nodeName represents the node that the volume should be attached to.", |it, _| {
        at(it, &["spec", "nodeName"])
    }),
    switch(
        "Attached",
        "attached indicates the volume is successfully attached. This field must only be set by the entity completing the attach operation, i.e. the external-attacher.",
        |it, _| json!(found(it, &["status", "attached"]) == Some(&Value::Bool(true))),
    ),
    AGE,
];
pub(super) const CSI_NODES: &[Column] = &[
    NAME,
    number("Drivers", "Drivers indicates the number of CSI drivers registered on the node", |it, _| {
        json!(items(it, &["spec", "drivers"]).len())
    }),
    AGE,
];
pub(super) const CSI_DRIVERS: &[Column] = &[
    NAME,
    switch(
        "AttachRequired",
        "attachRequired indicates this CSI volume driver requires an attach operation (because it implements the CSI ControllerPublishVolume() method), and that the Kubernetes attach detach controller should call the attach volume interface which checks the volumeattachment status and waits until the volume is attached before proceeding to mounting. The CSI external-attacher coordinates with CSI volume driver and updates the volumeattachment status when the attach operation is complete. If the value is specified to false, the attach operation will be skipped. Otherwise the attach operation will be called.\n\nThis field is immutable.",
        |it, _| json!(found(it, &["spec", "attachRequired"]) != Some(&Value::Bool(false))),
    ),
    switch(
        "PodInfoOnMount",
        "podInfoOnMount indicates this CSI volume driver requires additional pod information (like podName, podUID, etc.) during mount operations, if set to true. If set to false, pod information will not be passed on mount. Default is false.\n\nThe CSI driver specifies podInfoOnMount as part of driver deployment. If true, Kubelet will pass pod information as VolumeContext in the CSI NodePublishVolume() calls. The CSI driver is responsible for parsing and validating the information passed in as VolumeContext.\n\nThe following VolumeContext will be passed if podInfoOnMount is set to true. This list might grow, but the prefix will be used. \"csi.storage.k8s.io/pod.name\": pod.Name \"csi.storage.k8s.io/pod.namespace\": pod.Namespace \"csi.storage.k8s.io/pod.uid\": string(pod.UID) \"csi.storage.k8s.io/ephemeral\": \"true\" if the volume is an ephemeral inline volume\n                                defined by a CSIVolumeSource, otherwise \"false\"\n\n\"csi.storage.k8s.io/ephemeral\" is a new feature in Kubernetes 1.16. It is only required for drivers which support both the \"Persistent\" and \"Ephemeral\" VolumeLifecycleMode. Other drivers can leave pod info disabled and/or ignore this field. As Kubernetes 1.15 doesn't support this field, drivers can only support one mode when deployed on such a cluster and the deployment determines which mode that is, for example via a command line parameter of the driver.\n\nThis field was immutable in Kubernetes < 1.29 and now is mutable.",
        |it, _| driver_flag(it, "podInfoOnMount"),
    ),
    switch(
        "StorageCapacity",
        "storageCapacity indicates that the CSI volume driver wants pod scheduling to consider the storage capacity that the driver deployment will report by creating CSIStorageCapacity objects with capacity information, if set to true.\n\nThe check can be enabled immediately when deploying a driver. In that case, provisioning new volumes with late binding will pause until the driver deployment has published some suitable CSIStorageCapacity object.\n\nAlternatively, the driver can be deployed with the field unset or false and it can be flipped later when storage capacity information has been published.\n\nThis field was immutable in Kubernetes <= 1.22 and now is mutable.",
        |it, _| driver_flag(it, "storageCapacity"),
    ),
    text(
        "TokenRequests",
        "tokenRequests indicates the CSI driver needs pods' service account tokens it is mounting volume for to do necessary authentication. Kubelet will pass the tokens in VolumeContext in the CSI NodePublishVolume calls. The CSI driver should parse and validate the following VolumeContext: \"csi.storage.k8s.io/serviceAccount.tokens\": {\n  \"<audience>\": {\n    \"token\": <token>,\n    \"expirationTimestamp\": <expiration timestamp in RFC3339>,\n  },\n  ...\n}\n\nNote: Audience in each TokenRequest should be different and at most one token is empty string. To receive a new token after expiry, RequiresRepublish can be used to trigger NodePublishVolume periodically.",
        |it, _| {
            let requests = items(it, &["spec", "tokenRequests"]);
            let audiences: Vec<&str> = requests.iter().map(|it| shown(it, &["audience"])).collect();
            json!(or_else(audiences.join(","), "<unset>"))
        },
    ),
    switch(
        "RequiresRepublish",
        "requiresRepublish indicates the CSI driver wants `NodePublishVolume` being periodically called to reflect any possible change in the mounted volume. This field defaults to false.\n\nNote: After a successful initial NodePublishVolume call, subsequent calls to NodePublishVolume should only update the contents of the volume. New mount points will not be seen by a running container.",
        |it, _| driver_flag(it, "requiresRepublish"),
    ),
    text(
        "Modes",
        "volumeLifecycleModes defines what kind of volumes this CSI volume driver supports. The default if the list is empty is \"Persistent\", which is the usage defined by the CSI specification and implemented in Kubernetes via the usual PV/PVC mechanism.\n\nThe other mode is \"Ephemeral\". In this mode, volumes are defined inline inside the pod spec with CSIVolumeSource and their lifecycle is tied to the lifecycle of that pod. A driver has to be aware of this because it is only going to get a NodePublishVolume call for such a volume.\n\nFor more information about implementing this mode, see https://kubernetes-csi.github.io/docs/ephemeral-local-volumes.html A driver can support one or more of these modes and more modes may be added in the future.\n\nThis field is beta. This field is immutable.",
        |it, _| {
            let modes = items(it, &["spec", "volumeLifecycleModes"]);
            let modes: Vec<&str> = modes.iter().filter_map(Value::as_str).collect();
            json!(or_else(modes.join(","), "<none>"))
        },
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

fn driver_flag(driver: &Value, field: &str) -> Value {
    json!(found(driver, &["spec", field]) == Some(&Value::Bool(true)))
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
    use super::*;
    use crate::table::columns::testing::expect_cells;

    #[test]
    fn claims_and_classes_show_what_they_are() {
        let claim = json!({
            "metadata": {"name": "c"},
            "spec": {"volumeName": "v", "storageClassName": "fast", "volumeMode": "Filesystem"},
            "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"]},
        });
        let row = json!(["c", "Bound", "v", "1Gi", "RWO,RWX", "fast", "<unset>", "<unknown>", "Filesystem"]);
        expect_cells(CLAIMS, &claim, &row);
        let class = json!({
            "metadata": {"name": "s", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "p",
        });
        let row = json!(["s (default)", "p", "Delete", "Immediate", false, "<unknown>"]);
        expect_cells(CLASSES, &class, &row);
    }

    #[test]
    fn drivers_show_what_they_need() {
        let driver = json!({"metadata": {"name": "d"}, "spec": {
            "attachRequired": false, "podInfoOnMount": true, "tokenRequests": [{"audience": "a"}],
            "volumeLifecycleModes": ["Persistent"],
        }});
        let row = json!(["d", false, true, false, "a", false, "Persistent", "<unknown>"]);
        expect_cells(CSI_DRIVERS, &driver, &row);
        let row = json!(["e", true, false, false, "<unset>", false, "<none>", "<unknown>"]);
        expect_cells(CSI_DRIVERS, &json!({"metadata": {"name": "e"}}), &row);
        let source = json!({"persistentVolumeName": "v"});
        let spec = json!({"attacher": "d", "nodeName": "n", "source": source});
        let attachment = json!({"metadata": {"name": "a"}, "spec": spec, "status": {"attached": true}});
        expect_cells(ATTACHMENTS, &attachment, &json!(["a", "d", "v", "n", true, "<unknown>"]));
    }
}
