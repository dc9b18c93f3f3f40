//! The shapes that commands print are those of docs/api-fields.md, field by field.

use std::collections::BTreeSet;

use serde_json::Value;
use server::census::{CensusView, ResourceCensus};
use station::view::{ClusterView, EntryView, MemberView, RefusedView, ResourceView, ServerView, View};

const PAGE: &str = include_str!("../../../docs/api-fields.md");

/// Fields whose keys are data, or stand elsewhere on the page.
const MAPS: [&str; 3] = ["resources[].versions", "unknown", "migrations[].status"];

/// The fields of a table.
fn documented(name: &str) -> BTreeSet<String> {
    let heading = format!("| field of `{name}` |");
    let rows = PAGE.lines().skip_while(|it| !it.starts_with(&heading)).skip(2);
    let rows = rows.take_while(|it| it.starts_with('|'));
    rows.filter_map(|it| it.split('`').nth(1)).map(str::to_owned).collect()
}

/// The fields of a document.
fn fields(document: &Value, at: &str, found: &mut BTreeSet<String>) {
    match document {
        Value::Object(members) if !MAPS.contains(&at) => {
            for (name, value) in members {
                let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                fields(value, &path, found);
                found.insert(path);
            }
        }
        Value::Array(items) => items.iter().for_each(|it| fields(it, &format!("{at}[]"), found)),
        _ => {}
    }
}

fn check(name: &str, document: &Value) {
    let mut found = BTreeSet::new();
    fields(document, "", &mut found);
    assert_eq!(documented(name), found, "the fields of `{name}` in docs/api-fields.md, and in the code");
}

fn text() -> String {
    "x".to_owned()
}

/// Every field is named here, so that a new one does not compile before somebody has thought of the page.
fn status() -> View {
    View {
        server: Some(ServerView { identity: text(), incarnation: text(), state: text(), reason: text() }),
        cluster: Some(ClusterView { agreement: text(), guarantee: text(), protocol: 1, id: Some(text()) }),
        members: vec![MemberView {
            identity: text(),
            incarnation: text(),
            release: text(),
            emulated_version: text(),
            min_compatibility_version: text(),
            address: text(),
            since: text(),
            votes: true,
            forwards: true,
            serves_alone: vec![text()],
        }],
        refused: vec![RefusedView { identity: text(), emulated_version: text(), reason: text() }],
        resources: vec![ResourceView {
            resource: text(),
            custom: false,
            selected_version: Some(text()),
            common_encoding_version: Some(text()),
            epoch: 1,
            reason: text(),
            message: text(),
            waiting: text(),
            hold: text(),
            servers: vec![EntryView {
                identity: text(),
                encoding_version: text(),
                preferred_version: text(),
                decodable_versions: vec![text()],
                served_versions: vec![text()],
            }],
        }],
    }
}

#[test]
fn every_field_that_commands_print_is_documented() {
    check("status", &serde_json::to_value(status()).unwrap());
    let census = CensusView {
        evidence: text(),
        resources: vec![ResourceCensus {
            resource: text(),
            custom: true,
            objects: 1,
            versions: [(text(), 1)].into(),
            written: Some(text()),
            uncounted: Some(text()),
            stored_versions: vec![text()],
        }],
        unknown: [(text(), 1)].into(),
    };
    check("census", &serde_json::to_value(census).unwrap());
    check("check", &crate::check::document(&crate::check::Found { is_safe: true, reasons: Vec::new() }, "x"));
    let told = crate::migrate::Told {
        resource: text(),
        name: text(),
        action: "asked for",
        status: serde_json::json!({"phase": text()}),
    };
    check("migrate", &crate::migrate::document(&[told]));
    check(
        "agreement",
        &crate::agreement::document(&ClusterView {
            agreement: text(),
            guarantee: text(),
            protocol: 1,
            id: Some(text()),
        }),
    );
}
