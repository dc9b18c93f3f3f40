//! What is carried along with a forwarded request and its answer, and what is not.
//!
//! # Guarantees
//! The other server sees exactly the user that this one saw, after impersonation, or nobody: a name that headers cannot
//! carry unchanged is refused. Whatever the client sent in the place of such headers is gone.

use std::{collections::HashMap, sync::Arc};

use access::{RequestHeaderConfig, User};
use fleet::{ClusterId, Identity, Incarnation};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use meta::Status;
use parking_lot::Mutex;

use crate::chain::{Caller, Envelope};

/// Says that a server has handed the request on already. Upstream's name.
pub(crate) const MARK: &str = "x-kubernetes-peer-proxied";

/// Which server has handed it on, for the other one's records.
pub(crate) const BY: &str = "x-convoy-forwarded-by";

/// Which process of that server, and of which cluster: a server of another one is refused.
pub(crate) const INCARNATION: &str = "x-convoy-incarnation";
pub(crate) const CLUSTER: &str = "x-convoy-cluster";

/// Who acts as the user that is named, if somebody does: on whose account the request is.
pub(crate) const REAL: &str = "x-convoy-real-user";

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

/// How many users' headers are remembered.
const MAX_USERS: usize = 512;

/// The server that hands a request on, as it is recorded.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    pub(super) identity: Identity,
    pub(super) incarnation: Incarnation,
    pub(super) cluster: Option<ClusterId>,
}

/// Makes the headers of forwarded requests. Users come again and again, and so do their headers: they are made once.
pub(super) struct Carrier {
    /// The headers in which a front proxy names users.
    names: RequestHeaderConfig,
    /// Those that a server looks at which was told nothing else.
    standard: RequestHeaderConfig,
    users: Mutex<HashMap<String, Arc<Named>>>,
}

/// A user, and how headers say it.
struct Named {
    user: User,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Carrier {
    pub(super) fn new(names: RequestHeaderConfig) -> Self {
        Self { names, standard: RequestHeaderConfig::standard(), users: Mutex::default() }
    }

    /// The headers of the forwarded request.
    pub(super) fn headers(
        &self,
        exchange: &Envelope,
        caller: &Caller,
        me: &Sender,
    ) -> Result<HeaderMap, Status> {
        let named = self.named(&caller.user)?;
        let dropped = connection_headers(&exchange.headers);
        let mut headers = HeaderMap::with_capacity(exchange.headers.len() + named.headers.len() + 6);
        for (name, value) in &exchange.headers {
            if !self.is_own(name.as_str()) && !dropped.iter().any(|it| it == name.as_str()) {
                headers.append(name.clone(), value.clone());
            }
        }
        for (name, value) in &named.headers {
            headers.append(name.clone(), value.clone());
        }
        headers.insert(MARK, HeaderValue::from_static("true"));
        let mut set = |name: &'static str, value: &str, is_unique: bool| {
            // What cannot stand in a header is not worth refusing a request for.
            if let Ok(mut value) = HeaderValue::from_str(value) {
                // HTTP/2 does not try to remember it.
                value.set_sensitive(is_unique);
                headers.insert(name, value);
            }
        };
        set(BY, me.identity.as_str(), false);
        set(INCARNATION, me.incarnation.as_str(), false);
        if let Some(cluster) = &me.cluster {
            set(CLUSTER, cluster.as_str(), false);
        }
        if let Some(real) = &caller.real {
            // It must be there, however odd the name is: what matters is that one user has one.
            let name = real.name.chars().map(|it| if it.is_ascii_graphic() { it } else { '?' });
            set(REAL, &name.collect::<String>(), false);
        }
        set("audit-id", &exchange.audit_id, true);
        set("x-forwarded-for", &exchange.peer.address.ip().to_string(), false);
        Ok(headers)
    }

    /// Whether a client's header is not passed on: it is about the connection, or for this server to say.
    fn is_own(&self, name: &str) -> bool {
        HOP_BY_HOP.contains(&name)
            || matches!(
                name,
                MARK | BY | INCARNATION | CLUSTER | REAL | "host" | "authorization" | "audit-id" | "expect"
            )
            || name.starts_with("x-forwarded-")
            || self.names.is_identity(name)
            || self.standard.is_identity(name)
            || access::impersonation::is_impersonation(name)
    }

    fn named(&self, user: &User) -> Result<Arc<Named>, Status> {
        if let Some(named) = self.users.lock().get(&user.name)
            && named.user == *user
        {
            return Ok(Arc::clone(named));
        }
        let texts = access::headers_of_user(&self.names, user).ok_or_else(|| unspeakable(user))?;
        let mut headers = Vec::with_capacity(texts.len());
        for (name, value) in texts {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(Status::internal)?;
            headers.push((name, HeaderValue::from_bytes(value.as_bytes()).map_err(Status::internal)?));
        }
        let named = Arc::new(Named { user: user.clone(), headers });
        let mut users = self.users.lock();
        if users.len() >= MAX_USERS {
            users.clear();
        }
        users.insert(user.name.clone(), Arc::clone(&named));
        Ok(named)
    }
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
    use super::*;
    use crate::{body::no_body, chain::Exchange, listen::Peer};

    fn exchange(headers: &[(&str, &str)]) -> Exchange {
        let mut request = http::Request::get("/apis/batch/v1/jobs?b=%2F&a=1").body(no_body()).unwrap();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            request.headers_mut().append(name, value.parse().unwrap());
        }
        let peer = Arc::new(Peer::without_certificate(([10, 0, 0, 7], 1).into()));
        Exchange::of(request, peer).0
    }

    fn me() -> Sender {
        Sender {
            identity: Identity::new("me"),
            incarnation: Incarnation::new("this-process"),
            cluster: Some(ClusterId::new("this-cluster")),
        }
    }

    fn carried_for(user: &User, sent: &[(&str, &str)]) -> Result<HeaderMap, Status> {
        let caller = Caller::of(Arc::new(user.clone()));
        Carrier::new(RequestHeaderConfig::standard()).headers(&exchange(sent), &caller, &me())
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
            ("x-convoy-forwarded-by", "somebody"),
            ("x-convoy-incarnation", "another"),
            ("x-convoy-cluster", "another"),
            ("x-convoy-real-user", "somebody-else"),
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
        assert_eq!(
            [all(BY), all(INCARNATION), all(CLUSTER)].concat(),
            ["me", "this-process", "this-cluster"]
        );
        assert_eq!(all("x-forwarded-for"), ["10.0.0.7"]);
        assert_eq!(all("audit-id"), ["0123"]);
        assert_eq!(all("accept"), ["application/json"]);
        assert_eq!(all("x-kubernetes-compatibility-version"), ["1.36"]);
        for gone in ["authorization", "impersonate-user", "connection", "x-secret", REAL] {
            assert!(!headers.contains_key(gone), "{gone}");
        }
    }

    #[test]
    fn the_other_server_learns_who_acts_as_the_user() {
        for (name, carried) in [("eve", "eve"), ("\u{e9} ve", "??ve"), ("", "")] {
            let caller = Caller::of(Arc::new(User::named(name))).acting_as(bob());
            let carrier = Carrier::new(RequestHeaderConfig::standard());
            let headers = carrier.headers(&exchange(&[]), &caller, &me()).unwrap();
            assert_eq!(headers.get(REAL).unwrap(), carried);
        }
    }

    #[test]
    fn users_of_one_name_are_not_mixed_up() {
        let carrier = Carrier::new(RequestHeaderConfig::standard());
        let groups = |user: User| {
            let caller = Caller::of(Arc::new(user));
            let headers = carrier.headers(&exchange(&[]), &caller, &me()).unwrap();
            let groups = headers.get_all("x-remote-group").iter();
            groups.map(|it| it.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(groups(bob()), ["dev", "system:authenticated"]);
        assert_eq!(groups(User { groups: vec!["ops".to_owned()], ..bob() }), ["ops"]);
        assert_eq!(groups(bob()), ["dev", "system:authenticated"]);
    }

    #[test]
    fn no_more_users_are_remembered_than_there_is_room_for() {
        let carrier = Carrier::new(RequestHeaderConfig::standard());
        for number in 0..2 * MAX_USERS {
            carrier.named(&User::named(format!("user-{number}"))).unwrap();
            assert!(carrier.users.lock().len() <= MAX_USERS);
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
