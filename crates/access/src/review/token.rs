//! TokenReview (whose token is this?) and TokenRequest (give me one for this ServiceAccount).

use jiff::Timestamp;
use meta::time::format_time;
use meta::{FieldError, FieldErrors, GroupKind, Status, Value, object};
use serde_json::json;

use super::{answered, part, spec, text, texts};
use crate::{IssuedToken, User};

const GROUP: &str = "authentication.k8s.io";
const MIN_SECONDS: i64 = 10 * 60;
const MAX_SECONDS: i64 = 1 << 32;
const DEFAULT_SECONDS: i64 = 60 * 60;

/// A token to look at, and for which audiences it should be good; none means the API server's own.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenReview {
    pub token: String,
    pub audiences: Vec<String>,
}

impl std::fmt::Debug for TokenReview {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenReview").field("audiences", &self.audiences).finish_non_exhaustive()
    }
}

/// What a new token should be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRequest {
    /// None means the API server's own.
    pub audiences: Vec<String>,
    pub seconds: i64,
    /// The object that the token dies with.
    pub bound: Option<BoundReference>,
}

/// `boundObjectRef`: the caller looks the object up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoundReference {
    pub api_version: String,
    /// `Pod`, `Secret` or `Node`.
    pub kind: String,
    pub name: String,
    /// Empty means that any object of that name will do.
    pub uid: String,
}

/// Reads and checks a TokenReview.
pub fn token_review(review: &Value) -> Result<TokenReview, Status> {
    let spec = spec(review);
    let token = text(spec, "token");
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let audiences = texts(spec.get("audiences").unwrap_or(&Value::Null));
    Ok(TokenReview { token: token.to_owned(), audiences })
}

/// The token review with its answer: the user and the audiences that fit, or why the token is not good.
pub fn token_review_answer(review: &Value, answer: Result<(&User, &[String]), &str>) -> Value {
    let status = match answer {
        Ok((user, audiences)) => {
            let mut status = json!({"authenticated": true, "user": user.to_json()});
            if !audiences.is_empty() {
                status["audiences"] = json!(audiences);
            }
            status
        }
        Err("") => json!({"user": {}}),
        Err(error) => json!({"user": {}, "error": error}),
    };
    answered(review, status)
}

/// What a TokenRequest says about its ServiceAccount, if anything, must fit the path.
pub fn check_token_subject(request: &Value, namespace: &str, account_name: &str) -> Result<(), Status> {
    let pairs =
        [("name", object::name(request), account_name), ("namespace", object::namespace(request), namespace)];
    for (what, own, expected) in pairs {
        if !own.is_empty() && own != expected {
            let detail = format!("must match the service account {what} if specified");
            let error = FieldError::invalid(format!("metadata.{what}"), own, detail);
            return Err(Status::invalid(&GroupKind::new(GROUP, "TokenRequest"), account_name, error));
        }
    }
    Ok(())
}

/// Reads and checks a TokenRequest for the ServiceAccount of this name.
pub fn token_request(request: &Value, account_name: &str) -> Result<TokenRequest, Status> {
    let spec = spec(request);
    let mut errors = FieldErrors::default();
    let seconds = match spec.get("expirationSeconds") {
        None | Some(Value::Null) => DEFAULT_SECONDS,
        Some(value) => value.as_i64().unwrap_or(0),
    };
    let field = "spec.expirationSeconds";
    if seconds < MIN_SECONDS {
        let detail = "may not specify a duration less than 10 minutes";
        errors.push(FieldError::invalid_shown(field, seconds.to_string(), detail));
    }
    if seconds > MAX_SECONDS {
        let detail = "may not specify a duration larger than 2^32 seconds";
        errors.push(FieldError::invalid_shown(field, seconds.to_string(), detail));
    }
    if !errors.is_empty() {
        return Err(errors.into_status(&GroupKind::new(GROUP, "TokenRequest"), ""));
    }
    let bound = part(spec, "boundObjectRef").map(|it| BoundReference {
        api_version: text(it, "apiVersion").to_owned(),
        kind: text(it, "kind").to_owned(),
        name: text(it, "name").to_owned(),
        uid: text(it, "uid").to_owned(),
    });
    if let Some(bound) = &bound {
        let is_known =
            matches!((bound.api_version.as_str(), bound.kind.as_str()), ("v1", "Pod" | "Secret" | "Node"));
        if !is_known {
            let (group, version) = bound.api_version.split_once('/').unwrap_or(("", &bound.api_version));
            let kind = &bound.kind;
            let message = format!(
                "cannot bind token for serviceaccount {account_name:?} to {group}/{version}, Kind={kind}"
            );
            return Err(Status::bad_request(message));
        }
    }
    let audiences = texts(spec.get("audiences").unwrap_or(&Value::Null));
    Ok(TokenRequest { audiences, seconds, bound })
}

/// The token request with its answer. `wanted` fills in what the request left open.
pub fn token_request_answer(
    request: &Value,
    namespace: &str,
    account_name: &str,
    wanted: &TokenRequest,
    issued: &IssuedToken,
    now: Timestamp,
) -> Value {
    let status = json!({"token": issued.token, "expirationTimestamp": format_time(issued.expires)});
    let mut answer = answered(request, status);
    answer["apiVersion"] = json!("authentication.k8s.io/v1");
    answer["kind"] = json!("TokenRequest");
    answer["metadata"] =
        json!({"name": account_name, "namespace": namespace, "creationTimestamp": format_time(now)});
    let bound = part(spec(request), "boundObjectRef").cloned().unwrap_or(Value::Null);
    answer["spec"] =
        json!({"audiences": wanted.audiences, "expirationSeconds": wanted.seconds, "boundObjectRef": bound});
    answer
}
