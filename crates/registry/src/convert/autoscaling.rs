//! HorizontalPodAutoscalers: v2 is the hub. v1 knows one metric, the utilization of the CPU, and has neither behavior
//! nor conditions; what it cannot hold stands in annotations, in the form upstream gives it, and nowhere else.

mod annotation;
mod metrics;

use catalog::Schemas;
use meta::{Map, Value, object::child_mut};
use schema::{check, model::TypeId};
use serde_json::json;

use super::{Hub, Spoke};

pub(super) const HUB: Hub = Hub {
    version: "autoscaling/v2",
    spokes: &[Spoke { version: "autoscaling/v1", to_hub, from_hub }],
    tidy: Some(drop_annotations),
};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// What upstream assumes where no metric is named.
const DEFAULT_CPU_UTILIZATION: i32 = 80;

/// From v1. An annotation that cannot be read is as good as none.
fn to_hub(autoscaler: &mut Map, schemas: &Schemas) {
    let kept = |name: &str| annotation::read(autoscaler, name);
    let (metrics, behavior) = (kept(METRICS), kept(BEHAVIOR));
    let (current, conditions) = (kept(CURRENT_METRICS), kept(CONDITIONS));
    drop_annotations(autoscaler);
    let types = Types { schemas };

    let spec = child_mut(autoscaler, "spec");
    let cpu = spec.remove("targetCPUUtilizationPercentage").filter(|it| !it.is_null());
    let others = metrics.map(|it| metrics::specs_to_hub(&it));
    let mut all = others.and_then(|it| types.read("Spec", "metrics", it)).unwrap_or_else(|| json!([]));
    if let Value::Array(all) = &mut all {
        match cpu {
            Some(percent) => all.push(cpu_metric(&percent)),
            None if all.is_empty() => all.push(cpu_metric(&Value::from(DEFAULT_CPU_UTILIZATION))),
            None => {}
        }
    }
    spec.insert("metrics".to_owned(), all);
    let behavior = behavior.map(annotation::lower_names).and_then(|it| types.read("Spec", "behavior", it));
    if let Some(behavior) = behavior.filter(|it| it.as_object().is_some_and(|it| !it.is_empty())) {
        spec.insert("behavior".to_owned(), behavior);
    }

    let status = child_mut(autoscaler, "status");
    if let Some(percent) = status.remove("currentCPUUtilizationPercentage").filter(|it| !it.is_null()) {
        let current = json!({"averageUtilization": percent});
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "current": current}});
        status.insert("currentMetrics".to_owned(), json!([metric]));
    }
    // What was kept says more than the percentage.
    let current = current.map(|it| metrics::statuses_to_hub(&it));
    if let Some(current) = current.and_then(|it| types.read("Status", "currentMetrics", it)) {
        status.insert("currentMetrics".to_owned(), current);
    }
    if let Some(conditions) = conditions.and_then(|it| types.read("Status", "conditions", it)) {
        status.insert("conditions".to_owned(), conditions);
    }
}

/// To v1.
fn from_hub(autoscaler: &mut Map) {
    drop_annotations(autoscaler);
    let spec = child_mut(autoscaler, "spec");
    let all = take_list(spec, "metrics");
    let behavior = spec.remove("behavior").filter(Value::is_object);
    // As upstream: the first metric of the CPU decides.
    let cpu =
        all.iter().find(|it| is_cpu(it)).and_then(|it| it["resource"]["target"].get("averageUtilization"));
    if let Some(percent) = cpu.filter(|it| !it.is_null()) {
        spec.insert("targetCPUUtilizationPercentage".to_owned(), percent.clone());
    }
    let is_other = |it: &&Value| {
        !is_cpu(it) || it["resource"]["target"].get("averageUtilization").is_none_or(Value::is_null)
    };
    let others: Vec<Value> = all.iter().filter(is_other).map(metrics::spec_to_v1).collect();

    let status = child_mut(autoscaler, "status");
    let current = take_list(status, "currentMetrics");
    let mut conditions = take_list(status, "conditions");
    for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
        // Go has no empty time that it would leave out.
        condition.entry("lastTransitionTime").or_insert(Value::Null);
    }
    let cpu = current.iter().rev().filter(|it| is_cpu(it));
    let percent =
        cpu.filter_map(|it| it["resource"]["current"].get("averageUtilization")).find(|it| !it.is_null());
    if let Some(percent) = percent {
        status.insert("currentCPUUtilizationPercentage".to_owned(), percent.clone());
    }

    let current: Vec<Value> = current.iter().map(metrics::status_to_v1).collect();
    for (name, list) in [(METRICS, others), (CURRENT_METRICS, current), (CONDITIONS, conditions)] {
        if !list.is_empty() {
            annotation::write(autoscaler, name, annotation::in_order(&Value::Array(list)));
        }
    }
    if let Some(behavior) = behavior {
        annotation::write(autoscaler, BEHAVIOR, annotation::behavior(&behavior));
    }
}

/// In v2 the annotations mean nothing, and in v1 only what was made of the object just now.
fn drop_annotations(autoscaler: &mut Map) {
    let metadata = child_mut(autoscaler, "metadata");
    let Some(Value::Object(annotations)) = metadata.get_mut("annotations") else { return };
    for name in [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR] {
        annotations.remove(name);
    }
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

fn cpu_metric(percent: &Value) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percent});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

fn is_cpu(metric: &Value) -> bool {
    metric["type"] == "Resource" && metric["resource"]["name"] == "cpu"
}

fn take_list(map: &mut Map, field: &str) -> Vec<Value> {
    match map.remove(field) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

/// The types of v2, against which everything is checked that stood in an annotation.
struct Types<'s> {
    schemas: &'s Schemas,
}

impl Types<'_> {
    /// The value of a field of the spec or the status, if it is one.
    fn read(&self, part: &str, field: &str, value: Value) -> Option<Value> {
        let ty = self.field(part, field)?;
        check::check(self.schemas.schema(), ty, value).ok().map(|it| without_null(it.value))
    }

    fn field(&self, part: &str, field: &str) -> Option<TypeId> {
        let schema = self.schemas.schema();
        let part = schema.find(&format!("io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler{part}"))?;
        schema.object(part)?.field(field).map(|it| it.ty)
    }
}

/// Go's `null` is a field that is not there.
fn without_null(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let fields = map.into_iter().filter(|(_, it)| !it.is_null());
            Value::Object(fields.map(|(key, it)| (key, without_null(it))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_null).collect()),
        other => other,
    }
}
