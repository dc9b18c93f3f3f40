//! What is measured, in order, and what each figure is held against.
//!
//! The aims come from kube-apiserver 1.36 with etcd 3.5 on a machine with two cores: GET of a 1 KB
//! ConfigMap 2,300 to 2,800/s, LIST of 1,000 of them 42 to 48/s, CREATE 1,100 to 1,450/s. Where a
//! multiple of these is asked for, the middle of the range counts.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::Instant;

use super::table::{Table, Target as Aim};
use super::{custom, fleet, migration, objects, proxied};
use crate::client::tls_config;
use crate::convoy::{ADMIN_TOKEN, Convoy, Options};
use crate::etcd::Etcd;
use load::closed_loop::{self, Load, MakeRequest, Subject, always};
use load::fanout::{self, FanOut};
use load::wire::Target;

const REFERENCE_GET: f64 = 2_550.0;
const REFERENCE_LIST: f64 = 45.0;
const REFERENCE_CREATE: f64 = 1_275.0;
const CONFIG_MAPS: &str = "/api/v1/namespaces/bench/configmaps";

/// What most figures are about.
pub(super) const BUILT_IN: Subject = Subject { path: CONFIG_MAPS, api_version: "v1", kind: "ConfigMap" };

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    pub convoy: PathBuf,
    /// Also measure on etcd; the program itself is found by [`Etcd`].
    pub etcd: bool,
    /// How long each load runs.
    pub seconds: u32,
    /// How many objects to hold for the figures about memory and starting.
    pub objects: u64,
    /// Only rows whose group has this name; see [`run`].
    pub only: Option<String>,
}

/// Measures everything the plan asks for. `say` is told about each step.
pub async fn run(plan: &Plan, say: impl Fn(&str)) -> Result<Table> {
    let mut table = Table::default();
    let wanted = |group: &str| plan.only.as_ref().is_none_or(|it| it == group);
    if wanted("start") {
        say("cold start");
        start(plan, &mut table).await?;
    }
    if wanted("load") {
        say("the ceiling");
        let ceiling = ceiling(plan, &mut table).await?;
        say("GET, LIST and CREATE on the embedded store");
        reads_and_writes(plan, &mut table, ceiling).await?;
    }
    if wanted("objects") {
        say("conversion, protobuf, apply");
        objects::measure(plan, &mut table).await?;
    }
    if wanted("custom") {
        say("custom resources against built-in ones, memory per definition");
        custom::measure(plan, &mut table).await?;
    }
    if wanted("fleet") {
        say("fences, and a server that joins");
        fleet::measure(plan, &mut table).await?;
    }
    if wanted("proxied") && plan.etcd {
        say("requests that another server answers");
        proxied::measure(plan, &mut table).await?;
    }
    if wanted("migration") {
        say("migrations of stored objects");
        migration::measure(plan, &mut table).await?;
    }
    if wanted("etcd") && plan.etcd {
        say("CREATE on etcd");
        create_on_etcd(plan, &mut table).await?;
    }
    if wanted("fanout") {
        say("watch fan-out");
        fan_out(plan, &mut table).await?;
    }
    if wanted("memory") {
        say("memory per object, start with objects");
        memory(plan, &mut table).await?;
    }
    Ok(table)
}

async fn start(plan: &Plan, table: &mut Table) -> Result<()> {
    let mut times = Vec::new();
    let mut resident = 0;
    for _ in 0..5 {
        let begin = Instant::now();
        let convoy = Convoy::start(plan.options()).await?;
        times.push(begin.elapsed());
        tokio::time::sleep(Duration::from_secs(2)).await;
        resident = convoy.resident_kib()?;
    }
    times.sort_unstable();
    let note = format!("5 starts on empty directories, keys made: {} to {} ms", ms(times[0]), ms(times[4]));
    table.add("cold start to /readyz (median)", Aim::AtMost(150.0), ms(times[2]), "ms", note);
    let note = "2 s after the start, no client connected".to_owned();
    table.add("resident at rest", Aim::AtMost(40.0), mib(resident), "MB", note);
    Ok(())
}

/// Requests per second that constant bytes reach: of one object, and of a list.
async fn ceiling(plan: &Plan, table: &mut Table) -> Result<(f64, f64)> {
    let dir = tempfile::tempdir()?;
    let own = std::env::current_exe()?;
    let child = Command::new(own).arg("--serve-constant").arg(dir.path()).stdin(Stdio::null()).spawn()?;
    let _server = Killed(child);
    let port = loop {
        if let Ok(port) = std::fs::read_to_string(dir.path().join("port")) {
            break port;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let ca = std::fs::read(dir.path().join("ca.pem"))?;
    let target = target(&format!("https://127.0.0.1:{port}"), &ca, "none")?;
    let get =
        closed_loop::run(&target, 16, plan.time(), 200, always(target.request("GET", "/get", b""))).await?;
    let list =
        closed_loop::run(&target, 8, plan.time(), 200, always(target.request("GET", "/list", b""))).await?;
    let note = "bare hyper and rustls, 1.25 KB, 16 connections".to_owned();
    table.add("ceiling: constant object", Aim::None, get.per_second(), "/s", note);
    let note = format!("1.25 MB, 8 connections, {:.0} MB/s", list.megabytes_per_second());
    table.add("ceiling: constant list", Aim::None, list.per_second(), "/s", note);
    Ok((get.per_second(), list.per_second()))
}

async fn reads_and_writes(plan: &Plan, table: &mut Table, ceiling: (f64, f64)) -> Result<()> {
    let convoy = Convoy::start(plan.options()).await?;
    let target = prepare(&convoy).await?;
    closed_loop::send_all(&target, 16, 1_000, BUILT_IN.creates(&target, "c")).await?;

    let request = target.request("GET", &format!("{CONFIG_MAPS}/c-7"), b"");
    let (get, cost) = loaded(plan, &convoy, &target, 16, 200, always(request)).await?;
    let share = 100.0 * get.per_second() / ceiling.0;
    let aim = Aim::AtLeast(10.0 * REFERENCE_GET);
    let note = format!("{cost}, {share:.0} % of the ceiling (aim: 70 %)");
    table.add("GET 1 KB ConfigMap, 16 connections", aim, get.per_second(), "/s", note);

    let request = target.request("GET", CONFIG_MAPS, b"");
    let (list, cost) = loaded(plan, &convoy, &target, 8, 200, always(request)).await?;
    let (rate, share) = (list.megabytes_per_second(), 100.0 * list.per_second() / ceiling.1);
    let aim = Aim::AtLeast(12.0 * REFERENCE_LIST);
    let note = format!("{cost}, {rate:.0} MB/s, {share:.0} % of the ceiling (aim: 70 %)");
    table.add("LIST 1,000 x 1 KB, 8 connections", aim, list.per_second(), "/s", note);

    let (create, cost) = loaded(plan, &convoy, &target, 16, 201, BUILT_IN.creates(&target, "d")).await?;
    let aim = Aim::AtLeast(5.0 * REFERENCE_CREATE);
    let note = format!("{cost}, fsynced");
    table.add("CREATE 1 KB, 16 connections, embedded", aim, create.per_second(), "/s", note);
    Ok(())
}

async fn create_on_etcd(plan: &Plan, table: &mut Table) -> Result<()> {
    let etcd = Etcd::start().await?;
    let options = Options::etcd(&plan.convoy.to_string_lossy(), &etcd.url(), "/bench");
    let convoy = Convoy::start(options).await?;
    let target = prepare(&convoy).await?;
    let (create, cost) = loaded(plan, &convoy, &target, 16, 201, BUILT_IN.creates(&target, "d")).await?;
    let aim = Aim::AtLeast(3.0 * REFERENCE_CREATE);
    let note = format!("{cost}, one etcd member with fsync");
    table.add("CREATE 1 KB, 16 connections, etcd", aim, create.per_second(), "/s", note);
    Ok(())
}

/// Load on a server, and what an answer took: for the client to wait, for the server to compute.
async fn loaded(
    plan: &Plan,
    convoy: &Convoy,
    target: &Target,
    connections: usize,
    expected: u16,
    make: MakeRequest,
) -> Result<(Load, String)> {
    let before = convoy.cpu_time()?;
    let load = closed_loop::run(target, connections, plan.time(), expected, make).await?;
    let used = convoy.cpu_time()?.saturating_sub(before);
    let (p50, p99) = (ms(load.latency.percentile(50)), ms(load.latency.percentile(99)));
    let cpu = used.as_secs_f64() * 1e6 / float(load.requests);
    let cost = format!("p50 {p50:.2} ms, p99 {p99:.2} ms, {cpu:.0} us of CPU each");
    Ok((load, cost))
}

async fn fan_out(plan: &Plan, table: &mut Table) -> Result<()> {
    for (watchers, writes_per_second) in [(1_000, 50), (100, 500)] {
        let convoy = Convoy::start(plan.options()).await?;
        let target = prepare(&convoy).await?;
        let config = FanOut { watchers, writes_per_second, seconds: plan.seconds };
        let seen = fanout::run(&target, BUILT_IN, config).await?;
        let what = format!("watch fan-out, {writes_per_second} writes/s to {watchers} watchers, p99");
        let note =
            format!("p50 {} ms, {} events, from sending the write", ms(seen.percentile(50)), seen.len());
        table.add(&what, Aim::AtMost(50.0), ms(seen.percentile(99)), "ms", note);
    }
    Ok(())
}

/// The same store opened again, empty, with N and with 2N objects: what an object costs in memory, and how
/// fast stored bytes are read. The second N tell: the first also fill buffers that do not grow any more.
async fn memory(plan: &Plan, table: &mut Table) -> Result<()> {
    let mut convoy = Convoy::start(plan.options()).await?;
    let target = prepare(&convoy).await?;
    convoy.term(Duration::from_secs(30)).await?;
    let (empty_time, empty) = started(&mut convoy).await?;
    closed_loop::send_all(&target, 32, plan.objects, BUILT_IN.creates(&target, "m")).await?;
    let answer = convoy.admin().get(&format!("{CONFIG_MAPS}/m-1")).await?;
    let size = answer.body.len();
    convoy.term(Duration::from_secs(60)).await?;
    let (_, half) = started(&mut convoy).await?;
    closed_loop::send_all(&target, 32, plan.objects, BUILT_IN.creates(&target, "n")).await?;
    convoy.term(Duration::from_secs(60)).await?;
    let (full_time, full) = started(&mut convoy).await?;

    let bytes = float(size) * float(plan.objects);
    let held = (mib(full) - mib(half)) * 1024.0 * 1024.0;
    let all = (mib(full) - mib(empty)) * 1024.0 * 1024.0;
    let note = format!(
        "{} more objects of {size} bytes; all {} and what is kept in any case: {:.0} MB",
        plan.objects,
        2 * plan.objects,
        all / 1e6
    );
    table.add("memory per cached object / its JSON", Aim::AtMost(1.5), held / bytes, "x", note);
    let extra = full_time.saturating_sub(empty_time).as_secs_f64().max(0.001);
    let stored = 2.0 * bytes / 1e6;
    let note = format!("{stored:.0} MB: {} ms, empty: {} ms", ms(full_time), ms(empty_time));
    table.add("start: stored bytes per second", Aim::AtLeast(300.0), stored / extra, "MB/s", note);
    Ok(())
}

async fn started(convoy: &mut Convoy) -> Result<(Duration, u64)> {
    let begin = Instant::now();
    convoy.start_again().await?;
    let time = begin.elapsed();
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok((time, convoy.resident_kib()?))
}

pub(crate) async fn prepare(convoy: &Convoy) -> Result<Target> {
    let namespace =
        serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench"}});
    convoy.admin().post("/api/v1/namespaces", &namespace).await?.expect(201).context("the namespace")?;
    target(convoy.base(), convoy.ca(), ADMIN_TOKEN)
}

/// A server with a certificate of this authority, and who asks it.
pub(super) fn target(base: &str, ca: &[u8], token: &str) -> Result<Target> {
    let headers = [("authorization".to_owned(), format!("Bearer {token}"))];
    Ok(Target::new(base, tls_config(ca)?, &headers)?)
}

pub(super) fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 100_000.0).round() / 100.0
}

pub(super) fn mib(kib: u64) -> f64 {
    float(kib) / 1024.0
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub(crate) fn float(value: impl TryInto<u64>) -> f64 {
    value.try_into().unwrap_or(u64::MAX) as f64
}

impl Plan {
    /// One of several servers on an etcd.
    pub(super) fn member(&self, etcd: &Etcd, certs: &std::path::Path, name: &str) -> Options {
        Options::etcd(&self.convoy.to_string_lossy(), &etcd.url(), "/registry")
            .certs(certs)
            .flag(&format!("--hostname-override={name}"))
            .flag("--controllers=storage-version-gc")
    }

    pub(super) fn options(&self) -> Options {
        Options::embedded(&self.convoy.to_string_lossy())
    }

    pub(super) fn time(&self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }
}

/// A process that ends with the value.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
