//! Volumes, claims, classes and drivers.

use serde_json::json;

use super::{Structure, put};

pub(super) fn fill_core(name: &str, it: &mut Structure<'_>) {
    match name {
        "v1.PersistentVolume" | "v1.PersistentVolumeClaim" => {
            if let Some(status) = it.made("status") {
                put(status, "phase", "Pending");
            }
        }
        "v1.PersistentVolumeSpec" => {
            it.set("persistentVolumeReclaimPolicy", "Retain");
            it.set("volumeMode", "Filesystem");
        }
        "v1.PersistentVolumeClaimSpec" => it.set("volumeMode", "Filesystem"),
        _ => {}
    }
}

pub(super) fn fill(name: &str, it: &mut Structure<'_>) {
    match name {
        "v1.StorageClass" => {
            it.set("reclaimPolicy", "Delete");
            it.set("volumeBindingMode", "Immediate");
        }
        "v1.CSIDriverSpec" => {
            it.set("attachRequired", true);
            it.set("fsGroupPolicy", "ReadWriteOnceWithFSType");
            it.set("volumeLifecycleModes", json!(["Persistent"]));
            for field in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
                it.set(field, false);
            }
        }
        _ => {}
    }
}
