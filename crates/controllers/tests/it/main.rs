//! Controllers against a small API server in memory that fails, lies and refuses on demand. Time is tokio's own and
//! jumps over pauses.
//!
//! Deliberately not here: the real server. `crates/convoy/tests/it/controllers.rs` has that.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod cluster;
mod fake;
mod stock;
mod world;

mod collector;
mod election;
mod migration;
mod migrator;
mod namespace;
mod random_graphs;
mod running;
mod stands;
