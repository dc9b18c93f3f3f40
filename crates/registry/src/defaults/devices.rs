//! Devices that Pods claim: `resource.k8s.io`.

use jiff::Timestamp;
use meta::Value;

use super::{Structure, put};

pub(super) fn fill(name: &str, now: Timestamp, it: &mut Structure<'_>) {
    let Some((_, name)) = name.split_once('.') else { return };
    match name {
        "ExactDeviceRequest" | "DeviceSubRequest" => exact_count(it),
        // Up to v1beta1 a request names its class itself, unless it is a list of alternatives.
        "DeviceRequest" if !it.text("deviceClassName").is_empty() => exact_count(it),
        "DeviceToleration" => it.set("operator", "Equal"),
        "DeviceTaint" => it.set("timeAdded", meta::time::format_time(now)),
        "Device" | "BasicDevice" => {
            let mappings = it.child("nodeAllocatableResourceMappings");
            let mappings = mappings.into_iter().flat_map(|it| it.values_mut());
            for mapping in mappings.filter_map(Value::as_object_mut) {
                put(mapping, "allocationMultiplier", "1");
            }
        }
        _ => {}
    }
}

fn exact_count(it: &mut Structure<'_>) {
    it.set("allocationMode", "ExactCount");
    if it.text("allocationMode") == "ExactCount" {
        it.set("count", 1);
    }
}
