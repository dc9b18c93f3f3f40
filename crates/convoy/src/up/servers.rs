//! The servers of `convoy up`, in this process, on one store.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use fleet::Identity;
use futures_util::future::join_all;
use meta::Release;
use store::SharedClock;
use tokio::{sync::mpsc, task::JoinHandle};

use super::{
    balance::{Balance, Condition},
    common::Common,
};
use crate::{
    embed::{Options, Server},
    failure::Failure,
};

/// How often it is looked whether servers are ready.
const LOOK: Duration = Duration::from_millis(100);

/// Between two attempts to start a server where one is missing.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The servers.
pub(super) struct Servers {
    common: Common,
    balance: Balance,
    slots: Vec<Slot>,
    /// Who must be replaced.
    broken: (mpsc::UnboundedSender<Broken>, mpsc::UnboundedReceiver<Broken>),
    n_launched: u64,
    /// What servers that were stopped have counted.
    n_rerouted: u64,
}

struct Slot {
    /// `None` while it is being replaced, and after that if nothing started in its place.
    server: Option<Running>,
    release: Release,
    /// How often nothing started in its place, and what tries it again.
    n_failures: u32,
    retry: Option<Follow>,
}

impl Slot {
    fn empty(release: Release) -> Self {
        Self { server: None, release, n_failures: 0, retry: None }
    }
}

struct Running {
    server: Server,
    /// No other server of this process has or had it.
    number: u64,
    follow: Follow,
}

/// Looks after a server, or a place without one, until it is dropped.
struct Follow(JoinHandle<()>);

/// A server that only a new one can help, or a place without one.
pub(super) struct Broken {
    at: usize,
    /// Whose; nobody's if the place is empty.
    number: Option<u64>,
    why: String,
}

impl Follow {
    async fn end(mut self) {
        self.0.abort();
        let _ = (&mut self.0).await;
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Servers {
    /// Starts all of them, the first one alone: it makes what a cluster must have.
    pub(super) async fn start(common: Common, balance: Balance, release: Release) -> Result<Self, Failure> {
        let slots = common.ports.iter().map(|_| Slot::empty(release)).collect();
        let broken = mpsc::unbounded_channel();
        let mut servers = Self { common, balance, slots, broken, n_launched: 0, n_rerouted: 0 };
        let first = servers.launch(0, release).await?;
        servers.install(0, first, release);
        let others = (1..servers.len()).map(|at| servers.launch(at, release));
        for (n, server) in join_all(others).await.into_iter().enumerate() {
            servers.install(n + 1, server?, release);
        }
        servers.common.remembered.write(release);
        Ok(servers)
    }

    fn install(&mut self, at: usize, server: Server, release: Release) {
        self.n_launched += 1;
        self.balance.install(at, server.door());
        self.balance.set(at, Condition::Ready);
        let (balance, broken, number) = (self.balance.clone(), self.broken.0.clone(), self.n_launched);
        let (is_ready, ended) = (server.readiness(), server.broken());
        let look = async move {
            loop {
                tokio::time::sleep(LOOK).await;
                balance.set(at, if is_ready() { Condition::Ready } else { Condition::Unready });
            }
        };
        let follow = tokio::spawn(async move {
            tokio::select! {
                () = look => {}
                why = ended => drop(broken.send(Broken { at, number: Some(number), why })),
            }
        });
        let running = Running { server, number, follow: Follow(follow) };
        self.slots[at] = Slot { server: Some(running), ..Slot::empty(release) };
    }

    async fn launch(&self, at: usize, release: Release) -> Result<Server, Failure> {
        let Common { storage, cert_dir, bind_address, ports, tls_san, .. } = &self.common;
        // The last server of a rollout need not wait for those that were stopped before it.
        let mut flags = vec!["--departure-settle-time=2s".to_owned()];
        flags.extend(tls_san.iter().map(|it| format!("--tls-san={it}")));
        let options = Options {
            name: self.name(at),
            release,
            listen: Some(SocketAddr::new(*bind_address, ports[at])),
            cert_dir: Some(cert_dir.clone()),
            flags,
            ..Options::default()
        };
        let started = Server::start_on(storage, options).await;
        started.map_err(|it| Failure::failed(format!("{}: {it}", self.name(at))))
    }

    pub(super) fn clock(&self) -> &SharedClock {
        &self.common.clock
    }

    pub(super) fn len(&self) -> usize {
        self.common.ports.len()
    }

    /// `convoy-0`
    pub(super) fn name(&self, at: usize) -> String {
        format!("convoy-{at}")
    }

    /// The names by the identities that the servers know each other by.
    pub(super) fn names(&self) -> BTreeMap<Identity, String> {
        (0..self.len()).map(|at| self.name(at)).map(|it| (Identity::of_host(&it), it)).collect()
    }

    /// Where a server listens.
    pub(super) fn url(&self, at: usize) -> String {
        self.server(at).and_then(Server::url).unwrap_or_default().to_owned()
    }

    pub(super) fn release(&self, at: usize) -> Release {
        self.slots[at].release
    }

    /// Whether a server is there.
    pub(super) fn runs(&self, at: usize) -> bool {
        self.slots[at].server.is_some()
    }

    fn server(&self, at: usize) -> Option<&Server> {
        self.slots.get(at)?.server.as_ref().map(|it| &it.server)
    }

    /// A server that runs, a ready one if there is one.
    pub(super) fn any(&self) -> Option<&Server> {
        let running = || (0..self.len()).filter_map(|at| self.server(at));
        running().find(|it| it.readiness()()).or_else(|| running().next())
    }

    /// The kubeconfig of a server that runs, as of now; they differ in nothing but the address.
    pub(super) fn kubeconfig(&self) -> Result<Option<String>, Failure> {
        self.any().map_or(Ok(None), Server::kubeconfig_now)
    }

    /// How many requests servers have asked each other to answer.
    pub(super) fn n_rerouted(&self) -> u64 {
        let now = (0..self.len()).filter_map(|at| self.server(at)).map(|it| it.metrics().n_rerouted());
        self.n_rerouted + now.sum::<u64>()
    }

    /// Replaces a server by one of another release; says how long it was away. Should that not start, the old release
    /// takes its place again, now or later.
    pub(super) async fn replace(&mut self, at: usize, release: Release) -> Result<Duration, Failure> {
        let begin = self.common.clock.monotonic();
        let before = self.slots[at].release;
        if let Some(Running { server, number: _, follow }) = self.slots[at].server.take() {
            // First, so that nobody calls it ready again.
            follow.end().await;
            self.balance.set(at, Condition::Closed);
            let metrics = server.metrics();
            server.stop().await;
            self.n_rerouted += metrics.n_rerouted();
        }
        let is_last = (0..self.len()).all(|it| it == at || self.slots[it].release == release);
        if is_last && release > before {
            // From its vote on there may be something stored that only the newer release can read.
            self.common.remembered.write(release);
        }
        match self.launch(at, release).await {
            Ok(server) => {
                self.install(at, server, release);
                if is_last {
                    self.common.remembered.write(release);
                }
                Ok(self.common.clock.monotonic().saturating_sub(begin))
            }
            Err(failure) if release == before => {
                self.try_again(at);
                Err(failure)
            }
            Err(failure) => match self.launch(at, before).await {
                Ok(again) => {
                    self.install(at, again, before);
                    if is_last && release > before {
                        self.common.remembered.write(before);
                    }
                    Err(failure)
                }
                Err(also) => {
                    self.try_again(at);
                    Err(Failure { message: format!("{failure}; back at {before}: {also}"), ..failure })
                }
            },
        }
    }

    /// Waits for a server that only a new one can help.
    pub(super) async fn broken(&mut self) -> Broken {
        loop {
            match self.broken.1.recv().await {
                Some(it) if self.slots[it.at].server.as_ref().map(|now| now.number) == it.number => {
                    return it;
                }
                // It has been replaced since.
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Replaces such a server. If nothing starts in its place, it is tried again later, for as long as it takes.
    pub(super) async fn mend(&mut self, Broken { at, number: _, why }: Broken) {
        let name = self.name(at);
        tracing::warn!("{name} is replaced: {why}");
        if let Err(failure) = self.common.renew_storage().await {
            tracing::warn!("the store cannot be opened again: {failure}");
        }
        let release = self.slots[at].release;
        if let Err(failure) = self.replace(at, release).await {
            let pause = pause(self.slots[at].n_failures);
            tracing::warn!("{name} could not be replaced, again in {pause:?}: {failure}");
        }
    }

    /// Has an empty place looked after a little later.
    fn try_again(&mut self, at: usize) {
        let (broken, slot) = (self.broken.0.clone(), &mut self.slots[at]);
        slot.n_failures = slot.n_failures.saturating_add(1);
        let pause = pause(slot.n_failures);
        slot.retry = Some(Follow(tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let why = "nothing started in its place".to_owned();
            let _ = broken.send(Broken { at, number: None, why });
        })));
    }

    /// Stops all of them.
    pub(super) async fn stop(self) {
        let servers = self.slots.into_iter().filter_map(|it| it.server);
        join_all(servers.map(|it| it.server.stop())).await;
        self.common.tasks.stop();
    }
}

/// How long to wait after so many failures: longer each time.
fn pause(n_failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << n_failures.saturating_sub(1).min(16)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end_growing() {
        let pauses: Vec<u64> = [1, 2, 3, 5, 6, 1_000].map(|it| pause(it).as_secs()).to_vec();
        assert_eq!(pauses, [1, 2, 4, 16, 30, 30]);
    }
}
