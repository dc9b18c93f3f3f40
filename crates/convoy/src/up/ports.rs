//! Which ports the servers of `convoy up` listen on.

use std::net::{IpAddr, SocketAddr};

use server::listen;

use crate::{cli::say, failure::Failure};

/// The port that is tried first, and how many after it.
const PORT: u16 = 6443;
const MORE_PORTS: u16 = 100;

/// The common port, then one for each server.
pub(super) fn take(address: IpAddr, wanted: Option<u16>, n_servers: usize) -> Result<Vec<u16>, Failure> {
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
