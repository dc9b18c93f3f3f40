//! `convoy up`: a control plane of several servers in one process, for the impatient.
//!
//! One store, one address before all servers, a kubeconfig with a context for each; `convoy rollout` rolls them.

mod balance;
pub(crate) mod control;
mod probe;
mod roll;
mod ships;

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::Args;
use meta::Release;
use server::{lifecycle::Lifecycle, listen};
use store::{MemoryStore, SharedClock, SystemClock};
use tokio::sync::mpsc;

use self::{
    balance::Balance,
    control::Order,
    roll::Teller,
    ships::{Harbour, Ships},
};
use crate::{
    cli::say,
    duration::GoDuration,
    failure::Failure,
    flags::{EtcdFlags, StorageFlags, parse_release},
    logging::{self, LogFormat, Volume},
    serve::Signals,
    storage::{DEFAULT_DATA_DIR, Storage},
};

/// How often etcd's history is forgotten.
const COMPACTION: Duration = Duration::from_secs(300);

/// The port that is tried first, and how many after it.
const PORT: u16 = 6443;
const MORE_PORTS: u16 = 100;

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
    #[arg(long)]
    ephemeral: bool,

    #[command(flatten)]
    etcd: EtcdFlags,

    /// The address to listen on
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    bind_address: IpAddr,

    /// The port of the common address; each server has one after it [default: 6443, or the next one that is free]
    #[arg(long, value_name = "PORT")]
    secure_port: Option<u16>,

    /// The release of Kubernetes to be, 1.30 to 1.36
    #[arg(long, value_name = "X.Y", value_parser = parse_release, default_value_t = catalog::LAST_RELEASE)]
    emulated_version: Release,

    /// Write the administrator's kubeconfig to this file [default: admin.kubeconfig in the data directory]
    #[arg(long, value_name = "FILE")]
    write_kubeconfig: Option<PathBuf>,

    /// How much is logged; nothing but warnings if not given
    #[arg(short = 'v', long = "v", value_name = "LEVEL")]
    verbosity: Option<u8>,
}

/// Runs it until Ctrl-C.
pub fn run(flags: UpFlags) -> Result<(), Failure> {
    logging::start(LogFormat::Text, flags.verbosity.map_or(Volume::Quiet, Volume::Level));
    let n_servers = usize::from(flags.servers);
    let ports = ports(&flags, n_servers)?;
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|it| Failure::failed(format!("cannot start threads: {it}")))?;
    let ended = runtime.block_on(sail(flags, ports));
    runtime.shutdown_background();
    ended
}

/// The whole life of it.
async fn sail(flags: UpFlags, ports: Vec<u16>) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let temporary = match flags.ephemeral {
        true => {
            Some(tempfile::tempdir().map_err(|it| Failure::failed(format!("no temporary directory: {it}")))?)
        }
        false => None,
    };
    let data_dir = temporary.as_ref().map_or_else(|| flags.data_dir.clone(), |it| it.path().to_owned());
    std::fs::create_dir_all(&data_dir)
        .map_err(|it| Failure::failed(format!("cannot make {}: {it}", data_dir.display())))?;
    let clock = SystemClock::shared();
    let storage = open(&flags, &data_dir, &clock).await?;
    let lifecycle = Lifecycle::new();
    storage.start_tasks(COMPACTION, &clock, &lifecycle);
    let (front, berths) = (ports[0], ports[1..].to_vec());
    let listener = listen::bind(SocketAddr::new(flags.bind_address, front))
        .map_err(|it| Failure::failed(format!("cannot listen on {}:{front}: {it}", flags.bind_address)))?;
    let local =
        if flags.bind_address.is_unspecified() { IpAddr::from([127, 0, 0, 1]) } else { flags.bind_address };
    let balance = Balance::new(berths.iter().map(|it| SocketAddr::new(local, *it)));
    let harbour = Harbour {
        store: storage.shared(),
        clock: Arc::clone(&clock),
        cert_dir: data_dir.join("pki"),
        bind_address: flags.bind_address,
        ports: berths,
    };
    let begin = clock.monotonic();
    let mut ships = tokio::select! {
        ships = Ships::start(harbour, balance.clone(), flags.emulated_version) => ships?,
        () = signals.next() => return Ok(()),
    };
    let kubeconfig = flags.write_kubeconfig.clone().unwrap_or_else(|| data_dir.join("admin.kubeconfig"));
    let url = format!("https://{}", SocketAddr::new(local, front));
    write_kubeconfig(&kubeconfig, &url, &ships)?;
    let (orders, mut ordered) = mpsc::channel(1);
    let control = control::listen(&control::socket(&data_dir))?;
    tokio::spawn(control::serve(control, orders));
    tokio::spawn(balance.run(listener));
    let shown = std::path::absolute(&kubeconfig).unwrap_or_else(|_| kubeconfig.clone());
    let stays = if flags.ephemeral { "everything goes with it" } else { "the data stays" };
    say(&welcome(&url, &ships, clock.monotonic().saturating_sub(begin), &data_dir, &shown, stays));
    loop {
        tokio::select! {
            () = signals.next() => break,
            Some(Order { to, answer }) = ordered.recv() => {
                let (through, teller) = (client(&kubeconfig).await?, Teller(answer));
                tokio::select! {
                    () = roll::roll(&mut ships, to, through, &teller) => {}
                    () = signals.next() => break,
                }
            }
        }
    }
    tokio::select! {
        () = ships.stop() => {}
        () = signals.next() => return Err(Failure::failed("told to stop twice: gone without finishing")),
    }
    let _ = std::fs::remove_file(control::socket(&data_dir));
    storage.close().await;
    Ok(())
}

/// The store that all servers share.
async fn open(flags: &UpFlags, data_dir: &Path, clock: &SharedClock) -> Result<Storage, Failure> {
    if flags.ephemeral && flags.etcd.etcd_servers.is_empty() {
        return Ok(Storage::Memory(MemoryStore::new(Arc::clone(clock))));
    }
    let storage = StorageFlags {
        data_dir: Some(data_dir.to_owned()),
        etcd: flags.etcd.clone(),
        etcd_compaction_interval: GoDuration::from_secs(COMPACTION.as_secs()),
        event_ttl: GoDuration::from_secs(3_600),
    };
    Storage::open(&storage, clock).await
}

/// A client that takes the same way as everybody, and does not hide what it is told.
async fn client(kubeconfig: &Path) -> Result<kube::Client, Failure> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let file = kube::config::Kubeconfig::read_from(kubeconfig).map_err(|it| Failure::because(&it))?;
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(file, &options).await;
    let mut config = config.map_err(|it| Failure::because(&it))?;
    config.default_retry = false;
    kube::Client::try_from(config).map_err(|it| Failure::because(&it))
}

/// One file with a context for the common address, and one for each server.
fn write_kubeconfig(path: &Path, url: &str, ships: &Ships) -> Result<(), Failure> {
    let Some(first) = ships.kubeconfig(0) else { return Err(Failure::failed("the servers do not listen")) };
    let mut file = kube::config::Kubeconfig::from_yaml(first).map_err(|it| Failure::because(&it))?;
    let mut contexts = Vec::new();
    let mut clusters = Vec::new();
    let (Some(context), Some(cluster)) = (file.contexts.first().cloned(), file.clusters.first().cloned())
    else {
        return Err(Failure::failed("the kubeconfig of a server is empty"));
    };
    let servers = (0..ships.len()).map(|at| (ships.name(at), ships.url(at)));
    for (name, url) in std::iter::once(("convoy".to_owned(), url.to_owned())).chain(servers) {
        let mut cluster = cluster.clone();
        cluster.name.clone_from(&name);
        if let Some(it) = &mut cluster.cluster {
            it.server = Some(url);
        }
        let mut context = context.clone();
        context.name.clone_from(&name);
        if let Some(it) = &mut context.context {
            it.cluster.clone_from(&name);
        }
        clusters.push(cluster);
        contexts.push(context);
    }
    (file.clusters, file.contexts, file.current_context) = (clusters, contexts, Some("convoy".to_owned()));
    // JSON is YAML.
    let text = serde_json::to_string_pretty(&file).map_err(|it| Failure::because(&it))?;
    server::files::write(path, text.as_bytes(), server::files::Access::Private)
        .map_err(|it| Failure::because(&it))
}

/// The common port, then one for each server.
fn ports(flags: &UpFlags, n_servers: usize) -> Result<Vec<u16>, Failure> {
    let first = flags.secure_port.unwrap_or(PORT);
    let mut ports = free_ports(flags.bind_address, first, n_servers + 1)?;
    if let Some(wanted) = flags.secure_port.filter(|it| *it != ports[0]) {
        return Err(Failure::failed(format!("port {wanted} cannot be opened on {}", flags.bind_address)));
    }
    if ports[0] != first {
        say(&format!("Port {first} is taken; using {}.\n", ports[0]));
    }
    ports.truncate(n_servers + 1);
    Ok(ports)
}

/// So many ports that are free, from `first` on.
fn free_ports(address: IpAddr, first: u16, count: usize) -> Result<Vec<u16>, Failure> {
    // The runtime is needed only because a listener belongs to one.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(|it| Failure::failed(format!("cannot look for a free port: {it}")))?;
    let _entered = runtime.enter();
    let last = first.saturating_add(MORE_PORTS - 1);
    let is_free = |port: &u16| listen::bind(SocketAddr::new(address, *port)).is_ok();
    let ports: Vec<u16> = (first..=last).filter(is_free).take(count).collect();
    if ports.len() < count {
        let why = format!("fewer than {count} ports from {first} to {last} can be opened on {address}");
        return Err(Failure::failed(why));
    }
    Ok(ports)
}

fn welcome(
    url: &str,
    ships: &Ships,
    took: Duration,
    data_dir: &Path,
    kubeconfig: &Path,
    stays: &str,
) -> String {
    let servers = (0..ships.len())
        .map(|at| format!("  {:<10} {}  {}\n", ships.name(at), ships.url(at), ships.release(at)));
    let servers: String = servers.collect();
    let next = if ships.release(0).minor < catalog::LAST_RELEASE.minor { 1 } else { -1 };
    let other = Release::v1(ships.release(0).minor.saturating_add_signed(next));
    format!(
        "Convoy is ready at {url} after {} ms; it keeps everything in {data}.\n\
         \n\
         {servers}\
         \n\
         In another terminal:\n\
         \n\
         \x20 export KUBECONFIG={kubeconfig}\n\
         \x20 kubectl get namespaces\n\
         \x20 kubectl create configmap hello --from-literal=who=world\n\
         \x20 convoy rollout --to {other} --data-dir {data}\n\
         \n\
         Ctrl-C stops it; {stays}.\n",
        took.as_millis(),
        data = data_dir.display(),
        kubeconfig = kubeconfig.display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_ports_are_passed_over() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let address = IpAddr::from([127, 0, 0, 1]);
        let before = free_ports(address, 26_443, 3).unwrap();
        let _taken = {
            let _entered = runtime.enter();
            listen::bind(SocketAddr::new(address, before[1])).unwrap()
        };
        let after = free_ports(address, 26_443, 3).unwrap();
        assert!(!after.contains(&before[1]) && after.len() == 3);
    }
}
