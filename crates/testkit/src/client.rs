//! A small HTTPS client for tests and benchmarks: JSON in, JSON out, everything bounded.
//!
//! It deliberately knows no Kubernetes types and hides nothing: status, headers and bytes come back as
//! they were sent. For a client that behaves like a user's, the tests use kube-rs and others.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::client::WantsClientCert;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;

/// No answer of a test is larger.
const LARGEST_ANSWER: usize = 512 << 20;

/// How long an answer may take before the request counts as unanswered.
const PATIENCE: Duration = Duration::from_secs(60);

/// Talks to one server with one identity. Clones share connections.
#[derive(Clone)]
pub struct Client {
    pool: Pool<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: String,
    token: Option<String>,
    patience: Duration,
}

/// A complete answer.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// The lines of an answer that goes on, as a watch does.
pub struct Lines {
    body: Incoming,
    buffer: BytesMut,
}

impl Client {
    /// A client for `base` (`https://127.0.0.1:6443`) that trusts the CA in `ca_file`.
    pub fn new(base: &str, ca_pem: &[u8], token: Option<&str>) -> Result<Client> {
        Ok(Client { token: token.map(str::to_owned), ..Self::over(base, tls_config(ca_pem)?) })
    }

    /// The same with a certificate instead of a token.
    pub fn with_certificate(base: &str, ca_pem: &[u8], certificate: &[u8], key: &[u8]) -> Result<Client> {
        let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(key)?;
        Ok(Self::over(base, trusting(ca_pem)?.with_client_auth_cert(chain, key)?))
    }

    fn over(base: &str, tls: rustls::ClientConfig) -> Client {
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().build();
        let pool =
            Pool::builder(TokioExecutor::new()).pool_idle_timeout(Duration::from_secs(30)).build(connector);
        Client { pool, base: base.to_owned(), token: None, patience: PATIENCE }
    }

    /// The same connections, another bearer token (or none).
    #[must_use]
    pub fn with_token(&self, token: Option<&str>) -> Client {
        Client { token: token.map(str::to_owned), ..self.clone() }
    }

    /// The same connections, another limit for a whole answer.
    #[must_use]
    pub fn with_patience(&self, patience: Duration) -> Client {
        Client { patience, ..self.clone() }
    }

    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.send(Method::GET, path, None, Bytes::new()).await
    }

    pub async fn delete(&self, path: &str) -> Result<Answer> {
        self.send(Method::DELETE, path, None, Bytes::new()).await
    }

    pub async fn post(&self, path: &str, object: &Value) -> Result<Answer> {
        self.send(Method::POST, path, Some("application/json"), object.to_string().into()).await
    }

    pub async fn put(&self, path: &str, object: &Value) -> Result<Answer> {
        self.send(Method::PUT, path, Some("application/json"), object.to_string().into()).await
    }

    /// `content_type` says which kind of patch it is.
    pub async fn patch(&self, path: &str, content_type: &str, patch: &Value) -> Result<Answer> {
        self.send(Method::PATCH, path, Some(content_type), patch.to_string().into()).await
    }

    /// Any request; the answer is read whole, within the patience of this client.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: Option<&str>,
        body: Bytes,
    ) -> Result<Answer> {
        let mut request = self.request(method, path);
        if let Some(content_type) = content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        self.exchange(request.body(Full::new(body)).context("the request must be well formed")?).await
    }

    /// A request made with [`Client::request`].
    pub async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer> {
        let exchange = async {
            let response = self.pool.request(request).await?;
            let (parts, body) = response.into_parts();
            let collected = Limited::new(body, LARGEST_ANSWER).collect().await;
            let body =
                collected.map_err(|error| anyhow::anyhow!("the answer broke off: {error}"))?.to_bytes();
            Ok(Answer { status: parts.status, headers: parts.headers, body })
        };
        tokio::time::timeout(self.patience, exchange).await.context("no answer in time")?
    }

    /// The start of a request, with address and token set.
    pub fn request(&self, method: Method, path: &str) -> http::request::Builder {
        let request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        match &self.token {
            Some(token) => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        }
    }

    /// Starts a watch; a refusal comes back as the answer it is.
    pub async fn watch(&self, path: &str) -> Result<Result<Lines, Answer>> {
        let request = self.request(Method::GET, path).body(Full::default())?;
        let started = tokio::time::timeout(self.patience, self.pool.request(request)).await;
        let response = started.context("the watch did not start in time")??;
        if response.status() == StatusCode::OK {
            return Ok(Ok(Lines { body: response.into_body(), buffer: BytesMut::new() }));
        }
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, LARGEST_ANSWER).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("the answer broke off: {error}"))?.to_bytes();
        Ok(Err(Answer { status: parts.status, headers: parts.headers, body }))
    }
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("no JSON: {}", self.text()))
    }

    /// The body as text, for messages.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON, if the status is as expected.
    pub fn expect(&self, status: u16) -> Result<Value> {
        if self.status.as_u16() != status {
            bail!("expected {status}, got {}: {}", self.status, self.text());
        }
        self.json()
    }
}

impl Lines {
    /// The next line, `None` at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|it| *it == b'\n') {
                let line = self.buffer.split_to(end + 1).freeze();
                return Ok(Some(line.slice(..end)));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(error).context("the stream broke off"),
                // A line without an end was cut off: nobody may act on it.
                None => return Ok(None),
            }
            if self.buffer.len() > LARGEST_ANSWER {
                bail!("a line longer than {LARGEST_ANSWER} bytes");
            }
        }
    }
}

/// TLS that trusts one CA and nothing else.
pub fn tls_config(ca_pem: &[u8]) -> Result<rustls::ClientConfig> {
    Ok(trusting(ca_pem)?.with_no_client_auth())
}

fn trusting(ca_pem: &[u8]) -> Result<rustls::ConfigBuilder<rustls::ClientConfig, WantsClientCert>> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem) {
        roots.add(certificate.context("the CA must be PEM")?).context("the CA must be usable")?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("the provider must know TLS 1.2 and 1.3")?
        .with_root_certificates(roots);
    Ok(config)
}

/// Server address and CA out of a kubeconfig, by line: all that tests need of it.
pub fn read_kubeconfig(path: &Path) -> Result<(String, Vec<u8>)> {
    use base64::Engine;
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let field = |name: &str| {
        let found = text.split(['\n', ',', '{', '}']).find_map(|line| {
            let line = line.trim().trim_start_matches("- ").replace('"', "");
            line.strip_prefix(name)?.strip_prefix(':').map(|it| it.trim().to_owned())
        });
        found.with_context(|| format!("no `{name}` in {}", path.display()))
    };
    let ca = base64::engine::general_purpose::STANDARD.decode(field("certificate-authority-data")?);
    Ok((field("server")?, ca.context("the CA must be base64")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_and_ca_are_found_in_a_kubeconfig() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "clusters:\n- cluster:\n    certificate-authority-data: aGk=\n    server: https://127.0.0.1:7443\n";
        std::fs::write(file.path(), text).unwrap();
        let (server, ca) = read_kubeconfig(file.path()).unwrap();
        assert_eq!(server, "https://127.0.0.1:7443");
        assert_eq!(ca, b"hi");
    }
}
