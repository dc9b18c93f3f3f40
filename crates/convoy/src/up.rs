//! `convoy up`: a control plane for the impatient.

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

use clap::{Args, Parser};
use meta::Release;
use server::listen;

use crate::{
    cli::say,
    failure::Failure,
    flags::{ServeFlags, parse_release},
    logging::{self, LogFormat, Volume},
    serve::{self, Ready},
    storage::DEFAULT_DATA_DIR,
};

/// The port that is tried first, and how many after it.
const PORT: u16 = 6443;
const MORE_PORTS: u16 = 100;

/// The flags of `convoy up`.
#[derive(Clone, Debug, Args)]
pub struct UpFlags {
    /// Keep everything in this directory
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    data_dir: PathBuf,

    /// The address to listen on
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    bind_address: IpAddr,

    /// The port to listen on [default: 6443, or the next one that is free]
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
    let port = match flags.secure_port {
        Some(port) => port,
        None => free_port(flags.bind_address)?,
    };
    let kubeconfig =
        flags.write_kubeconfig.clone().unwrap_or_else(|| flags.data_dir.join("admin.kubeconfig"));
    let release = flags.emulated_version;
    let data_dir = flags.data_dir.clone();
    let kubeconfig_shown = std::path::absolute(&kubeconfig).unwrap_or_else(|_| kubeconfig.clone());

    let mut serve = default_serve_flags();
    serve.storage.data_dir = Some(flags.data_dir);
    serve.serving.bind_address = flags.bind_address;
    serve.serving.secure_port = port;
    serve.serving.write_kubeconfig = Some(kubeconfig);
    serve.api.emulated_version = release;
    serve::run_with(serve, move |ready| say(&welcome(ready, release, &data_dir, &kubeconfig_shown)))
}

/// What `convoy serve` has without any flag.
fn default_serve_flags() -> ServeFlags {
    #[derive(Parser)]
    struct Defaults {
        #[command(flatten)]
        flags: ServeFlags,
    }
    Defaults::parse_from(["convoy"]).flags
}

/// 6443, else the next one that is free.
fn free_port(address: IpAddr) -> Result<u16, Failure> {
    // The runtime is needed only because a listener belongs to one.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(|it| Failure::failed(format!("cannot look for a free port: {it}")))?;
    let _entered = runtime.enter();
    let is_free = |port: &u16| listen::bind(SocketAddr::new(address, *port)).is_ok();
    let port = (PORT..PORT + MORE_PORTS).find(is_free);
    let port = port.ok_or_else(|| {
        Failure::failed(format!(
            "no port from {PORT} to {} can be opened on {address}",
            PORT + MORE_PORTS - 1
        ))
    })?;
    if port != PORT {
        say(&format!("Port {PORT} is taken; using {port}.\n"));
    }
    Ok(port)
}

fn welcome(ready: &Ready<'_>, release: Release, data_dir: &Path, kubeconfig: &Path) -> String {
    format!(
        "Convoy is ready at {url} as Kubernetes {release}; it keeps everything in {data}.\n\
         \n\
         In another terminal:\n\
         \n\
         \x20 export KUBECONFIG={kubeconfig}\n\
         \x20 kubectl get namespaces\n\
         \x20 kubectl create configmap hello --from-literal=who=world\n\
         \x20 kubectl get configmap hello -o yaml\n\
         \n\
         Ctrl-C stops it; the data stays.\n",
        url = ready.url,
        data = data_dir.display(),
        kubeconfig = kubeconfig.display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_passed_over() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let address = IpAddr::from([127, 0, 0, 1]);
        let first = free_port(address).unwrap();
        let _taken = {
            let _entered = runtime.enter();
            listen::bind(SocketAddr::new(address, first)).unwrap()
        };
        assert!(free_port(address).unwrap() > first);
    }

    #[test]
    fn the_welcome_says_what_to_type() {
        let ready =
            Ready { address: SocketAddr::from(([127, 0, 0, 1], 6443)), url: "https://127.0.0.1:6443" };
        let text = welcome(&ready, Release::v1(36), Path::new("./d"), Path::new("/x/admin.kubeconfig"));
        assert!(text.contains("export KUBECONFIG=/x/admin.kubeconfig\n"), "{text}");
        assert!(default_serve_flags().storage.etcd.etcd_servers.is_empty());
    }
}
