//! How well a Pod is served when its node runs short: `status.qosClass`.

use meta::Value;
use schema::check::quantity_nanos;

/// Only these are asked about.
const COUNTED: [&str; 2] = ["cpu", "memory"];

/// `Guaranteed` if every container may use exactly what it asks for, `BestEffort` if nobody asks for anything.
pub(super) fn of_pod(pod: &Value) -> &'static str {
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let resources: Vec<&Value> = match spec.get("resources").filter(|it| !it.is_null()) {
        Some(whole) => vec![whole],
        None => {
            let lists = ["containers", "initContainers"].iter().filter_map(|it| spec.get(*it)?.as_array());
            lists.flatten().map(|it| it.get("resources").unwrap_or(&Value::Null)).collect()
        }
    };
    let is_asked = |it: &Value| {
        COUNTED.iter().any(|name| amount(it, "requests", name) > 0 || amount(it, "limits", name) > 0)
    };
    let is_exact = |it: &Value| {
        COUNTED.iter().all(|name| {
            let limit = amount(it, "limits", name);
            let request = amount(it, "requests", name);
            limit > 0 && (request == limit || request == 0)
        })
    };
    if !resources.iter().any(|it| is_asked(it)) {
        "BestEffort"
    } else if resources.iter().all(|it| is_exact(it)) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

fn amount(resources: &Value, field: &str, name: &str) -> i128 {
    let text = resources.get(field).and_then(|it| it.get(name)).and_then(Value::as_str);
    text.and_then(quantity_nanos).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quality_follows_from_requests_and_limits() {
        let of = |resources: Value| of_pod(&json!({"spec": {"containers": [{"resources": resources}]}}));
        assert_eq!(of(json!({})), "BestEffort");
        assert_eq!(of(json!({"limits": {"nvidia.com/gpu": "1"}})), "BestEffort");
        assert_eq!(of(json!({"requests": {"cpu": "100m"}})), "Burstable");
        let same = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(of(json!({"limits": same, "requests": {"cpu": "1000m", "memory": "1Gi"}})), "Guaranteed");
        assert_eq!(of(json!({"limits": same, "requests": {"cpu": "500m", "memory": "1Gi"}})), "Burstable");
    }
}
