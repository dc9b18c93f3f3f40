//! EndpointSlices: v1 is the hub. v1beta1 is no longer served, but may still be stored; there the zone of an endpoint is
//! one of the labels in its `topology`.

use catalog::Schemas;
use meta::{Map, Value, object::child_mut};
use schema::convert::{each, rename};

use super::{Hub, Spoke};

pub(super) const HUB: Hub = Hub {
    version: "discovery.k8s.io/v1",
    spokes: &[Spoke { version: "discovery.k8s.io/v1beta1", to_hub, from_hub }],
    tidy: None,
};

const ZONE: &str = "topology.kubernetes.io/zone";

fn to_hub(slice: &mut Map, _: &Schemas) {
    endpoints(slice, |endpoint| {
        rename(endpoint, &[("topology", "deprecatedTopology")]);
        let Some(Value::Object(topology)) = endpoint.get_mut("deprecatedTopology") else { return };
        if let Some(zone) = topology.remove(ZONE) {
            endpoint.insert("zone".to_owned(), zone);
        }
    });
}

fn from_hub(slice: &mut Map) {
    endpoints(slice, |endpoint| {
        rename(endpoint, &[("deprecatedTopology", "topology")]);
        if let Some(zone) = endpoint.remove("zone").filter(Value::is_string) {
            child_mut(endpoint, "topology").insert(ZONE.to_owned(), zone);
        }
    });
}

fn endpoints(slice: &mut Map, mut change: impl FnMut(&mut Map)) {
    if let Some(endpoints) = slice.get_mut("endpoints") {
        each(endpoints, &[], &mut |it| change(it));
    }
}
