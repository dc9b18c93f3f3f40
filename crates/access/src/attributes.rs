//! What somebody wants to do, and the words in which it is refused. Who decides is in [`crate::authorizer`].

use meta::field::quote;
use meta::{GroupResource, Status};

use crate::User;

/// One thing that one user wants to do.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    pub user: &'a User,
    pub verb: &'a str,
    pub target: Target<'a>,
}

/// What it is to be done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// An object, or all objects, of a resource. Empty parts mean "none".
    Resource {
        group: &'a str,
        version: &'a str,
        resource: &'a str,
        subresource: &'a str,
        namespace: &'a str,
        name: &'a str,
    },
    /// A path outside the API's resources, such as `/metrics`.
    Path(&'a str),
}

impl<'a> Target<'a> {
    /// Where it is; empty for what is cluster-wide, and for paths.
    pub fn namespace(&self) -> &'a str {
        match self {
            Self::Resource { namespace, .. } => namespace,
            Self::Path(_) => "",
        }
    }
}

/// What an authorizer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes, and why.
    Allow(String),
    /// No, whatever others say.
    Deny(String),
    /// Not allowed by this one.
    NoOpinion(String),
}

impl Verdict {
    /// Whether the request may go on.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allow(_))
    }

    /// Why; often empty.
    pub fn reason(&self) -> &str {
        match self {
            Self::Allow(reason) | Self::Deny(reason) | Self::NoOpinion(reason) => reason,
        }
    }
}

/// [`Attributes`] without the user, owned: what a review asks about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedAttributes {
    pub verb: String,
    pub target: OwnedTarget,
}

/// [`Target`], owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedTarget {
    Resource {
        group: String,
        version: String,
        resource: String,
        subresource: String,
        namespace: String,
        name: String,
    },
    Path(String),
}

impl OwnedAttributes {
    /// The same, asked for this user.
    pub fn for_user<'a>(&'a self, user: &'a User) -> Attributes<'a> {
        let target = match &self.target {
            OwnedTarget::Resource { group, version, resource, subresource, namespace, name } => {
                Target::Resource { group, version, resource, subresource, namespace, name }
            }
            OwnedTarget::Path(path) => Target::Path(path),
        };
        Attributes { user, verb: &self.verb, target }
    }
}

/// Why it is refused, as clients see it: `User "x" cannot list resource "pods" in API group "" …`, and the
/// authorizer's reason behind it if it gave one.
pub fn forbidden_message(attributes: &Attributes<'_>, reason: &str) -> String {
    let message = sanitize(&refusal(attributes));
    if reason.is_empty() { message } else { format!("{message}: {reason}") }
}

/// The 403 answer.
pub fn forbidden_status(attributes: &Attributes<'_>, reason: &str) -> Status {
    let why = forbidden_message(attributes, reason);
    match attributes.target {
        Target::Resource { group, resource, name, .. } => {
            Status::forbidden(&GroupResource::new(group, resource), name, &why)
        }
        Target::Path(_) => Status::forbidden(&GroupResource::new("", ""), "", &why),
    }
}

fn refusal(attributes: &Attributes<'_>) -> String {
    let (user, verb) = (quote(&attributes.user.name), attributes.verb);
    match attributes.target {
        Target::Path(path) => format!("User {user} cannot {verb} path {}", quote(path)),
        Target::Resource { group, resource, subresource, namespace, .. } => {
            let slash = if subresource.is_empty() { "" } else { "/" };
            let resource = quote(&format!("{resource}{slash}{subresource}"));
            let scope = if namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace {}", quote(namespace))
            };
            format!("User {user} cannot {verb} resource {resource} in API group {} {scope}", quote(group))
        }
    }
}

/// Upstream does this against browsers that guess the content type.
fn sanitize(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods<'a>(namespace: &'a str, subresource: &'a str) -> Target<'a> {
        Target::Resource { group: "", version: "v1", resource: "pods", subresource, namespace, name: "" }
    }

    #[test]
    fn refusals_are_worded_as_upstream_words_them() {
        let user = User::named("x");
        let check = |verb, target, reason, want: &str| {
            let attributes = Attributes { user: &user, verb, target };
            assert_eq!(forbidden_message(&attributes, reason), want);
        };
        check(
            "list",
            pods("default", ""),
            "",
            r#"User "x" cannot list resource "pods" in API group "" in the namespace "default""#,
        );
        check(
            "get",
            pods("", "log"),
            "",
            r#"User "x" cannot get resource "pods/log" in API group "" at the cluster scope"#,
        );
        check("get", Target::Path("/metrics"), "", r#"User "x" cannot get path "/metrics""#);
        check(
            "get",
            Target::Path("/<b>"),
            r#"RBAC: clusterrole.rbac.authorization.k8s.io "x" not found"#,
            r#"User "x" cannot get path "/&lt;b&gt;": RBAC: clusterrole.rbac.authorization.k8s.io "x" not found"#,
        );
    }

    #[test]
    fn the_status_names_the_resource() {
        let user = User::named("user");
        let attributes = Attributes { user: &user, verb: "list", target: pods("ns", "") };
        let status = forbidden_status(&attributes, "");
        assert_eq!(
            status.message,
            r#"pods is forbidden: User "user" cannot list resource "pods" in API group "" in the namespace "ns""#
        );
        let path = Attributes { user: &user, verb: "get", target: Target::Path("/metrics") };
        assert_eq!(
            forbidden_status(&path, "").message,
            r#"forbidden: User "user" cannot get path "/metrics""#
        );
    }
}
