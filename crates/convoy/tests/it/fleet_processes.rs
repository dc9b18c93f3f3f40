//! Three servers as processes on one etcd: killed, stopped in their tracks, replaced by other releases.
//!
//! Deliberately not here: what servers in one process can show ([`crate::fleet`]).

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Result, ensure};
use parking_lot::RwLock;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use testkit::{
    Client, Convoy, Options,
    etcd::{self, Etcd},
    tools,
};

use crate::{
    fixture::{BINARY, config_map},
    fleet::ground::{CLASSES, CLASSES_RECORD, Ground, NEW, OLD, VERSIONS, class, eventually},
};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// A cluster of processes; its parts go in this order.
struct Cluster {
    servers: Vec<Convoy>,
    ground: Ground,
    certs: tempfile::TempDir,
    etcd: Arc<Etcd>,
}

fn options(etcd: &Etcd, certs: &Path, name: &str, minor: u16, lease: &str) -> Options {
    Options::etcd(BINARY, &etcd.url(), "/registry")
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
        let mut servers = Vec::new();
        for name in NAMES {
            servers.push(Convoy::start(options(&etcd, certs.path(), name, minor, lease)).await?);
        }
        Ok(Some(Self { servers, ground, certs, etcd }))
    }

    /// Starts a server again as another release.
    async fn restart(&mut self, n: usize, minor: u16, lease: &str) -> Result<()> {
        *self.servers[n].options_mut() = options(&self.etcd, self.certs.path(), NAMES[n], minor, lease);
        self.servers[n].start_again().await
    }

    async fn common(&self, n: usize) -> Result<Option<String>> {
        let path = format!("{VERSIONS}/{CLASSES_RECORD}");
        let object = self.servers[n].admin().get(&path).await?.expect(200)?;
        Ok(object["status"]["commonEncodingVersion"].as_str().map(str::to_owned))
    }
}

/// Writers that use the servers that are said to be there.
struct Load {
    clients: Arc<RwLock<Vec<Client>>>,
    stop: Arc<AtomicBool>,
    n_written: Arc<AtomicU64>,
    writers: Vec<tokio::task::JoinHandle<Result<()>>>,
}

impl Load {
    fn start(is_forgiving: bool) -> Self {
        let clients: Arc<RwLock<Vec<Client>>> = Arc::default();
        let (stop, n_written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let writers = (0..3_usize).map(|writer| {
            let (clients, stop, n_written) =
                (Arc::clone(&clients), Arc::clone(&stop), Arc::clone(&n_written));
            tokio::spawn(async move {
                for n in 0_usize.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let client = {
                        let clients = clients.read();
                        if clients.is_empty() {
                            None
                        } else {
                            Some(clients[(n + writer) % clients.len()].clone())
                        }
                    };
                    let Some(client) = client else {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                        continue;
                    };
                    match write(&client, writer, n).await {
                        Ok(200..=202 | 404 | 409) => {
                            n_written.fetch_add(1, Ordering::Relaxed);
                        }
                        _ if is_forgiving => tokio::time::sleep(Duration::from_millis(10)).await,
                        other => anyhow::bail!("a client's write failed: {other:?}"),
                    }
                }
                Ok(())
            })
        });
        let writers = writers.collect();
        Self { clients, stop, n_written, writers }
    }

    fn only<'a>(&self, servers: impl IntoIterator<Item = &'a Convoy>) {
        let patient = |it: &Convoy| it.admin().with_patience(Duration::from_secs(20));
        *self.clients.write() = servers.into_iter().map(patient).collect();
    }

    async fn wrote(&self, more: u64) {
        let before = self.n_written.load(Ordering::Relaxed);
        eventually("the load goes on", async || self.n_written.load(Ordering::Relaxed) >= before + more)
            .await;
    }

    async fn end(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        for writer in self.writers {
            writer.await??;
        }
        Ok(self.n_written.load(Ordering::Relaxed))
    }
}

async fn write(client: &Client, writer: usize, n: usize) -> Result<u16> {
    let name = format!("load-{writer}-{}", n % 5);
    let object = format!("{CLASSES}/{name}");
    let answer = match n % 7 {
        0 => client.delete(&object).await?,
        1 => client.post(CLASSES, &class(&name)).await?,
        _ => {
            let patch = json!({"metadata": {"annotations": {"n": n.to_string()}}});
            client.patch(&object, "application/merge-patch+json", &patch).await?
        }
    };
    Ok(answer.status.as_u16())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_are_rolled_to_another_release_without_one_failed_write() -> Result<()> {
    let Some(mut cluster) = Cluster::start(34, "10s").await? else { return Ok(()) };
    let history = cluster.ground.history().await;
    let load = Load::start(false);
    load.only(&cluster.servers);
    load.wrote(20).await;
    // In the middle one is rolled back: nothing changes.
    let steps = [(0, 36, OLD), (1, 36, OLD), (1, 34, OLD), (1, 36, OLD), (2, 36, NEW)];
    for (n, minor, expected) in steps {
        load.only(cluster.servers.iter().enumerate().filter(|(it, _)| *it != n).map(|(_, it)| it));
        // Whoever still has a request there has a moment to finish it.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let ended = cluster.servers[n].term(Duration::from_secs(20)).await?;
        ensure!(ended.success(), "{ended}");
        cluster.restart(n, minor, "10s").await?;
        load.only(&cluster.servers);
        load.wrote(20).await;
        ensure!(
            cluster.common(n).await?.as_deref() == Some(expected),
            "{n} {minor}: {:?}",
            cluster.common(n).await?
        );
    }
    let n_written = load.end().await?;
    let judged = history.judge(&[]).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_twin_is_refused_and_a_killed_server_is_back_at_once() -> Result<()> {
    let Some(mut cluster) = Cluster::start(36, "10s").await? else { return Ok(()) };
    let twin = Convoy::start(options(&cluster.etcd, cluster.certs.path(), "a", 36, "10s")).await;
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

/// Soak: 200 rounds of kills, stops beyond the lease, and other releases, under load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_die_sleep_and_change_and_nothing_is_stored_that_was_not_agreed_on() -> Result<()> {
    let (rounds, seed) = (tools::rounds(4), tools::seed());
    let Some(mut cluster) = Cluster::start(34, "1s").await? else { return Ok(()) };
    tools::report(&format!("fleet processes: {rounds} rounds, seed {seed}"));
    let mut random = StdRng::seed_from_u64(seed);
    let history = cluster.ground.history().await;
    let load = Load::start(true);
    load.only(&cluster.servers);
    for _ in 0..rounds {
        load.wrote(3).await;
        let (n, minor) = (random.random_range(0..NAMES.len()), random.random_range(34..=36));
        match random.random_range(0..3) {
            0 => {
                cluster.servers[n].kill9()?;
                cluster.restart(n, minor, "1s").await?;
            }
            1 => {
                cluster.servers[n].term(Duration::from_secs(30)).await?;
                cluster.restart(n, minor, "1s").await?;
            }
            _ => {
                cluster.servers[n].pause()?;
                tokio::time::sleep(Duration::from_millis(random.random_range(100..3000))).await;
                cluster.servers[n].resume()?;
            }
        }
        load.only(&cluster.servers);
    }
    load.wrote(10).await;
    let n_written = load.end().await?;
    eventually("all agree in the end", async || cluster.common(0).await.unwrap().is_some()).await;
    let judged = history.judge(&[]).await;
    tools::report(&format!(
        "fleet processes: {n_written} writes, {} judged, {} moves",
        judged.n_judged, judged.n_moves
    ));
    ensure!(judged.n_judged > 10, "{judged:?}");
    Ok(())
}
