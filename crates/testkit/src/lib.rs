//! Clusters in a box for tests: real processes, faults, and checkers for what was seen.
//!
//! Start at [`Convoy`], a running `convoy serve` that can be killed, paused and started again on the
//! same directories, and [`Client`], the bounded HTTPS client that tests and benchmarks share. The
//! checkers in [`history`] are pure: they are told what happened and say what must not have.
//! Deliberately not here: anything the server uses at run time, and any knowledge of its insides.

pub mod balance;
pub mod bench;
pub mod client;
pub mod convoy;
pub mod etcd;
pub mod frames;
pub mod history;
pub mod line;
pub mod parcels;
mod ports;
pub mod raw;
pub mod tools;
pub mod tunnel;
pub mod webhook;

pub use client::{Answer, Client, Lines};
pub use convoy::{Convoy, Options, Serving, StoreChoice};
pub use ports::free_port_with;
