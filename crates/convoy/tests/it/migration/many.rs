//! T10: many objects are migrated by a process, in memory that does not grow with their number.
//!
//! Short in CI; `cargo xtask soak migration-many` takes 100,000. A million is a matter of minutes as well (`--rounds`).

use serde_json::json;
use testkit::{
    Convoy, Options,
    etcd::{self, Etcd},
    parcels, tools,
};

use crate::fixture::BINARY;

/// What a migration may need on top of what the server has in memory anyway.
const ROOM_KIB: u64 = 100 * 1_024;
/// An estimate is judged where a migration takes so long that one can be made.
const LONG: f64 = 5.0;

#[tokio::test]
async fn on_the_embedded_store() {
    migrate(Options::embedded(BINARY)).await;
}

#[tokio::test]
async fn on_etcd() {
    if etcd::is_missing() {
        return;
    }
    // What many objects were before they were rewritten is there, too, until it is compacted.
    let quota = "--quota-backend-bytes=8589934592";
    let etcd = Etcd::start_with(None, &[quota]).await.unwrap();
    migrate(Options::etcd(BINARY, &etcd.url(), "/registry")).await;
}

async fn migrate(options: Options) {
    let n = u64::try_from(tools::rounds(2_000)).unwrap();
    let convoy = Convoy::start(options.flag("--controllers=*,-storage-version-trigger")).await.unwrap();
    parcels::fill(&convoy, n).await.unwrap();
    let before = convoy.resident_kib().unwrap();
    parcels::flip(&convoy, "v2").await.unwrap();
    let took = parcels::migrate(&convoy, json!({"convoy.dev/rate": "0"})).await.unwrap();
    let peak = convoy.peak_kib().unwrap();
    tools::report(&format!(
        "{n} objects in {:.1} s, {:.1} s with verification; {} MB before, {} MB at the peak; estimate off by {:?}",
        took.rewriting.as_secs_f64(),
        took.all.as_secs_f64(),
        before / 1_024,
        peak / 1_024,
        took.estimate_error
    ));
    assert!(peak <= before + ROOM_KIB, "{before} KiB before, {peak} KiB at the peak");
    if tools::is_soak() && took.rewriting.as_secs_f64() >= LONG {
        let error = took.estimate_error.expect("a migration that takes long must have an estimate after 5 %");
        assert!(error <= 0.2, "the estimate was {:.0} % off", 100.0 * error);
    }
    let census = convoy.admin().get("/convoy/census").await.unwrap().json().unwrap();
    let resources = census["resources"].as_array().unwrap();
    let counted = resources.iter().find(|it| it["resource"] == "parcels.bench.example").unwrap();
    assert_eq!(counted["versions"], json!({"bench.example/v2": n}));
    assert_eq!(counted["storedVersions"], json!(["v2"]));
}
