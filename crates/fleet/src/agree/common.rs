//! What the entries of a record have in common, and the condition that says why.

use jiff::Timestamp;
use meta::StorageVersion;

use crate::{
    FenceRecord, Identity, MemberRecord, Members,
    fence::{Condition, Reason},
};

/// How many servers a message names.
const NAMED: usize = 10;

/// Sets common version, epoch and condition from the entries. `counted` must each have an entry before a
/// common version is established; one that takes no part prevents it.
pub(crate) fn settle_common<'a>(
    next: &mut FenceRecord,
    members: &Members,
    counted: impl Iterator<Item = &'a MemberRecord>,
    now: Timestamp,
) {
    let before = next.common.clone();
    let (common, reason, message) = judge(next, members, counted);
    let has_changed = common != before;
    if has_changed {
        next.epoch = next.epoch.next();
        next.common = common;
    }
    let since = if has_changed { now } else { next.condition.since };
    let unknown = std::mem::take(&mut next.condition.unknown);
    next.condition = Condition { reason, message, since, unknown };
}

/// Names up to ten servers.
pub(crate) fn list(servers: &[Identity]) -> String {
    let named: Vec<&str> = servers.iter().take(NAMED).map(Identity::as_str).collect();
    let text = named.join(", ");
    match servers.len().saturating_sub(NAMED) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

fn judge<'a>(
    next: &FenceRecord,
    members: &Members,
    counted: impl Iterator<Item = &'a MemberRecord>,
) -> (Option<StorageVersion>, Reason, String) {
    let (mut silent, mut aloof) = (Vec::new(), Vec::new());
    for member in counted {
        if !member.takes_part() {
            aloof.push(member.identity.clone());
        } else if next.own_entry(&member.identity, &member.incarnation).is_none() {
            silent.push(member.identity.clone());
        }
    }
    let abstains =
        |it: &&crate::Entry| !it.votes && members.get(&it.identity).is_none_or(|it| it.takes_part());
    aloof.extend(next.entries.iter().filter(abstains).map(|it| it.identity.clone()));
    let same = same_encoding(next);
    // Once established, an agreement does not end because somebody is about to report.
    let is_established = same.is_some() && next.common == same;
    match same {
        Some(version) if aloof.is_empty() && (silent.is_empty() || is_established) => {
            (Some(version), Reason::CommonEncodingVersionSet, "Common encoding version set".to_owned())
        }
        Some(_) => (None, Reason::MembersMissing, missing(&silent, &aloof)),
        None if next.entries.is_empty() => {
            (None, Reason::CommonEncodingVersionUnset, "Common encoding version unset".to_owned())
        }
        None => (None, Reason::CommonEncodingVersionUnset, differing(next)),
    }
}

/// What all entries name.
fn same_encoding(record: &FenceRecord) -> Option<StorageVersion> {
    let (first, rest) = record.entries.split_first()?;
    rest.iter().all(|it| it.encoding == first.encoding).then(|| first.encoding.clone())
}

fn missing(silent: &[Identity], aloof: &[Identity]) -> String {
    let mut parts = Vec::new();
    if !silent.is_empty() {
        parts.push(format!("not yet reported by {}", list(silent)));
    }
    if !aloof.is_empty() {
        parts.push(format!("feature gate {} is off on {}", crate::member::FEATURE, list(aloof)));
    }
    format!("Common encoding version unset: {}", parts.join("; "))
}

fn differing(record: &FenceRecord) -> String {
    let mut versions: Vec<&StorageVersion> = record.entries.iter().map(|it| &it.encoding).collect();
    versions.sort();
    versions.dedup();
    let parts: Vec<String> = versions
        .into_iter()
        .map(|version| {
            let writers = record.entries.iter().filter(|it| it.encoding == *version);
            let mut writers: Vec<Identity> = writers.map(|it| it.identity.clone()).collect();
            writers.sort();
            format!("{version} by {}", list(&writers))
        })
        .collect();
    format!("Common encoding version unset: written as {}", parts.join(", as "))
}
