//! What `cargo metadata` says, read into just what the checks need.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::run;

/// One of our own crates and what it names in `[dependencies]`.
pub struct Member {
    pub name: String,
    /// Normal and build dependencies; the check for tests is looser.
    pub normal: BTreeSet<String>,
    pub dev: BTreeSet<String>,
}

/// One crate that ends up in the build for Linux.
pub struct Package {
    pub name: String,
    pub version: String,
    pub licence: Option<String>,
    pub features: BTreeSet<String>,
    /// Neither the usual registry nor this repository.
    pub foreign_source: bool,
}

/// The members of the workspace.
pub fn members() -> Result<Vec<Member>> {
    let metadata = read(&["--no-deps"])?;
    let packages = metadata["packages"].as_array().context("`packages` must be a list")?;
    packages.iter().map(member).collect()
}

/// Every crate that is compiled on Linux, ours included.
///
/// From `cargo tree`, because `cargo metadata` also lists what only an unused feature would pull in.
pub fn packages() -> Result<Vec<Package>> {
    let mut cargo = run::cargo();
    cargo.args(["tree", "--workspace", "--locked", "--prefix", "none", "--format", "{p}|{l}|{f}"]);
    cargo.args(["--target", "x86_64-unknown-linux-gnu"]);
    let tree = run::output(&mut cargo)?;
    let lines: BTreeSet<&str> = tree.lines().map(|it| it.trim_end_matches(" (*)")).collect();
    lines.into_iter().filter(|it| !it.is_empty()).map(package).collect()
}

/// Everything, with the graph of what needs what on Linux.
pub fn resolved() -> Result<Value> {
    read(&["--filter-platform", "x86_64-unknown-linux-gnu"])
}

/// One line of the tree: `name v1.2.3 (where)|licence|feature,feature`.
fn package(line: &str) -> Result<Package> {
    let mut parts = line.split('|');
    let mut next = || parts.next().with_context(|| format!("`{line}` must have three parts"));
    let (named, licence, features) = (next()?, next()?, next()?);
    let mut words = named.split_whitespace();
    let name = words.next().context("a crate must have a name")?.to_owned();
    let version = words.next().context("a crate must have a version")?.trim_start_matches('v').to_owned();
    Ok(Package {
        name,
        version,
        licence: Some(licence.to_owned()).filter(|it| !it.is_empty()),
        features: features.split(',').map(str::to_owned).collect(),
        foreign_source: words.any(|it| it.starts_with("(http") || it.starts_with("(git")),
    })
}

fn member(package: &Value) -> Result<Member> {
    let name = text(package, "name").context("a package must have a name")?;
    let mut member = Member { name, normal: BTreeSet::new(), dev: BTreeSet::new() };
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        let Some(name) = text(dependency, "name") else { continue };
        let of_kind = if dependency["kind"] == "dev" { &mut member.dev } else { &mut member.normal };
        of_kind.insert(name);
    }
    Ok(member)
}

fn read(args: &[&str]) -> Result<Value> {
    let mut cargo = run::cargo();
    cargo.args(["metadata", "--format-version", "1", "--locked"]).args(args);
    serde_json::from_str(&run::output(&mut cargo)?).context("`cargo metadata` must print JSON")
}

fn text(value: &Value, field: &str) -> Option<String> {
    value[field].as_str().map(str::to_owned)
}
