//! How clients reach the servers: a door before each, which can be shut on whoever stands in it.

use std::time::Duration;

use anyhow::Result;
use testkit::{Client, balance::Balancer, convoy::ADMIN_TOKEN};

/// How long a client waits before it takes an answer for lost.
const PATIENCE: Duration = Duration::from_secs(4);

/// One door for each server; ports behind them may change.
pub struct Doors {
    doors: Vec<Balancer>,
    ca: Vec<u8>,
    key: Key,
    patience: Duration,
}

/// Who clients are: administrators.
pub enum Key {
    Token,
    /// Certificate and its key, PEM.
    Certificate(Vec<u8>, Vec<u8>),
}

impl Doors {
    pub async fn open(ports: &[u16], ca: Vec<u8>, key: Key) -> Result<Self> {
        let mut doors = Vec::new();
        for port in ports {
            doors.push(Balancer::start(vec![*port]).await?);
        }
        Ok(Self { doors, ca, key, patience: PATIENCE })
    }

    /// Clients wait longer, where an answer that is lost is a fault.
    pub fn be_patient(&mut self) {
        self.patience = Duration::from_secs(30);
    }

    /// A client for each server, with connections of its own.
    pub fn clients(&self) -> Vec<Client> {
        (0..self.doors.len()).map(|n| self.client(n)).collect()
    }

    pub fn client(&self, n: usize) -> Client {
        let url = self.doors[n].url();
        let client = match &self.key {
            Key::Token => Client::new(&url, &self.ca, Some(ADMIN_TOKEN)),
            Key::Certificate(certificate, key) => Client::with_certificate(&url, &self.ca, certificate, key),
        };
        client.expect("the keys of a running server must be usable").with_patience(self.patience)
    }

    pub fn len(&self) -> usize {
        self.doors.len()
    }

    /// A server listens elsewhere now.
    pub fn leads_to(&self, n: usize, port: u16) {
        self.doors[n].only(vec![port]);
    }

    /// Whoever stands in a door is gone, as when a process dies.
    pub fn sever(&self, n: usize) {
        self.doors[n].only(Vec::new());
        self.doors[n].sever();
    }

    /// Connections are cut at moments that follow from this seed; those that there are at once.
    pub fn cut(&self, seed: u64) {
        for (n, door) in (0..).zip(&self.doors) {
            door.cut(Some(seed ^ n));
            door.sever();
        }
    }

    pub fn mend(&self) {
        self.doors.iter().for_each(|it| it.cut(None));
    }
}
