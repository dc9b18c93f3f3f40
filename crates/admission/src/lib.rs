//! What has a say in a write besides its schema: built-in plugins and webhooks.
//!
//! Responsible for the order in which they are asked, for what they may change, and for what their failure means.
//! Deliberately not here: HTTP servers, the store, and where objects come from; whoever uses [`Admission`] hands in a
//! [`World`]. Policies and quotas belong in [`chain`], which has one obvious place for each.
//! Start reading at [`chain`].

pub mod attributes;
mod certificates;
pub mod chain;
mod claims;
mod dispatch;
pub mod guards;
mod hook;
mod notes;
pub mod plugins;
mod resize;
mod review;
mod rights;
mod rule;
mod selector;
mod service_account;

use futures_util::future::BoxFuture;
use meta::{GroupResource, GroupVersion, Status, Value};

pub use attributes::{Attributes, Operation};
pub use chain::Admission;
pub use hook::{Hook, HookKind};
pub use notes::{Notes, limited};
pub use plugins::{Plugin, PluginError, Plugins};
pub use rights::Rights;

/// What admission must know about the rest of the cluster.
pub trait World: Send + Sync + 'static {
    /// An object of the core group in `v1`; `None` if it is not there, surely.
    fn core_object<'a>(
        &'a self,
        resource: &'a str,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, Status>>;

    /// A StorageClass; `None` if it is not there, surely.
    fn storage_class<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Value>, Status>>;

    /// An object of this resource in another version. For custom resources this may ask another webhook.
    fn convert<'a>(
        &'a self,
        resource: &'a GroupResource,
        object: &'a Value,
        to: &'a GroupVersion,
    ) -> BoxFuture<'a, Result<Value, Status>>;
}

/// Counts what happens.
pub trait Observe: Send + Sync + 'static {
    /// A plugin was asked: `admit` or `validate`.
    fn plugin(&self, name: &str, step: &'static str, operation: Operation, rejected: bool, seconds: f64);
    /// A webhook was called: `admit` or `validating`.
    fn webhook(&self, name: &str, step: &'static str, operation: Operation, rejected: bool, seconds: f64);
    /// A webhook's answer, or its failure, refused a request.
    fn rejection(&self, name: &str, step: &'static str, operation: Operation, error: &'static str, code: u16);
    /// A webhook failed and was ignored.
    fn failed_open(&self, name: &str, step: &'static str);
}
