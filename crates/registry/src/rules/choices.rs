//! Fields that take one of a few values, and fields that must be there, of kinds without rules of their own.
//!
//! Only what upstream refuses stands here; its order of the values is kept. An empty text is a missing value.
//! Deliberately not here: fields whose values depend on others.

use meta::{FieldError, FieldErrors, Value};

use super::value::at;

/// One field: where it is, and what it may be. `[]` stands for each element of a list; where the elements are texts,
/// upstream names the list, or with `[#]` the element. Nothing to choose from means that it only must be there.
type Choice = (&'static str, &'static [&'static str], Missing);

/// What a missing value means.
#[derive(Clone, Copy)]
enum Missing {
    /// It may be missing.
    Fine,
    /// It may not, and this is said about it.
    Wrong(&'static str),
}

use Missing::{Fine, Wrong};

const MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const POLICIES: &[&str] = &["Cluster", "Local"];
const PATH_TYPES: &[&str] = &["Exact", "ImplementationSpecific", "Prefix"];

fn of(group: &str, resource: &str) -> &'static [Choice] {
    match (group, resource) {
        ("", "services") => &[
            ("spec.ports[].protocol", PROTOCOLS, Wrong("")),
            ("spec.sessionAffinity", &["ClientIP", "None"], Wrong("")),
            ("spec.type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"], Wrong("")),
            ("spec.internalTrafficPolicy", POLICIES, Fine),
            ("spec.ipFamilyPolicy", &["PreferDualStack", "RequireDualStack", "SingleStack"], Fine),
        ],
        ("", "persistentvolumes") => &[
            ("spec.accessModes", &[], Wrong("")),
            ("spec.accessModes[]", MODES, Fine),
            ("spec.capacity", &[], Wrong("")),
            ("spec.persistentVolumeReclaimPolicy", &["Delete", "Recycle", "Retain"], Fine),
            ("spec.volumeMode", VOLUME_MODES, Fine),
        ],
        ("", "persistentvolumeclaims") => &[
            ("spec.accessModes", &[], Wrong("at least 1 access mode is required")),
            ("spec.accessModes[]", MODES, Fine),
            ("spec.resources[storage]", &[], Wrong("")),
            ("spec.volumeMode", VOLUME_MODES, Fine),
        ],
        ("storage.k8s.io", "storageclasses") => &[
            ("provisioner", &[], Wrong("")),
            ("reclaimPolicy", &["Delete", "Retain"], Fine),
            ("volumeBindingMode", &["Immediate", "WaitForFirstConsumer"], Wrong("")),
        ],
        ("storage.k8s.io", "csidrivers") => &[
            ("spec.volumeLifecycleModes[]", &["Persistent", "Ephemeral"], Fine),
            ("spec.fsGroupPolicy", &["File", "None", "ReadWriteOnceWithFSType"], Fine),
        ],
        ("networking.k8s.io", "networkpolicies") => &[
            ("spec.ingress[].ports[].protocol", PROTOCOLS, Fine),
            ("spec.egress[].ports[].protocol", PROTOCOLS, Fine),
            ("spec.policyTypes[#]", &["Ingress", "Egress"], Fine),
        ],
        ("networking.k8s.io", "ingresses") => {
            &[("spec.rules[].http.paths[].pathType", PATH_TYPES, Wrong("pathType must be specified"))]
        }
        ("discovery.k8s.io", "endpointslices") => &[
            ("addressType", &["FQDN", "IPv4", "IPv6"], Wrong("")),
            ("ports[].protocol", PROTOCOLS, Wrong("")),
        ],
        ("policy", "poddisruptionbudgets") => {
            &[("spec.unhealthyPodEvictionPolicy", &["AlwaysAllow", "IfHealthyBudget"], Fine)]
        }
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations") => {
            &[("spec.type", &["Exempt", "Limited"], Fine)]
        }
        ("apps", "daemonsets") => &[("spec.updateStrategy.type", &["RollingUpdate", "OnDelete"], Fine)],
        ("node.k8s.io", "runtimeclasses") => &[("handler", &[], Wrong(""))],
        _ => &[],
    }
}

/// Says what of the kind's fields is missing or not one of the values.
pub(super) fn validate(group: &str, resource: &str, object: &Value, errors: &mut FieldErrors) {
    for (path, values, missing) in of(group, resource) {
        visit(object, path, "", &mut |value, place| check(value, place, values, *missing, errors));
    }
}

/// Calls with everything that a path leads to. What lies in something that is missing is not looked for.
fn visit(value: &Value, path: &str, place: &str, found: &mut impl FnMut(Option<&Value>, String)) {
    let (step, rest) = match path.split_once('.') {
        Some((step, rest)) => (step, rest),
        None => (path, ""),
    };
    // `requests` of a claim is told without its name.
    if let Some(key) = step.strip_prefix("resources[").and_then(|it| it.strip_suffix(']')) {
        let amount = at(value, &["resources", "requests", key]);
        return found(amount, format!("{place}.resources[{key}]").trim_start_matches('.').to_owned());
    }
    let (name, list) = step.split_once('[').unwrap_or((step, ""));
    let place = if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") };
    let inner = at(value, &[name]);
    if list.is_empty() {
        return match (rest, inner) {
            ("", inner) => found(inner, place),
            (rest, Some(inner)) => visit(inner, rest, &place, found),
            (_, None) => {}
        };
    }
    for (index, element) in inner.and_then(Value::as_array).into_iter().flatten().enumerate() {
        let element_place = format!("{place}[{index}]");
        match (rest, list) {
            ("", "]") => found(Some(element), place.clone()),
            ("", _) => found(Some(element), element_place),
            (rest, _) => visit(element, rest, &element_place, found),
        }
    }
}

fn check(value: Option<&Value>, place: String, values: &[&str], missing: Missing, errors: &mut FieldErrors) {
    let is_missing = match value {
        None => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        Some(Value::Object(map)) => map.is_empty(),
        Some(_) => false,
    };
    match (is_missing, missing) {
        (true, Wrong(detail)) => errors.push(FieldError::required(place, detail)),
        (true, Fine) => {}
        (false, _) => {
            let text = value.and_then(Value::as_str).unwrap_or_default();
            if !values.is_empty() && !values.contains(&text) {
                errors.push(FieldError::not_supported(place, text, values));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::rules::testing::{expect_changed, expect_new};

    #[test]
    fn values_are_among_those_that_there_are() {
        let claim = json!({"spec": {"accessModes": ["ReadWriteOnce", "Mine"], "volumeMode": "x",
            "resources": {"requests": {"storage": "1Gi"}}}});
        let expected = [
            "NotSupported spec.accessModes: Unsupported value: \"Mine\": supported values: \"ReadOnlyMany\", \
             \"ReadWriteMany\", \"ReadWriteOnce\", \"ReadWriteOncePod\"",
            "NotSupported spec.volumeMode: Unsupported value: \"x\": supported values: \"Block\", \"Filesystem\"",
        ];
        expect_new("v1/persistentvolumeclaims", &claim, &expected);
        expect_changed("v1/persistentvolumeclaims", &claim, &claim, &expected);
        let policy = json!({"spec": {"policyTypes": ["Ingress", "x"], "ingress": [{}, {"ports": [{"protocol": "y"}]}]}});
        expect_new(
            "networking.k8s.io/v1/networkpolicies",
            &policy,
            &[
                "NotSupported spec.ingress[1].ports[0].protocol: Unsupported value: \"y\": supported values: \"SCTP\", \
                 \"TCP\", \"UDP\"",
                "NotSupported spec.policyTypes[1]: Unsupported value: \"x\": supported values: \"Ingress\", \"Egress\"",
            ],
        );
    }

    #[test]
    fn what_must_be_there_is_there() {
        expect_new(
            "v1/persistentvolumeclaims",
            &json!({"spec": {}}),
            &[
                "Required spec.accessModes: Required value: at least 1 access mode is required",
                "Required spec.resources[storage]: Required value",
            ],
        );
        let paths = json!({"spec": {"rules": [{"http": {"paths": [{"path": "/"}]}}]}});
        let told =
            "Required spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified";
        expect_new("networking.k8s.io/v1/ingresses", &paths, &[told]);
        expect_new("networking.k8s.io/v1/ingresses", &json!({"spec": {}}), &[]);
    }
}
