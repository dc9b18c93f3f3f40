//! A Kubernetes-compatible API server: the commands of the binary, and a server to embed in tests.
//!
//! Responsible for: flags, wiring, commands, exit codes; and [`Server`], which is the same thing inside a process.
//! Deliberately not here: anything that a library crate can do; this crate only puts them together.
//! Start reading at `cli`, then `serve`; for embedding at [`Server::start`] and docs/embedding.md.

mod agreement;
mod bench;
mod census;
mod certificates;
mod check;
mod cli;
mod cluster;
mod counting;
mod duration;
mod embed;
mod failure;
mod flags;
mod hold;
mod in_store;
mod kubeconfig;
mod logging;
mod machine;
mod migrate;
mod notify;
mod output;
mod remote;
mod rollout;
mod serve;
mod settings;
#[cfg(test)]
mod shapes;
mod snapshot;
mod status;
mod storage;
mod token_keys;
mod up;
mod version;

use std::{ffi::OsString, process::ExitCode};

pub use embed::{Keep, Options, Server, StartError};
pub use meta::Release;
pub use store::{SharedClock, SharedStore};

/// Runs the command line.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    cli::run(args).into()
}
