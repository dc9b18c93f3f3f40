//! Kinds that make Pods: their selectors, their templates, and what of them may not change.
//!
//! Deliberately not all of upstream's rules: those that ordinary mistakes run into. Pods themselves are in `pods.rs`.

use meta::{FieldError, FieldErrors, Value, validate::IMMUTABLE};

use super::{
    cron, pods, selector,
    value::{at, entries, items, number, text, texts},
};

const NO_MATCH: &str = "`selector` does not match template `labels`";
const STATEFUL_SET_FIXED: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
     'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
const STATEFUL_SET_OPEN: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];
const JOB_FIXED: [&str; 7] = [
    "selector",
    "template",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
];

/// A new object, or the new state of an old one.
pub(super) fn validate(resource: &str, object: &Value, errors: &mut FieldErrors) {
    let nothing = Value::Null;
    let spec = at(object, &["spec"]).unwrap_or(&nothing);
    match resource {
        "deployments" => check_deployment(spec, errors),
        "replicasets" => {
            check_counts(spec, "spec", &["replicas", "minReadySeconds"], errors);
            check_replicas(spec, "deployment", "ReplicaSet", errors);
        }
        "statefulsets" => check_stateful_set(spec, errors),
        "daemonsets" => check_daemon_set(spec, errors),
        "replicationcontrollers" => check_replication_controller(spec, errors),
        "jobs" => check_job(spec, errors),
        "cronjobs" => check_cron_job(spec, errors),
        "pods" => pods::check_spec(spec, "spec", errors),
        "podtemplates" => {
            pods::check_template(at(object, &["template"]).unwrap_or(&nothing), "template", errors);
        }
        _ => {}
    }
}

/// The change of an object.
pub(super) fn validate_changed(resource: &str, new: &Value, old: &Value, errors: &mut FieldErrors) {
    if resource == "pods" {
        // A Pod is what it was when it was made; what may change of it is decided elsewhere.
        return;
    }
    validate(resource, new, errors);
    let field = |object: &Value, name: &str| at(object, &["spec", name]).cloned().unwrap_or_default();
    let mut keep = |name: &str| {
        let value = field(new, name);
        if value != field(old, name) {
            errors.push(FieldError::invalid_shown(format!("spec.{name}"), value.to_string(), IMMUTABLE));
        }
    };
    match resource {
        "deployments" | "replicasets" | "daemonsets" => keep("selector"),
        "jobs" => {
            // An indexed Job may be resized; others have as many completions as they were made with.
            if text(new, &["spec", "completionMode"]) != "Indexed" {
                keep("completions");
            }
            let is_suspended = at(old, &["spec", "suspend"]) == Some(&Value::Bool(true));
            let is_open = |name: &str| name == "template" && is_suspended;
            JOB_FIXED.iter().filter(|it| !is_open(it)).for_each(|it| keep(it));
        }
        "statefulsets" => {
            let fixed = |object: &Value| {
                let mut spec = at(object, &["spec"]).cloned().unwrap_or_default();
                if let Some(spec) = spec.as_object_mut() {
                    spec.retain(|field, _| !STATEFUL_SET_OPEN.contains(&field.as_str()));
                }
                spec
            };
            if fixed(new) != fixed(old) {
                errors.push(FieldError::forbidden("spec", STATEFUL_SET_FIXED));
            }
        }
        _ => {}
    }
}

fn check_deployment(spec: &Value, errors: &mut FieldErrors) {
    check_counts(spec, "spec", &["replicas"], errors);
    check_replicas(spec, "deployment", "ReplicaSet", errors);
    let strategy = at(spec, &["strategy"]).cloned().unwrap_or_default();
    match text(&strategy, &["type"]) {
        "Recreate" if at(&strategy, &["rollingUpdate"]).is_some() => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            errors.push(FieldError::forbidden("spec.strategy.rollingUpdate", detail));
        }
        "Recreate" | "RollingUpdate" => {}
        other => {
            let supported = ["Recreate", "RollingUpdate"];
            errors.push(FieldError::not_supported("spec.strategy.type", other, &supported));
        }
    }
    check_counts(
        spec,
        "spec",
        &["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"],
        errors,
    );
    if let Some(deadline) = number(spec, &["progressDeadlineSeconds"])
        && deadline <= number(spec, &["minReadySeconds"]).unwrap_or_default()
    {
        let detail = "must be greater than minReadySeconds";
        let field = "spec.progressDeadlineSeconds";
        errors.push(FieldError::invalid_shown(field, deadline.to_string(), detail));
    }
}

/// What Deployments and ReplicaSets have in common.
fn check_replicas(spec: &Value, of: &str, kind: &str, errors: &mut FieldErrors) {
    require_selector(spec, of, errors);
    if check_usable(spec, "invalid label selector", errors) {
        check_labels(spec, "spec", errors);
        let template = at(spec, &["template"]).cloned().unwrap_or_default();
        pods::check_template(&template, "spec.template", errors);
        restart_always(&template, "spec.template", kind, errors);
    }
}

fn check_stateful_set(spec: &Value, errors: &mut FieldErrors) {
    match text(spec, &["podManagementPolicy"]) {
        "OrderedReady" | "Parallel" => {}
        other => {
            let detail = "must be 'OrderedReady' or 'Parallel'";
            errors.push(FieldError::invalid("spec.podManagementPolicy", other, detail));
        }
    }
    check_counts(spec, "spec", &["replicas", "minReadySeconds"], errors);
    require_selector(spec, "statefulset", errors);
    let template = at(spec, &["template"]).cloned().unwrap_or_default();
    if check_usable(spec, "", errors) {
        check_labels(spec, "spec", errors);
        pods::check_template(&with_claims(spec, &template), "spec.template", errors);
    }
    restart_always(&template, "spec.template", "StatefulSet", errors);
}

/// Containers mount the claims of a StatefulSet as if they were volumes; a volume of the same name gives way.
fn with_claims(spec: &Value, template: &Value) -> Value {
    let mut template = template.clone();
    let claims: Vec<&str> =
        items(spec, &["volumeClaimTemplates"]).iter().map(|it| text(it, &["metadata", "name"])).collect();
    let mut volumes: Vec<Value> = items(&template, &["spec", "volumes"]).to_vec();
    volumes.retain(|it| !claims.contains(&text(it, &["name"])));
    volumes.extend(claims.into_iter().filter(|it| !it.is_empty()).map(|it| serde_json::json!({"name": it})));
    if let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("volumes".to_owned(), Value::Array(volumes));
    }
    template
}

fn check_daemon_set(spec: &Value, errors: &mut FieldErrors) {
    let selector = at(spec, &["selector"]);
    if let Some(it) = selector {
        selector::validate(it, "spec.selector", errors);
    }
    if selector.and_then(selector::unusable).is_none() {
        check_labels(spec, "spec", errors);
    }
    if selector.is_some_and(is_empty) {
        refuse_empty(spec, "daemonset", errors);
    }
    let template = at(spec, &["template"]).cloned().unwrap_or_default();
    pods::check_template(&template, "spec.template", errors);
    restart_always(&template, "spec.template", "DaemonSet", errors);
    check_counts(spec, "spec", &["minReadySeconds", "revisionHistoryLimit"], errors);
}

fn check_replication_controller(spec: &Value, errors: &mut FieldErrors) {
    check_counts(spec, "spec", &["minReadySeconds"], errors);
    if entries(spec, &["selector"]).next().is_none() {
        errors.push(FieldError::required("spec.selector", ""));
    }
    check_counts(spec, "spec", &["replicas"], errors);
    let Some(template) = at(spec, &["template"]) else {
        return errors.push(FieldError::required("spec.template", ""));
    };
    if !entries(spec, &["selector"]).all(|(key, value)| label(template, key) == value.as_str()) {
        errors.push(mismatch(template, "spec.template"));
    }
    pods::check_template(template, "spec.template", errors);
    restart_always(template, "spec.template", "ReplicationController", errors);
}

fn check_job(spec: &Value, errors: &mut FieldErrors) {
    check_job_spec(spec, "spec", errors);
    match at(spec, &["selector"]) {
        Some(it) => selector::validate(it, "spec.selector", errors),
        None => errors.push(FieldError::required("spec.selector", "")),
    }
    if at(spec, &["selector"]).and_then(selector::unusable).is_none() {
        check_labels(spec, "spec", errors);
    }
}

fn check_job_spec(spec: &Value, path: &str, errors: &mut FieldErrors) {
    let counts = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    check_counts(spec, path, &counts, errors);
    match text(spec, &["completionMode"]) {
        "Indexed" if at(spec, &["completions"]).is_none() => {
            let detail = "when completion mode is Indexed";
            errors.push(FieldError::required(format!("{path}.completions"), detail));
        }
        "" | "Indexed" | "NonIndexed" => {}
        other => {
            let field = format!("{path}.completionMode");
            errors.push(FieldError::not_supported(field, other, &["Indexed", "NonIndexed"]));
        }
    }
    let template = at(spec, &["template"]).cloned().unwrap_or_default();
    pods::check_template(&template, &format!("{path}.template"), errors);
    let field = format!("{path}.template.spec.restartPolicy");
    match text(&template, &["spec", "restartPolicy"]) {
        "OnFailure" | "Never" => {}
        "" | "Always" => {
            errors.push(FieldError::required(field, "valid values: \"OnFailure\", \"Never\""));
        }
        other => errors.push(FieldError::not_supported(field, other, &["OnFailure", "Never"])),
    }
}

fn check_cron_job(spec: &Value, errors: &mut FieldErrors) {
    let schedule = text(spec, &["schedule"]);
    if schedule.is_empty() {
        errors.push(FieldError::required("spec.schedule", ""));
    } else if let Some(why) = cron::complaint(schedule) {
        errors.push(FieldError::invalid("spec.schedule", schedule, why));
    }
    check_counts(spec, "spec", &["startingDeadlineSeconds"], errors);
    let policy = text(spec, &["concurrencyPolicy"]);
    let supported = ["Allow", "Forbid", "Replace"];
    if policy.is_empty() {
        errors.push(FieldError::required("spec.concurrencyPolicy", ""));
    } else if !supported.contains(&policy) {
        errors.push(FieldError::not_supported("spec.concurrencyPolicy", policy, &supported));
    }
    let job = at(spec, &["jobTemplate", "spec"]).cloned().unwrap_or_default();
    check_job_spec(&job, "spec.jobTemplate.spec", errors);
    check_counts(spec, "spec", &["successfulJobsHistoryLimit", "failedJobsHistoryLimit"], errors);
}

fn check_counts(spec: &Value, path: &str, fields: &[&str], errors: &mut FieldErrors) {
    for field in fields {
        if let Some(count) = number(spec, &[field]).filter(|it| *it < 0) {
            let detail = "must be greater than or equal to 0";
            errors.push(FieldError::invalid_shown(format!("{path}.{field}"), count.to_string(), detail));
        }
    }
}

fn require_selector(spec: &Value, of: &str, errors: &mut FieldErrors) {
    let Some(it) = at(spec, &["selector"]) else {
        return errors.push(FieldError::required("spec.selector", ""));
    };
    selector::validate(it, "spec.selector", errors);
    if is_empty(it) {
        refuse_empty(spec, of, errors);
    }
}

fn refuse_empty(spec: &Value, of: &str, errors: &mut FieldErrors) {
    let shown = at(spec, &["selector"]).cloned().unwrap_or_default().to_string();
    let detail = format!("empty selector is invalid for {of}");
    errors.push(FieldError::invalid_shown("spec.selector", shown, detail));
}

/// Whether something can be selected with it; says so if not.
fn check_usable(spec: &Value, detail: &str, errors: &mut FieldErrors) -> bool {
    match at(spec, &["selector"]) {
        Some(it) if selector::unusable(it).is_some() => {
            errors.push(FieldError::invalid_shown("spec.selector", it.to_string(), detail));
            false
        }
        _ => true,
    }
}

/// The selector must select what the template makes. No selector at all selects nothing, an empty one everything.
fn check_labels(spec: &Value, path: &str, errors: &mut FieldErrors) {
    let template = at(spec, &["template"]).cloned().unwrap_or_default();
    let is_matched = at(spec, &["selector"]).is_some_and(|it| matches(it, &template));
    if !is_matched {
        errors.push(mismatch(&template, &format!("{path}.template")));
    }
}

fn mismatch(template: &Value, path: &str) -> FieldError {
    let labels = at(template, &["metadata", "labels"]).cloned().unwrap_or_default();
    FieldError::invalid_shown(format!("{path}.metadata.labels"), labels.to_string(), NO_MATCH)
}

fn restart_always(template: &Value, path: &str, kind: &str, errors: &mut FieldErrors) {
    let policy = text(template, &["spec", "restartPolicy"]);
    if policy != "Always" {
        let field = format!("{path}.spec.restartPolicy");
        errors.push(FieldError::not_supported(field, policy, &["Always"]));
    }
    if at(template, &["spec", "activeDeadlineSeconds"]).is_some() {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.push(FieldError::forbidden(format!("{path}.spec.activeDeadlineSeconds"), detail));
    }
}

fn is_empty(selector: &Value) -> bool {
    entries(selector, &["matchLabels"]).next().is_none() && items(selector, &["matchExpressions"]).is_empty()
}

fn label<'a>(template: &'a Value, key: &str) -> Option<&'a str> {
    at(template, &["metadata", "labels", key]).and_then(Value::as_str)
}

fn matches(selector: &Value, template: &Value) -> bool {
    let is_expressed = |it: &Value| {
        let (label, values) = (label(template, text(it, &["key"])), texts(it, &["values"]));
        match text(it, &["operator"]) {
            "In" => label.is_some_and(|it| values.contains(&it)),
            "NotIn" => label.is_none_or(|it| !values.contains(&it)),
            "Exists" => label.is_some(),
            "DoesNotExist" => label.is_none(),
            _ => false,
        }
    };
    entries(selector, &["matchLabels"]).all(|(key, value)| label(template, key) == value.as_str())
        && items(selector, &["matchExpressions"]).iter().all(is_expressed)
}

#[cfg(test)]
mod tests;
