//! Controllers beside a cluster that is not ours: `convoy controllers`, and `convoy migrate --local`.

mod health;
mod servers;

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use clap::Args;
use controllers::{Controller, Election, Selection, Setup};
use futures_util::FutureExt;
use meta::GroupResource;
use server::metrics::Metrics;
use store::SystemClock;
use tokio::net::TcpListener;

use self::health::{Vitals, Watchful};
use self::servers::Servers;
use crate::{
    census::reader::EtcdReader,
    cli::say,
    cluster::{self, ClusterFlags, block_on},
    counting::Counting,
    duration::GoDuration,
    failure::Failure,
    flags::EtcdFlags,
    logging::{self, LogFormat, Volume},
    serve::Signals,
};

/// What a single migration needs: definitions, and the policy that freezes.
const ONCE: [&str; 2] = [include_str!("../manifests/crds.yaml"), include_str!("../manifests/freeze.yaml")];

/// What controllers that stay need beside.
const FOR_GOOD: [&str; 3] = [
    include_str!("../manifests/rbac.yaml"),
    include_str!("../manifests/flow.yaml"),
    include_str!("../manifests/deployment.yaml"),
];

/// Which manifests are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Manifests {
    /// Definitions, the policy that freezes, rights, a priority, a Deployment
    All,
    /// Definitions and the policy, for `convoy migrate --local`
    Once,
}

impl Manifests {
    fn text(self) -> String {
        match self {
            Self::All => [&ONCE[..], &FOR_GOOD].concat().join("---\n"),
            Self::Once => ONCE.join("---\n"),
        }
    }
}

/// Who works among several processes.
pub(crate) const LEASE: &str = "convoy-storage-version-migrator";

/// How the API servers are reached.
#[derive(Clone, Debug, Args)]
pub struct RemoteFlags {
    /// The address of one API server; repeat it for each of them. Without it the cluster is asked which there are; if that
    /// cannot be told there may be several behind the kubeconfig's address, and the evidence says so
    #[arg(long, value_name = "URL")]
    endpoint: Vec<http::Uri>,

    /// Requests about objects that are under way at the same time
    #[arg(long, value_name = "N", default_value_t = 16)]
    concurrency: usize,

    /// How long after a change of the storage version API servers may still write the earlier one, in requests that began
    /// before. The last look at all objects waits for that unless the definition has not changed for ten minutes
    #[arg(long, value_name = "DURATION", default_value = "2m")]
    settle_time: GoDuration,

    /// Prove by what is in the cluster's etcd instead of by a second pass through the API (evidence StoreScan): the
    /// members' URLs, separated by commas. It is only read
    #[arg(long, value_name = "URL,...", value_delimiter = ',')]
    verify_etcd_servers: Vec<String>,

    /// The prefix of the cluster's keys in that etcd
    #[arg(long, value_name = "PREFIX", default_value = "/registry", requires = "verify_etcd_servers")]
    verify_etcd_prefix: String,

    /// The authority that that etcd's certificate must come from (PEM)
    #[arg(long, value_name = "FILE", requires = "verify_etcd_servers")]
    verify_etcd_cafile: Option<PathBuf>,

    /// The certificate to show to that etcd (PEM)
    #[arg(long, value_name = "FILE", requires = "verify_etcd_keyfile")]
    verify_etcd_certfile: Option<PathBuf>,

    /// The key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "verify_etcd_certfile")]
    verify_etcd_keyfile: Option<PathBuf>,
}

impl RemoteFlags {
    /// What reads the cluster's etcd, if somebody said where that is.
    async fn reader(&self) -> Result<Option<Arc<EtcdReader>>, Failure> {
        if self.verify_etcd_servers.is_empty() {
            return Ok(None);
        }
        let etcd = EtcdFlags {
            etcd_servers: self.verify_etcd_servers.clone(),
            etcd_prefix: self.verify_etcd_prefix.clone(),
            etcd_cafile: self.verify_etcd_cafile.clone(),
            etcd_certfile: self.verify_etcd_certfile.clone(),
            etcd_keyfile: self.verify_etcd_keyfile.clone(),
        };
        let storage = cluster::open_at_rest(None, etcd).await?;
        Ok(Some(Arc::new(EtcdReader::new(storage)?)))
    }
}

/// The flags of `convoy controllers`.
#[derive(Debug, Args)]
pub struct ControllersFlags {
    /// Which controllers run, as `convoy serve --controllers` has it
    #[arg(long, value_name = "LIST", default_value = "storage-version-trigger,storage-version-migrator")]
    controllers: Selection,

    /// Print what a cluster needs, for `kubectl apply -f -`; `once` leaves out what only controllers that stay need
    #[arg(long, value_name = "WHICH", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    print_manifests: Option<Manifests>,

    /// Evidence that is good enough to narrow status.storedVersions, such as SecondPassOneEndpoint, for the migrations that
    /// the trigger makes
    #[arg(long, value_name = "EVIDENCE", value_delimiter = ',')]
    accept_evidence: Vec<String>,

    /// Work only while holding the Lease convoy-storage-version-migrator in kube-system
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    leader_elect: bool,

    /// Where /metrics, /healthz, /livez and /readyz are answered, without TLS
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:2112")]
    metrics_bind_address: SocketAddr,

    /// How log lines look
    #[arg(long, value_enum, default_value = "text")]
    logging_format: LogFormat,

    #[command(flatten)]
    remote: RemoteFlags,

    #[command(flatten)]
    cluster: ClusterFlags,
}

/// Runs until told to stop.
pub fn run(flags: &ControllersFlags) -> Result<(), Failure> {
    if let Some(manifests) = flags.print_manifests {
        say(&manifests.text());
        return Ok(());
    }
    logging::start(flags.logging_format, Volume::Level(0));
    block_on(async {
        let mut signals = Signals::new()?;
        let config = flags.cluster.config().await?;
        let client = kube::Client::try_from(config.clone()).map_err(|it| Failure::because(&it))?;
        let clock = SystemClock::shared();
        let release = catalog::LAST_RELEASE;
        let metrics = Arc::new(Metrics::new(&clock, env!("CARGO_PKG_VERSION"), release));
        let listener = TcpListener::bind(flags.metrics_bind_address).await.map_err(|it| {
            Failure::failed(format!("cannot listen on {}: {it}", flags.metrics_bind_address))
        })?;
        if cluster::ask(&client, "GET", "/convoy/status", Vec::new()).await.is_ok() {
            tracing::warn!(
                "this is a Convoy server, which migrates by itself: start it with \
                 --controllers=*,-storage-version-trigger,-storage-version-migrator, or two hands do the same"
            );
        }
        tracing::info!(server = %config.cluster_url, controllers = %flags.controllers, "controllers run beside a cluster");
        let vitals = Arc::new(Vitals::default());
        let watchful = Watchful {
            counting: Counting { metrics: Arc::clone(&metrics), registry: None },
            vitals: Arc::clone(&vitals),
        };
        let mut setup = Setup::new(Arc::new(move || clock.now()));
        setup.selection = flags.controllers.clone();
        setup.observe = Arc::new(watchful);
        setup.accepted.clone_from(&flags.accept_evidence);
        // Not the Lease of a Convoy server's own controllers: those hold it for as long as they run.
        setup.election = flags
            .leader_elect
            .then(|| Election { lease_name: LEASE.to_owned(), ..Election::new(identity()) });
        let beside = Beside { flags: &flags.remote, config: &config, client: &client, vitals: &vitals };
        tokio::select! {
            ran = beside.run(&setup, signals.next().shared()) => ran,
            () = vitals.watch(&client) => Ok(()),
            () = health::answer(listener, metrics, Arc::clone(&vitals)) => Ok(()),
        }
    })
}

/// Runs the migrator in this process, for these resources, while `work` goes on.
pub async fn beside<T>(
    flags: &RemoteFlags,
    cluster: &ClusterFlags,
    resources: &[String],
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let config = cluster.config().await?;
    let client = kube::Client::try_from(config.clone()).map_err(|it| Failure::because(&it))?;
    let clock = SystemClock::shared();
    let mut setup = Setup::new(Arc::new(move || clock.now()));
    setup.selection = Selection::only(Controller::StorageVersionMigrator);
    // Others are somebody else's: who is cut off in the middle of one leaves its definition frozen.
    setup.resources = resources.iter().map(|it| GroupResource::from(it.as_str())).collect();
    let beside = Beside { flags, config: &config, client: &client, vitals: &Vitals::default() };
    tokio::select! {
        done = work => done,
        ran = beside.run(&setup, futures_util::future::pending()) => {
            ran.and(Err(Failure::failed("the migrator ended by itself")))
        }
    }
}

/// Beside which cluster controllers run.
struct Beside<'a> {
    flags: &'a RemoteFlags,
    config: &'a kube::Config,
    client: &'a kube::Client,
    vitals: &'a Vitals,
}

impl Beside<'_> {
    /// Until `stop` ends; anew whenever the cluster has other API servers, as each pass can be cut off anywhere.
    async fn run(&self, setup: &Setup, stop: impl Future<Output = ()> + Clone) -> Result<(), Failure> {
        let Self { flags, config, client, vitals } = *self;
        let reader = flags.reader().await?;
        loop {
            let servers = Servers::find(flags, config).await?;
            let mut setup = setup.clone();
            let engine = servers.engine(flags);
            setup.engine = Some(match &reader {
                Some(reader) => Arc::new(engine.reading(reader.clone())),
                None => Arc::new(engine),
            });
            tokio::select! {
                () = controllers::run(client.clone(), setup, stop.clone()) => return Ok(()),
                () = servers.changed(client) => vitals.start_again(),
            }
        }
    }
}

fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{:016x}", host.trim(), rand::random::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifests_are_yaml_and_say_what_they_are() {
        let mut kinds = Vec::new();
        for text in Manifests::All.text().split("\n---\n") {
            let object = schema::yaml::parse(text.as_bytes(), schema::json::Limits::STORED).unwrap();
            kinds.push(meta::object::kind(&object).to_owned());
            assert!(!meta::object::name(&object).is_empty(), "{text}");
        }
        for kind in ["CustomResourceDefinition", "ValidatingAdmissionPolicy", "ClusterRole", "Deployment"] {
            assert!(kinds.iter().any(|it| it == kind), "{kind}");
        }
        // Nothing that works by itself comes along with what a single migration needs.
        assert!(Manifests::All.text().starts_with(&Manifests::Once.text()));
        for kind in ["Deployment", "ClusterRole", "ServiceAccount"] {
            assert!(!Manifests::Once.text().contains(&format!("kind: {kind}\n")), "{kind}");
        }
    }
}
