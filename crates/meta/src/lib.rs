//! The vocabulary of the Kubernetes API: names, kinds, object metadata, selectors, `Status`, and the version newtypes.
//!
//! Responsible for what these things *are* and how they are written and checked.
//! Deliberately not here: anything async, any I/O, any clock, any schema of a particular kind.
//! Start reading at [`ids`], [`version`] and [`status`].
#![warn(missing_docs)]

pub mod field;
pub mod freeze;
pub mod grounds;
pub mod ids;
pub mod name;
pub mod object;
pub mod retry;
pub mod selector;
pub mod status;
pub mod time;
pub mod validate;
pub mod version;

pub use field::{FieldError, FieldErrors};
pub use grounds::{Fact, Grounds};
pub use ids::{GroupKind, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource};
pub use retry::{DidNotHappen, RetryAfter};
pub use selector::{FieldSelector, LabelSelector};
pub use status::{Cause, Details, Reason, Status};
pub use version::{ApiVersion, Release, ResourceVersion, StorageVersion};

/// A JSON tree, used where an object is changed. Reads are served from text.
pub type Value = serde_json::Value;

/// A JSON object.
pub type Map = serde_json::Map<String, Value>;
