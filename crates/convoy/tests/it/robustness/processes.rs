//! Three `convoy serve` on three members of etcd, all processes; each server has lines of its own to the members.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, bail};
use parking_lot::RwLock;
use store::SharedStore;
use testkit::{Convoy, Options, line::Line, tools};

use super::{
    cluster::{Gauge, WITHOUT_JOBS},
    doors::{Doors, Key},
    faults::{Fault, Kind, SERVERS},
    trio::Trio,
};
use crate::fixture::BINARY;

/// Longer than a server takes to finish what it does.
const STOP_LIMIT: Duration = Duration::from_secs(60);

pub struct Processes {
    servers: Vec<Convoy>,
    pub doors: Arc<Doors>,
    pub gauge: Gauge,
    /// By server, then by member.
    lines: Vec<Vec<Line>>,
    trio: Trio,
    certs: tempfile::TempDir,
    controllers: &'static str,
}

pub const KINDS: &[Kind] = &[
    Kind::Kill,
    Kind::Stop,
    Kind::Roll,
    Kind::Roll,
    Kind::Sleep,
    Kind::Sleep,
    Kind::CutOff,
    Kind::AnswersHeld,
    Kind::SlowStore,
    Kind::CutClients,
    Kind::Flip,
    Kind::Flip,
    Kind::LeaderKilled,
    Kind::LeaderAsleep,
    Kind::MemberAsleep,
];

impl Processes {
    pub async fn start(controllers: &'static str) -> Result<Self> {
        let trio = Trio::start().await?;
        let certs = tempfile::tempdir()?;
        let (mut servers, mut lines) = (Vec::new(), Vec::new());
        for n in 0..SERVERS {
            let mut own = Vec::new();
            for member in &trio.members {
                own.push(Line::to(member.port()).await?);
            }
            servers.push(Convoy::start(options(&own, certs.path(), n, 34, controllers)).await?);
            lines.push(own);
        }
        let ports: Vec<u16> = servers.iter().map(Convoy::port).collect();
        let doors = Arc::new(Doors::open(&ports, servers[0].ca().to_vec(), Key::Token).await?);
        let gauge = Arc::new(RwLock::new(Some(trio.store().await?)));
        Ok(Self { servers, doors, gauge, lines, trio, certs, controllers })
    }

    pub async fn begin(&mut self, fault: &Fault) -> Result<()> {
        match fault {
            Fault::Kill(n) => self.servers[*n].kill9(),
            Fault::Stop(n) => self.stop(*n).await,
            Fault::Roll(n, minor) => {
                self.stop(*n).await?;
                let options = options(&self.lines[*n], self.certs.path(), *n, *minor, self.controllers);
                *self.servers[*n].options_mut() = options;
                self.servers[*n].start_again().await
            }
            Fault::Sleep(n) => self.servers[*n].pause(),
            Fault::CutOff(n) => {
                self.lines[*n].iter().for_each(Line::cut);
                Ok(())
            }
            Fault::AnswersHeld(n) => {
                self.lines[*n].iter().for_each(Line::hold_answers);
                Ok(())
            }
            Fault::SlowStore(n, millis) => {
                self.lines[*n].iter().for_each(|it| it.away(Duration::from_millis(*millis)));
                Ok(())
            }
            Fault::MemberAsleep(n) => self.trio.pause(*n),
            Fault::LeaderKilled if !tools::etcd_may_be_killed("killing the leader of etcd") => {
                self.trio.pause_leader().await
            }
            Fault::LeaderKilled => self.trio.kill_leader().await,
            Fault::LeaderAsleep => self.trio.pause_leader().await,
            other => bail!("processes on etcd know no {other:?}"),
        }
    }

    pub async fn end(&mut self, fault: &Fault) -> Result<()> {
        match fault {
            Fault::Kill(n) | Fault::Stop(n) => self.servers[*n].start_again().await,
            Fault::Sleep(n) => self.servers[*n].resume(),
            Fault::CutOff(n) => {
                self.lines[*n].iter().for_each(Line::mend);
                Ok(())
            }
            Fault::AnswersHeld(n) => {
                self.lines[*n].iter().for_each(Line::release_answers);
                Ok(())
            }
            Fault::SlowStore(n, _) => {
                self.lines[*n].iter().for_each(|it| it.away(Duration::ZERO));
                Ok(())
            }
            Fault::LeaderKilled if !tools::etcd_may_be_killed("killing the leader of etcd") => {
                self.trio.resume()
            }
            Fault::LeaderKilled => self.trio.restart().await,
            Fault::LeaderAsleep | Fault::MemberAsleep(_) => self.trio.resume(),
            other => bail!("processes on etcd know no end of {other:?}"),
        }
    }

    pub async fn store(&self) -> Result<SharedStore> {
        self.trio.store().await
    }

    /// What the servers said.
    pub fn logs(&self) -> Vec<String> {
        self.servers.iter().map(Convoy::log).collect()
    }

    async fn stop(&mut self, n: usize) -> Result<()> {
        let ended = self.servers[n].term(STOP_LIMIT).await?;
        if !ended.success() {
            bail!("server {n} ended with {ended}: {}", self.servers[n].log_tail());
        }
        Ok(())
    }
}

fn options(
    lines: &[Line],
    certs: &std::path::Path,
    n: usize,
    minor: u16,
    controllers: &'static str,
) -> Options {
    let members: Vec<String> = lines.iter().map(Line::url).collect();
    let options = Options::etcd(BINARY, &members.join(","), "/registry")
        .certs(certs)
        .flag(&format!("--hostname-override=server-{n}"))
        .flag(&format!("--emulated-version=1.{minor}"))
        .flag("--member-lease-duration=2s")
        .flag("--departure-settle-time=500ms")
        // The whole history is read in the end.
        .flag("--etcd-compaction-interval=0")
        .flag(&format!("--controllers={controllers}"));
    if n == WITHOUT_JOBS { options.flag("--runtime-config=batch/v1=false") } else { options }
}
