//! HTTP: from a connection to an answer. The only crate that knows HTTP.
//!
//! Responsible for: listening, TLS, the chain that every request passes, negotiation, discovery, health, metrics and
//! the life of the server.
//! Deliberately not here: what a create, update, list or watch does (`registry`), and who may do it (`access`).
//! Start reading at [`listen`] for connections and [`lifecycle`] for start and stop.

// How a request gets in and an answer gets out.
pub mod body;
mod connections;
pub mod listen;
mod observed;
pub mod tls;

// The life of the server, and what it tells about itself.
pub mod audit_log;
pub mod health;
pub mod inflight;
pub mod lifecycle;
pub mod metrics;

// What it makes for itself on first start.
pub mod files;
pub mod follow;
pub mod kubeconfig;
mod payer;
pub mod pki;
mod pool;
mod slot;
mod uploads;

// The path of a request, in the order in which it is taken; start at `chain`.
mod admission_feed;
mod admit;
pub mod answer;
mod api;
pub mod audit;
pub mod authenticate;
mod authorize;
pub mod bootstrap;
pub mod census;
pub mod chain;
pub mod deadline;
mod denial;
mod discovery;
pub mod dispatch;
pub mod documents;
mod events;
mod fleet_api;
mod fleet_records;
mod forward;
mod identity_lease;
mod impersonate;
pub mod local;
pub mod membership;
mod memory;
pub mod negotiate;
mod openapi;
mod patience;
pub mod peers;
mod rbac_feed;
mod rbac_guard;
pub mod request;
mod reviews;
mod route;
pub mod server;
pub mod service_account;
pub mod shape;
pub mod snapshot;
mod storage_gate;
mod store_metrics;
mod transcode;
pub mod warnings;
pub mod webhook;

pub use route::COMPATIBILITY;
