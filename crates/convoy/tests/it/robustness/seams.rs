//! Three servers in this process, where the seams are: the store's connection, the disk below it, and all clocks.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, anyhow, bail};
use convoy::{Keep, Options, Release, Server, SharedClock, SharedStore};
use parking_lot::RwLock;
use store::fault::{Cut, FaultStore, Faults};
use store_embedded::{DiskFaults, EmbeddedStore};
use tempfile::TempDir;
use testkit::{
    client::read_kubeconfig,
    convoy::{ADMIN_TOKEN, USER_TOKEN},
};

use super::{
    clocks::MovedClock,
    cluster::{Gauge, WITHOUT_JOBS},
    doors::{Doors, Key},
    faults::{Fault, Kind, SERVERS},
    trio::Trio,
    unfenced::{Forgets, Unfenced},
};

/// Longer than a server takes to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

pub struct Seams {
    ships: Vec<Option<Ship>>,
    minors: [u16; SERVERS],
    clocks: Vec<Arc<MovedClock>>,
    pub doors: Arc<Doors>,
    ground: Ground,
    pub gauge: Gauge,
    fence: Fence,
    controllers: &'static str,
    home: TempDir,
}

/// Whether servers prove what they put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    Kept,
    Removed,
    /// They do, but removals and creates do not require what justifies them.
    WithoutGrounds,
}

/// Where everything is kept.
pub enum Ground {
    Embedded { store: EmbeddedStore, disk: DiskFaults, clock: Arc<MovedClock>, folder: TempDir },
    Etcd(Trio),
}

struct Ship {
    server: Server,
    faults: Faults,
}

const ON_EMBEDDED: &[Kind] = &[
    Kind::Kill,
    Kind::Stop,
    Kind::Roll,
    Kind::Roll,
    Kind::Sleep,
    Kind::SleepInCommit,
    Kind::SleepInCommit,
    Kind::CutOff,
    Kind::AnswersLost,
    Kind::SlowStore,
    Kind::ClockSet,
    Kind::ClockLeap,
    Kind::Suspend,
    Kind::CutClients,
    Kind::Flip,
    Kind::Flip,
    Kind::SlowDisk,
    Kind::FullDisk,
    Kind::LeasesEnd,
];

const ON_ETCD: &[Kind] = &[
    Kind::Kill,
    Kind::Stop,
    Kind::Roll,
    Kind::Roll,
    Kind::Sleep,
    Kind::SleepInCommit,
    Kind::SleepInCommit,
    Kind::CutOff,
    Kind::AnswersLost,
    Kind::SlowStore,
    Kind::ClockSet,
    Kind::ClockLeap,
    Kind::Suspend,
    Kind::CutClients,
    Kind::Flip,
    Kind::Flip,
    Kind::LeaderKilled,
    Kind::LeaderAsleep,
    Kind::MemberAsleep,
];

impl Ground {
    pub fn embedded() -> Result<Self> {
        let (folder, disk, clock) = (tempfile::tempdir()?, DiskFaults::default(), MovedClock::shared());
        let store = open(&folder, &disk, &clock)?;
        Ok(Self::Embedded { store, disk, clock, folder })
    }

    pub async fn etcd() -> Result<Self> {
        Ok(Self::Etcd(Trio::start().await?))
    }

    async fn store(&self) -> Result<SharedStore> {
        match self {
            Self::Embedded { store, .. } => Ok(SharedStore::new(store.clone())),
            Self::Etcd(trio) => trio.store().await,
        }
    }
}

fn open(folder: &TempDir, disk: &DiskFaults, clock: &Arc<MovedClock>) -> Result<EmbeddedStore> {
    let clock: SharedClock = Arc::<MovedClock>::clone(clock);
    // The whole history is read in the end.
    let options =
        store_embedded::Options { compaction_interval: None, ..store_embedded::Options::new(clock) };
    Ok(EmbeddedStore::open_with_faults(folder.path(), options, disk)?)
}

impl Seams {
    pub async fn start(ground: Ground, fence: Fence, controllers: &'static str) -> Result<Self> {
        let home = tempfile::tempdir()?;
        let tokens = format!("{ADMIN_TOKEN},admin,1,\"system:masters\"\n{USER_TOKEN},user,2\n");
        std::fs::write(home.path().join("tokens.csv"), tokens)?;
        let gauge = Arc::new(RwLock::new(Some(ground.store().await?)));
        let clocks = (0..SERVERS).map(|_| MovedClock::shared()).collect();
        // Nobody goes through doors before they lead somewhere.
        let doors = Arc::new(Doors::open(&[], Vec::new(), Key::Token).await?);
        let ships = (0..SERVERS).map(|_| None).collect();
        let minors = [34; SERVERS];
        let mut seams = Self { ships, minors, clocks, doors, ground, gauge, fence, controllers, home };
        for n in 0..SERVERS {
            seams.launch(n).await?;
        }
        let ports = seams.ships.iter().flatten().map(|it| it.server.url().map(port).unwrap_or_default());
        let ports: Vec<u16> = ports.collect();
        let ship = seams.ships[0].as_ref().context("it was just started")?;
        let kubeconfig = seams.home.path().join("kubeconfig");
        std::fs::write(&kubeconfig, ship.server.kubeconfig().unwrap_or_default())?;
        let (_, ca) = read_kubeconfig(&kubeconfig)?;
        seams.doors = Arc::new(Doors::open(&ports, ca, Key::Token).await?);
        Ok(seams)
    }

    pub async fn begin(&mut self, fault: &Fault) -> Result<()> {
        match fault {
            Fault::Kill(n) => self.crash(*n)?,
            Fault::Stop(n) => self.stop(*n).await?,
            Fault::Roll(n, minor) => {
                self.stop(*n).await?;
                self.minors[*n] = *minor;
                self.launch(*n).await?;
            }
            Fault::Sleep(n) => self.faults(*n)?.pause(),
            Fault::SleepInCommit(n) => self.faults(*n)?.pause_at_next_commit(),
            Fault::CutOff(n) => self.faults(*n)?.cut(Cut::Unsent),
            Fault::AnswersLost(n) => self.faults(*n)?.cut(Cut::AnswerLost),
            Fault::SlowStore(n, millis) => self.faults(*n)?.delay(Duration::from_millis(*millis)),
            Fault::ClockSet(n, seconds) => self.clocks[*n].set(*seconds),
            Fault::ClockLeap(n, seconds) => self.clocks[*n].leap(*seconds),
            Fault::Suspend(n) => {
                self.clocks[*n].stop();
                self.faults(*n)?.pause();
            }
            around => self.begin_around(around).await?,
        }
        Ok(())
    }

    async fn begin_around(&mut self, fault: &Fault) -> Result<()> {
        match (&mut self.ground, fault) {
            (Ground::Etcd(trio), Fault::LeaderKilled) => trio.kill_leader().await?,
            (Ground::Etcd(trio), Fault::LeaderAsleep) => trio.pause_leader().await?,
            (Ground::Etcd(trio), Fault::MemberAsleep(n)) => trio.pause(*n)?,
            (Ground::Embedded { disk, .. }, Fault::SlowDisk(millis)) => {
                disk.slow(Duration::from_millis(*millis));
            }
            (Ground::Embedded { disk, .. }, Fault::FullDisk) => disk.fill(),
            (Ground::Embedded { clock, .. }, Fault::LeasesEnd(seconds)) => clock.leap(*seconds),
            (_, other) => bail!("servers in this process know no {other:?} on their store"),
        }
        Ok(())
    }

    pub async fn end(&mut self, fault: &Fault) -> Result<()> {
        match fault {
            Fault::Kill(n) | Fault::Stop(n) => self.launch(*n).await?,
            Fault::Sleep(n) | Fault::SleepInCommit(n) => self.faults(*n)?.resume(),
            Fault::CutOff(n) | Fault::AnswersLost(n) => self.faults(*n)?.heal(),
            Fault::SlowStore(n, _) => self.faults(*n)?.delay(Duration::ZERO),
            Fault::Suspend(n) => {
                self.clocks[*n].go_on();
                self.faults(*n)?.resume();
            }
            Fault::FullDisk => self.after_a_full_disk().await?,
            around => match (&mut self.ground, around) {
                (Ground::Etcd(trio), Fault::LeaderKilled) => trio.restart().await?,
                (Ground::Etcd(trio), Fault::LeaderAsleep | Fault::MemberAsleep(_)) => trio.resume()?,
                (Ground::Embedded { disk, .. }, Fault::SlowDisk(_)) => disk.slow(Duration::ZERO),
                (_, other) => bail!("servers in this process know no end of {other:?}"),
            },
        }
        Ok(())
    }

    /// The disk has space again: the process that noticed is replaced.
    async fn after_a_full_disk(&mut self) -> Result<()> {
        for n in 0..SERVERS {
            self.crash(n)?;
        }
        let Ground::Embedded { store, disk, clock, folder } = &mut self.ground else {
            bail!("only the embedded store has a disk of its own");
        };
        store.close().await;
        disk.free();
        *store = open(folder, disk, clock)?;
        *self.gauge.write() = Some(SharedStore::new(store.clone()));
        for n in 0..SERVERS {
            self.launch(n).await?;
        }
        Ok(())
    }

    pub fn kinds(&self) -> &'static [Kind] {
        match &self.ground {
            Ground::Embedded { .. } => ON_EMBEDDED,
            Ground::Etcd(_) => ON_ETCD,
        }
    }

    pub fn store(&self) -> Result<SharedStore> {
        self.gauge.read().clone().context("there must be a store")
    }

    fn faults(&self, n: usize) -> Result<&Faults> {
        Ok(&self.ships[n].as_ref().context("it must run")?.faults)
    }

    /// The connections of a process end with it; those of a server in this process need help.
    fn crash(&mut self, n: usize) -> Result<()> {
        self.ships[n].take().context("it must run")?.server.crash();
        self.doors.sever(n);
        Ok(())
    }

    async fn stop(&mut self, n: usize) -> Result<()> {
        self.ships[n].take().context("it must run")?.server.stop().await;
        Ok(())
    }

    async fn launch(&mut self, n: usize) -> Result<()> {
        let clock: SharedClock = Arc::<MovedClock>::clone(&self.clocks[n]);
        let store = match self.fence {
            Fence::Kept => self.store()?,
            Fence::Removed => SharedStore::new(Unfenced { store: self.store()?, forgets: Forgets::Fence }),
            Fence::WithoutGrounds => {
                SharedStore::new(Unfenced { store: self.store()?, forgets: Forgets::Grounds })
            }
        };
        let (store, faults) = FaultStore::new(store, Arc::clone(&clock));
        let mut flags = vec![
            "--member-lease-duration=1s".to_owned(),
            "--departure-settle-time=300ms".to_owned(),
            format!("--token-auth-file={}", self.home.path().join("tokens.csv").display()),
        ];
        if n == WITHOUT_JOBS {
            flags.push("--runtime-config=batch/v1=false".to_owned());
        }
        let options = Options {
            keep: Keep::Shared(SharedStore::new(store)),
            name: format!("server-{n}"),
            release: Release::v1(self.minors[n]),
            controllers: self.controllers.to_owned(),
            listen: Some(([127, 0, 0, 1], 0).into()),
            cert_dir: Some(self.home.path().join("certs")),
            flags,
        };
        let started = tokio::time::timeout(PATIENCE, Server::start_at(options, clock)).await;
        let server = started.with_context(|| format!("server {n} did not start in time"))?;
        let server = server.map_err(|it| anyhow!("server {n}: {it}"))?;
        if n < self.doors.len() {
            self.doors.leads_to(n, server.url().map(port).unwrap_or_default());
        }
        self.ships[n] = Some(Ship { server, faults });
        Ok(())
    }
}

fn port(url: &str) -> u16 {
    url.trim_end_matches('/').rsplit_once(':').and_then(|it| it.1.parse().ok()).unwrap_or_default()
}

#[tokio::test]
async fn a_full_disk_stops_writes_until_the_store_is_opened_anew() -> Result<()> {
    use store::{Key, Store, Txn};
    let (folder, disk, clock) = (tempfile::tempdir()?, DiskFaults::default(), MovedClock::shared());
    let store = open(&folder, &disk, &clock)?;
    let put = |value: &'static str| Txn::new().put(&Key::new("/k"), value.into());
    store.commit(put("kept")).await?;
    disk.fill();
    assert!(store.commit(put("lost")).await.is_err());
    assert_eq!(store.get(&Key::new("/k")).await?.context("it was acknowledged")?.value, "kept");
    disk.free();
    store.commit(put("taken")).await?;
    store.close().await;
    let store = open(&folder, &disk, &clock)?;
    assert_eq!(store.get(&Key::new("/k")).await?.context("it was acknowledged")?.value, "taken");
    store.commit(put("new")).await?;
    Ok(())
}
