//! The clients of a roll: this project's own, kube-rs, and Python's. Each sends what it is told and says what it heard.

use std::{path::Path, process::Stdio, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use testkit::{Client, convoy::ADMIN_TOKEN};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::Mutex,
};

use super::verdict::Said;

const MERGE: &str = "application/merge-patch+json";
const PATIENCE: Duration = Duration::from_secs(60);

/// Where clients find the cluster, and by what they recognise it.
#[derive(Clone)]
pub struct Place {
    pub url: String,
    pub ca: Vec<u8>,
    /// An administrator's, with the balancer's address.
    pub kubeconfig: std::path::PathBuf,
}

/// One client.
#[derive(Clone)]
pub enum Hand {
    /// A new connection for each request, so that the balancer has a choice.
    Raw(Place),
    Kube(kube::Client),
    Python(Arc<Mutex<Python>>),
}

impl Place {
    /// The kubeconfig of a server, with another address.
    pub fn new(url: &str, ca: &[u8], kubeconfig: &Path, folder: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(kubeconfig)?;
        let (server, _) = testkit::client::read_kubeconfig(kubeconfig)?;
        let own = folder.join("balanced.kubeconfig");
        std::fs::write(&own, text.replace(&server, url))?;
        Ok(Self { url: url.to_owned(), ca: ca.to_vec(), kubeconfig: own })
    }

    pub fn client(&self) -> Result<Client> {
        Client::new(&self.url, &self.ca, Some(ADMIN_TOKEN))
    }

    pub async fn kube(&self) -> Result<Hand> {
        // One provider for the whole process; several tests may be first.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Hand::Kube(kube::Client::try_from(config)?))
    }
}

impl Hand {
    pub fn name(&self) -> &'static str {
        match self {
            Hand::Raw(_) => "raw",
            Hand::Kube(_) => "kube",
            Hand::Python(_) => "python",
        }
    }

    pub async fn ask(&self, method: &'static str, path: &str, accept: &str, body: &Value) -> Result<Said> {
        let content = if method == "PATCH" { MERGE } else { "application/json" };
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let start = |request: http::request::Builder| {
            request.header("accept", accept).header("content-type", content)
        };
        match self {
            Hand::Raw(place) => {
                let client = place.client()?;
                let request = start(client.request(Method::from_bytes(method.as_bytes())?, path));
                let answer = client.exchange(request.body(Full::new(bytes.into()))?).await?;
                Ok(heard(answer.status.as_u16(), &answer.headers, &answer.body))
            }
            Hand::Kube(client) => {
                let request = start(Request::builder().method(method).uri(path));
                let exchange = async {
                    let response = client.send(request.body(kube::client::Body::from(bytes))?).await?;
                    let (parts, body) = response.into_parts();
                    let body = body.collect().await?.to_bytes();
                    anyhow::Ok(heard(parts.status.as_u16(), &parts.headers, &body))
                };
                tokio::time::timeout(PATIENCE, exchange).await.context("no answer in time")?
            }
            Hand::Python(python) => {
                let asked = json!({"method": method, "path": path, "accept": accept, "content": content,
                    "body": body});
                python.lock().await.ask(&asked).await
            }
        }
    }
}

fn heard(code: u16, headers: &http::HeaderMap, body: &[u8]) -> Said {
    let body = serde_json::from_slice(body).unwrap_or(Value::Null);
    Said { code, has_retry_after: headers.contains_key("retry-after"), body }
}

/// Python's client in a process of its own.
pub struct Python {
    _child: Child,
    to: ChildStdin,
    from: Lines<BufReader<ChildStdout>>,
}

impl Python {
    pub fn start(program: &Path, place: &Place) -> Result<Hand> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/ask.py");
        let mut child = Command::new(program)
            .arg(script)
            .arg(&place.kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()?;
        let to = child.stdin.take().context("a pipe")?;
        let from = BufReader::new(child.stdout.take().context("a pipe")?).lines();
        Ok(Hand::Python(Arc::new(Mutex::new(Self { _child: child, to, from }))))
    }

    async fn ask(&mut self, asked: &Value) -> Result<Said> {
        self.to.write_all(format!("{asked}\n").as_bytes()).await?;
        let line = self.from.next_line().await?.context("the Python client has ended")?;
        let said: Value = serde_json::from_str(&line)?;
        if let Some(error) = said["error"].as_str() {
            bail!("{error}");
        }
        let body = said["body"].as_str().unwrap_or_default();
        Ok(Said {
            code: u16::try_from(said["code"].as_u64().unwrap_or_default())?,
            has_retry_after: said["retryAfter"] == true,
            body: serde_json::from_str(body).unwrap_or(Value::Null),
        })
    }
}
