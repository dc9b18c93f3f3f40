//! A server that is measured: how to ask it, comfortably and fast.

use std::time::Duration;

use http::{Request, Response};
use kube::client::{Body, ConfigExt};
use load::{closed_loop, closed_loop::Subject, wire::Target};
use serde_json::{Value, json};
use store::{SharedClock, SystemClock};
use tower::{Layer, ServiceExt};

use super::Size;
use crate::{
    cluster::{ClusterFlags, request},
    failure::{Exit, Failure},
};

/// Where everything is made; refused if it is there already, because it is deleted in the end.
const NAMESPACE: &str = "convoy-bench";

/// What most figures are about.
pub const MAPS: Subject =
    Subject { path: "/api/v1/namespaces/convoy-bench/configmaps", api_version: "v1", kind: "ConfigMap" };

/// One server, or what stands before several.
pub struct Endpoint {
    pub name: String,
    /// What it says that it is, such as `v1.36.0`.
    pub version: String,
    pub client: kube::Client,
    pub target: Target,
    pub clock: SharedClock,
}

impl Endpoint {
    pub async fn of(cluster: &ClusterFlags) -> Result<Self, Failure> {
        let config = cluster.config().await?;
        let name = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let tls = config.rustls_client_config().map_err(|it| Failure::because(&it))?;
        let headers = credentials(&config).await?;
        let target = Target::new(&name, tls, &headers).map_err(|it| Failure::because(&it))?;
        let target = target.named(config.tls_server_name.clone());
        let client = kube::Client::try_from(config).map_err(|it| Failure::because(&it))?;
        let version = request(&client, "GET", "/version", None).await?;
        let version = version["gitVersion"].as_str().unwrap_or("unknown").to_owned();
        Ok(Self { name, version, client, target, clock: SystemClock::shared() })
    }

    pub async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        request(&self.client, method, path, body).await
    }

    /// Whether there is something; asked of groups and versions, which not every server has.
    pub async fn is_found(&self, path: &str) -> Result<bool, Failure> {
        match self.ask("GET", path, None).await {
            Ok(_) => Ok(true),
            Err(Failure { exit: Exit::Unknown, .. }) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// The namespace that everything is made in.
    pub async fn make_namespace(&self) -> Result<(), Failure> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        self.ask("POST", "/api/v1/namespaces", Some(&namespace)).await.map_err(|it| {
            Failure::failed(format!(
                "{}: {}; bench works in a namespace of its own, {NAMESPACE}, and deletes it",
                self.name, it.message
            ))
        })?;
        Ok(())
    }

    /// The objects that are read.
    pub async fn make_objects(&self, size: Size) -> Result<(), Failure> {
        let make = MAPS.creates(&self.target, "read");
        let sent = closed_loop::send_all(&self.target, size.connections, size.objects, make).await;
        sent.map(drop).map_err(|it| Failure::because(&it))
    }

    /// What was made goes; if that does not work somebody will see it.
    pub async fn clean_up(&self) {
        self.forget_everything().await;
        let _ = self.ask("DELETE", &format!("/api/v1/namespaces/{NAMESPACE}"), None).await;
    }

    /// Waits until something is so.
    pub async fn until<F: Future<Output = Result<bool, Failure>>>(
        &self,
        what: &str,
        limit: Duration,
        mut check: impl FnMut() -> F,
    ) -> Result<(), Failure> {
        let deadline = self.clock.monotonic() + limit;
        while !check().await? {
            if self.clock.monotonic() > deadline {
                return Err(Failure::failed(format!("{}: {what} took more than {limit:?}", self.name)));
            }
            self.clock.sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

/// The headers by which the kubeconfig's user is known: whatever kube would send, plugins included.
async fn credentials(config: &kube::Config) -> Result<Vec<(String, String)>, Failure> {
    let Some(layer) = config.auth_layer().map_err(|it| Failure::because(&it))? else {
        return Ok(Vec::new());
    };
    let show = tower::service_fn(|request: Request<Body>| {
        let headers = request.headers().clone();
        let mut response = Response::new(());
        *response.headers_mut() = headers;
        std::future::ready(Ok::<_, tower::BoxError>(response))
    });
    let request = Request::new(Body::empty());
    let seen = layer.layer(show).oneshot(request).await.map_err(|it| Failure::failed(it.to_string()))?;
    let text = |value: &http::HeaderValue| value.to_str().ok().map(str::to_owned);
    Ok(seen.headers().iter().filter_map(|(name, it)| Some((name.to_string(), text(it)?))).collect())
}
