//! The review kinds: questions about access and identity that are asked as objects. Read from JSON, answered as JSON.
//!
//! Each question is a function that reads and checks an object; each answer a function that completes it with a
//! `status`. Deliberately not here: deciding. The caller asks the authorizer or the authenticators in between.

mod token;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;
use meta::time::format_time;
use meta::{FieldError, FieldErrors, GroupKind, Status, Value, object};
use serde_json::json;

pub use token::{
    BoundReference, TokenRequest, TokenReview, check_token_subject, token_request, token_request_answer,
    token_review, token_review_answer,
};

use crate::attributes::{OwnedAttributes, OwnedTarget, Verdict};
use crate::{Rules, User};

/// The group of the access reviews.
pub const GROUP: &str = "authorization.k8s.io";

/// About whom and what a SubjectAccessReview asks.
pub fn subject_access_review(review: &Value) -> Result<(User, OwnedAttributes), Status> {
    let mut errors = spec_errors(review);
    errors.extend(subject_errors(review));
    errors.extend(metadata_error(review, ""));
    finish("SubjectAccessReview", errors)?;
    Ok((subject(review), asked(review)))
}

/// About whom and what a LocalSubjectAccessReview in this namespace asks.
pub fn local_subject_access_review(
    review: &Value,
    namespace: &str,
) -> Result<(User, OwnedAttributes), Status> {
    let spec = spec(review);
    let mut errors = spec_errors(review);
    errors.extend(subject_errors(review));
    errors.extend(metadata_error(review, namespace));
    if let Some(resource) = part(spec, "resourceAttributes") {
        let found = text(resource, "namespace");
        if found != namespace {
            let field = "spec.resourceAttributes.namespace";
            errors.push(FieldError::invalid(field, found, "must match metadata.namespace"));
        }
    }
    if let Some(path) = part(spec, "nonResourceAttributes") {
        let detail = "disallowed on this kind of request";
        errors.push(FieldError::invalid_shown("spec.nonResourceAttributes", shown_path(path), detail));
    }
    finish("LocalSubjectAccessReview", errors)?;
    Ok((subject(review), asked(review)))
}

/// What a SelfSubjectAccessReview asks; it is about the one who asks.
pub fn self_subject_access_review(review: &Value) -> Result<OwnedAttributes, Status> {
    let mut errors = spec_errors(review);
    errors.extend(metadata_error(review, ""));
    finish("SelfSubjectAccessReview", errors)?;
    Ok(asked(review))
}

/// The access review with its answer.
pub fn access_review_answer(review: &Value, verdict: &Verdict) -> Value {
    let mut status = json!({"allowed": verdict.is_allowed()});
    if matches!(verdict, Verdict::Deny(_)) {
        status["denied"] = json!(true);
    }
    if !verdict.reason().is_empty() {
        status["reason"] = json!(verdict.reason());
    }
    answered(review, status)
}

/// The namespace that a SelfSubjectRulesReview asks about.
pub fn self_subject_rules_review(review: &Value) -> Result<String, Status> {
    match text(spec(review), "namespace") {
        "" => Err(Status::bad_request("no namespace on request")),
        namespace => Ok(namespace.to_owned()),
    }
}

/// The rules review with its answer. Roles that are missing make it incomplete only in the error it carries, as upstream.
pub fn rules_review_answer(review: &Value, rules: &Rules) -> Value {
    let resource_rules: Vec<Value> = rules.resource_rules.iter().map(|it| it.to_json()).collect();
    let non_resource_rules: Vec<Value> = rules.non_resource_rules.iter().map(|it| it.to_json()).collect();
    let mut status = json!({
        "resourceRules": resource_rules,
        "nonResourceRules": non_resource_rules,
        "incomplete": rules.is_incomplete,
    });
    if !rules.errors.is_empty() {
        status["evaluationError"] = json!(rules.errors.join(", "));
    }
    answered(review, status)
}

/// The answer to a SelfSubjectReview: who is asking.
pub fn self_subject_review_answer(review: &Value, user: &User, now: Timestamp) -> Value {
    let mut answer = answered(review, json!({"userInfo": user.to_json()}));
    object::metadata_mut(&mut answer).insert("creationTimestamp".to_owned(), json!(format_time(now)));
    answer
}

fn answered(review: &Value, status: Value) -> Value {
    let mut answer = review.clone();
    object::as_map_mut(&mut answer).insert("status".to_owned(), status);
    answer
}

fn spec(review: &Value) -> &Value {
    review.get("spec").unwrap_or(&Value::Null)
}

fn part<'a>(spec: &'a Value, field: &str) -> Option<&'a Value> {
    spec.get(field).filter(|it| it.is_object())
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or("")
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn subject(review: &Value) -> User {
    let spec = spec(review);
    let extra = spec.get("extra").and_then(Value::as_object).into_iter().flatten();
    User {
        name: text(spec, "user").to_owned(),
        uid: text(spec, "uid").to_owned(),
        groups: texts(spec.get("groups").unwrap_or(&Value::Null)),
        extra: extra.map(|(key, values)| (key.clone(), texts(values))).collect::<BTreeMap<_, _>>(),
    }
}

fn asked(review: &Value) -> OwnedAttributes {
    let spec = spec(review);
    if let Some(path) = part(spec, "nonResourceAttributes") {
        let target = OwnedTarget::Path(text(path, "path").to_owned());
        return OwnedAttributes { verb: text(path, "verb").to_owned(), target };
    }
    let resource = spec.get("resourceAttributes").unwrap_or(&Value::Null);
    let owned = |field| text(resource, field).to_owned();
    let version = if owned("version").is_empty() { "*".to_owned() } else { owned("version") };
    let target = OwnedTarget::Resource {
        group: owned("group"),
        version,
        resource: owned("resource"),
        subresource: owned("subresource"),
        namespace: owned("namespace"),
        name: owned("name"),
    };
    OwnedAttributes { verb: owned("verb"), target }
}

fn spec_errors(review: &Value) -> Vec<FieldError> {
    let spec = spec(review);
    match (part(spec, "resourceAttributes"), part(spec, "nonResourceAttributes")) {
        (Some(_), Some(path)) => {
            let detail = "cannot be specified in combination with resourceAttributes";
            vec![FieldError::invalid_shown("spec.nonResourceAttributes", shown_path(path), detail)]
        }
        (None, None) => {
            let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            vec![FieldError::invalid("spec.resourceAttributes", "null", detail)]
        }
        _ => Vec::new(),
    }
}

fn subject_errors(review: &Value) -> Option<FieldError> {
    let spec = spec(review);
    let has_groups = spec.get("groups").and_then(Value::as_array).is_some_and(|it| !it.is_empty());
    let is_nobody = text(spec, "user").is_empty() && !has_groups;
    is_nobody.then(|| FieldError::invalid("spec.user", "", "at least one of user or group must be specified"))
}

/// Reviews are not stored, so they have no names. `namespace` may stand there if the kind has one.
fn metadata_error(review: &Value, namespace: &str) -> Option<FieldError> {
    let metadata = review.get("metadata")?.as_object()?;
    let is_allowed = |(key, value): (&String, &Value)| match key.as_str() {
        "managedFields" => true,
        "creationTimestamp" => value.is_null(),
        "namespace" => !namespace.is_empty() || value.as_str() == Some(""),
        _ => value.is_null() || value.as_str() == Some(""),
    };
    if metadata.iter().all(is_allowed) {
        return None;
    }
    let detail = if namespace.is_empty() { "must be empty" } else { "must be empty except for namespace" };
    let mut shown = metadata.clone();
    shown.remove("managedFields");
    Some(FieldError::invalid_shown("metadata", Value::Object(shown).to_string(), detail))
}

fn shown_path(path: &Value) -> String {
    json!({"Path": text(path, "path"), "Verb": text(path, "verb")}).to_string()
}

fn finish(kind: &str, errors: Vec<FieldError>) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(FieldErrors(errors).into_status(&GroupKind::new(GROUP, kind), ""))
}
