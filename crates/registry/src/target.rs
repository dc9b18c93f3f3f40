//! Where a request points.

use std::sync::Arc;

use meta::GroupVersion;
use store::Key;

use crate::Kind;

/// A resource in one version, and maybe a namespace, a name and a subresource.
#[derive(Clone)]
pub struct Target {
    /// The resource.
    pub kind: Arc<Kind>,
    /// The version the client speaks.
    pub group_version: GroupVersion,
    /// The namespace; empty for cluster-scoped resources and for all namespaces.
    pub namespace: String,
    /// The name; empty for collections.
    pub name: String,
    /// The subresource; empty for the object itself.
    pub subresource: String,
}

impl Target {
    /// The same target, but for this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self.clone() }
    }

    /// The same target, but in this namespace and with this name.
    #[must_use]
    pub fn at(&self, namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned(), ..self.clone() }
    }

    /// The store key of the object.
    pub fn key(&self) -> Key {
        self.kind.key(&self.namespace, &self.name)
    }

    /// The key prefix of the collection.
    pub fn scope(&self) -> String {
        self.kind.scope(&self.namespace)
    }
}
