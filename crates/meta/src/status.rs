//! `Status`: how every failure, and some successes, are told to clients. Codes, reasons and texts are upstream's.
//!
//! Deliberately not here: HTTP types. A code is a number; the server puts it on the wire.

use serde::{Deserialize, Serialize};

use crate::{GroupKind, GroupResource, RetryAfter, field::quote};

/// The machine-readable reason of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Reason {
    #[serde(rename = "")]
    Unknown,
    Unauthorized,
    Forbidden,
    NotFound,
    AlreadyExists,
    Conflict,
    Gone,
    Invalid,
    ServerTimeout,
    #[serde(rename = "StorageReadError")]
    StoreReadError,
    Timeout,
    TooManyRequests,
    BadRequest,
    MethodNotAllowed,
    NotAcceptable,
    RequestEntityTooLarge,
    UnsupportedMediaType,
    InternalError,
    Expired,
    ServiceUnavailable,
}

/// A `v1` `Status` object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Always `Status`.
    pub kind: String,
    /// Always `v1`.
    #[serde(rename = "apiVersion")]
    pub api_version: String,
    /// List metadata; only a continue token is ever in it.
    pub metadata: StatusMetadata,
    /// `Success` or `Failure`.
    pub status: String,
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub message: String,
    /// For programs.
    #[serde(skip_serializing_if = "is_unknown", default = "unknown")]
    pub reason: Reason,
    /// What the failure is about.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub details: Option<Box<Details>>,
    /// The HTTP status code.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub code: u16,
}

/// The metadata of a `Status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusMetadata {
    /// Where to go on after an expired list.
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty", default)]
    pub continue_token: String,
    /// The revision that the answer belongs to.
    #[serde(rename = "resourceVersion", skip_serializing_if = "String::is_empty", default)]
    pub resource_version: String,
}

/// What a failure is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Details {
    /// The object's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The kind, or the resource: upstream uses the field for both.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The object's uid.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Single causes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// When to try again.
    #[serde(rename = "retryAfterSeconds", skip_serializing_if = "is_zero32")]
    pub retry_after_seconds: u32,
}

/// One cause of a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cause {
    /// The cause's own reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The field it is about.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

fn is_unknown(reason: &Reason) -> bool {
    *reason == Reason::Unknown
}

fn unknown() -> Reason {
    Reason::Unknown
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u16) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero32(number: &u32) -> bool {
    *number == 0
}

impl Status {
    /// A failure.
    pub fn failure(code: u16, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            kind: "Status".to_owned(),
            api_version: "v1".to_owned(),
            metadata: StatusMetadata::default(),
            status: "Failure".to_owned(),
            message: message.into(),
            reason,
            details: None,
            code,
        }
    }

    /// What a DELETE answers when the object is gone at once.
    pub fn deleted(resource: &GroupResource, name: &str, uid: &str) -> Self {
        let mut status = Self::failure(0, Reason::Unknown, "");
        "Success".clone_into(&mut status.status);
        status.details = Some(Box::new(Details {
            name: name.to_owned(),
            group: resource.group.to_string(),
            kind: resource.resource.to_string(),
            uid: uid.to_owned(),
            ..Details::default()
        }));
        status
    }

    /// What a request answers that made something happen without an object to show.
    pub fn created() -> Self {
        let mut status = Self::failure(201, Reason::Unknown, "");
        "Success".clone_into(&mut status.status);
        status
    }

    fn about(mut self, resource: &GroupResource, name: &str) -> Self {
        self.details = Some(Box::new(Details {
            name: name.to_owned(),
            group: resource.group.to_string(),
            kind: resource.resource.to_string(),
            ..Details::default()
        }));
        self
    }

    /// Adds when to try again, to the details and so to the `Retry-After` header.
    #[must_use]
    pub fn retry_after(mut self, after: RetryAfter) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = after.seconds();
        self
    }

    /// The same failure, met after something was written: nobody is told to try again.
    #[must_use]
    pub fn after_the_fact(mut self) -> Self {
        if let Some(details) = &mut self.details {
            details.retry_after_seconds = 0;
        }
        self
    }

    /// The seconds of [`Status::retry_after`].
    pub fn retry_after_seconds(&self) -> Option<u32> {
        self.details.as_ref().map(|it| it.retry_after_seconds).filter(|it| *it > 0)
    }

    /// 404 about an object.
    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::failure(404, Reason::NotFound, format!("{resource} {} not found", quote(name)))
            .about(resource, name)
    }

    /// 404 about a path that no resource answers to.
    pub fn no_such_resource() -> Self {
        let mut status =
            Self::failure(404, Reason::NotFound, "the server could not find the requested resource");
        status.details = Some(Box::default());
        status
    }

    /// 409: the name is taken.
    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        let message = format!("{resource} {} already exists", quote(name));
        Self::failure(409, Reason::AlreadyExists, message).about(resource, name)
    }

    /// 409: somebody else was faster, or a precondition does not hold.
    pub fn conflict(resource: &GroupResource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {}: {why}", quote(name));
        Self::failure(409, Reason::Conflict, message).about(resource, name)
    }

    /// 409 with upstream's words for a stale resourceVersion.
    pub fn modified(resource: &GroupResource, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    /// 403 about a resource.
    pub fn forbidden(resource: &GroupResource, name: &str, why: &str) -> Self {
        let message = match (resource.resource.is_empty(), name.is_empty()) {
            (true, _) => format!("forbidden: {why}"),
            (false, true) => format!("{resource} is forbidden: {why}"),
            (false, false) => format!("{resource} {} is forbidden: {why}", quote(name)),
        };
        Self::failure(403, Reason::Forbidden, message).about(resource, name)
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, Reason::BadRequest, message)
    }

    /// 401.
    pub fn unauthorized() -> Self {
        Self::failure(401, Reason::Unauthorized, "Unauthorized")
    }

    /// 405.
    pub fn method_not_supported(resource: &GroupResource, verb: &str) -> Self {
        let message =
            format!("{verb} is not supported on resources of kind {}", quote(&resource.to_string()));
        let mut status = Self::failure(405, Reason::MethodNotAllowed, message);
        status.details = Some(Box::new(Details {
            group: resource.group.to_string(),
            kind: resource.resource.to_string(),
            ..Details::default()
        }));
        status
    }

    /// 405 without words about a resource.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        let mut status = Self::failure(405, Reason::MethodNotAllowed, message);
        status.details = Some(Box::default());
        status
    }

    /// 406 with the list of what could have been asked for.
    pub fn not_acceptable(accepted: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", accepted.join(", "));
        Self::failure(406, Reason::NotAcceptable, message)
    }

    /// 415 with the list of what could have been sent.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::failure(415, Reason::UnsupportedMediaType, message)
    }

    /// 413.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::failure(
            413,
            Reason::RequestEntityTooLarge,
            format!("Request entity too large: {}", message.into()),
        )
    }

    /// 410: history is gone, list again.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, Reason::Expired, message)
    }

    /// 429 with when to try again.
    pub fn too_many_requests(message: impl Into<String>, after: RetryAfter) -> Self {
        Self::failure(429, Reason::TooManyRequests, message).retry_after(after)
    }

    /// 504: the server tried for too long, and what was to be done may have been.
    pub fn timeout(message: impl Into<String>) -> Self {
        Self::failure(504, Reason::Timeout, format!("Timeout: {}", message.into()))
    }

    /// 500.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        let mut status =
            Self::failure(500, Reason::InternalError, format!("Internal error occurred: {message}"));
        status.details = Some(Box::new(Details {
            causes: vec![Cause { message: message.to_string(), ..Cause::default() }],
            ..Details::default()
        }));
        status
    }

    /// 503 with when to try again.
    pub fn unavailable(message: impl Into<String>, after: RetryAfter) -> Self {
        Self::failure(503, Reason::ServiceUnavailable, message).retry_after(after)
    }

    /// 501: this server will never do it.
    pub fn not_implemented(message: impl Into<String>) -> Self {
        Self::failure(501, Reason::Unknown, message)
    }

    /// 422 about a field-less problem of an object.
    pub fn invalid(kind: &GroupKind, name: &str, error: crate::FieldError) -> Self {
        crate::FieldErrors(vec![error]).into_status(kind, name)
    }

    /// The JSON text.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a Status must serialize")
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}
