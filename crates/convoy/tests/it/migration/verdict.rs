//! Whether servers of another release could take part: `convoy check --to`, for every pair of releases.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use catalog::{Catalog, FeatureGates, RuntimeConfig};
use convoy::Release;
use serde_json::{Value, json};
use store::{Key, Store, Txn};

use super::widgets::{MIGRATIONS, ask_for_resource, stored_below, succeeded};
use crate::{
    fixture::BINARY,
    fleet::{
        ground::{CLASSES, CLASSES_RECORD, Ground, MAPS, NEW, OLD, Ship, class, map},
        on_both_stores,
    },
};

on_both_stores!(
    /// T17, B5, B20.
    the_verdict_is_that_of_the_catalog_for_every_pair_of_releases,
    /// T17, T20 (the verdict), B5, B20.
    what_is_stored_in_old_versions_counts_too,
);

const STORED: &str = "/registry/deviceclasses/";
const FIRST: u16 = 30;
const LAST: u16 = 36;

/// Rows are the releases that write, columns those that are to read; both from 1.30 on. What is on by default can be read
/// by all of them, or is not served by them.
const TABLE: [&str; 7] = ["yyyyyyy"; 7];

fn catalog(minor: u16) -> Catalog {
    let release = Release::v1(minor);
    Catalog::new(release, &RuntimeConfig::default(), &FeatureGates::defaults(release)).unwrap()
}

/// What a release writes, and what it can read.
type Known = BTreeMap<String, (String, BTreeSet<String>)>;

fn known(minor: u16) -> Known {
    let mut known = Known::new();
    for it in catalog(minor).definitions().iter().filter(|it| it.is_stored()) {
        let written = it.storage.as_ref().map(ToString::to_string).unwrap_or_default();
        let entry = known.entry(it.record.to_string()).or_insert_with(|| (written, BTreeSet::new()));
        entry.1.extend(it.decodable.iter().map(ToString::to_string));
    }
    known
}

/// The resources that one release writes in a version that the other one knows, but cannot read.
fn in_the_way(from: u16, to: u16) -> BTreeSet<String> {
    let (writes, reads) = (known(from), known(to));
    let is_bad = |(resource, (written, _)): &(&String, &(String, BTreeSet<String>))| {
        reads.get(*resource).is_some_and(|(_, readable)| !readable.contains(written))
    };
    writes.iter().filter(is_bad).map(|(resource, _)| resource.clone()).collect()
}

/// Whether it is safe, and what stands in the way if not.
async fn check(ship: &Ship, to: u16) -> (bool, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, ship.server.kubeconfig().unwrap()).unwrap();
    let mut command = Command::new(BINARY);
    command.args(["check", "-o", "json", "--to", &format!("1.{to}"), "--kubeconfig"]).arg(&file);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let is_safe = said["safe"] == true;
    assert_eq!(output.status.code(), Some(if is_safe { 0 } else { 3 }), "{said:#}");
    let reasons = said["reasons"].as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned());
    (is_safe, reasons.collect())
}

async fn the_verdict_is_that_of_the_catalog_for_every_pair_of_releases(ground: Ground) {
    let mut table = Vec::new();
    for from in FIRST..=LAST {
        let ground = ground.another(usize::from(from)).await;
        let ship = ground.launch_reachable("a", from, &[]).await;
        ship.expect(201, "POST", MAPS, map("m")).await;
        let mut row = String::new();
        for to in FIRST..=LAST {
            let (is_safe, reasons) = check(&ship, to).await;
            let expected = in_the_way(from, to);
            assert_eq!(is_safe, expected.is_empty(), "1.{from} to 1.{to}: {expected:?}, {reasons:#?}");
            for resource in &expected {
                let is_named = reasons.iter().any(|it| it.contains(&format!("{resource} ")));
                assert!(is_named, "1.{from} to 1.{to}: {resource} in {reasons:#?}");
            }
            row.push(if is_safe { 'y' } else { 'n' });
        }
        table.push(row);
        ship.server.stop().await;
    }
    assert_eq!(table, TABLE);
}

async fn what_is_stored_in_old_versions_counts_too(ground: Ground) {
    let old = ground.launch_reachable("a", 34, &[]).await;
    old.expect(201, "POST", CLASSES, class("c")).await;
    old.server.stop().await;
    // The servers write the new version by now; the object is as it was.
    let migrator = "storage-version-gc,storage-version-migrator";
    let new = ground.launch_working("a", 36, migrator, &[]).await;
    assert_eq!(new.common(CLASSES_RECORD).await.as_deref(), Some(NEW));
    assert_eq!(stored_below(&ground, STORED).await, [(OLD.to_owned(), 1)].into());
    for to in FIRST..=LAST {
        assert!(check(&new, to).await.0, "1.{to}");
    }
    // So is one that somebody stored long before, as 1.31 did; not every release reads it any more.
    let ancient = Key::new(format!("{STORED}ancient"));
    let mut object = class("ancient");
    object["apiVersion"] = json!("resource.k8s.io/v1alpha3");
    ground.store.commit(Txn::new().put(&ancient, object.to_string().into())).await.unwrap();
    let stored = "1 object of deviceclasses.resource.k8s.io is stored as resource.k8s.io/v1alpha3";
    for to in FIRST..=LAST {
        let (is_safe, reasons) = check(&new, to).await;
        let is_read = known(to)
            .get("deviceclasses.resource.k8s.io")
            .is_none_or(|(_, readable)| readable.contains("resource.k8s.io/v1alpha3"));
        assert_eq!(is_safe, is_read, "1.{to}: {reasons:#?}");
        assert!(is_safe || reasons.iter().any(|it| it.starts_with(stored)), "1.{to}: {reasons:#?}");
    }
    assert!(!check(&new, LAST).await.0);
    ground.store.commit(Txn::new().delete(&ancient)).await.unwrap();
    let classes = ("resource.k8s.io", "deviceclasses");
    succeeded(&new, &ask_for_resource(&new, MIGRATIONS, "m", classes, json!({})).await).await;
    assert_eq!(stored_below(&ground, STORED).await, [(NEW.to_owned(), 1)].into());
    for to in FIRST..=LAST {
        assert!(check(&new, to).await.0, "1.{to}");
    }
}
