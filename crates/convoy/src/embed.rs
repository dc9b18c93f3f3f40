//! A server inside another process: for tests of controllers and clients.
//!
//! # Guarantees
//! It is the server that `convoy serve` runs, with the same chain, controllers and admission. Several can run in one
//! process. Nothing is left behind: temporary directories go with the [`Server`], tasks end with [`Server::stop`] or,
//! without being waited for, when it is dropped.

use std::{fmt, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use clap::Parser;
use meta::Release;
use server::local::Local;
use store::{MemoryStore, SharedClock, SystemClock};
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::{
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
    /// The release of Kubernetes to be; the newest by default.
    pub release: Release,
    /// The controllers to run, as `--controllers` lists them; all by default, none if empty.
    pub controllers: String,
    /// Where to listen; port 0 takes any that is free. Without it only this process can reach the server.
    pub listen: Option<SocketAddr>,
    /// More flags of `convoy serve`, for what has no option here.
    pub flags: Vec<String>,
}

/// Where objects are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keep {
    /// In memory.
    Memory,
    /// In the embedded store, in this directory, which stays.
    In(PathBuf),
}

impl Default for Options {
    fn default() -> Self {
        Self {
            keep: Keep::Memory,
            release: catalog::LAST_RELEASE,
            controllers: "*".to_owned(),
            listen: None,
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
        let wrong = |it: &dyn fmt::Display| StartError(it.to_string());
        let folder = tempfile::Builder::new().prefix("convoy-").tempdir().map_err(|it| wrong(&it))?;
        let flags = flags(&options, &folder)?;
        let checked = Checked::of(&flags).map_err(|it| wrong(&it))?;
        // Libraries that look for a process-wide provider find the one that everything here uses.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let clock: SharedClock = SystemClock::shared();
        let listener = match options.listen {
            Some(_) => Some(serve::bind(&flags).map_err(|it| wrong(&it))?),
            None => None,
        };
        let storage = async {
            match options.keep {
                Keep::Memory => Ok(Storage::Memory(MemoryStore::new(Arc::clone(&clock)))),
                Keep::In(_) => Storage::open(&flags.storage, &clock).await,
            }
        };
        let open_files = machine::raise_open_files();
        let started = serve::start(&flags, checked, storage, listener, open_files, &clock).await;
        let started = started.map_err(|it| wrong(&it))?;
        let mut server =
            Self { started: Some(started), controllers: None, clock, kubeconfig: None, _folder: folder };
        let ended = server.started().finish(&flags, &server.clock).await.map_err(|it| wrong(&it))?;
        server.controllers = Some(ended);
        if let Some(path) = &flags.serving.write_kubeconfig {
            server.kubeconfig = Some(std::fs::read_to_string(path).map_err(|it| wrong(&it))?);
        }
        Ok(server)
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

    /// The URL, if it listens.
    pub fn url(&self) -> Option<&str> {
        self.kubeconfig.as_ref().map(|_| self.started().url.as_str())
    }

    /// An administrator's kubeconfig, if it listens.
    pub fn kubeconfig(&self) -> Option<&str> {
        self.kubeconfig.as_deref()
    }

    /// Waits until the webhooks that are stored now are the ones that are called.
    pub async fn webhooks_settled(&self) {
        self.started().server.webhooks_settled().await;
    }

    /// Finishes what is being answered, ends all tasks and removes what was made for this server.
    pub async fn stop(mut self) {
        if let (Some(started), Some(ended)) = (self.started.take(), self.controllers.take()) {
            serve::drain(started, Duration::ZERO, &self.clock, ended).await;
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
        Keep::Memory => path("data"),
        Keep::In(folder) => folder.display().to_string(),
    };
    let mut args = vec![
        "convoy".to_owned(),
        format!("--data-dir={data}"),
        format!("--cert-dir={}", path("pki")),
        format!("--bind-address={}", listen.ip()),
        format!("--secure-port={}", listen.port()),
        format!("--emulated-version={}", options.release),
        format!("--controllers={}", options.controllers),
    ];
    if options.listen.is_some() {
        args.push(format!("--write-kubeconfig={}", path("kubeconfig")));
    }
    args.extend(options.flags.iter().cloned());
    Flags::try_parse_from(args).map(|it| it.serve).map_err(|it| StartError(it.to_string()))
}
