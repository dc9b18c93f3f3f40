//! Stored objects are rewritten in the version that all servers agree on.

pub mod api;
pub mod engine;
