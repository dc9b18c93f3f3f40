//! Events: the core group's shape is the hub, `events.k8s.io` has other names for the same fields.

use catalog::Schemas;
use meta::Map;
use schema::convert::rename;

use super::{Hub, Spoke};

pub(super) const HUB: Hub = Hub {
    version: "v1",
    spokes: &[Spoke { version: "events.k8s.io/v1", to_hub: to_core, from_hub: from_core }],
    tidy: None,
};

/// Names in `events.k8s.io`, and in the core group.
const NAMES: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

fn to_core(event: &mut Map, _: &Schemas) {
    rename(event, &NAMES);
}

fn from_core(event: &mut Map) {
    rename(event, &NAMES.map(|(grouped, core)| (core, grouped)));
}
