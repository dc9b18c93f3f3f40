//! Fields that stay what they were when the object was made, of kinds without rules of their own.

use meta::{FieldError, FieldErrors, Value, validate::IMMUTABLE};

use super::value::{at, items, number, text};

/// What a change is called that is refused.
#[derive(Clone, Copy)]
enum Refusal {
    /// `updates to … are forbidden.`
    Forbidden,
    /// `field is immutable`
    Invalid,
}

fn fields(group: &str, resource: &str) -> &'static [(&'static [&'static str], Refusal)] {
    use Refusal::{Forbidden, Invalid};
    match (group, resource) {
        ("storage.k8s.io", "storageclasses") => &[
            (&["parameters"], Forbidden),
            (&["provisioner"], Forbidden),
            (&["reclaimPolicy"], Forbidden),
            (&["volumeBindingMode"], Invalid),
        ],
        ("certificates.k8s.io", "clustertrustbundles") => &[(&["spec", "signerName"], Invalid)],
        ("certificates.k8s.io", "podcertificaterequests") => &[(&["spec"], Invalid)],
        ("networking.k8s.io", "ingressclasses") => &[(&["spec", "controller"], Invalid)],
        ("discovery.k8s.io", "endpointslices") => &[(&["addressType"], Invalid)],
        ("node.k8s.io", "runtimeclasses") => &[(&["handler"], Invalid)],
        _ => &[],
    }
}

/// What is wrong with a change.
pub(super) fn validate(group: &str, resource: &str, new: &Value, old: &Value, errors: &mut FieldErrors) {
    for (path, refusal) in fields(group, resource) {
        let (now, then) = (at(new, path), at(old, path));
        if now == then {
            continue;
        }
        let place = path.join(".");
        errors.push(match refusal {
            Refusal::Forbidden => {
                let detail = format!("updates to {place} are forbidden.");
                FieldError::forbidden(place, detail)
            }
            Refusal::Invalid => {
                let shown = now.map_or_else(|| "\"\"".to_owned(), Value::to_string);
                FieldError::invalid_shown(place, shown, IMMUTABLE)
            }
        });
    }
    match (group, resource) {
        ("", "persistentvolumeclaims") => check_claim(new, old, errors),
        ("", "pods") => check_pod(new, old, errors),
        _ => {}
    }
}

/// A claim is what was asked for; once it is bound, it may grow.
fn check_claim(new: &Value, old: &Value, errors: &mut FieldErrors) {
    const FIXED: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                         bound claims";
    let is_bound = text(new, &["status", "phase"]) == "Bound";
    let kept = |claim: &Value| {
        let mut spec = at(claim, &["spec"]).cloned().unwrap_or_default();
        if let Some(spec) = spec.as_object_mut() {
            if text(old, &["spec", "volumeName"]).is_empty() {
                spec.remove("volumeName");
            }
            spec.remove("volumeAttributesClassName");
            if is_bound
                && let Some(requests) = spec.get_mut("resources").and_then(|it| it.get_mut("requests"))
            {
                requests.as_object_mut().map(|it| it.remove("storage"));
            }
        }
        spec
    };
    if kept(new) != kept(old) {
        errors.push(FieldError::forbidden("spec", FIXED));
    }
}

/// A Pod keeps its spec, but for images and a few other things.
fn check_pod(new: &Value, old: &Value, errors: &mut FieldErrors) {
    const FIXED: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
        `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
        tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
    for list in ["containers", "initContainers"] {
        let (now, then) = (items(new, &["spec", list]), items(old, &["spec", list]));
        if now.len() != then.len() {
            let detail = "pod updates may not add or remove containers";
            return errors.push(FieldError::forbidden(format!("spec.{list}"), detail));
        }
        for (index, container) in now.iter().enumerate() {
            if text(container, &["image"]).is_empty() {
                errors.push(FieldError::required(format!("spec.{list}[{index}].image"), ""));
            }
        }
    }
    if !check_deadline(new, old, errors) {
        return;
    }
    check_tolerations(new, old, errors);
    let is_gated = !items(old, &["spec", "schedulingGates"]).is_empty();
    let was_negative = number(old, &["spec", "terminationGracePeriodSeconds"]).is_some_and(|it| it < 0);
    let is_mended = was_negative && number(new, &["spec", "terminationGracePeriodSeconds"]) == Some(1);
    let kept = |pod: &Value| {
        let mut spec = at(pod, &["spec"]).cloned().unwrap_or_default();
        let Some(map) = spec.as_object_mut() else { return spec };
        for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
            map.remove(field);
        }
        if is_mended {
            map.remove("terminationGracePeriodSeconds");
        }
        if is_gated {
            // Where it may run is still open.
            map.remove("nodeSelector");
            map.remove("affinity");
        }
        for list in ["containers", "initContainers"] {
            for it in map.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                it.as_object_mut().map(|it| it.remove("image"));
            }
        }
        spec
    };
    if kept(new) != kept(old) {
        errors.push(FieldError::forbidden("spec", FIXED));
    }
}

/// A deadline may come nearer. Nothing else is said if it does not.
fn check_deadline(new: &Value, old: &Value, errors: &mut FieldErrors) -> bool {
    let field = "spec.activeDeadlineSeconds";
    let of = |pod: &Value| number(pod, &["spec", "activeDeadlineSeconds"]);
    let (value, detail) = match (of(new), of(old)) {
        (Some(now), _) if !(0..=i64::from(i32::MAX)).contains(&now) => {
            (now.to_string(), "must be between 0 and 2147483647, inclusive")
        }
        (Some(now), Some(then)) if then < now => {
            (now.to_string(), "must be less than or equal to previous value")
        }
        (None, Some(_)) => ("null".to_owned(), "must not update from a positive integer to nil value"),
        _ => return true,
    };
    errors.push(FieldError::invalid_shown(field, value, detail));
    of(new).is_none()
}

fn check_tolerations(new: &Value, old: &Value, errors: &mut FieldErrors) {
    const ADDED: &str = "existing toleration can not be modified except its tolerationSeconds";
    let without_time = |it: &Value| {
        let mut it = it.clone();
        it.as_object_mut().map(|it| it.remove("tolerationSeconds"));
        it
    };
    let now: Vec<Value> = items(new, &["spec", "tolerations"]).iter().map(without_time).collect();
    let is_gone = |it: &Value| !now.contains(&without_time(it));
    if items(old, &["spec", "tolerations"]).iter().any(is_gone) {
        errors.push(FieldError::forbidden("spec.tolerations", ADDED));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::testing::expect_changed;

    fn told(resource: &str, new: &Value, old: &Value) -> Vec<String> {
        let mut errors = FieldErrors::default();
        validate("", resource, new, old, &mut errors);
        errors.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn classes_stay_what_they_are() {
        let class = |provisioner: &str, mode: &str| json!({"provisioner": provisioner, "reclaimPolicy": "Delete", "volumeBindingMode": mode});
        expect_changed(
            "storage.k8s.io/v1/storageclasses",
            &class("b", "WaitForFirstConsumer"),
            &class("a", "Immediate"),
            &[
                "Forbidden provisioner: Forbidden: updates to provisioner are forbidden.",
                "Invalid volumeBindingMode: Invalid value: \"WaitForFirstConsumer\": field is immutable",
            ],
        );
        let class = |it: &str| json!({"spec": {"controller": it}});
        let want = "Invalid spec.controller: Invalid value: \"b\": field is immutable";
        expect_changed("networking.k8s.io/v1/ingressclasses", &class("b"), &class("a"), &[want]);
    }

    #[test]
    fn pods_change_only_in_a_few_places() {
        let pod = |image: &str, command: &str, rest: &Value| {
            let mut spec = json!({"containers": [{"name": "c", "image": image, "command": [command]}]});
            spec.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            json!({ "spec": spec })
        };
        let old = pod("a", "x", &json!({"activeDeadlineSeconds": 10, "tolerations": [{"key": "k"}]}));
        let with = |rest: Value| pod("b", "x", &rest);
        let kept = json!({"key": "k", "tolerationSeconds": 5});
        let more = json!({"activeDeadlineSeconds": 5, "tolerations": [kept, {"key": "l"}]});
        assert_eq!(told("pods", &with(more), &old), [""; 0]);
        let later = json!({"activeDeadlineSeconds": 11, "tolerations": [{"key": "k"}]});
        assert_eq!(
            told("pods", &with(later), &old),
            ["spec.activeDeadlineSeconds: Invalid value: 11: must be less than or equal to previous value"]
        );
        let fewer = json!({"activeDeadlineSeconds": 10, "tolerations": []});
        assert_eq!(
            told("pods", &with(fewer), &old),
            [
                "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"
            ]
        );
        let other = pod("a", "y", &json!({"activeDeadlineSeconds": 10, "tolerations": [{"key": "k"}]}));
        let said = told("pods", &other, &old);
        assert!(
            said[0].starts_with("spec: Forbidden: pod updates may not change fields other than"),
            "{said:?}"
        );
        let none = json!({"spec": {"containers": []}});
        assert_eq!(
            told("pods", &none, &old),
            ["spec.containers: Forbidden: pod updates may not add or remove containers"]
        );
    }

    #[test]
    fn claims_grow_once_they_are_bound() {
        let claim = |size: &str, phase: &str, mode: &str| {
            let spec = json!({"accessModes": [mode], "resources": {"requests": {"storage": size}}});
            json!({"spec": spec, "status": {"phase": phase}})
        };
        let old = claim("1Gi", "Bound", "ReadWriteOnce");
        assert_eq!(told("persistentvolumeclaims", &claim("2Gi", "Bound", "ReadWriteOnce"), &old), [""; 0]);
        assert_eq!(told("persistentvolumeclaims", &claim("1Gi", "Bound", "ReadWriteMany"), &old).len(), 1);
        let old = claim("1Gi", "Pending", "ReadWriteOnce");
        assert_eq!(told("persistentvolumeclaims", &claim("2Gi", "Pending", "ReadWriteOnce"), &old).len(), 1);
        let mut named = old.clone();
        named["spec"]["volumeName"] = json!("v");
        assert_eq!(told("persistentvolumeclaims", &named, &old), [""; 0]);
    }
}
