//! The client: one small pool of connections per webhook, one bounded answer per call.
//!
//! # Guarantees
//! A call ends within its time-out, whatever the other side does. It follows no redirects. It never holds more of
//! an answer than [`Limits::response_bytes`], and all calls together never more than [`Limits::total_bytes`].

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::Client as Pool,
    rt::{TokioExecutor, TokioTimer},
};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{CallError, Endpoint, Resolve, connect::Connector, failure, trust};

/// What calls may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest answer.
    pub response_bytes: usize,
    /// All answers that are being read.
    pub total_bytes: usize,
    /// Calls to one webhook at a time; more wait, and their waiting counts.
    pub calls_per_endpoint: usize,
    /// Webhooks whose connections are kept.
    pub endpoints: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { response_bytes: 16 << 20, total_bytes: 128 << 20, calls_per_endpoint: 64, endpoints: 200 }
    }
}

/// How long an unused connection is kept.
const IDLE: Duration = Duration::from_secs(30);
/// Unused connections per webhook.
const MAX_IDLE: usize = 8;
/// How much of an answer that tells a failure is read.
const MAX_FAILURE_BYTES: usize = 16 << 10;

/// Calls webhooks. Clones share connections.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    resolver: Arc<dyn Resolve>,
    limits: Limits,
    budget: Semaphore,
    pools: Mutex<Pools>,
}

/// The pools in use, and when each was used last, in calls.
#[derive(Default)]
struct Pools {
    by_endpoint: HashMap<Endpoint, (u64, Arc<EndpointPool>)>,
    n_calls: u64,
}

struct EndpointPool {
    http: Pool<Connector, Full<Bytes>>,
    calls: Semaphore,
}

impl Client {
    /// A client that finds services with this resolver.
    pub fn new(resolver: Arc<dyn Resolve>, limits: Limits) -> Self {
        let budget = Semaphore::new(limits.total_bytes.min(Semaphore::MAX_PERMITS));
        Self { shared: Arc::new(Shared { resolver, limits, budget, pools: Mutex::default() }) }
    }

    /// Posts a JSON text and returns the body of the 2xx answer.
    pub async fn post(
        &self,
        endpoint: &Endpoint,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, CallError> {
        let url = endpoint.url(timeout);
        match tokio::time::timeout(timeout, self.call(endpoint, &url, body)).await {
            Ok(answer) => answer,
            Err(_) => Err(CallError::Unreached { url, why: "context deadline exceeded".to_owned() }),
        }
    }

    async fn call(&self, endpoint: &Endpoint, url: &str, body: Bytes) -> Result<Bytes, CallError> {
        let unreached = |why: String| CallError::Unreached { url: url.to_owned(), why };
        let pool = self.pool(endpoint).map_err(unreached)?;
        let _turn = pool.calls.acquire().await.map_err(|it| unreached(it.to_string()))?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .body(Full::new(body))
            .map_err(|it| unreached(it.to_string()))?;
        let host = request.uri().host().unwrap_or_default().to_owned();
        let response =
            pool.http.request(request).await.map_err(|it| unreached(failure::describe(&it, &host)))?;
        let code = response.status().as_u16();
        let limit = self.shared.limits.response_bytes;
        if !response.status().is_success() {
            let (body, _) = self.read(response, MAX_FAILURE_BYTES).await.map_err(|it| unreached(it.why()))?;
            return Err(CallError::of_answer(code, &body));
        }
        match self.read(response, limit).await {
            Ok((body, Whole::Yes)) => Ok(body),
            Ok((_, Whole::Cut)) => Err(CallError::TooLarge { url: url.to_owned(), limit }),
            Err(it) => Err(unreached(it.why())),
        }
    }

    /// Reads an answer up to a limit.
    async fn read(&self, response: Response<Incoming>, limit: usize) -> Result<(Bytes, Whole), ReadError> {
        let mut body = response.into_body();
        let mut text = BytesMut::new();
        let mut held: Option<SemaphorePermit<'_>> = None;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(ReadError::Broken)?;
            let Ok(chunk) = frame.into_data() else { continue };
            if text.len() + chunk.len() > limit {
                let room = limit - text.len();
                text.extend_from_slice(&chunk[..room]);
                return Ok((text.freeze(), Whole::Cut));
            }
            let size = u32::try_from(chunk.len()).map_err(|_| ReadError::Crowded)?;
            let permit = self.shared.budget.try_acquire_many(size).map_err(|_| ReadError::Crowded)?;
            match &mut held {
                Some(held) => held.merge(permit),
                None => held = Some(permit),
            }
            text.extend_from_slice(&chunk);
        }
        Ok((text.freeze(), Whole::Yes))
    }

    /// The connections to this webhook; makes room for them if need be.
    fn pool(&self, endpoint: &Endpoint) -> Result<Arc<EndpointPool>, String> {
        if let Some(pool) = self.shared.pools.lock().used(endpoint) {
            return Ok(pool);
        }
        // Reading certificates takes its time, so others are not kept waiting for it.
        let connector = Connector {
            address: Arc::new(endpoint.address.clone()),
            resolver: Arc::clone(&self.shared.resolver),
            tls: Arc::new(trust::config(&endpoint.ca_bundle)?),
        };
        let http = Pool::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MAX_IDLE)
            .pool_timer(TokioTimer::new())
            .http1_max_buf_size(64 << 10)
            .build(connector);
        let pool = EndpointPool { http, calls: Semaphore::new(self.shared.limits.calls_per_endpoint) };
        Ok(self.shared.pools.lock().insert(endpoint, Arc::new(pool), self.shared.limits.endpoints))
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("limits", &self.shared.limits).finish_non_exhaustive()
    }
}

#[derive(PartialEq, Eq)]
enum Whole {
    Yes,
    Cut,
}

enum ReadError {
    Broken(hyper::Error),
    Crowded,
}

impl ReadError {
    fn why(&self) -> String {
        match self {
            Self::Broken(error) => format!("unexpected end of the response: {error}"),
            Self::Crowded => "too many bytes of webhook responses are being read at once".to_owned(),
        }
    }
}

impl Pools {
    fn used(&mut self, endpoint: &Endpoint) -> Option<Arc<EndpointPool>> {
        self.n_calls += 1;
        let (used, pool) = self.by_endpoint.get_mut(endpoint)?;
        *used = self.n_calls;
        Some(Arc::clone(pool))
    }

    fn insert(&mut self, endpoint: &Endpoint, pool: Arc<EndpointPool>, most: usize) -> Arc<EndpointPool> {
        if let Some(made_meanwhile) = self.used(endpoint) {
            return made_meanwhile;
        }
        if self.by_endpoint.len() >= most.max(1) {
            let oldest = self.by_endpoint.iter().min_by_key(|(_, (used, _))| *used);
            if let Some(oldest) = oldest.map(|(endpoint, _)| endpoint.clone()) {
                self.by_endpoint.remove(&oldest);
            }
        }
        self.by_endpoint.insert(endpoint.clone(), (self.n_calls, Arc::clone(&pool)));
        pool
    }
}
