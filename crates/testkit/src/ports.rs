//! Ports for processes that must be told theirs. They lie below those that the system gives to outgoing connections,
//! so that nobody's client takes a port while its server is starting, or down for a moment.

use std::{io::ErrorKind, net::TcpListener};

use anyhow::{Result, bail};
use rand::RngExt;

const FIRST: u16 = 10_000;
const LAST: u16 = 32_000;
const ATTEMPTS: usize = 1000;

/// Ports nobody listens on, found together so that they differ.
pub(crate) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut random = rand::rng();
    let mut listeners = Vec::new();
    let mut ports = [0; N];
    for _ in 0..ATTEMPTS {
        if listeners.len() == N {
            return Ok(ports);
        }
        let port = random.random_range(FIRST..LAST);
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(listener) => {
                ports[listeners.len()] = port;
                listeners.push(listener);
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            Err(error) => return Err(error.into()),
        }
    }
    bail!("no free port between {FIRST} and {LAST}")
}
