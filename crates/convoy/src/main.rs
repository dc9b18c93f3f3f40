//! `convoy`: a Kubernetes-compatible API server in one binary. Everything is in the library.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    convoy::run(std::env::args_os())
}
