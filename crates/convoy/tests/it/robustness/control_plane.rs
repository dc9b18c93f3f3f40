//! `convoy up`: three servers in one process on the embedded store, killed, stopped in its tracks and rolled.
//!
//! Its store belongs to it alone, so that it is stopped whenever its history is read.

use std::{
    fs::File,
    net::TcpListener,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use serde_json::Value;
use store::{SharedStore, SystemClock};
use store_embedded::EmbeddedStore;
use tempfile::TempDir;
use testkit::Client;
use tokio::time::Instant;

use super::{
    doors::{Doors, Key},
    faults::{Fault, Kind, SERVERS},
};
use crate::fixture::BINARY;

const START_LIMIT: Duration = Duration::from_secs(90);
const ROLL_LIMIT: Duration = Duration::from_secs(180);

pub struct ControlPlane {
    child: Option<Child>,
    /// Rolls under way, or cut off with the process.
    rolls: Vec<Child>,
    pub doors: Arc<Doors>,
    /// The common address; the servers' follow.
    port: u16,
    minor: u16,
    store: Option<EmbeddedStore>,
    home: TempDir,
}

pub const KINDS: &[Kind] =
    &[Kind::Kill, Kind::Kill, Kind::Sleep, Kind::Roll, Kind::CutClients, Kind::Flip, Kind::Flip];

impl ControlPlane {
    pub async fn start() -> Result<Self> {
        let (home, port) = (tempfile::tempdir()?, free_port()?);
        // The doors need the keys, and the keys are made at the first start.
        let mut child = Some(spawn(&home, port, 34)?);
        wait_ready(&home, port, &mut child).await?;
        let (ca, certificate, key) = keys(&home)?;
        let ports: Vec<u16> = (1..).take(SERVERS).map(|n| port + n).collect();
        let doors = Arc::new(Doors::open(&ports, ca, Key::Certificate(certificate, key)).await?);
        Ok(Self { child, rolls: Vec::new(), doors, port, minor: 34, store: None, home })
    }

    /// Whatever happens to one server happens to all.
    pub async fn begin(&mut self, fault: &Fault) -> Result<()> {
        match fault {
            Fault::Kill(_) => self.kill(),
            Fault::Sleep(_) => self.signal("STOP"),
            Fault::Roll(_, minor) => {
                let mut command = Command::new(BINARY);
                command.arg("rollout").arg(format!("--to=1.{minor}"));
                command.arg("--data-dir").arg(self.home.path().join("data"));
                let log = self.log("rollout.log")?;
                command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
                self.rolls.push(command.spawn()?);
                self.minor = *minor;
                Ok(())
            }
            other => bail!("a control plane knows no {other:?}"),
        }
    }

    pub async fn end(&mut self, fault: &Fault) -> Result<()> {
        match fault {
            Fault::Kill(_) => self.spawn().await,
            Fault::Sleep(_) => self.signal("CONT"),
            other => bail!("a control plane knows no end of {other:?}"),
        }
    }

    /// Waits for the end of rolls.
    pub async fn settle(&mut self) -> Result<()> {
        let deadline = Instant::now() + ROLL_LIMIT;
        while let Some(mut roll) = self.rolls.pop() {
            while roll.try_wait()?.is_none() {
                if Instant::now() > deadline {
                    let _ = (roll.kill(), roll.wait());
                    bail!("a roll takes longer than {ROLL_LIMIT:?}:\n{}", self.logs().join("\n---\n"));
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    /// Stops the process, and opens what it left behind.
    pub async fn store(&mut self) -> Result<SharedStore> {
        self.signal("TERM")?;
        let mut child = self.child.take().context("it must run")?;
        let ended = tokio::task::spawn_blocking(move || child.wait()).await??;
        ensure!(ended.success(), "the control plane ended with {ended}: {}", self.logs().join("\n---\n"));
        let options = store_embedded::Options {
            compaction_interval: None,
            ..store_embedded::Options::new(SystemClock::shared())
        };
        let store = EmbeddedStore::open(&self.home.path().join("data"), options)?;
        self.store = Some(store.clone());
        Ok(SharedStore::new(store))
    }

    pub async fn go_on(&mut self) -> Result<()> {
        if let Some(store) = self.store.take() {
            store.close().await;
        }
        self.spawn().await
    }

    pub fn logs(&self) -> Vec<String> {
        let read = |it: &str| std::fs::read_to_string(self.home.path().join(it)).unwrap_or_default();
        ["up.log", "rollout.log"].map(read).to_vec()
    }

    async fn spawn(&mut self) -> Result<()> {
        self.child = Some(spawn(&self.home, self.port, self.minor)?);
        wait_ready(&self.home, self.port, &mut self.child).await
    }

    fn kill(&mut self) -> Result<()> {
        let mut child = self.child.take().context("it must run")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    fn signal(&self, name: &str) -> Result<()> {
        let pid = self.child.as_ref().context("it must run")?.id();
        let status = Command::new("sh").arg("-c").arg(format!("kill -{name} {pid}")).status()?;
        ensure!(status.success(), "kill -{name} {pid}: {status}");
        Ok(())
    }

    fn log(&self, name: &str) -> Result<File> {
        log(&self.home, name)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        for mut child in self.child.take().into_iter().chain(self.rolls.drain(..)) {
            let _ = (child.kill(), child.wait());
        }
    }
}

fn log(home: &TempDir, name: &str) -> Result<File> {
    Ok(File::options().create(true).append(true).open(home.path().join(name))?)
}

fn spawn(home: &TempDir, port: u16, minor: u16) -> Result<Child> {
    let mut command = Command::new(BINARY);
    command.arg("up").arg("--data-dir").arg(home.path().join("data"));
    command.arg(format!("--secure-port={port}")).arg(format!("--emulated-version=1.{minor}"));
    let log = log(home, "up.log")?;
    Ok(command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?)
}

async fn wait_ready(home: &TempDir, port: u16, child: &mut Option<Child>) -> Result<()> {
    let deadline = Instant::now() + START_LIMIT;
    let said = || std::fs::read_to_string(home.path().join("up.log")).unwrap_or_default();
    for n in 1..=u16::try_from(SERVERS)? {
        loop {
            if let Some(status) = child.as_mut().context("it must run")?.try_wait()? {
                bail!("the control plane ended at its start: {status}\n{}", said());
            }
            ensure!(Instant::now() < deadline, "not ready after {START_LIMIT:?}\n{}", said());
            if is_ready(home, port + n).await {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(())
}

async fn is_ready(home: &TempDir, port: u16) -> bool {
    let Ok((ca, certificate, key)) = keys(home) else { return false };
    let base = format!("https://127.0.0.1:{port}");
    let Ok(client) = Client::with_certificate(&base, &ca, &certificate, &key) else { return false };
    let client = client.with_patience(Duration::from_secs(2));
    client.get("/readyz").await.is_ok_and(|it| it.status == 200)
}

/// Authority, certificate and key of the administrator.
fn keys(home: &TempDir) -> Result<(Vec<u8>, Vec<u8>, Vec<u8>)> {
    let path = home.path().join("data/admin.kubeconfig");
    let config: Value = serde_saphyr::from_str(&std::fs::read_to_string(path)?)?;
    let decode = |it: &Value| {
        let text = it.as_str().context("a kubeconfig must hold keys")?;
        Ok::<_, anyhow::Error>(base64::engine::general_purpose::STANDARD.decode(text)?)
    };
    let (cluster, user) = (&config["clusters"][0]["cluster"], &config["users"][0]["user"]);
    let ca = decode(&cluster["certificate-authority-data"])?;
    Ok((ca, decode(&user["client-certificate-data"])?, decode(&user["client-key-data"])?))
}

/// A port with as many free ones after it as there are servers.
fn free_port() -> Result<u16> {
    for _ in 0..100 {
        let base = rand::random_range(20_000..30_000_u16);
        if (base..).take(SERVERS + 1).all(|it| TcpListener::bind(("127.0.0.1", it)).is_ok()) {
            return Ok(base);
        }
    }
    bail!("no free ports")
}
