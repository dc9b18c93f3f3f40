//! `docs/flags.md`, written from what the binary says. A test of the binary compares the two.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use crate::run::{self, cargo};

/// Asks the binary and writes the page.
pub fn write() -> Result<()> {
    let mut command = cargo();
    // Without a terminal and a width, help is wrapped the same everywhere.
    command.args(["run", "--quiet", "--package", "convoy", "--", "serve", "--help"]);
    let output =
        command.env_remove("COLUMNS").stdin(Stdio::null()).output().context("cannot run the binary")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let help = String::from_utf8(output.stdout).context("help must be UTF-8")?;
    let help: String = help.lines().map(|it| format!("{}\n", it.trim_end())).collect();
    let page = format!(
        "# Flags of `convoy serve`\n\nWritten by `cargo xtask flags`; a test compares it with the binary.\n\n```text\n{help}```\n"
    );
    let path = run::root().join("docs/flags.md");
    std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))
}
