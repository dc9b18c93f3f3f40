//! Which cluster a command is about: a running server, through a kubeconfig, or a store at rest.

use std::path::PathBuf;

use clap::Args;
use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use store::{SharedClock, SharedStore, SystemClock};

use crate::{
    duration::GoDuration,
    failure::{Exit, Failure},
    flags::{DEFAULT_QUOTA, EtcdFlags, StorageFlags},
    storage::{NotOpened, Storage},
};

/// Where to look.
#[derive(Clone, Debug, Args)]
pub struct ClusterFlags {
    /// Ask the cluster of this kubeconfig [default: $KUBECONFIG, ~/.kube/config, or the pod's own]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["data_dir", "etcd_servers"])]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["data_dir", "etcd_servers"])]
    context: Option<String>,

    /// Read the embedded store in this directory, or ask the server that runs on it through the admin.kubeconfig beside it
    #[arg(long, value_name = "DIR", conflicts_with = "etcd_servers")]
    data_dir: Option<PathBuf>,

    #[command(flatten)]
    etcd: EtcdFlags,
}

/// What the flags lead to.
pub enum Cluster {
    /// A server that answers.
    Running(Box<kube::Client>),
    /// A store that nobody serves from, or that several may read.
    Stored(Storage),
}

impl ClusterFlags {
    /// A cluster that runs.
    pub fn running(kubeconfig: Option<PathBuf>, context: Option<String>) -> Self {
        Self { kubeconfig, context, data_dir: None, etcd: EtcdFlags::none() }
    }

    /// Opens it.
    pub async fn open(&self) -> Result<Cluster, Failure> {
        if self.data_dir.is_none() && self.etcd.etcd_servers.is_empty() {
            return self.connect().await;
        }
        let opened = open_at_rest(self.data_dir.clone(), self.etcd.clone()).await;
        match (opened, self.data_dir.as_ref().map(|it| it.join("admin.kubeconfig"))) {
            (Ok(storage), _) => Ok(Cluster::Stored(storage)),
            // A server runs on it: it wrote a kubeconfig beside its data.
            (Err(NotOpened::InUse(_)), Some(beside)) if beside.exists() => {
                let flags = Self { kubeconfig: Some(beside), ..self.clone() };
                flags.connect().await
            }
            (Err(NotOpened::Missing(failure) | NotOpened::Failed(failure)), Some(beside))
                if beside.exists() =>
            {
                let message =
                    format!("{failure}; to ask a server instead, name --kubeconfig {}", beside.display());
                Err(Failure { message, ..failure })
            }
            (Err(error), _) => Err(error.into()),
        }
    }

    async fn connect(&self) -> Result<Cluster, Failure> {
        let client = kube::Client::try_from(self.config().await?).map_err(|it| Failure::because(&it))?;
        Ok(Cluster::Running(Box::new(client)))
    }

    /// How the cluster is reached.
    pub async fn config(&self) -> Result<kube::Config, Failure> {
        if !self.etcd.etcd_servers.is_empty() {
            return Err(Failure::usage(
                "this needs a running server: name its kubeconfig instead of --etcd-servers",
            ));
        }
        if let (None, Some(folder)) = (&self.kubeconfig, &self.data_dir) {
            let beside = Self { kubeconfig: Some(folder.join("admin.kubeconfig")), ..self.clone() };
            return Box::pin(beside.config()).await;
        }
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let mut config = match (&self.kubeconfig, &self.context) {
            (Some(path), _) => {
                let file = Kubeconfig::read_from(path).map_err(|it| Failure::because(&it))?;
                kube::Config::from_custom_kubeconfig(file, &options)
                    .await
                    .map_err(|it| Failure::because(&it))?
            }
            (None, Some(_)) => {
                kube::Config::from_kubeconfig(&options).await.map_err(|it| Failure::because(&it))?
            }
            (None, None) => kube::Config::infer().await.map_err(|it| Failure::because(&it))?,
        };
        // Servers of several releases send a request to one of this binary's, where there is one.
        let release = catalog::LAST_RELEASE.to_string();
        let release = release.parse().map_err(|it| Failure::because(&it))?;
        config.headers.push((http::HeaderName::from_static(server::COMPATIBILITY), release));
        Ok(config)
    }
}

/// Opens a store to read it.
pub async fn open_at_rest(data_dir: Option<PathBuf>, etcd: EtcdFlags) -> Result<Storage, NotOpened> {
    let flags = StorageFlags {
        data_dir,
        etcd,
        // A command compacts nothing.
        etcd_compaction_interval: GoDuration::from_secs(0),
        quota_backend_bytes: DEFAULT_QUOTA,
        event_ttl: GoDuration::from_secs(3600),
    };
    let clock: SharedClock = SystemClock::shared();
    Storage::open(&flags, &clock).await
}

impl Cluster {
    /// Whether this process has the store alone, so that no server can be running on it.
    pub fn is_exclusive(&self) -> bool {
        matches!(self, Self::Stored(storage) if storage.is_exclusive())
    }

    /// The store, for commands that can only work on one.
    pub fn store(&self) -> Option<SharedStore> {
        match self {
            Self::Running(_) => None,
            Self::Stored(storage) => Some(storage.shared()),
        }
    }
}

/// Asks a server for something outside the resources.
pub async fn ask(client: &kube::Client, method: &str, path: &str, body: Vec<u8>) -> Result<String, Failure> {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let request = request.body(body).map_err(|it| Failure::because(&it))?;
    client.request_text(request).await.map_err(|error| match error {
        kube::Error::Api(status) if status.code == 404 => {
            Failure::failed(format!("{path}: {}; is this a Convoy server?", status.message))
        }
        kube::Error::Api(status) => Failure::failed(status.message.clone()),
        other => Failure::because(&other),
    })
}

/// Asks a server for a document; `Exit::Unknown` stands for 404.
pub async fn request(
    client: &kube::Client,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, Failure> {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = body.map(|it| it.to_string().into_bytes()).unwrap_or_default();
    let request = Request::builder().method(method).uri(path).header("content-type", kind).body(body);
    let request = request.map_err(|it| Failure::because(&it))?;
    let text = client.request_text(request).await.map_err(|error| match error {
        kube::Error::Api(status) if status.code == 404 => {
            Failure { exit: Exit::Unknown, message: status.message.clone() }
        }
        kube::Error::Api(status) => Failure::failed(status.message.clone()),
        other => Failure::because(&other),
    })?;
    serde_json::from_str(&text).map_err(|it| Failure::because(&it))
}

/// Runs a command's work.
pub fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|it| Failure::failed(format!("cannot start threads: {it}")))?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result
}
