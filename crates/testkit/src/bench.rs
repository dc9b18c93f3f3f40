//! The load generator behind `cargo xtask bench`: how fast and how small, next to what was aimed at.
//!
//! Start at [`run`]: one line per measurement. [`ceiling`] is the fastest server one could write with the same
//! libraries, the yardstick for the rest. Deliberately not here: how load is made (crate `load`).

pub mod ceiling;
mod custom;
mod fleet;
mod migration;
mod objects;
pub mod plan;
mod proxied;
pub mod table;

pub use plan::{Plan, run};
pub(crate) use plan::{float, prepare};
