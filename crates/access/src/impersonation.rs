//! Impersonation: whom the `Impersonate-*` headers want to be, and what the caller must be allowed for that.
//!
//! Flow: [`Impersonation::from_headers`] on the request; authorize every check as the *caller*; then go on as
//! [`Impersonation::user`]. The caller removes the headers afterwards.

use std::collections::BTreeMap;

use meta::Status;
use meta::field::quote;

use crate::User;
use crate::attributes::{Attributes, Target};
use crate::request_header::{strip_prefix, unescape_extra_key};
use crate::user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, service_account_groups, split_service_account};

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA_PREFIX: &str = "impersonate-extra-";

/// A wish to be somebody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impersonation {
    /// Whom to go on as.
    pub user: User,
    /// What the caller must be allowed, all of it.
    pub checks: Vec<ImpersonationCheck>,
}

/// One thing that the caller must be allowed to `impersonate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImpersonationCheck {
    pub verb: &'static str,
    pub group: &'static str,
    /// `users`, `groups`, `serviceaccounts`, `uids` or `userextras`.
    pub resource: &'static str,
    /// The extra key; otherwise empty.
    pub subresource: String,
    pub namespace: String,
    pub name: String,
}

impl ImpersonationCheck {
    /// The question for the authorizer.
    pub fn attributes<'a>(&'a self, caller: &'a User) -> Attributes<'a> {
        let target = Target::Resource {
            group: self.group,
            version: "v1",
            resource: self.resource,
            subresource: &self.subresource,
            namespace: &self.namespace,
            name: &self.name,
        };
        Attributes { user: caller, verb: self.verb, target }
    }
}

/// Whether the header belongs to impersonation, and must not be passed on.
pub fn is_impersonation(header: &str) -> bool {
    [USER, UID, GROUP].iter().any(|it| it.eq_ignore_ascii_case(header))
        || strip_prefix(header, EXTRA_PREFIX).is_some()
}

impl Impersonation {
    /// What the headers ask for; `None` if they do not ask. Header names are compared without case.
    pub fn from_headers<'a>(
        headers: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<Option<Self>, Status> {
        let mut wanted = User::default();
        let mut has_extra = false;
        for (header, value) in headers {
            if header.eq_ignore_ascii_case(USER) {
                keep_first(&mut wanted.name, value);
            } else if header.eq_ignore_ascii_case(UID) {
                keep_first(&mut wanted.uid, value);
            } else if header.eq_ignore_ascii_case(GROUP) {
                wanted.groups.push(value.to_owned());
            } else if let Some(key) = strip_prefix(header, EXTRA_PREFIX) {
                has_extra = true;
                let key = unescape_extra_key(&key.to_ascii_lowercase());
                wanted.extra.entry(key).or_default().push(value.to_owned());
            }
        }
        if !wanted.name.is_empty() {
            return Ok(Some(Self::of(&wanted)));
        }
        if wanted.uid.is_empty() && wanted.groups.is_empty() && !has_extra {
            return Ok(None);
        }
        let shown = go_syntax(&wanted);
        Err(Status::bad_request(format!("requested {shown} without impersonating a user name")))
    }

    fn of(wanted: &User) -> Self {
        let mut checks = Vec::new();
        let mut user = wanted.clone();
        match split_service_account(&wanted.name) {
            Some((namespace, name)) => {
                checks.push(check("", "serviceaccounts", "", namespace, name));
                if user.groups.is_empty() {
                    user.groups = service_account_groups(namespace);
                }
            }
            None => checks.push(check("", "users", "", "", &wanted.name)),
        }
        checks.extend(wanted.groups.iter().map(|it| check("", "groups", "", "", it)));
        for (key, values) in &wanted.extra {
            checks.extend(values.iter().map(|it| check("authentication.k8s.io", "userextras", key, "", it)));
        }
        if !wanted.uid.is_empty() {
            checks.push(check("authentication.k8s.io", "uids", "", "", &wanted.uid));
        }
        mark(&mut user);
        Self { user, checks }
    }
}

/// The impersonated are authenticated, unless they are the anonymous user or were marked by hand.
fn mark(user: &mut User) {
    if user.name != ANONYMOUS {
        if !user.is_in(AUTHENTICATED) && !user.is_in(UNAUTHENTICATED) {
            user.groups.push(AUTHENTICATED.to_owned());
        }
    } else if !user.is_in(UNAUTHENTICATED) {
        user.groups.push(UNAUTHENTICATED.to_owned());
    }
}

fn check(
    group: &'static str,
    resource: &'static str,
    subresource: &str,
    namespace: &str,
    name: &str,
) -> ImpersonationCheck {
    ImpersonationCheck {
        verb: "impersonate",
        group,
        resource,
        subresource: subresource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn keep_first(slot: &mut String, value: &str) {
    if slot.is_empty() {
        value.clone_into(slot);
    }
}

/// The user as upstream's message shows it.
fn go_syntax(user: &User) -> String {
    let list = |texts: &[String]| {
        let quoted: Vec<String> = texts.iter().map(|it| quote(it)).collect();
        format!("[]string{{{}}}", quoted.join(", "))
    };
    let groups = if user.groups.is_empty() { "[]string(nil)".to_owned() } else { list(&user.groups) };
    let extra = |extra: &BTreeMap<String, Vec<String>>| {
        let entries: Vec<String> =
            extra.iter().map(|(key, values)| format!("{}:{}", quote(key), list(values))).collect();
        format!("map[string][]string{{{}}}", entries.join(", "))
    };
    let extra =
        if user.extra.is_empty() { "map[string][]string(nil)".to_owned() } else { extra(&user.extra) };
    format!(
        "&user.DefaultInfo{{Name:{}, UID:{}, Groups:{groups}, Extra:{extra}}}",
        quote(&user.name),
        quote(&user.uid)
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(headers: &[(&str, &str)]) -> Result<Option<Impersonation>, Status> {
        Impersonation::from_headers(headers.iter().copied())
    }

    fn checks(impersonation: &Impersonation) -> Vec<String> {
        let line = |it: &ImpersonationCheck| {
            format!(
                "{} {}/{}/{} {}:{}",
                it.verb, it.group, it.resource, it.subresource, it.namespace, it.name
            )
        };
        impersonation.checks.iter().map(line).collect()
    }

    #[test]
    fn every_part_is_checked() {
        let wanted = read(&[
            ("Impersonate-User", "bob"),
            ("Impersonate-Group", "a"),
            ("impersonate-group", "b"),
            ("Impersonate-Uid", "u-1"),
            ("Impersonate-Extra-Example.com%2fScopes", "view"),
        ]);
        let wanted = wanted.unwrap().unwrap();
        assert_eq!(
            checks(&wanted),
            [
                "impersonate /users/ :bob",
                "impersonate /groups/ :a",
                "impersonate /groups/ :b",
                "impersonate authentication.k8s.io/userextras/example.com/scopes :view",
                "impersonate authentication.k8s.io/uids/ :u-1",
            ]
        );
        assert_eq!(wanted.user.groups, ["a", "b", "system:authenticated"]);
        assert_eq!(wanted.user.extra["example.com/scopes"], ["view"]);
    }

    #[test]
    fn service_accounts_bring_their_groups() {
        let wanted = read(&[("Impersonate-User", "system:serviceaccount:ns:robot")]).unwrap().unwrap();
        assert_eq!(checks(&wanted), ["impersonate /serviceaccounts/ ns:robot"]);
        assert_eq!(
            wanted.user.groups,
            ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]
        );
    }

    #[test]
    fn the_anonymous_user_stays_unauthenticated() {
        let wanted = read(&[("Impersonate-User", "system:anonymous")]).unwrap().unwrap();
        assert_eq!(wanted.user.groups, ["system:unauthenticated"]);
    }

    #[test]
    fn groups_alone_are_refused() {
        assert_eq!(read(&[("accept", "x")]), Ok(None));
        assert_eq!(read(&[("Impersonate-User", "")]), Ok(None));
        let status = read(&[("Impersonate-Group", "g")]).unwrap_err();
        assert_eq!(status.code, 400);
        assert_eq!(
            status.message,
            "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"g\"}, \
             Extra:map[string][]string(nil)} without impersonating a user name"
        );
        let status = read(&[("Impersonate-Extra-k", "v"), ("impersonate-uid", "1")]).unwrap_err();
        assert_eq!(
            status.message,
            "requested &user.DefaultInfo{Name:\"\", UID:\"1\", Groups:[]string(nil), \
             Extra:map[string][]string{\"k\":[]string{\"v\"}}} without impersonating a user name"
        );
    }

    #[test]
    fn impersonation_headers_are_recognised() {
        for header in ["Impersonate-User", "impersonate-extra-x", "IMPERSONATE-GROUP", "Impersonate-Uid"] {
            assert!(is_impersonation(header), "{header}");
        }
        assert!(!is_impersonation("impersonate"));
    }

    proptest! {
        #[test]
        fn any_headers_are_read_or_refused(key in "\\PC{0,20}", value in "\\PC{0,20}") {
            let header = format!("Impersonate-Extra-{key}");
            let headers = [(header.as_str(), value.as_str()), (key.as_str(), "x"), ("impersonate-user", value.as_str())];
            let _ = read(&headers);
            is_impersonation(&key);
        }
    }
}
