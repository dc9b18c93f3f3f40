//! The layer check: what each crate may know.
//!
//! The rules are written once, in ARCHITECTURE.md, in two fenced blocks that are read here: `arrows`
//! (which of our crates may depend on which) and `bans` (who may name an outside crate). They are
//! compared with the manifests, so the page cannot drift from the code.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};

use crate::metadata::{self, Member, Package};
use crate::run;

/// Reads the page, compares, and lists every arrow that is not allowed.
pub fn check() -> Result<()> {
    let page = std::fs::read_to_string(run::root().join("ARCHITECTURE.md")).context("ARCHITECTURE.md")?;
    let rules = Rules::parse(&page)?;
    let members = metadata::members()?;
    let mut faults = rules.faults(&members);
    faults.extend(tree_faults(&metadata::packages()?));
    if !faults.is_empty() {
        bail!("layers: {} fault(s)\n  {}", faults.len(), faults.join("\n  "));
    }
    let arrows: usize = rules.arrows.values().map(BTreeSet::len).sum();
    println!("layers: {} crates, {arrows} allowed arrows, {} bans: fine", members.len(), rules.bans.len());
    Ok(())
}

/// What the page allows.
#[derive(Debug, Default)]
struct Rules {
    arrows: BTreeMap<String, BTreeSet<String>>,
    bans: Vec<Ban>,
}

/// Who may, or may not, name an outside crate.
#[derive(Debug)]
struct Ban {
    /// `hyper`, or `hyper*` for the family.
    outside: String,
    only: bool,
    crates: BTreeSet<String>,
}

impl Rules {
    fn parse(page: &str) -> Result<Rules> {
        let mut rules = Rules::default();
        for line in block(page, "arrows")? {
            let (from, to) = line.split_once("->").with_context(|| format!("no `->` in `{line}`"))?;
            rules.arrows.insert(from.trim().to_owned(), words(to));
        }
        for line in block(page, "bans")? {
            let (outside, rule) = line.split_once(':').with_context(|| format!("no `:` in `{line}`"))?;
            let (verb, crates) = rule.trim().split_once(' ').unwrap_or((rule.trim(), ""));
            let only = match verb {
                "only" => true,
                "not" => false,
                _ => bail!("`{line}` must say `only` or `not`"),
            };
            rules.bans.push(Ban { outside: outside.trim().to_owned(), only, crates: words(crates) });
        }
        rules.check_order()?;
        Ok(rules)
    }

    /// The block lists a crate only after everything it may use, so it cannot hold a cycle.
    fn check_order(&self) -> Result<()> {
        let mut done: BTreeSet<&str> = BTreeSet::new();
        while done.len() < self.arrows.len() {
            let before = done.len();
            for (from, to) in &self.arrows {
                if to.iter().all(|it| done.contains(it.as_str())) {
                    done.insert(from);
                }
            }
            if done.len() == before {
                let left: Vec<_> =
                    self.arrows.keys().map(String::as_str).filter(|it| !done.contains(it)).collect();
                bail!("the arrows of {} form a cycle or name an unlisted crate", left.join(", "));
            }
        }
        Ok(())
    }

    fn faults(&self, members: &[Member]) -> Vec<String> {
        let ours: BTreeSet<&str> = members.iter().map(|it| it.name.as_str()).collect();
        let mut faults = Vec::new();
        for member in members {
            let Some(allowed) = self.arrows.get(&member.name) else {
                faults.push(format!("{} is missing in ARCHITECTURE.md's arrows", member.name));
                continue;
            };
            for to in member.normal.iter().filter(|it| ours.contains(it.as_str())) {
                if !allowed.contains(to) {
                    faults.push(format!("{} -> {to} is not an allowed arrow", member.name));
                }
            }
            // Tests may use what the code may use, and the test kit.
            for to in member.dev.iter().filter(|it| ours.contains(it.as_str())) {
                if to != "testkit" && !allowed.contains(to) {
                    faults.push(format!("{} -> {to} is not allowed, not even in tests", member.name));
                }
            }
            let banned = self.bans.iter().flat_map(|ban| ban.faults(member));
            faults.extend(banned);
        }
        for listed in self.arrows.keys().filter(|it| !ours.contains(it.as_str())) {
            faults.push(format!("ARCHITECTURE.md lists {listed}, which is no crate of the workspace"));
        }
        faults
    }
}

impl Ban {
    fn faults(&self, member: &Member) -> Vec<String> {
        let may = self.only == self.crates.contains(&member.name);
        if may {
            return Vec::new();
        }
        let named = member.normal.iter().filter(|it| self.covers(it));
        named.map(|it| format!("{} must not know {it}", member.name)).collect()
    }

    fn covers(&self, name: &str) -> bool {
        match self.outside.strip_suffix('*') {
            Some(family) => name == family || name.starts_with(&format!("{family}-")),
            None => name == self.outside,
        }
    }
}

/// One crypto provider, and numbers and maps that behave the same in the whole binary.
fn tree_faults(packages: &[Package]) -> Vec<String> {
    let mut faults = Vec::new();
    for package in packages {
        if ["ring", "openssl", "openssl-sys"].contains(&package.name.as_str()) {
            faults.push(format!(
                "{} {} is in the tree: aws-lc-rs is the one provider",
                package.name, package.version
            ));
        }
        let unify = ["preserve_order", "arbitrary_precision"];
        for feature in
            unify.iter().filter(|it| package.name == "serde_json" && package.features.contains(**it))
        {
            faults.push(format!("serde_json/{feature} is on: it changes JSON in every crate"));
        }
    }
    faults
}

fn block<'page>(page: &'page str, name: &str) -> Result<Vec<&'page str>> {
    let fence = format!("```{name}");
    let mut lines = page.lines().skip_while(|it| *it != fence);
    lines.next().with_context(|| format!("ARCHITECTURE.md has no block ```{name}"))?;
    Ok(lines.take_while(|it| !it.starts_with("```")).filter(|it| !it.trim().is_empty()).collect())
}

fn words(text: &str) -> BTreeSet<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
text
```arrows
low  ->
high -> low
```
```bans
hyper*: only high
tokio: not low
```
";

    fn member(name: &str, normal: &[&str], dev: &[&str]) -> Member {
        let set = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
        Member { name: name.to_owned(), normal: set(normal), dev: set(dev) }
    }

    fn faults(low: &[&str], low_dev: &[&str]) -> Vec<String> {
        let rules = Rules::parse(PAGE).unwrap();
        rules.faults(&[member("low", low, low_dev), member("high", &["low", "hyper-util", "tokio"], &[])])
    }

    #[test]
    fn allowed_arrows_pass() {
        assert!(faults(&["serde"], &["testkit"]).is_empty());
    }

    #[test]
    fn an_upward_arrow_is_a_fault_even_in_tests() {
        assert_eq!(faults(&["high"], &[]), ["low -> high is not an allowed arrow"]);
        assert_eq!(faults(&[], &["high"]), ["low -> high is not allowed, not even in tests"]);
    }

    #[test]
    fn bans_cover_whole_families() {
        assert_eq!(faults(&["hyper-rustls"], &[]), ["low must not know hyper-rustls"]);
        assert_eq!(faults(&["tokio"], &[]), ["low must not know tokio"]);
        assert!(faults(&["tokio-util"], &[]).is_empty());
    }

    #[test]
    fn a_cycle_on_the_page_is_refused() {
        let page = PAGE.replace("low  ->", "low  -> high");
        assert!(Rules::parse(&page).unwrap_err().to_string().contains("cycle"));
    }
}
