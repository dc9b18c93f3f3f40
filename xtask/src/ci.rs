//! What a change must pass, cheapest first.

use anyhow::Result;

use crate::run::{self, cargo};
use crate::{deny, layers, test, tidy};

/// Every check, then the tests.
pub fn all() -> Result<()> {
    fmt_check()?;
    tidy::check()?;
    layers::check()?;
    deny::check()?;
    clippy()?;
    doc()?;
    test::all(&[])
}

pub fn fmt_check() -> Result<()> {
    run::run(cargo().args(["fmt", "--all", "--check"]))
}

pub fn clippy() -> Result<()> {
    let lint = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
    run::run(cargo().args(lint))
}

pub fn doc() -> Result<()> {
    let doc = ["doc", "--workspace", "--no-deps", "--locked", "--document-private-items"];
    run::run(cargo().args(doc).env("RUSTDOCFLAGS", "-D warnings"))
}
