//! Four of the five notions that are all called "version" elsewhere. The fifth, `Revision`, belongs to the store.
//!
//! They are distinct types without conversions into each other, so that none can be used for another by mistake.

use std::{cmp::Ordering, fmt, str::FromStr, sync::Arc};

/// What clients see as `metadata.resourceVersion`: opaque text on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct ResourceVersion(Arc<str>);

impl ResourceVersion {
    /// Wraps text that a client sent or that a layer above the store made.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A served version of an API group, such as `v1` or `v1beta2`.
///
/// Ordered as Kubernetes orders versions: stable before beta before alpha, then higher numbers first;
/// "greater" means "preferred".
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ApiVersion(Arc<str>);

impl ApiVersion {
    /// Wraps the text of a version.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Ord for ApiVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |it: &Self| parse_kube_version(&it.0);
        match (rank(self), rank(other)) {
            (Some(a), Some(b)) => a.cmp(&b),
            (Some(_), None) => Ordering::Greater,
            (None, Some(_)) => Ordering::Less,
            // Versions that do not look like versions come last, in alphabetical order.
            (None, None) => other.0.cmp(&self.0),
        }
    }
}

impl PartialOrd for ApiVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// (stability, major, minor) of `v1`, `v2beta1`, `v1alpha3`; greater is preferred.
fn parse_kube_version(text: &str) -> Option<(u8, u32, u32)> {
    let rest = text.strip_prefix('v')?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let major: u32 = rest[..digits].parse().ok()?;
    match &rest[digits..] {
        "" => Some((3, major, 0)),
        tail => {
            let (stability, minor) = match tail.strip_prefix("beta") {
                Some(minor) => (2, minor),
                None => (1, tail.strip_prefix("alpha")?),
            };
            let minor = if minor.is_empty() { 0 } else { minor.parse().ok()? };
            Some((stability, major, minor))
        }
    }
}

/// The group and version in which an object's bytes are encoded at rest, such as `apps/v1`; core is just `v1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StorageVersion(Arc<str>);

impl StorageVersion {
    /// Wraps an `apiVersion` as it stands in stored objects.
    pub fn new(api_version: impl Into<Arc<str>>) -> Self {
        Self(api_version.into())
    }

    /// The text as it stands in stored objects.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StorageVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A minor release of Kubernetes, such as 1.36: what a server is, or emulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Release {
    /// The 1 of 1.36.
    pub major: u16,
    /// The 36 of 1.36.
    pub minor: u16,
}

impl Release {
    /// The release `1.minor`.
    pub const fn v1(minor: u16) -> Self {
        Self { major: 1, minor }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A text that is not `MAJOR.MINOR`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a release of the form MAJOR.MINOR, such as 1.36")]
pub struct ParseReleaseError(String);

impl FromStr for Release {
    type Err = ParseReleaseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseReleaseError(text.to_owned());
        let (major, minor) = text.trim_start_matches('v').split_once('.').ok_or_else(error)?;
        Ok(Self { major: major.parse().map_err(|_| error())?, minor: minor.parse().map_err(|_| error())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_preferred_as_in_kubernetes() {
        let mut versions: Vec<_> =
            ["v1beta1", "foo10", "v10", "v2", "v1alpha2", "v11beta2", "foo1", "v1", "v12alpha1", "v3beta1"]
                .map(ApiVersion::new)
                .into();
        versions.sort_by(|a, b| b.cmp(a));
        let order: Vec<_> = versions.iter().map(ApiVersion::as_str).collect();
        assert_eq!(
            order,
            ["v10", "v2", "v1", "v11beta2", "v3beta1", "v1beta1", "v12alpha1", "v1alpha2", "foo1", "foo10"]
        );
    }

    #[test]
    fn a_release_is_read_and_written() {
        assert_eq!("1.36".parse(), Ok(Release::v1(36)));
        assert_eq!(Release::v1(36).to_string(), "1.36");
        assert!("1".parse::<Release>().is_err());
        assert!("1.x".parse::<Release>().is_err());
    }
}
