//! What admission counts: how long plugins and webhooks take, what they refuse, and which failures were ignored.

use admission::{Observe, Operation};
use prometheus_client::{
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

use super::{
    Metrics,
    labels::{AdmissionStep, FailedOpen, Rejection},
};

/// Upstream's buckets for plugins, in seconds.
const PLUGIN_SECONDS: [f64; 7] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0];
/// Upstream's buckets for webhooks, in seconds.
const WEBHOOK_SECONDS: [f64; 7] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0];

type Histograms = Family<AdmissionStep, Histogram, fn() -> Histogram>;

#[derive(Debug)]
pub(super) struct AdmissionSeries {
    plugins: Histograms,
    webhooks: Histograms,
    rejections: Family<Rejection, Counter>,
    failed_open: Family<FailedOpen, Counter>,
}

impl AdmissionSeries {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let plugins: Histograms = Family::new_with_constructor(|| Histogram::new(PLUGIN_SECONDS));
        let webhooks: Histograms = Family::new_with_constructor(|| Histogram::new(WEBHOOK_SECONDS));
        let (rejections, failed_open) = (Family::default(), Family::default());
        registry.register(
            "apiserver_admission_controller_admission_duration_seconds",
            "Time of admission plugins",
            plugins.clone(),
        );
        registry.register(
            "apiserver_admission_webhook_admission_duration_seconds",
            "Time of admission webhooks",
            webhooks.clone(),
        );
        registry.register(
            "apiserver_admission_webhook_rejection_count",
            "Requests that admission webhooks, or their failures, refused",
            rejections.clone(),
        );
        registry.register(
            "apiserver_admission_webhook_fail_open_count",
            "Failures of admission webhooks that were ignored",
            failed_open.clone(),
        );
        Self { plugins, webhooks, rejections, failed_open }
    }
}

fn step(name: &str, step: &'static str, operation: Operation, rejected: bool) -> AdmissionStep {
    let rejected = if rejected { "true" } else { "false" };
    AdmissionStep { name: name.to_owned(), operation: operation.as_str(), rejected, r#type: step }
}

impl Observe for Metrics {
    fn plugin(&self, name: &str, kind: &'static str, operation: Operation, rejected: bool, seconds: f64) {
        self.admission
            .plugins
            .get_or_create(&step(self.names.shown(name), kind, operation, rejected))
            .observe(seconds);
    }

    fn webhook(&self, name: &str, kind: &'static str, operation: Operation, rejected: bool, seconds: f64) {
        self.admission
            .webhooks
            .get_or_create(&step(self.names.shown(name), kind, operation, rejected))
            .observe(seconds);
    }

    fn rejection(
        &self,
        name: &str,
        kind: &'static str,
        operation: Operation,
        error: &'static str,
        code: u16,
    ) {
        let labels = Rejection {
            error_type: error,
            name: self.names.shown(name).to_owned(),
            operation: operation.as_str(),
            rejection_code: code,
            r#type: kind,
        };
        self.admission.rejections.get_or_create(&labels).inc();
    }

    fn failed_open(&self, name: &str, kind: &'static str) {
        let name = self.names.shown(name).to_owned();
        self.admission.failed_open.get_or_create(&FailedOpen { name, r#type: kind }).inc();
    }
}
