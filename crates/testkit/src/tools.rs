//! What tests need that a machine may not have, and how a soak is asked for.
//!
//! `cargo xtask test` finds or fetches the tools and names them in the environment. A test that cannot
//! run says so on its own line, because a skipped test looks like a passed one.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

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

/// Whether killing this etcd proves something: 3.5.0 to 3.5.2 may lose consistency by themselves. Says so loudly.
pub fn etcd_may_be_killed(test: &str) -> bool {
    let Some(program) = crate::etcd::find() else { return false };
    let said = std::process::Command::new(program).arg("--version").output();
    let said = said.map(|it| String::from_utf8_lossy(&it.stdout).into_owned()).unwrap_or_default();
    let is_fragile = ["3.5.0", "3.5.1", "3.5.2"].iter().any(|it| said.contains(&format!("Version: {it}\n")));
    if is_fragile {
        skipped(test, "this etcd may lose data when killed, so only the server is; 3.4.23 may be killed");
    }
    !is_fragile
}

/// How long a soak test should run: `short` rounds, unless `cargo xtask soak` asked for more.
pub fn rounds(short: usize) -> usize {
    number("CONVOY_SOAK_ROUNDS").and_then(|it| it.try_into().ok()).unwrap_or(short)
}

/// How long a test that is measured in time should run (`CONVOY_SOAK_MINUTES`); its short form without.
pub fn minutes() -> Option<Duration> {
    number("CONVOY_SOAK_MINUTES").map(|it| Duration::from_secs(it * 60))
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
