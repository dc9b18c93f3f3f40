//! Every place that commits a transaction to the store is listed in `docs/store-writes.md`, and nothing else is.
//!
//! Reads lines: a commit is a line with one of [`COMMITS`], its place the last line before it that begins a function. Stores, test
//! code, and wrappers that hand on what they are given are left out.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const PAGE: &str = "docs/store-writes.md";

/// Crates that carry transactions out, make them in tests, or measure.
const LEFT_OUT: [&str; 9] = [
    "crates/store/",
    "crates/store-embedded/",
    "crates/store-etcd/",
    "crates/testkit/",
    "crates/fuzzing/",
    "crates/load/",
    "crates/convoy/src/bench/",
    "crates/server/src/store_metrics.rs",
    "crates/registry/src/outcome.rs",
];

/// What a commit looks like.
const COMMITS: [&str; 2] = [".commit(", ".commit_or_find_out("];

/// A file and a function in it.
type Place = (String, String);

/// What the page lists and the code does not have, and the other way round.
pub fn faults(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let page = std::fs::read_to_string(root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let listed = listed(&page);
    let mut found = BTreeSet::new();
    for path in files.iter().filter(|it| super::is_rust(it)) {
        let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/");
        if name.starts_with("crates/") && name.contains("/src/") && !is_left_out(&name) {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            found.extend(commits(&text).into_iter().map(|function| (name.clone(), function)));
        }
    }
    Ok(compare(&listed, &found))
}

fn is_left_out(name: &str) -> bool {
    LEFT_OUT.iter().any(|it| name.starts_with(it)) || name.ends_with("tests.rs") || name.contains("/tests/")
}

/// The first two columns of the first table.
fn listed(page: &str) -> BTreeSet<Place> {
    let rows = page.lines().skip_while(|it| !it.starts_with("| file |")).skip(2);
    let rows = rows.take_while(|it| it.starts_with('|'));
    let cell = |text: &str| text.trim().trim_matches('`').to_owned();
    rows.filter_map(|row| {
        let mut cells = row.split('|').skip(1);
        Some((cell(cells.next()?), cell(cells.next()?)))
    })
    .collect()
}

/// The functions that commit.
fn commits(text: &str) -> Vec<String> {
    let mut function = String::new();
    let mut found = Vec::new();
    for line in text.lines().take_while(|it| !it.starts_with("#[cfg(test)]")) {
        if let Some(name) = function_name(line) {
            function = name;
        }
        if COMMITS.iter().any(|it| line.contains(it)) && !line.trim_start().starts_with("//") {
            found.push(function.clone());
        }
    }
    found
}

fn function_name(line: &str) -> Option<String> {
    let (before, after) = line.split_once("fn ")?;
    let is_item = before.split_whitespace().all(|it| it == "async" || it == "const" || it.starts_with("pub"));
    let name: String = after.chars().take_while(|it| it.is_alphanumeric() || *it == '_').collect();
    (is_item && !name.is_empty()).then_some(name)
}

fn compare(listed: &BTreeSet<Place>, found: &BTreeSet<Place>) -> Vec<String> {
    let missing = found.difference(listed).map(|(file, function)| {
        format!("{file}: `{function}` commits to the store and is not listed in {PAGE}: say what it requires")
    });
    let stale = listed
        .difference(found)
        .map(|(file, function)| format!("{PAGE}: `{function}` of {file} does not commit to the store"));
    missing.chain(stale).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_belongs_to_the_function_above_it() {
        let text = "impl A {\n    pub(crate) async fn remove(&self) {\n        // self.commit(no)\n        \
                    self.store.commit(txn).await\n    }\n}\n#[cfg(test)]\nfn t() { store.commit(x) }\n";
        assert_eq!(commits(text), ["remove"]);
    }

    #[test]
    fn both_directions_are_compared() {
        let page = "| file | function | x |\n|---|---|---|\n| `a.rs` | `f` | y |\n\n| `b.rs` | `g` | z |\n";
        let place = |file: &str, function: &str| (file.to_owned(), function.to_owned());
        assert_eq!(listed(page), BTreeSet::from([place("a.rs", "f")]));
        let found = BTreeSet::from([place("a.rs", "h")]);
        assert_eq!(compare(&listed(page), &found).len(), 2);
        assert_eq!(compare(&listed(page), &listed(page)), [""; 0]);
    }
}
