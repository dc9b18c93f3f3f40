//! Claims, their templates and slices of dynamic resource allocation: v1 is the hub, v1beta2 has its shape.
//!
//! Until v1beta1 what is asked of a device stands in the request itself, later in `exactly`; and what is known of a
//! device stood in `basic`, and now in the device. v1alpha3 says a capacity as a quantity, later versions as an object.

use catalog::Schemas;
use meta::{Map, Value};
use schema::convert::{each, move_in, move_out};

use super::{Hub, Spoke};

pub(super) const CLAIM: Hub = Hub {
    version: "resource.k8s.io/v1",
    spokes: &[
        Spoke { version: "resource.k8s.io/v1beta1", to_hub: claim_to_hub, from_hub: claim_from_hub },
        Spoke { version: "resource.k8s.io/v1alpha3", to_hub: claim_to_hub, from_hub: claim_from_hub },
    ],
    tidy: None,
};

pub(super) const TEMPLATE: Hub = Hub {
    version: "resource.k8s.io/v1",
    spokes: &[
        Spoke { version: "resource.k8s.io/v1beta1", to_hub: template_to_hub, from_hub: template_from_hub },
        Spoke { version: "resource.k8s.io/v1alpha3", to_hub: template_to_hub, from_hub: template_from_hub },
    ],
    tidy: None,
};

pub(super) const SLICE: Hub = Hub {
    version: "resource.k8s.io/v1",
    spokes: &[
        Spoke { version: "resource.k8s.io/v1beta1", to_hub: slice_to_hub, from_hub: slice_from_hub },
        Spoke { version: "resource.k8s.io/v1alpha3", to_hub: old_slice_to_hub, from_hub: old_slice_from_hub },
    ],
    tidy: None,
};

const IN_CLAIM: [&str; 3] = ["spec", "devices", "requests"];
const IN_TEMPLATE: [&str; 4] = ["spec", "spec", "devices", "requests"];
const DEVICES: [&str; 2] = ["spec", "devices"];

fn claim_to_hub(claim: &mut Map, _: &Schemas) {
    within(claim, &IN_CLAIM, request_to_hub);
}

fn claim_from_hub(claim: &mut Map) {
    within(claim, &IN_CLAIM, |it| move_out(it, "exactly"));
}

fn template_to_hub(template: &mut Map, _: &Schemas) {
    within(template, &IN_TEMPLATE, request_to_hub);
}

fn template_from_hub(template: &mut Map) {
    within(template, &IN_TEMPLATE, |it| move_out(it, "exactly"));
}

fn slice_to_hub(slice: &mut Map, _: &Schemas) {
    within(slice, &DEVICES, |it| move_out(it, "basic"));
}

fn slice_from_hub(slice: &mut Map) {
    within(slice, &DEVICES, |it| move_in(it, "basic", |field| field != "name"));
}

fn old_slice_to_hub(slice: &mut Map, schemas: &Schemas) {
    slice_to_hub(slice, schemas);
    capacities(slice, &["spec", "devices"], |it| {
        let value = std::mem::take(it);
        *it = Value::Object(Map::from_iter([("value".to_owned(), value)]));
    });
}

fn old_slice_from_hub(slice: &mut Map) {
    slice_from_hub(slice);
    capacities(slice, &["spec", "devices", "basic"], |it| {
        *it = it.get_mut("value").map_or_else(|| Value::from("0"), Value::take);
    });
}

/// Only a request that asks for something has an `exactly`; the others have alternatives in `firstAvailable`.
fn request_to_hub(request: &mut Map) {
    let is_asked = |field: &str| !matches!(field, "name" | "firstAvailable");
    if request.iter().any(|(field, value)| is_asked(field) && !is_empty(value)) {
        move_in(request, "exactly", is_asked);
    } else {
        request.retain(|field, _| !is_asked(field));
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Object(_) => false,
    }
}

fn capacities(slice: &mut Map, path: &[&str], mut change: impl FnMut(&mut Value)) {
    within(slice, path, |device| {
        if let Some(Value::Object(capacities)) = device.get_mut("capacity") {
            capacities.values_mut().for_each(&mut change);
        }
    });
}

fn within(object: &mut Map, path: &[&str], mut change: impl FnMut(&mut Map)) {
    if let Some((first, rest)) = path.split_first()
        && let Some(value) = object.get_mut(*first)
    {
        each(value, rest, &mut |it| change(it));
    }
}
