//! AdmissionReview: what a webhook is asked, and what its answer says, once it is believed.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use meta::{Details, GroupVersionKind, GroupVersionResource, Reason, Status, Value, field::quote};
use schema::json;
use serde_json::json as tree;
use uuid::Uuid;

use crate::{Attributes, HookKind};

/// A question, and the uid that its answer must repeat.
pub(crate) struct Question {
    pub(crate) uid: String,
    pub(crate) body: Bytes,
}

/// What a webhook decided.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) is_allowed: bool,
    /// Why not, as a `Status`.
    pub(crate) result: Option<Value>,
    /// A JSON patch; empty if nothing is to change.
    pub(crate) patch: Vec<u8>,
    pub(crate) warnings: Vec<String>,
    pub(crate) annotations: Vec<(String, String)>,
}

/// Asks about a request, as if it had come for `resource`.
pub(crate) fn question(
    review: &str,
    attributes: &Attributes<'_>,
    resource: &GroupVersionResource,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Question {
    let uid = Uuid::new_v4().to_string();
    let own = &attributes.kind;
    // Subresources have kinds of their own, which no version of the resource changes.
    let kind = if own.group_version() == attributes.resource.group_version() {
        GroupVersionKind {
            group: resource.group.clone(),
            version: resource.version.clone(),
            kind: own.kind.clone(),
        }
    } else {
        own.clone()
    };
    let mut request = tree!({
        "uid": uid,
        "kind": shown_kind(&kind),
        "resource": shown_resource(resource),
        "requestKind": shown_kind(own),
        "requestResource": shown_resource(&attributes.resource),
        "operation": attributes.operation.as_str(),
        "userInfo": attributes.user.to_json(),
        "object": new,
        "oldObject": old,
        "dryRun": attributes.dry_run,
        "options": attributes.options,
    });
    for (field, text) in [
        ("subResource", attributes.subresource),
        ("requestSubResource", attributes.subresource),
        ("name", attributes.name),
        ("namespace", attributes.namespace),
    ] {
        if !text.is_empty() {
            request[field] = Value::from(text);
        }
    }
    let whole = tree!({"kind": "AdmissionReview", "apiVersion": review, "request": request});
    Question { uid, body: Bytes::from(json::to_vec(&whole)) }
}

fn shown_kind(kind: &GroupVersionKind) -> Value {
    tree!({"group": &*kind.group, "version": kind.version.as_str(), "kind": &*kind.kind})
}

fn shown_resource(it: &GroupVersionResource) -> Value {
    tree!({"group": &*it.group, "version": it.version.as_str(), "resource": &*it.resource})
}

/// Reads an answer, or says why it is none.
pub(crate) fn verdict(kind: HookKind, review: &str, uid: &str, answer: &[u8]) -> Result<Verdict, String> {
    let answer = json::parse(answer, json::Limits::REQUEST)
        .map_err(|it| format!("couldn't get version/kind; json parse error: {it}"))?;
    let text =
        |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(response) = answer.get("response").filter(|it| it.is_object()) else {
        return Err("webhook response was absent".to_owned());
    };
    let is_first = review == "admission.k8s.io/v1";
    if is_first && text(response, "uid") != uid {
        return Err(format!("expected response.uid={}, got {}", quote(uid), quote(&text(response, "uid"))));
    }
    let shown = |api_version: &str, kind: &str| {
        let api_version = if api_version.is_empty() { "/" } else { api_version };
        format!("{api_version}, Kind={kind}")
    };
    let (api_version, own_kind) = (text(&answer, "apiVersion"), text(&answer, "kind"));
    if is_first && (api_version != review || own_kind != "AdmissionReview") {
        let (wanted, got) = (shown(review, "AdmissionReview"), shown(&api_version, &own_kind));
        return Err(format!("expected webhook response of {wanted}, got {got}"));
    }
    let is_allowed = match response.get("allowed") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(it)) => *it,
        Some(_) => return Err("response.allowed is not a boolean".to_owned()),
    };
    Ok(Verdict {
        is_allowed,
        result: response.get("status").filter(|it| it.is_object()).cloned(),
        patch: patch(kind, is_first, response)?,
        warnings: texts(response.get("warnings")),
        annotations: response
            .get("auditAnnotations")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect(),
    })
}

fn texts(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The patch of a response. Only webhooks that may change objects may have one, and must then say that it is one.
fn patch(kind: HookKind, is_first: bool, response: &Value) -> Result<Vec<u8>, String> {
    let patch_type = response.get("patchType").filter(|it| !it.is_null()).map(|it| it.as_str().unwrap_or(""));
    let patch = response.get("patch").and_then(Value::as_str).unwrap_or_default();
    let patch = STANDARD.decode(patch).map_err(|it| format!("response.patch is not base64: {it}"))?;
    let refuse = |why: &str| Err(why.to_owned());
    match (kind, patch.is_empty(), patch_type) {
        // The older review knew nothing but JSON patches.
        (HookKind::Mutating, false, None) if !is_first => Ok(patch),
        (HookKind::Mutating, false, None) => {
            refuse("webhook returned response.patch but not response.patchType")
        }
        (HookKind::Mutating, true, Some(_)) if is_first => {
            refuse("webhook returned response.patchType but not response.patch")
        }
        (HookKind::Mutating, _, Some("")) => refuse("webhook returned invalid response.patchType of \"\""),
        (HookKind::Mutating, false, Some(other)) if other != "JSONPatch" => {
            Err(format!("unsupported patch type {}", quote(other)))
        }
        (HookKind::Mutating, _, _) => Ok(patch),
        (HookKind::Validating, false, _) if is_first => {
            refuse("validating webhook may not return response.patch")
        }
        (HookKind::Validating, _, Some(_)) if is_first => {
            refuse("validating webhook may not return response.patchType")
        }
        (HookKind::Validating, _, _) => Ok(Vec::new()),
    }
}

/// The longest message of a webhook that is passed on.
const MAX_MESSAGE: usize = 64 * 1024;

/// The refusal of a webhook, with what it said about it.
pub(crate) fn denied(name: &str, result: Option<&Value>) -> Status {
    let text = |field: &str| {
        let text = result.and_then(|it| it.get(field)).and_then(Value::as_str).unwrap_or_default();
        text.chars().take(MAX_MESSAGE).collect::<String>()
    };
    let denied = format!("admission webhook {} denied the request", quote(name));
    let message = match (text("message"), text("reason")) {
        (message, _) if !message.is_empty() => format!("{denied}: {message}"),
        (_, reason) if !reason.is_empty() => format!("{denied}: {reason}"),
        _ => format!("{denied} without explanation"),
    };
    let code = result.and_then(|it| it.get("code")).and_then(Value::as_u64).unwrap_or(0);
    let code = u16::try_from(code).ok().filter(|it| (400..600).contains(it)).unwrap_or(400);
    let reason = serde_json::from_value(Value::from(text("reason"))).unwrap_or(Reason::Unknown);
    let mut status = Status::failure(code, reason, message);
    let details = result.and_then(|it| it.get("details")).cloned();
    status.details = details.and_then(|it| serde_json::from_value::<Details>(it).ok()).map(Box::new);
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "admission.k8s.io/v1";

    fn read(kind: HookKind, response: &Value) -> Result<Verdict, String> {
        let answer = tree!({"apiVersion": V1, "kind": "AdmissionReview", "response": response});
        verdict(kind, V1, "u", answer.to_string().as_bytes())
    }

    #[test]
    fn answers_that_lie_are_not_believed() {
        use HookKind::{Mutating, Validating};
        let check = |kind: HookKind, response: Value, why: &str| {
            assert_eq!(read(kind, &response).unwrap_err(), why);
        };
        check(Mutating, Value::Null, "webhook response was absent");
        check(Mutating, tree!({"uid": "x"}), r#"expected response.uid="u", got "x""#);
        check(Mutating, tree!({"uid": "u", "allowed": "yes"}), "response.allowed is not a boolean");
        let patched = |patch_type: Value| tree!({"uid": "u", "allowed": true, "patch": "W10=", "patchType": patch_type});
        check(Mutating, patched(Value::Null), "webhook returned response.patch but not response.patchType");
        check(Mutating, patched(tree!("Merge")), "unsupported patch type \"Merge\"");
        check(
            Mutating,
            tree!({"uid": "u", "patchType": "JSONPatch"}),
            "webhook returned response.patchType but not response.patch",
        );
        check(Validating, patched(Value::Null), "validating webhook may not return response.patch");
        assert_eq!(read(Mutating, &patched(tree!("JSONPatch"))).unwrap().patch, b"[]");
        let other = tree!({"apiVersion": "v2", "kind": "Other", "response": {"uid": "u"}}).to_string();
        let why = verdict(Mutating, V1, "u", other.as_bytes()).unwrap_err();
        assert_eq!(
            why,
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got v2, Kind=Other"
        );
        assert!(verdict(Mutating, V1, "u", b"<html>").unwrap_err().starts_with("couldn't get version/kind"));
    }

    #[test]
    fn refusals_are_told_as_upstream_tells_them() {
        let check = |result: Value, code: u16, message: &str| {
            let status = denied("a.b.c", Some(&result));
            assert_eq!((status.code, status.message.as_str()), (code, message));
        };
        let start = "admission webhook \"a.b.c\" denied the request";
        check(tree!({"message": "no"}), 400, &format!("{start}: no"));
        check(tree!({"reason": "Forbidden", "code": 403}), 403, &format!("{start}: Forbidden"));
        check(tree!({"code": 200}), 400, &format!("{start} without explanation"));
        check(tree!({"code": 70_000, "reason": "Odd"}), 400, &format!("{start}: Odd"));
        assert_eq!(denied("a.b.c", Some(&tree!({"reason": "Forbidden"}))).reason, Reason::Forbidden);
    }
}
