//! `cargo xtask bench`: builds for release, then lets the test kit's load generator do the work.

use std::process::Command;

use anyhow::Result;

use crate::etcd;
use crate::run::{self, cargo};

/// Prints the table; `args` go to the load generator.
pub fn table(args: &[String]) -> Result<()> {
    run::run(cargo().args(["build", "--release", "--locked", "-p", "convoy", "-p", "testkit", "--bins"]))?;
    let release = run::target().join("release");
    let mut bench = Command::new(release.join("bench"));
    bench.arg("--convoy").arg(release.join("convoy"));
    match etcd::ensure() {
        Ok(etcd) => {
            bench.arg("--etcd").env("CONVOY_ETCD", etcd.path);
        }
        Err(error) => println!("!!! the rows on etcd are left out: {error:#}"),
    }
    run::run(bench.args(args))
}
