//! What is known of one resource: its names, how it is stored, and how each served version behaves.

use std::{fmt, sync::Arc};

use meta::{ApiVersion, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource, Release};

use crate::{Verb, Verbs};

/// One resource of one group, as a server of one release knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The group; empty for the core group.
    pub group: Arc<str>,
    /// The plural, lower-case name that stands in paths.
    pub resource: Arc<str>,
    /// The kind of one object.
    pub kind: Arc<str>,
    /// The kind of a list of objects.
    pub list_kind: Arc<str>,
    /// The singular, lower-case name.
    pub singular: Arc<str>,
    /// What people type instead of the plural.
    pub short_names: Vec<Arc<str>>,
    /// The collections of resources it belongs to, such as `all`.
    pub categories: Vec<Arc<str>>,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Where objects lie in the store, with a slash at the end; `None` if they are not stored (reviews, bindings).
    pub key_prefix: Option<Arc<str>>,
    /// What this release stores. It may be in another group (events), and a version that nobody serves.
    pub storage: Option<GroupVersion>,
    /// What this release can read from the store, preferred first: all versions it could serve, whether or not they
    /// are switched on, and those that an earlier release of the catalog stored and this one still understands.
    pub decodable: Vec<GroupVersion>,
    /// The resource after which the record of what is stored under `key_prefix` is named. Resources that share their
    /// keys (events of two groups) share the record.
    pub record: GroupResource,
    /// The versions served, preferred first.
    pub versions: Vec<ApiVersion>,
    /// Who defines the resource.
    pub origin: Origin,
}

impl Definition {
    /// Group and resource.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: self.resource.clone() }
    }

    /// Whether objects of the resource are kept in the store.
    pub fn is_stored(&self) -> bool {
        self.key_prefix.is_some()
    }

    /// Whether this release can read objects that were stored in that group and version.
    pub fn can_decode(&self, stored: &GroupVersion) -> bool {
        self.decodable.contains(stored)
    }
}

/// Who defines a resource, and thereby what decides whether it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Kubernetes: served as the release and the flags say.
    Kubernetes,
    /// This project: always served, whatever the release and the flags say.
    Convoy,
    /// A user: served as the definition says that the user stored.
    User,
}

/// A resource in one served version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The resource.
    pub definition: Arc<Definition>,
    /// The version in which it is served.
    pub version: ApiVersion,
    /// What can be done with it.
    pub verbs: Verbs,
    /// Its subresources, by name.
    pub subresources: Vec<Subresource>,
    /// Set if this release calls the version deprecated.
    pub deprecation: Option<Deprecation>,
}

impl Served {
    /// The subresource of that name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|it| &*it.name == name)
    }

    /// Whether the verb is offered on the resource, or on the named subresource of it.
    pub fn offers(&self, subresource: Option<&str>, verb: Verb) -> bool {
        match subresource {
            None => self.verbs.contains(verb),
            Some(name) => self.subresource(name).is_some_and(|it| it.verbs.contains(verb)),
        }
    }

    /// Whether this is the version that clients should use.
    pub fn is_preferred(&self) -> bool {
        self.definition.versions.first() == Some(&self.version)
    }

    /// Group and version.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.definition.group.clone(), version: self.version.clone() }
    }

    /// Group, version and resource.
    pub fn group_version_resource(&self) -> GroupVersionResource {
        GroupVersionResource {
            group: self.definition.group.clone(),
            version: self.version.clone(),
            resource: self.definition.resource.clone(),
        }
    }

    /// Group, version and kind.
    pub fn group_version_kind(&self) -> GroupVersionKind {
        GroupVersionKind {
            group: self.definition.group.clone(),
            version: self.version.clone(),
            kind: self.definition.kind.clone(),
        }
    }

    /// The text of the `Warning` header that every answer in this version carries, if it is deprecated.
    pub fn warning(&self) -> Option<String> {
        let Deprecation { deprecated, removed, replacement } = self.deprecation.as_ref()?;
        let kind = &self.definition.kind;
        let mut text = format!("{} {kind} is deprecated in v{deprecated}+", self.group_version());
        if let Some(removed) = removed {
            text += &format!(", unavailable in v{removed}+");
        }
        if let Some(replacement) = replacement {
            text += &format!("; use {replacement}");
        }
        Some(text)
    }
}

/// A part of an object with a path of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subresource {
    /// The last part of the path.
    pub name: Arc<str>,
    /// The kind that is sent and answered.
    pub kind: Arc<str>,
    /// The group and version of that kind; `None` if they are those of the resource.
    pub group_version: Option<GroupVersion>,
    /// What can be done with it.
    pub verbs: Verbs,
}

/// When a version was given up, and what to use instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deprecation {
    /// The release that called the version deprecated.
    pub deprecated: Release,
    /// The release that no longer serves it, as far as it is known.
    pub removed: Option<Release>,
    /// What to use instead: `apps/v1 Deployment`.
    pub replacement: Option<String>,
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.group_version(), self.definition.resource)
    }
}
