//! Repository rules that no compiler knows, each with the reason in its message.
//!
//! Start at [`check`]. The rules look at text, not at syntax trees: a rule that needs more than a line
//! does not belong here.

mod orphans;
mod writes;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::run;

/// Runs every rule over every file.
pub fn check() -> Result<()> {
    let root = run::root();
    let mut files = Vec::new();
    collect(&root, &mut files).context("cannot walk the repository")?;
    files.sort();
    let mut faults = Vec::new();
    for path in &files {
        let Ok(text) = std::fs::read_to_string(path) else { continue };
        let name = path.strip_prefix(&root).unwrap_or(path);
        faults.extend(text_faults(name, &text));
        if is_rust(path) {
            faults.extend(rust_faults(name, &text));
        }
    }
    faults.extend(orphans::faults(&root, &files));
    faults.extend(writes::faults(&root, &files)?);
    faults.extend(decision_faults(&root)?);
    faults.extend(map_faults(&root)?);
    if !faults.is_empty() {
        bail!("tidy: {} fault(s)\n  {}", faults.len(), faults.join("\n  "));
    }
    println!("tidy: {} files: fine", files.len());
    Ok(())
}

/// Files a person wrote: everything but build output and downloaded packages.
fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !["target", ".git", "node_modules", "__pycache__", "convoy-data", "corpus"]
                .contains(&name.as_str())
            {
                collect(&path, files)?;
            }
        } else if has_ending(&path, &["rs", "toml", "md", "py", "mjs", "sh", "proto", "txt"]) {
            files.push(path);
        }
    }
    Ok(())
}

fn text_faults(name: &Path, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let place = format!("{}:{number}", name.display());
        if line.trim_end() != line && !is_generated(text) {
            faults.push(format!("{place}: trailing whitespace"));
        }
        if line.chars().any(is_odd) {
            faults.push(format!("{place}: an invisible or control character"));
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        faults.push(format!("{}: no newline at the end", name.display()));
    }
    faults
}

fn rust_faults(name: &Path, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if !text.starts_with("//!") && !is_generated(text) {
        faults.push(format!("{}: must open with `//!`: what is it for, what not?", name.display()));
    }
    if name.ends_with("mod.rs") {
        faults.push(format!("{}: modules are `foo.rs` beside `foo/`", name.display()));
    }
    for (number, line) in (1..).zip(text.lines()) {
        let place = format!("{}:{number}", name.display());
        let line = line.trim();
        // Built from parts, so that this file passes its own rule.
        for mark in [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")] {
            if has_word(line, mark) && !line.contains(&format!("{mark}(#")) {
                faults.push(format!("{place}: a bare {mark}; write {mark}(#issue)"));
            }
        }
        if line.starts_with(concat!("#[ig", "nore")) {
            faults.push(format!("{place}: ignored tests are tests nobody runs"));
        }
        if line.starts_with(concat!("#[should", "_panic")) {
            faults.push(format!("{place}: assert on an error, not on a panic"));
        }
    }
    faults
}

/// Decision records are numbered from 0001 without gaps: a missing one was lost.
fn decision_faults(root: &Path) -> Result<Vec<String>> {
    let dir = root.join("docs/decisions");
    let mut names: Vec<String> = std::fs::read_dir(&dir)
        .context("docs/decisions")?
        .filter_map(Result::ok)
        .map(|it| it.file_name().to_string_lossy().into_owned())
        .filter(|it| it.as_str() != "README.md")
        .collect();
    names.sort();
    let numbered = (1..).zip(&names);
    let wrong = numbered.filter(|(number, name)| !name.starts_with(&format!("{number:04}-")));
    Ok(wrong.map(|(number, name)| format!("docs/decisions/{name}: expected number {number:04}")).collect())
}

/// The map must not lead astray: every `crate/file.rs` that ARCHITECTURE.md names exists.
fn map_faults(root: &Path) -> Result<Vec<String>> {
    let page = std::fs::read_to_string(root.join("ARCHITECTURE.md")).context("ARCHITECTURE.md")?;
    let exists = |name: &str| {
        let below =
            name.split_once('/').map(|(first, rest)| root.join("crates").join(first).join("src").join(rest));
        root.join(name).is_file() || below.is_some_and(|it| it.is_file())
    };
    let quoted = page.split('`').skip(1).step_by(2).filter(|it| it.contains('/') && it.ends_with(".rs"));
    Ok(quoted.filter(|it| !exists(it)).map(|it| format!("ARCHITECTURE.md: there is no {it}")).collect())
}

fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let is_part = |it: Option<char>| it.is_some_and(|it| it.is_alphanumeric() || it == '_');
        !is_part(before) && !is_part(after)
    })
}

/// Control characters, byte order marks, zero-width and direction marks, odd spaces.
fn is_odd(it: char) -> bool {
    let hidden = ['\u{a0}', '\u{ad}', '\u{feff}'];
    let zero_width = '\u{200b}'..='\u{200f}';
    let direction = '\u{202a}'..='\u{202e}';
    let isolates = '\u{2060}'..='\u{2069}';
    (it.is_control() && it != '\t')
        || hidden.contains(&it)
        || zero_width.contains(&it)
        || direction.contains(&it)
        || isolates.contains(&it)
}

fn is_generated(text: &str) -> bool {
    text.lines().take(5).any(|it| it.contains("@generated"))
}

fn is_rust(path: &Path) -> bool {
    has_ending(path, &["rs"])
}

fn has_ending(path: &Path, endings: &[&str]) -> bool {
    path.extension().is_some_and(|it| endings.iter().any(|ending| it == *ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_rules_find_their_faults() {
        let check = |text: &str| rust_faults(Path::new("a.rs"), text).len();
        assert_eq!(check("//! Fine.\nfn main() {}\n"), 0);
        assert_eq!(check("fn main() {}\n"), 1);
        assert_eq!(check(concat!("//! A.\n// TO", "DO later\n")), 1);
        assert_eq!(check(concat!("//! A.\n// TO", "DO(#12) later\n")), 0);
        assert_eq!(check(concat!("//! A.\n#[ig", "nore]\n")), 1);
        assert_eq!(check("//! A.\nconst XXXL: u8 = 1;\n"), 0);
    }

    #[test]
    fn invisible_characters_are_found() {
        let check = |text: &str| text_faults(Path::new("a.md"), text).len();
        assert_eq!(check("plain … → text\n"), 0);
        assert_eq!(check("a\u{202e}b\n"), 1);
        assert_eq!(check("a \n"), 1);
        assert_eq!(check("a"), 1);
    }
}
