//! Why a call brought no answer, in the words of the clients that people know.

use std::{error::Error, io};

use rustls::CertificateError;
use rustls_pki_types::UnixTime;

/// A call that brought no answer that could be used.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The webhook was not reached, or did not answer in time.
    #[error("Post {url:?}: {why}")]
    Unreached {
        /// What was called.
        url: String,
        /// Why there was no answer.
        why: String,
    },
    /// It answered with a failure.
    #[error("{message}")]
    Refused {
        /// The status.
        code: u16,
        /// What that means.
        message: String,
    },
    /// It answered with more than is read.
    #[error("Post {url:?}: the response is larger than {limit} bytes")]
    TooLarge {
        /// What was called.
        url: String,
        /// What is read at most.
        limit: usize,
    },
}

impl CallError {
    /// The status of the webhook's answer, 0 without one.
    pub fn code(&self) -> u16 {
        match self {
            Self::Refused { code, .. } => *code,
            Self::Unreached { .. } | Self::TooLarge { .. } => 0,
        }
    }

    /// What an answer other than 2xx means.
    pub(crate) fn of_answer(code: u16, body: &[u8]) -> Self {
        Self::Refused { code, message: told(body).unwrap_or_else(|| generic(code, body)) }
    }
}

/// How much of a foreign text is repeated.
const MOST_REPEATED: usize = 2048;

/// The message of a `Status`.
fn told(body: &[u8]) -> Option<String> {
    let status: serde_json::Value = serde_json::from_slice(body).ok()?;
    if status.get("kind")? != "Status" {
        return None;
    }
    Some(shortened(status.get("message")?.as_str()?))
}

fn generic(code: u16, body: &[u8]) -> String {
    let body = String::from_utf8_lossy(body);
    let body = shortened(body.trim());
    match code {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 => body,
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        406 => "the server was unable to respond with a content type that the client supports".to_owned(),
        409 => "the server reported a conflict".to_owned(),
        415 => "the server was unable to process the content type of the request".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the \
                request"
            .to_owned(),
        500.. => {
            let body = if body.is_empty() { "unknown".to_owned() } else { body };
            format!("an error on the server ({body:?}) has prevented the request from succeeding")
        }
        _ => format!("the server responded with the status code {code} but did not return more information"),
    }
}

fn shortened(text: &str) -> String {
    let end = text.char_indices().map(|(at, it)| at + it.len_utf8()).take_while(|it| *it <= MOST_REPEATED);
    text[..end.last().unwrap_or(0)].to_owned()
}

/// What went wrong on the way, told from the innermost cause.
pub(crate) fn describe(error: &(dyn Error + 'static), host: &str) -> String {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    let mut last = error.to_string();
    while let Some(error) = cause {
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return of_tls(tls, host);
        }
        last = error.to_string();
        let io = error.downcast_ref::<io::Error>();
        if io.is_some_and(|it| it.kind() == io::ErrorKind::UnexpectedEof) {
            return "EOF".to_owned();
        }
        let inner = io.and_then(io::Error::get_ref);
        // `io::Error` shows the source of what it wraps, not what it wraps.
        cause = inner.map(|it| it as &(dyn Error + 'static)).or_else(|| error.source());
    }
    match last.as_str() {
        // hyper's word for a connection that ended before the answer.
        "connection closed before message completed" => "EOF".to_owned(),
        _ => last,
    }
}

/// A connection that was not made.
pub(crate) fn of_connect(error: &io::Error, authority: &str) -> String {
    let why = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "read: connection reset by peer".to_owned(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        _ if error.raw_os_error().is_none() => {
            let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
            return format!("dial tcp: lookup {host}: no such host");
        }
        _ => error.to_string(),
    };
    format!("dial tcp {authority}: {why}")
}

fn of_tls(error: &rustls::Error, host: &str) -> String {
    let rustls::Error::InvalidCertificate(why) = error else {
        return match error {
            rustls::Error::AlertReceived(alert) => format!("remote error: tls: {alert:?}"),
            rustls::Error::InvalidMessage(_) => {
                "tls: first record does not look like a TLS handshake".to_owned()
            }
            other => format!("tls: {other}"),
        };
    };
    let why = match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "certificate signed by unknown authority".to_owned()
        }
        CertificateError::Expired | CertificateError::NotValidYet => {
            "certificate has expired or is not yet valid".to_owned()
        }
        CertificateError::ExpiredContext { time, not_after } => format!(
            "certificate has expired or is not yet valid: current time {} is after {}",
            moment(*time),
            moment(*not_after)
        ),
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "certificate has expired or is not yet valid: current time {} is before {}",
            moment(*time),
            moment(*not_before)
        ),
        CertificateError::NotValidForName => format!("certificate is not valid for {host}"),
        CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            format!("certificate is not valid for any names, but wanted to match {host}")
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            let names: Vec<_> = presented.iter().map(|it| plain_name(it)).collect();
            format!("certificate is valid for {}, not {host}", names.join(", "))
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "certificate specifies an incompatible key usage".to_owned()
        }
        CertificateError::Other(why) => in_words(&why.0.to_string()),
        other => in_words(&format!("{other:?}")),
    };
    format!("tls: failed to verify certificate: x509: {why}")
}

/// `UnsupportedCertVersion` is all that some causes say: `unsupported cert version`.
fn in_words(cause: &str) -> String {
    if cause.contains(' ') {
        return cause.to_owned();
    }
    let mut words = String::new();
    for letter in cause.chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

/// `2026-01-02T03:04:05Z`
fn moment(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |it| it.to_string())
}

/// `DnsName("a")` is what rustls writes for a name.
fn plain_name(presented: &str) -> &str {
    let inner = presented.split_once('(').map_or(presented, |(_, rest)| rest);
    inner.trim_end_matches(')').trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_a_webhook_are_told_as_by_upstream() {
        let check = |code: u16, body: &str, text: &str| {
            assert_eq!(CallError::of_answer(code, body.as_bytes()).to_string(), text);
        };
        check(404, "404 page not found", "the server could not find the requested resource");
        check(500, "boom\n", r#"an error on the server ("boom") has prevented the request from succeeding"#);
        check(502, "", r#"an error on the server ("unknown") has prevented the request from succeeding"#);
        check(503, "x", "the server is currently unable to handle the request");
        check(302, "x", "the server responded with the status code 302 but did not return more information");
        check(500, r#"{"kind":"Status","message":"no disk"}"#, "no disk");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shortened(&"é".repeat(MOST_REPEATED)).len(), MOST_REPEATED);
        assert_eq!(shortened(&format!("a{}", "é".repeat(MOST_REPEATED))).len(), MOST_REPEATED - 1);
        assert_eq!(shortened(""), "");
    }
}
