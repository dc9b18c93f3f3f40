//! `convoy up`: a control plane of several servers in one process, for the impatient.
//!
//! One store, one address before all servers, a kubeconfig with a context for each; `convoy rollout` rolls them.

mod balance;
mod common;
mod contexts;
pub(crate) mod control;
pub(crate) mod janitor;
mod ports;
mod probe;
mod release;
mod roll;
mod servers;
mod view;
mod welcome;

use std::{
    fs::{DirBuilder, File, Permissions, TryLockError},
    net::{IpAddr, SocketAddr},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::Args;
use meta::Release;
use server::{follow, lifecycle::Lifecycle, listen};
use store::{MemoryStore, SharedClock, SystemClock};
use tempfile::TempDir;
use tokio::sync::mpsc;

use self::{
    balance::Balance,
    common::Common,
    contexts::Contexts,
    control::{Order, Orders, Teller},
    janitor::Janitor,
    release::Remembered,
    servers::Servers,
    welcome::Welcome,
};
use crate::{
    cli::say,
    duration::GoDuration,
    failure::Failure,
    flags::{DEFAULT_QUOTA, EtcdFlags, San, StorageFlags, parse_release},
    logging::{self, LogFormat, Volume},
    machine,
    serve::Signals,
    storage::{DEFAULT_DATA_DIR, Storage},
};

/// How often the store's history is forgotten.
const COMPACTION: Duration = Duration::from_secs(300);

/// The flags of `convoy up`.
#[derive(Clone, Debug, Args)]
pub struct UpFlags {
    /// Keep everything in this directory
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    data_dir: PathBuf,

    /// How many servers
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=15))]
    servers: u8,

    /// Keep nothing: everything is gone when it stops
    #[arg(long, conflicts_with = "etcd_servers")]
    ephemeral: bool,

    #[command(flatten)]
    etcd: EtcdFlags,

    /// The address to listen on
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    bind_address: IpAddr,

    /// The port of the common address; each server has one after it. 0: any that are free [default: 6443, or the next one
    /// that is free]
    #[arg(long, value_name = "PORT")]
    secure_port: Option<u16>,

    /// More names and addresses that the self-made serving certificate is to be valid for; may be given several times, or
    /// separated by commas
    #[arg(long, value_name = "NAME_OR_IP", value_delimiter = ',')]
    tls_san: Vec<San>,

    /// The release of Kubernetes to be, 1.30 to 1.36 [default: the one it was last at, or 1.36]
    #[arg(long, value_name = "X.Y", value_parser = parse_release)]
    emulated_version: Option<Release>,

    /// Write the administrator's kubeconfig to this file [default: admin.kubeconfig in the data directory]
    #[arg(long, value_name = "FILE")]
    write_kubeconfig: Option<PathBuf>,

    /// How much is logged; nothing but warnings if not given
    #[arg(short = 'v', long = "v", value_name = "LEVEL")]
    verbosity: Option<u8>,
}

/// Runs it until Ctrl-C.
pub fn run(flags: UpFlags) -> Result<(), Failure> {
    let clock = SystemClock::shared();
    logging::start(LogFormat::Text, flags.verbosity.map_or(Volume::Quiet, Volume::Level));
    let ports = ports::take(flags.bind_address, flags.secure_port, usize::from(flags.servers))?;
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|it| Failure::failed(format!("cannot start threads: {it}")))?;
    let ended = runtime.block_on(live(flags, ports, clock));
    runtime.shutdown_background();
    ended
}

/// The whole life of it.
async fn live(flags: UpFlags, ports: Vec<u16>, clock: SharedClock) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let home = Home::of(&flags)?;
    let remembered = Remembered::in_folder(&home.path);
    let release = match flags.emulated_version {
        Some(release) => release,
        None => remembered.read()?.unwrap_or(catalog::LAST_RELEASE),
    };
    let opened = storage_flags(&flags, &home.path);
    let storage = Arc::new(match &opened {
        Some(flags) => Storage::open_or_make(flags, &clock).await?,
        None => Storage::Memory(MemoryStore::new(Arc::clone(&clock))),
    });
    let (lifecycle, tasks) = (Lifecycle::new(), Lifecycle::new());
    storage.start_tasks(COMPACTION, &clock, &tasks);
    let (front, own_ports) = (ports[0], ports[1..].to_vec());
    let listener = listen::bind(SocketAddr::new(flags.bind_address, front))
        .map_err(|it| Failure::failed(format!("cannot listen on {}:{front}: {it}", flags.bind_address)))?;
    let local =
        if flags.bind_address.is_unspecified() { IpAddr::from([127, 0, 0, 1]) } else { flags.bind_address };
    let balance = Balance::new(own_ports.len(), machine::raise_open_files());
    let common = Common {
        storage: Arc::clone(&storage),
        opened,
        tasks,
        clock: Arc::clone(&clock),
        cert_dir: home.path.join("pki"),
        tls_san: flags.tls_san.clone(),
        bind_address: flags.bind_address,
        ports: own_ports,
        remembered,
    };
    let mut servers = tokio::select! {
        servers = Servers::start(common, balance.clone(), release) => servers?,
        () = signals.next() => return Ok(()),
    };
    let url = format!("https://{}", SocketAddr::new(local, front));
    let kubeconfig = flags.write_kubeconfig.clone().unwrap_or_else(|| home.path.join("admin.kubeconfig"));
    let mut contexts = Contexts::write(url.clone(), kubeconfig, &servers)?;
    let (orders, mut ordered) = Orders::new();
    let control = control::listen(&control::socket(&home.path))?;
    lifecycle.tasks().spawn("control", control::serve(control, orders));
    lifecycle.tasks().spawn("balance", balance.run(listener));
    say(&welcome::page(&Welcome {
        url: &url,
        servers: &servers,
        // The clock was made when the process began.
        took: clock.monotonic(),
        keeps: &keeps(&flags, &home.path),
        data_dir: &home.path,
        kubeconfig: &std::path::absolute(contexts.path()).unwrap_or_else(|_| contexts.path().to_owned()),
        stays: if flags.ephemeral { "everything goes with it" } else { "the data stays" },
    }));
    until_told(&mut servers, &mut ordered, &mut signals, &mut contexts, &clock).await;
    tokio::select! {
        () = servers.stop() => {}
        () = signals.next() => return Err(Failure::failed("told to stop twice: gone without finishing")),
    }
    lifecycle.stop();
    let _ = std::fs::remove_file(control::socket(&home.path));
    storage.close().await;
    Ok(())
}

/// Does what is ordered, and replaces servers that need it, until it is told to stop.
async fn until_told(
    servers: &mut Servers,
    ordered: &mut mpsc::UnboundedReceiver<Order>,
    signals: &mut Signals,
    contexts: &mut Contexts,
    clock: &SharedClock,
) {
    loop {
        tokio::select! {
            () = signals.next() => return,
            () = clock.sleep(follow::EVERY) => if let Err(failure) = contexts.refresh(servers) {
                tracing::warn!("the kubeconfig could not be written anew: {failure}");
            },
            broken = servers.broken() => tokio::select! {
                () = servers.mend(broken) => {}
                () = signals.next() => return,
            },
            Some(Order { to, teller }) = ordered.recv() => tokio::select! {
                () = obey(servers, to, teller, contexts) => {}
                () = signals.next() => return,
            },
        }
    }
}

/// Rolls; whatever goes wrong is for whoever ordered it.
async fn obey(servers: &mut Servers, to: Release, teller: Teller, contexts: &Contexts) {
    // Whoever ordered it did not wait for it to begin.
    if teller.is_alone() {
        return;
    }
    match contexts.config().await {
        Ok(through) => roll::roll(servers, to, through, teller).await,
        Err(failure) => teller.end(failure.to_string(), failure.exit),
    }
}

/// Where everything is that is not in a store: keys, kubeconfig, socket. Only its owner can look into it.
struct Home {
    path: PathBuf,
    /// Only one `convoy up` has it.
    _lock: File,
    /// Removed at the end, and by the janitor should this process be killed. In this order: the janitor comes last.
    _temporary: Option<TempDir>,
    _janitor: Option<Janitor>,
}

impl Home {
    fn of(flags: &UpFlags) -> Result<Self, Failure> {
        let private = Permissions::from_mode(0o700);
        if flags.ephemeral {
            let made = tempfile::Builder::new().prefix(janitor::PREFIX).permissions(private).tempdir();
            let made = made.map_err(|it| Failure::failed(format!("no temporary directory: {it}")))?;
            return Ok(Self {
                path: made.path().to_owned(),
                _lock: lock(made.path())?,
                _janitor: Janitor::of(made.path()),
                _temporary: Some(made),
            });
        }
        let path = flags.data_dir.clone();
        let fail = |it: std::io::Error| Failure::failed(format!("cannot make {}: {it}", path.display()));
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(fail)?;
        // One that was there may be somebody else's, too, unless nothing is in it.
        if path.read_dir().map_err(fail)?.next().is_none() {
            std::fs::set_permissions(&path, private).map_err(fail)?;
        }
        Ok(Self { _lock: lock(&path)?, path, _temporary: None, _janitor: None })
    }
}

/// Keeps others out of a data directory, whatever its store is, until the file is closed.
fn lock(folder: &Path) -> Result<File, Failure> {
    let path = folder.join("up.lock");
    let fail = |it: std::io::Error| Failure::failed(format!("cannot lock {}: {it}", path.display()));
    let file = File::options().create(true).append(true).mode(0o600).open(&path).map_err(fail)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Failure::failed(format!(
            "another `convoy up` runs in {}; stop it, or give this one another --data-dir",
            folder.display()
        ))),
        Err(TryLockError::Error(it)) => Err(fail(it)),
    }
}

/// Where objects are, for people.
fn keeps(flags: &UpFlags, data_dir: &Path) -> String {
    if flags.ephemeral {
        return "in memory".to_owned();
    }
    match flags.etcd.etcd_servers.as_slice() {
        [] => format!("in {}", data_dir.display()),
        servers => format!("in etcd at {}, and its keys in {}", servers.join(", "), data_dir.display()),
    }
}

/// Where the store that all servers share is; nowhere if it is in memory.
fn storage_flags(flags: &UpFlags, data_dir: &Path) -> Option<StorageFlags> {
    (!flags.ephemeral).then(|| StorageFlags {
        data_dir: Some(data_dir.to_owned()),
        etcd: flags.etcd.clone(),
        etcd_compaction_interval: GoDuration::from_secs(COMPACTION.as_secs()),
        quota_backend_bytes: DEFAULT_QUOTA,
        event_ttl: GoDuration::from_secs(3_600),
    })
}
