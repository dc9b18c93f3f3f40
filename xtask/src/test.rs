//! `cargo xtask test`: every test, with the real etcd and the real clients they want.
//!
//! The tests find their tools through the environment: `CONVOY_ETCD` (the etcd to run),
//! `CONVOY_PYTHON` (an interpreter that has the `kubernetes` package), `CONVOY_NODE` (a directory with
//! `node_modules`). What is missing is said before and after the run, never passed over in silence.

use std::process::Command;

use anyhow::Result;

use crate::run::{self, cargo};
use crate::{clients, etcd};

/// Runs everything; `filter` goes to the test runner as it is.
pub fn all(filter: &[String]) -> Result<()> {
    let tools = Tools::find();
    tools.report_missing();
    let outcome = run_tests(&tools, filter);
    tools.report_missing();
    outcome
}

/// What the tests want beyond the Rust toolchain.
pub struct Tools {
    env: Vec<(&'static str, std::ffi::OsString)>,
    missing: Vec<String>,
}

impl Tools {
    /// Looks for each, fetches what can be fetched, and notes what there is not.
    pub fn find() -> Tools {
        let mut tools = Tools { env: Vec::new(), missing: Vec::new() };
        match etcd::ensure() {
            Ok(etcd) => {
                println!("etcd {}: {}", etcd.release, etcd.path.display());
                if !etcd.survives_kill() {
                    let release = &etcd.release;
                    tools
                        .missing
                        .push(format!("another etcd (kill tests; {release} may lose data when killed)"));
                }
                tools.env.push(("CONVOY_ETCD", etcd.path.into()));
            }
            Err(error) => {
                // The tests refuse to pass over this by themselves.
                tools.env.push(("CONVOY_SKIP_ETCD", "1".into()));
                tools.missing.push(format!("etcd (all tests on etcd): {error:#}"));
            }
        }
        tools.client("Python", "CONVOY_PYTHON", clients::python());
        tools.client("Node", "CONVOY_NODE", clients::node());
        if run::on_path("kubectl").is_none() {
            tools.missing.push("kubectl (the acceptance tests that drive it)".to_owned());
        }
        tools
    }

    /// Hands the paths to the tests.
    pub fn give_to(&self, command: &mut Command) {
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
    }

    /// Loud, because a skipped test looks like a passed one.
    pub fn report_missing(&self) {
        for missing in &self.missing {
            println!("!!! NOT TESTED for want of {missing}");
        }
    }

    fn client(&mut self, name: &str, variable: &'static str, found: Result<Option<std::path::PathBuf>>) {
        match found {
            Ok(Some(path)) => self.env.push((variable, path.into())),
            Ok(None) => self.missing.push(format!("{name} (its client's tests)")),
            Err(error) => self.missing.push(format!("the {name} client: {error:#}")),
        }
    }
}

fn run_tests(tools: &Tools, filter: &[String]) -> Result<()> {
    let nextest = run::succeeds(cargo().args(["nextest", "--version"]));
    let runner: &[&str] = if nextest { &["nextest", "run"] } else { &["test", "--all-targets"] };
    let mut command = cargo();
    command.args(runner).args(["--workspace", "--locked", "--no-fail-fast"]).args(filter);
    tools.give_to(&mut command);
    run::run(&mut command)?;
    if filter.is_empty() {
        run::run(cargo().args(["test", "--doc", "--workspace", "--locked", "--quiet"]))?;
    }
    Ok(())
}
