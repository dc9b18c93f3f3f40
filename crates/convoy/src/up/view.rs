//! What a rollout shows while it goes on: what is held back and by whom, what migrates.
//!
//! Pure: it says what has changed between two looks. Deliberately not here: looking (`roll`).

use std::collections::BTreeMap;

use fleet::Identity;
use serde_json::Value;
use server::census::CensusView;
use station::view::{ResourceView, View};

/// So many resources are named in one line.
const MAX_NAMED: usize = 6;

/// What was seen in one look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Look {
    /// Resources that are not written as every server would like to, and who is in the way.
    held: BTreeMap<String, String>,
    /// Migrations by name.
    migrations: BTreeMap<String, Migration>,
    /// Resources with objects in a version that is not written any more.
    old: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Migration {
    resource: String,
    phase: String,
}

impl Look {
    /// `names` are the servers by identity.
    pub(super) fn of(
        view: &View,
        migrations: &Value,
        census: &CensusView,
        names: &BTreeMap<Identity, String>,
    ) -> Self {
        let held = view.resources.iter().filter(|it| is_held(it));
        let migrations = migrations["items"].as_array().into_iter().flatten();
        let old = census.resources.iter().filter(|it| {
            let is_old = |version: &String| it.written.as_ref().is_some_and(|written| written != version);
            it.versions.keys().any(is_old)
        });
        Self {
            held: held.map(|it| (it.resource.clone(), by_whom(it, names))).collect(),
            migrations: migrations.filter_map(migration).collect(),
            old: old.map(|it| it.resource.clone()).collect(),
        }
    }

    /// Whether everything is agreed on and migrated.
    pub(super) fn is_settled(&self) -> bool {
        self.held.is_empty() && self.old.is_empty() && self.migrations.values().all(|it| it.has_ended())
    }

    /// What is not, in one line.
    pub(super) fn unsettled(&self) -> String {
        let open = self.migrations.values().filter(|it| !it.has_ended());
        let open: Vec<&str> = open.map(|it| it.resource.as_str()).collect();
        let mut parts = self.held_lines();
        if !open.is_empty() {
            parts.push(format!("being migrated: {}", few(&open)));
        }
        let old: Vec<&str> = self.old.iter().map(String::as_str).collect();
        if !old.is_empty() {
            parts.push(format!("objects in an old version: {}", few(&old)));
        }
        parts.join("; ")
    }

    /// What is worth telling after `before`.
    pub(super) fn news(&self, before: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.held != before.held {
            lines.extend(self.held_lines());
            if self.held.is_empty() {
                lines.push("nothing is held back any more".to_owned());
            }
        }
        for (name, now) in &self.migrations {
            if before.migrations.get(name) != Some(now) {
                lines.push(format!("migration of {}: {}", now.resource, now.phase));
            }
        }
        lines
    }

    /// A line for each who is in the way.
    fn held_lines(&self) -> Vec<String> {
        let mut by: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (resource, whom) in &self.held {
            by.entry(whom).or_default().push(resource);
        }
        by.into_iter().map(|(whom, resources)| format!("held back: {} ({whom})", few(&resources))).collect()
    }
}

impl Migration {
    fn has_ended(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed" | "Aborted")
    }
}

/// Whether a resource is not written as every server would like to.
fn is_held(resource: &ResourceView) -> bool {
    // What nobody serves any more is nobody's to agree on.
    let mut wishes = resource.servers.iter().map(|it| &it.preferred_version);
    resource.is_disputed() || wishes.any(|wish| Some(wish) != resource.selected_version.as_ref())
}

/// Who is in the way, as people call them.
fn by_whom(resource: &ResourceView, names: &BTreeMap<Identity, String>) -> String {
    let text = match (resource.hold.as_str(), resource.waiting.as_str()) {
        ("", "") if resource.is_disputed() => resource.message.clone(),
        ("", "") => {
            let differ = resource
                .servers
                .iter()
                .filter(|it| Some(&it.preferred_version) != resource.selected_version.as_ref());
            let differ: Vec<&str> = differ.map(|it| it.identity.as_str()).collect();
            format!("until {} would write the same as the others", differ.join(", "))
        }
        ("", waiting) => format!("waiting {waiting}"),
        (hold, _) => format!("by {hold}"),
    };
    names.iter().fold(text, |text, (identity, name)| text.replace(identity.as_str(), name))
}

fn migration(object: &Value) -> Option<(String, Migration)> {
    let (resource, group) = (&object["spec"]["resource"]["resource"], &object["spec"]["resource"]["group"]);
    let resource = match group.as_str().unwrap_or_default() {
        "" => resource.as_str()?.to_owned(),
        group => format!("{}.{group}", resource.as_str()?),
    };
    let phase = object["status"]["phase"].as_str().unwrap_or("Pending").to_owned();
    Some((object["metadata"]["name"].as_str()?.to_owned(), Migration { resource, phase }))
}

/// `a, b and 3 more`
fn few(names: &[&str]) -> String {
    let (first, rest) = names.split_at(names.len().min(MAX_NAMED));
    let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    format!("{}{more}", first.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn look(waiting: &str, hold: &str, phase: &str) -> Look {
        let identity = |n: usize| Identity::of_host(&format!("convoy-{n}"));
        let entry = |n: usize, preferred: &str| {
            json!({"identity": identity(n), "encodingVersion": "v1beta1", "preferredVersion": preferred,
                "decodableVersions": ["v1beta1"], "servedVersions": ["v1beta1"]})
        };
        let view = json!({"members": [], "refused": [], "resources": [
            {"resource": "deviceclasses.resource.k8s.io", "custom": false, "selectedVersion": "v1beta1",
                "commonEncodingVersion": "v1beta1", "epoch": 1, "reason": "", "message": "",
                "waiting": waiting, "hold": hold, "servers": [entry(0, "v1"), entry(1, "v1beta1")]},
            {"resource": "pods", "custom": false, "selectedVersion": "v1", "commonEncodingVersion": "v1",
                "epoch": 1, "reason": "", "message": "", "servers": [entry(0, "v1")]}]});
        let migrations = json!({"items": [{"metadata": {"name": "a"}, "status": {"phase": phase},
            "spec": {"resource": {"group": "resource.k8s.io", "resource": "deviceclasses"}}}]});
        let names = (0..2).map(|n| (identity(n), format!("convoy-{n}"))).collect();
        let view = serde_json::from_value(view).unwrap();
        Look::of(&view, &migrations, &CensusView::default(), &names)
    }

    #[test]
    fn it_says_what_is_held_back_by_whom_and_what_migrates() {
        let waiting = format!("for the votes of {}", Identity::of_host("convoy-1"));
        let seen = look(&waiting, "", "Running");
        assert_eq!(
            seen.news(&Look::default()),
            [
                "held back: deviceclasses.resource.k8s.io (waiting for the votes of convoy-1)",
                "migration of deviceclasses.resource.k8s.io: Running",
            ]
        );
        assert!(seen.news(&seen).is_empty() && !seen.is_settled());
        let held = look("", "ann: wait for Monday", "Succeeded");
        assert_eq!(
            held.news(&seen),
            [
                "held back: deviceclasses.resource.k8s.io (by ann: wait for Monday)",
                "migration of deviceclasses.resource.k8s.io: Succeeded",
            ]
        );
        let nobody = look("", "", "Succeeded");
        assert_eq!(
            nobody.unsettled(),
            "held back: deviceclasses.resource.k8s.io (until convoy-0 would write the same as the others)"
        );
        assert_eq!(Look::default().news(&seen), ["nothing is held back any more"]);
    }

    #[test]
    fn objects_in_an_old_version_are_waited_for() {
        let census = json!({"evidence": "", "resources": [{"resource": "pods", "custom": false, "objects": 2,
            "versions": {"v1": 1, "v0": 1}, "written": "v1"}]});
        let census = serde_json::from_value(census).unwrap();
        let view = json!({"members": [], "refused": [], "resources": []});
        let look = Look::of(&serde_json::from_value(view).unwrap(), &json!({}), &census, &BTreeMap::new());
        assert!(!look.is_settled());
        assert_eq!(look.unsettled(), "objects in an old version: pods");
    }
}
