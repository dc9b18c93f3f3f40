//! What it costs that another server answers: the same requests to a server that has the resource, and through one that
//! does not.
//!
//! Both are processes on one etcd; a figure counts what the two of them compute together.

use std::time::Duration;

use anyhow::Result;

use super::plan::{self, BUILT_IN, Plan, float, mib, prepare};
use super::table::{Table, Target as Aim};
use crate::convoy::Convoy;
use crate::etcd::Etcd;
use load::closed_loop::{self, MakeRequest, always};
use load::fanout::{self, FanOut};
use load::wire::Target;

/// Direct and proxied take turns: what else the machine does meets both alike.
const TURNS: usize = 3;

const WATCHES: usize = 2_000;

struct Pair {
    servers: [Convoy; 2],
    targets: [Target; 2],
}

/// What one request costs, in microseconds and requests per second.
#[derive(Clone, Copy, Default)]
struct Cost {
    compute: f64,
    median: f64,
    rate: f64,
}

pub(super) async fn measure(plan: &Plan, table: &mut Table) -> Result<()> {
    let etcd = Etcd::start().await?;
    let certs = tempfile::tempdir()?;
    let options = |name: &str| plan.member(&etcd, certs.path(), name);
    let has = Convoy::start(options("has")).await?;
    let has_not = Convoy::start(options("has-not").flag("--runtime-config=/v1/configmaps=false")).await?;
    let direct = prepare(&has).await?;
    let through = plan::target(has_not.base(), has_not.ca(), crate::convoy::ADMIN_TOKEN)?;
    closed_loop::send_all(&direct, 16, 1_000, BUILT_IN.creates(&direct, "c")).await?;
    let pair = Pair { servers: [has, has_not], targets: [direct, through] };

    let get = format!("{}/c-7", BUILT_IN.path);
    let [direct, proxied] = pair.costs(plan, 8, &get).await?;
    let note = format!(
        "8 connections: {:.0} us of CPU on both servers instead of {:.0}, {:.0}/s instead of {:.0}/s",
        proxied.compute, direct.compute, proxied.rate, direct.rate
    );
    table.add("proxied GET: CPU over direct", Aim::AtMost(2.2), proxied.compute / direct.compute, "x", note);
    let before = pair.store_operations().await?;
    let [direct, proxied] = pair.costs(plan, 1, &get).await?;
    let note = format!(
        "1 connection, median {:.0} us instead of {:.0} us; {:.0} store operations meanwhile",
        proxied.median,
        direct.median,
        pair.store_operations().await? - before
    );
    let more = (proxied.median - direct.median) / 1e3;
    table.add("proxied GET: time on top of direct", Aim::AtMost(1.0), more, "ms", note);
    let empty = format!("{}?labelSelector=none%3Dthere", BUILT_IN.path);
    let [direct, proxied] = pair.costs(plan, 8, &empty).await?;
    let note = format!(
        "8 connections, an empty LIST: {:.0}/s instead of {:.0}/s (kube-apiserver: 439/s instead of 1,085/s)",
        proxied.rate, direct.rate
    );
    table.add("proxied LIST: share of direct", Aim::AtLeast(0.41), proxied.rate / direct.rate, "x", note);
    watches(plan, &pair, table).await
}

/// Many watches through the server that has not what is watched.
async fn watches(plan: &Plan, pair: &Pair, table: &mut Table) -> Result<()> {
    let before: Vec<f64> = pair.resident()?;
    let config = FanOut { watchers: WATCHES, writes_per_second: 5, seconds: plan.seconds };
    let seen = fanout::run(&pair.targets[1], BUILT_IN, config).await?;
    let peaks: Vec<f64> = pair.servers.iter().map(|it| it.peak_kib().map(mib)).collect::<Result<_>>()?;
    let each = |n: usize| 1024.0 * (peaks[n] - before[n]).max(0.0) / float(WATCHES);
    let note = format!(
        "5 writes/s, p99 {:.1} ms; at its peak {:.0} KB per watch in the server in between, {:.0} KB in the other",
        seen.percentile(99).as_secs_f64() * 1e3,
        each(1),
        each(0)
    );
    table.add(&format!("{WATCHES} proxied watches: memory"), Aim::None, peaks[1] - before[1], "MB", note);
    Ok(())
}

impl Pair {
    /// The cost of a request to the server that has it, and through the other.
    async fn costs(&self, plan: &Plan, connections: usize, path: &str) -> Result<[Cost; 2]> {
        let mut costs = [Cost::default(); 2];
        for _ in 0..TURNS {
            for (n, target) in self.targets.iter().enumerate() {
                let make: MakeRequest = always(target.request("GET", path, b""));
                let before = self.cpu()?;
                let load = closed_loop::run(target, connections, plan.time(), 200, make).await?;
                let used = self.cpu()?.saturating_sub(before).as_secs_f64() * 1e6;
                costs[n].compute += used / float(load.requests) / float(TURNS);
                costs[n].median += load.latency.percentile(50).as_secs_f64() * 1e6 / float(TURNS);
                costs[n].rate += load.per_second() / float(TURNS);
            }
        }
        Ok(costs)
    }

    fn cpu(&self) -> Result<Duration> {
        let [one, two] = &self.servers;
        Ok(one.cpu_time()? + two.cpu_time()?)
    }

    fn resident(&self) -> Result<Vec<f64>> {
        self.servers.iter().map(|it| it.resident_kib().map(mib)).collect()
    }

    async fn store_operations(&self) -> Result<f64> {
        let mut sum = 0.0;
        for server in &self.servers {
            let metrics = server.admin().get("/metrics").await?.text();
            let counts = metrics.lines().filter(|it| it.starts_with("etcd_request_duration_seconds_count"));
            sum += counts.filter_map(|it| it.rsplit_once(' ')?.1.parse::<f64>().ok()).sum::<f64>();
        }
        Ok(sum)
    }
}
