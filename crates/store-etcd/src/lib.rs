//! The store contract on etcd v3, over a client that speaks only the calls used.
//!
//! Responsible for: fail-over between endpoints, TLS, the mapping of keys under a prefix, watches that
//! resume without a gap, telling "did not happen" from "outcome unknown", and noticing that etcd's
//! revision went back.
//! Deliberately not here: what keys and values mean. No other crate knows etcd.
//! Start reading at [`EtcdStore`]; then `client.rs` for how a call is made, `watch.rs` and `settle.rs`
//! for the hard parts.
//!
//! The messages in `proto.rs` are generated from `proto/etcd.proto` and checked in; after a change there run
//! `cargo run --manifest-path crates/store-etcd/codegen/Cargo.toml` (no `protoc` needed).
#![warn(missing_docs)]

mod client;
mod commit;
mod compaction;
mod config;
mod convert;
mod failure;
mod guard;
mod history;
mod layout;
mod lease;
mod nested;
#[rustfmt::skip]
#[allow(clippy::all, clippy::allow_attributes_without_reason, missing_docs, unused_qualifications, dead_code, unreachable_pub, reason = "generated")]
mod proto;
mod progress;
mod ranking;
mod read;
mod settle;
mod store;
mod watch;

pub use config::{ConnectError, EtcdConfig};
pub use layout::PrefixError;
pub use store::EtcdStore;
