//! A server inside another process: for tests of controllers and clients.
//!
//! # Guarantees
//! It is the server that `convoy serve` runs, with the same chain, controllers and admission. Several can run in one
//! process. Nothing is left behind: temporary directories go with the [`Server`], tasks end with [`Server::stop`] or,
//! without being waited for, when it is dropped.

use std::{fmt, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use clap::Parser;
use meta::Release;
use server::{listen::Door, local::Local, metrics::Metrics};
use store::{MemoryStore, SharedClock, SharedStore, SystemClock};
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::{
    failure::Failure,
    flags::ServeFlags,
    machine,
    serve::{self, Started},
    settings::Checked,
    storage::Storage,
};

/// How a server is to be. The default is what a test wants.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where objects are kept.
    pub keep: Keep,
    /// What the server is called among several on one store, as `--hostname-override`; any name if empty.
    pub name: String,
    /// The release of Kubernetes to be; the newest by default.
    pub release: Release,
    /// The controllers to run, as `--controllers` lists them; all by default, none if empty.
    pub controllers: String,
    /// Where to listen; port 0 takes any that is free. Without it only this process can reach the server.
    pub listen: Option<SocketAddr>,
    /// Where keys and certificates are, as `--cert-dir`; a directory of its own by default. Servers of one cluster that
    /// are to hand each other requests must listen, and share it.
    pub cert_dir: Option<PathBuf>,
    /// More flags of `convoy serve`, for what has no option here.
    pub flags: Vec<String>,
}

/// Where objects are kept.
#[derive(Clone, Debug)]
pub enum Keep {
    /// In memory.
    Memory,
    /// In the embedded store, in this directory, which stays.
    In(PathBuf),
    /// In a store that several servers in this process share: they are one cluster, of different releases if need be.
    Shared(SharedStore),
}

impl Keep {
    /// In memory, for several servers.
    pub fn shared_memory() -> Self {
        Self::Shared(SharedStore::new(MemoryStore::new(SystemClock::shared())))
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            keep: Keep::Memory,
            name: String::new(),
            release: catalog::LAST_RELEASE,
            controllers: "*".to_owned(),
            listen: None,
            cert_dir: None,
            flags: Vec::new(),
        }
    }
}

/// Why a server did not start: one sentence.
#[derive(Debug)]
pub struct StartError(String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

/// A server that is ready.
pub struct Server {
    /// `None` once it was stopped.
    started: Option<Started>,
    /// Resolves when the controllers have ended.
    controllers: Option<oneshot::Receiver<()>>,
    flags: ServeFlags,
    clock: SharedClock,
    kubeconfig: Option<String>,
    // Keys and certificates; removed last.
    _folder: TempDir,
}

#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    serve: ServeFlags,
}

impl Server {
    /// Starts a server and waits until it is ready.
    pub async fn start(options: Options) -> Result<Self, StartError> {
        Self::start_at(options, SystemClock::shared()).await
    }

    /// The same by another clock than the machine's: tests move it.
    pub async fn start_at(options: Options, clock: SharedClock) -> Result<Self, StartError> {
        let mut server = Self::launch_at(options, clock, None).await?;
        server.ready().await?;
        Ok(server)
    }

    /// The same on a store that is open already, whatever the options say, and stays so.
    pub(crate) async fn start_on(storage: &Arc<Storage>, options: Options) -> Result<Self, StartError> {
        let lent = Some(Storage::Lent(Arc::clone(storage)));
        let mut server = Self::launch_at(options, SystemClock::shared(), lent).await?;
        if let Err(why) = server.ready().await {
            server.crash_and_wait().await;
            return Err(why);
        }
        Ok(server)
    }

    /// Starts a server that answers at once and has yet to become ready; see [`Server::ready`].
    pub async fn launch(options: Options) -> Result<Self, StartError> {
        Self::launch_at(options, SystemClock::shared(), None).await
    }

    async fn launch_at(
        options: Options,
        clock: SharedClock,
        lent: Option<Storage>,
    ) -> Result<Self, StartError> {
        let wrong = |it: &dyn fmt::Display| StartError(it.to_string());
        let folder = tempfile::Builder::new().prefix("convoy-").tempdir().map_err(|it| wrong(&it))?;
        let flags = flags(&options, &folder)?;
        let checked = Checked::of(&flags).map_err(|it| wrong(&it))?;
        // Libraries that look for a process-wide provider find the one that everything here uses.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let listener = match options.listen {
            Some(_) => Some(serve::bind(&flags).map_err(|it| wrong(&it))?),
            None => None,
        };
        let storage = async {
            match (lent, options.keep) {
                (Some(storage), _) => Ok(storage),
                (None, Keep::Memory) => Ok(Storage::Memory(MemoryStore::new(Arc::clone(&clock)))),
                (None, Keep::In(_)) => Storage::open_or_make(&flags.storage, &clock).await,
                (None, Keep::Shared(store)) => Ok(Storage::Shared(store)),
            }
        };
        let open_files = machine::raise_open_files();
        let started = serve::start(&flags, checked, storage, listener, open_files, &clock).await;
        let started = started.map_err(|it| wrong(&it))?;
        // In memory alone: a process that is killed leaves no keys behind but those that it was told where to keep.
        let kubeconfig = started.kubeconfig().map_err(|it| wrong(&it))?.filter(|_| options.listen.is_some());
        Ok(Self { started: Some(started), controllers: None, flags, clock, kubeconfig, _folder: folder })
    }

    /// Joins the other servers on its store, if any, and waits until this one is ready; or says why it may not be.
    pub async fn ready(&mut self) -> Result<(), StartError> {
        let ended = self.started().finish(&self.flags, &self.clock).await;
        self.controllers = Some(ended.map_err(|it| StartError(it.to_string()))?);
        Ok(())
    }

    /// A client inside this process, with all rights and `default` as its namespace.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.started().server.local(), "default")
    }

    /// A client inside this process that is somebody; what it may do is up to RBAC.
    pub fn client_as(&self, user: &str, groups: &[&str]) -> kube::Client {
        let mut user = access::User::named(user);
        user.groups = groups.iter().map(|it| (*it).to_owned()).collect();
        user.add_authenticated_group();
        kube::Client::new(Local::new(self.started().server.chain(), user), "default")
    }

    /// What this server knows of the others.
    pub fn status(&self) -> station::View {
        self.started().server.registry().station().view()
    }

    /// Says whether `/readyz` passes; it does not once the server has gone.
    pub(crate) fn readiness(&self) -> impl Fn() -> bool + Send + 'static {
        let chain = Arc::downgrade(&self.started().server.chain());
        move || chain.upgrade().is_some_and(|it| it.is_ready())
    }

    /// Ends when only a new server helps, and says why.
    pub(crate) fn broken(&self) -> impl Future<Output = String> + Send + 'static {
        self.started().broken()
    }

    /// Where others of this process hand it connections, if it listens.
    pub(crate) fn door(&self) -> Option<Door> {
        self.started().door.clone()
    }

    /// What it counts.
    pub(crate) fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.started().metrics)
    }

    /// The URL, if it listens.
    pub fn url(&self) -> Option<&str> {
        self.kubeconfig.as_ref().map(|_| self.started().url.as_str())
    }

    /// An administrator's kubeconfig, if it listens, as it was when the server started.
    pub fn kubeconfig(&self) -> Option<&str> {
        self.kubeconfig.as_deref()
    }

    /// The same as of now: certificates are renewed while the server runs.
    pub(crate) fn kubeconfig_now(&self) -> Result<Option<String>, Failure> {
        match self.kubeconfig {
            Some(_) => self.started().kubeconfig(),
            None => Ok(None),
        }
    }

    /// Waits until the webhooks that are stored now are the ones that are called.
    pub async fn webhooks_settled(&self) {
        self.started().server.webhooks_settled().await;
    }

    /// Finishes what is being answered, ends all tasks and removes what was made for this server.
    pub async fn stop(mut self) {
        if let Some(started) = self.started.take() {
            // Without controllers there is nothing to wait for.
            let ended = self.controllers.take().unwrap_or_else(|| oneshot::channel().1);
            serve::drain(started, Duration::ZERO, &self.clock, ended).await;
        }
    }

    /// Ends everything at once, as a crash would: nothing is finished and the others are not told.
    pub fn crash(mut self) {
        if let Some(started) = self.started.take() {
            started.abandon();
        }
    }

    /// The same, and waits until its address is free again.
    async fn crash_and_wait(mut self) {
        if let Some(started) = self.started.take() {
            started.end_at_once().await;
        }
    }

    fn started(&self) -> &Started {
        self.started.as_ref().expect("only stopping takes the server, and consumes this")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(started) = &self.started {
            started.abandon();
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("url", &self.url()).finish_non_exhaustive()
    }
}

fn flags(options: &Options, folder: &TempDir) -> Result<ServeFlags, StartError> {
    let path = |name: &str| folder.path().join(name).display().to_string();
    let listen = options.listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
    let data = match &options.keep {
        Keep::Memory | Keep::Shared(_) => path("data"),
        Keep::In(folder) => folder.display().to_string(),
    };
    let cert_dir = options.cert_dir.as_ref().map_or_else(|| path("pki"), |it| it.display().to_string());
    // Servers on one store must not have the same name.
    let name = match options.name.as_str() {
        "" => format!("embedded-{:08x}", rand::random::<u32>()),
        name => name.to_owned(),
    };
    let mut args = vec![
        "convoy".to_owned(),
        format!("--data-dir={data}"),
        format!("--cert-dir={}", cert_dir),
        format!("--bind-address={}", listen.ip()),
        format!("--secure-port={}", listen.port()),
        format!("--emulated-version={}", options.release),
        format!("--controllers={}", options.controllers),
        format!("--hostname-override={name}"),
    ];
    args.extend(options.flags.iter().cloned());
    Flags::try_parse_from(args).map(|it| it.serve).map_err(|it| StartError(it.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process may start thousands of servers, one after the other: in tests, or `convoy up` that is rolled.
    #[tokio::test]
    async fn a_server_that_has_stopped_is_forgotten() {
        let server = Server::start(Options::default()).await.unwrap();
        let registry = Arc::downgrade(server.started().server.registry());
        assert!(server.client().apiserver_version().await.is_ok());
        server.stop().await;
        for _ in 0..500 {
            if registry.strong_count() == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{} hold it still", registry.strong_count());
    }
}
