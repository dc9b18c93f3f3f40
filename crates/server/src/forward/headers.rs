//! What is carried along with a forwarded request and its answer, and what is not.
//!
//! # Guarantees
//! The other server sees exactly the user that this one saw, after impersonation, or nobody: a name that headers cannot
//! carry unchanged is refused. Whatever the client sent in the place of such headers is gone.

use access::{RequestHeaderConfig, User};
use fleet::Identity;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use meta::Status;

use crate::chain::{Caller, Exchange};

/// Says that a server has handed the request on already. Upstream's name.
pub(crate) const MARK: &str = "x-kubernetes-peer-proxied";

/// Which server has handed it on, for the other one's records.
pub(crate) const BY: &str = "x-convoy-forwarded-by";

/// Headers that are about one connection. Those that `Connection` names come on top.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What this server sets itself.
const OWN: [&str; 9] = [
    BY,
    "host",
    "authorization",
    "audit-id",
    "expect",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-uri",
];

/// The headers of the forwarded request.
pub(super) fn carried(
    exchange: &Exchange,
    caller: &Caller,
    names: &RequestHeaderConfig,
    me: &Identity,
) -> Result<HeaderMap, Status> {
    let (dropped, standard) = (connection_headers(&exchange.headers), RequestHeaderConfig::standard());
    let mut headers = HeaderMap::with_capacity(exchange.headers.len() + 12);
    for (name, value) in &exchange.headers {
        let text = name.as_str();
        let is_dropped = HOP_BY_HOP.contains(&text)
            || OWN.contains(&text)
            || text == MARK
            || dropped.iter().any(|it| it == text)
            || names.is_identity(text)
            || standard.is_identity(text)
            || access::impersonation::is_impersonation(text);
        if !is_dropped {
            headers.append(name.clone(), value.clone());
        }
    }
    for (name, value) in
        access::headers_of_user(names, &caller.user).ok_or_else(|| unspeakable(&caller.user))?
    {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(Status::internal)?;
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(Status::internal)?;
        headers.append(name, value);
    }
    let mut set = |name: &'static str, value: &str| {
        // What cannot stand in a header is not worth refusing a request for.
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    set(MARK, "true");
    set(BY, me.as_str());
    set("audit-id", &exchange.audit_id);
    set("x-forwarded-for", &exchange.peer.address.ip().to_string());
    set("x-forwarded-proto", "https");
    set("x-forwarded-uri", exchange.uri.path());
    let host = exchange.headers.get(header::HOST).and_then(|it| it.to_str().ok());
    let host = host.or_else(|| exchange.uri.authority().map(http::uri::Authority::as_str));
    set("x-forwarded-host", host.unwrap_or_default());
    Ok(headers)
}

/// Removes from an answer what is between the servers, and what this server says itself.
pub(super) fn strip_answer(headers: &mut HeaderMap) {
    for name in connection_headers(headers) {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        // An answer to an upgrade is about this connection.
        if !(name == "upgrade" || name == "connection") || !headers.contains_key(header::UPGRADE) {
            headers.remove(name);
        }
    }
    let cors: Vec<HeaderName> =
        headers.keys().filter(|it| it.as_str().starts_with("access-control-")).cloned().collect();
    for name in cors {
        headers.remove(name);
    }
    headers.remove(header::DATE);
}

fn connection_headers(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|it| it.to_str().ok());
    let names = values.flat_map(|it| it.split(',')).map(|it| it.trim().to_ascii_lowercase());
    names.filter(|it| !it.is_empty() && it != "upgrade").collect()
}

/// A user whose name headers would change: another server would take them for somebody else.
fn unspeakable(user: &User) -> Status {
    Status::internal(format!("the user {:?} cannot be named to another server", user.name))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{body::no_body, listen::Peer};

    fn exchange(headers: &[(&str, &str)]) -> Exchange {
        let mut request = http::Request::get("/apis/batch/v1/jobs?b=%2F&a=1").body(no_body()).unwrap();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            request.headers_mut().append(name, value.parse().unwrap());
        }
        let peer = Arc::new(Peer::without_certificate(([10, 0, 0, 7], 1).into()));
        Exchange::of(request, peer).0
    }

    fn carried_for(user: &User, sent: &[(&str, &str)]) -> Result<HeaderMap, Status> {
        let caller = Caller { user: Arc::new(user.clone()), real: None };
        carried(&exchange(sent), &caller, &RequestHeaderConfig::standard(), &Identity::new("me"))
    }

    fn bob() -> User {
        let mut bob = User::named("bob");
        bob.uid = "7".to_owned();
        bob.groups = vec!["dev".to_owned(), "system:authenticated".to_owned()];
        bob.extra = [("Example.com/Scopes".to_owned(), vec!["a b".to_owned(), "ü".to_owned()])].into();
        bob
    }

    #[test]
    fn the_other_server_sees_the_same_user_and_nothing_that_the_client_forged() {
        let forged = [
            ("authorization", "Bearer secret"),
            ("x-remote-user", "admin"),
            ("X-Remote-Group", "system:masters"),
            ("x-remote-extra-foo", "bar"),
            ("impersonate-user", "root"),
            ("x-kubernetes-peer-proxied", "true"),
            ("x-forwarded-for", "1.2.3.4"),
            ("audit-id", "0123"),
            ("connection", "keep-alive, x-secret"),
            ("x-secret", "1"),
            ("accept", "application/json"),
            ("x-kubernetes-compatibility-version", "1.36"),
        ];
        let headers = carried_for(&bob(), &forged).unwrap();
        let read: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), std::str::from_utf8(value.as_bytes()).unwrap()))
            .collect();
        let user = access::user_from_headers(&RequestHeaderConfig::standard(), read.iter().copied());
        assert_eq!(user, Some(bob()));
        let all =
            |name: &str| headers.get_all(name).iter().map(|it| it.to_str().unwrap()).collect::<Vec<_>>();
        assert_eq!(all(MARK), ["true"]);
        assert_eq!(all("x-forwarded-for"), ["10.0.0.7"]);
        assert_eq!(all("audit-id"), ["0123"]);
        assert_eq!(all("accept"), ["application/json"]);
        assert_eq!(all("x-kubernetes-compatibility-version"), ["1.36"]);
        for gone in ["authorization", "impersonate-user", "connection", "x-secret"] {
            assert!(!headers.contains_key(gone), "{gone}");
        }
    }

    #[test]
    fn a_user_whom_headers_would_change_is_not_handed_on() {
        for name in [" bob", "bob ", "bo\nb", "", "bob\t", "\u{7f}"] {
            let user = User { name: name.to_owned(), ..bob() };
            assert_eq!(carried_for(&user, &[]).unwrap_err().code, 500, "{name:?}");
            let user = User { groups: vec![name.to_owned()], ..bob() };
            assert_eq!(carried_for(&user, &[]).unwrap_err().code, 500, "group {name:?}");
        }
    }

    #[test]
    fn what_is_between_the_servers_stays_there() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("transfer-encoding", "chunked"),
            ("access-control-allow-origin", "*"),
            ("date", "today"),
            ("etag", "\"x\""),
            ("warning", "299 - \"careful\""),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        strip_answer(&mut headers);
        let left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["etag", "warning"]);
    }
}
