//! A linearizable, revisioned map from keys to bytes, and everything needed to test one.
//!
//! Responsible for: the [`Store`] and [`Leases`] contracts, the in-memory reference store, the
//! conformance suite every implementation passes, the fault wrapper, and the [`Clock`] that the whole
//! project is handed instead of reading the time.
//! Deliberately not here: objects, API versions, HTTP, disks and networks. This crate sees bytes only.
//! Start reading at [`contract`].
#![warn(missing_docs)]

pub mod clock;
pub mod conformance;
pub mod contract;
pub mod fault;
pub mod key;
pub mod memory;
pub mod model;
pub mod revision;
pub mod shared;
pub mod txn;

pub use clock::{Clock, ManualClock, SharedClock, SystemClock};
pub use contract::{
    Batch, CommitError, Entry, Event, Events, LeaseError, LeaseId, Leases, Page, Place, Portion, ReadAt,
    ReadError, Store, WatchError,
};
pub use key::{Key, Range};
pub use memory::MemoryStore;
pub use revision::Revision;
pub use shared::SharedStore;
pub use txn::{Change, Require, Txn};
