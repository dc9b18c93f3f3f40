//! A server without a network, and short ways to ask it.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use access::{Mode, RequestHeaderConfig, TokenFile, TokenIssuer, TokenVerifier};
use admission::Plugins;
use catalog::{Catalog, FeatureGates, RuntimeConfig};
use http::Request;
use http_body_util::BodyExt;
use jiff::SignedDuration;
use meta::{Release, Value};
use server::{
    audit::Auditor,
    body::{Body, full_body},
    lifecycle::Lifecycle,
    listen::Peer,
    membership::FleetSettings,
    metrics::Metrics,
    server::{Server, Settings, StartError},
    service_account::{Keyring, Keys},
    tls::Trust,
};
use store::{Clock, MemoryStore, SharedClock, SharedStore, SystemClock};

/// Servers on one store need names of their own.
static N_SERVERS: AtomicUsize = AtomicUsize::new(0);

/// A server on a memory store.
pub struct TestServer {
    pub server: Server,
    pub store: SharedStore,
    pub lifecycle: Lifecycle,
    /// The time of day, where a test decides on it.
    still: Option<Arc<Still>>,
}

/// What came back.
#[derive(Debug)]
pub struct Answered {
    pub code: u16,
    pub headers: http::HeaderMap,
    pub text: String,
}

impl Answered {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub fn message(&self) -> String {
        self.json()["message"].as_str().unwrap_or_default().to_owned()
    }

    #[track_caller]
    pub fn expect(self, code: u16) -> Self {
        assert_eq!(self.code, code, "{}", self.text);
        self
    }
}

/// Time passes, but the time of day only when a test says so.
struct Still {
    clock: SystemClock,
    began: jiff::Timestamp,
    seconds: AtomicI64,
}

impl Clock for Still {
    fn now(&self) -> jiff::Timestamp {
        self.began + SignedDuration::from_secs(self.seconds.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.clock.sleep(duration)
    }
}

impl TestServer {
    pub async fn start() -> Self {
        Self::start_as(Release::v1(36), |_| {}).await
    }

    pub async fn start_as(release: Release, adjust: impl FnOnce(&mut Settings)) -> Self {
        let store = SharedStore::new(MemoryStore::new(SystemClock::shared()));
        Self::start_on(store, release, adjust).await
    }

    /// A server on a store that may hold something already.
    pub async fn start_on(store: SharedStore, release: Release, adjust: impl FnOnce(&mut Settings)) -> Self {
        Self::start_by(SystemClock::shared(), store, release, adjust).await
    }

    /// A server for which it stays the same time of day, so that no test depends on when a second ends.
    pub async fn start_still(release: Release, adjust: impl FnOnce(&mut Settings)) -> Self {
        let clock = SystemClock::new();
        let still = Arc::new(Still { clock, began: clock.now(), seconds: AtomicI64::new(0) });
        let store = SharedStore::new(MemoryStore::new(SystemClock::shared()));
        let server = Self::start_by(Arc::clone(&still) as SharedClock, store, release, adjust).await;
        Self { still: Some(still), ..server }
    }

    /// A second later, for a server that stands still.
    pub fn pass_a_second(&self) {
        let still = self.still.as_ref().expect("the server must have been started to stand still");
        still.seconds.fetch_add(1, Ordering::Relaxed);
    }

    async fn start_by(
        clock: SharedClock,
        store: SharedStore,
        release: Release,
        adjust: impl FnOnce(&mut Settings),
    ) -> Self {
        let built = Self::build(clock, store, release, adjust).await;
        built.finish().await;
        built
    }

    /// Joins the others and becomes ready.
    pub async fn finish(&self) {
        match self.server.finish_start_or_refuse().await {
            // It serves reads; a test that writes finds out.
            Ok(()) | Err(StartError::Refused(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// A server that answers, and is not ready.
    pub async fn build(
        clock: SharedClock,
        store: SharedStore,
        release: Release,
        adjust: impl FnOnce(&mut Settings),
    ) -> Self {
        // Without a Lease that is renewed, nothing is written but what a test writes.
        let gates = FeatureGates::parse("APIServerIdentity=false", release).unwrap();
        let catalog = Catalog::new(release, &RuntimeConfig::default(), &gates).unwrap();
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let issuer = TokenIssuer::new(&key.serialize_pem(), "https://kubernetes.default.svc").unwrap();
        let tokens = TokenFile::parse("usertoken,user,1\nadmintoken,admin,2,system:masters\n").unwrap();
        let trust = Arc::new(Trust::nobody(clock.clone()));
        let mut settings = Settings {
            catalog,
            server_address: "127.0.0.1:6443".to_owned(),
            event_ttl: Duration::from_secs(3600),
            allow_unenforced_policies: false,
            // No controller makes service accounts here.
            admission_plugins: Plugins::choose(&[], &["ServiceAccount".to_owned()]).unwrap(),
            authorization_modes: vec![Mode::Rbac],
            tokens: Some(tokens),
            token_keys: Arc::new(Keyring::new(Keys::new(issuer.clone(), TokenVerifier::of(&issuer)))),
            max_token_expiration: None,
            request_header: RequestHeaderConfig::standard(),
            trust: Box::new(move || Arc::clone(&trust)),
            allow_anonymous: true,
            auditor: Auditor::default(),
            max_requests_inflight: 400,
            max_mutating_requests_inflight: 200,
            request_timeout: Duration::from_secs(60),
            min_request_timeout: Duration::from_secs(1800),
            snapshots: None,
            fleet: FleetSettings::named(format!("test-{}", N_SERVERS.fetch_add(1, Ordering::Relaxed))),
            store_health: Box::new(|| Ok(())),
        };
        adjust(&mut settings);
        let metrics = Arc::new(Metrics::new(&clock, "v1.36.0", release));
        let lifecycle = Lifecycle::new();
        let server = Server::build(settings, store.clone(), clock, metrics, lifecycle.clone()).await.unwrap();
        Self { server, store, lifecycle, still: None }
    }

    /// Asks as an administrator.
    pub async fn ask(&self, method: &str, path: &str, body: Value) -> Answered {
        self.send(method, path, &[("authorization", "Bearer admintoken")], body).await
    }

    pub async fn get(&self, path: &str) -> Answered {
        self.ask("GET", path, Value::Null).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answered {
        self.ask("POST", path, body).await
    }

    pub async fn patch(&self, path: &str, kind: &str, body: Value) -> Answered {
        let content_type = format!("application/{kind}-patch+json");
        let headers = [("authorization", "Bearer admintoken"), ("content-type", content_type.as_str())];
        self.send("PATCH", path, &headers, body).await
    }

    pub async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Value) -> Answered {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        self.send_text(method, path, headers, text).await
    }

    pub async fn send_text(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Answered {
        let response = self.open(method, path, headers, body).await;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answered {
            code: parts.status.as_u16(),
            headers: parts.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap_or_default(),
        }
    }

    /// Asks, and leaves the body unread.
    pub async fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> http::Response<Body> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let peer = Arc::new(Peer::without_certificate(([127, 0, 0, 1], 0).into()));
        self.server.chain().serve(request.body(full_body(body)).unwrap(), peer, None).await
    }
}

/// A config map.
pub fn config_map(name: &str) -> Value {
    serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
