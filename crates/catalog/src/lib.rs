//! The built-in resources and their life per release: what a server of a release serves, stores and can read.
//!
//! Responsible for the facts (kinds, scopes, verbs, subresources, storage versions, feature gates, types), for the
//! choice that `--emulated-version`, `--runtime-config` and `--feature-gates` make among them, and for the discovery
//! documents that describe the choice.
//! Deliberately not here: what is done with a schema, custom resources, HTTP, anything async, any I/O, any clock, any process global.
//! Start reading at [`Catalog`], then [`Definition`], [`discovery`] and [`Schemas`].
#![warn(missing_docs)]

mod catalog;
mod definition;
pub mod discovery;
mod gates;
pub mod openapi;
mod runtime_config;
mod schemas;
mod table;
mod verb;

pub use catalog::{
    BuiltIn, Catalog, CatalogError, FIRST_RELEASE, Group, LAST_RELEASE, built_in, is_reserved, record_at,
};
pub use definition::{Definition, Deprecation, Origin, Served, Subresource};
pub use gates::{FeatureGates, Gate, GateError, GateSpec, Stage};
pub use runtime_config::{RuntimeConfig, RuntimeConfigError};
pub use schemas::Schemas;
pub use verb::{Verb, Verbs};
