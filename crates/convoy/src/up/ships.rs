//! The servers of `convoy up`, in this process, on one store.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use futures_util::future::join_all;
use meta::Release;
use store::{SharedClock, SharedStore};

use super::balance::Balance;
use crate::{
    embed::{Keep, Options, Server},
    failure::Failure,
};

/// What all servers have in common.
pub(super) struct Harbour {
    pub(super) store: SharedStore,
    pub(super) clock: SharedClock,
    pub(super) cert_dir: PathBuf,
    pub(super) bind_address: IpAddr,
    pub(super) ports: Vec<u16>,
}

/// The servers.
pub(super) struct Ships {
    harbour: Harbour,
    balance: Balance,
    ships: Vec<Ship>,
}

struct Ship {
    /// `None` while it is being replaced.
    server: Option<Server>,
    release: Release,
}

impl Ships {
    /// Starts all of them, the first one alone: it makes what a cluster must have.
    pub(super) async fn start(harbour: Harbour, balance: Balance, release: Release) -> Result<Self, Failure> {
        let mut ships = Self { harbour, balance, ships: Vec::new() };
        let first = ships.launch(0, release).await?;
        ships.board(0, first, release);
        let others = (1..ships.harbour.ports.len()).map(|at| ships.launch(at, release));
        for (n, server) in join_all(others).await.into_iter().enumerate() {
            ships.board(n + 1, server?, release);
        }
        Ok(ships)
    }

    fn board(&mut self, at: usize, server: Server, release: Release) {
        let ship = Ship { server: Some(server), release };
        if at < self.ships.len() {
            self.ships[at] = ship;
        } else {
            self.ships.push(ship);
        }
        self.balance.open(at, true);
    }

    async fn launch(&self, at: usize, release: Release) -> Result<Server, Failure> {
        let Harbour { store, cert_dir, bind_address, ports, .. } = &self.harbour;
        let options = Options {
            keep: Keep::Shared(store.clone()),
            name: self.name(at),
            release,
            listen: Some(SocketAddr::new(*bind_address, ports[at])),
            cert_dir: Some(cert_dir.clone()),
            // The last server of a rollout need not wait for those that were stopped before it.
            flags: vec!["--departure-settle-time=2s".to_owned()],
            ..Options::default()
        };
        Server::start(options).await.map_err(|it| Failure::failed(format!("{}: {it}", self.name(at))))
    }

    pub(super) fn clock(&self) -> &SharedClock {
        &self.harbour.clock
    }

    pub(super) fn len(&self) -> usize {
        self.harbour.ports.len()
    }

    /// `convoy-0`
    pub(super) fn name(&self, at: usize) -> String {
        format!("convoy-{at}")
    }

    /// Where a server listens.
    pub(super) fn url(&self, at: usize) -> String {
        let server = self.ships.get(at).and_then(|it| it.server.as_ref());
        server.and_then(Server::url).unwrap_or_default().to_owned()
    }

    pub(super) fn release(&self, at: usize) -> Release {
        self.ships[at].release
    }

    /// A server that runs.
    pub(super) fn any(&self) -> Option<&Server> {
        self.ships.iter().find_map(|it| it.server.as_ref())
    }

    /// The kubeconfig of a server.
    pub(super) fn kubeconfig(&self, at: usize) -> Option<&str> {
        self.ships.get(at)?.server.as_ref()?.kubeconfig()
    }

    /// Replaces a server by one of another release; says how long it was away. Should that not start, the old release
    /// takes its place again.
    pub(super) async fn replace(&mut self, at: usize, release: Release) -> Result<Duration, Failure> {
        let begin = self.harbour.clock.monotonic();
        let before = self.ships[at].release;
        self.balance.open(at, false);
        if let Some(server) = self.ships[at].server.take() {
            server.stop().await;
        }
        match self.launch(at, release).await {
            Ok(server) => {
                self.board(at, server, release);
                Ok(self.harbour.clock.monotonic().saturating_sub(begin))
            }
            Err(failure) => {
                let again = self.launch(at, before).await?;
                self.board(at, again, before);
                Err(failure)
            }
        }
    }

    /// Stops all of them.
    pub(super) async fn stop(self) {
        let servers = self.ships.into_iter().filter_map(|it| it.server);
        join_all(servers.map(Server::stop)).await;
    }
}
