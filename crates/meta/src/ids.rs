//! What names a resource or a kind: group, version, resource, kind, and their combinations.

use std::{fmt, sync::Arc};

use crate::ApiVersion;

/// A group and a version, written `apps/v1`; the core group is written `v1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersion {
    /// The group; empty for the core group.
    pub group: Arc<str>,
    /// The version.
    pub version: ApiVersion,
}

impl GroupVersion {
    /// A group and a version.
    pub fn new(group: impl Into<Arc<str>>, version: impl Into<Arc<str>>) -> Self {
        Self { group: group.into(), version: ApiVersion::new(version) }
    }

    /// Reads an `apiVersion`: `v1` or `apps/v1`. `None` if there is more than one slash.
    pub fn parse(api_version: &str) -> Option<Self> {
        match api_version.split_once('/') {
            None => Some(Self::new("", api_version)),
            Some((_, version)) if version.contains('/') => None,
            Some((group, version)) => Some(Self::new(group, version)),
        }
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            write!(f, "{}", self.version)
        } else {
            write!(f, "{}/{}", self.group, self.version)
        }
    }
}

/// A resource independent of its versions, written `deployments.apps`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    /// The group; empty for the core group.
    pub group: Arc<str>,
    /// The plural, lower-case name.
    pub resource: Arc<str>,
}

impl GroupResource {
    /// A group and a resource.
    pub fn new(group: impl Into<Arc<str>>, resource: impl Into<Arc<str>>) -> Self {
        Self { group: group.into(), resource: resource.into() }
    }
}

impl From<&str> for GroupResource {
    /// Reads `deployments.apps`; a name without a dot is of the core group.
    fn from(text: &str) -> Self {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        Self::new(group, resource)
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.resource)
        } else {
            write!(f, "{}.{}", self.resource, self.group)
        }
    }
}

/// A resource in one version.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionResource {
    /// The group; empty for the core group.
    pub group: Arc<str>,
    /// The version.
    pub version: ApiVersion,
    /// The plural, lower-case name.
    pub resource: Arc<str>,
}

impl GroupVersionResource {
    /// A group, a version and a resource.
    pub fn new(
        group: impl Into<Arc<str>>,
        version: impl Into<Arc<str>>,
        resource: impl Into<Arc<str>>,
    ) -> Self {
        Self { group: group.into(), version: ApiVersion::new(version), resource: resource.into() }
    }

    /// Without the version.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: self.resource.clone() }
    }

    /// Without the resource.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }
}

/// A kind independent of its versions, written `Deployment.apps`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKind {
    /// The group; empty for the core group.
    pub group: Arc<str>,
    /// The kind.
    pub kind: Arc<str>,
}

impl GroupKind {
    /// A group and a kind.
    pub fn new(group: impl Into<Arc<str>>, kind: impl Into<Arc<str>>) -> Self {
        Self { group: group.into(), kind: kind.into() }
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.kind)
        } else {
            write!(f, "{}.{}", self.kind, self.group)
        }
    }
}

/// A kind in one version.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionKind {
    /// The group; empty for the core group.
    pub group: Arc<str>,
    /// The version.
    pub version: ApiVersion,
    /// The kind.
    pub kind: Arc<str>,
}

impl GroupVersionKind {
    /// A group, a version and a kind.
    pub fn new(group: impl Into<Arc<str>>, version: impl Into<Arc<str>>, kind: impl Into<Arc<str>>) -> Self {
        Self { group: group.into(), version: ApiVersion::new(version), kind: kind.into() }
    }

    /// Without the kind.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }

    /// Without the version.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind { group: self.group.clone(), kind: self.kind.clone() }
    }
}
