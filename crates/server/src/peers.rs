//! How this server asks another one of its cluster who it is: over TLS, each side proving itself.
//!
//! The other side must show a certificate of the cluster's authority for `kubernetes.default.svc`; this side shows the
//! front proxy's. An answer that is not proven is no answer.

use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;
use fleet::{Identity, Incarnation};
use http::Request;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// The name under which servers of a cluster know each other, as upstream.
const SERVER_NAME: &str = "kubernetes.default.svc";

/// Larger answers are none.
const MAX_ANSWER: usize = 64 * 1024;

/// The files with which servers prove themselves to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers {
    /// The authority of serving certificates.
    pub ca: PathBuf,
    /// What this server shows.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// What `/convoy/identity` answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) identity: Identity,
    pub(crate) incarnation: Incarnation,
}

impl Peers {
    /// Who answers at `host:port`; `None` if nobody does, or nobody who can prove it.
    pub async fn identity(&self, address: &str) -> Option<(Identity, Incarnation)> {
        match self.ask(address).await {
            Ok(Answer { identity, incarnation }) => Some((identity, incarnation)),
            Err(error) => {
                tracing::debug!(address, %error, "no server says who it is there");
                None
            }
        }
    }

    async fn ask(&self, address: &str) -> Result<Answer, BoxedError> {
        let connector = TlsConnector::from(Arc::new(self.tls()?));
        let stream = TcpStream::connect(address).await?;
        let stream = connector.connect(ServerName::try_from(SERVER_NAME)?, stream).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::get("/convoy/identity")
            .header("host", SERVER_NAME)
            .header("x-remote-user", "system:apiserver")
            .header("x-remote-group", "system:masters")
            .body(Empty::<Bytes>::new())?;
        let asked = async {
            let response = sender.send_request(request).await?;
            let code = response.status();
            if !code.is_success() {
                return Err(format!("it answers {code}").into());
            }
            let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await?.to_bytes();
            Ok::<_, BoxedError>(serde_json::from_slice(&body)?)
        };
        tokio::select! {
            answer = asked => answer,
            ended = connection => Err(ended.err().map_or_else(|| "the connection ended".into(), Into::into)),
        }
    }

    /// Read every time: this is asked for once in the life of a server.
    fn tls(&self) -> Result<ClientConfig, BoxedError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(&self.ca)? {
            roots.add(certificate?)?;
        }
        let chain = CertificateDer::pem_file_iter(&self.certificate)?.collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_file(&self.key)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        Ok(config.with_root_certificates(roots).with_client_auth_cert(chain, key)?)
    }
}
