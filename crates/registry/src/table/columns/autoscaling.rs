//! The columns of autoscalers.

use meta::Value;
use serde_json::json;

use super::{AGE, Column, NAME, found, integer, items, number, quantity, shown, text};

/// How many metrics stand in a cell.
const MAX_SHOWN: usize = 2;

pub(super) const AUTOSCALERS: &[Column] = &[
    NAME,
    text(
        "Reference",
        "scaleTargetRef points to the target resource to scale, and is used to the pods for which metrics should be collected, as well as to actually change the replica count.",
        |it, _| {
            let target = found(it, &["spec", "scaleTargetRef"]).unwrap_or(&Value::Null);
            json!(format!("{}/{}", shown(target, &["kind"]), shown(target, &["name"])))
        },
    ),
    text(
        "Targets",
        "metrics contains the specifications for which to use to calculate the desired replica count (the maximum replica count across all metrics will be used).  The desired replica count is calculated multiplying the ratio between the target value and the current value by the current number of pods.  Ergo, metrics used must decrease as the pod count is increased, and vice-versa.  See the individual metric source types for more information about how each type of metric must respond. If not set, the default metric will be set to 80% average CPU utilization.",
        |it, _| json!(targets(it)),
    ),
    text(
        "MinPods",
        "minReplicas is the lower limit for the number of replicas to which the autoscaler can scale down.  It defaults to 1 pod.  minReplicas is allowed to be 0 if the alpha feature gate HPAScaleToZero is enabled and at least one Object or External metric is configured.  Scaling is active as long as at least one metric value is available.",
        |it, _| match found(it, &["spec", "minReplicas"]).and_then(Value::as_i64) {
            Some(least) => json!(least.to_string()),
            None => json!("<unset>"),
        },
    ),
    text(
        "MaxPods",
        "maxReplicas is the upper limit for the number of replicas to which the autoscaler can scale up. It cannot be less that minReplicas.",
        |it, _| json!(integer(it, &["spec", "maxReplicas"])),
    ),
    text(
        "Replicas",
        "currentReplicas is current number of replicas of pods managed by this autoscaler, as last seen by the autoscaler.",
        |it, _| json!(integer(it, &["status", "currentReplicas"])),
    ),
    AGE,
];

pub(in crate::table) const SCALES: &[Column] = &[
    Column { format: "", ..NAME },
    number("Desired", "replicas is the desired number of instances for the scaled object.", |it, _| {
        json!(integer(it, &["spec", "replicas"]))
    }),
    number(
        "Available",
        "replicas is the actual number of observed instances of the scaled object.",
        |it, _| json!(integer(it, &["status", "replicas"])),
    ),
    AGE,
];

/// What is measured now, and what is aimed at.
fn targets(autoscaler: &Value) -> String {
    let metrics = items(autoscaler, &["spec", "metrics"]);
    if metrics.is_empty() {
        return "<none>".to_owned();
    }
    let measured = items(autoscaler, &["status", "currentMetrics"]);
    let shown: Vec<String> = metrics
        .iter()
        .take(MAX_SHOWN)
        .enumerate()
        .map(|(n, it)| target(it, measured.get(n).unwrap_or(&Value::Null)))
        .collect();
    let mut text = shown.join(", ");
    if metrics.len() > MAX_SHOWN {
        text.push_str(&format!(" + {} more...", metrics.len() - MAX_SHOWN));
    }
    text
}

fn target(metric: &Value, measured: &Value) -> String {
    let (source, is_of_resource) = match shown(metric, &["type"]) {
        "External" => ("external", false),
        "Object" => ("object", false),
        "Pods" => ("pods", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_owned(),
    };
    let aim = |field: &str| found(metric, &[source, "target", field]);
    let current = |field: &str| found(measured, &[source, "current", field]);
    let prefix = match is_of_resource {
        true => format!("{}: ", shown(metric, &[source, "name"])),
        false => String::new(),
    };
    let unknown = || "<unknown>".to_owned();
    if source == "pods" || (is_of_resource && aim("averageValue").is_some()) {
        // Upstream shows a zero where a measurement lacks the average.
        let current = found(measured, &[source]).map(|_| quantity(current("averageValue")));
        return format!("{prefix}{}/{}", current.unwrap_or_else(unknown), quantity(aim("averageValue")));
    }
    if is_of_resource {
        let percent = |it: Option<&Value>| it.and_then(Value::as_i64).map(|it| format!("{it}%"));
        let current = percent(current("averageUtilization")).unwrap_or_else(unknown);
        let aim = percent(aim("averageUtilization")).unwrap_or_else(|| "<auto>".to_owned());
        return format!("{prefix}{current}/{aim}");
    }
    if let Some(aim) = aim("averageValue") {
        let current = current("averageValue").map(|it| quantity(Some(it)));
        return format!("{}/{} (avg)", current.unwrap_or_else(unknown), quantity(Some(aim)));
    }
    let current = found(measured, &[source]).map(|_| quantity(current("value")));
    format!("{}/{}", current.unwrap_or_else(unknown), quantity(aim("value")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::columns::testing::expect_cells;

    #[test]
    fn autoscalers_show_what_they_aim_at() {
        let metrics = json!([
            {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 70}}},
            {"type": "Pods", "pods": {"target": {"averageValue": "100"}}},
            {"type": "External", "external": {"target": {"value": "5"}}},
        ]);
        let target = json!({"kind": "Deployment", "name": "d"});
        let measured = json!([{"type": "Resource", "resource": {"current": {"averageUtilization": 12}}}]);
        let mut object = json!({
            "metadata": {"name": "h"},
            "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 4, "metrics": metrics},
            "status": {"currentReplicas": 2, "currentMetrics": measured},
        });
        let shown = "cpu: 12%/70%, <unknown>/100 + 1 more...";
        expect_cells(AUTOSCALERS, &object, &json!(["h", "Deployment/d", shown, "1", 4, 2, "<unknown>"]));
        object["spec"] = json!({"scaleTargetRef": target, "maxReplicas": 4});
        expect_cells(
            AUTOSCALERS,
            &object,
            &json!(["h", "Deployment/d", "<none>", "<unset>", 4, 2, "<unknown>"]),
        );
    }

    #[test]
    fn every_source_of_a_metric_has_its_form() {
        let one = |kind: &str, source: &str, aim: Value, now: Value| {
            let metric = json!({"type": kind, source: {"name": "memory", "target": aim}});
            target(&metric, &json!({"type": kind, source: {"current": now}}))
        };
        let average = || json!({"averageValue": "1Gi"});
        assert_eq!(one("Resource", "resource", average(), average()), "memory: 1Gi/1Gi");
        assert_eq!(one("Resource", "resource", json!({}), json!({})), "memory: <unknown>/<auto>");
        assert_eq!(one("ContainerResource", "containerResource", average(), json!({})), "memory: 0/1Gi");
        assert_eq!(one("Object", "object", average(), json!({})), "<unknown>/1Gi (avg)");
        assert_eq!(one("Object", "object", json!({"value": "3"}), json!({"value": "2"})), "2/3");
        assert_eq!(one("External", "external", average(), average()), "1Gi/1Gi (avg)");
        assert_eq!(one("Other", "other", json!({}), json!({})), "<unknown type>");
    }
}
