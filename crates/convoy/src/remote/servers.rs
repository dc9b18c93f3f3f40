//! Which API servers are asked: those that somebody named, those that the cluster lists, or whatever is behind the address
//! of the kubeconfig.

use std::time::Duration;

use controllers::migration::api::{ApiEngine, Endpoint, Reach, Settings, listed};

use super::RemoteFlags;
use crate::{cluster, failure::Failure};

/// The cluster is asked so often whether its servers are still the same.
const LOOK: Duration = Duration::from_secs(30);
/// A server that does not answer for so long cannot be reached by its address.
const PATIENCE: Duration = Duration::from_secs(5);
/// What kube-apiserver's certificates are valid for, beside its addresses.
const SERVICE: &str = "kubernetes.default.svc";

/// How they are reached.
pub(super) struct Servers {
    endpoints: Vec<Endpoint>,
    reach: Reach,
    /// What the cluster listed, if it was asked.
    asked: Option<Result<Vec<String>, String>>,
}

impl Servers {
    /// Finds them.
    pub(super) async fn find(flags: &RemoteFlags, config: &kube::Config) -> Result<Self, Failure> {
        let mut config = config.clone();
        // The engine must see when a server has too much to do.
        config.default_retry = false;
        if !flags.endpoint.is_empty() {
            let endpoints = flags.endpoint.iter().map(|it| endpoint(&config, it.to_string(), it.clone()));
            let endpoints = endpoints.collect::<Result<_, _>>()?;
            return Ok(Self { endpoints, reach: Reach::EveryServer, asked: None });
        }
        let own = endpoint(&config, config.cluster_url.to_string(), config.cluster_url.clone())?;
        let asked = ask(&own.client).await;
        let each = match &asked {
            Ok(addresses) => each(&config, addresses).await,
            Err(why) => Err(why.clone()),
        };
        Ok(match each {
            Ok(endpoints) => {
                tracing::info!(servers = endpoints.len(), "every API server is asked by its own address");
                Self { endpoints, reach: Reach::ListedServers, asked: Some(asked) }
            }
            Err(why) => {
                tracing::info!(
                    why,
                    "API servers are asked through one address, behind which there may be several: name each with \
                     --endpoint, or accept the evidence SecondPassOneEndpoint"
                );
                Self { endpoints: vec![own], reach: Reach::SharedAddress, asked: Some(asked) }
            }
        })
    }

    pub(super) fn engine(&self, flags: &RemoteFlags) -> ApiEngine {
        let mut settings = Settings::default();
        settings.at_once = flags.concurrency.max(1);
        settings.settle = flags.settle_time.0;
        ApiEngine::new(self.endpoints.clone(), self.reach, settings)
    }

    /// Ends when the cluster lists other servers than before.
    pub(super) async fn changed(&self, client: &kube::Client) {
        let Some(asked) = &self.asked else { return std::future::pending().await };
        let (mut n_other, mut n_untold) = (0, 0);
        // Once may be a moment in which one comes or goes. What cannot be told is waited for: nothing is done meanwhile.
        while n_other < 2 && n_untold < 10 {
            tokio::time::sleep(LOOK).await;
            (n_other, n_untold) = match (asked, ask(client).await) {
                (Ok(before), Ok(now)) if *before == now => (0, 0),
                (Err(_), Err(_)) => (0, 0),
                (_, Ok(_)) => (n_other + 1, 0),
                (Ok(_), Err(_)) => (0, n_untold + 1),
            };
        }
        tracing::info!("the cluster lists other API servers than before");
    }
}

async fn ask(client: &kube::Client) -> Result<Vec<String>, String> {
    let found = tokio::time::timeout(PATIENCE, listed(client)).await;
    found.unwrap_or_else(|_| Err("the API server does not answer".to_owned()))
}

/// An endpoint for each address, if each can be reached.
async fn each(config: &kube::Config, addresses: &[String]) -> Result<Vec<Endpoint>, String> {
    // Credentials go only to who has shown a certificate of the cluster.
    if config.accept_invalid_certs || config.cluster_url.scheme_str() != Some("https") {
        return Err("without certificates it is not known whose an address is".to_owned());
    }
    let mut endpoints = Vec::new();
    for address in addresses {
        endpoints.push(reached(config, address).await?);
    }
    Ok(endpoints)
}

async fn reached(config: &kube::Config, address: &str) -> Result<Endpoint, String> {
    let url: http::Uri =
        format!("https://{address}").parse().map_err(|_| format!("{address} is no address"))?;
    let mut why = String::new();
    for name in [config.tls_server_name.clone(), Some(SERVICE.to_owned())] {
        let mut config = config.clone();
        config.tls_server_name = name;
        let endpoint = endpoint(&config, address.to_owned(), url.clone()).map_err(|it| it.message)?;
        let asked = cluster::ask(&endpoint.client, "GET", "/version", Vec::new());
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(_)) => return Ok(endpoint),
            Ok(Err(failure)) => why = failure.message,
            Err(_) => return Err(format!("the API server {address} does not answer")),
        }
    }
    Err(format!("the API server {address} cannot be reached: {why}"))
}

fn endpoint(config: &kube::Config, name: String, url: http::Uri) -> Result<Endpoint, Failure> {
    let mut config = config.clone();
    config.cluster_url = url;
    let client = kube::Client::try_from(config).map_err(|it| Failure::because(&it))?;
    Ok(Endpoint { name, client })
}
