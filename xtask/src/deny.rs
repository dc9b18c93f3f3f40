//! Licences, sources and banned crates, over everything that is compiled on Linux, and known faults of crates, over
//! everything that is locked.
//!
//! `deny.toml` says the same for people who have cargo-deny; this check needs nothing installed and no network, and is the
//! one that CI runs.

use anyhow::{Result, bail};

use crate::advisories;
use crate::metadata::{self, Package};

const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "OpenSSL",
    "Unicode-3.0",
    "Zlib",
];

/// Weak copyleft, file by file: fine for these, not for more.
const MPL: &[&str] = &["imbl", "imbl-sized-chunks", "bitmaps"];

/// Each with its reason; sorted.
const BANNED: &[(&str, &str)] = &[
    ("atty", "unmaintained; std has IsTerminal"),
    ("backoff", "unmaintained (RUSTSEC-2025-0012)"),
    ("bincode", "unmaintained (RUSTSEC-2025-0141)"),
    ("fxhash", "unmaintained"),
    ("im", "unmaintained (RUSTSEC-2026-0248); we use imbl"),
    ("instant", "unmaintained; std has Instant"),
    ("native-tls", "one TLS stack: rustls"),
    ("openssl", "one crypto provider: aws-lc-rs"),
    ("paste", "unmaintained"),
    ("ring", "one crypto provider: aws-lc-rs"),
    ("rustls-pemfile", "unmaintained (RUSTSEC-2025-0134); pki-types reads PEM"),
    ("serde_yaml", "unmaintained"),
    ("serde_yml", "unsound (RUSTSEC-2025-0068)"),
];

/// Checks every crate of the build.
pub fn check() -> Result<()> {
    let packages = metadata::packages()?;
    let mut faults: Vec<String> = packages.iter().filter_map(fault).collect();
    faults.extend(advisories::faults()?);
    if !faults.is_empty() {
        bail!("deny: {} fault(s)\n  {}", faults.len(), faults.join("\n  "));
    }
    println!("deny: {} crates: licences, sources, names and advisories fine", packages.len());
    Ok(())
}

fn fault(package: &Package) -> Option<String> {
    let Package { name, version, licence, foreign_source, features: _ } = package;
    if let Some((_, reason)) = BANNED.iter().find(|(banned, _)| banned == name) {
        return Some(format!("{name} {version} is banned: {reason}"));
    }
    if *foreign_source {
        return Some(format!("{name} {version} comes from another source than the usual registry"));
    }
    let Some(licence) = licence else { return Some(format!("{name} {version} states no licence")) };
    if accepts(licence, MPL.contains(&name.as_str())) {
        return None;
    }
    Some(format!("{name} {version} has licence `{licence}`"))
}

/// Whether an SPDX expression can be met with what we allow.
fn accepts(expression: &str, mpl: bool) -> bool {
    // Old manifests write `MIT/Apache-2.0`.
    let expression = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = expression.split_whitespace().collect();
    let mut at = 0;
    any(&words, &mut at, mpl) && at == words.len()
}

fn any(words: &[&str], at: &mut usize, mpl: bool) -> bool {
    let mut accepted = all(words, at, mpl);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        accepted |= all(words, at, mpl);
    }
    accepted
}

fn all(words: &[&str], at: &mut usize, mpl: bool) -> bool {
    let mut accepted = term(words, at, mpl);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        accepted &= term(words, at, mpl);
    }
    accepted
}

fn term(words: &[&str], at: &mut usize, mpl: bool) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let accepted = any(words, at, mpl);
        *at += 1;
        return accepted;
    }
    if words.get(*at) == Some(&"WITH") {
        // An exception only widens what the licence permits.
        *at += 2;
    }
    LICENCES.contains(word) || (mpl && word.trim_end_matches('+') == "MPL-2.0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_as_spdx() {
        for fine in [
            "MIT OR GPL-3.0",
            "MIT/Apache-2.0",
            "(Apache-2.0 OR MIT) AND BSD-3-Clause",
            "ISC AND (Apache-2.0 OR ISC)",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        ] {
            assert!(accepts(fine, false), "{fine}");
        }
        for refused in ["GPL-3.0", "MIT AND GPL-3.0", "MPL-2.0", "", "(MIT OR GPL-3.0) AND AGPL-3.0"] {
            assert!(!accepts(refused, false), "{refused}");
        }
        assert!(accepts("MPL-2.0+", true));
    }

    #[test]
    fn the_ban_list_is_sorted() {
        assert!(BANNED.is_sorted());
    }
}
