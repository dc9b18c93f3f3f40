//! The store on a local disk: one directory, one process, every acknowledged write fsynced.
//!
//! Responsible for: durability, history and watches on top of redb, refusing a second process, stopping
//! writes when the disk fails, compaction, snapshots. The only crate that knows redb.
//! Deliberately not here: replication. Several servers in one process share one [`EmbeddedStore`].
//!
//! # Flow
//! Callers hand transactions to one writer thread (`writer.rs`). It drains whatever waits, decides every
//! transaction in order against the index in memory (`plan.rs`, `state.rs`), writes all of them with one
//! fsynced commit (`disk.rs`), then updates the index and answers. Reads look up the index and fetch values
//! from disk; they never wait for the writer. Start reading at `store.rs`.
#![warn(missing_docs)]

mod disk;
mod fault;
mod housekeeping;
mod open;
mod plan;
mod recent;
mod record;
mod snapshot;
mod space;
mod state;
mod store;
#[cfg(test)]
mod tests;
mod volume;
mod watch;
mod writer;

pub use fault::DiskFaults;
pub use open::OpenError;
pub use snapshot::{Carry, SnapshotError, SnapshotReport, restore, verify};
pub use store::{EmbeddedStore, Health, Options};
