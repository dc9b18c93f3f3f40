//! Versions of crates and requirements on them, as far as advisories use them.

use std::cmp::Ordering;

use anyhow::{Context, Result, bail};

/// `1.2.3`, `1.2.3-alpha.1`; what is behind a `+` counts for nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    numbers: [u64; 3],
    /// What comes before the release itself; empty for that.
    pre: Vec<String>,
}

/// Comparisons that must all hold: `>= 1.2, < 2`.
#[derive(Debug, PartialEq)]
pub(super) struct Requirement(Vec<Comparison>);

#[derive(Debug, PartialEq)]
struct Comparison {
    operator: Operator,
    version: Version,
    /// How many of the three numbers were given.
    n_given: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
    /// The same up to the first number that is not zero.
    Caret,
    /// The same major and minor.
    Tilde,
}

impl Version {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let (version, n_given) = parts(text)?;
        if n_given != 3 {
            bail!("`{text}` must have three numbers");
        }
        Ok(version)
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => compare_pre(&self.pre, &other.pre),
        })
    }
}

/// Numbers by value and before words; the shorter of two that begin alike comes first.
fn compare_pre(a: &[String], b: &[String]) -> Ordering {
    for (a, b) in a.iter().zip(b) {
        let order = match (a.parse::<u64>(), b.parse::<u64>()) {
            (Ok(a), Ok(b)) => a.cmp(&b),
            (Ok(_), Err(_)) => Ordering::Less,
            (Err(_), Ok(_)) => Ordering::Greater,
            (Err(_), Err(_)) => a.cmp(b),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

impl Requirement {
    pub(super) fn parse(text: &str) -> Result<Self> {
        Ok(Self(text.split(',').map(Comparison::parse).collect::<Result<_>>()?))
    }

    pub(super) fn matches(&self, version: &Version) -> bool {
        self.0.iter().all(|it| it.matches(version))
    }
}

impl Comparison {
    fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        // The longer ones first: `<` begins `<=`.
        let operators = [
            ("<=", Operator::LessOrEqual),
            ("<", Operator::Less),
            (">=", Operator::GreaterOrEqual),
            (">", Operator::Greater),
            ("=", Operator::Equal),
            ("^", Operator::Caret),
            ("~", Operator::Tilde),
        ];
        let found = operators.iter().find_map(|(sign, it)| Some((*it, text.strip_prefix(sign)?)));
        let (operator, rest) = found.unwrap_or((Operator::Caret, text));
        let (version, n_given) = parts(rest.trim()).with_context(|| format!("in `{text}`"))?;
        Ok(Self { operator, version, n_given })
    }

    fn matches(&self, version: &Version) -> bool {
        let own = &self.version;
        let n_given = self.n_given;
        let is_same = |n: usize| version.numbers[..n] == own.numbers[..n];
        match self.operator {
            Operator::Less => version < own,
            Operator::GreaterOrEqual => version >= own,
            // `> 1.2` is not 1.2.3, `<= 1.2` is.
            Operator::LessOrEqual => version <= own || (n_given < 3 && is_same(n_given)),
            Operator::Greater => version > own && !(n_given < 3 && is_same(n_given)),
            Operator::Equal => {
                if n_given == 3 {
                    version == own
                } else {
                    is_same(n_given)
                }
            }
            Operator::Tilde => version >= own && is_same(n_given.min(2)),
            Operator::Caret => {
                let first = own.numbers[..n_given].iter().position(|it| *it != 0);
                version >= own && is_same(first.map_or(n_given, |it| it + 1))
            }
        }
    }
}

/// A version of which the last numbers may be missing, and how many there are.
fn parts(text: &str) -> Result<(Version, usize)> {
    let text = text.split('+').next().unwrap_or_default();
    let (numbers, pre) = text.split_once('-').unwrap_or((text, ""));
    let mut found = [0; 3];
    let mut n_given = 0;
    for part in numbers.split('.').filter(|it| *it != "*" && *it != "x") {
        let slot =
            found.get_mut(n_given).with_context(|| format!("`{text}` must have three numbers at most"))?;
        *slot = part.parse().with_context(|| format!("`{text}` must consist of numbers"))?;
        n_given += 1;
    }
    let pre = pre.split('.').filter(|it| !it.is_empty()).map(str::to_owned).collect();
    Ok((Version { numbers: found, pre }, n_given))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_mean_what_they_mean_to_cargo() {
        let check = |requirement: &str, fits: &[&str], others: &[&str]| {
            let parsed = Requirement::parse(requirement).unwrap();
            let matches = |it: &&str| parsed.matches(&Version::parse(it).unwrap());
            assert!(fits.iter().all(matches), "{requirement} of {fits:?}");
            assert!(!others.iter().any(matches), "{requirement} not of {others:?}");
        };
        check(">= 1.2.3", &["1.2.3", "2.0.0"], &["1.2.2", "1.2.3-rc.1"]);
        check("> 1.2", &["1.3.0"], &["1.2.9", "1.2.0"]);
        check("<= 1.2", &["1.2.9", "1.1.0"], &["1.3.0"]);
        check("< 2", &["1.9.9"], &["2.0.0"]);
        check(">= 1.0, < 1.4", &["1.0.0", "1.3.9"], &["0.9.0", "1.4.0"]);
        check("^0.3.1", &["0.3.1", "0.3.9"], &["0.3.0", "0.4.0"]);
        check("^1.2", &["1.2.0", "1.9.0"], &["2.0.0", "1.1.9"]);
        check("0.5", &["0.5.7"], &["0.6.0"]);
        check("^0.0.3", &["0.0.3"], &["0.0.4"]);
        check("~1.2.3", &["1.2.9"], &["1.3.0", "1.2.2"]);
        check("=0.2.0", &["0.2.0"], &["0.2.1"]);
        check("= 0.2", &["0.2.5"], &["0.3.0"]);
        check("*", &["0.0.1", "9.9.9"], &[]);
        check(">= 1.0.0-beta.2", &["1.0.0-beta.10", "1.0.0-rc.1", "1.0.0"], &["1.0.0-beta.1", "1.0.0-alpha"]);
    }

    #[test]
    fn what_is_no_version_is_an_error() {
        for text in ["", "1.2", "1.2.3.4", "a.b.c"] {
            assert!(Version::parse(text).is_err(), "{text}");
        }
        assert!(Requirement::parse("> one").is_err());
    }
}
