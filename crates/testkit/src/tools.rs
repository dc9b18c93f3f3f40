//! What tests need that a machine may not have, and how a soak is asked for.
//!
//! `cargo xtask test` finds or fetches the tools and names them in the environment. A test that cannot
//! run says so on its own line, because a skipped test looks like a passed one.

use std::io::Write;
use std::path::PathBuf;

/// Says loudly that a test did not run, and why.
pub fn skipped(test: &str, reason: &str) {
    report(&format!("!!! SKIPPED {test}: {reason}"));
}

/// Says what a long test found.
pub fn report(found: &str) {
    // Not by `eprintln!`, which the test runner swallows when a test passes.
    let _ = writeln!(std::io::stderr(), "{found}");
}

/// `kubectl`, if the PATH has one.
pub fn kubectl() -> Option<PathBuf> {
    on_path("kubectl")
}

/// A Python interpreter with the `kubernetes` package (`CONVOY_PYTHON`).
pub fn python() -> Option<PathBuf> {
    std::env::var_os("CONVOY_PYTHON").map(PathBuf::from)
}

/// A directory whose `node_modules` holds `@kubernetes/client-node` (`CONVOY_NODE`).
pub fn node() -> Option<PathBuf> {
    std::env::var_os("CONVOY_NODE").map(PathBuf::from)
}

/// How long a soak test should run: `short` rounds, unless `cargo xtask soak` asked for more.
pub fn rounds(short: usize) -> usize {
    number("CONVOY_SOAK_ROUNDS").and_then(|it| it.try_into().ok()).unwrap_or(short)
}

/// Whether the long form was asked for.
pub fn is_soak() -> bool {
    std::env::var_os("CONVOY_SOAK").is_some()
}

/// The seed of everything random in a test; printed by soaks so that a failure can be run again.
pub fn seed() -> u64 {
    number("CONVOY_SOAK_SEED").unwrap_or(1)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|it| it.is_file())
}
