//! `convoy up`: three servers in one process on the embedded store, killed, stopped in its tracks and rolled.
//!
//! Its store belongs to it alone, unless it is etcd: so it is stopped whenever its history is read.

use std::{
    fs::File,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use serde_json::Value;
use store::{SharedStore, SystemClock};
use store_embedded::EmbeddedStore;
use store_etcd::{EtcdConfig, EtcdStore};
use tempfile::TempDir;
use testkit::{Client, etcd::Etcd, tools};
use tokio::time::Instant;

use super::{
    doors::{Doors, Key},
    faults::{Fault, Kind, SERVERS},
    season::Course,
};
use crate::fixture::BINARY;

const START_LIMIT: Duration = Duration::from_secs(90);
const ROLL_LIMIT: Duration = Duration::from_secs(180);

/// The first release that has what [`super::clients`] call seasonal.
const SEASON: u16 = 34;

pub struct ControlPlane {
    child: Option<Child>,
    /// Rolls under way, or cut off with the process.
    rolls: Vec<Roll>,
    pub doors: Arc<Doors>,
    pub course: Course,
    place: Place,
    minor: u16,
    store: Option<EmbeddedStore>,
}

/// What stays when the process is started again.
struct Place {
    home: TempDir,
    /// The common address; the servers' follow.
    port: u16,
    etcd: Option<Etcd>,
}

struct Roll {
    process: Child,
    /// The control plane was killed or stopped in its tracks meanwhile: it need not have gone well.
    was_disturbed: bool,
}

pub const KINDS: &[Kind] =
    &[Kind::Kill, Kind::Kill, Kind::Sleep, Kind::Roll, Kind::CutClients, Kind::Flip, Kind::Flip];

impl ControlPlane {
    pub async fn start() -> Result<Self> {
        let place = Place { home: tempfile::tempdir()?, port: free_port()?, etcd: None };
        let ports: Vec<u16> = (1..).take(SERVERS).map(|n| place.port + n).collect();
        Self::start_at(place, 34, &ports).await
    }

    /// At 1.33; clients are as patient as such a client may be, and use the common address.
    pub async fn behind_one_address(etcd: Option<Etcd>) -> Result<Self> {
        let place = Place { home: tempfile::tempdir()?, port: free_port()?, etcd };
        let ports = [place.port; SERVERS];
        let mut plane = Self::start_at(place, 33, &ports).await?;
        Arc::get_mut(&mut plane.doors).context("nobody uses the doors yet")?.be_patient();
        Ok(plane)
    }

    async fn start_at(place: Place, minor: u16, ports: &[u16]) -> Result<Self> {
        // The doors need the keys, and the keys are made at the first start.
        let mut child = Some(place.spawn(minor)?);
        place.wait_ready(&mut child).await?;
        let (ca, certificate, key) = place.keys()?;
        let doors = Arc::new(Doors::open(ports, ca, Key::Certificate(certificate, key)).await?);
        let course = Course::away();
        Ok(Self { child, rolls: Vec::new(), doors, course, place, minor, store: None })
    }

    /// Whatever happens to one server happens to all.
    pub async fn begin(&mut self, fault: &Fault) -> Result<()> {
        match fault {
            Fault::Kill(_) => self.kill(),
            Fault::Sleep(_) => {
                self.rolls.iter_mut().for_each(|it| it.was_disturbed = true);
                self.signal("STOP")
            }
            Fault::Roll(_, minor) => {
                // There is one at a time.
                self.settle().await?;
                let log = self.place.log("rollout.log")?;
                let process = self.rollout(*minor).stdout(log.try_clone()?).stderr(log).spawn()?;
                self.rolls.push(Roll { process, was_disturbed: false });
                self.minor = *minor;
                Ok(())
            }
            Fault::Rollout(minor) => {
                self.course.turn(*minor < SEASON);
                let said = tokio::task::spawn_blocking({
                    let mut command = self.rollout(*minor);
                    move || command.output()
                });
                let said = tokio::time::timeout(ROLL_LIMIT, said).await.context("it takes too long")???;
                let page = String::from_utf8_lossy(&said.stdout).into_owned();
                let last = page.lines().last().unwrap_or_default();
                tools::report(&format!("          {last}"));
                let is_clean =
                    said.status.success() && last.starts_with("rolled to ") && last.ends_with(" 0 errors");
                let why = String::from_utf8_lossy(&said.stderr);
                ensure!(is_clean, "the rollout to 1.{minor} ended with {}: {page}{why}", said.status);
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

    /// Waits for the end of rolls. Whatever was not disturbed must have gone well.
    pub async fn settle(&mut self) -> Result<()> {
        let deadline = Instant::now() + ROLL_LIMIT;
        while let Some(mut roll) = self.rolls.pop() {
            let ended = loop {
                if let Some(ended) = roll.process.try_wait()? {
                    break ended;
                }
                if Instant::now() > deadline {
                    let _ = (roll.process.kill(), roll.process.wait());
                    bail!("a roll takes longer than {ROLL_LIMIT:?}:\n{}", self.logs().join("\n---\n"));
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            };
            let is_well = ended.success() || roll.was_disturbed;
            ensure!(is_well, "a roll ended with {ended}:\n{}", self.logs().join("\n---\n"));
        }
        Ok(())
    }

    /// `convoy rollout`, to be started.
    fn rollout(&self, minor: u16) -> Command {
        let mut command = Command::new(BINARY);
        command.arg("rollout").arg(format!("--to=1.{minor}"));
        command.arg("--data-dir").arg(self.place.home.path().join("data"));
        command.stdin(Stdio::null());
        command
    }

    /// Stops the process, and opens what it left behind.
    pub async fn store(&mut self) -> Result<SharedStore> {
        if let Some(etcd) = &self.place.etcd {
            let config = EtcdConfig::new(vec![etcd.url()], SystemClock::shared());
            return Ok(SharedStore::new(EtcdStore::connect(config).await?));
        }
        self.signal("TERM")?;
        let mut child = self.child.take().context("it must run")?;
        let ended = tokio::task::spawn_blocking(move || child.wait()).await??;
        ensure!(ended.success(), "the control plane ended with {ended}: {}", self.logs().join("\n---\n"));
        let options = store_embedded::Options {
            compaction_interval: None,
            ..store_embedded::Options::new(SystemClock::shared())
        };
        let store = EmbeddedStore::open_or_make(&self.place.home.path().join("data"), options)?;
        self.store = Some(store.clone());
        Ok(SharedStore::new(store))
    }

    pub async fn go_on(&mut self) -> Result<()> {
        if self.place.etcd.is_some() {
            return Ok(());
        }
        if let Some(store) = self.store.take() {
            store.close().await;
        }
        self.spawn().await
    }

    pub fn logs(&self) -> Vec<String> {
        let read = |it: &str| std::fs::read_to_string(self.place.home.path().join(it)).unwrap_or_default();
        ["up.log", "rollout.log"].map(read).to_vec()
    }

    async fn spawn(&mut self) -> Result<()> {
        self.child = Some(self.place.spawn(self.minor)?);
        self.place.wait_ready(&mut self.child).await
    }

    fn kill(&mut self) -> Result<()> {
        self.rolls.iter_mut().for_each(|it| it.was_disturbed = true);
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
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let rolls = self.rolls.drain(..).map(|it| it.process);
        for mut child in self.child.take().into_iter().chain(rolls) {
            let _ = (child.kill(), child.wait());
        }
    }
}

impl Place {
    fn log(&self, name: &str) -> Result<File> {
        Ok(File::options().create(true).append(true).open(self.home.path().join(name))?)
    }

    fn spawn(&self, minor: u16) -> Result<Child> {
        let mut command = Command::new(BINARY);
        command.arg("up").arg("--data-dir").arg(self.home.path().join("data"));
        command.arg(format!("--secure-port={}", self.port)).arg(format!("--emulated-version=1.{minor}"));
        command.args(self.etcd.iter().map(|it| format!("--etcd-servers={}", it.url())));
        let log = self.log("up.log")?;
        Ok(command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?)
    }

    async fn wait_ready(&self, child: &mut Option<Child>) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        let said = || std::fs::read_to_string(self.home.path().join("up.log")).unwrap_or_default();
        for n in 1..=u16::try_from(SERVERS)? {
            loop {
                if let Some(status) = child.as_mut().context("it must run")?.try_wait()? {
                    bail!("the control plane ended at its start: {status}\n{}", said());
                }
                ensure!(Instant::now() < deadline, "not ready after {START_LIMIT:?}\n{}", said());
                if self.is_ready(self.port + n).await {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    }

    async fn is_ready(&self, port: u16) -> bool {
        let Ok((ca, certificate, key)) = self.keys() else { return false };
        let base = format!("https://127.0.0.1:{port}");
        let Ok(client) = Client::with_certificate(&base, &ca, &certificate, &key) else { return false };
        let client = client.with_patience(Duration::from_secs(2));
        client.get("/readyz").await.is_ok_and(|it| it.status == 200)
    }

    /// Authority, certificate and key of the administrator.
    fn keys(&self) -> Result<(Vec<u8>, Vec<u8>, Vec<u8>)> {
        let path = self.home.path().join("data/admin.kubeconfig");
        let config: Value = serde_saphyr::from_str(&std::fs::read_to_string(path)?)?;
        let decode = |it: &Value| {
            let text = it.as_str().context("a kubeconfig must hold keys")?;
            Ok::<_, anyhow::Error>(base64::engine::general_purpose::STANDARD.decode(text)?)
        };
        let (cluster, user) = (&config["clusters"][0]["cluster"], &config["users"][0]["user"]);
        let ca = decode(&cluster["certificate-authority-data"])?;
        Ok((ca, decode(&user["client-certificate-data"])?, decode(&user["client-key-data"])?))
    }
}

/// A port with as many free ones after it as there are servers.
fn free_port() -> Result<u16> {
    testkit::free_port_with(u16::try_from(SERVERS)?)
}
