//! `convoy serve`: one server, from flags to the last answer.
//!
//! Flow: check the flags, open the port, keys and store, build the server, listen, write what a cluster must have,
//! wait for a signal, drain, close the store. The phases of a server's life are in `server::lifecycle`.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use server::{
    lifecycle::{Apart, Lifecycle, Phase},
    listen::{self, Door, Entrance, Limits},
    metrics::Metrics,
    pki::Pki,
    server::{Server, Settings, git_version},
    tls::Tls,
};
use store::{SharedClock, SystemClock};
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

use crate::{
    certificates::{self, Certificates},
    counting::Counting,
    failure::Failure,
    flags::ServeFlags,
    in_store::InStore,
    logging::{self, Volume},
    machine,
    notify::Notifier,
    settings::{self, Checked},
    storage::Storage,
    token_keys::TokenKeys,
};

/// How long tasks may take to notice that all is over.
const LAST_TASKS: Duration = Duration::from_secs(2);

/// What is known once a server is ready.
pub struct Ready<'a> {
    /// Where it listens.
    pub address: SocketAddr,
    /// The URL that the kubeconfig names.
    pub url: &'a str,
}

/// Runs one server until it is told to stop.
pub fn run(flags: ServeFlags) -> Result<(), Failure> {
    logging::start(flags.logging.logging_format, Volume::Level(flags.logging.verbosity));
    run_with(flags, |ready| tracing::info!(url = ready.url, address = %ready.address, "ready"))
}

/// Runs one server until it is told to stop, and says when it is ready. Logging must have been started.
pub fn run_with(flags: ServeFlags, on_ready: impl FnOnce(&Ready<'_>) + Send) -> Result<(), Failure> {
    let checked = Checked::of(&flags)?;
    // Libraries that look for a process-wide provider find the one that everything here uses.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let open_files = machine::raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("convoy")
        .build()
        .map_err(|it| Failure::failed(format!("cannot start threads: {it}")))?;
    let result = runtime.block_on(async {
        let listener = bind(&flags)?;
        serve(flags, checked, listener, open_files, on_ready).await
    });
    // Whatever is still running was told to stop, or is not worth waiting for.
    runtime.shutdown_background();
    result
}

/// The port, before anything else: what cannot be served need not be started.
pub fn bind(flags: &ServeFlags) -> Result<TcpListener, Failure> {
    let address = SocketAddr::new(flags.serving.bind_address, flags.serving.secure_port);
    listen::bind(address).map_err(|it| Failure::failed(format!("cannot listen on {address}: {it}")))
}

/// A server that listens, and has yet to write what a cluster must have.
pub struct Started {
    /// Answers requests.
    pub server: Server,
    storage: Storage,
    lifecycle: Lifecycle,
    /// Where its lease is kept.
    _apart: Apart,
    /// The listener; `None` for a server that is only used inside this process.
    serving: Option<tokio::task::JoinHandle<()>>,
    address: SocketAddr,
    /// Where clients find it.
    pub url: String,
    /// What was made for it.
    certificates: Option<Arc<Certificates>>,
    /// What it counts.
    pub metrics: Arc<Metrics>,
    /// Where others of this process hand it connections, if it listens.
    pub door: Option<Door>,
}

async fn serve(
    flags: ServeFlags,
    checked: Checked,
    listener: TcpListener,
    open_files: u64,
    on_ready: impl FnOnce(&Ready<'_>) + Send,
) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let clock = SystemClock::shared();
    let started = tokio::select! {
        started = start(&flags, checked, Storage::open_or_make(&flags.storage, &clock), Some(listener), open_files, &clock) => started?,
        () = signals.next() => return Ok(()),
    };
    let notifier = Notifier::from_environment().map(Arc::new);
    if let Some(notifier) = &notifier {
        // It listens; what it still waits for may take any time, and /readyz tells.
        notifier.say("READY=1");
        let watch = Arc::clone(notifier).watch(started.server.local(), Arc::clone(&clock));
        started.lifecycle.tasks().spawn("watchdog", watch);
    }
    let Started { server, address, url, .. } = &started;
    let mut ended = Ok(());
    let (controllers_live, controllers_ended) = oneshot::channel();
    tokio::select! {
        finished = server.finish_start() => match finished {
            Ok(()) => {
                start_controllers(&flags, &started, &clock, controllers_live);
                on_ready(&Ready { address: *address, url });
                tokio::select! {
                    () = signals.next() => {}
                    why = started.broken() => ended = Err(Failure::failed(why)),
                }
            }
            Err(error) => ended = Err(Failure::because(&error)),
        },
        why = server.registry().station().ended() => ended = Err(Failure::failed(why)),
        why = started.lifecycle.tasks().broken() => ended = Err(Failure::failed(why)),
        () = signals.next() => {}
    }
    if let Some(notifier) = &notifier {
        notifier.say("STOPPING=1");
    }
    let delay = flags.serving.shutdown_delay_duration.0;
    tokio::select! {
        () = drain(started, delay, &clock, controllers_ended) => ended,
        () = signals.next() => Err(Failure::failed("told to stop twice: gone without finishing")),
    }
}

/// Builds a server on a store, and listens if there is something to listen on.
pub async fn start(
    flags: &ServeFlags,
    checked: Checked,
    storage: impl Future<Output = Result<Storage, Failure>>,
    listener: Option<TcpListener>,
    open_files: u64,
    clock: &SharedClock,
) -> Result<Started, Failure> {
    let address = match &listener {
        Some(it) => it.local_addr().map_err(|it| Failure::failed(format!("cannot listen: {it}")))?,
        None => SocketAddr::new(flags.serving.bind_address, flags.serving.secure_port),
    };
    // Keys are made while the store is opened.
    let (made, storage) = tokio::join!(certificates::make(flags, clock), storage);
    let (storage, made) = (storage?, made?);
    let pki = made.as_ref().map(|(pki, _)| pki);
    let tls = Tls::load(settings::tls_files(flags, pki)?, Arc::clone(clock));
    let tls = Arc::new(tls.map_err(|it| Failure::because(&it))?);
    let release = flags.api.emulated_version;
    let metrics = Arc::new(Metrics::new(clock, &git_version(release), release));
    let apart = Apart::start().map_err(|it| Failure::failed(format!("cannot start a thread: {it}")))?;
    let lifecycle = Lifecycle::with(&apart);

    if let Some(warning) = settings::unused_tls_san(&flags.serving, pki) {
        tracing::warn!("{warning}");
    }
    let token_keys = Arc::new(TokenKeys::load(&flags.authentication, pki)?);

    let settings =
        settings_of(flags, checked, &storage, pki, (&tls, &token_keys), &metrics, clock, &listener, address)?;
    let server =
        Server::build(settings, storage.shared(), Arc::clone(clock), Arc::clone(&metrics), lifecycle.clone())
            .await
            .map_err(|it| Failure::because(&it))?;
    refuse_foreign_values(&server)?;
    storage.start_tasks(flags.storage.etcd_compaction_interval.0, clock, &lifecycle);
    lifecycle.tasks().supervise("tls-files", Arc::clone(&tls).follow_files());
    lifecycle.tasks().supervise("token-keys", token_keys.follow_files(Arc::clone(clock)));

    let url = format!("https://{}", SocketAddr::new(reachable(address.ip()), address.port()));
    let certificates = made.map(|it| Certificates::new(flags, it, &url, clock)).transpose()?;
    if let Some(certificates) = &certificates {
        lifecycle.tasks().supervise("renew-certificates", Arc::clone(certificates).follow());
    }
    let limits = Limits { connections: connections(open_files), ..Limits::default() };
    let counted = Arc::clone(&metrics);
    let (entrance, door) = listener.map(Entrance::with_door).unzip();
    let serving = entrance.map(|entrance| {
        let guard = lifecycle.tasks().guard("listener");
        let serving = listen::serve(entrance, tls, server.chain(), lifecycle.clone(), limits, counted);
        tokio::spawn(async move {
            let _guard = guard;
            serving.await;
        })
    });
    Ok(Started {
        server,
        storage,
        lifecycle,
        _apart: apart,
        serving,
        address,
        url,
        certificates,
        metrics,
        door,
    })
}

impl Started {
    /// An administrator's kubeconfig as of now, where the keys were made here.
    pub fn kubeconfig(&self) -> Result<Option<String>, Failure> {
        self.certificates.as_ref().map(|it| it.kubeconfig()).transpose()
    }

    /// Writes what a cluster must have and starts the controllers.
    ///
    /// What is returned resolves when the controllers have ended.
    pub async fn finish(
        &self,
        flags: &ServeFlags,
        clock: &SharedClock,
    ) -> Result<oneshot::Receiver<()>, Failure> {
        self.server.finish_start_or_refuse().await.map_err(|it| Failure::because(&it))?;
        let (live, ended) = oneshot::channel();
        start_controllers(flags, self, clock, live);
        Ok(ended)
    }

    /// Ends when only a new server helps, and says why.
    pub fn broken(&self) -> impl Future<Output = String> + Send + 'static {
        let registry = self.server.registry();
        let (cache, station) = (registry.cache().clone(), registry.station().clone());
        let tasks = self.lifecycle.tasks().clone();
        async move {
            tokio::select! {
                why = cache.failed() => why,
                why = station.ended() => why,
                why = tasks.broken() => why,
            }
        }
    }

    /// The same as [`Started::abandon`], and waits until its address is free.
    pub async fn end_at_once(self) {
        self.abandon();
        if let Some(serving) = self.serving {
            let _ = serving.await;
        }
    }

    /// Tells everything to end, without waiting for it.
    pub fn abandon(&self) {
        self.lifecycle.leave();
        self.lifecycle.drain();
        self.server.close();
        self.lifecycle.stop();
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

/// Controllers speak to this server as any client would, without a network in between. `live` is dropped when they have
/// ended.
fn start_controllers(flags: &ServeFlags, started: &Started, clock: &SharedClock, live: oneshot::Sender<()>) {
    let client = kube::Client::new(started.server.local(), "default");
    let now = Arc::clone(clock);
    let mut setup = controllers::Setup::new(Arc::new(move || now.now()));
    setup.selection = flags.controllers.controllers.clone();
    setup.root_ca = started.certificates.as_ref().map(|it| it.root_ca());
    let registry = Some(Arc::downgrade(started.server.registry()));
    setup.observe = Arc::new(Counting { metrics: Arc::clone(&started.metrics), registry });
    setup.engine = Some(Arc::new(InStore::new(Arc::clone(started.server.registry()))));
    setup.proves = true;
    setup.election = Some(controllers::Election::new(identity(flags, &started.storage)));
    let lifecycle = started.lifecycle.clone();
    started.lifecycle.tasks().supervise("controllers", async move {
        // They end while requests are still served, so that others need not wait for their lease to expire.
        controllers::run(client, setup, lifecycle.reached(Phase::Leaving)).await;
        drop(live);
    });
}

/// Who runs controllers. An embedded store has one process at a time, with one server of each name, so after a crash the
/// next one is the same and need not wait for the lease of its predecessor; on etcd there may be another server on this
/// machine.
fn identity(flags: &ServeFlags, storage: &Storage) -> String {
    let name = settings::hostname(&flags.serving);
    match storage {
        Storage::Embedded(..) | Storage::Memory(_) => name,
        Storage::Lent(storage) => identity(flags, storage),
        Storage::Shared(_) | Storage::Etcd(..) => {
            format!("{name}_{:016x}", rand::random::<u64>())
        }
    }
}

/// See the timeline in `server::lifecycle`.
pub async fn drain(
    started: Started,
    delay: Duration,
    clock: &SharedClock,
    controllers_ended: oneshot::Receiver<()>,
) {
    let Started { server, storage, lifecycle, serving, .. } = started;
    tracing::info!(requests = lifecycle.requests(), "stopping");
    lifecycle.leave();
    let _ = tokio::time::timeout(LAST_TASKS, controllers_ended).await;
    if !delay.is_zero() {
        clock.sleep(delay).await;
    }
    lifecycle.drain();
    if let Some(serving) = serving
        && serving.await.is_err()
    {
        tracing::error!("the listener panicked");
    }
    // Nobody asks for a write any more: only now may others go on without this server.
    server.leave().await;
    server.close();
    lifecycle.stop();
    if !lifecycle.tasks().ended(LAST_TASKS).await {
        tracing::warn!(tasks = lifecycle.tasks().len(), "some tasks did not end");
    }
    storage.close().await;
    tracing::info!("stopped");
}

#[expect(clippy::too_many_arguments, reason = "everything that a server is told meets here, once")]
fn settings_of(
    flags: &ServeFlags,
    checked: Checked,
    storage: &Storage,
    pki: Option<&Pki>,
    (tls, token_keys): (&Arc<Tls>, &TokenKeys),
    metrics: &Arc<Metrics>,
    clock: &SharedClock,
    listener: &Option<TcpListener>,
    address: SocketAddr,
) -> Result<Settings, Failure> {
    let advertised = SocketAddr::new(settings::advertised(&flags.serving), address.port());
    let trusted = Arc::clone(tls);
    Ok(Settings {
        catalog: checked.catalog,
        server_address: advertised.to_string(),
        event_ttl: flags.storage.event_ttl.0,
        allow_unenforced_policies: flags.api.allow_unenforced_policies,
        admission_plugins: checked.admission_plugins,
        authorization_modes: checked.authorization_modes,
        tokens: settings::tokens(flags.authentication.token_auth_file.as_deref())?,
        token_keys: token_keys.keyring(),
        max_token_expiration: checked.max_token_expiration,
        request_header: settings::request_header(&flags.authentication),
        trust: Box::new(move || trusted.trust()),
        allow_anonymous: flags.authentication.anonymous_auth,
        auditor: settings::auditor(&flags.audit, clock, metrics)?,
        max_requests_inflight: flags.requests.max_requests_inflight,
        max_mutating_requests_inflight: flags.requests.max_mutating_requests_inflight,
        request_timeout: flags.requests.request_timeout.0,
        min_request_timeout: Duration::from_secs(flags.requests.min_request_timeout),
        snapshots: storage.snapshots(),
        fleet: settings::fleet(flags, listener.as_ref().map(|_| advertised), storage.is_exclusive(), pki)?,
        store_health: storage.health(),
    })
}

/// Values that another kind of server stored cannot be read, and must not be written next to.
fn refuse_foreign_values(server: &Server) -> Result<(), Failure> {
    let unreadable = server.registry().cache().unreadable();
    let foreign = unreadable.iter().find(|(_, why)| why.contains("protobuf") || why.contains("encrypted"));
    match foreign {
        None => Ok(()),
        Some((key, why)) => Err(Failure::failed(format!(
            "the store holds what another kind of server wrote: at {key}, {why}; choose another --etcd-prefix"
        ))),
    }
}

/// The address under which this machine reaches itself.
fn reachable(bound: IpAddr) -> IpAddr {
    match bound {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
        ip => ip,
    }
}

/// As many as there may be open files, less some for everything else.
fn connections(open_files: u64) -> usize {
    let most = usize::try_from(open_files.saturating_sub(200)).unwrap_or(usize::MAX);
    most.clamp(100, Limits::default().connections)
}

/// What tells a process to stop: SIGTERM and SIGINT, which mean the same.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Listens from now on.
    pub fn new() -> Result<Self, Failure> {
        let listen =
            |kind| signal(kind).map_err(|it| Failure::failed(format!("cannot listen for signals: {it}")));
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    /// Ends with the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use store::{MemoryStore, SharedStore, SystemClock};

    use super::*;

    #[test]
    fn whoever_has_the_store_alone_is_the_same_after_a_crash() {
        let flags = crate::cli::parse_serve(&["--hostname-override=convoy-0"]).unwrap();
        let memory = || MemoryStore::new(SystemClock::shared());
        let lent = Storage::Lent(Arc::new(Storage::Memory(memory())));
        assert_eq!(identity(&flags, &lent), "convoy-0");
        let shared = Storage::Lent(Arc::new(Storage::Shared(SharedStore::new(memory()))));
        assert_ne!(identity(&flags, &shared), identity(&flags, &shared));
    }
}
