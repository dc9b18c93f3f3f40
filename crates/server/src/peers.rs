//! How this server reaches the others of its cluster: over TLS, each side proving itself.
//!
//! The other side must show a certificate of the cluster's authority for `kubernetes.default.svc`; this side shows the
//! front proxy's. An answer that is not proven names nobody, but it is not silence either. Addresses come from member records, which no API can write.
//! Deliberately not here: connections that are kept ([`pool`]), and what is sent over them ([`crate::forward`]).

pub mod egress;
pub(crate) mod link;
pub(crate) mod pool;

use std::{fmt, fs, path::PathBuf, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use fleet::{Identity, Incarnation, member::Other};
use http::Request;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use serde::{Deserialize, Serialize};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{body::BoxError, follow};
use egress::{Egress, Stream};

/// The name under which servers of a cluster know each other, as upstream.
const SERVER_NAME: &str = "kubernetes.default.svc";

/// Larger answers are none.
const MAX_ANSWER: usize = 64 * 1024;

/// Time for a connection, its proxy and its handshake. A server that is there answers in far less.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);

/// The files with which servers prove themselves to each other, and the way to each other. Clones share what was read.
#[derive(Clone)]
pub struct Peers {
    /// The authorities of serving certificates.
    pub ca: PathBuf,
    /// What this server shows.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// How connections leave this machine.
    pub egress: Egress,
    current: Arc<ArcSwapOption<Current>>,
}

/// What was read last and can be used.
struct Current {
    /// Of the authorities, the certificate and its key.
    contents: [Vec<u8>; 3],
    config: ClientConfig,
    generation: u64,
}

/// What `/convoy/identity` answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) identity: Identity,
    pub(crate) incarnation: Incarnation,
}

impl Peers {
    /// Nothing is read yet.
    pub fn new(ca: PathBuf, certificate: PathBuf, key: PathBuf, egress: Egress) -> Self {
        Self { ca, certificate, key, egress, current: Arc::default() }
    }

    /// Reads the files again whenever they have changed, for ever.
    pub(crate) async fn follow_files(self, clock: store::SharedClock) {
        follow::files("certificates between servers", clock, || {
            let peers = self.clone();
            follow::aside(move || peers.reload())
        })
        .await;
    }

    /// Grows with every reload. The other side looks at a certificate for as long as its connection lives, so whatever
    /// was connected under another generation must not be used for something new.
    pub(crate) fn generation(&self) -> u64 {
        self.current.load().as_ref().map_or(0, |it| it.generation)
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
            Err(_elapsed) => Err(NoConnection.into()),
        }
    }

    fn tls(&self) -> Result<ClientConfig, BoxError> {
        if let Some(current) = &*self.current.load() {
            return Ok(current.config.clone());
        }
        self.reload()?;
        let current = self.current.load();
        Ok(current.as_ref().ok_or("nothing was read")?.config.clone())
    }

    /// Reads the files. Says whether something changed; on an error everything stays as it was.
    fn reload(&self) -> Result<bool, BoxError> {
        let read =
            |path: &PathBuf| fs::read(path).map_err(|it| format!("cannot read {}: {it}", path.display()));
        let contents = [read(&self.ca)?, read(&self.certificate)?, read(&self.key)?];
        let before = self.current.load();
        if before.as_ref().is_some_and(|it| it.contents == contents) {
            return Ok(false);
        }
        let config = config(&contents)?;
        let generation = before.as_ref().map_or(0, |it| it.generation + 1);
        self.current.store(Some(Arc::new(Current { contents, config, generation })));
        Ok(before.is_some())
    }
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers").field("ca", &self.ca).field("egress", &self.egress).finish_non_exhaustive()
    }
}

fn config([ca, certificate, key]: &[Vec<u8>; 3]) -> Result<ClientConfig, BoxError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca) {
        roots.add(certificate?)?;
    }
    if roots.is_empty() {
        return Err("there is no authority for other servers".into());
    }
    let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(key)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_client_auth_cert(chain, key)?)
}

/// Who answers at `host:port`, nobody, or something that could not be proven to be anybody.
///
/// Only a connection that is refused or does not come about, and an answer that does not come, are silence: whatever
/// else goes wrong shows that something is there.
pub(crate) async fn probe(peers: Option<&Peers>, address: &str) -> Other {
    let asked = async {
        match peers {
            Some(peers) => peers.ask(address).await,
            None => {
                Egress::Direct.connect(address).await?;
                Err("this server has no --peer-ca-file to ask it with".into())
            }
        }
    };
    let answered = tokio::time::timeout(CONNECT_WITHIN, asked).await;
    let other = match answered {
        Ok(Ok(Answer { identity, incarnation })) => Other::Answered(identity, incarnation),
        Ok(Err(error)) if is_silence(&*error) => Other::Silent,
        Ok(Err(error)) => Other::Unproven(error.to_string()),
        Err(_elapsed) => Other::Silent,
    };
    tracing::debug!(address, ?other, "asked who is there");
    other
}

/// Whether an error says that nobody listens at an address, or that nobody can be reached there.
fn is_silence(error: &(dyn std::error::Error + 'static)) -> bool {
    use std::io::ErrorKind::{
        AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkDown, NetworkUnreachable, TimedOut,
    };
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    matches!(
        kind,
        Some(
            ConnectionRefused
                | HostUnreachable
                | NetworkUnreachable
                | NetworkDown
                | AddrNotAvailable
                | TimedOut
        )
    ) || error.is::<NoConnection>()
}

/// Nothing came of a connection in time.
#[derive(Debug, thiserror::Error)]
#[error("no connection within {CONNECT_WITHIN:?}")]
struct NoConnection;
