//! Many objects of a custom resource, and migrations of them: what benchmarks measure and soaks watch over.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use load::closed_loop::{self, Subject};
use load::wire::Target;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::bench::{float, prepare};
use crate::convoy::Convoy;

const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/parcels.bench.example";
const MIGRATIONS: &str = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations";
/// The objects.
pub const PARCELS: Subject = Subject {
    path: "/apis/bench.example/v1/namespaces/bench/parcels",
    api_version: "bench.example/v1",
    kind: "Parcel",
};
/// A migration takes minutes at most.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// What a migration took.
pub struct Took {
    pub all: Duration,
    pub rewriting: Duration,
    /// How far the first estimate after 5 % was from the truth, if there was one.
    pub estimate_error: Option<f64>,
}

/// Defines the resource in two versions and makes this many objects of about 1 KB, stored as `v1`.
pub async fn fill(convoy: &Convoy, objects: u64) -> Result<Target> {
    let target = prepare(convoy).await?;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}});
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "parcels.bench.example"},
        "spec": {"group": "bench.example", "scope": "Namespaced",
            "names": {"plural": "parcels", "kind": "Parcel"},
            "versions": [version("v1", true), version("v2", false)]}});
    let admin = convoy.admin();
    let (folder, _) = CRD.rsplit_once('/').context("a path")?;
    admin.post(folder, &crd).await?.expect(201)?;
    let deadline = Instant::now() + Duration::from_secs(30);
    while admin.get(&format!("{}?limit=1", PARCELS.path)).await?.expect(200).is_err() {
        ensure!(Instant::now() < deadline, "the definition is not established");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    closed_loop::send_all(&target, 16, objects, PARCELS.creates(&target, "p")).await?;
    Ok(target)
}

/// Makes this version the one that is stored.
pub async fn flip(convoy: &Convoy, storage: &str) -> Result<()> {
    let admin = convoy.admin();
    for _ in 0..20 {
        let mut crd = admin.get(CRD).await?.expect(200)?;
        for version in crd["spec"]["versions"].as_array_mut().context("versions")? {
            version["storage"] = json!(version["name"] == storage);
        }
        if admin.put(CRD, &crd).await?.expect(200).is_ok() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    bail!("the definition cannot be turned to {storage}")
}

/// Asks for a migration and returns its name.
pub async fn ask(convoy: &Convoy, annotations: Value) -> Result<String> {
    let migration = json!({"apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageVersionMigration",
        "metadata": {"generateName": "bench-", "annotations": annotations},
        "spec": {"resource": {"group": "bench.example", "version": "v1", "resource": "parcels"}}});
    let made = convoy.admin().post(MIGRATIONS, &migration).await?.expect(201)?;
    Ok(made["metadata"]["name"].as_str().context("a name")?.to_owned())
}

/// Asks for a migration and waits for its end.
pub async fn migrate(convoy: &Convoy, annotations: Value) -> Result<Took> {
    let begin = Instant::now();
    let path = format!("{MIGRATIONS}/{}", ask(convoy, annotations).await?);
    let (mut rewriting, mut first_estimate) = (None, None);
    loop {
        let object = convoy.admin().get(&path).await?.expect(200)?;
        let status = &object["status"];
        let progress = &status["progress"];
        let passed = begin.elapsed();
        match status["phase"].as_str().unwrap_or_default() {
            "Succeeded" => {
                let rewriting = rewriting.unwrap_or(passed);
                let error = first_estimate
                    .map(|it: f64| (it - rewriting.as_secs_f64()).abs() / rewriting.as_secs_f64());
                return Ok(Took { all: passed, rewriting, estimate_error: error });
            }
            "Failed" | "Aborted" => bail!("{status}"),
            "Running" if first_estimate.is_none() && progress["percent"].as_u64() >= Some(5) => {
                let left = float(progress["remaining"].as_u64().unwrap_or(0))
                    / float(progress["objectsPerSecond"].as_u64().unwrap_or(1).max(1));
                first_estimate = Some(passed.as_secs_f64() + left);
            }
            "Verifying" | "Pruning" if rewriting.is_none() => rewriting = Some(passed),
            _ => {}
        }
        ensure!(passed < PATIENCE, "{status}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The status of the first migration there is.
pub async fn last(convoy: &Convoy) -> Result<Value> {
    let list = convoy.admin().get(MIGRATIONS).await?.expect(200)?;
    Ok(list["items"][0]["status"].clone())
}

/// Lets a migration rest. Returns how many objects it has rewritten.
pub async fn pause(convoy: &Convoy, name: &str) -> Result<u64> {
    annotate(convoy, name, json!({"convoy.dev/paused": "true"})).await?;
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let object = convoy.admin().get(&format!("{MIGRATIONS}/{name}")).await?.expect(200)?;
        let status = &object["status"];
        if status["reason"] == "Paused" {
            return Ok(status["progress"]["migrated"].as_u64().unwrap_or(0));
        }
        ensure!(Instant::now() < deadline, "it does not rest: {status}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Lets it go on.
pub async fn resume(convoy: &Convoy, name: &str) -> Result<()> {
    annotate(convoy, name, json!({"convoy.dev/paused": Value::Null})).await
}

/// Calls a migration off.
pub async fn cancel(convoy: &Convoy, name: &str) -> Result<()> {
    annotate(convoy, name, json!({"convoy.dev/cancel": "true"})).await
}

async fn annotate(convoy: &Convoy, name: &str, annotations: Value) -> Result<()> {
    let patch = json!({"metadata": {"annotations": annotations}});
    let path = format!("{MIGRATIONS}/{name}");
    convoy.admin().patch(&path, "application/merge-patch+json", &patch).await?.expect(200)?;
    Ok(())
}
