//! What keeps a cluster in order beside its API server: garbage collection, the deletion of namespaces, default
//! ServiceAccounts, aggregated ClusterRoles and more.
//!
//! Controllers speak only the Kubernetes API, through the client that they are handed, so they run next to any
//! API server. Each one reads as observe (I/O), plan (pure), act (I/O), and a short `reconcile` that joins them.
//! Deliberately not here: stores, caches, HTTP servers and flags.
//! Start reading at [`run()`], then `namespace/plan.rs`.

mod lead;
mod run;
mod selection;
mod work;

mod cluster_role;
mod expiry;
mod gc;
pub mod migration;
mod namespace;
mod root_ca;
mod service_account;
mod token;
mod trigger;

mod api;
mod backoff;
mod changes;
mod discovery;
mod error;
mod events;
mod justify;
mod observe;

pub use lead::Election;
pub use observe::{Nobody, Observe};
pub use run::{Now, Setup, run};
pub use selection::{Controller, Selection, SelectionError, names};
