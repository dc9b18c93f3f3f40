//! The foreign clients that the tests drive: Python's `kubernetes` and Node's `@kubernetes/client-node`.
//!
//! Both are put under `target/tools`, at the releases named here, once. A machine without Python or
//! Node runs the other tests and is told so.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::run;

const PYTHON_CLIENT: &str = "kubernetes==37.0.2";
const NODE_CLIENT: &str = "@kubernetes/client-node@1.4.0";

/// The interpreter of a virtual environment that has the client; `None` without Python.
pub fn python() -> Result<Option<PathBuf>> {
    let Some(system) = run::on_path("python3") else { return Ok(None) };
    let home = run::tools().join("python");
    let python = home.join("bin/python");
    let stamp = home.join("installed");
    if std::fs::read_to_string(&stamp).is_ok_and(|it| it == PYTHON_CLIENT) {
        return Ok(Some(python));
    }
    run::run(Command::new(system).args(["-m", "venv"]).arg(&home))?;
    run::run(Command::new(&python).args(["-m", "pip", "install", "-q", PYTHON_CLIENT]))?;
    std::fs::write(&stamp, PYTHON_CLIENT).context("cannot note the installed client")?;
    Ok(Some(python))
}

/// The directory whose `node_modules` has the client; `None` without Node or npm.
pub fn node() -> Result<Option<PathBuf>> {
    if run::on_path("node").is_none() || run::on_path("npm").is_none() {
        return Ok(None);
    }
    let home = run::tools().join("node");
    let stamp = home.join("installed");
    if std::fs::read_to_string(&stamp).is_ok_and(|it| it == NODE_CLIENT) {
        return Ok(Some(home));
    }
    std::fs::create_dir_all(&home).context("cannot make the directory for node_modules")?;
    std::fs::write(home.join("package.json"), "{\"private\":true,\"type\":\"module\"}\n")?;
    let install = ["install", "--no-audit", "--no-fund", "--loglevel=error", NODE_CLIENT];
    run::run(Command::new("npm").args(install).current_dir(&home))?;
    std::fs::write(&stamp, NODE_CLIENT).context("cannot note the installed client")?;
    Ok(Some(home))
}
