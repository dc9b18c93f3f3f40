//! Three members of etcd, of which at most one is away at a time.

use anyhow::Result;
use store::{SharedStore, SystemClock};
use store_etcd::{EtcdConfig, EtcdStore};
use testkit::etcd::Etcd;

pub struct Trio {
    pub members: Vec<Etcd>,
    away: Option<usize>,
}

impl Trio {
    pub async fn start() -> Result<Self> {
        Ok(Self { members: Etcd::start_cluster(3).await?, away: None })
    }

    /// The store as it is, past everything that is put between it and the servers.
    pub async fn store(&self) -> Result<SharedStore> {
        let urls = self.members.iter().map(Etcd::url).collect();
        Ok(SharedStore::new(EtcdStore::connect(EtcdConfig::new(urls, SystemClock::shared())).await?))
    }

    async fn leader(&self) -> usize {
        for (n, member) in self.members.iter().enumerate() {
            if member.is_leader().await {
                return n;
            }
        }
        // They are just choosing one: any of them will do.
        0
    }

    pub async fn kill_leader(&mut self) -> Result<()> {
        let leader = self.leader().await;
        self.away = Some(leader);
        self.members[leader].kill9()
    }

    pub async fn pause_leader(&mut self) -> Result<()> {
        let leader = self.leader().await;
        self.away = Some(leader);
        self.members[leader].pause()
    }

    pub fn pause(&mut self, member: usize) -> Result<()> {
        self.away = Some(member);
        self.members[member].pause()
    }

    pub async fn restart(&mut self) -> Result<()> {
        match self.away.take() {
            Some(n) => self.members[n].restart().await,
            None => Ok(()),
        }
    }

    pub fn resume(&mut self) -> Result<()> {
        self.away.take().map_or(Ok(()), |n| self.members[n].resume())
    }
}
