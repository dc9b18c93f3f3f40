//! Connections to the other servers that are kept, and who of them is worth asking.
//!
//! HTTP/2, several connections to each server where one has too many requests on it. Everything is bounded: requests and
//! watches to one server, connections, and how often a server that does not answer is tried.
//! Deliberately not here: which server is asked, and what is asked.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{Request, Response};
use parking_lot::Mutex;
use store::SharedClock;

use super::{
    Peers,
    link::{Held, Incoming, Link, SendError},
};
use crate::{
    body::{BoxError, RequestBody},
    lifecycle::Tasks,
};

/// Requests at a time on one connection; fewer than any server allows.
const STREAMS: usize = 100;

/// Connections to one server.
const MAX_CONNECTIONS: usize = 128;

/// Requests at a time to one server that are not watches: what upstream lets one server handle at a time.
const MAX_REQUESTS: usize = 400;

/// How long a server that could not be reached is left alone: longer after every failure.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// All pools of one server.
pub(crate) struct Pools {
    peers: Peers,
    tasks: Tasks,
    clock: SharedClock,
    by_address: Mutex<HashMap<String, Arc<Pool>>>,
}

/// The connections to one server.
pub(crate) struct Pool {
    address: String,
    /// Each with the generation of the certificates under which it was made.
    connections: Mutex<Vec<(u64, Link)>>,
    /// Held while a connection is made, so that many requests do not make many.
    dialing: tokio::sync::Mutex<()>,
    breaker: Mutex<Breaker>,
    requests: Arc<AtomicUsize>,
}

/// Whether a server is worth asking.
#[derive(Debug, Default)]
struct Breaker {
    n_failures: u32,
    /// Not before this moment.
    until: Duration,
}

/// Holds the place of one request for as long as its answer is being read.
pub(crate) struct Place {
    _on_connection: Held,
    _on_server: Counted,
}

/// A request that counts; watches do not.
struct Counted(Option<Arc<AtomicUsize>>);

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(counted) = &self.0 {
            counted.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Why a server did not answer.
pub(crate) struct NoAnswer {
    /// For the log; it may name addresses.
    pub(crate) error: BoxError,
    /// The body of the request, if not a byte of it was sent.
    pub(crate) unsent: Option<RequestBody>,
    /// Whether the request may have been carried out.
    pub(crate) was_done: bool,
}

impl NoAnswer {
    fn unsent(error: impl Into<BoxError>, request: Request<RequestBody>) -> Self {
        Self { error: error.into(), unsent: Some(request.into_body()), was_done: false }
    }
}

impl From<SendError> for NoAnswer {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Unsent(error, body) => Self { error, unsent: Some(body), was_done: false },
            SendError::Refused(error) => Self { error, unsent: None, was_done: false },
            SendError::Sent(error) => Self { error, unsent: None, was_done: true },
        }
    }
}

impl Pools {
    pub(crate) fn new(peers: Peers, tasks: Tasks, clock: SharedClock) -> Self {
        Self { peers, tasks, clock, by_address: Mutex::default() }
    }

    /// The files and the way to the others.
    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// The pool of a server.
    pub(crate) fn pool(&self, address: &str) -> Arc<Pool> {
        let mut pools = self.by_address.lock();
        if let Some(pool) = pools.get(address) {
            return Arc::clone(pool);
        }
        let pool = Arc::new(Pool {
            address: address.to_owned(),
            connections: Mutex::default(),
            dialing: tokio::sync::Mutex::default(),
            breaker: Mutex::default(),
            requests: Arc::default(),
        });
        pools.insert(address.to_owned(), Arc::clone(&pool));
        pool
    }

    /// Forgets servers that are no longer there. Answers that are being read are read to their end.
    pub(crate) fn keep_only(&self, addresses: &HashSet<&str>) {
        self.by_address.lock().retain(|it, _| addresses.contains(it.as_str()));
    }

    /// Whether a server has not failed lately.
    pub(crate) fn is_worth_asking(&self, pool: &Pool) -> bool {
        pool.breaker.lock().until <= self.clock.monotonic()
    }

    /// Sends a request and waits for the head of the answer.
    pub(crate) async fn send(
        &self,
        pool: &Arc<Pool>,
        request: Request<RequestBody>,
        is_watch: bool,
    ) -> Result<(Response<Incoming>, Place), NoAnswer> {
        let counted = Counted((!is_watch).then(|| Arc::clone(&pool.requests)));
        if !is_watch && pool.requests.fetch_add(1, Ordering::Relaxed) >= MAX_REQUESTS {
            return Err(NoAnswer::unsent("too many requests are under way to it", request));
        }
        let (mut link, held) = match self.connection(pool).await {
            Ok(connection) => connection,
            Err(error) => return Err(NoAnswer::unsent(error, request)),
        };
        match link.send(request, &self.tasks).await {
            Ok(response) => {
                *pool.breaker.lock() = Breaker::default();
                Ok((response, Place { _on_connection: held, _on_server: counted }))
            }
            Err(error) => {
                // A body that its client did not send to the end says nothing about the server.
                if link.is_closed() {
                    pool.breaker.lock().failed(self.clock.monotonic());
                }
                Err(error.into())
            }
        }
    }

    /// A connection with room on it.
    async fn connection(&self, pool: &Arc<Pool>) -> Result<(Link, Held), BoxError> {
        if let Some(found) = pool.free(self.peers.generation()) {
            return Ok(found);
        }
        let _dialing = pool.dialing.lock().await;
        if let Some(found) = pool.free(self.peers.generation()) {
            return Ok(found);
        }
        if !self.is_worth_asking(pool) {
            return Err("it could not be reached a moment ago".into());
        }
        if pool.connections.lock().len() >= MAX_CONNECTIONS {
            return Err("too many connections are open to it".into());
        }
        let generation = self.peers.generation();
        let stream = match self.peers.connect(&pool.address, b"h2").await {
            Ok(stream) => stream,
            Err(error) => {
                // Whoever waits for this connection need not try it as well.
                pool.breaker.lock().failed(self.clock.monotonic());
                return Err(error);
            }
        };
        let link = Link::open(stream, &self.tasks).await?;
        let held = link.hold();
        pool.connections.lock().push((generation, link.clone()));
        Ok((link, held))
    }
}

impl Pool {
    /// A connection that is alive, was made with the certificates of now and has room, the fullest first so that the others
    /// can end. What is being read on others is read to its end.
    fn free(&self, generation: u64) -> Option<(Link, Held)> {
        let mut connections = self.connections.lock();
        connections.retain_mut(|(made_under, it)| *made_under == generation && !it.is_closed());
        let (_, found) = connections.iter().find(|(_, it)| it.n_requests() < STREAMS)?;
        Some((found.clone(), found.hold()))
    }
}

impl Breaker {
    fn failed(&mut self, now: Duration) {
        let pause = PAUSE.saturating_mul(1 << self.n_failures.min(8)).min(PAUSE_MAX);
        self.n_failures = self.n_failures.saturating_add(1);
        self.until = now + pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_keeps_failing_is_asked_less_and_less_but_never_given_up() {
        let mut breaker = Breaker::default();
        let mut last = Duration::ZERO;
        for _ in 0..1_000 {
            breaker.failed(Duration::from_secs(1));
            let pause = breaker.until - Duration::from_secs(1);
            assert!(pause >= last && pause <= PAUSE_MAX);
            last = pause;
        }
        assert_eq!(last, PAUSE_MAX);
    }
}
