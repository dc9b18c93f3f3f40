//! The version to write a resource in, and the fence that proves it when the store commits.
//!
//! The registry asks here before every put. A server on its own has nobody to agree with: its release's
//! storage versions hold, and no fence is needed because no other writer exists on an embedded store.

use std::collections::HashMap;

use meta::{GroupResource, StorageVersion};
use store::Require;

/// What a put must be encoded in, and what it must require of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// The version of the bytes.
    pub version: StorageVersion,
    /// The requirement that ties the put to the agreement; `None` while a server decides alone.
    pub fence: Option<Require>,
}

/// The encodings of all persisted resources.
#[derive(Clone, Debug, Default)]
pub struct Encodings {
    versions: HashMap<GroupResource, StorageVersion>,
}

/// A resource that nothing is known about, so that nothing may be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no storage version is known for {0}")]
pub struct UnknownResource(pub GroupResource);

impl Encodings {
    /// The constant choice of one server.
    pub fn of(versions: impl IntoIterator<Item = (GroupResource, StorageVersion)>) -> Self {
        Self { versions: versions.into_iter().collect() }
    }

    /// What a put of this resource must be encoded in.
    pub fn encoding(&self, resource: &GroupResource) -> Result<Encoding, UnknownResource> {
        let version = self.versions.get(resource).ok_or_else(|| UnknownResource(resource.clone()))?;
        Ok(Encoding { version: version.clone(), fence: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_server_writes_what_its_release_says() {
        let pods = GroupResource::new("", "pods");
        let encodings = Encodings::of([(pods.clone(), StorageVersion::new("v1"))]);
        assert_eq!(encodings.encoding(&pods).unwrap().version.as_str(), "v1");
        assert!(encodings.encoding(&GroupResource::new("", "nodes")).is_err());
    }
}
