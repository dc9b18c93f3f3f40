//! Controllers beside a cluster that is not ours: `convoy controllers`, and `convoy migrate --local`.

use std::{net::SocketAddr, sync::Arc};

use clap::Args;
use controllers::{
    Controller, Election, Selection, Setup,
    migration::api::{ApiEngine, Endpoint, Reach, Settings},
};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::{body::Bytes, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use server::metrics::Metrics;
use store::SystemClock;
use tokio::net::TcpListener;

use crate::{
    cli::say,
    cluster::{ClusterFlags, block_on},
    counting::Counting,
    failure::Failure,
    logging::{self, LogFormat, Volume},
    serve::Signals,
};

/// What is applied to a cluster so that it has migrations.
const MANIFESTS: [&str; 4] = [
    include_str!("../manifests/crds.yaml"),
    include_str!("../manifests/freeze.yaml"),
    include_str!("../manifests/rbac.yaml"),
    include_str!("../manifests/deployment.yaml"),
];

/// Who works among several processes.
const LEASE: &str = "convoy-storage-version-migrator";

/// How the API servers are reached.
#[derive(Clone, Debug, Args)]
pub struct RemoteFlags {
    /// The address of one API server; repeat it for each of them. Without it there may be several behind the kubeconfig's
    /// address, and the evidence says so
    #[arg(long, value_name = "URL")]
    endpoint: Vec<http::Uri>,

    /// Requests about objects that are under way at the same time
    #[arg(long, value_name = "N", default_value_t = 16)]
    concurrency: usize,
}

/// The flags of `convoy controllers`.
#[derive(Debug, Args)]
pub struct ControllersFlags {
    /// Which controllers run, as `convoy serve --controllers` has it
    #[arg(long, value_name = "LIST", default_value = "storage-version-trigger,storage-version-migrator")]
    controllers: Selection,

    /// Print what a cluster needs, for `kubectl apply -f -`: definitions, the policy that freezes, rights, a Deployment
    #[arg(long)]
    print_manifests: bool,

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
    if flags.print_manifests {
        say(&MANIFESTS.join("---\n"));
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
        let mut setup = setup(&flags.remote, &config)?;
        setup.selection = flags.controllers.clone();
        setup.observe = Arc::new(Counting(Arc::clone(&metrics)));
        // Not the Lease of a Convoy server's own controllers: those hold it for as long as they run.
        setup.election = flags
            .leader_elect
            .then(|| Election { lease_name: LEASE.to_owned(), ..Election::new(identity()) });
        if crate::cluster::ask(&client, "GET", "/convoy/status", Vec::new()).await.is_ok() {
            tracing::warn!(
                "this is a Convoy server, which migrates by itself: start it with \
                 --controllers=*,-storage-version-trigger,-storage-version-migrator, or two hands do the same"
            );
        }
        tracing::info!(server = %config.cluster_url, controllers = %flags.controllers, "controllers run beside a cluster");
        tokio::select! {
            () = controllers::run(client, setup, signals.next()) => Ok(()),
            () = answer(listener, metrics) => Ok(()),
        }
    })
}

/// Runs the migrator in this process while `work` goes on.
pub async fn beside<T>(
    flags: &RemoteFlags,
    cluster: &ClusterFlags,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let config = cluster.config().await?;
    let client = kube::Client::try_from(config.clone()).map_err(|it| Failure::because(&it))?;
    let mut setup = setup(flags, &config)?;
    setup.selection = Selection::only(Controller::StorageVersionMigrator);
    tokio::select! {
        done = work => done,
        () = controllers::run(client, setup, std::future::pending()) => {
            Err(Failure::failed("the migrator ended by itself"))
        }
    }
}

fn setup(flags: &RemoteFlags, config: &kube::Config) -> Result<Setup, Failure> {
    let clock = SystemClock::shared();
    let mut setup = Setup::new(Arc::new(move || clock.now()));
    setup.engine = Some(Arc::new(engine(flags, config)?));
    Ok(setup)
}

/// The engine that asks each of the servers, or what stands before them.
fn engine(flags: &RemoteFlags, config: &kube::Config) -> Result<ApiEngine, Failure> {
    let mut config = config.clone();
    // The engine must see when a server has too much to do.
    config.default_retry = false;
    let reach = if flags.endpoint.is_empty() { Reach::SharedAddress } else { Reach::EveryServer };
    let own = [config.cluster_url.clone()];
    let urls = if flags.endpoint.is_empty() { &own[..] } else { &flags.endpoint };
    let mut endpoints = Vec::new();
    for url in urls {
        config.cluster_url = url.clone();
        let client = kube::Client::try_from(config.clone()).map_err(|it| Failure::because(&it))?;
        endpoints.push(Endpoint { name: url.to_string(), client });
    }
    let mut settings = Settings::default();
    settings.at_once = flags.concurrency.max(1);
    Ok(ApiEngine::new(endpoints, reach, settings))
}

fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{:016x}", host.trim(), rand::random::<u64>())
}

/// Answers whoever looks after this process.
async fn answer(listener: TcpListener, metrics: Arc<Metrics>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let metrics = Arc::clone(&metrics);
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                let metrics = Arc::clone(&metrics);
                async move { Ok::<_, std::convert::Infallible>(page(request.uri().path(), &metrics)) }
            });
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn page(path: &str, metrics: &Metrics) -> Response<Full<Bytes>> {
    let (code, text) = match path {
        "/metrics" => (StatusCode::OK, metrics.render()),
        "/healthz" | "/livez" | "/readyz" => (StatusCode::OK, "ok".to_owned()),
        _ => (StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = code;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifests_are_yaml_and_say_what_they_are() {
        let mut kinds = Vec::new();
        for text in MANIFESTS.join("---\n").split("\n---\n") {
            let object = schema::yaml::parse(text.as_bytes(), schema::json::Limits::STORED).unwrap();
            kinds.push(meta::object::kind(&object).to_owned());
            assert!(!meta::object::name(&object).is_empty(), "{text}");
        }
        for kind in ["CustomResourceDefinition", "ValidatingAdmissionPolicy", "ClusterRole", "Deployment"] {
            assert!(kinds.iter().any(|it| it == kind), "{kind}");
        }
    }
}
