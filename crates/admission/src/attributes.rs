//! What a request is about, as plugins and webhooks see it.

use std::fmt;

use access::User;
use meta::{GroupVersion, GroupVersionKind, GroupVersionResource, Value};

/// What is done to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// It is made.
    Create,
    /// It is changed.
    Update,
    /// It is deleted.
    Delete,
    /// Something is connected to it.
    Connect,
}

impl Operation {
    /// As rules and reviews write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A request, without its objects.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    /// What is done.
    pub operation: Operation,
    /// The kind of the object that is sent.
    pub kind: GroupVersionKind,
    /// The resource.
    pub resource: GroupVersionResource,
    /// The subresource; empty for the object itself.
    pub subresource: &'a str,
    /// The namespace; for a namespace its own name; empty for other objects of the cluster.
    pub namespace: &'a str,
    /// The name; empty if the server is to make one up.
    pub name: &'a str,
    /// Who asks.
    pub user: &'a User,
    /// Nothing is stored.
    pub dry_run: bool,
    /// `CreateOptions`, `UpdateOptions`, `PatchOptions` or `DeleteOptions`.
    pub options: &'a Value,
    /// All versions in which the resource is served.
    pub served: &'a [GroupVersion],
}

impl Attributes<'_> {
    /// Whether it is about a namespace itself.
    pub(crate) fn is_namespace(&self) -> bool {
        self.resource.group.is_empty() && &*self.resource.resource == "namespaces"
    }

    /// Whether the objects decide what admission does, so that nothing but the server may decide about them.
    pub(crate) fn is_exempt(&self) -> bool {
        &*self.resource.group == "admissionregistration.k8s.io"
            && matches!(
                &*self.resource.resource,
                "validatingwebhookconfigurations"
                    | "mutatingwebhookconfigurations"
                    | "validatingadmissionpolicies"
                    | "validatingadmissionpolicybindings"
                    | "mutatingadmissionpolicies"
                    | "mutatingadmissionpolicybindings"
            )
    }
}
