//! How the controllers are, for whoever looks after the process: `/metrics`, `/livez`, `/readyz`, `/healthz`.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use controllers::Observe;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::{body::Bytes, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use server::metrics::Metrics;
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::{cluster, counting::Counting};

/// The API server is asked so often.
const ASK: Duration = Duration::from_secs(5);
/// One that was not reached for so long is not reached.
const FRESH: Duration = Duration::from_secs(30);
/// A pass is bounded in time, far below this: if none ends for so long, something stands still.
const STILL: Duration = Duration::from_mins(10);

/// Signs of life.
#[derive(Debug, Default)]
pub(super) struct Vitals(Mutex<Signs>);

#[derive(Clone, Copy, Debug, Default)]
struct Signs {
    /// When the API server last answered.
    reached: Option<Instant>,
    /// Passes that have begun and not ended.
    n_passes: usize,
    /// When one last did either.
    moved: Option<Instant>,
}

impl Signs {
    fn is_ready(self, now: Instant) -> bool {
        self.reached.is_some_and(|it| now.duration_since(it) < FRESH)
    }

    fn is_alive(self, now: Instant) -> bool {
        self.n_passes == 0 || self.moved.is_none_or(|it| now.duration_since(it) < STILL)
    }
}

impl Vitals {
    fn with<T>(&self, act: impl FnOnce(&mut Signs) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks the API server now and then, for ever.
    pub(super) async fn watch(&self, client: &kube::Client) {
        loop {
            let asked = cluster::ask(client, "GET", "/version", Vec::new());
            if tokio::time::timeout(ASK, asked).await.is_ok_and(|it| it.is_ok()) {
                self.with(|it| it.reached = Some(Instant::now()));
            }
            tokio::time::sleep(ASK).await;
        }
    }

    /// Whatever was under way was dropped.
    pub(super) fn start_again(&self) {
        self.with(|it| it.n_passes = 0);
    }
}

/// Counts, and sees whether something moves.
pub(super) struct Watchful {
    pub(super) counting: Counting,
    pub(super) vitals: Arc<Vitals>,
}

impl Observe for Watchful {
    fn queued(&self, controller: &'static str) {
        self.counting.queued(controller);
    }

    fn unqueued(&self, controller: &'static str) {
        self.counting.unqueued(controller);
    }

    fn begins(&self, controller: &'static str, waited: Duration) {
        self.vitals.with(|it| (it.n_passes, it.moved) = (it.n_passes + 1, Some(Instant::now())));
        self.counting.begins(controller, waited);
    }

    fn ended(&self, controller: &'static str, took: Duration, has_failed: bool) {
        let now = Instant::now();
        self.vitals.with(|it| (it.n_passes, it.moved) = (it.n_passes.saturating_sub(1), Some(now)));
        self.counting.ended(controller, took, has_failed);
    }

    fn retried(&self, controller: &'static str) {
        self.counting.retried(controller);
    }

    fn undiscovered(&self) {
        self.counting.undiscovered();
    }

    fn leads(&self, lease: &str, does: bool) {
        self.vitals.start_again();
        self.counting.leads(lease, does);
    }

    fn migrated(&self, resource: &str, objects: u64) {
        self.counting.migrated(resource, objects);
    }

    fn migration_remaining(&self, resource: &str, objects: u64, per_second: u64) {
        self.counting.migration_remaining(resource, objects, per_second);
    }

    fn migration_failure(&self, resource: &str, class: &'static str) {
        self.counting.migration_failure(resource, class);
    }

    fn migration_ended(&self, resource: &str, status: &'static str, took: Duration) {
        self.counting.migration_ended(resource, status, took);
    }
}

/// Answers whoever asks, for ever.
pub(super) async fn answer(listener: TcpListener, metrics: Arc<Metrics>, vitals: Arc<Vitals>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (metrics, vitals) = (Arc::clone(&metrics), Arc::clone(&vitals));
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                let signs = vitals.with(|it| *it);
                let page = page(request.uri().path(), &metrics, signs, Instant::now());
                std::future::ready(Ok::<_, std::convert::Infallible>(page))
            });
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn page(path: &str, metrics: &Metrics, signs: Signs, now: Instant) -> Response<Full<Bytes>> {
    let healthy = |is_healthy: bool, why: &str| {
        if is_healthy {
            (StatusCode::OK, "ok".to_owned())
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, why.to_owned())
        }
    };
    let (unreached, still) = ("the API server was not reached lately\n", "no pass has ended for long\n");
    let (code, text) = match path {
        "/metrics" => (StatusCode::OK, metrics.render()),
        "/livez" => healthy(signs.is_alive(now), still),
        "/readyz" => healthy(signs.is_ready(now), unreached),
        "/healthz" if signs.is_alive(now) => healthy(signs.is_ready(now), unreached),
        "/healthz" => healthy(false, still),
        _ => (StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = code;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn health_is_what_was_seen_lately() {
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let fresh = Signs::default();
        assert!(fresh.is_alive(at(0)) && !fresh.is_ready(at(0)));
        let reached = Signs { reached: Some(begin), ..fresh };
        assert!(reached.is_ready(at(29)) && !reached.is_ready(at(31)) && reached.is_alive(at(9_999)));
        let working = Signs { n_passes: 1, moved: Some(begin), ..reached };
        assert!(working.is_alive(at(599)) && !working.is_alive(at(601)));
    }
}
