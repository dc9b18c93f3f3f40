//! What keeps a cluster in order beside its API server: default ServiceAccounts, the deletion of namespaces,
//! aggregated ClusterRoles.
//!
//! Controllers speak only the Kubernetes API, through the client that they are handed, so they run next to any
//! API server. Each one reads as observe (I/O), plan (pure), act (I/O), and a short `reconcile` that joins them.
//! Deliberately not here: stores, caches, HTTP servers, flags, and who may run when there are several servers.
//! Start reading at [`run()`], then `namespace/plan.rs`.

mod run;
mod selection;
mod work;

mod cluster_role;
mod namespace;
mod service_account;

mod api;
mod backoff;
mod changes;
mod error;

pub use run::{Now, run};
pub use selection::{Controller, Selection, SelectionError, names};
