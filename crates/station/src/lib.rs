//! One server's place in the fleet: it carries out what [`fleet`] plans.
//!
//! Responsible for reading, following and writing the records below `/convoy/`: this server joins, stays a member,
//! reports what it stores, collects what the departed left, puts mirrors back, and leaves.
//! Deliberately not here: decisions (they are [`fleet`]'s), HTTP, and API objects other than the mirrors. What it must
//! know of the server around it, it is handed ([`Surroundings`]).
//!
//! # Flow
//! [`Station::start`] runs four tasks: one follows the records onto the [`board`], one lives the life of a member
//! ([`life`]), one reports what is not reported yet ([`report`]), one collects and mends ([`collect`]). Whoever puts an
//! object asks [`Station::encoding`], and after a failed fence [`Station::after_failed_put`].
//!
//! # Guarantees
//! Every write is a transaction on what it was decided on; what could not be read decides nothing. Nothing here keeps
//! storage clean by being on time: a server that is late, paused or wrong fails its fence.
//!
//! Start reading at [`station`], then [`life`].
#![warn(missing_docs)]

#[cfg(test)]
mod alone;
pub mod board;
mod catch_up;
pub mod collect;
pub mod config;
mod consensus;
pub mod fences;
pub mod follow;
pub mod hold;
pub mod life;
pub mod modes;
pub mod refusal;
pub mod report;
pub mod station;
pub mod view;

pub use config::{Config, Resource, Surroundings};
pub use life::Life;
pub use report::NotReported;
pub use station::{Role, Station, Summary};
pub use view::View;
