//! Which ports the servers of `convoy up` listen on.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use server::listen;
use tokio::runtime::Runtime;

use crate::{cli::say, failure::Failure};

/// The port that is tried first, and how many after it.
const PORT: u16 = 6443;
const MORE_PORTS: u16 = 100;

/// The common port, then one for each server.
pub(super) fn take(address: IpAddr, wanted: Option<u16>, n_servers: usize) -> Result<Vec<u16>, Failure> {
    if wanted == Some(0) {
        return any_ports(address, n_servers + 1);
    }
    let first = wanted.unwrap_or(PORT);
    let mut ports = free_ports(address, first, n_servers + 1)?;
    if let Some(wanted) = wanted.filter(|it| *it != ports[0]) {
        return Err(Failure::failed(format!("port {wanted} cannot be opened on {address}")));
    }
    if ports[0] != first {
        say(&format!("Port {first} is taken; using {}.\n", ports[0]));
    }
    ports.truncate(n_servers + 1);
    Ok(ports)
}

/// So many ports that the system chooses.
fn any_ports(address: IpAddr, count: usize) -> Result<Vec<u16>, Failure> {
    let runtime = runtime()?;
    let _entered = runtime.enter();
    // All are open at the same time, so that no two are the same.
    let listeners = (0..count).map(|_| listen::bind(SocketAddr::new(address, 0)));
    let listeners = listeners.collect::<io::Result<Vec<_>>>();
    let ports = listeners.and_then(|them| them.iter().map(|it| Ok(it.local_addr()?.port())).collect());
    ports.map_err(|it| Failure::failed(format!("no port can be opened on {address}: {it}")))
}

/// Needed only because a listener belongs to one.
fn runtime() -> Result<Runtime, Failure> {
    let made = tokio::runtime::Builder::new_current_thread().enable_io().build();
    made.map_err(|it| Failure::failed(format!("cannot look for a free port: {it}")))
}

/// So many ports that are free, from `first` on.
fn free_ports(address: IpAddr, first: u16, count: usize) -> Result<Vec<u16>, Failure> {
    let runtime = runtime()?;
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

    #[test]
    fn port_0_is_any_port() {
        let ports = take(IpAddr::from([127, 0, 0, 1]), Some(0), 3).unwrap();
        let different: std::collections::BTreeSet<_> = ports.iter().collect();
        assert!(different.len() == 4 && ports.iter().all(|it| *it > 0), "{ports:?}");
    }
}
