//! `cargo xtask fuzz`: runs every fuzz target for a while.
//!
//! The fuzzers need cargo-fuzz (`cargo install cargo-fuzz`). Their sanitizers are unstable options of the compiler:
//! a nightly toolchain is used if there is one, else this one is told to accept them. CI replays the checked-in corpus
//! instead, on stable (`crates/fuzzing`). What a run finds goes into `fuzz/artifacts`; what it learns goes into a
//! corpus under `target/`, so that the checked-in one stays small.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;

/// Runs one target, or all of them.
pub fn targets(args: &[String]) -> Result<()> {
    let mut seconds = 180;
    let mut only = None;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seconds" => seconds = args.next().context("--seconds wants a number")?.parse()?,
            name => only = Some(name),
        }
    }
    let manifest = std::fs::read_to_string(run::root().join("fuzz/Cargo.toml"))?;
    let all: Vec<&str> = names(&manifest).collect();
    let chosen: Vec<&str> = all.iter().copied().filter(|it| only.is_none_or(|only| only == *it)).collect();
    if chosen.is_empty() {
        bail!("no such target; there are: {}", all.join(", "));
    }
    for target in &chosen {
        one(target, seconds)?;
    }
    println!("fuzz: {} targets, {seconds} s each: no finding", chosen.len());
    Ok(())
}

fn one(target: &str, seconds: u32) -> Result<()> {
    let learned = run::target().join("fuzz-corpus").join(target);
    std::fs::create_dir_all(&learned)?;
    let mut cargo = toolchain();
    cargo.args(["fuzz", "run", target, "--target-dir"]).arg(run::target().join("fuzz"));
    cargo.arg(&learned).arg(format!("fuzz/corpus/{target}"));
    cargo.args(["--", &format!("-max_total_time={seconds}"), "-print_final_stats=1"]);
    run::run(cargo.current_dir(run::root()))
}

/// A cargo whose compiler takes unstable options.
fn toolchain() -> Command {
    // The toolchain that runs us would win over `+nightly`.
    let cargo = |args: &[&str]| {
        let mut cargo = Command::new("cargo");
        cargo.args(args).env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
        cargo
    };
    let is_there = cargo(&["+nightly", "--version"]).output().is_ok_and(|it| it.status.success());
    if is_there {
        return cargo(&["+nightly"]);
    }
    let mut stable = cargo(&[]);
    stable.env("RUSTC_BOOTSTRAP", "1");
    stable
}

/// The `[[bin]]`s of the manifest.
fn names(manifest: &str) -> impl Iterator<Item = &str> {
    let bins = manifest.split("[[bin]]").skip(1);
    bins.filter_map(|it| it.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_found_in_the_manifest() {
        let manifest = "[package]\nname = \"x\"\n\n[[bin]]\nname = \"json\"\npath = \"a\"\n\n[[bin]]\nname = \"patch\"\n";
        assert_eq!(names(manifest).collect::<Vec<_>>(), ["json", "patch"]);
    }
}
