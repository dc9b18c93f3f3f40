//! How this server reaches the others of its cluster: over TLS, each side proving itself.
//!
//! The other side must show a certificate of the cluster's authority for `kubernetes.default.svc`; this side shows the
//! front proxy's. An answer that is not proven is no answer. Addresses come from member records, which no API can write.
//! Deliberately not here: connections that are kept ([`pool`]), and what is sent over them ([`crate::forward`]).

pub mod egress;
pub(crate) mod link;
pub(crate) mod pool;

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use fleet::{Identity, Incarnation};
use http::Request;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use serde::{Deserialize, Serialize};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::body::BoxError;
use egress::{Egress, Stream};

/// The name under which servers of a cluster know each other, as upstream.
const SERVER_NAME: &str = "kubernetes.default.svc";

/// Larger answers are none.
const MAX_ANSWER: usize = 64 * 1024;

/// Time for a connection, its proxy and its handshake. A server that is there answers in far less.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);

/// The files with which servers prove themselves to each other, and the way to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers {
    /// The authority of serving certificates.
    pub ca: PathBuf,
    /// What this server shows.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// How connections leave this machine.
    pub egress: Egress,
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

    async fn ask(&self, address: &str) -> Result<Answer, BoxError> {
        let stream = self.connect(address, b"http/1.1").await?;
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
            Ok::<_, BoxError>(serde_json::from_slice(&body)?)
        };
        tokio::select! {
            answer = asked => answer,
            ended = connection => Err(ended.err().map_or_else(|| "the connection ended".into(), Into::into)),
        }
    }

    /// A connection on which both sides have proven themselves, for one protocol.
    pub(crate) async fn connect(
        &self,
        address: &str,
        protocol: &[u8],
    ) -> Result<TlsStream<Box<dyn Stream>>, BoxError> {
        let connected = async {
            let mut tls = self.tls()?;
            tls.alpn_protocols = vec![protocol.to_vec()];
            let stream = self.egress.connect(address).await?;
            let name = ServerName::try_from(SERVER_NAME)?;
            let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await?;
            if stream.get_ref().1.alpn_protocol() != Some(protocol) {
                return Err("the server speaks another protocol".into());
            }
            Ok(stream)
        };
        match tokio::time::timeout(CONNECT_WITHIN, connected).await {
            Ok(connected) => connected,
            Err(_elapsed) => Err(format!("no connection within {CONNECT_WITHIN:?}").into()),
        }
    }

    /// Read for every connection: they are few, and files that were renewed count from the next one on.
    fn tls(&self) -> Result<ClientConfig, BoxError> {
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
