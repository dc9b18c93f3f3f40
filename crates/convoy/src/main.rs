//! `convoy`: a Kubernetes-compatible API server in one binary.
//!
//! Responsible for: flags, wiring, commands, exit codes.
//! Deliberately not here: anything that a library crate can do; this crate only puts them together.
//! Start reading at [`cli`], then [`serve`].

mod cli;
mod duration;
mod failure;
mod flags;
mod kubeconfig;
mod logging;
mod machine;
mod serve;
mod settings;
mod snapshot;
mod storage;
mod up;
mod version;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run(std::env::args_os()).into()
}
