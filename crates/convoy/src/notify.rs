//! What a server tells systemd: that it listens, that it stops, and, again and again, that it still answers.
//!
//! Responsible for: the datagrams of `sd_notify(3)` to `NOTIFY_SOCKET`, and a watchdog (`WatchdogSec=`) that asks the
//! server itself before each of them. A server that hangs says nothing, and systemd starts it anew.
//! Deliberately not here: whether the server is healthy. One that answers `/livez` with an error is not hung, and still
//! serves what can be read.

use std::{
    ffi::OsString,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::Duration,
};

use server::local::Local;
use store::SharedClock;
use tower::ServiceExt;

/// Where to say it, and how often.
pub struct Notifier {
    socket: UnixDatagram,
    address: SocketAddr,
    /// How long systemd waits for a word; it does not if there is none.
    watchdog: Option<Duration>,
}

impl Notifier {
    /// What the environment says, if a service manager started this process.
    pub fn from_environment() -> Option<Self> {
        let watchdog = watchdog(
            std::env::var("WATCHDOG_USEC").ok().as_deref(),
            std::env::var("WATCHDOG_PID").ok().as_deref(),
            std::process::id(),
        );
        let socket = std::env::var_os("NOTIFY_SOCKET").filter(|it| !it.is_empty())?;
        Self::new(&socket, watchdog)
            .inspect_err(|error| tracing::warn!(%error, "the service manager cannot be told anything"))
            .ok()
    }

    fn new(socket: &OsString, watchdog: Option<Duration>) -> io::Result<Self> {
        let address = match socket.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(socket)?,
        };
        Ok(Self { socket: UnixDatagram::unbound()?, address, watchdog })
    }

    /// Says something; whoever does not hear it cannot be told otherwise.
    pub fn say(&self, what: &str) {
        if let Err(error) = self.socket.send_to_addr(what.as_bytes(), &self.address) {
            tracing::debug!(%error, what, "the service manager was not told");
        }
    }

    /// Says for ever that the server answers, as long as it does.
    pub async fn watch(self: std::sync::Arc<Self>, server: Local, clock: SharedClock) {
        let Some(limit) = self.watchdog else { return };
        loop {
            clock.sleep(limit / 4).await;
            let request = http::Request::get("/livez").body(http_body_util::Empty::<bytes::Bytes>::new());
            let request = request.expect("a request for a fixed path must be valid");
            if tokio::time::timeout(limit / 2, server.clone().oneshot(request)).await.is_ok() {
                self.say("WATCHDOG=1");
            } else {
                tracing::error!("the server does not answer its own /livez");
            }
        }
    }
}

/// How long the service manager waits for a word from this process.
fn watchdog(usec: Option<&str>, pid: Option<&str>, own: u32) -> Option<Duration> {
    let is_meant = pid.is_none_or(|it| it.parse() == Ok(own));
    let usec = usec.filter(|_| is_meant)?.parse().ok().filter(|it| *it > 0)?;
    Some(Duration::from_micros(usec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_is_for_the_process_that_is_named() {
        assert_eq!(watchdog(Some("30000000"), None, 7), Some(Duration::from_secs(30)));
        assert_eq!(watchdog(Some("30000000"), Some("7"), 7), Some(Duration::from_secs(30)));
        assert_eq!(watchdog(Some("30000000"), Some("8"), 7), None);
        assert_eq!(watchdog(Some("0"), None, 7), None);
        assert_eq!(watchdog(None, None, 7), None);
    }
}
