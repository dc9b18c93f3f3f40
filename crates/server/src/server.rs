//! One server, put together: from a store and settings to a chain that answers.
//!
//! Two phases: [`Server::build`] makes everything and reads what is stored; [`Server::finish_start`] joins the other
//! servers, writes what a cluster must have and opens the gates of `/readyz`.
//! Deliberately not here: flags, files, signals and sockets; the binary hands in what it read.

use std::{future::Future, sync::Arc, time::Duration};

use access::{Authorizer, Mode, Rbac, RequestHeaderConfig, TokenFile};
use admission::{Admission, Plugin, Plugins};
use bytes::Bytes;
use cache::{Cache, CacheConfig};
use catalog::Catalog;
use meta::{Release, Status};
use registry::{Kinds, Registry, RegistryConfig};
use serde_json::json;
use station::{Role, Station};
use store::{SharedClock, SharedStore};

use crate::{
    admission_feed::{self, Cluster, InForce},
    audit::Auditor,
    authenticate::Authenticator,
    bootstrap,
    chain::Chain,
    dispatch::Dispatch,
    documents::ServedDocuments,
    fleet_records::{self, Recorder},
    forward::Forwarder,
    health::{Checks, Gate, Scope},
    identity_lease,
    inflight::{InFlightLimits, RequestKind},
    lifecycle::Lifecycle,
    local::Local,
    membership::{Around, FleetSettings},
    memory::Memory,
    metrics::{FleetSummary, Metrics},
    openapi,
    pool::Pool,
    rbac_feed,
    service_account::{Keyring, TokenSettings},
    snapshot::Snapshots,
    store_metrics::MeasuredStore,
    tls::Trust,
    uploads::Uploads,
    webhook::ConversionWebhooks,
};

/// The release this binary is built after.
pub const BINARY_RELEASE: Release = catalog::LAST_RELEASE;

/// How often a system namespace that somebody deleted is put back, as upstream.
const NAMESPACES_EVERY: Duration = Duration::from_secs(60);

/// So many definitions are named that are still being loaded.
const MAX_NAMED: usize = 5;

/// Between attempts to write what a cluster must have.
const START_RETRY: Duration = Duration::from_millis(50);

/// Everything a server is told.
pub struct Settings {
    /// What is served.
    pub catalog: Catalog,
    /// `host:port` as clients are told.
    pub server_address: String,
    /// How long Events are kept.
    pub event_ttl: Duration,
    /// Store policies and quotas though nothing enforces them.
    pub allow_unenforced_policies: bool,
    /// `--enable-admission-plugins` and `--disable-admission-plugins`
    pub admission_plugins: Plugins,
    /// `--authorization-mode`
    pub authorization_modes: Vec<Mode>,
    /// `--token-auth-file`
    pub tokens: Option<TokenFile>,
    /// Sign and check ServiceAccount tokens.
    pub token_keys: Arc<Keyring>,
    /// `--service-account-max-token-expiration`
    pub max_token_expiration: Option<Duration>,
    /// How a front proxy names users.
    pub request_header: RequestHeaderConfig,
    /// Which authority signed a certificate.
    pub trust: Box<dyn Fn() -> Arc<Trust> + Send + Sync>,
    /// Whether callers without credentials get as far as authorization.
    pub allow_anonymous: bool,
    /// What is written to the audit log.
    pub auditor: Auditor,
    /// Reads at the same time.
    pub max_requests_inflight: usize,
    /// Writes at the same time.
    pub max_mutating_requests_inflight: usize,
    /// How long a request may take.
    pub request_timeout: Duration,
    /// How long a watch lasts at least.
    pub min_request_timeout: Duration,
    /// Online snapshots, where the store has them.
    pub snapshots: Option<Snapshots>,
    /// How it takes part in a cluster of several servers.
    pub fleet: FleetSettings,
    /// Whether the store itself takes writes.
    pub store_health: StoreHealth,
}

/// Whether the store takes writes; if not, why.
pub type StoreHealth = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// A server that answers.
pub struct Server {
    chain: Arc<Chain>,
    registry: Arc<Registry>,
    rbac: Arc<Rbac>,
    webhooks: InForce,
    release: Release,
    fleet: FleetSettings,
    namespaces_done: Gate,
    roles_done: Gate,
    lifecycle: Lifecycle,
}

/// Why a server could not be put together.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// What is stored could not be read.
    #[error("the store could not be read: {0}")]
    Store(#[from] cache::StartError),
    /// What users have defined could not be taken over.
    #[error("the custom resource definitions could not be read: {0}")]
    Definitions(Status),
    /// It may not take part with what is stored, or with what the others do.
    #[error("{0}")]
    Refused(String),
    /// What a cluster must have could not be written.
    #[error("the system objects could not be written: {0}")]
    Bootstrap(Status),
}

impl Server {
    /// Reads what is stored and builds everything that answers requests.
    pub async fn build(
        settings: Settings,
        store: SharedStore,
        clock: SharedClock,
        metrics: Arc<Metrics>,
        lifecycle: Lifecycle,
    ) -> Result<Self, StartError> {
        let catalog = Arc::new(settings.catalog);
        let store = SharedStore::new(MeasuredStore::new(store, Arc::clone(&metrics), clock.clone()));
        let specs = Kinds::collections(&catalog);
        let cache = Cache::start(store.clone(), clock.clone(), CacheConfig::default(), specs).await?;
        let kinds = Kinds::new(&catalog, &cache);
        let fleet = settings.fleet;
        let station = Station::new(fleet.config(&catalog), store.clone(), clock.clone());
        let config = RegistryConfig {
            event_ttl: settings.event_ttl,
            allow_unenforced_policies: settings.allow_unenforced_policies,
            namespace_lifecycle: settings.admission_plugins.has(Plugin::NamespaceLifecycle),
        };
        let registry = Registry::new(kinds, store, cache.clone(), station.clone(), clock.clone(), config);
        let registry = Arc::new(registry.with_webhooks(Arc::new(ConversionWebhooks::new())));
        let definitions = registry.load_definitions().await.map_err(StartError::Definitions)?;
        lifecycle.tasks().supervise("custom resource definitions", definitions.run());
        let rbac = Arc::new(Rbac::new());
        rbac_feed::start(&registry, &rbac, lifecycle.tasks());
        let cluster = Arc::new(Cluster(Arc::clone(&registry)));
        let admission = Arc::new(Admission::new(
            settings.admission_plugins,
            cluster.clone(),
            metrics.clone(),
            cluster,
            clock.clone(),
        ));
        let webhooks = admission_feed::start(&registry, &admission, lifecycle.tasks());

        let checks = Arc::new(Checks::new(lifecycle.clone(), Arc::clone(&metrics)));
        add_checks(&checks, &registry, &catalog, settings.store_health);
        let namespaces_done =
            checks.gate("poststarthook/start-system-namespaces-controller", Scope::Readiness);
        let roles_done = checks.gate("poststarthook/rbac/bootstrap-roles", Scope::Readiness);

        let limits =
            InFlightLimits::new(settings.max_requests_inflight, settings.max_mutating_requests_inflight);
        observe(&metrics, &registry, &limits);
        let authorizer = Authorizer::new(settings.authorization_modes, Arc::clone(&rbac));
        let forwarder =
            Forwarder::new(fleet.peers.clone(), settings.request_header.clone(), &lifecycle, &clock);
        if let Some(peers) = fleet.peers.clone() {
            lifecycle
                .tasks()
                .supervise("files of connections between servers", peers.follow_files(clock.clone()));
        }
        let authenticator = Arc::new(Authenticator {
            tokens: settings.tokens,
            service_accounts: Arc::clone(&settings.token_keys),
            registry: Arc::clone(&registry),
            request_header: settings.request_header,
            trust: settings.trust,
            allow_anonymous: settings.allow_anonymous,
            metrics: Arc::clone(&metrics),
            clock: clock.clone(),
        });
        let release = catalog.release();
        let served = Arc::new(ServedDocuments::new(
            Arc::clone(&catalog),
            Arc::clone(&registry),
            Arc::clone(&metrics),
            fleet.discovery,
            settings.server_address,
        ));
        let schemas = registry.kinds().schemas().clone();
        let dispatch = Dispatch {
            openapi: openapi::Documents::new(&catalog, &schemas, &served),
            served,
            schemas,
            catalog,
            registry: Arc::clone(&registry),
            admission,
            authorizer: authorizer.clone(),
            authenticator: Arc::clone(&authenticator),
            tokens: TokenSettings {
                keys: settings.token_keys,
                max_expiration: settings.max_token_expiration,
            },
            health: checks,
            metrics: Arc::clone(&metrics),
            lifecycle: lifecycle.clone(),
            version: version_document(release),
            min_request_timeout: settings.min_request_timeout,
            snapshots: settings.snapshots,
            pool: Pool::new(),
            memory: Memory::default(),
        };
        let chain = Arc::new(Chain {
            authenticator,
            authorizer,
            audit: settings.auditor,
            limits,
            uploads: Uploads::default(),
            dispatch,
            forwarder,
            metrics,
            lifecycle: lifecycle.clone(),
            clock,
            request_timeout: settings.request_timeout,
        });
        Ok(Self { chain, registry, rbac, webhooks, release, fleet, namespaces_done, roles_done, lifecycle })
    }

    /// What answers requests.
    pub fn chain(&self) -> Arc<Chain> {
        Arc::clone(&self.chain)
    }

    /// A client inside this process, with all rights.
    pub fn local(&self) -> Local {
        let mut user = access::User::named("system:apiserver");
        user.groups.push("system:masters".to_owned());
        Local::new(self.chain(), user)
    }

    /// The verbs on all kinds.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Roles and bindings as they are authorized by.
    pub fn rbac(&self) -> &Arc<Rbac> {
        &self.rbac
    }

    /// Waits until the webhooks that are stored now are the ones that are called.
    pub async fn webhooks_settled(&self) {
        // A store that cannot be read has no news either.
        let _ = self.registry.cache().catch_up().await;
        self.webhooks.settled().await;
    }

    /// Joins the other servers, reports what it stores, writes what a cluster must have, then calls itself ready.
    /// A server that may not take part waits here until it may.
    pub async fn finish_start(&self) -> Result<(), StartError> {
        self.start_station();
        let station = self.registry.station();
        station.joined().await;
        self.until_available(|| bootstrap::namespaces(&self.registry)).await?;
        self.namespaces_done.done();
        let (registry, clock) = (Arc::clone(&self.registry), self.registry.clock().clone());
        self.lifecycle.tasks().supervise("system namespaces", async move {
            loop {
                clock.sleep(NAMESPACES_EVERY).await;
                if let Err(status) = bootstrap::namespaces(&registry).await {
                    tracing::warn!(%status, "the system namespaces could not be made");
                }
            }
        });
        self.until_available(|| bootstrap::roles(&self.registry, self.release)).await?;
        self.roles_done.done();
        station.until(|it| it.health().is_ok()).await;
        // Controllers take what is not served for what is not there.
        while !self.registry.loading_definitions().is_empty() {
            self.registry.clock().sleep(START_RETRY).await;
        }
        self.lifecycle.ready();
        let (chain, registry) = (Arc::clone(&self.chain), Arc::clone(&self.registry));
        self.lifecycle
            .tasks()
            .spawn("leftovers", async move { fleet_records::tell_of_leftovers(&chain, &registry).await });
        Ok(())
    }

    /// The same for callers that cannot wait: a server that may not take part says why.
    pub async fn finish_start_or_refuse(&self) -> Result<(), StartError> {
        self.start_station();
        self.registry.station().joined_or_refused().await.map_err(StartError::Refused)?;
        self.finish_start().await
    }

    fn start_station(&self) {
        let Self { registry, chain, fleet, lifecycle, .. } = self;
        let metrics = &chain.metrics;
        let (recorder, waiting) = Recorder::new(chain.audit.log.is_some(), Arc::clone(metrics));
        let around = Around::of(registry, Arc::clone(metrics), fleet.peers.clone(), recorder);
        let tasks = lifecycle.tasks();
        if !registry.station().start(Arc::new(around), |role, task| match role {
            Role::KeepsLease(name) => tasks.supervise_apart(name, task),
            Role::Plain(name) => tasks.supervise(name, task),
        }) {
            return;
        }
        for (name, task) in waiting.tasks(chain, registry) {
            tasks.supervise(name, task);
        }
        tasks.supervise(
            "connections to departed servers",
            Forwarder::forget_departed(Arc::downgrade(chain), registry.station().clone()),
        );
        // A server without a Lease of its own may be the one that collects those of others.
        tasks.supervise("identity leases of departed servers", identity_lease::collect(Arc::clone(registry)));
        if chain.dispatch.catalog.gates().enabled(catalog::Gate::ApiServerIdentity) {
            tasks.supervise(
                "identity lease",
                identity_lease::keep(Arc::clone(registry), fleet.hostname.clone()),
            );
        }
    }

    /// Tries again while the answer is that it is too early.
    async fn until_available<F: Future<Output = Result<(), Status>>>(
        &self,
        work: impl Fn() -> F,
    ) -> Result<(), StartError> {
        loop {
            match work().await {
                Err(status) if matches!(status.code, 503 | 504) => {
                    tracing::debug!(%status, "what a cluster must have cannot be written yet");
                    self.registry.clock().sleep(START_RETRY).await;
                }
                done => return done.map_err(StartError::Bootstrap),
            }
        }
    }

    /// Leaves the other servers. Requests must have been drained before; nothing is written afterwards.
    pub async fn leave(&self) {
        if self.registry.station().is_member() {
            identity_lease::remove(&self.registry).await;
        }
        self.registry.station().leave().await;
    }

    /// Stops following the store. After this nothing is served.
    pub fn close(&self) {
        self.registry.cache().stop();
        if let Some(log) = &self.chain.audit.log {
            log.close();
        }
    }
}

/// What must hold for a server to be healthy, beside what it does when it starts.
fn add_checks(checks: &Checks, registry: &Arc<Registry>, catalog: &Catalog, store_health: StoreHealth) {
    checks.add("etcd", Scope::Everywhere, store_health);
    let cache = registry.cache().clone();
    checks.add("informer-sync", Scope::Readiness, move || cache.health());
    let registry_of_checks = Arc::clone(registry);
    checks.add("poststarthook/crd-informer-synced", Scope::Readiness, move || {
        let loading = registry_of_checks.loading_definitions();
        if loading.is_empty() { Ok(()) } else { Err(still_loading(&loading)) }
    });
    if catalog.gates().enabled(catalog::Gate::UnknownVersionInteroperabilityProxy) {
        let station = registry.station().clone();
        checks.add("poststarthook/mixed-version-proxy-handler", Scope::Readiness, move || {
            let (_, is_complete) = station.members();
            if is_complete { Ok(()) } else { Err("the members are not all known".to_owned()) }
        });
    }
    let station = registry.station().clone();
    checks.add("poststarthook/built-in-resources-storage-version-updater", Scope::Health, move || {
        station.health()
    });
}

/// Names the definitions whose objects are not loaded yet, the first of them by name.
fn still_loading(definitions: &[String]) -> String {
    let named = definitions.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match definitions.len().saturating_sub(MAX_NAMED) {
        0 => format!("objects are being loaded: {named}"),
        n_more => format!("objects are being loaded: {named} and {n_more} more"),
    }
}

/// Gauges that are read when they are asked for.
fn observe(metrics: &Arc<Metrics>, registry: &Arc<Registry>, limits: &InFlightLimits) {
    // The registry's station knows the metrics: held both ways, a server would never be forgotten.
    let (registry, limits) = (Arc::downgrade(registry), limits.clone());
    metrics.before_render(move |metrics| {
        let Some(registry) = registry.upgrade() else { return };
        for kind in [RequestKind::ReadOnly, RequestKind::Mutating] {
            metrics.set_in_flight(kind.label(), limits.count(kind));
        }
        let station::Summary { members, agreed, disputed, open, closed } = registry.station().summary();
        metrics.set_fleet(FleetSummary { members, agreed, disagreed: disputed, open, closed });
        for kind in registry.kinds().all() {
            if let Some(Ok(n_objects)) = kind.collection().map(|it| it.len()) {
                metrics.set_storage_objects(&kind.resource.to_string(), n_objects);
            }
        }
    });
}

/// `/version`: the release that is emulated; tools compare it with what they were built for.
fn version_document(release: Release) -> Bytes {
    let binary = BINARY_RELEASE;
    let compatible = Release::v1(release.minor.saturating_sub(1));
    let document = json!({
        "major": release.major.to_string(),
        "minor": release.minor.to_string(),
        "emulationMajor": release.major.to_string(),
        "emulationMinor": release.minor.to_string(),
        "minCompatibilityMajor": compatible.major.to_string(),
        "minCompatibilityMinor": compatible.minor.to_string(),
        "gitVersion": git_version(release),
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": format!("convoy {} for {binary}", env!("CARGO_PKG_VERSION")),
        "platform": format!("{}/{}", std::env::consts::OS, platform()),
    });
    Bytes::from(document.to_string())
}

/// What tools parse as the server's version.
pub fn git_version(release: Release) -> String {
    format!("v{release}.0+convoy-{}", env!("CARGO_PKG_VERSION"))
}

fn platform() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
