//! Every `.rs` file is reached by a `mod`: an unlisted file is code that nobody compiles.
//!
//! Reads `mod name;` lines only; a module declared inside another inline module, or by a macro, would
//! be reported although it is compiled. Neither exists here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The Rust files that no crate root leads to.
pub fn faults(root: &Path, files: &[PathBuf]) -> Vec<String> {
    let all: BTreeSet<&Path> = files.iter().map(PathBuf::as_path).filter(|it| super::is_rust(it)).collect();
    let mut reached = BTreeSet::new();
    for manifest in files.iter().filter(|it| it.ends_with("Cargo.toml")) {
        for start in crate_roots(manifest, &all) {
            visit(&start, &mut reached);
        }
    }
    let lost = all.into_iter().filter(|it| !reached.contains(*it));
    lost.map(|it| format!("{}: no `mod` leads here", it.strip_prefix(root).unwrap_or(it).display())).collect()
}

/// Where Cargo starts compiling a package: its conventional files and every `path = "….rs"`.
fn crate_roots(manifest: &Path, all: &BTreeSet<&Path>) -> Vec<PathBuf> {
    let home = manifest.parent().expect("a manifest must lie in a directory");
    let mut roots: Vec<PathBuf> =
        ["src/lib.rs", "src/main.rs", "build.rs"].iter().map(|it| home.join(it)).collect();
    for dir in ["src/bin", "tests", "examples", "benches"] {
        let dir = home.join(dir);
        let flat = |it: &Path| it.parent() == Some(&dir);
        let nested = |it: &Path| it.ends_with("main.rs") && it.parent().and_then(Path::parent) == Some(&dir);
        roots.extend(all.iter().filter(|it| flat(it) || nested(it)).map(|it| it.to_path_buf()));
    }
    let text = std::fs::read_to_string(manifest).unwrap_or_default();
    let named = text.lines().filter_map(|line| line.trim().strip_prefix("path = \"")?.strip_suffix('"'));
    roots.extend(named.filter(|it| it.ends_with(".rs")).map(|it| home.join(it)));
    roots.retain(|it| it.is_file());
    roots
}

fn visit(file: &Path, reached: &mut BTreeSet<PathBuf>) {
    if !reached.insert(file.to_owned()) {
        return;
    }
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let here = file.parent().expect("a file must lie in a directory");
    let below = home_of_children(file);
    let mut explicit = None;
    for line in text.lines().map(str::trim) {
        if let Some(path) = line.strip_prefix("#[path = \"").and_then(|it| it.strip_suffix("\"]")) {
            explicit = Some(here.join(path));
        } else if let Some(included) = line.strip_prefix("include!(\"").and_then(|it| it.split('"').next()) {
            visit(&here.join(included), reached);
        } else if let Some(name) = declared(line) {
            let child = explicit.take().unwrap_or_else(|| below.join(format!("{name}.rs")));
            if child.is_file() {
                visit(&child, reached);
            }
        }
    }
}

/// `src/lib.rs` keeps its children in `src/`, `src/foo.rs` in `src/foo/`.
fn home_of_children(file: &Path) -> PathBuf {
    let here = file.parent().expect("a file must lie in a directory");
    let stem = file.file_stem().unwrap_or_default();
    let is_root = ["lib", "main", "mod", "build"].iter().any(|it| stem == *it);
    if is_root { here.to_owned() } else { here.join(stem) }
}

/// The module a line declares, whatever its visibility.
fn declared(line: &str) -> Option<&str> {
    let declaration = line.split("//").next()?.trim().strip_suffix(';')?;
    let (before, name) = declaration.rsplit_once("mod ")?;
    let is_visibility = before.is_empty() || (before.starts_with("pub") && before.ends_with(' '));
    let is_name = name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_');
    (is_visibility && is_name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_told_from_other_lines() {
        assert_eq!(declared("mod a;"), Some("a"));
        assert_eq!(declared("pub(crate) mod a_b; // why"), Some("a_b"));
        assert_eq!(declared("mod tests {"), None);
        assert_eq!(declared("let mod_x = 1;"), None);
        assert_eq!(declared("use mod a;"), None);
    }

    #[test]
    fn children_live_beside_their_parent() {
        assert_eq!(home_of_children(Path::new("src/lib.rs")), Path::new("src"));
        assert_eq!(home_of_children(Path::new("src/foo.rs")), Path::new("src/foo"));
    }
}
