//! Stores that earlier builds wrote are opened, and nothing in them is lost.
//!
//! The fixtures are described in `crates/testkit/fixtures/README.md`.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use flate2::read::GzDecoder;
use serde_json::Value;
use store::{Key, Leases, SharedStore, Store, SystemClock, Txn};
use store_etcd::{EtcdConfig, EtcdStore};
use testkit::etcd::{self, Etcd};
use testkit::{Client, Convoy, Options};

use crate::fixture::BINARY;

/// How long the records of the crashed servers live.
const MEMBERS: Duration = Duration::from_secs(5);

/// How long everything else lives that hangs on a lease: longer than this test.
const EVENTS: Duration = Duration::from_secs(600);

const GROUP: &str = "/apis/fixture.example.com/v1/namespaces/tenant";

fn unpacked(file: &str) -> Result<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/fixtures/0.1.0");
    let mut bytes = Vec::new();
    GzDecoder::new(std::fs::File::open(folder.join(file))?).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_store_of_0_1_0_is_opened() -> Result<()> {
    let home = tempfile::tempdir()?;
    let directory: PathBuf = home.path().join("data");
    std::fs::create_dir(&directory)?;
    std::fs::write(directory.join("store.redb"), unpacked("store.redb.gz")?)?;
    let options = Options::embedded(BINARY).data_dir(&directory).flag("--emulated-version=1.35");
    let convoy = Convoy::start(options).await?;
    everything_is_there(&convoy.admin()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_etcd_of_0_1_0_is_opened() -> Result<()> {
    if etcd::is_missing() {
        return Ok(());
    }
    let etcd = Etcd::start().await?;
    let config = EtcdConfig::new(vec![etcd.url()], SystemClock::shared());
    let store = SharedStore::new(EtcdStore::connect(config).await?);
    let (members, events) = (store.grant(MEMBERS).await?, store.grant(EVENTS).await?);
    let text = String::from_utf8(unpacked("etcd.jsonl.gz")?)?;
    let entries: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    // Records name revisions of that etcd; none may lie in the future of this one.
    let newest = entries.iter().filter_map(|it| it["modRevision"].as_u64()).max().unwrap_or_default();
    while store.commit(Txn::new().put(&Key::new("/elsewhere"), "".into())).await?.get() < newest {}
    for entry in entries {
        let key = Key::new(entry["key"].as_str().context("a key")?);
        let value = bytes::Bytes::from(entry["value"].as_str().context("a value")?.to_owned());
        let is_leased = entry["leased"] == true;
        let txn = match is_leased {
            true if key.as_str().starts_with("/convoy/") => Txn::new().put_leased(&key, value, members),
            true => Txn::new().put_leased(&key, value, events),
            false => Txn::new().put(&key, value),
        };
        store.commit(txn).await?;
    }
    let options = Options::etcd(BINARY, &etcd.url(), "/registry").flag("--emulated-version=1.35");
    let convoy = Convoy::start(options).await?;
    everything_is_there(&convoy.admin()).await?;
    for name in ["first", "second"] {
        loses_its_lease(&store, &format!("/registry/fixture.example.com/events/tenant/{name}")).await?;
    }
    let event = store.get(&Key::new("/registry/events/tenant/e")).await?.context("the Event is gone")?;
    assert!(event.lease.is_some(), "Events expire");
    Ok(())
}

/// That build let custom resources expire whose plural is `events`. They are rewritten without a lease.
async fn loses_its_lease(store: &SharedStore, key: &str) -> Result<()> {
    for _ in 0..300 {
        let entry = store.get(&Key::new(key)).await?.with_context(|| format!("{key} is gone"))?;
        if entry.lease.is_none() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("{key} still hangs on a lease")
}

async fn everything_is_there(admin: &Client) -> Result<()> {
    assert_eq!(names(admin, &format!("{GROUP}/widgets")).await?.len(), 50);
    assert_eq!(names(admin, &format!("{GROUP}/gadgets?fieldSelector=spec.color%3Dred")).await?.len(), 2);
    assert_eq!(names(admin, &format!("{GROUP}/events")).await?, ["first", "second"]);
    let others = [
        "/api/v1/namespaces/tenant/configmaps/settings",
        "/api/v1/namespaces/tenant/secrets/s",
        "/api/v1/namespaces/tenant/serviceaccounts/robot",
        "/apis/apps/v1/namespaces/tenant/deployments/web",
        "/apis/resource.k8s.io/v1/deviceclasses/gpu",
    ];
    for path in others {
        admin.get(path).await?.expect(200)?;
    }
    let held = admin.get("/apis/internal.apiserver.k8s.io/v1alpha1/storageversions").await?.expect(200)?;
    assert!(held["items"].as_array().is_some_and(|it| it.len() > 50), "the fences are read");
    the_migration_goes_on(admin).await
}

/// The migration that was cut off is carried on by whoever comes next, and ends.
async fn the_migration_goes_on(admin: &Client) -> Result<()> {
    let path = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations";
    let name = names(admin, path).await?.pop().context("the migration is gone")?;
    let faster = serde_json::json!({"metadata": {"annotations": {"convoy.dev/rate": "0"}}});
    admin.patch(&format!("{path}/{name}"), "application/merge-patch+json", &faster).await?.expect(200)?;
    for _ in 0..600 {
        let list = admin.get(path).await?.expect(200)?;
        let all = list["items"].as_array().cloned().unwrap_or_default();
        let is_done = |it: &Value| {
            let conditions = it["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|it| it["type"] == "Succeeded" && it["status"] == "True")
        };
        if all.iter().any(is_done) {
            let definition =
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.fixture.example.com";
            let crd = admin.get(definition).await?.expect(200)?;
            assert_eq!(crd["status"]["storedVersions"], serde_json::json!(["v1"]));
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    bail!("the migration does not end: {}", admin.get(path).await?.text())
}

async fn names(admin: &Client, path: &str) -> Result<Vec<String>> {
    let list = admin.get(path).await?.expect(200)?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    Ok(items.iter().filter_map(|it| it["metadata"]["name"].as_str().map(str::to_owned)).collect())
}
