//! The load generator behind `cargo xtask bench`: how fast and how small, next to what was aimed at.
//!
//! Start at [`run`]: one line per measurement. [`wire`] is a bare HTTP/1.1 client, because a comfortable
//! one would use up the cores that the server is measured on; [`ceiling`] is the fastest server one
//! could write with the same libraries, the yardstick for the rest.

pub mod ceiling;
mod custom;
pub mod fanout;
mod fleet;
pub mod load;
mod migration;
mod objects;
pub mod plan;
mod proxied;
pub mod table;
pub mod wire;

pub use plan::{Plan, run};
