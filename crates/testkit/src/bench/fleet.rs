//! What it costs that servers agree: every put on its fence, and a server that joins a large cluster.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::plan::{BUILT_IN, Plan, float, ms, prepare};
use super::table::{Table, Target as Aim};
use crate::client::Client;
use crate::convoy::{Convoy, Options};
use crate::etcd::Etcd;
use load::closed_loop;

/// The two guarantees take many short turns, and all they did counts: what else the machine does meets both alike, and
/// one bad moment is a small part of the whole.
const TURNS: u32 = 60;

const DEFINITIONS: usize = 1_000;
const DEFINITIONS_PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub(super) async fn measure(plan: &Plan, table: &mut Table) -> Result<()> {
    guarantees(plan, table, "embedded", plan.options(), plan.options()).await?;
    if plan.etcd {
        let etcd = Etcd::start().await?;
        let options = |prefix: &str| Options::etcd(&plan.convoy.to_string_lossy(), &etcd.url(), prefix);
        guarantees(plan, table, "etcd", options("/strict"), options("/loose")).await?;
        drop(etcd);
        join(plan, table).await?;
    }
    Ok(())
}

/// CREATE with the fence and without, in turns.
async fn guarantees(
    plan: &Plan,
    table: &mut Table,
    store: &str,
    strict: Options,
    loose: Options,
) -> Result<()> {
    let servers = [
        Convoy::start(strict.flag("--storage-version-guarantee=strict")).await?,
        Convoy::start(loose.flag("--storage-version-guarantee=loose")).await?,
    ];
    let mut targets = Vec::new();
    for server in &servers {
        targets.push(prepare(server).await?);
    }
    let (mut cpu, mut spent, mut done) = ([Duration::ZERO; 2], [Duration::ZERO; 2], [0_usize; 2]);
    for turn in 0..TURNS {
        // Who is first changes, so that a machine that tires favours nobody.
        let order = if turn.is_multiple_of(2) { [0, 1] } else { [1, 0] };
        for n in order {
            let before = servers[n].cpu_time()?;
            let make = BUILT_IN.creates(&targets[n], &format!("t{turn}"));
            let load = closed_loop::run(&targets[n], 16, plan.time() / 3, 201, make).await?;
            cpu[n] += servers[n].cpu_time()?.saturating_sub(before);
            spent[n] += load.elapsed;
            done[n] += load.requests;
        }
    }
    let rate = |n: usize| float(done[n]) / spent[n].as_secs_f64();
    let each = |n: usize| cpu[n].as_secs_f64() * 1e6 / float(done[n]);
    let loss = 100.0 * (rate(1) / rate(0) - 1.0);
    let note = format!(
        "CREATE, 16 connections, {TURNS} turns each: strict {:.0}/s and {:.0} us of CPU, loose {:.0}/s and {:.0} us",
        rate(0),
        each(0),
        rate(1),
        each(1)
    );
    table.add(&format!("strict over loose, {store}"), Aim::AtMost(3.0), loss, "%", note);
    Ok(())
}

/// A second server joins a cluster with many custom resources.
async fn join(plan: &Plan, table: &mut Table) -> Result<()> {
    let etcd = Etcd::start().await?;
    let certs = tempfile::tempdir()?;
    let options = |name: &str| plan.member(&etcd, certs.path(), name);
    let first = Convoy::start(options("first")).await?;
    define(&first.admin(), DEFINITIONS).await?;
    let began = Instant::now();
    let second = Convoy::start(options("second")).await?;
    let took = began.elapsed();
    let metrics = second.admin().get("/metrics").await?.text();
    let n_operations: f64 = metrics
        .lines()
        .filter(|it| it.starts_with("etcd_request_duration_seconds_count"))
        .filter_map(|it| it.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum();
    let versions = second.admin().get("/apis/internal.apiserver.k8s.io/v1alpha1/storageversions").await?;
    let n_versions = versions.json()?["items"].as_array().map_or(0, Vec::len);
    let note = format!(
        "from the start of the process to /readyz, {n_versions} resources, {n_operations:.0} store operations"
    );
    table.add(&format!("join a cluster with {DEFINITIONS} CRDs"), Aim::AtMost(2_000.0), ms(took), "ms", note);
    Ok(())
}

async fn define(client: &Client, n: usize) -> Result<()> {
    let mut work = tokio::task::JoinSet::new();
    for worker in 0..8 {
        let client = client.clone();
        work.spawn(async move {
            for number in (worker..n).step_by(8) {
                client.post(DEFINITIONS_PATH, &definition(number)).await?.expect(201)?;
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    while let Some(done) = work.join_next().await {
        done.context("a worker")??;
    }
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let list = client.get(DEFINITIONS_PATH).await?.expect(200)?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        if items.iter().filter(|it| is_established(it)).count() >= n {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "the definitions are not established");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn is_established(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|it| it["type"] == "Established" && it["status"] == "True")
}

fn definition(number: usize) -> Value {
    let plural = format!("things{number}");
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.bench.example.com")},
        "spec": {"group": "bench.example.com", "scope": "Namespaced",
            "names": {"plural": plural, "singular": format!("thing{number}"), "kind": format!("Thing{number}"),
                "listKind": format!("Thing{number}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "properties": {"spec": {"type": "object", "properties":
                    {"size": {"type": "integer"}, "colour": {"type": "string"}}}}}}}]}})
}
