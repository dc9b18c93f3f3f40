//! Three servers as processes on one etcd: killed, stopped in their tracks, cut off, replaced by other releases.
//!
//! Deliberately not here: what servers in one process can show ([`crate::fleet`]).

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use testkit::{
    Convoy, Options,
    balance::Balancer,
    etcd::{self, Etcd},
    tools,
};

use crate::{
    fixture::{BINARY, config_map},
    fleet::{
        ground::{CLASSES, CLASSES_RECORD, Ground, NEW, OLD, VERSIONS, class, eventually},
        load::{DEVICE_CLASSES, Door, Load},
        rolling::MOVED_WITHIN,
    },
};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// A cluster of processes; its parts go in this order.
struct Cluster {
    servers: Vec<Convoy>,
    /// Each server has a line of its own to etcd, which can be cut.
    lines: Vec<Balancer>,
    ground: Ground,
    certs: tempfile::TempDir,
    etcd: Arc<Etcd>,
}

fn options(line: &Balancer, certs: &Path, name: &str, minor: u16, lease: &str) -> Options {
    Options::etcd(BINARY, &line.url().replace("https", "http"), "/registry")
        .certs(certs)
        .flag(&format!("--hostname-override={name}"))
        .flag(&format!("--emulated-version=1.{minor}"))
        .flag(&format!("--member-lease-duration={lease}"))
        .flag("--departure-settle-time=500ms")
        .flag("--controllers=storage-version-gc")
}

impl Cluster {
    async fn start(minor: u16, lease: &str) -> Result<Option<Self>> {
        if etcd::is_missing() {
            return Ok(None);
        }
        let etcd = Arc::new(Etcd::start().await?);
        let certs = tempfile::tempdir()?;
        let ground = Ground::shared_etcd(&etcd).await;
        let (mut servers, mut lines) = (Vec::new(), Vec::new());
        for name in NAMES {
            let line = Balancer::start(vec![etcd.port()]).await?;
            servers.push(Convoy::start(options(&line, certs.path(), name, minor, lease)).await?);
            lines.push(line);
        }
        Ok(Some(Self { servers, lines, ground, certs, etcd }))
    }

    /// Starts a server again as another release.
    async fn restart(&mut self, n: usize, minor: u16, lease: &str) -> Result<()> {
        *self.servers[n].options_mut() = options(&self.lines[n], self.certs.path(), NAMES[n], minor, lease);
        self.servers[n].start_again().await
    }

    /// Cuts a server off from etcd for a while; its clients still reach it.
    async fn cut_off(&self, n: usize, time: Duration) {
        self.lines[n].only(Vec::new());
        self.lines[n].sever();
        tokio::time::sleep(time).await;
        self.lines[n].only(vec![self.etcd.port()]);
    }

    async fn common(&self, n: usize) -> Result<Option<String>> {
        let path = format!("{VERSIONS}/{CLASSES_RECORD}");
        let object = self.servers[n].admin().get(&path).await?.expect(200)?;
        Ok(object["status"]["commonEncodingVersion"].as_str().map(str::to_owned))
    }
}

/// Uses these servers from now on.
fn only<'a>(load: &Load, servers: impl IntoIterator<Item = &'a Convoy>) {
    load.through(servers.into_iter().map(|it| Door::There(Box::new(it.admin()))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_are_rolled_to_another_release_without_one_failed_write() -> Result<()> {
    let Some(mut cluster) = Cluster::start(34, "10s").await? else { return Ok(()) };
    let history = cluster.ground.history().await;
    let load = Load::start(DEVICE_CLASSES, 3);
    only(&load, &cluster.servers);
    load.wrote(20).await;
    // In the middle one is rolled back: nothing changes.
    let steps = [(0, 36, OLD), (1, 36, OLD), (1, 34, OLD), (1, 36, OLD), (2, 36, NEW)];
    for (n, minor, expected) in steps {
        only(&load, cluster.servers.iter().enumerate().filter(|(it, _)| *it != n).map(|(_, it)| it));
        // Whoever still has a request there has a moment to finish it.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let ended = cluster.servers[n].term(Duration::from_secs(20)).await?;
        ensure!(ended.success(), "{ended}");
        cluster.restart(n, minor, "10s").await?;
        only(&load, &cluster.servers);
        load.wrote(20).await;
        ensure!(
            cluster.common(n).await?.as_deref() == Some(expected),
            "{n} {minor}: {:?}",
            cluster.common(n).await?
        );
    }
    let journal = load.end().await;
    // The last vote is the move; a second is what is promised, the rest is slack for a busy machine.
    let moved = history.time_to_move(CLASSES_RECORD, NEW, 3).context("three votes, and a move")?;
    ensure!(moved < MOVED_WITHIN, "{moved:?}");
    let n_written = journal.n_written();
    let judged = history.judge_with(&[], &[journal]).await;
    ensure!(n_written > 100 && judged.n_judged > 50, "{n_written} {judged:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_stopped_in_its_tracks_writes_nothing_that_is_no_longer_agreed_on() -> Result<()> {
    let Some(mut cluster) = Cluster::start(34, "1s").await? else { return Ok(()) };
    let history = cluster.ground.history().await;
    for n in [1, 2] {
        cluster.servers[n].term(Duration::from_secs(20)).await?;
        cluster.restart(n, 36, "1s").await?;
    }
    let sleeper = cluster.servers[0].admin();
    let mut held = class("held");
    held["metadata"]["finalizers"] = json!(["example.com/held"]);
    sleeper.post(CLASSES, &held).await?.expect(201)?;
    cluster.servers[0].pause()?;
    eventually("the others have moved on", async || cluster.common(1).await.unwrap().as_deref() == Some(NEW))
        .await;
    // These wait in the sockets of the sleeper, and are what it does first.
    let (first, second, third) = (sleeper.clone(), sleeper.clone(), sleeper.clone());
    let put = tokio::spawn(async move { first.post(CLASSES, &class("mine")).await });
    let mark = tokio::spawn(async move { second.delete(&format!("{CLASSES}/held")).await });
    let patch = tokio::spawn(async move {
        let patch = json!({"metadata": {"labels": {"a": "b"}}});
        third.patch(&format!("{CLASSES}/held"), "application/merge-patch+json", &patch).await
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    cluster.servers[0].resume()?;
    for write in [put, mark, patch] {
        let answer = write.await??;
        ensure!(matches!(answer.status.as_u16(), 200..=202 | 503), "{} {}", answer.status, answer.text());
    }
    let judged = history.judge(&[]).await;
    ensure!(judged.n_moves > 0, "{judged:?}");
    eventually("it is a member again", async || {
        let answer = sleeper.post(CLASSES, &class("later")).await.unwrap();
        matches!(answer.status.as_u16(), 201 | 409)
    })
    .await;
    Ok(())
}

/// ID-6, and ID-3 of a process that was killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_twin_is_refused_and_a_killed_server_is_back_at_once() -> Result<()> {
    let Some(mut cluster) = Cluster::start(36, "10s").await? else { return Ok(()) };
    let twin = Convoy::start(options(&cluster.lines[0], cluster.certs.path(), "a", 36, "10s")).await;
    let error = twin.err().map(|it| it.to_string()).unwrap_or_default();
    ensure!(error.contains("is in use by another process"), "{error}");
    ensure!(error.contains("--hostname-override"), "{error}");
    cluster.servers[0]
        .admin()
        .post("/api/v1/namespaces/default/configmaps", &config_map("m", "v", "g"))
        .await?
        .expect(201)?;
    // Its record is still there; it does not wait for its predecessor's lease.
    cluster.servers[0].kill9()?;
    let killed = tokio::time::Instant::now();
    cluster.servers[0].start_again().await?;
    ensure!(killed.elapsed() < Duration::from_secs(9), "{:?}", killed.elapsed());
    cluster.servers[0]
        .admin()
        .post("/api/v1/namespaces/default/configmaps", &config_map("n", "v", "g"))
        .await?
        .expect(201)?;
    // What a person sees.
    let status: Value = cluster.servers[1].admin().get("/convoy/status").await?.expect(200)?;
    ensure!(status["members"].as_array().is_some_and(|it| it.len() == 3), "{status}");
    let kubeconfig = cluster.servers[1].kubeconfig();
    let shown =
        std::process::Command::new(BINARY).args(["status", "--kubeconfig"]).arg(&kubeconfig).output()?;
    let text = String::from_utf8_lossy(&shown.stdout);
    ensure!(shown.status.success() && text.contains("resources agreed on"), "{text}");
    let stored = std::process::Command::new(BINARY)
        .args(["status", "-o", "json", "--etcd-servers", &cluster.etcd.url()])
        .output()?;
    let stored: Value = serde_json::from_slice(&stored.stdout)?;
    ensure!(stored["members"] == status["members"], "{stored}");
    Ok(())
}

/// Soak: 200 rounds of kills, stops beyond the lease, cuts from etcd, and other releases, under load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_die_sleep_and_change_and_nothing_is_stored_that_was_not_agreed_on() -> Result<()> {
    let (rounds, seed) = (tools::rounds(4), tools::seed());
    let Some(mut cluster) = Cluster::start(34, "1s").await? else { return Ok(()) };
    tools::report(&format!("fleet processes: {rounds} rounds, seed {seed}"));
    let mut random = StdRng::seed_from_u64(seed);
    let history = cluster.ground.history().await;
    let load = Load::start_amid_crashes(DEVICE_CLASSES, 3);
    only(&load, &cluster.servers);
    // Every kind of trouble comes in turn; whom it meets, and what comes back, is chance.
    for round in 0..rounds {
        load.wrote(3).await;
        let (n, minor) = (random.random_range(0..NAMES.len()), random.random_range(34..=36));
        let time = Duration::from_millis(random.random_range(100..3000));
        match round % 4 {
            0 => {
                cluster.servers[n].kill9()?;
                cluster.restart(n, minor, "1s").await?;
            }
            1 => {
                cluster.servers[n].term(Duration::from_secs(30)).await?;
                cluster.restart(n, minor, "1s").await?;
            }
            2 => {
                cluster.servers[n].pause()?;
                tokio::time::sleep(time).await;
                cluster.servers[n].resume()?;
            }
            _ => cluster.cut_off(n, time).await,
        }
        only(&load, &cluster.servers);
    }
    load.wrote(10).await;
    let journal = load.end().await;
    eventually("all agree in the end", async || cluster.common(0).await.unwrap().is_some()).await;
    let n_written = journal.n_written();
    let judged = history.judge_with(&[], &[journal]).await;
    tools::report(&format!(
        "fleet processes: {n_written} writes, {} judged, {} moves",
        judged.n_judged, judged.n_moves
    ));
    ensure!(judged.n_judged > 10, "{judged:?}");
    Ok(())
}
