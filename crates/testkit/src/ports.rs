//! Ports for processes that must be told theirs. They lie below those that the system gives to outgoing connections,
//! so that nobody's client takes a port while its server is starting, or down for a moment.
//!
//! Tests run in processes of their own, and a port stays free until the server that it was chosen for listens: so that
//! no two tests choose the same one, each is locked by a file while the test runs.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io,
    net::TcpListener,
    ops::Range,
    sync::{Mutex, PoisonError},
};

use anyhow::{Result, bail};

const PORTS: Range<u16> = 10_000..32_000;
const ATTEMPTS: usize = 1000;

/// A long test starts many servers; so many ports stay locked.
const MOST_LOCKS: usize = 256;

static LOCKS: Mutex<VecDeque<File>> = Mutex::new(VecDeque::new());

/// Ports nobody listens on and no other test has chosen.
pub(crate) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut ports = [0; N];
    for port in &mut ports {
        *port = free_port_with(0)?;
    }
    Ok(ports)
}

/// A port nobody listens on and no other test has chosen, with `n_more` such ports right after it.
pub fn free_port_with(n_more: u16) -> Result<u16> {
    for _ in 0..ATTEMPTS {
        let first = rand::random_range(PORTS.start..PORTS.end - n_more);
        let taken: io::Result<Option<Vec<File>>> = (first..=first + n_more).map(take).collect();
        if let Some(locks) = taken? {
            let mut held = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
            held.extend(locks);
            let n_old = held.len().saturating_sub(MOST_LOCKS);
            held.drain(..n_old);
            return Ok(first);
        }
    }
    bail!("no free port between {} and {}", PORTS.start, PORTS.end)
}

/// The lock of a port, if nobody has it and nobody listens there.
fn take(port: u16) -> io::Result<Option<File>> {
    let directory = std::env::temp_dir().join("convoy-test-ports");
    fs::create_dir_all(&directory)?;
    let lock = File::create(directory.join(port.to_string()))?;
    let is_free = lock.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok();
    Ok(is_free.then_some(lock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_was_chosen_is_not_chosen_again() {
        let port = free_port_with(0).unwrap();
        assert!(take(port).unwrap().is_none(), "{port} is locked, though nobody listens there");
    }
}
