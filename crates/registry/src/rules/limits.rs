//! Numbers that must fit each other: autoscalers, disruption budgets, the ports of Services.

use meta::{FieldError, FieldErrors, Value};

use super::value::{at, complain, items, number, text};

/// What is wrong with an object.
pub(super) fn validate(group: &str, resource: &str, object: &Value, errors: &mut FieldErrors) {
    let none = Value::Null;
    let spec = at(object, &["spec"]).unwrap_or(&none);
    match (group, resource) {
        ("autoscaling", "horizontalpodautoscalers") => check_autoscaler(spec, errors),
        ("policy", "poddisruptionbudgets") => check_budget(spec, errors),
        ("", "services") => check_service(spec, errors),
        _ => {}
    }
}

fn check_autoscaler(spec: &Value, errors: &mut FieldErrors) {
    let least = number(spec, &["minReplicas"]);
    if let Some(least) = least.filter(|it| *it < 1) {
        let detail = "must be greater than or equal to 1";
        errors.push(FieldError::invalid_shown("spec.minReplicas", least.to_string(), detail));
    }
    let most = number(spec, &["maxReplicas"]).unwrap_or_default();
    if most < 1 {
        let detail = "must be greater than 0";
        errors.push(FieldError::invalid_shown("spec.maxReplicas", most.to_string(), detail));
    }
    if least.is_some_and(|it| most < it) {
        let detail = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid_shown("spec.maxReplicas", most.to_string(), detail));
    }
    for field in ["kind", "name"] {
        if text(spec, &["scaleTargetRef", field]).is_empty() {
            errors.push(FieldError::required(format!("spec.scaleTargetRef.{field}"), ""));
        }
    }
    let supported = ["ContainerResource", "External", "Object", "Pods", "Resource"];
    for (index, metric) in items(spec, &["metrics"]).iter().enumerate() {
        let field = format!("spec.metrics[{index}].type");
        match text(metric, &["type"]) {
            "" => errors.push(FieldError::required(field, "must specify a metric source type")),
            kind if !supported.contains(&kind) => {
                errors.push(FieldError::not_supported(field, kind, &supported));
            }
            _ => {}
        }
    }
}

fn check_budget(spec: &Value, errors: &mut FieldErrors) {
    let field = |name: &str| at(spec, &[name]);
    if field("minAvailable").is_some() && field("maxUnavailable").is_some() {
        let shown = |name: &str| field(name).map_or_else(|| "null".to_owned(), Value::to_string);
        let shown = format!(
            "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
            shown("minAvailable"),
            shown("selector"),
            shown("maxUnavailable"),
            shown("unhealthyPodEvictionPolicy"),
        );
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::invalid_shown("spec", shown, detail));
    }
    for name in ["minAvailable", "maxUnavailable"] {
        if let Some(value) = field(name) {
            check_share(value, &format!("spec.{name}"), errors);
        }
    }
}

/// A number of Pods, or a percentage of them.
fn check_share(value: &Value, field: &str, errors: &mut FieldErrors) {
    match value {
        Value::Number(count) if count.as_i64().is_some_and(|it| it < 0) => {
            let detail = "must be greater than or equal to 0";
            errors.push(FieldError::invalid_shown(field, count.to_string(), detail));
        }
        Value::String(text) => {
            let digits = text.strip_suffix('%').filter(|it| !it.is_empty());
            match digits.filter(|it| it.bytes().all(|it| it.is_ascii_digit())) {
                None => {
                    let form = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or \
                                '93%', regex used for validation is '[0-9]+%')";
                    complain(errors, field, text, vec![form.to_owned()]);
                }
                // Too many digits for a number are more than a hundred, too.
                Some(digits) if digits.parse::<u32>().is_ok_and(|it| it <= 100) => {}
                Some(_) => {
                    errors.push(FieldError::invalid(field, text, "must not be greater than 100%"));
                }
            }
        }
        _ => {}
    }
}

fn check_service(spec: &Value, errors: &mut FieldErrors) {
    let kind = text(spec, &["type"]);
    let ports = items(spec, &["ports"]);
    let is_headless = kind == "ClusterIP" && text(spec, &["clusterIP"]) == "None";
    if ports.is_empty() && !is_headless && kind != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    if kind == "ExternalName" && text(spec, &["externalName"]).is_empty() {
        errors.push(FieldError::required("spec.externalName", ""));
    }
    for (index, port) in ports.iter().enumerate() {
        if ports.len() > 1 && text(port, &["name"]).is_empty() {
            errors.push(FieldError::required(format!("spec.ports[{index}].name"), ""));
        }
        let number = number(port, &["port"]).unwrap_or_default();
        if !(1..=65_535).contains(&number) {
            let detail = "must be between 1 and 65535, inclusive";
            let field = format!("spec.ports[{index}].port");
            errors.push(FieldError::invalid_shown(field, number.to_string(), detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::rules::testing::expect_new;

    #[test]
    fn autoscalers_have_limits_that_fit() {
        let path = "autoscaling/v2/horizontalpodautoscalers";
        let target = json!({"kind": "Deployment", "name": "d"});
        let fine = json!({"spec": {"minReplicas": 1, "maxReplicas": 2, "scaleTargetRef": target}});
        expect_new(path, &fine, &[]);
        let bad = json!({"spec": {"minReplicas": 5, "maxReplicas": 2, "scaleTargetRef": target, "metrics": [{"type": "X"}]}});
        expect_new(
            path,
            &bad,
            &[
                "Invalid spec.maxReplicas: Invalid value: 2: must be greater than or equal to `minReplicas`",
                "NotSupported spec.metrics[0].type: Unsupported value: \"X\": supported values: \"ContainerResource\", \
                 \"External\", \"Object\", \"Pods\", \"Resource\"",
            ],
        );
        expect_new(
            path,
            &json!({"spec": {"minReplicas": 0, "maxReplicas": 0}}),
            &[
                "Invalid spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
                "Invalid spec.maxReplicas: Invalid value: 0: must be greater than 0",
                "Required spec.scaleTargetRef.kind: Required value",
                "Required spec.scaleTargetRef.name: Required value",
            ],
        );
    }

    #[test]
    fn budgets_say_one_thing() {
        let path = "policy/v1/poddisruptionbudgets";
        expect_new(path, &json!({"spec": {"minAvailable": "50%"}}), &[]);
        let both = json!({"spec": {"minAvailable": 1, "maxUnavailable": "10%"}});
        let told = "Invalid spec: Invalid value: {\"MinAvailable\":1,\"Selector\":null,\"MaxUnavailable\":\"10%\",\
                    \"UnhealthyPodEvictionPolicy\":null}: minAvailable and maxUnavailable cannot be both set";
        expect_new(path, &both, &[told]);
        let told = "Invalid spec.minAvailable: Invalid value: -1: must be greater than or equal to 0";
        expect_new(path, &json!({"spec": {"minAvailable": -1}}), &[told]);
        let told = "Invalid spec.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%";
        expect_new(path, &json!({"spec": {"maxUnavailable": "101%"}}), &[told]);
    }

    #[test]
    fn services_have_ports_with_names() {
        let service = |spec: serde_json::Value| {
            let mut service = json!({"spec": {"type": "ClusterIP", "sessionAffinity": "None"}});
            service["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            service
        };
        expect_new("v1/services", &service(json!({"clusterIP": "None"})), &[]);
        expect_new("v1/services", &service(json!({})), &["Required spec.ports: Required value"]);
        let ports =
            json!({"ports": [{"port": 80, "protocol": "TCP", "name": "a"}, {"port": 0, "protocol": "TCP"}]});
        expect_new(
            "v1/services",
            &service(ports),
            &[
                "Required spec.ports[1].name: Required value",
                "Invalid spec.ports[1].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            ],
        );
    }
}
