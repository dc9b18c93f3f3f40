//! How many connections there may be, of all clients and from one address.
//!
//! The last of them are kept for those who look after the server: health checks and administrators. Whether a connection
//! is one of theirs is seen from its first request, so it must send one soon.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// How long a connection has for its first request that is one of the last, and then for its end.
pub(super) const RESERVED_WITHIN: Duration = Duration::from_secs(5);

/// How often it is said that there are too many.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// The open connections of one listener, by where they come from.
#[derive(Debug)]
pub(super) struct Sources {
    most: usize,
    per_source: usize,
    reserve: usize,
    open: Mutex<Open>,
    left: Notify,
}

#[derive(Debug, Default)]
struct Open {
    n_all: usize,
    by_source: HashMap<IpAddr, usize>,
    said: Option<tokio::time::Instant>,
}

/// What becomes of a connection.
#[derive(Debug)]
pub(super) enum Entry {
    /// It is served.
    Served(Place),
    /// It is served if it turns out to be for health, or an administrator's.
    Reserved(Place),
    /// Its source has enough.
    Refused,
}

/// One open connection.
#[derive(Debug)]
pub(super) struct Place {
    sources: Arc<Sources>,
    source: IpAddr,
}

impl Sources {
    pub(super) fn new(most: usize, per_source: usize, reserve: usize) -> Arc<Self> {
        let (open, left) = (Mutex::default(), Notify::new());
        Arc::new(Self { most, per_source, reserve, open, left })
    }

    /// Ends when there is room for one more, whoever it is.
    pub(super) async fn room(&self) {
        loop {
            let left = self.left.notified();
            {
                let mut open = self.open.lock();
                if open.n_all < self.most {
                    return;
                }
                open.say("all connections are in use; more have to wait", None);
            }
            left.await;
        }
    }

    /// A new connection.
    pub(super) fn enter(self: &Arc<Self>, address: SocketAddr) -> Entry {
        let source = source(address.ip());
        let mut open = self.open.lock();
        if open.by_source.get(&source).is_some_and(|n| *n >= self.per_source) {
            open.say("one address has as many connections as it may have; more are refused", Some(source));
            return Entry::Refused;
        }
        let is_reserved = open.n_all + self.reserve >= self.most;
        if is_reserved {
            let why = "most connections are in use; the rest is kept for health checks and administrators";
            open.say(why, Some(source));
        }
        open.n_all += 1;
        *open.by_source.entry(source).or_default() += 1;
        let place = Place { sources: Arc::clone(self), source };
        if is_reserved { Entry::Reserved(place) } else { Entry::Served(place) }
    }
}

impl Open {
    /// Now and then: whoever makes too many connections must not fill the log with them, too.
    fn say(&mut self, what: &str, source: Option<IpAddr>) {
        let now = tokio::time::Instant::now();
        if self.said.is_none_or(|it| now.duration_since(it) >= SAID_EVERY) {
            self.said = Some(now);
            let source = source.map(|it| it.to_string()).unwrap_or_default();
            tracing::warn!(connections = self.n_all, source, "{what}");
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.sources.open.lock();
        open.n_all -= 1;
        if let Some(n) = open.by_source.get_mut(&self.source) {
            *n -= 1;
            if *n == 0 {
                open.by_source.remove(&self.source);
            }
        }
        drop(open);
        self.sources.left.notify_one();
    }
}

/// What counts as one client: an address, or of IPv6 a whole network, which is what one has.
pub fn source(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(it) => {
            let [a, b, c, d, ..] = it.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 1))
    }

    #[tokio::test]
    async fn one_address_cannot_have_all_and_the_last_are_kept() {
        let sources = Sources::new(10, 5, 2);
        let mut held: Vec<Entry> = (0..5).map(|_| sources.enter(address(1))).collect();
        assert!(held.iter().all(|it| matches!(it, Entry::Served(_))));
        assert!(matches!(sources.enter(address(1)), Entry::Refused));
        held.extend((0..3).map(|_| sources.enter(address(2))));
        assert!(held.iter().all(|it| matches!(it, Entry::Served(_))));
        held.extend((0..2).map(|_| sources.enter(address(3))));
        assert!(held[8..].iter().all(|it| matches!(it, Entry::Reserved(_))));
        // Full: the next waits until somebody goes.
        let waiting = tokio::spawn({
            let sources = Arc::clone(&sources);
            async move { sources.room().await }
        });
        held.pop();
        waiting.await.unwrap();
        drop(held);
        assert!(sources.open.lock().by_source.is_empty());
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        let ip = |text: &str| source(text.parse().unwrap());
        assert_eq!(ip("2001:db8::1"), ip("2001:db8::ffff:1"));
        assert_ne!(ip("2001:db8::1"), ip("2001:db8:0:1::1"));
        assert_eq!(ip("::ffff:10.0.0.1"), ip("10.0.0.1"));
    }
}
