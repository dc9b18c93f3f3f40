//! Reads `data/resources.txt`, the shipped table of resources, without interpreting it.
//!
//! One line per fact, words separated by single spaces, an indented line belonging to the last `resource`:
//!
//! ```text
//! resource GROUP|- PLURAL KIND SINGULAR Namespaced|Cluster [short=A,B] [categories=A,B] [prefix=/KEY/] [shares=RESOURCE] [convoy]
//!  version VERSION FIRST-LAST on|off VERBS [deprecated=RELEASE] [removed=RELEASE] [replacement=GROUP/VERSION/KIND]
//!  readable VERSION FIRST-LAST
//!  stored RELEASE GROUP/VERSION
//!  subresource VERSION NAME FIRST-LAST VERBS [kind=KIND] [as=GROUP/VERSION] [gate=GATE]
//! ```
//!
//! `FIRST-LAST` are the releases in which a version or subresource is available; `on` or `off` says whether default
//! flags serve it. `VERBS` is a list or `*` for all eight. `stored` says from which release on objects are stored
//! how, `readable` in which releases a version can be read that is no longer served in all of them. `shares` names
//! the resource whose keys these objects are stored under. `convoy` marks our own resources.

use meta::Release;

use crate::{Verb, Verbs};

/// The shipped table.
pub(crate) const RESOURCES: &str = include_str!("../data/resources.txt");

/// One resource with the lines below it.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) singular: &'a str,
    pub(crate) namespaced: bool,
    pub(crate) short_names: Vec<&'a str>,
    pub(crate) categories: Vec<&'a str>,
    pub(crate) prefix: Option<&'a str>,
    pub(crate) shares: Option<&'a str>,
    pub(crate) convoy: bool,
    pub(crate) versions: Vec<VersionRow<'a>>,
    pub(crate) readable: Vec<(&'a str, Releases)>,
    pub(crate) stored: Vec<(Release, &'a str)>,
    pub(crate) subresources: Vec<SubresourceRow<'a>>,
}

#[derive(Debug)]
pub(crate) struct VersionRow<'a> {
    pub(crate) version: &'a str,
    pub(crate) releases: Releases,
    pub(crate) on: bool,
    pub(crate) verbs: Verbs,
    pub(crate) deprecated: Option<Release>,
    pub(crate) removed: Option<Release>,
    pub(crate) replacement: Option<&'a str>,
}

#[derive(Debug)]
pub(crate) struct SubresourceRow<'a> {
    pub(crate) version: &'a str,
    pub(crate) name: &'a str,
    pub(crate) releases: Releases,
    pub(crate) verbs: Verbs,
    pub(crate) kind: Option<&'a str>,
    pub(crate) group_version: Option<&'a str>,
    pub(crate) gate: Option<&'a str>,
}

/// An inclusive range of releases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Releases {
    first: Release,
    last: Release,
}

impl Releases {
    pub(crate) fn contain(self, release: Release) -> bool {
        self.first <= release && release <= self.last
    }
}

/// The line that could not be read.
#[derive(Debug, thiserror::Error)]
#[error("line {0} of the table of resources cannot be read")]
pub(crate) struct TableError(usize);

/// Reads the table.
pub(crate) fn parse(text: &str) -> Result<Vec<Row<'_>>, TableError> {
    let mut rows: Vec<Row<'_>> = Vec::with_capacity(96);
    for (number, line) in text.lines().enumerate() {
        if !line.is_empty() && !line.starts_with('#') {
            read_line(line, &mut rows).ok_or(TableError(number + 1))?;
        }
    }
    Ok(rows)
}

fn read_line<'a>(line: &'a str, rows: &mut Vec<Row<'a>>) -> Option<()> {
    let words = &mut line.trim_start().split(' ');
    match words.next()? {
        "resource" => rows.push(read_resource(words)?),
        "version" => rows.last_mut()?.versions.push(read_version(words)?),
        "readable" => rows.last_mut()?.readable.push((words.next()?, read_releases(words.next()?)?)),
        "stored" => rows.last_mut()?.stored.push((words.next()?.parse().ok()?, words.next()?)),
        "subresource" => rows.last_mut()?.subresources.push(read_subresource(words)?),
        _ => return None,
    }
    words.next().is_none().then_some(())
}

fn read_resource<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Row<'a>> {
    let mut row = Row {
        group: words.next().map(|it| if it == "-" { "" } else { it })?,
        resource: words.next()?,
        kind: words.next()?,
        singular: words.next()?,
        namespaced: match words.next()? {
            "Namespaced" => true,
            "Cluster" => false,
            _ => return None,
        },
        short_names: Vec::new(),
        categories: Vec::new(),
        prefix: None,
        shares: None,
        convoy: false,
        versions: Vec::new(),
        readable: Vec::new(),
        stored: Vec::new(),
        subresources: Vec::new(),
    };
    for word in words {
        match word.split_once('=') {
            Some(("short", names)) => row.short_names = names.split(',').collect(),
            Some(("categories", names)) => row.categories = names.split(',').collect(),
            Some(("prefix", prefix)) => row.prefix = Some(prefix),
            Some(("shares", other)) => row.shares = Some(other),
            None if word == "convoy" => row.convoy = true,
            _ => return None,
        }
    }
    Some(row)
}

fn read_version<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<VersionRow<'a>> {
    let mut row = VersionRow {
        version: words.next()?,
        releases: read_releases(words.next()?)?,
        on: match words.next()? {
            "on" => true,
            "off" => false,
            _ => return None,
        },
        verbs: read_verbs(words.next()?)?,
        deprecated: None,
        removed: None,
        replacement: None,
    };
    for word in words {
        match word.split_once('=')? {
            ("deprecated", release) => row.deprecated = Some(release.parse().ok()?),
            ("removed", release) => row.removed = Some(release.parse().ok()?),
            ("replacement", kind) => row.replacement = Some(kind),
            _ => return None,
        }
    }
    Some(row)
}

fn read_subresource<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<SubresourceRow<'a>> {
    let mut row = SubresourceRow {
        version: words.next()?,
        name: words.next()?,
        releases: read_releases(words.next()?)?,
        verbs: read_verbs(words.next()?)?,
        kind: None,
        group_version: None,
        gate: None,
    };
    for word in words {
        match word.split_once('=')? {
            ("kind", kind) => row.kind = Some(kind),
            ("as", group_version) => row.group_version = Some(group_version),
            ("gate", gate) => row.gate = Some(gate),
            _ => return None,
        }
    }
    Some(row)
}

fn read_releases(word: &str) -> Option<Releases> {
    let (first, last) = word.split_once('-')?;
    Some(Releases { first: first.parse().ok()?, last: last.parse().ok()? })
}

fn read_verbs(word: &str) -> Option<Verbs> {
    if word == "*" { Some(Verbs::ALL) } else { word.split(',').map(Verb::parse).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Gate;

    #[test]
    fn the_shipped_table_reads_and_names_only_known_gates() {
        let rows = parse(RESOURCES).unwrap();
        assert_eq!(rows.len(), 82);
        for gate in rows.iter().flat_map(|row| &row.subresources).filter_map(|it| it.gate) {
            assert!(Gate::parse(gate).is_some(), "{gate}");
        }
    }

    #[test]
    fn a_line_that_is_not_understood_is_named() {
        for text in [
            "resource - pods Pod pod Namespaced\n version v1 1.30-1.36 maybe *",
            "resource - pods Pod pod Namespaced\n version v1 1.30 on *",
            "resource - pods Pod pod Namespaced\n version v1 1.30-1.36 on fly",
            "resource - pods Pod pod Namespaced\n stored 1.30 v1 v2",
            "# a comment\nresource - pods Pod pod Everywhere",
            "\n version v1 1.30-1.36 on *",
        ] {
            assert_eq!(
                parse(text).unwrap_err().to_string(),
                "line 2 of the table of resources cannot be read"
            );
        }
    }
}
