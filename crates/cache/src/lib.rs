//! The watch cache: serves gets, lists and watches of any store from memory.
//!
//! Responsible for: one watch over the whole root prefix that feeds every collection, objects held as
//! already encoded text plus a small index, consistent snapshots, shared and bounded watch history,
//! and the count of objects per stored version.
//! Deliberately not here: HTTP, selectors, schemas, conversions, and writes, which go to the store.
//! Start reading at [`cache`] for the whole, [`collection`] for what readers use, [`ingest`] for how
//! a stored value becomes an [`Item`].
//!
//! # Flow
//! [`Cache::start`] lists the root and then watches it. A reader that must not see anything older than
//! its request calls [`Cache::catch_up`] first, one that has a resourceVersion calls
//! [`Cache::wait_for`]; both fail when the cache has failed, so every read begins with one of them (or
//! with [`Cache::health`]). Then [`Collection::get`], [`Collection::snapshot`] or [`Collection::watch`].
//!
//! Collections come, are replaced and go while all of this goes on; see [`open`].
//!
//! # Guarantees
//! - A collection that is not complete, or was replaced or removed, answers nobody ([`Closed`]).
//! - Whoever reads a range with a value in it that cannot be served gets an error, not less than there is.
//! - A snapshot of revision R holds everything up to R and nothing later; a watch from R yields every
//!   later change of the collection, once and in order, or ends.
//! - A watcher never makes the cache hold more than its bounded history: who falls behind is ended.
#![warn(missing_docs)]

pub mod cache;
mod catch_up;
pub mod change;
pub mod collection;
pub mod config;
mod feed;
pub mod ingest;
pub mod item;
mod load;
pub mod open;
mod progress;
mod ring;
mod routes;
pub mod snapshot;
pub mod watcher;

pub use cache::Cache;
pub use change::{Change, EventType};
pub use collection::{Collection, Unread};
pub use config::{
    AddError, Behind, CacheConfig, Closed, CollectionSpec, Expired, FieldSpec, GetError, StartError,
    Undecodable, WatchError,
};
pub use ingest::Unreadable;
pub use item::{Item, Labels};
pub use open::{Opening, Swap};
pub use snapshot::Snapshot;
pub use watcher::{Step, Watcher};
