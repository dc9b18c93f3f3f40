//! How fast stored objects are rewritten in another version, and what others notice of it.
//!
//! Objects are made in one version, the definition is turned to the other one, and a migration is asked for; then back.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::time::Instant;

use super::plan::{BUILT_IN, Plan, float, mib, ms};
use super::table::{Table, Target as Aim};
use crate::convoy::{Convoy, Options};
use crate::etcd::Etcd;
use crate::parcels::{PARCELS, ask, cancel, fill, flip, last, migrate, pause, resume};
use load::closed_loop::{self, MakeRequest, always};
use load::wire::Target;

/// With a migration and without take turns: what else the machine does meets both alike.
const TURNS: usize = 7;
/// What others write meanwhile.
const WRITES_PER_SECOND: u32 = 50;

pub(super) async fn measure(plan: &Plan, table: &mut Table) -> Result<()> {
    let embedded = plan.options().flag("--controllers=*,-storage-version-trigger");
    in_store(plan, table, "embedded", 10_000.0, embedded).await?;
    if plan.etcd {
        // A million objects of 1 KB, and what they were before, are more than etcd takes by default.
        let etcd = Etcd::start_with(None, &["--quota-backend-bytes=8589934592"]).await?;
        let options = Options::etcd(&plan.convoy.to_string_lossy(), &etcd.url(), "/registry")
            .flag("--controllers=*,-storage-version-trigger");
        in_store(plan, table, "etcd", 3_000.0, options).await?;
    }
    through_the_api(plan, table).await
}

async fn in_store(plan: &Plan, table: &mut Table, store: &str, aim: f64, options: Options) -> Result<()> {
    let convoy = Convoy::start(options).await?;
    let target = fill(&convoy, plan.objects).await?;
    let before = mib(convoy.resident_kib()?);
    flip(&convoy, "v2").await?;
    let took = migrate(&convoy, json!({"convoy.dev/rate": "0"})).await?;
    let peak = mib(convoy.peak_kib()?);
    let per_second = float(plan.objects) / took.rewriting.as_secs_f64();
    let note = format!(
        "{} objects of 1 KB without a limit, {:.1} s with verification; resident {before:.0} MB before, {peak:.0} MB at the \
         peak; {}",
        plan.objects,
        took.all.as_secs_f64(),
        match took.estimate_error {
            Some(error) => format!("the estimate after 5 % was {:.0} % off", 100.0 * error),
            None => "it was over before there was an estimate".to_owned(),
        }
    );
    table.add(&format!("migration in the store, {store}"), Aim::AtLeast(aim), per_second, "/s", note);

    beside(plan, table, store, &convoy, &target).await
}

/// What others notice of a migration at the default rate.
async fn beside(plan: &Plan, table: &mut Table, store: &str, convoy: &Convoy, target: &Target) -> Result<()> {
    let get = always(target.request("GET", &format!("{}/p-7", PARCELS.path), b""));
    let idle = p99(target, plan, &get).await?;
    let others = Writer::start(target);
    flip(convoy, "v1").await?;
    let migration = ask(convoy, json!({})).await?;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let done = pause(convoy, &migration).await?;
        alone.push(p99(target, plan, &get).await?);
        resume(convoy, &migration).await?;
        beside.push(p99(target, plan, &get).await?);
        ensure!(pause(convoy, &migration).await? > done, "nothing was migrated meanwhile");
    }
    drop(others);
    cancel(convoy, &migration).await?;
    let (alone, beside) = (middle(alone), middle(beside));
    let note = format!(
        "8 connections and {WRITES_PER_SECOND} writes/s of others: p99 {} ms instead of {} ms at the default rate (the middle \
         of {TURNS} turns each); {} ms where nobody writes at all",
        ms(beside),
        ms(alone),
        ms(idle)
    );
    let ratio = beside.as_secs_f64() / alone.as_secs_f64();
    table.add(&format!("GET beside a migration, {store}: p99"), Aim::AtMost(2.0), ratio, "x", note);
    Ok(())
}

/// Somebody who writes a little all the time, as in every cluster that is alive. On etcd a read waits for the fsync of
/// a write that is under way, whoever wrote it: next to nobody at all, one writer is what is noticed.
struct Writer(tokio::task::JoinHandle<Result<()>>);

impl Writer {
    fn start(target: &Target) -> Self {
        let target = target.clone();
        Self(tokio::spawn(async move {
            let mut connection = target.connect().await?;
            let make = BUILT_IN.creates(&target, "others");
            let mut ticks = tokio::time::interval(Duration::from_secs(1) / WRITES_PER_SECOND);
            for number in 0.. {
                ticks.tick().await;
                connection.exchange(&make(number)).await?;
            }
            Ok(())
        }))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn middle(mut them: Vec<Duration>) -> Duration {
    them.sort_unstable();
    them[them.len() / 2]
}

async fn p99(target: &Target, plan: &Plan, get: &MakeRequest) -> Result<Duration> {
    let load = closed_loop::run(target, 8, plan.time(), 200, MakeRequest::clone(get)).await?;
    Ok(load.latency.percentile(99))
}

/// The same by requests, as on a cluster that is not ours.
async fn through_the_api(plan: &Plan, table: &mut Table) -> Result<()> {
    let off = "--controllers=*,-storage-version-trigger,-storage-version-migrator";
    let convoy = Convoy::start(plan.options().flag(off)).await?;
    let objects = plan.objects / 5;
    fill(&convoy, objects).await?;
    flip(&convoy, "v2").await?;
    let begin = Instant::now();
    let mut command = Command::new(&plan.convoy);
    command.args(["migrate", "parcels.bench.example", "--local", "--rate", "0", "--concurrency", "32"]);
    command.arg("--kubeconfig").arg(convoy.kubeconfig()).args(["--endpoint", convoy.base()]);
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let all = begin.elapsed();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let status = last(&convoy).await?;
    let note = format!(
        "{objects} objects, {:.1} s from the command to its end, in which every object is asked for twice; evidence {}",
        all.as_secs_f64(),
        status["evidence"]["kind"]
    );
    let per_second = float(objects) / all.as_secs_f64();
    table.add("migration through the API", Aim::AtLeast(1_500.0), per_second, "/s", note);
    Ok(())
}
