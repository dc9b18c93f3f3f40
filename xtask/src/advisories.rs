//! Known faults of crates: `xtask/data/advisories.txt` lists them, and `cargo xtask deny` compares it with every
//! `Cargo.lock` of the repository, without a network.
//!
//! The list holds facts of the RustSec advisory database: an id, a crate, and versions that are not affected.
//! `cargo xtask advisories DIR` writes it anew from a checkout of that database (docs/supply-chain.md).

mod version;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use self::version::{Requirement, Version};
use crate::lock::{self, Locked};
use crate::run;

const LIST: &str = "xtask/data/advisories.txt";

/// Each lock file of the repository.
const LOCKS: [&str; 3] = ["Cargo.lock", "fuzz/Cargo.lock", "crates/store-etcd/codegen/Cargo.lock"];

/// Advisories that do not make the check fail, each with its reason; sorted.
const ACCEPTED: &[(&str, &str)] = &[];

/// One line of the list.
#[derive(Debug, PartialEq)]
struct Advisory {
    id: String,
    package: String,
    /// `vulnerability`, or what else is to be said: `unsound`, `unmaintained`, `notice`.
    kind: String,
    /// Versions that match any of these are fine.
    fine: Vec<Requirement>,
}

/// Faults of crates in the lock files, one line each.
pub fn faults() -> Result<Vec<String>> {
    let read = |name: &str| {
        std::fs::read_to_string(run::root().join(name)).with_context(|| format!("cannot read {name}"))
    };
    let list = parse(&read(LIST)?)?;
    let mut faults = BTreeSet::new();
    for lock in LOCKS {
        faults.extend(find(&list, &read(lock)?, ACCEPTED)?);
    }
    Ok(faults.into_iter().collect())
}

/// Writes the list anew from a checkout of the database.
pub fn refresh(args: &[String]) -> Result<()> {
    let [folder] = args else {
        bail!("usage: cargo xtask advisories DIR, a checkout of the RustSec advisory database")
    };
    let mut lines = BTreeSet::new();
    for package in entries(&Path::new(folder).join("crates"))? {
        for file in entries(&package)? {
            let text =
                std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let line = line(&text).with_context(|| format!("in {}", file.display()))?;
            lines.extend(line);
        }
    }
    ensure!(!lines.is_empty(), "no advisories in {folder}");
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%H of %cs"]).current_dir(folder);
    let commit = run::output(&mut git).unwrap_or_default();
    let mut page = String::from("# Known faults of crates, from the RustSec advisory database");
    if !commit.trim().is_empty() {
        let _ = write!(page, " (commit {})", commit.trim());
    }
    page += ".\n# Written by `cargo xtask advisories`: id, crate, kind, and versions that are fine, one requirement after the other.\n";
    for line in &lines {
        page += line;
        page.push('\n');
    }
    parse(&page)?;
    let path = run::root().join(LIST);
    std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    println!("advisories: {} in {LIST}", lines.len());
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let listed = std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    Ok(listed.filter_map(Result::ok).map(|it| it.path()).collect())
}

/// `ID CRATE KIND REQUIREMENT|REQUIREMENT`, or `-` if no version is fine.
fn parse(list: &str) -> Result<Vec<Advisory>> {
    let lines = list.lines().filter(|it| !it.is_empty() && !it.starts_with('#'));
    lines.map(|line| advisory(line).with_context(|| format!("`{line}`"))).collect()
}

fn advisory(line: &str) -> Result<Advisory> {
    let mut words = line.splitn(4, ' ');
    let mut word = || words.next().map(str::to_owned).context("an advisory must have four parts");
    let (id, package, kind, fine) = (word()?, word()?, word()?, word()?);
    let fine = match fine.as_str() {
        "-" => Vec::new(),
        some => some.split('|').map(Requirement::parse).collect::<Result<_>>()?,
    };
    Ok(Advisory { id, package, kind, fine })
}

fn find(list: &[Advisory], lock: &str, accepted: &[(&str, &str)]) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    // Ours may be called like somebody else's.
    for Locked { name, version, .. } in lock::parse(lock).iter().filter(|it| it.source.is_some()) {
        let parsed = Version::parse(version).with_context(|| format!("{name} {version}"))?;
        for advisory in list.iter().filter(|it| it.package == *name) {
            let is_accepted = accepted.iter().any(|(id, _)| *id == advisory.id);
            if !is_accepted && !advisory.fine.iter().any(|it| it.matches(&parsed)) {
                faults.push(format!("{name} {version} has an advisory: {} ({})", advisory.id, advisory.kind));
            }
        }
    }
    Ok(faults)
}

/// The line of an advisory, from its text; none if it was withdrawn.
fn line(text: &str) -> Result<Option<String>> {
    let head = text.split("```").nth(1).context("an advisory must begin with a block")?;
    let head = head.strip_prefix("toml").unwrap_or(head);
    if field(head, "withdrawn").is_some() {
        return Ok(None);
    }
    let wanted = |key: &str| strings(head, key).into_iter().next();
    let id = wanted("id").context("an advisory must have an id")?;
    let package = wanted("package").context("an advisory must name a crate")?;
    let kind = wanted("informational").unwrap_or_else(|| "vulnerability".to_owned());
    let mut fine = strings(head, "patched");
    fine.extend(strings(head, "unaffected"));
    fine.iter_mut().for_each(|it| *it = it.trim().to_owned());
    let fine = if fine.is_empty() { "-".to_owned() } else { fine.join("|") };
    Ok(Some(format!("{id} {package} {kind} {fine}")))
}

/// What stands behind a key, up to the end of the line or of its list.
fn field<'a>(head: &'a str, key: &str) -> Option<&'a str> {
    let mut at = 0;
    for line in head.split_inclusive('\n') {
        if let Some(rest) = line.strip_prefix(key)
            && let Some(value) = rest.trim_start().strip_prefix('=')
        {
            let value = value.trim_start();
            let from = at + line.len() - value.len();
            let length = if value.starts_with('[') { head[from..].find(']')? } else { value.len() };
            return Some(&head[from..from + length]);
        }
        at += line.len();
    }
    None
}

/// The texts in quotes behind a key, but for those in comments.
fn strings(head: &str, key: &str) -> Vec<String> {
    let lines = field(head, key).unwrap_or_default().lines();
    let code = lines.map(|it| it.split('#').next().unwrap_or_default());
    code.flat_map(|it| it.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_can_be_read() {
        let list = std::fs::read_to_string(run::root().join(LIST)).unwrap();
        let parsed = parse(&list).unwrap();
        assert!(parsed.len() > 1_000, "{}", parsed.len());
    }

    /// The check is worth nothing if it does not see a crate of which everybody knows.
    #[test]
    fn a_planted_version_with_an_advisory_is_found() {
        let list = std::fs::read_to_string(run::root().join(LIST)).unwrap();
        let list = parse(&list).unwrap();
        let lock = |version: &str| {
            format!("version = 4\n\n[[package]]\nname = \"time\"\nversion = \"{version}\"\nsource = \"x\"\n")
        };
        let found = find(&list, &lock("0.1.43"), &[]).unwrap();
        assert_eq!(found, ["time 0.1.43 has an advisory: RUSTSEC-2020-0071 (vulnerability)"]);
        assert_eq!(find(&list, &lock("0.1.43"), &[("RUSTSEC-2020-0071", "")]).unwrap(), [""; 0]);
        assert_eq!(find(&list, &lock("0.2.23"), &[]).unwrap(), [""; 0]);
        let own = lock("0.1.43").replace("source = \"x\"\n", "");
        assert_eq!(find(&list, &own, &[]).unwrap(), [""; 0]);
    }

    #[test]
    fn what_is_accepted_is_sorted_and_has_a_reason() {
        assert!(ACCEPTED.is_sorted() && ACCEPTED.iter().all(|(_, why)| !why.is_empty()));
    }

    #[test]
    fn advisories_become_lines() {
        let text = "```toml\n[advisory]\nid = \"RUSTSEC-2001-0001\"\npackage = \"p\"\n\n[versions]\npatched = [\n  \">= 1.2\", # \
                    see \"below\"\n  \"^0.9\",\n]\nunaffected = [\"< 0.3\"]\n```\n# Words\n";
        assert_eq!(line(text).unwrap().unwrap(), "RUSTSEC-2001-0001 p vulnerability >= 1.2|^0.9|< 0.3");
        let kind = text.replace("package", "informational = \"unsound\"\npackage");
        assert!(line(&kind).unwrap().unwrap().contains(" unsound "));
        let withdrawn = text.replace("package", "withdrawn = \"2002-01-01\"\npackage");
        assert_eq!(line(&withdrawn).unwrap(), None);
        let none = text.replace("  \">= 1.2\", # see \"below\"\n  \"^0.9\",\n", "").replace("\"< 0.3\"", "");
        assert!(line(&none).unwrap().unwrap().ends_with(" -"));
    }
}
