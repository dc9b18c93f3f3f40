//! What to do about one resource: which versions its objects may be stored in, and whether they must be migrated. No
//! clock, no I/O.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use meta::time;
use serde::{Deserialize, Serialize};

use crate::migration::Proof;
use crate::migration::engine::Agreement;

/// Stands for versions that nobody knows.
pub(super) const UNKNOWN: &str = "Unknown";

/// A state that nobody has looked after for so long says nothing any more.
const STALE: SignedDuration = SignedDuration::from_mins(10);
/// The heartbeat is written so often.
const HEARTBEAT: SignedDuration = SignedDuration::from_mins(5);
/// After a failure people need time to read about it, and to do something.
const TRY_AGAIN: SignedDuration = SignedDuration::from_mins(30);

/// The status of a StorageState.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct State {
    pub(super) persisted_storage_version_hashes: Vec<String>,
    pub(super) current_storage_version_hash: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_heartbeat_time: Option<String>,
    /// The same as the hashes, for people.
    pub(super) persisted_versions: Vec<String>,
    pub(super) current_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) evidence: Option<Proof>,
}

/// A migration of the resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) name: String,
    /// By the trigger.
    pub(super) is_own: bool,
    pub(super) is_ended: bool,
    pub(super) has_succeeded: bool,
    /// It ended because servers did not agree any more: that is over by now, and was nobody's decision.
    pub(super) is_interrupted: bool,
    /// About every object.
    pub(super) is_whole: bool,
    /// What it stored objects in.
    pub(super) version: String,
    /// The agreement under which it did.
    pub(super) epoch: i64,
    pub(super) completed: Option<Timestamp>,
    pub(super) evidence: Option<Proof>,
}

/// What a decision is made from.
#[derive(Clone, Debug)]
pub(super) struct Facts<'a> {
    /// `None` if there is no StorageState.
    pub(super) state: Option<&'a State>,
    pub(super) agreement: &'a Agreement,
    /// What servers write now, and what a definition lists where objects cannot be counted.
    pub(super) written: &'a [String],
    /// What is stored, where that can be counted.
    pub(super) stored: Option<&'a BTreeMap<String, u64>>,
    pub(super) migrations: &'a [Made],
    /// This process has not looked at the resource before.
    pub(super) is_first: bool,
    pub(super) now: Timestamp,
}

/// What to do. Each part may be nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Migrations of ours to delete.
    pub(super) delete: Vec<String>,
    /// Make a migration.
    pub(super) create: bool,
    /// The versions to write into the state.
    pub(super) state: Option<Known>,
}

/// What a state is to say, before versions are turned into hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) current: String,
    pub(super) persisted: Vec<String>,
    pub(super) evidence: Option<Proof>,
}

pub(super) fn plan(facts: &Facts<'_>) -> Plan {
    let Facts { agreement, migrations, now, .. } = *facts;
    // Where nothing is counted, what happened while nobody looked is not known.
    let is_unwatched = facts.is_first || facts.stored.is_none();
    let state = facts.state.filter(|it| !(is_unwatched && is_stale(it, now)));
    match agreement {
        Agreement::Absent => Plan::default(),
        Agreement::Open(_) | Agreement::Following(_) => {
            let unfinished = migrations.iter().filter(|it| it.is_own && !it.is_ended);
            let known = Known {
                current: UNKNOWN.to_owned(),
                persisted: persisted(facts, state, None),
                evidence: None,
            };
            Plan {
                delete: unfinished.map(|it| it.name.clone()).collect(),
                create: false,
                state: due(facts.state, known, now),
            }
        }
        Agreement::Agreed { version, epoch } => agreed(facts, state, version, *epoch),
    }
}

/// All servers write `version`.
fn agreed(facts: &Facts<'_>, state: Option<&State>, version: &str, epoch: i64) -> Plan {
    let Facts { migrations, now, stored, .. } = *facts;
    let has_changed = state.is_none_or(|it| it.current_version != version);
    let proof = proven(facts, state, version, epoch);
    if let Some(evidence) = proof {
        let known = Known {
            current: version.to_owned(),
            persisted: vec![version.to_owned()],
            evidence: Some(evidence),
        };
        return Plan { state: due(facts.state, known, now), ..Plan::default() };
    }
    let known = Known {
        current: version.to_owned(),
        persisted: persisted(facts, state, Some(version)),
        evidence: None,
    };
    let is_counted = stored.is_some();
    let pending = migrations.iter().any(|it| !it.is_ended && (is_counted || !has_changed || !it.is_own));
    // Whoever cancelled one, be it their own, does not want to see another one at once.
    let beat = state.and_then(|it| it.last_heartbeat_time.as_deref()).and_then(time::parse_time);
    let failed_lately = migrations.iter().any(|it| {
        let is_recent = it.completed.is_some_and(|it| it + TRY_AGAIN > now);
        // One that ended before the version changed says nothing about the change.
        let is_about_this = !has_changed || it.completed.zip(beat).is_some_and(|(end, beat)| end > beat);
        let has_failed = it.is_ended && !it.has_succeeded && !it.is_interrupted;
        it.is_whole && has_failed && is_recent && is_about_this && it.version == version
    });
    let create = !pending && !failed_lately;
    let outdated = |it: &&Made| it.is_own && (it.is_ended || !is_counted);
    let delete = if create {
        migrations.iter().filter(outdated).map(|it| it.name.clone()).collect()
    } else {
        Vec::new()
    };
    Plan { delete, create, state: due(facts.state, known, now) }
}

/// Why it is certain that everything is stored in `version`.
fn proven(facts: &Facts<'_>, state: Option<&State>, version: &str, epoch: i64) -> Option<Proof> {
    let now = time::format_time(facts.now);
    if let Some(stored) = facts.stored {
        // Versions that are only listed are here, too: that nothing is stored in them is yet to be proven.
        let is_other = stored.keys().any(|it| it != version);
        let objects = stored.values().sum();
        return (!is_other).then(|| Proof {
            kind: "StoreCounter".to_owned(),
            time: now,
            objects,
            message: "nothing is stored in another version".to_owned(),
        });
    }
    let state = state.filter(|it| it.current_version == version)?;
    // Listed beside it: somebody turned there and back while nobody looked, or the evidence was not good enough to
    // narrow the list.
    let is_listed = facts.written.iter().any(|it| it != version);
    if state.persisted_versions == [version] && !is_listed {
        return state.evidence.clone().or_else(|| Some(Proof::default()));
    }
    // Only what ended after the last change says something about it. A list that has changed is another epoch.
    let is_done = |it: &&Made| it.has_succeeded && it.is_whole && it.version == version;
    let done = facts.migrations.iter().filter(is_done).find(|it| !is_listed || it.epoch == epoch);
    done.map(|it| it.evidence.clone().unwrap_or_default())
}

/// The versions in which objects may be stored, each once, in the order in which they came.
fn persisted(facts: &Facts<'_>, state: Option<&State>, current: Option<&str>) -> Vec<String> {
    let mut versions: Vec<String> = match (facts.stored, state) {
        // Also those that are only listed: the next object may be stored in one of them.
        (Some(stored), _) if current.is_some() => stored.keys().cloned().collect(),
        (Some(stored), state) => {
            let before = state.map(|it| it.persisted_versions.clone()).unwrap_or_default();
            before.into_iter().chain(stored.keys().cloned()).collect()
        }
        (None, Some(state)) => state.persisted_versions.clone(),
        (None, None) => vec![UNKNOWN.to_owned()],
    };
    versions.extend(facts.written.iter().cloned());
    versions.extend(current.map(str::to_owned));
    let mut seen = Vec::new();
    for version in versions {
        if !seen.contains(&version) {
            seen.push(version);
        }
    }
    seen
}

/// What to write, if it says anything new, or if its heartbeat is due.
fn due(state: Option<&State>, known: Known, now: Timestamp) -> Option<Known> {
    let is_same = state.is_some_and(|it| {
        let beat = it.last_heartbeat_time.as_deref().and_then(time::parse_time);
        it.current_version == known.current
            && it.persisted_versions == known.persisted
            && beat.is_some_and(|it| it + HEARTBEAT > now)
    });
    (!is_same).then_some(known)
}

fn is_stale(state: &State, now: Timestamp) -> bool {
    let beat = state.last_heartbeat_time.as_deref().and_then(time::parse_time);
    beat.is_none_or(|it| it + STALE < now)
}

#[cfg(test)]
mod tests;
