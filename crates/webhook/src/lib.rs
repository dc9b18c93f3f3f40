//! Calls to webhooks: HTTPS, JSON in, JSON out, everything bounded.
//!
//! Responsible for: addresses ([`Endpoint`]), whom to believe on the other side, connections that are kept,
//! time-outs, and failures in the words that kube-apiserver uses.
//! Deliberately not here: what is asked and what the answer means; admission and conversion know that.
//! Start reading at [`Client`].

mod client;
mod connect;
mod endpoint;
mod failure;
mod trust;

pub use client::{Client, Limits};
pub use endpoint::{Address, Endpoint, EndpointError};
pub use failure::CallError;

/// Finds the machine behind a service.
pub trait Resolve: Send + Sync + 'static {
    /// `host:port` to connect to, or why there is none.
    fn resolve(&self, namespace: &str, name: &str, port: u16) -> Result<String, String>;
}

/// Leaves services to the name service of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByName;

impl Resolve for ByName {
    fn resolve(&self, namespace: &str, name: &str, port: u16) -> Result<String, String> {
        Ok(format!("{name}.{namespace}.svc:{port}"))
    }
}
