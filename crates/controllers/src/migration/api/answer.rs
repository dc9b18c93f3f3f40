//! What a server's answer to an empty patch means. Pure.
//!
//! Messages are read where codes do not tell: a refusal by a webhook, by a policy and by the authorizer are all 403.

use std::time::Duration;

use crate::error::Error;
use crate::migration::engine::Class;

/// What to make of an answer that is no success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The object is not there any more.
    Gone,
    /// Somebody else was faster.
    Conflict,
    /// It will be refused again.
    Refused(Class),
    /// It may pass.
    Later {
        class: Class,
        /// The server has too much to do.
        is_pressure: bool,
        /// When the server wants to be asked again.
        after: Option<Duration>,
    },
}

impl Verdict {
    /// Whether a webhook or policy is the reason. Those that look at an object seldom look at its status.
    pub(super) fn is_by_admission(&self) -> bool {
        match self {
            Self::Refused(class) | Self::Later { class, .. } => {
                matches!(class, Class::Denied | Class::WebhookUnreachable)
            }
            Self::Gone | Self::Conflict => false,
        }
    }
}

/// Reads the answer about the object of this name.
pub(super) fn judge(error: &Error, name: &str) -> Verdict {
    if error.proves_absent(name) {
        return Verdict::Gone;
    }
    let Error::Refused { code, reason, message, retry_after, .. } = error else {
        // No answer at all is what a server with too much to do gives last.
        return Verdict::Later { class: Class::Transient, is_pressure: true, after: None };
    };
    let later = |class, is_pressure| Verdict::Later { class, is_pressure, after: *retry_after };
    match code {
        409 => Verdict::Conflict,
        429 => later(Class::Throttled, true),
        400..=499 if is_denied(message) => Verdict::Refused(Class::Denied),
        401 => later(Class::Forbidden, false),
        403 if is_by_authorizer(message) => Verdict::Refused(Class::Forbidden),
        403 => Verdict::Refused(Class::Denied),
        // A path that is not served says nothing about the object; a resource that comes back may do.
        404 | 408 => later(Class::Transient, false),
        400..=499 => Verdict::Refused(Class::Invalid),
        _ if is_webhook_silent(message) => later(Class::WebhookUnreachable, false),
        _ if reason == "StorageReadError" || is_undecodable(message) => Verdict::Refused(Class::Undecodable),
        503 | 504 => later(Class::Transient, true),
        _ => later(Class::Transient, false),
    }
}

/// A webhook that converts or admits does not answer, or not as it should.
pub(super) fn is_webhook_silent(message: &str) -> bool {
    message.contains("conversion webhook for ") || message.contains("failed calling webhook")
}

fn is_denied(message: &str) -> bool {
    let by_webhook = message.contains("admission webhook") && message.contains("denied the request");
    by_webhook || message.contains("ValidatingAdmissionPolicy") || message.contains("denied request")
}

/// `User "x" cannot patch resource "widgets" in API group …`.
fn is_by_authorizer(message: &str) -> bool {
    message.contains(" cannot ") && message.contains(" resource ")
}

fn is_undecodable(message: &str) -> bool {
    const TOLD: [&str; 4] =
        ["from an invalid group/version", "unable to decode", "unable to transform key", "no kind \""];
    TOLD.iter().any(|it| message.contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, message: &str) -> Error {
        Error::Refused {
            code,
            reason: if code == 404 { "NotFound".to_owned() } else { String::new() },
            message: message.to_owned(),
            causes: Vec::new(),
            name: if message == "widgets \"w\" not found" { "w".to_owned() } else { String::new() },
            retry_after: None,
            next: None,
        }
    }

    /// In the words of kube-apiserver 1.36.
    #[test]
    fn answers_are_told_apart() {
        let later = |class, is_pressure| Verdict::Later { class, is_pressure, after: None };
        let cases = [
            (404, "widgets \"w\" not found", Verdict::Gone),
            (404, "the server could not find the requested resource", later(Class::Transient, false)),
            (
                409,
                "Operation cannot be fulfilled on widgets \"w\": the object has been modified",
                Verdict::Conflict,
            ),
            (403, "admission webhook \"a.b.c\" denied the request: no", Verdict::Refused(Class::Denied)),
            (400, "admission webhook \"a.b.c\" denied the request: no", Verdict::Refused(Class::Denied)),
            (
                422,
                "widgets \"w\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
                Verdict::Refused(Class::Denied),
            ),
            (403, "widgets \"w\" is forbidden: the namespace is frozen", Verdict::Refused(Class::Denied)),
            (
                403,
                "widgets \"w\" is forbidden: User \"u\" cannot patch resource \"widgets\" in API group \"g\"",
                Verdict::Refused(Class::Forbidden),
            ),
            (401, "Unauthorized", later(Class::Forbidden, false)),
            (422, "Widget \"w\" is invalid: spec.size: Required value", Verdict::Refused(Class::Invalid)),
            (413, "limit is 3145728", Verdict::Refused(Class::Invalid)),
            (
                500,
                "conversion webhook for example.com/v1, Kind=Widget failed: connection refused",
                later(Class::WebhookUnreachable, false),
            ),
            (
                500,
                "Internal error occurred: failed calling webhook \"a.b.c\": no endpoints available",
                later(Class::WebhookUnreachable, false),
            ),
            (
                500,
                "request to convert CR from an invalid group/version: example.com/v0",
                Verdict::Refused(Class::Undecodable),
            ),
            (500, "etcdserver: request timed out", later(Class::Transient, false)),
            (503, "the server is currently unable to handle the request", later(Class::Transient, true)),
            (429, "Too many requests, please try again later.", later(Class::Throttled, true)),
        ];
        for (code, message, expect) in cases {
            assert_eq!(judge(&refused(code, message), "w"), expect, "{code} {message}");
        }
    }

    #[test]
    fn the_server_says_when_to_come_back() {
        let mut error = refused(429, "later");
        let Error::Refused { retry_after, .. } = &mut error else { unreachable!() };
        *retry_after = Some(Duration::from_secs(7));
        let Verdict::Later { after, .. } = judge(&error, "w") else { unreachable!() };
        assert_eq!(after, Some(Duration::from_secs(7)));
    }
}
