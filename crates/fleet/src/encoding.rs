//! The version to write a resource in, and the fence that proves it when the store commits.
//!
//! Made by [`crate::put::encoding`] out of a server's own entry. Deliberately not here: how it is kept up to date.

use meta::StorageVersion;
use store::Require;

/// What a put must be encoded in, and what it must require of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// The version of the bytes.
    pub version: StorageVersion,
    /// The requirement that ties the put to the agreement; `None` where the guarantee is loose.
    pub fence: Option<Require>,
}
