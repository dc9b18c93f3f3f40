//! The columns of migrations, in both groups, and of what they leave behind. They are ours: upstream shows less.

use meta::{GroupResource, Value};
use serde_json::json;

use super::{AGE, Column, NAME, age, at, found, items, number, or_else, shown, text, wide};

pub(super) const MIGRATIONS: &[Column] = &[
    NAME,
    text("Resource", "Fully qualified resource to migrate", |it, _| json!(resource(it))),
    text("Status", "The phase of the migration, or the condition that is true.", |it, _| json!(state(it))),
    text("Progress", "How much of the resource has been looked at.", |it, _| json!(progress(it))),
    number("Remaining", "Objects that are still to be looked at.", |it, _| count(it, "remaining")),
    number("Failed", "Objects that could not be migrated.", |it, _| count(it, "failed")),
    AGE,
    wide("Version", "The version in which objects are stored after it.", |it, _| {
        at(it, &["status", "storageVersion"])
    }),
    wide("Evidence", "What proves that no object is stored in another version.", |it, _| {
        at(it, &["status", "evidence", "kind"])
    }),
    wide("Message", "Why the migration is where it is.", |it, _| at(it, &["status", "message"])),
];
pub(super) const STATES: &[Column] = &[
    NAME,
    text("Current", "The version in which objects are stored now.", |it, _| {
        json!(or_else(shown(it, &["status", "currentVersion"]).to_owned(), "<none>"))
    }),
    text("Persisted", "The versions in which objects may be stored.", |it, _| json!(persisted(it))),
    text("Heartbeat", "How long ago this was known to be true.", |it, now| {
        json!(age(shown(it, &["status", "lastHeartbeatTime"]), now))
    }),
    AGE,
];

fn resource(migration: &Value) -> String {
    let part = |field: &str| shown(migration, &["spec", "resource", field]);
    GroupResource::new(part("group"), part("resource")).to_string()
}

/// Migrations that other tools run have conditions only. Nobody has begun with one that has neither.
fn state(migration: &Value) -> &str {
    let phase = shown(migration, &["status", "phase"]);
    if !phase.is_empty() {
        return phase;
    }
    let is_true = |wanted: &&str| {
        let mut conditions = items(migration, &["status", "conditions"]).iter();
        conditions.any(|it| shown(it, &["type"]) == *wanted && shown(it, &["status"]) == "True")
    };
    // One that has ended may still be marked as running.
    ["Succeeded", "Failed", "Running"].into_iter().find(is_true).unwrap_or("Pending")
}

fn progress(migration: &Value) -> String {
    match found(migration, &["status", "progress", "percent"]).and_then(Value::as_i64) {
        Some(percent) => format!("{percent}%"),
        None => "<none>".to_owned(),
    }
}

/// Nothing rather than zero before there is something to count.
fn count(migration: &Value, field: &str) -> Value {
    found(migration, &["status", "progress", field]).cloned().unwrap_or_default()
}

fn persisted(state: &Value) -> String {
    let versions = items(state, &["status", "persistedVersions"]).iter().filter_map(Value::as_str);
    or_else(versions.collect::<Vec<_>>().join(","), "<none>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::columns::testing::expect_cells;

    fn migration(status: &Value) -> Value {
        let resource = json!({"group": "example.com", "resource": "widgets"});
        json!({"metadata": {"name": "m"}, "spec": {"resource": resource}, "status": status})
    }

    #[test]
    fn a_migration_shows_how_far_it_is() {
        let status = json!({
            "phase": "Running", "message": "3 are denied", "storageVersion": "example.com/v2",
            "progress": {"total": 100, "percent": 42, "remaining": 58, "failed": 3},
            "evidence": {"kind": "StoreScan"},
        });
        let (widgets, old) = ("widgets.example.com", "<unknown>");
        let row = json!([
            "m",
            widgets,
            "Running",
            "42%",
            58,
            3,
            old,
            "example.com/v2",
            "StoreScan",
            "3 are denied"
        ]);
        expect_cells(MIGRATIONS, &migration(&status), &row);
    }

    #[test]
    fn a_migration_that_nobody_touched_is_pending() {
        let row =
            |resource: &str| json!(["m", resource, "Pending", "<none>", null, null, "<unknown>", "", "", ""]);
        expect_cells(MIGRATIONS, &migration(&json!({})), &row("widgets.example.com"));
        let core = json!({"metadata": {"name": "m"}, "spec": {"resource": {"resource": "pods"}}});
        expect_cells(MIGRATIONS, &core, &row("pods"));
    }

    #[test]
    fn without_a_phase_conditions_tell_the_state() {
        let conditions = |kinds: &[(&str, &str)]| -> Value {
            let conditions: Vec<Value> =
                kinds.iter().map(|(kind, status)| json!({"type": kind, "status": status})).collect();
            migration(&json!({ "conditions": conditions }))
        };
        assert_eq!(state(&conditions(&[("Running", "True")])), "Running");
        assert_eq!(state(&conditions(&[("Running", "True"), ("Failed", "True")])), "Failed");
        assert_eq!(state(&conditions(&[("Running", "False"), ("Succeeded", "True")])), "Succeeded");
        assert_eq!(state(&conditions(&[("Running", "False")])), "Pending");
    }

    #[test]
    fn a_state_shows_versions_and_how_old_the_knowledge_is() {
        let status = json!({"currentVersion": "v2", "persistedVersions": ["v1", "v2"],
            "lastHeartbeatTime": "1969-12-31T23:59:00Z"});
        let state = json!({"metadata": {"name": "s"}, "status": status});
        expect_cells(STATES, &state, &json!(["s", "v2", "v1,v2", "60s", "<unknown>"]));
        let empty = json!({"metadata": {"name": "s"}});
        expect_cells(STATES, &empty, &json!(["s", "<none>", "<none>", "<unknown>", "<unknown>"]));
    }
}
