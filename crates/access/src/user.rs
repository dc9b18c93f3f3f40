//! Who makes a request. How that was found out is in the authentication modules.

use std::collections::BTreeMap;

use meta::Value;
use meta::field::quote;
use serde_json::json;

/// The name of a caller without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of every caller with accepted credentials.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of every caller without credentials.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group that may do everything, whatever the policy says.
pub const MASTERS: &str = "system:masters";
/// The group of all ServiceAccounts.
pub const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
/// The key under which `extra` names the credential that was used.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// An authenticated, impersonated or anonymous user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A user of this name, without groups.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The caller without credentials.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..Self::default() }
    }

    /// The ServiceAccount's user, with the groups that come with it.
    pub fn service_account(namespace: &str, name: &str, uid: &str) -> Self {
        Self {
            name: service_account_username(namespace, name),
            uid: uid.to_owned(),
            groups: service_account_groups(namespace),
            extra: BTreeMap::new(),
        }
    }

    /// Adds `system:authenticated`, except to somebody anonymous or already marked either way.
    pub fn add_authenticated_group(&mut self) {
        let is_marked = self.groups.iter().any(|it| it == AUTHENTICATED || it == UNAUTHENTICATED);
        if self.name != ANONYMOUS && !is_marked {
            self.groups.push(AUTHENTICATED.to_owned());
        }
    }

    /// Whether the user is in the group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|it| it == group)
    }

    /// `UserInfo` as the review kinds and audit events write it: empty parts are left out.
    pub fn to_json(&self) -> Value {
        let mut info = json!({});
        let parts = [
            ("username", self.name.is_empty(), json!(self.name)),
            ("uid", self.uid.is_empty(), json!(self.uid)),
            ("groups", self.groups.is_empty(), json!(self.groups)),
            ("extra", self.extra.is_empty(), json!(self.extra)),
        ];
        for (name, is_empty, value) in parts {
            if !is_empty {
                info[name] = value;
            }
        }
        info
    }
}

/// Whether the path is one of the few that callers without credentials may ask for: health and version.
pub fn is_open_to_anonymous(path: &str) -> bool {
    let is_health =
        |it: &str| path.strip_prefix(it).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    ["/healthz", "/livez", "/readyz"].into_iter().any(is_health) || matches!(path, "/version" | "/version/")
}

/// `system:serviceaccount:NAMESPACE:NAME`
pub fn service_account_username(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}")
}

/// The groups that every ServiceAccount of the namespace is in.
pub fn service_account_groups(namespace: &str) -> Vec<String> {
    vec![SERVICE_ACCOUNTS.to_owned(), format!("{SERVICE_ACCOUNTS}:{namespace}")]
}

/// Namespace and name of a ServiceAccount's user name.
pub fn split_service_account(username: &str) -> Option<(&str, &str)> {
    let (namespace, name) = username.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    let is_plain = |text: &str| {
        let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        !text.is_empty() && text.chars().all(is_allowed)
    };
    (is_plain(namespace) && !namespace.contains('.') && is_plain(name)).then_some((namespace, name))
}

/// A list of texts as Go's `%q` writes it: `["a" "b"]`.
pub(crate) fn quote_list(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|it| quote(it)).collect();
    format!("[{}]", quoted.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_authenticated_get_the_group() {
        let mut user = User::named("alice");
        user.add_authenticated_group();
        user.add_authenticated_group();
        assert_eq!(user.groups, [AUTHENTICATED]);
        let mut anonymous = User::anonymous();
        anonymous.add_authenticated_group();
        assert_eq!(anonymous.groups, [UNAUTHENTICATED]);
    }

    #[test]
    fn health_and_version_are_open() {
        for open in ["/healthz", "/livez/ping", "/readyz/", "/version"] {
            assert!(is_open_to_anonymous(open), "{open}");
        }
        for closed in ["/", "/healthzz", "/versions", "/version/x", "/metrics", "/api", ""] {
            assert!(!is_open_to_anonymous(closed), "{closed}");
        }
    }

    #[test]
    fn service_account_names_are_taken_apart() {
        assert_eq!(split_service_account("system:serviceaccount:ns:a.b"), Some(("ns", "a.b")));
        for wrong in
            ["system:serviceaccount:ns", "system:serviceaccount::x", "system:serviceaccount:ns:a:b", "x"]
        {
            assert_eq!(split_service_account(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn user_info_leaves_out_what_is_empty() {
        assert_eq!(User::named("u").to_json(), json!({"username": "u"}));
        let account = User::service_account("ns", "a", "1");
        assert_eq!(
            account.to_json(),
            json!({"username": "system:serviceaccount:ns:a", "uid": "1",
                   "groups": ["system:serviceaccounts", "system:serviceaccounts:ns"]})
        );
    }
}
