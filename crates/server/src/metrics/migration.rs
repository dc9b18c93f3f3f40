//! Migrations of stored objects, under the names of kube-storage-version-migrator where it has one.

use std::time::Duration;

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use super::{
    family,
    labels::{FailureClass, MigrationStatus, Resource},
    names::Names,
};

/// From a second to three hours.
const SECONDS: [f64; 10] = [1.0, 5.0, 15.0, 30.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 10_800.0];

type Histograms = Family<Resource, Histogram, fn() -> Histogram>;

/// The series of migrations; `resource` is such as `widgets.example.com`.
#[derive(Debug)]
pub struct MigrationSeries {
    migrated: Family<Resource, Counter>,
    remaining: Family<Resource, Gauge>,
    rate: Family<Resource, Gauge>,
    failures: Family<FailureClass, Counter>,
    ended: Family<MigrationStatus, Counter>,
    durations: Histograms,
    names: Names,
}

impl MigrationSeries {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let name = |end: &str| format!("storage_migrator_core_migrator_{end}");
        let migrated = family(registry, &name("migrated_objects"), "Objects that were rewritten");
        let remaining = family(registry, &name("remaining_objects"), "Objects that are yet to be looked at");
        let rate = family(registry, &name("objects_per_second"), "How fast objects are looked at");
        let failures = family(registry, &name("failed_objects"), "Objects that could not be rewritten");
        let ended = family(registry, &name("migrations"), "Migrations that ended, by how");
        let durations: Histograms = Family::new_with_constructor(|| Histogram::new(SECONDS));
        registry.register(name("duration_seconds"), "How long migrations took", durations.clone());
        Self { migrated, remaining, rate, failures, ended, durations, names: Names::default() }
    }

    /// Objects were rewritten.
    pub fn migrated(&self, resource: &str, objects: u64) {
        self.migrated.get_or_create(&self.of(resource)).inc_by(objects);
    }

    /// So many are left, at so many a second.
    pub fn remaining(&self, resource: &str, objects: u64, per_second: u64) {
        let number = |it: u64| i64::try_from(it).unwrap_or(i64::MAX);
        self.remaining.get_or_create(&self.of(resource)).set(number(objects));
        self.rate.get_or_create(&self.of(resource)).set(number(per_second));
    }

    /// An object could not be rewritten.
    pub fn failed(&self, resource: &str, class: &'static str) {
        let Resource { resource } = self.of(resource);
        self.failures.get_or_create(&FailureClass { resource, class }).inc();
    }

    /// A migration ended.
    pub fn ended(&self, resource: &str, status: &'static str, took: Duration) {
        let Resource { resource: shown } = self.of(resource);
        self.ended.get_or_create(&MigrationStatus { resource: shown, status }).inc();
        self.durations.get_or_create(&self.of(resource)).observe(took.as_secs_f64());
        self.remaining(resource, 0, 0);
    }

    fn of(&self, resource: &str) -> Resource {
        Resource { resource: self.names.shown(resource).to_owned() }
    }
}
