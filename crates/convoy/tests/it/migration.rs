//! Stored objects are migrated: by themselves when what servers store has changed, and when people ask for it.
//!
//! Every story runs on the embedded store and on etcd, with servers in this process; what is stored is read from the
//! store. T, A, B and LAB are the numbers of the requirements. Long form: `cargo xtask soak migration-crash`.

mod history;
mod widgets;

mod agreement;
mod crash;
mod flips;
mod freeze;
mod lists;
mod objects;
mod processes;
mod progress;
mod rights;
mod sleeper;
mod states;
mod trouble;
mod verdict;
mod webhook;
mod wishes;
