//! What the servers of one cluster have agreed on: who is a member, and the version each resource is stored in.
//!
//! Responsible for decisions over records: pure planning. Facts come in (records, revisions, the time), a plan
//! or a transaction goes out.
//! Deliberately not here: HTTP, objects, clocks, and the reading and writing of the records themselves.
//!
//! # Flow
//! A server checks what is stored ([`stored`]) and joins ([`member`]); for each resource it brings its entry into
//! the fence record ([`agree`], for custom resources [`custom`]), with the mirror for people ([`mirror`]) in the
//! same transaction ([`mod@write`]). Every put then requires the fence at the revision it was encoded for
//! ([`encoding`]); if that fails, [`put`] says how to go on. [`gate`] keeps writes out until a resource is
//! reported, [`collect`] removes what the departed left. Which server answers a request is decided in [`route`], by what
//! the members' records say that they offer ([`offer`]).
//!
//! # Guarantees
//! While a mirror shows a common version, every put of the resource is encoded in it; and no live member is
//! unable to read what is written. `tests/it/model.rs` explores both with exactly this code.
//!
//! Start reading at [`fence`] and [`agree`].
#![warn(missing_docs)]

pub mod agree;
pub mod cluster;
pub mod collect;
pub mod custom;
pub mod encoding;
pub mod fence;
pub mod gate;
pub mod identity;
pub mod keys;
pub mod member;
pub mod mirror;
pub mod offer;
pub mod put;
pub mod record;
pub mod restore;
pub mod route;
pub mod sender;
mod serial;
pub mod stored;
#[cfg(test)]
mod testing;
pub mod write;

pub use encoding::Encoding;
pub use fence::{Entry, FenceRecord};
pub use identity::{ClusterId, Epoch, Identity, Incarnation};
pub use member::{MemberRecord, Members};
pub use offer::Offer;
